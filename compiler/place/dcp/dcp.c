/* dcp.c: divides blocks and tiles among ranks, and counts what a placement costs.
 *
 * Requires: what dcp.h says of a dcp_input.
 * Gives: a home for every block and a rank for every tile. Both caps are kept, unless blocks or single tiles are too
 *     large for it.
 * Cost: about 50 looks (refine.c) for each block and tile on each of a few graphs. Memory: O(blocks + tiles).
 * Units: pairs, tokens, bytes.
 *
 * In order:
 *   0. Join (coarsen_batch.c): where a sequence has many tiles for each of its ranks, neighbours become one block until
 *   step 5.
 *   1. Build (initial_partition.c): sequences whole where they fit, strips of those that are too heavy. Or, where homes
 *      are given, give (initial_given_homes.c): ranks with too much work give rows away.
 *   2. Relieve (rebalance_tiles.c): where a rank has too many pairs, tiles of a row move to another.
 *   3. Where much crosses nodes, the same among nodes first and then in each node (initial_by_nodes.c); the cheaper one
 *   is kept.
 *   4. Refine (refine.c) on ever finer graphs. On the coarsest a vertex is all of a sequence that is at one rank, on
 *      the finest a row. So whole sequences make room for one another before cuts slide along them.
 *   5. Refine once more, on blocks as they are: where rows do not run at home, each of their tiles by itself.
 *
 * Other partitioners coarsen before they divide. Here the first placement comes before, because sequences are known and
 * need not be found again from what blocks share.
 */
#include <string.h>

#include "compiler/base/group.h"
#include "compiler/place/dcp/dcp.h"

fcp_code dcp_cost_of(const dcp_input *in, const uint32_t *home, const uint32_t *exec, arena *scratch, dcp_cost *out) {
    const uint32_t n = in->blocks, tiles = in->tile_start[n], nodes = (in->ranks + in->gpus - 1) / in->gpus;
    uint64_t *load = ARENA_ZNEW(scratch, uint64_t, in->ranks), *held = ARENA_ZNEW(scratch, uint64_t, in->ranks);
    uint32_t *seen = ARENA_ZNEW(scratch, uint32_t, in->ranks), *node_seen = ARENA_ZNEW(scratch, uint32_t, nodes);
    uint32_t *start = ARENA_NEW(scratch, uint32_t, n + (size_t)2), stamp = 0;
    uint32_t *tile = ARENA_NEW(scratch, uint32_t, tiles + (size_t)1);
    if (!load || !held || !seen || !node_seen || !start || !tile) return FCP_E_NO_MEMORY;
    if (!group_by(in->tile_k, sizeof *in->tile_k, tiles, n, start, tile, in->stop)) return FCP_E_INTERRUPTED;
    *out = (dcp_cost){0};
    for (uint32_t b = 0; b < n; b++) {
        held[home[b]] += in->tokens[b];
        for (int q = 0; q < 2; q++) {
            uint32_t first = q ? in->tile_start[b] : start[b], end = q ? in->tile_start[b + 1] : start[b + 1];
            uint64_t away = 0, crossing = 0;
            bool several = false;
            seen[home[b]] = node_seen[home[b] / in->gpus] = ++stamp;
            for (uint32_t i = first; i < end; i++) {
                uint32_t r = exec[q ? i : tile[i]];
                if (q) load[r] += in->tile_pairs[i], several |= r != exec[first];
                away += seen[r] != stamp;
                crossing += node_seen[r / in->gpus] != stamp;
                seen[r] = node_seen[r / in->gpus] = stamp;
            }
            uint64_t bytes = !q ? in->kv[b] : several ? in->part[b] : in->whole[b];
            out->bytes += away * bytes;
            out->net += crossing * bytes;
        }
    }
    for (uint32_t r = 0; r < in->ranks; r++) {
        if (load[r] > out->most_pairs) out->most_pairs = load[r];
        if (held[r] > out->most_tokens) out->most_tokens = held[r];
    }
    return FCP_OK;
}

enum {
    LEVELS = 6,
    LITTLE = 5 /* a level that joins less than such a part of the vertices is left out */
};

/* Refines the placement once more where tiles run away from home, and moves them one by one. */
static fcp_code refine_tiles(const dcp_input *in, const dcp_columns *c, dcp_partition *p, arena *scratch) {
    const uint32_t n = in->blocks, tiles = in->tile_start[n];
    dcp_hypergraph g;
    uint32_t *data = ARENA_NEW(scratch, uint32_t, n + (size_t)1);
    uint32_t *of_tile = ARENA_NEW(scratch, uint32_t, tiles + (size_t)1);
    if (!data || !of_tile) return FCP_E_NO_MEMORY;
    fcp_code code = dcp_hypergraph_of(in, c, p, true, scratch, &g, data, of_tile);
    if (!code) code = dcp_refine(in, &g, p->load, p->held, scratch);
    for (uint32_t b = 0; b < n && !code; b++) p->home[b] = g.part[data[b]];
    for (uint32_t t = 0; t < tiles && !code; t++) p->exec[t] = g.part[of_tile[t]];
    return code;
}

/* Refines the placement on graphs that become finer and finer: at first whatever hangs together on a rank is one
 * vertex. A level that would join little is left out. */
static fcp_code refine_levels(const dcp_input *in, const dcp_columns *c, dcp_partition *p, arena *scratch,
                              arena *step) {
    static const uint32_t size[LEVELS] = {0, 32, 12, 6, 3, 1}; /* vertices are such a part of a rank at most */
    const uint32_t n = in->blocks, tiles = in->tile_start[n];
    dcp_hypergraph g[LEVELS];
    uint32_t *up[LEVELS], *data = ARENA_NEW(scratch, uint32_t, n + (size_t)1), levels = 1;
    uint32_t *of_tile = ARENA_NEW(scratch, uint32_t, tiles + (size_t)1);
    if (!data || !of_tile) return FCP_E_NO_MEMORY;
    fcp_code code = dcp_hypergraph_of(in, c, p, false, scratch, &g[0], data, of_tile);
    for (uint32_t i = 1; i < LEVELS && !code; i++) {
        const dcp_hypergraph *fine = &g[levels - 1];
        uint32_t *to = up[levels] = ARENA_NEW(scratch, uint32_t, fine->vertices + (size_t)1);
        code = !to ? FCP_E_NO_MEMORY
                   : dcp_coarsen(in, fine, in->pair_cap / size[i], in->token_cap / size[i], scratch, step, &g[levels],
                                 to);
        if (!code && g[levels].vertices < fine->vertices - fine->vertices / LITTLE) levels++;
        arena_reset(step);
    }
    for (uint32_t i = levels; i-- > 0 && !code;) {
        code = dcp_refine(in, &g[i], p->load, p->held, step);
        arena_reset(step);
        for (uint32_t v = 0; i && v < g[i - 1].vertices; v++) g[i - 1].part[v] = g[i].part[up[i][v]];
    }
    for (uint32_t b = 0; b < n && !code; b++) p->home[b] = g[0].part[data[b]];
    for (uint32_t t = 0; t < tiles && !code; t++) p->exec[t] = g[0].part[of_tile[t]];
    return code;
}

/* --- a first placement -------------------------------------------------------------------------------------------- */

static fcp_code columns_of(const dcp_input *in, arena *scratch, dcp_columns *c) {
    const uint32_t n = in->blocks, tiles = in->tile_start[n];
    c->start = ARENA_NEW(scratch, uint32_t, n + (size_t)2);
    c->tile = ARENA_NEW(scratch, uint32_t, tiles + (size_t)1);
    c->tile_q = ARENA_NEW(scratch, uint32_t, tiles + (size_t)1);
    c->wide = ARENA_ZNEW(scratch, uint8_t, n + (size_t)1);
    if (!c->start || !c->tile || !c->tile_q || !c->wide) return FCP_E_NO_MEMORY;
    if (!group_by(in->tile_k, sizeof *in->tile_k, tiles, n, c->start, c->tile, in->stop)) return FCP_E_INTERRUPTED;
    for (uint32_t q = 0; q < n; q++)
        for (uint32_t t = in->tile_start[q]; t < in->tile_start[q + 1]; t++) c->tile_q[t] = q;
    if (in->fixed) return FCP_OK;
    fcp_code code = dcp_find_components(in, c, scratch);
    if (!code) dcp_find_wide(in, c);
    return code;
}

static fcp_code start(const dcp_input *in, const dcp_columns *c, arena *scratch, dcp_partition *p) {
    fcp_code code = in->fixed ? dcp_initial_given_homes(in, c, scratch, p) : dcp_initial(in, c, scratch, p);
    return code ? code : dcp_rebalance_tiles(in, c, p, scratch);
}

fcp_code dcp_initial_partition(const dcp_input *in, arena *refine, arena *scratch, dcp_partition *out) {
    dcp_columns c;
    fcp_code code = columns_of(in, scratch, &c);
    if (!code) code = start(in, &c, scratch, out);
    return code || !refine ? code : refine_levels(in, &c, out, scratch, refine);
}

bool dcp_open_partition(const dcp_input *in, arena *scratch, dcp_partition *out) {
    out->home = ARENA_NEW(scratch, uint32_t, in->blocks + (size_t)1);
    out->exec = ARENA_NEW(scratch, uint32_t, in->tile_start[in->blocks] + (size_t)1);
    out->load = ARENA_NEW(scratch, uint64_t, in->ranks);
    out->held = ARENA_NEW(scratch, uint64_t, in->ranks);
    return out->home && out->exec && out->load && out->held;
}

static uint64_t weighted(const dcp_input *in, const dcp_cost *c) { return c->bytes + (in->net - 1) * c->net; }

/* Divides among nodes first, and takes that if it costs less, and is over no cap further than the placement at hand.
 * Only bytes between nodes are saved so, and where these are less than half of the cost, nothing is tried. `keep` holds
 * the placement, `scratch` what may go afterwards, `step` what goes earlier. */
static fcp_code try_nodes(const dcp_input *in, const dcp_columns *c, arena *keep, arena *scratch, arena *step,
                          dcp_partition *p) {
    dcp_partition other;
    dcp_cost flat, cost;
    fcp_code code = dcp_cost_of(in, p->home, p->exec, scratch, &flat);
    if (code || 2 * (in->net - 1) * flat.net < weighted(in, &flat)) return code;
    if (!dcp_open_partition(in, keep, &other)) return FCP_E_NO_MEMORY;
    code = dcp_initial_by_nodes(in, scratch, step, &other);
    if (!code) code = dcp_rebalance_tiles(in, c, &other, scratch);
    if (!code) code = dcp_cost_of(in, other.home, other.exec, scratch, &cost);
    if (!code && weighted(in, &cost) < weighted(in, &flat) &&
        (cost.most_pairs <= in->pair_cap || cost.most_pairs <= flat.most_pairs) &&
        (cost.most_tokens <= in->token_cap || cost.most_tokens <= flat.most_tokens))
        *p = other;
    return code;
}

/* A first placement, refined: the cheaper of two, where there are several nodes. Arenas as for try_nodes. */
static fcp_code place_rows(const dcp_input *in, const dcp_columns *c, arena *keep, arena *stage, arena *step,
                            dcp_partition *p) {
    fcp_code code = start(in, c, stage, p);
    arena_reset(stage);
    if (!code && !in->fixed && in->gpus > 1 && in->ranks > in->gpus && in->ranks % in->gpus == 0)
        code = try_nodes(in, c, keep, stage, step, p);
    arena_reset(stage);
    if (!code) code = refine_levels(in, c, p, stage, step);
    arena_reset(stage);
    return code;
}

/* The same of a batch whose blocks were joined. */
static fcp_code place_joined(const dcp_input *in, const dcp_coarse_batch *j, arena *keep, arena *stage, arena *step,
                             dcp_partition *p) {
    dcp_columns c;
    dcp_partition coarse;
    if (!dcp_open_partition(&j->in, keep, &coarse)) return FCP_E_NO_MEMORY;
    fcp_code code = columns_of(&j->in, keep, &c);
    if (!code) code = place_rows(&j->in, &c, keep, stage, step, &coarse);
    if (code) return code;
    for (uint32_t b = 0; b < in->blocks; b++) p->home[b] = coarse.home[j->block[b]];
    for (uint32_t t = 0; t < in->tile_start[in->blocks]; t++) p->exec[t] = coarse.exec[j->tile[t]];
    memcpy(p->load, coarse.load, in->ranks * sizeof *p->load);
    memcpy(p->held, coarse.held, in->ranks * sizeof *p->held);
    return FCP_OK;
}

fcp_code dcp_partition_batch(const dcp_input *in, arena *scratch, uint32_t *out_home, uint32_t *out_exec) {
    dcp_partition p;
    dcp_columns c;
    dcp_coarse_batch j = {.in = *in};
    arena stage = {.pool = scratch->pool}, step = stage; /* each stage, and each step of one, begins with them empty */
    if (!dcp_open_partition(in, scratch, &p)) return FCP_E_NO_MEMORY;
    fcp_code code = columns_of(in, scratch, &c);
    if (!code && !in->fixed) code = dcp_coarsen_batch(in, &c, scratch, &j);
    if (!code && j.in.blocks < in->blocks) {
        code = place_joined(in, &j, scratch, &stage, &step, &p);
    } else if (!code) {
        code = place_rows(in, &c, scratch, &stage, &step, &p);
    }
    if (!code) code = refine_tiles(in, &c, &p, &stage);
    arena_free(&stage);
    arena_free(&step);
    if (code) return code;
    memcpy(out_home, p.home, in->blocks * sizeof *out_home);
    memcpy(out_exec, p.exec, in->tile_start[in->blocks] * sizeof *out_exec);
    return FCP_OK;
}
