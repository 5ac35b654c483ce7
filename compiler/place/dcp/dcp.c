/* dcp.c: divides blocks and tiles among ranks in the steps of a multilevel partitioner, and counts what that costs.
 *
 * Requires: what dcp.h says of a dcp_input.
 * Gives: a home for every block and a rank for every tile. Both caps are kept, unless single blocks or tiles are too
 *     large for that.
 * Cost: about 50 looks (refine.c) for each block and tile on each of a few hypergraphs. Memory: O(blocks + tiles).
 * Units: pairs, tokens, bytes.
 *
 * The steps, in order:
 *   1. Coarsen the batch (coarsen_batch.c): where a sequence has many tiles for each of its ranks, neighbouring blocks
 *      become one until step 6.
 *   2. Initial partition (initial_partition.c): sequences whole where they fit, strips of those that are too heavy. If
 *      homes are given (initial_given_homes.c): ranks with too much work give rows away.
 *   3. Rebalance (rebalance_tiles.c): where a rank has too many pairs, tiles of a row move to another.
 *   4. Where most of the cost is between nodes, steps 2 and 3 make a second partition, first among nodes and then in
 *      each node (initial_by_nodes.c). The cheaper of the two is kept.
 *   5. Refine (refine.c) on ever finer hypergraphs. On the coarsest a vertex is all of a sequence that is at one rank,
 *      on the finest a row. So whole sequences make room for one another before cuts slide along them.
 *   6. Where rows see far more keys than others do (wide rows, initial_partition.c), refine with each rank's part of such
 *      a row as a vertex of its own.
 *   7. Refine once more on the original blocks. The tiles of a row that do not run at home can now move one by one.
 *
 * If nodes have a cap of their own, all of this is done twice: among nodes, and then in each node (two_tolerances.c).
 *
 * Other partitioners coarsen the hypergraph first and then divide the coarsest one. Here the initial partition comes
 * first, because it needs no coarsening: sequences are known, and need not be found from what blocks share.
 */
#include <string.h>

#include "compiler/base/group.h"
#include "compiler/place/dcp/dcp.h"

uint64_t dcp_cap_of(uint64_t sum, uint32_t ranks, uint32_t epsilon) {
    const uint64_t mean = sum / ranks + (sum % ranks != 0);
    unsigned __int128 cap = (unsigned __int128)sum * (1000000 + (uint64_t)epsilon) / 1000000 / ranks;
    if (cap > UINT64_MAX / 2) cap = UINT64_MAX / 2;
    return cap > mean ? (uint64_t)cap : mean;
}

fcp_code dcp_cost_of(const dcp_input *in, const uint32_t *home, const uint32_t *exec, arena *scratch, dcp_cost *out) {
    const uint32_t n = in->blocks, tiles = in->tile_start[n], nodes = (in->ranks + in->gpus - 1) / in->gpus;
    uint64_t *load = ARENA_ZNEW(scratch, uint64_t, in->ranks), *held = ARENA_ZNEW(scratch, uint64_t, in->ranks);
    uint32_t *seen = ARENA_ZNEW(scratch, uint32_t, in->ranks), *node_seen = ARENA_ZNEW(scratch, uint32_t, nodes);
    uint32_t *start, *tile, stamp = 0; /* the tiles of each KV block */
    if (!load || !held || !seen || !node_seen) return FCP_E_NO_MEMORY;
    fcp_code code = group_new(scratch, in->tile_k, sizeof *in->tile_k, tiles, n, in->stop, &start, &tile);
    if (code) return code;
    *out = (dcp_cost){0};
    for (uint32_t b = 0; b < n; b++) {
        held[home[b]] += in->block[b].tokens;
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
            uint64_t bytes = !q ? in->block[b].kv : several ? in->block[b].part : in->block[b].whole;
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

/* Refines a partition on a series of hypergraphs, from the coarsest to the finest. In the coarsest, all connected
 * vertices of a rank are one vertex. A level that would contract little is left out. tiles_apart: there is only the
 * finest level, and each tile that does not run at home is a vertex. The arena `step` is empty before and after. */
static fcp_code refine_levels(const dcp_input *in, const dcp_columns *c, dcp_partition *p, bool tiles_apart,
                              arena *scratch, arena *step) {
    static const uint32_t size[DCP_LEVELS] = {0, 32, 12, 6, 3, 1}; /* vertices are such a part of a rank at most */
    const uint32_t n = in->blocks, tiles = in->tile_start[n];
    dcp_hypergraph g[DCP_LEVELS];
    uint32_t *coarse[DCP_LEVELS], *data = ARENA_NEW(scratch, uint32_t, n + (size_t)1), levels = 1;
    uint32_t *of_tile = ARENA_NEW(scratch, uint32_t, tiles + (size_t)1);
    if (!data || !of_tile) return FCP_E_NO_MEMORY;
    fcp_code code = dcp_hypergraph_of(in, c, p, tiles_apart, scratch, &g[0], data, of_tile);
    for (uint32_t i = 1; i < DCP_LEVELS && !tiles_apart && !code; i++) {
        const dcp_hypergraph *fine = &g[levels - 1];
        uint32_t *to = coarse[levels] = ARENA_NEW(scratch, uint32_t, fine->vertices + (size_t)1);
        code = !to ? FCP_E_NO_MEMORY
                   : dcp_coarsen(in, fine, in->pair_cap / size[i], in->token_cap / size[i], scratch, step, &g[levels],
                                 to);
        if (!code && g[levels].vertices < fine->vertices - fine->vertices / DCP_CONTRACTS) levels++;
        arena_reset(step);
    }
    for (uint32_t i = levels; i-- > 0 && !code;) {
        code = dcp_refine(in, &g[i], p->load, p->held, step);
        arena_reset(step);
        for (uint32_t v = 0; i && v < g[i - 1].vertices; v++) g[i - 1].part[v] = g[i].part[coarse[i][v]];
    }
    for (uint32_t b = 0; b < n && !code; b++) p->home[b] = g[0].part[data[b]];
    for (uint32_t t = 0; t < tiles && !code; t++) p->exec[t] = g[0].part[of_tile[t]];
    return code;
}

/* --- initial partitions ------------------------------------------------------------------------------------------- */

static fcp_code columns_of(const dcp_input *in, arena *scratch, dcp_columns *c) {
    const uint32_t n = in->blocks, tiles = in->tile_start[n];
    c->tile_q = ARENA_NEW(scratch, uint32_t, tiles + (size_t)1);
    c->wide = ARENA_ZNEW(scratch, uint8_t, n + (size_t)1);
    if (!c->tile_q || !c->wide) return FCP_E_NO_MEMORY;
    fcp_code code = group_new(scratch, in->tile_k, sizeof *in->tile_k, tiles, n, in->stop, &c->start, &c->tile);
    for (uint32_t q = 0; q < n; q++)
        for (uint32_t t = in->tile_start[q]; t < in->tile_start[q + 1]; t++) c->tile_q[t] = q;
    if (code || in->fixed) return code;
    code = dcp_find_components(in, c, scratch);
    if (!code) dcp_find_wide(in, c);
    return code;
}

static fcp_code initial_for(const dcp_input *in, const dcp_columns *c, arena *scratch, dcp_partition *p) {
    fcp_code code = in->fixed ? dcp_initial_given_homes(in, c, scratch, p) : dcp_initial(in, c, scratch, p);
    return code ? code : dcp_rebalance_tiles(in, c, p, scratch);
}

fcp_code dcp_initial_partition(const dcp_input *in, arena *refine, arena *scratch, dcp_partition *out) {
    dcp_columns c;
    fcp_code code = columns_of(in, scratch, &c);
    if (!code) code = initial_for(in, &c, scratch, out);
    return code || !refine ? code : refine_levels(in, &c, out, false, scratch, refine);
}

bool dcp_open_partition(const dcp_input *in, arena *scratch, dcp_partition *out) {
    out->home = ARENA_NEW(scratch, uint32_t, in->blocks + (size_t)1);
    out->exec = ARENA_NEW(scratch, uint32_t, in->tile_start[in->blocks] + (size_t)1);
    out->load = ARENA_NEW(scratch, uint64_t, in->ranks);
    out->held = ARENA_NEW(scratch, uint64_t, in->ranks);
    return out->home && out->exec && out->load && out->held;
}

bool dcp_open_derived(const dcp_input *of, uint32_t blocks, uint32_t tiles, arena *scratch, dcp_derived *out) {
    out->made = ARENA_ZNEW(scratch, dcp_block, blocks + (size_t)1);
    out->tile_start = ARENA_NEW(scratch, uint32_t, blocks + (size_t)1);
    out->tile_k = ARENA_NEW(scratch, uint32_t, tiles + (size_t)1);
    out->tile_pairs = ARENA_NEW(scratch, uint64_t, tiles + (size_t)1);
    out->tile = ARENA_NEW(scratch, uint32_t, tiles + (size_t)1);
    out->in = *of;
    out->in.blocks = blocks;
    out->in.block = out->made;
    out->in.tile_start = out->tile_start;
    out->in.tile_k = out->tile_k;
    out->in.tile_pairs = out->tile_pairs;
    return out->made && out->tile_start && out->tile_k && out->tile_pairs && out->tile;
}

static uint64_t weighted(const dcp_input *in, const dcp_cost *c) { return c->bytes + (in->net - 1) * c->net; }

/* Makes a second partition, which divides the batch among nodes first. It replaces *p if it costs less and exceeds
 * no cap by more than *p does. It can only save bytes between nodes, so it is not tried if those are less than half
 * of the cost. Arenas: the partition is allocated in `keep`; the caller resets `scratch` after the call; `step` is
 * reset here. */
static fcp_code try_nodes(const dcp_input *in, const dcp_columns *c, arena *keep, arena *scratch, arena *step,
                          dcp_partition *p) {
    dcp_partition other;
    dcp_cost flat, cost;
    fcp_code code = dcp_cost_of(in, p->home, p->exec, scratch, &flat);
    if (code || 2 * (uint64_t)(in->net - 1) * flat.net < weighted(in, &flat)) return code;
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

/* Makes an initial partition and refines it. If there are several nodes, this is done in two ways, and the cheaper one
 * is kept. The arenas are used as in try_nodes. */
static fcp_code divide_batch(const dcp_input *in, const dcp_columns *c, arena *keep, arena *stage, arena *step,
                             dcp_partition *p) {
    fcp_code code = initial_for(in, c, stage, p);
    arena_reset(stage);
    if (!code && !in->fixed && in->gpus > 1 && in->ranks > in->gpus && in->ranks % in->gpus == 0)
        code = try_nodes(in, c, keep, stage, step, p);
    arena_reset(stage);
    if (!code) code = refine_levels(in, c, p, false, stage, step);
    arena_reset(stage);
    return code;
}

/* Refines once more if there are wide rows. The tiles of such a row that run at one rank are now a vertex of their own.
 * So they may move together to where the row has its Q, if their keys are fewer bytes than Q and a partial result. */
static fcp_code gather_wide_rows(const dcp_input *in, const dcp_columns *c, arena *stage, arena *step,
                                 dcp_partition *p) {
    dcp_columns none = *c;
    uint32_t q = 0;
    while (q < in->blocks && !c->wide[q]) q++;
    if (q == in->blocks) return FCP_OK;
    none.wide = ARENA_ZNEW(stage, uint8_t, in->blocks + (size_t)1);
    fcp_code code = none.wide ? refine_levels(in, &none, p, false, stage, step) : FCP_E_NO_MEMORY;
    arena_reset(stage);
    return code;
}

/* Divides the coarser batch. Then gives each original block and tile the rank of the coarser one that it is part of. */
static fcp_code divide_coarse(const dcp_input *in, const dcp_derived *j, arena *keep, arena *stage, arena *step,
                              dcp_partition *p) {
    dcp_columns c;
    dcp_partition coarse;
    if (!dcp_open_partition(&j->in, keep, &coarse)) return FCP_E_NO_MEMORY;
    fcp_code code = columns_of(&j->in, keep, &c);
    if (!code) code = divide_batch(&j->in, &c, keep, stage, step, &coarse);
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
    dcp_derived j = {.in = *in};
    arena stage = {.pool = scratch->pool}, step = stage; /* each stage, and each step of one, begins with them empty */
    if (in->node_pair_cap) return dcp_divide_twice(in, scratch, out_home, out_exec);
    if (!dcp_open_partition(in, scratch, &p)) return FCP_E_NO_MEMORY;
    fcp_code code = columns_of(in, scratch, &c);
    if (!code && !in->fixed) code = dcp_coarsen_batch(in, &c, scratch, &j);
    if (!code && j.in.blocks < in->blocks) {
        code = divide_coarse(in, &j, scratch, &stage, &step, &p);
    } else if (!code) {
        code = divide_batch(in, &c, scratch, &stage, &step, &p);
    }
    if (!code) code = gather_wide_rows(in, &c, &stage, &step, &p);
    if (!code) code = refine_levels(in, &c, &p, true, &stage, &step);
    arena_free(&stage);
    arena_free(&step);
    if (code) return code;
    memcpy(out_home, p.home, in->blocks * sizeof *out_home);
    memcpy(out_exec, p.exec, in->tile_start[in->blocks] * sizeof *out_exec);
    return FCP_OK;
}
