/* rebalance_tiles.c: rebalancing: ranks with too many pairs give some tiles of a row to another rank.
 *
 * Requires: a home for every block, a rank for every tile.
 * Gives: no rank over the cap on pairs, unless no single tile fits anywhere else.
 * Cost: for each group of tiles that moves, O(tiles of the ranks looked at).
 * Units: pairs; bytes, where one between nodes counts `net` times.
 *
 * A rank can be a little over the cap for two reasons: whole rows are too heavy to balance, or the segments of a strip
 * have unequal work. It gives tiles of one row to another rank, those that cost fewest bytes for each pair. The other
 * rank often has the row's Q already, for example because it shares the strip; then no Q travels.
 */
#include <string.h>

#include "compiler/place/dcp/dcp.h"

typedef struct relieving {
    const dcp_input *in;
    dcp_partition *p;
    uint32_t *head, *next; /* the tiles of each rank */
    uint32_t *mark, stamp; /* per block: its keys are at the rank at hand, where mark[k] = stamp */
    uint32_t *row_mark;    /* the same of its Q */
    uint8_t *several;      /* per row of the rank that gives: several ranks compute it */
    uint32_t *taken;       /* the tiles of the offer at hand */
    uint32_t *candidates;  /* ranks to give to */
    uint32_t *listed;      /* per rank: the stamp with which it was listed */
} relieving;

/* An offer: some tiles of one row, to be given to rank `to`. */
typedef struct offer {
    uint32_t first, to; /* the row's first tile in the list of the rank that gives */
    uint64_t bytes, pairs;
} offer;

static uint64_t weight(const dcp_input *in, uint32_t from, uint32_t to) {
    return from / in->gpus == to / in->gpus ? 1 : in->net;
}

/* The bytes of Q and results that it adds if rank `to` also computes some of row q. The keys and rows of `to` are
 * marked. */
static uint64_t open_bytes(const relieving *x, uint32_t q, uint32_t to) {
    const dcp_input *in = x->in;
    const uint32_t home = x->p->home[q], first = x->p->exec[in->tile_start[q]];
    if (x->row_mark[q] == x->stamp) return 0;
    uint64_t bytes = to == home ? 0 : in->block[q].part * weight(in, home, to);
    if (!x->several[q] && first != home) bytes += (in->block[q].part - in->block[q].whole) * weight(in, home, first);
    return bytes;
}

/* Marks the keys that a rank has, and the rows of which it computes tiles. */
static void mark_rank(relieving *x, const dcp_columns *c, uint32_t rank) {
    x->stamp++;
    for (uint32_t t = x->head[rank]; t != FCP_NONE; t = x->next[t])
        x->mark[x->in->tile_k[t]] = x->row_mark[c->tile_q[t]] = x->stamp;
}

/* Do these bytes for these pairs cost less for each pair than the offer `than`? */
static bool is_cheaper(uint64_t bytes, uint64_t pairs, const offer *than) {
    return !than->pairs || (unsigned __int128)bytes * than->pairs < (unsigned __int128)than->bytes * pairs;
}

/* Collects tiles of one row of rank r until r is within the cap or `to` is full: first those whose keys `to` has, then
 * others. first: the row's first tile in r's list. Returns how many; *o receives their bytes and pairs. */
static uint32_t collect_tiles(relieving *x, const dcp_columns *c, uint32_t r, uint32_t first, uint32_t to, offer *o) {
    const dcp_input *in = x->in;
    const uint64_t excess = x->p->load[r] - in->pair_cap, room = in->pair_cap - x->p->load[to];
    const uint32_t q = c->tile_q[first];
    uint32_t count = 0;
    *o = (offer){first, to, open_bytes(x, q, to), 0};
    for (int there = 1; there >= 0; there--)
        for (uint32_t t = first; t != FCP_NONE && c->tile_q[t] == q && o->pairs < excess; t = x->next[t]) {
            const uint32_t k = in->tile_k[t];
            const bool has = x->mark[k] == x->stamp || x->p->home[k] == to;
            if (has != there || o->pairs + in->tile_pairs[t] > room) continue;
            if (!has) o->bytes += in->block[k].kv * weight(in, x->p->home[k], to);
            o->pairs += in->tile_pairs[t];
            x->taken[count++] = t;
        }
    return count;
}

/* Lists the ranks that could take tiles of rank r: those that have the Q of one of its rows, and the least loaded
 * one. */
static uint32_t find_candidates(relieving *x, const dcp_columns *c, uint32_t r) {
    const dcp_input *in = x->in;
    uint32_t count = 0, least = 0, stamp = ++x->stamp, last = FCP_NONE;
    for (uint32_t i = 0; i < in->ranks; i++)
        if (x->p->load[i] < x->p->load[least]) least = i;
    x->listed[r] = stamp;
    if (x->listed[least] != stamp) x->candidates[count++] = least;
    x->listed[least] = stamp;
    for (uint32_t t = x->head[r]; t != FCP_NONE; t = x->next[t]) {
        uint32_t q = c->tile_q[t];
        if (q == last) continue;
        last = q;
        x->several[q] = 0;
        for (uint32_t u = in->tile_start[q]; u <= in->tile_start[q + 1]; u++) {
            uint32_t to = u < in->tile_start[q + 1] ? x->p->exec[u] : x->p->home[q];
            x->several[q] |= u < in->tile_start[q + 1] && to != x->p->exec[in->tile_start[q]];
            if (x->listed[to] == stamp || x->p->load[to] >= in->pair_cap) continue;
            x->listed[to] = stamp;
            x->candidates[count++] = to;
        }
    }
    return count;
}

/* Finds the cheapest offer for rank r, which gives tiles away. False: there is none. */
static bool find_offer(relieving *x, const dcp_columns *c, uint32_t r, offer *best) {
    const uint32_t count = find_candidates(x, c, r);
    *best = (offer){0};
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t to = x->candidates[i];
        const uint64_t room = x->in->pair_cap - x->p->load[to];
        uint32_t last = FCP_NONE;
        if (best->pairs && !best->bytes) break;
        mark_rank(x, c, to);
        for (uint32_t t = x->head[r]; t != FCP_NONE; t = x->next[t]) {
            offer o;
            const uint32_t q = c->tile_q[t];
            if (q == last) continue;
            last = q;
            /* even if the row filled the rank and needed no more keys */
            if (!is_cheaper(open_bytes(x, q, to), room, best) || !collect_tiles(x, c, r, t, to, &o)) continue;
            if (is_cheaper(o.bytes, o.pairs, best)) *best = o;
        }
    }
    return best->pairs > 0;
}

static void apply_offer(relieving *x, const dcp_columns *c, uint32_t r, const offer *o) {
    offer again;
    mark_rank(x, c, o->to);
    const uint32_t count = collect_tiles(x, c, r, o->first, o->to, &again);
    for (uint32_t i = 0; i < count; i++) x->p->exec[x->taken[i]] = o->to;
    for (uint32_t *at = &x->head[r]; *at != FCP_NONE;) { /* out of the one list, into the other */
        uint32_t t = *at;
        if (x->p->exec[t] == r) {
            at = &x->next[t];
            continue;
        }
        *at = x->next[t];
        x->next[t] = x->head[o->to];
        x->head[o->to] = t;
    }
    x->p->load[r] -= o->pairs;
    x->p->load[o->to] += o->pairs;
}

fcp_code dcp_rebalance_tiles(const dcp_input *in, const dcp_columns *c, dcp_partition *p, arena *scratch) {
    const uint32_t tiles = in->tile_start[in->blocks];
    bool over = false;
    for (uint32_t r = 0; r < in->ranks; r++) over |= p->load[r] > in->pair_cap;
    if (!over) return FCP_OK;
    relieving x = {.in = in, .p = p};
    x.head = ARENA_NEW(scratch, uint32_t, in->ranks);
    x.next = ARENA_NEW(scratch, uint32_t, tiles + (size_t)1);
    x.mark = ARENA_ZNEW(scratch, uint32_t, in->blocks + (size_t)1);
    x.row_mark = ARENA_ZNEW(scratch, uint32_t, in->blocks + (size_t)1);
    x.several = ARENA_NEW(scratch, uint8_t, in->blocks + (size_t)1);
    x.taken = ARENA_NEW(scratch, uint32_t, tiles + (size_t)1);
    x.candidates = ARENA_NEW(scratch, uint32_t, in->ranks);
    x.listed = ARENA_ZNEW(scratch, uint32_t, in->ranks);
    if (!x.head || !x.next || !x.mark || !x.row_mark || !x.several || !x.taken || !x.candidates || !x.listed)
        return FCP_E_NO_MEMORY;
    memset(x.head, 0xff, in->ranks * sizeof *x.head);
    for (uint32_t t = tiles; t-- > 0;) {
        x.next[t] = x.head[p->exec[t]];
        x.head[p->exec[t]] = t;
    }
    for (uint32_t r = 0; r < in->ranks; r++) {
        offer o;
        if (fcp_stop_asked(in->stop)) return FCP_E_INTERRUPTED;
        while (p->load[r] > in->pair_cap && find_offer(&x, c, r, &o)) apply_offer(&x, c, r, &o);
    }
    return FCP_OK;
}
