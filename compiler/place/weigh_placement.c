/* weigh_placement.c: estimates how long a placement takes, to decide whether moving work pays.
 *
 * Requires: a problem with its tiles; a home for every block and a rank for every tile.
 * Gives: a time, which compares placements of one problem. As a prediction it is too short, because it ignores that
 *     ranks wait for each other.
 * Cost: O(tiles + blocks x ranks that read one).
 * Units: picoseconds, of all passes of the plan.
 *
 * The time of a placement is the sum over the passes of
 *
 *     time = max(busiest rank's computing, busiest port with K and V)
 *            + busiest port with Q + busiest port with results / 2
 *
 * Why so:
 *   - Keys and values arrive while a rank computes, so the longer of the two counts.
 *   - Queries must arrive before the work that was moved.
 *   - Results go home after it, but some of them while other work is still done. In the simulator about half of their
 *     time is not hidden, both in batches in which splitting blocks gains 40 % and in batches in which it takes four
 *     times as long.
 *
 * Example: a document of 2000 tokens and 34 of 200 on 16 GPUs. Its last blocks have more work than a rank may have.
 * Dividing them among several ranks saves 4 us of computing, and their queries and results take 130 us to come and go.
 */
#include <string.h>

#include "compiler/base/group.h"
#include "compiler/place/place.h"
#include "compiler/place/place_tuning.h"
#include "compiler/problem/problem.h"
#include "runtime/plan/bytes.h"

typedef unsigned __int128 wide;
enum { WAYS = 2 * FCP_FABRICS };

/* What the ports of a rank carry of one kind (keys, rows or results): bytes and transfers, out and in, on each
 * fabric. */
typedef struct port {
    uint64_t bytes[WAYS], count[WAYS];
} port;

typedef enum kind { KEYS, ROWS, RESULTS, KINDS } kind;

typedef struct weighing {
    const planning *x;
    const uint32_t *home, *exec;
    fcp_problem facts;
    port *ports[KINDS];           /* of each rank */
    uint32_t stamp;               /* the number of the block at hand */
    uint32_t *seen, *node_seen;   /* per rank, per node: the last block that arrived there, by its stamp */
    uint32_t *node_at;            /* per node: the rank at which that block arrived */
} weighing;

static uint32_t node_of(const weighing *w, uint32_t rank) { return rank / w->x->program->gpus; }

static void load_port(weighing *w, kind k, uint32_t from, uint32_t to, uint64_t bytes) {
    const size_t fabric = node_of(w, from) == node_of(w, to) ? FCP_LOCAL : FCP_NET;
    w->ports[k][from].bytes[2 * fabric] += bytes, w->ports[k][from].count[2 * fabric]++;
    w->ports[k][to].bytes[2 * fabric + 1] += bytes, w->ports[k][to].count[2 * fabric + 1]++;
}

/* Begins with another block. So far only its home has it. */
static void begin_block(weighing *w, uint32_t home) {
    w->stamp++;
    w->seen[home] = w->node_seen[node_of(w, home)] = w->stamp;
    w->node_at[node_of(w, home)] = home;
}

/* Sends the block at hand to a rank. The first rank of each node gets it from the home, and others of the node from
 * that rank. Returns the sender; FCP_NONE: the rank has the block already. */
static uint32_t send_block_to(weighing *w, uint32_t home, uint32_t rank) {
    const uint32_t node = node_of(w, rank), from = w->node_seen[node] == w->stamp ? w->node_at[node] : home;
    if (w->seen[rank] == w->stamp) return FCP_NONE;
    w->seen[rank] = w->stamp;
    if (w->node_seen[node] != w->stamp) w->node_at[node] = rank;
    w->node_seen[node] = w->stamp;
    return from;
}

static uint32_t rank_of(const weighing *w, uint32_t tile) {
    return place_rank(w->home, w->exec, w->x->problem->tile_q, tile);
}

/* Adds the rows of block b to the ports, on their way to where they are computed, and the results on the same way back.
 * A rank that passed rows on adds the results that come back to its own, so results have as many transfers as rows. */
static void load_rows(weighing *w, uint32_t b, fcp_pass pass) {
    const problem *p = w->x->problem;
    const uint32_t home = w->home[b], first = p->tile_start[b], end = p->tile_start[b + 1];
    const bool back = pass == FCP_BACKWARD;
    bool several = false;
    for (uint32_t t = first; t < end; t++) several |= rank_of(w, t) != rank_of(w, first);
    const fcp_class result = several ? (back ? FCP_DQ : FCP_STATE) : back ? FCP_DQW : FCP_O;
    begin_block(w, home);
    for (uint32_t t = first; t < end; t++) {
        const uint32_t rank = rank_of(w, t), from = send_block_to(w, home, rank);
        if (from == FCP_NONE) continue;
        load_port(w, ROWS, from, rank, p->blocks[b].tokens * fcp_class_bytes(&w->facts, FCP_Q, pass));
        load_port(w, RESULTS, rank, from, p->blocks[b].tokens * fcp_class_bytes(&w->facts, result, pass));
    }
}

/* Adds up everything that the ports carry in a pass. by_keys: the tiles of each KV block. */
static void load_ports(weighing *w, const uint32_t *key_start, const uint32_t *by_keys, fcp_pass pass) {
    const problem *p = w->x->problem;
    for (int k = 0; k < KINDS; k++) memset(w->ports[k], 0, p->ranks * sizeof *w->ports[k]);
    for (uint32_t b = 0; b < p->block_count; b++) {
        uint64_t each = fcp_class_bytes(&w->facts, FCP_KV, pass);
        if (pass == FCP_BACKWARD) each += fcp_class_bytes(&w->facts, FCP_DKV, pass); /* and back */
        begin_block(w, w->home[b]);
        for (uint32_t i = key_start[b]; i < key_start[b + 1]; i++) {
            const uint32_t rank = rank_of(w, by_keys[i]), from = send_block_to(w, w->home[b], rank);
            if (from != FCP_NONE) load_port(w, KEYS, from, rank, p->blocks[b].tokens * each);
        }
        load_rows(w, b, pass);
    }
}

/* The time of the port that is busiest with one kind: keys, rows or results. */
static wide busiest(const weighing *w, kind k) {
    const fcp_cluster *c = &w->x->program->cluster;
    wide most = 0;
    for (uint32_t r = 0; r < w->x->problem->ranks; r++)
        for (int way = 0; way < WAYS; way++) {
            const port *p = &w->ports[k][r];
            const uint64_t rate = way / 2 == FCP_NET ? c->inter : c->intra;
            if (!p->count[way]) continue;
            const wide time = (wide)p->bytes[way] * 1000000000000 / (rate ? rate : 1) +
                              (wide)p->count[way] * c->latency_ns * 1000;
            if (time > most) most = time;
        }
    return most;
}

unsigned __int128 place_computing(const planning *x, const fcp_problem *facts, uint64_t pairs, fcp_pass pass) {
    const struct fcpc_program *g = x->program;
    const uint64_t heads = facts->mask_uses & MC_USES_H ? 1 : g->heads; /* pairs are then summed over heads */
    const wide operations = (wide)pairs * heads * fcp_pair_flops(g->head_dim, g->value_dim, pass);
    return operations * 1000000 * PLACE_FLOPS_OF / PLACE_FLOPS_PART / (g->cluster.flops / 1000000 + 1);
}

uint64_t place_loads(const problem *p, const uint32_t *home, const uint32_t *exec, uint64_t *out_load) {
    const uint32_t tiles = p->tile_count, *tile_q = p->tile_q;
    uint64_t most = 0;
    memset(out_load, 0, p->ranks * sizeof *out_load);
    for (uint32_t t = 0; t < tiles; t++) out_load[place_rank(home, exec, tile_q, t)] += p->tile_pairs[t];
    for (uint32_t r = 0; r < p->ranks; r++)
        if (out_load[r] > most) most = out_load[r];
    return most;
}

place_bytes place_token_bytes(const planning *x, const bool passes[FCP_PASSES]) {
    fcp_problem facts;
    place_bytes sum = {0};
    problem_facts(x, &facts);
    for (int i = 0; i < FCP_PASSES; i++) {
        const fcp_pass pass = (fcp_pass)i;
        const bool back = pass == FCP_BACKWARD;
        if (!passes[pass]) continue;
        const uint64_t q = fcp_class_bytes(&facts, FCP_Q, pass);
        sum.kv += fcp_class_bytes(&facts, FCP_KV, pass) + (back ? fcp_class_bytes(&facts, FCP_DKV, pass) : 0);
        sum.whole += q + fcp_class_bytes(&facts, back ? FCP_DQW : FCP_O, pass);
        sum.part += q + fcp_class_bytes(&facts, back ? FCP_DQ : FCP_STATE, pass);
    }
    return sum;
}

static bool open_weighing(weighing *w, arena *scratch) {
    const problem *p = w->x->problem;
    for (int k = 0; k < KINDS; k++)
        if (!(w->ports[k] = ARENA_NEW(scratch, port, p->ranks))) return false;
    w->seen = ARENA_ZNEW(scratch, uint32_t, p->ranks);
    w->node_seen = ARENA_ZNEW(scratch, uint32_t, p->ranks);
    w->node_at = ARENA_NEW(scratch, uint32_t, p->ranks);
    return w->seen && w->node_seen && w->node_at;
}

fcp_code place_weigh(planning *x, const uint32_t *home, const uint32_t *exec, uint64_t *out_time) {
    const problem *p = x->problem;
    weighing w = {.x = x, .home = home, .exec = exec};
    uint64_t *load = ARENA_NEW(&x->scratch, uint64_t, p->ranks);
    uint32_t *start, *tile;
    if (!load || !open_weighing(&w, &x->scratch)) return FCP_E_NO_MEMORY;
    fcp_code code = group_new(&x->scratch, p->tile_k, sizeof *p->tile_k, p->tile_count, p->block_count, x->stop, &start,
                              &tile);
    if (code) return code;
    problem_facts(x, &w.facts);
    const uint64_t most = place_loads(p, home, exec, load);
    wide time = 0;
    for (int i = 0; i < FCP_PASSES; i++) {
        const fcp_pass pass = (fcp_pass)i;
        if (!x->program->passes[pass]) continue;
        load_ports(&w, start, tile, pass);
        const wide work = place_computing(x, &w.facts, most, pass), keys = busiest(&w, KEYS);
        time += (work > keys ? work : keys) + busiest(&w, ROWS) + busiest(&w, RESULTS) / 2;
    }
    *out_time = time > UINT64_MAX ? UINT64_MAX : (uint64_t)time;
    return FCP_OK;
}
