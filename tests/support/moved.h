/* moved.h: counts the bytes that a placement moves, from its blocks and tiles alone. Tests and benchmarks compare the
 * planner's own figures with it.
 *
 * What goes where, other than to the block's home:
 *   K and V of a block  to every rank with a tile that reads it
 *   Q of a block        to every rank that computes a tile of it
 * Results of a Q block with tiles away from home:
 *   the home has some tiles  each other rank sends its part
 *   one other rank has all   it sends the whole result
 *   several others have all  all but one send parts to that one, which sends the whole result
 * The routes are those of routes_find: over net once to a node, and results back by the same way. */
#ifndef MOVED_H
#define MOVED_H
#include <stdlib.h>
#include <string.h>

#include "compiler/place/cad/cad.h"
#include "compiler/schedule/routes.h"

typedef struct moved {
    double kv, rows, net;       /* bytes, forward; net: the part between nodes, with results */
    double sent;                /* of all hops, those of ranks that only pass on included */
    uint64_t work, work_max;    /* pairs */
    uint64_t net_sent;          /* by the rank that sends most over net, results with it */
    uint64_t net_received;
    uint64_t net_node;          /* a rank's part of what the node that sends most must send at least: one copy */
    /* over net: busiest sender and receiver, one copy of the home's that sends most */
    uint64_t kv_sent, kv_received, kv_copy;
    uint32_t depth;
    /* over net, the busiest sender, if each home sent to the first reader of each node itself: of all, and of K and
     * V */
    uint64_t direct_sent, direct_kv;
    uint64_t blocks, tiles;
} moved;

static inline int moved_by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Per block: do its own tiles run at several ranks, and do any run at home? */
typedef struct moved_rows {
    bool many, home;
} moved_rows;
static inline moved_rows *moved_parts(const planning *x) {
    const problem *p = x->problem;
    moved_rows *rows = calloc(p->block_count + (size_t)1, sizeof *rows);
    for (uint32_t t = 0; rows && t < p->tile_count; t++) {
        uint32_t q = p->tile_q[t], e = placement_exec(x->placement, t);
        rows[q].many |= e != placement_exec(x->placement, p->tile_start[q]);
        rows[q].home |= e == x->placement->home[q];
    }
    return rows;
}

/* What has to travel: K and V of a block, and Q of a block with its result on the way back. */
static inline bool moved_of(const planning *x, moved *out) {
    const problem *p = x->problem;
    const placement *where = x->placement;
    const struct fcpc_program *g = x->program;
    const cad_price price = cad_price_of(g, false);
    const uint64_t q_bytes = g->heads * (uint64_t)g->head_dim * fcp_dtype_size(g->dtype);
    uint64_t *load = calloc(p->ranks, sizeof *load), *copy = calloc(p->ranks, sizeof *copy);
    uint64_t *kv[2] = {calloc(p->ranks, sizeof **kv), calloc(p->ranks, sizeof **kv)}; /* sent, received */
    uint64_t *direct[2] = {calloc(p->ranks, sizeof **direct), calloc(p->ranks, sizeof **direct)}; /* all; K and V */
    uint64_t *pair = malloc((2 * (size_t)p->tile_count + 1) * sizeof *pair);
    uint32_t *reader = malloc((2 * (size_t)p->tile_count + 1) * sizeof *reader), wants = 0, readers = 0;
    uint64_t *node = calloc(g->nodes, sizeof *node);
    route_want *want = malloc((2 * (size_t)p->tile_count + 1) * sizeof *want);
    moved_rows *of = moved_parts(x);
    size_t count = 0;
    arena a = {0};
    routes r;
    *out = (moved){.blocks = p->block_count, .tiles = p->tile_count};
    for (uint32_t t = 0; t < p->tile_count; t++) { /* 1 << 63: of Q */
        uint32_t e = placement_exec(where, t);
        load[e] += p->tile_pairs[t];
        if (e != where->home[p->tile_k[t]]) pair[count++] = (uint64_t)p->tile_k[t] << 32 | e;
        if (e != where->home[p->tile_q[t]]) pair[count++] = UINT64_C(1) << 63 | (uint64_t)p->tile_q[t] << 32 | e;
    }
    qsort(pair, count, sizeof *pair, moved_by_value);
    for (size_t i = 0; i < count; i++) {
        uint32_t b = (uint32_t)(pair[i] >> 32) & INT32_MAX;
        bool rows = pair[i] >> 63;
        uint64_t tokens = p->blocks[b].tokens, each = of[b].many ? price.part : price.whole;
        if (i && pair[i] == pair[i - 1]) continue;
        if (!i || pair[i] >> 32 != pair[i - 1] >> 32) {
            want[wants++] = (route_want){where->home[b], readers, 0, tokens * (rows ? q_bytes : price.kv),
                                         rows ? tokens * (each - q_bytes) : 0, 0};
            if (rows && of[b].many && !of[b].home) {
                want[wants - 1].joined = tokens * (price.whole - q_bytes);
                each = price.whole;
            }
        }
        reader[readers++] = (uint32_t)pair[i];
        want[wants - 1].count++;
        if (rows) out->rows += (double)(tokens * each);
        else out->kv += (double)(tokens * price.kv);
    }
    const routes_input in = {.ranks = p->ranks, .gpus = g->gpus, .rail = g->topology == FCP_RAIL,
                             .wants = want, .want_count = wants, .readers = reader};
    bool good = !routes_find(&in, &a, &a, &r);
    for (uint32_t w = 0; good && w < wants; w++) {
        uint32_t home = want[w].src / g->gpus, last = home;
        bool joined = want[w].joined, near = false; /* hops so far are between home and where results are joined */
        for (uint32_t i = want[w].first; i < want[w].first + want[w].count; i++) {
            uint32_t v = reader[i] / g->gpus;
            near |= v == home;
            if (v == home || v == last) continue;
            if (last == home) node[home] += want[w].bytes;
            node[v] += want[w].back;
            direct[0][want[w].src] += want[w].bytes;
            direct[0][reader[i]] += want[w].back;
            if (!want[w].back) direct[1][want[w].src] += want[w].bytes;
            last = v;
        }
        if (joined && !near) node[last] -= want[w].back - want[w].joined;
        bool crosses = false;
        for (uint32_t h = r.start[w]; h < r.start[w + 1]; h++) {
            bool here = joined;
            const bool local = r.hops[h].src / g->gpus == r.hops[h].dst / g->gpus;
            joined = joined && !near && local;
            if (local) continue;
            out->net += (double)(want[w].bytes + (here ? want[w].joined : want[w].back));
            if (want[w].back) continue;
            kv[0][r.hops[h].src] += want[w].bytes;
            kv[1][r.hops[h].dst] += want[w].bytes;
            crosses = true;
        }
        if (crosses) copy[want[w].src] += want[w].bytes;
    }
    for (uint32_t i = 0; good && i < p->ranks; i++) {
        out->work += load[i];
        if (load[i] > out->work_max) out->work_max = load[i];
        out->sent += (double)(r.sent[FCP_NET][i] + r.sent[FCP_LOCAL][i]);
        if (r.sent[FCP_NET][i] > out->net_sent) out->net_sent = r.sent[FCP_NET][i];
        if (r.received[FCP_NET][i] > out->net_received) out->net_received = r.received[FCP_NET][i];
        if (kv[0][i] > out->kv_sent) out->kv_sent = kv[0][i];
        if (kv[1][i] > out->kv_received) out->kv_received = kv[1][i];
        if (direct[0][i] > out->direct_sent) out->direct_sent = direct[0][i];
        if (direct[1][i] > out->direct_kv) out->direct_kv = direct[1][i];
        if (copy[i] > out->kv_copy) out->kv_copy = copy[i];
    }
    for (uint32_t v = 0; v < g->nodes; v++)
        if (node[v] / g->gpus > out->net_node) out->net_node = node[v] / g->gpus;
    out->depth = good ? r.depth : 0;
    free(direct[0]), free(direct[1]), free(node), free(load), free(copy), free(kv[0]), free(kv[1]);
    free(pair), free(reader), free(want), free(of);
    arena_free(&a);
    return good;
}
#endif
