/* hypergraph.c: the hypergraph of a placement, and coarsening of it.
 *
 * Requires: a home for every block and a rank for every tile.
 * Gives: dcp_hypergraph_of: the vertices and nets that dcp.h describes. dcp_coarsen: a hypergraph in which neighbouring
 *     vertices of one rank have become one, up to a size.
 * Cost: linear in blocks and tiles.
 * Memory: O(vertices + pins).
 * Source: coarsening is heavy-edge clustering: each vertex joins the cluster with which it shares most bytes. Only
 *     vertices that follow each other in a net count as sharing it. That suffices, because blocks are in order.
 */
#include <string.h>

#include "compiler/base/group.h"
#include "compiler/base/union_find.h"
#include "compiler/place/dcp/dcp.h"

/* --- nets --------------------------------------------------------------------------------------------------------- */

/* The nets while they are collected. A new pin belongs to the net that was begun last. */
typedef struct collected {
    dcp_hypergraph *g;
    uint32_t *seen; /* per vertex: the number of the last net that has it, plus 1 */
    uint32_t pins;
} collected;

static void begin_net(collected *n) { n->g->net_start[n->g->nets] = n->pins; }

static void add_pin(collected *n, uint32_t vertex) {
    if (n->seen[vertex] == n->g->nets + 1) return;
    n->seen[vertex] = n->g->nets + 1;
    n->g->pin[n->pins++] = vertex;
}

/* Ends the net that was begun last. It is kept if it joins several vertices; otherwise it is dropped. */
static void end_net(collected *n, uint64_t bytes) {
    dcp_hypergraph *g = n->g;
    if (n->pins - g->net_start[g->nets] < 2 || !bytes) {
        while (n->pins > g->net_start[g->nets]) n->seen[g->pin[--n->pins]] = 0;
        return;
    }
    g->bytes[g->nets++] = bytes;
    g->net_start[g->nets] = n->pins;
}

/* Lists the nets of each vertex, from the pins of each net. */
static fcp_code list_incident(dcp_hypergraph *g, arena *scratch) {
    uint32_t pins = g->net_start[g->nets];
    g->incident_start = ARENA_ZNEW(scratch, uint32_t, g->vertices + (size_t)2);
    g->incident = ARENA_NEW(scratch, uint32_t, pins + (size_t)1);
    if (!g->incident_start || !g->incident) return FCP_E_NO_MEMORY;
    for (uint32_t i = 0; i < pins; i++) g->incident_start[g->pin[i] + 2]++;
    group_starts(g->incident_start + 1, g->vertices);
    for (uint32_t e = 0; e < g->nets; e++)
        for (uint32_t i = g->net_start[e]; i < g->net_start[e + 1]; i++)
            g->incident[g->incident_start[g->pin[i] + 1]++] = e;
    return FCP_OK;
}

static bool open_graph(dcp_hypergraph *g, arena *scratch, uint32_t vertices, uint32_t most_nets, uint32_t pins,
                       collected *n) {
    *g = (dcp_hypergraph){0};
    g->work = ARENA_ZNEW(scratch, uint64_t, vertices + (size_t)1);
    g->tokens = ARENA_ZNEW(scratch, uint64_t, vertices + (size_t)1);
    g->part = ARENA_NEW(scratch, uint32_t, vertices + (size_t)1);
    g->fixed = ARENA_ZNEW(scratch, uint8_t, vertices + (size_t)1);
    g->net_start = ARENA_ZNEW(scratch, uint32_t, most_nets + (size_t)1);
    g->bytes = ARENA_NEW(scratch, uint64_t, most_nets + (size_t)1);
    g->pin = ARENA_NEW(scratch, uint32_t, pins + (size_t)1);
    *n = (collected){g, ARENA_ZNEW(scratch, uint32_t, vertices + (size_t)1), 0};
    return g->work && g->tokens && g->part && g->fixed && g->net_start && g->bytes && g->pin && n->seen;
}

/* --- the finest --------------------------------------------------------------------------------------------------- */

/* Does some tile of row q run elsewhere than at the home of q? */
static bool is_away(const dcp_input *in, const dcp_partition *p, uint32_t q) {
    uint32_t t = in->tile_start[q];
    while (t < in->tile_start[q + 1] && p->exec[t] == p->home[q]) t++;
    return t < in->tile_start[q + 1];
}

fcp_code dcp_hypergraph_of(const dcp_input *in, const dcp_columns *c, const dcp_partition *p, bool tiles_apart,
                           arena *scratch, dcp_hypergraph *out, uint32_t *out_data, uint32_t *out_tile) {
    const uint32_t n = in->blocks, tiles = in->tile_start[n];
    uint32_t *seen = ARENA_ZNEW(scratch, uint32_t, in->ranks), *at = ARENA_NEW(scratch, uint32_t, in->ranks);
    uint32_t vertices = 0;
    if (!seen || !at) return FCP_E_NO_MEMORY;
    for (uint32_t q = 0; q < n; q++) {
        const bool apart = tiles_apart && is_away(in, p, q);
        out_data[q] = vertices++;
        if (!in->fixed) { /* with the tiles that run there */
            seen[p->home[q]] = q + 1;
            at[p->home[q]] = out_data[q];
        }
        for (uint32_t t = in->tile_start[q]; t < in->tile_start[q + 1]; t++) {
            uint32_t r = p->exec[t];
            if (dcp_runs_at_keys(in, c, t) && r == p->home[in->tile_k[t]]) {
                out_tile[t] = FCP_NONE; /* the vertex of those keys, which may not have its number yet */
                continue;
            }
            if (apart || seen[r] != q + 1) {
                seen[r] = q + 1;
                at[r] = vertices++;
            }
            out_tile[t] = at[r];
        }
    }
    for (uint32_t t = 0; t < tiles; t++)
        if (out_tile[t] == FCP_NONE) out_tile[t] = out_data[in->tile_k[t]];
    collected nets;
    if (!open_graph(out, scratch, vertices, 2 * n, 2 * (tiles + n), &nets)) return FCP_E_NO_MEMORY;
    out->vertices = vertices;
    for (uint32_t q = 0; q < n; q++) {
        uint32_t parts = 0, first = in->tile_start[q], end = in->tile_start[q + 1];
        out->tokens[out_data[q]] = in->block[q].tokens;
        out->part[out_data[q]] = p->home[q];
        out->fixed[out_data[q]] = in->fixed && !(in->guest && in->guest[q]);
        begin_net(&nets);
        add_pin(&nets, out_data[q]);
        for (uint32_t t = first; t < end; t++) {
            uint32_t v = out_tile[t];
            parts += parts < 2 && (t == first || p->exec[t] != p->exec[first]);
            out->work[v] += in->tile_pairs[t];
            out->part[v] = p->exec[t];
            add_pin(&nets, v);
        }
        end_net(&nets, parts > 1 ? in->block[q].part : in->block[q].whole);
    }
    for (uint32_t k = 0; k < n; k++) {
        begin_net(&nets);
        add_pin(&nets, out_data[k]);
        for (uint32_t i = c->start[k]; i < c->start[k + 1]; i++) add_pin(&nets, out_tile[c->tile[i]]);
        end_net(&nets, in->block[k].kv);
    }
    return list_incident(out, scratch);
}

/* --- coarser ones ------------------------------------------------------------------------------------------------- */

/* The neighbours of each vertex: the vertices of its rank that come before or after it in a net; and the bytes of that
 * net. */
typedef struct edges {
    uint32_t *start, *other; /* of each vertex */
    uint64_t *bytes;
} edges;

/* Of the eight pins of net e that follow pin i, the first that is at the same rank. g->net_start[e + 1]: there is
 * none. */
static uint32_t next_of_rank(const dcp_hypergraph *g, uint32_t e, uint32_t i) {
    uint32_t r = g->part[g->pin[i]], end = g->net_start[e + 1], to = end - i > 9 ? i + 9 : end;
    for (uint32_t j = i + 1; j < to; j++)
        if (g->part[g->pin[j]] == r) return j;
    return end;
}

static fcp_code find_edges(const dcp_hypergraph *g, arena *scratch, edges *x) {
    uint32_t pins = g->net_start[g->nets];
    x->start = ARENA_ZNEW(scratch, uint32_t, g->vertices + (size_t)2);
    x->other = ARENA_NEW(scratch, uint32_t, 2 * (size_t)pins + 1);
    x->bytes = ARENA_NEW(scratch, uint64_t, 2 * (size_t)pins + 1);
    uint32_t *next = ARENA_NEW(scratch, uint32_t, pins + (size_t)1);
    if (!x->start || !x->other || !x->bytes || !next) return FCP_E_NO_MEMORY;
    for (uint32_t e = 0; e < g->nets; e++)
        for (uint32_t i = g->net_start[e]; i < g->net_start[e + 1]; i++) {
            next[i] = next_of_rank(g, e, i);
            if (next[i] == g->net_start[e + 1]) continue;
            x->start[g->pin[i] + 2]++;
            x->start[g->pin[next[i]] + 2]++;
        }
    group_starts(x->start + 1, g->vertices);
    for (uint32_t e = 0; e < g->nets; e++)
        for (uint32_t i = g->net_start[e]; i < g->net_start[e + 1]; i++) {
            if (next[i] == g->net_start[e + 1]) continue;
            uint32_t a = g->pin[i], b = g->pin[next[i]];
            x->bytes[x->start[a + 1]] = x->bytes[x->start[b + 1]] = g->bytes[e];
            x->other[x->start[a + 1]++] = b;
            x->other[x->start[b + 1]++] = a;
        }
    return FCP_OK;
}

/* Puts vertices into clusters: each vertex in turn joins the cluster with which it shares most bytes, if that does not
 * become too large. `parent` is the forest of union_find.h. */
static fcp_code cluster(const dcp_hypergraph *g, const edges *x, uint64_t most_work, uint64_t most_tokens,
                        arena *scratch, uint32_t *parent) {
    uint64_t *work = ARENA_NEW(scratch, uint64_t, g->vertices + (size_t)1);
    uint64_t *tokens = ARENA_NEW(scratch, uint64_t, g->vertices + (size_t)1);
    uint64_t *shared = ARENA_ZNEW(scratch, uint64_t, g->vertices + (size_t)1);
    if (!work || !tokens || !shared) return FCP_E_NO_MEMORY;
    memcpy(work, g->work, g->vertices * sizeof *work);
    memcpy(tokens, g->tokens, g->vertices * sizeof *tokens);
    for (uint32_t v = 0; v < g->vertices; v++) parent[v] = v;
    for (uint32_t v = 0; v < g->vertices; v++) {
        uint32_t a = union_find(parent, v), best = FCP_NONE;
        if (g->fixed[v]) continue;
        for (uint32_t i = x->start[v]; i < x->start[v + 1]; i++) {
            uint32_t b = union_find(parent, x->other[i]);
            if (b == a || g->fixed[b] || work[a] + work[b] > most_work || tokens[a] + tokens[b] > most_tokens) continue;
            shared[b] += x->bytes[i];
            if (best == FCP_NONE || shared[b] > shared[best] || (shared[b] == shared[best] && b < best)) best = b;
        }
        for (uint32_t i = x->start[v]; i < x->start[v + 1]; i++) shared[union_find(parent, x->other[i])] = 0;
        if (best == FCP_NONE) continue;
        uint32_t low = a < best ? a : best, high = a < best ? best : a;
        parent[high] = low;
        work[low] += work[high];
        tokens[low] += tokens[high];
    }
    return FCP_OK;
}

fcp_code dcp_coarsen(const dcp_input *in, const dcp_hypergraph *g, uint64_t work, uint64_t tokens, arena *keep,
                     arena *scratch, dcp_hypergraph *out, uint32_t *out_coarse) {
    edges x;
    collected nets;
    uint32_t *number = ARENA_NEW(scratch, uint32_t, g->vertices + (size_t)1);
    fcp_code code = find_edges(g, scratch, &x);
    if (!code && !number) code = FCP_E_NO_MEMORY;
    if (!code) code = cluster(g, &x, work, tokens, scratch, out_coarse);
    if (code) return code;
    if (fcp_stop_asked(in->stop)) return FCP_E_INTERRUPTED;
    const uint32_t vertices = union_number(out_coarse, g->vertices, number);
    memcpy(out_coarse, number, g->vertices * sizeof *out_coarse);
    if (!open_graph(out, keep, vertices, g->nets, g->net_start[g->nets], &nets)) return FCP_E_NO_MEMORY;
    out->vertices = vertices;
    for (uint32_t v = 0; v < g->vertices; v++) {
        out->work[out_coarse[v]] += g->work[v];
        out->tokens[out_coarse[v]] += g->tokens[v];
        out->part[out_coarse[v]] = g->part[v];
        out->fixed[out_coarse[v]] = g->fixed[v];
    }
    for (uint32_t e = 0; e < g->nets; e++) {
        begin_net(&nets);
        for (uint32_t i = g->net_start[e]; i < g->net_start[e + 1]; i++) add_pin(&nets, out_coarse[g->pin[i]]);
        end_net(&nets, g->bytes[e]);
    }
    return list_incident(out, keep);
}
