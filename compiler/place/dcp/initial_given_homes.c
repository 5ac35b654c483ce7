/* initial_given_homes.c: an initial partition where homes are given: ranks with too much work give rows to others.
 *
 * Requires: what dcp.h says of a dcp_input, with fixed homes.
 * Gives: a rank for every tile. Ranks over the cap on pairs have given away what others had room for, as far as rows
 *     and their tiles allow; rebalance_tiles.c does the rest.
 * Cost: O(blocks + tiles), and of each rank that takes: for each row that it takes, a look at the rows that its node
 *     may take, which are at most DCP_GIVEN of other nodes.
 * Units: pairs; bytes, where one between nodes counts `net` times.
 *
 * What a row costs. If it runs at home, it costs nothing but the keys that it reads. If it is given away, its queries
 * travel, its result comes back, and its keys go where it went. A second row that reads the same keys and goes to the
 * same rank then costs only its queries and result.
 *
 * How a rank with room is filled:
 *   1. It takes one row after another, always the one with fewest bytes for each pair:
 *         bytes   of Q and the result, and of the keys that are not there yet
 *         pairs   of the row, but counted only as far as the giver has too many and the taker has room
 *   2. If it takes only part of a row, the tiles whose keys are there come first.
 *   3. The first row that it takes decides how many keys come there. They are as many as cost fewest bytes if the rank
 *      then fills its room with rows that see just these keys (best_width).
 *
 * Ranks take from their own node first, then from others. Both takers and rows come in the order of the batch, so the
 * first DCP_GIVEN rows that are left to give are about those of the sequences that the taker has a part of.
 */
#include <string.h>

#include "compiler/base/group.h"
#include "compiler/base/integers.h"
#include "compiler/place/dcp/dcp.h"

typedef struct giving {
    const dcp_input *in;
    const dcp_columns *c;
    dcp_partition *out;
    uint64_t *excess;  /* per rank: pairs over the cap */
    uint64_t *left;    /* per row: pairs that still run at its home */
    /* per row, for the rank that takes: bytes of the keys that it lacks, and pairs whose keys it has */
    uint64_t *missing, *there;
    uint8_t *has;      /* per block: its keys are at the rank that takes */
    uint32_t *had, hads; /* the blocks for which `has` is set */
    uint32_t *in_node; /* per block: node + 1 for the last node looked at that has its keys */
    uint32_t *near, nears; /* tiles that ran in that node before its ranks took any */
    uint32_t *start, *block; /* the blocks at home in each node, ascending; group.h */
    uint32_t *row, rows; /* that may be given at all */
    uint32_t next;       /* the first block that was not looked at yet for ranks of other nodes */
    uint64_t most_tile; /* pairs of the fullest tile */
} giving;

/* An offer: a row that may be taken, or part of it, with its bytes and pairs. */
typedef struct offer {
    uint32_t q;
    bool there;            /* only tiles whose keys are at the rank that takes */
    uint64_t bytes, pairs;
} offer;

static uint32_t node_of(const giving *g, uint32_t rank) { return rank / g->in->gpus; }

/* The bytes of bringing block k's keys to a rank of this node. */
static uint64_t key_bytes(const giving *g, uint32_t k, uint32_t node) {
    return g->in->block[k].kv * (g->in_node[k] == node + 1 ? 1 : g->in->net);
}

/* --- what is where ------------------------------------------------------------------------------------------------ */

/* Finds which keys the ranks of a node have, and which tiles run there. They have taken none from other nodes yet, so
 * these are tiles of rows that are at home there. */
static void find_keys_of_node(giving *g, uint32_t node) {
    const dcp_input *in = g->in;
    g->nears = 0;
    for (uint32_t i = g->start[node]; i < g->start[node + 1]; i++) {
        const uint32_t q = g->block[i];
        g->in_node[q] = node + 1;
        for (uint32_t t = in->tile_start[q]; t < in->tile_start[q + 1]; t++) {
            if (node_of(g, g->out->exec[t]) != node) continue;
            g->in_node[in->tile_k[t]] = node + 1;
            g->near[g->nears++] = t;
        }
    }
}

static void note_keys(giving *g, uint32_t k) {
    if (g->has[k]) return;
    g->has[k] = 1;
    g->had[g->hads++] = k;
}

/* Notes that block k's keys are at the rank that takes, so that further rows there need not bring them. */
static void bring_keys(giving *g, uint32_t k, uint32_t node) {
    const uint64_t bytes = key_bytes(g, k, node);
    if (g->has[k]) return;
    note_keys(g, k);
    g->in_node[k] = node + 1;
    for (uint32_t i = g->c->start[k]; i < g->c->start[k + 1]; i++) {
        const uint32_t t = g->c->tile[i], q = g->c->tile_q[t];
        if (g->out->exec[t] != g->in->fixed[q]) continue;
        g->missing[q] -= bytes;
        g->there[q] += g->in->tile_pairs[t];
    }
}

/* Prepares for a rank that takes: finds which keys it has, and how many bytes of keys each row would have to bring. */
static void begin_rank(giving *g, uint32_t rank) {
    const dcp_input *in = g->in;
    const uint32_t node = node_of(g, rank);
    while (g->hads) g->has[g->had[--g->hads]] = 0;
    for (uint32_t i = g->start[node]; i < g->start[node + 1]; i++)
        if (in->fixed[g->block[i]] == rank) note_keys(g, g->block[i]);
    for (uint32_t i = 0; i < g->nears; i++) /* nobody else has taken for it since */
        if (g->out->exec[g->near[i]] == rank) note_keys(g, in->tile_k[g->near[i]]);
    for (uint32_t i = 0; i < g->rows; i++) {
        const uint32_t q = g->row[i];
        g->missing[q] = g->there[q] = 0;
        for (uint32_t t = in->tile_start[q]; t < in->tile_start[q + 1]; t++) {
            if (g->out->exec[t] != in->fixed[q]) continue;
            if (g->has[in->tile_k[t]]) g->there[q] += in->tile_pairs[t];
            else g->missing[q] += key_bytes(g, in->tile_k[t], node);
        }
    }
}

/* --- rows that are given ------------------------------------------------------------------------------------------ */

/* Is offer a better than b? It is if it has fewer bytes for each pair or, at equal cost, more pairs. */
static bool is_better(const offer *a, const offer *b) {
    const unsigned __int128 x = (unsigned __int128)a->bytes * b->pairs, y = (unsigned __int128)b->bytes * a->pairs;
    return !b->pairs || x < y || (x == y && a->pairs > b->pairs);
}

/* Finds the offer that costs least for each pair. pairs = 0: there is none. */
static offer find_offer(const giving *g, uint32_t to, uint64_t room) {
    const dcp_input *in = g->in;
    offer best = {0};
    for (uint32_t i = 0; i < g->rows; i++) {
        const uint32_t q = g->row[i], from = in->fixed[q];
        if (from == to || !g->excess[from] || !g->left[q]) continue;
        const uint64_t far = node_of(g, from) == node_of(g, to) ? 1 : in->net;
        const bool whole = g->left[q] <= room && g->left[q] <= 2 * g->excess[from];
        offer all = {q, false, 0, whole ? g->left[q] : min_u64(room, g->excess[from])};
        offer some = {q, true, in->block[q].part * far, min_u64(g->there[q], all.pairs)};
        all.bytes = (whole ? in->block[q].whole : in->block[q].part) * far +
                    (whole ? g->missing[q] : (uint64_t)((unsigned __int128)g->missing[q] * all.pairs / g->left[q]));
        if (all.pairs && is_better(&all, &best)) best = all;
        if (some.pairs && some.pairs < all.pairs && is_better(&some, &best)) best = some;
    }
    return best;
}

/* How many pairs of each row a rank should take if it fills `pairs` pairs with rows that see the same keys. Such a
 * strip has rows x keys tiles; a key costs its K and V, a row its Q and a result. The bytes are fewest if the number of
 * keys is sqrt(tiles x bytes of a row / bytes of a key). */
static uint64_t best_width(const giving *g, uint32_t q, uint64_t pairs) {
    const uint64_t tiles = pairs / (g->most_tile ? g->most_tile : 1), kv = g->in->block[q].kv ? g->in->block[q].kv : 1;
    uint64_t width = 1;
    while (width * width * kv < tiles * g->in->block[q].part) width++;
    return width * g->most_tile;
}

/* Makes rank `to` compute tile t. */
static void move_tile(giving *g, uint32_t t, uint32_t to, uint32_t node) {
    const dcp_input *in = g->in;
    const uint32_t q = g->c->tile_q[t], from = in->fixed[q];
    const uint64_t pairs = in->tile_pairs[t];
    bring_keys(g, in->tile_k[t], node);
    g->out->exec[t] = to;
    g->out->load[from] -= pairs;
    g->out->load[to] += pairs;
    g->excess[from] -= min_u64(pairs, g->excess[from]);
    g->left[q] -= pairs;
    g->there[q] -= pairs;
}

/* Takes the tiles of an offer, those whose keys are there first. Returns their pairs. */
static uint64_t take_offer(giving *g, const offer *o, uint32_t to, uint64_t room) {
    const dcp_input *in = g->in;
    const uint32_t node = node_of(g, to);
    uint64_t enough = o->pairs, taken = 0;
    if (!o->there && !g->there[o->q] && o->pairs < g->left[o->q]) enough = min_u64(enough, best_width(g, o->q, room));
    for (int there = 1; there >= !!o->there; there--)
        for (uint32_t t = in->tile_start[o->q]; t < in->tile_start[o->q + 1]; t++) {
            if (g->out->exec[t] != in->fixed[o->q] || g->has[in->tile_k[t]] != there) continue;
            if (taken >= enough || in->tile_pairs[t] > room - taken) continue;
            taken += in->tile_pairs[t];
            move_tile(g, t, to, node);
        }
    return taken;
}

/* Lets a rank take rows until it is full or no rank has too much. */
static void fill_rank(giving *g, uint32_t to) {
    const uint64_t cap = g->in->pair_cap;
    begin_rank(g, to);
    while (g->out->load[to] < cap) {
        const uint64_t room = cap - g->out->load[to];
        const offer best = find_offer(g, to, room);
        if (!best.pairs || !take_offer(g, &best, to, room)) return;
    }
}

/* --- all of it ---------------------------------------------------------------------------------------------------- */

static void list_row(giving *g, uint32_t q) {
    if (g->excess[g->in->fixed[q]] && g->left[q]) g->row[g->rows++] = q;
}

/* Lists the rows of a node that may be given away: their ranks are over the cap. */
static void list_own_rows(giving *g, uint32_t node) {
    g->rows = 0;
    for (uint32_t i = g->start[node]; i < g->start[node + 1]; i++) list_row(g, g->block[i]);
}

/* The same of all nodes: the first DCP_GIVEN. Those that the list has already and that may still be given stay. */
static void list_all_rows(giving *g) {
    const uint32_t listed = g->rows;
    g->rows = 0;
    for (uint32_t i = 0; i < listed; i++) list_row(g, g->row[i]);
    for (; g->rows < DCP_GIVEN && g->next < g->in->blocks; g->next++) list_row(g, g->next);
}

static fcp_code take_turns(giving *g, bool own_node) {
    const dcp_input *in = g->in;
    g->rows = 0;
    for (uint32_t first = 0; first < in->ranks; first += in->gpus) {
        if (fcp_stop_asked(in->stop)) return FCP_E_INTERRUPTED;
        if (own_node) list_own_rows(g, first / in->gpus);
        else list_all_rows(g);
        if (!g->rows) continue;
        find_keys_of_node(g, first / in->gpus);
        for (uint32_t r = first; r < first + in->gpus && r < in->ranks; r++)
            if (g->out->load[r] < in->pair_cap) fill_rank(g, r);
    }
    return FCP_OK;
}

static fcp_code open_giving(giving *g, arena *scratch) {
    const size_t n = g->in->blocks + (size_t)1;
    uint32_t *node = ARENA_NEW(scratch, uint32_t, n);
    g->excess = ARENA_ZNEW(scratch, uint64_t, g->in->ranks);
    g->left = ARENA_ZNEW(scratch, uint64_t, n);
    g->missing = ARENA_ZNEW(scratch, uint64_t, n);
    g->there = ARENA_ZNEW(scratch, uint64_t, n);
    g->has = ARENA_ZNEW(scratch, uint8_t, n);
    g->had = ARENA_NEW(scratch, uint32_t, n);
    g->in_node = ARENA_ZNEW(scratch, uint32_t, n);
    g->row = ARENA_NEW(scratch, uint32_t, n);
    g->near = ARENA_NEW(scratch, uint32_t, g->in->tile_start[g->in->blocks] + (size_t)1);
    if (!node || !g->excess || !g->left || !g->missing || !g->there || !g->has || !g->had || !g->in_node || !g->row ||
        !g->near)
        return FCP_E_NO_MEMORY;
    for (uint32_t q = 0; q < g->in->blocks; q++) node[q] = node_of(g, g->in->fixed[q]);
    return group_new(scratch, node, sizeof *node, g->in->blocks, node_of(g, g->in->ranks - 1) + 1, g->in->stop,
                     &g->start, &g->block);
}

fcp_code dcp_initial_given_homes(const dcp_input *in, const dcp_columns *c, arena *scratch, dcp_partition *out) {
    giving g = {.in = in, .c = c, .out = out};
    fcp_code code = open_giving(&g, scratch);
    if (code) return code;
    memset(out->load, 0, in->ranks * sizeof *out->load);
    memset(out->held, 0, in->ranks * sizeof *out->held);
    for (uint32_t q = 0; q < in->blocks; q++) {
        const uint32_t home = out->home[q] = in->fixed[q];
        out->held[home] += in->block[q].tokens;
        for (uint32_t t = in->tile_start[q]; t < in->tile_start[q + 1]; t++) {
            out->exec[t] = home;
            out->load[home] += in->tile_pairs[t];
            g.left[q] += in->tile_pairs[t];
            if (in->tile_pairs[t] > g.most_tile) g.most_tile = in->tile_pairs[t];
        }
    }
    for (uint32_t r = 0; r < in->ranks; r++) g.excess[r] = sub_sat(out->load[r], in->pair_cap);
    code = take_turns(&g, true);
    return code ? code : take_turns(&g, false);
}
