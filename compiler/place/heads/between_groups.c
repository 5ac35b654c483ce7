/* between_groups.c: ulysses or upipe inside groups of ranks, and another strategy that divides the batch among the
 * groups.
 *
 * Requires: checked lengths; groups that divide the ranks and the heads (sema/sharing.c).
 * Gives: heads_cut_between: blocks as the other strategy cuts them, of all heads. heads_place_between, with tiles of
 *     these: blocks and tiles of ranges of heads, a home for each block and a rank for each tile.
 * Cost: that of the other strategy, on as many ranks as there are groups; linear in blocks and tiles of all ranges.
 * Source: "FCP" (Berkeley, ByteDance) names ulysses inside a node and its own blocks between nodes; "DCP" has blocks
 *     for each head.
 *
 * The number of a rank in its group is its lane. Who decides what:
 *   1. The other strategy plans for a smaller cluster, in which every group is one rank: as fast as all of its ranks
 *      together, with links as wide as all of theirs. It decides at which group a block is at home, and which group
 *      computes a tile.
 *   2. A block's home is a rank of its group. If tokens stay where the caller holds them, it is that rank. Otherwise
 *      the largest block comes first, and each goes to the rank that has fewest tokens so far.
 *   3. A tile of some heads runs at the rank of its group that computes these heads.
 *
 * Example: 2 nodes of 2 ranks, 4 heads, ulysses(inside = node) + fcp. Fcp divides 6 blocks among 2 ranks: blocks 0, 2
 * and 5 to the first. So they are at home on ranks 0, 1 and 0. Block 5 reads block 1, which is at home on rank 2. Heads
 * 0 and 1 are computed at rank 0, where Q of block 5 is; K and V of block 1 come there from rank 2. Heads 2 and 3 are
 * computed at rank 1: Q comes from rank 0, over the fast fabric, and K and V from rank 2, by way of rank 3.
 *
 * How keys of some heads travel to other nodes:
 *   1. From their home to the rank of the home's own group that computes these heads.
 *   2. From there to the rank in the same lane of each other group, and on to other ranks of its node that read them.
 * So each byte of keys crosses to a node once, and stays on one rail (between ranks of equal number in their nodes).
 * The heads of a block leave by the ports of all ranks of the group. If the home sent all heads itself, its port would
 * limit everything: with links of 12.5 GB/s and 64 heads of K and V, wlbllm-64 by `+ fcp` takes 80 ms instead of 54.
 */
#include <string.h>

#include "compiler/base/bisect.h"
#include "compiler/base/sort.h"
#include "compiler/place/heads/heads.h"

/* The planning as the other strategy sees it: on a cluster in which every group is one rank. */
typedef struct view {
    struct fcpc_program program;
    problem problem;
    planning planning;
} view;

static void view_open(const planning *x, view *v) {
    const struct fcpc_program *g = x->program;
    v->program = *g;
    v->program.strategy = program_divides_by(g);
    v->program.between = 0;
    v->program.gpus = g->gpus % g->inside ? 1 : g->gpus / g->inside;
    v->program.nodes = program_places(g) / v->program.gpus;
    v->program.servers = g->servers / g->inside;
    v->problem = *x->problem;
    v->problem.program = &v->program;
    v->problem.ranks = program_places(g);
    v->problem.lanes = g->inside;
    v->planning = *x;
    v->planning.program = &v->program;
    v->planning.problem = &v->problem;
    v->planning.kept = NULL; /* what others keep is of ranks, not of groups */
}

/* Copies back what the other strategy has made, with the program and ranks of the real cluster. */
static void view_close(planning *x, view *v) {
    v->problem.program = x->program;
    v->problem.ranks = x->problem->ranks;
    v->problem.lanes = x->problem->lanes;
    *x->problem = v->problem;
    v->planning.program = x->program;
    v->planning.problem = x->problem;
    v->planning.kept = x->kept;
    *x = v->planning;
}

fcp_code heads_cut_between(planning *x, const strategy *other) {
    const struct fcpc_program *g = x->program;
    const heads_shape shape = heads_shape_of(g->heads, g->kv_heads, g->together / g->inside);
    view v;
    x->sharing = ARENA_ZNEW(&x->work, sharing, 1);
    if (!x->sharing) return FCP_E_NO_MEMORY;
    x->sharing->group = g->inside;
    x->problem->split |= shape.range_sub < g->heads / g->kv_heads;
    view_open(x, &v);
    fcp_code code = other->cut(&v.planning);
    view_close(x, &v);
    return code;
}

/* --- homes and ranks of all heads --------------------------------------------------------------------------------- */

/* Where blocks and tiles are before heads are divided. Each block and tile here is of all heads. */
typedef struct wholes {
    uint32_t *home, *exec; /* per block: its rank; per tile: the group that computes it */
} wholes;

/* Gives every block a rank of its group, so that the group's tokens are spread evenly (LPT by tokens): the largest
 * block first, to the rank that has fewest tokens. */
static fcp_code spread_in_groups(planning *x, const place_input *in, const uint32_t *group, uint32_t *home) {
    const problem *p = x->problem;
    const uint32_t lanes = p->lanes;
    uint64_t *held = ARENA_ZNEW(&x->scratch, uint64_t, (size_t)p->ranks * lanes);
    uint64_t *keys = ARENA_NEW(&x->scratch, uint64_t, 2 * (size_t)p->block_count + 1);
    if (!held || !keys) return FCP_E_NO_MEMORY;
    for (uint32_t b = 0; b < p->block_count; b++) keys[b] = in->tokens[b];
    order_falling(keys, keys + p->block_count, p->block_count);
    for (uint32_t i = 0; i < p->block_count; i++) {
        const uint32_t b = (uint32_t)keys[i], first = group[b] * lanes;
        uint32_t best = first;
        if (planning_stopped_at(x, i)) return FCP_E_INTERRUPTED;
        for (uint32_t r = first + 1; r < first + lanes; r++)
            if (held[r] < held[best]) best = r;
        held[home[b] = best] += in->tokens[b];
    }
    return FCP_OK;
}

/* Asks the other strategy for homes and for the groups that compute tiles. x: the planning as that strategy sees it.
 * in_place: the homes that it gives are ranks of the caller; otherwise they are groups. */
static fcp_code place_wholes(planning *x, const strategy *other, bool in_place, wholes *out) {
    const problem *p = x->problem;
    uint32_t *group = ARENA_NEW(&x->work, uint32_t, p->block_count + (size_t)1);
    place_input in;
    out->home = ARENA_NEW(&x->work, uint32_t, p->block_count + (size_t)1);
    out->exec = ARENA_NEW(&x->work, uint32_t, p->tile_count + (size_t)1);
    if (!group || !out->home || !out->exec) return FCP_E_NO_MEMORY;
    fcp_code code = place_input_of(x, &in);
    if (!code) code = other->place(x, &in, out->home);
    if (code) return code;
    for (uint32_t b = 0; b < p->block_count; b++) group[b] = out->home[b] / (in_place ? p->lanes : 1);
    if (!in_place) code = spread_in_groups(x, &in, group, out->home);
    if (!code && other->exec) return other->exec(x, group, out->exec);
    for (uint32_t t = 0; t < p->tile_count; t++) out->exec[t] = x->tile_rank ? x->tile_rank[t] : group[p->tile_q[t]];
    return code;
}

/* --- of ranges of heads ------------------------------------------------------------------------------------------- */

/* Finds the tile of Q block q and KV block k among the tiles of all heads. FCP_NONE: there is none. */
static uint32_t find_tile(const problem *p, uint32_t q, uint32_t k) {
    uint32_t at = p->tile_start[q], end = p->tile_start[q + 1];
    BISECT(at, end, t, p->tile_k[t] < k)
    return at < p->tile_start[q + 1] && p->tile_k[at] == k ? at : FCP_NONE;
}

/* Divides the heads: replaces each block and tile of all heads by one for each range of heads. */
static fcp_code divide_wholes(planning *x, const wholes *of, uint32_t **out_home, uint32_t **out_exec) {
    const struct fcpc_program *g = x->program;
    const heads_shape shape = heads_shape_of(g->heads, g->kv_heads, g->together / g->inside);
    problem *p = x->problem;
    const problem whole = *p;
    fcp_code code = problem_tiles_of_ranges(x, shape.range_kv, shape.range_sub);
    if (!code) code = heads_divide_ranges(x);
    if (code) return code;
    uint32_t *home = *out_home = ARENA_NEW(&x->work, uint32_t, p->block_count + (size_t)1);
    uint32_t *exec = *out_exec = ARENA_NEW(&x->work, uint32_t, p->tile_count + (size_t)1);
    uint32_t *block = ARENA_NEW(&x->scratch, uint32_t, p->block_count + (size_t)1); /* the one of all heads */
    if (!home || !exec || !block) return FCP_E_NO_MEMORY;
    for (uint32_t b = 0; b < p->range_blocks; b++)
        for (uint32_t twin = b; twin != FCP_NONE; twin = problem_twin(p, twin)) {
            block[twin] = b;
            home[twin] = of->home[b];
        }
    for (uint32_t t = 0; t < p->tile_count; t++) {
        const uint32_t q = p->tile_q[t], from = find_tile(&whole, block[q], block[p->tile_k[t]]);
        if (planning_stopped_at(x, t)) return FCP_E_INTERRUPTED;
        if (from == FCP_NONE)
            return planning_fail(x, FCP_E_INTERNAL, SPAN_NONE, "tile %u of a range of heads is none of all heads", t);
        exec[t] = of->exec[from] * g->inside + x->sharing->lane[p->blocks[q].heads];
    }
    return FCP_OK;
}

/* --- ways --------------------------------------------------------------------------------------------------------- */

/* Adds the ways to the readers of one node, ranks[first] to ranks[end - 1]: from `from` to the reader in this lane, or
 * to the first reader if none is in this lane; and from that one to the others. */
static uint32_t reach_node(const need *n, uint32_t first, uint32_t end, uint32_t from, uint32_t group, uint32_t lane,
                           leg *legs) {
    uint32_t to = n->ranks[first], count = 0;
    for (uint32_t i = first; i < end; i++)
        if (n->ranks[i] % group == lane) to = n->ranks[i];
    legs[count++] = (leg){from, to};
    for (uint32_t i = first; i < end; i++)
        if (n->ranks[i] != to) legs[count++] = (leg){to, n->ranks[i]};
    return count;
}

uint32_t heads_route_between(const planning *x, const need *n, leg *legs) {
    const uint32_t group = x->sharing->group, gpus = x->program->gpus, node = n->home / gpus;
    const uint32_t lane = n->ranks[n->block % n->count] % group; /* fewer KV heads than lanes: several read them */
    uint32_t from = n->home / group * group + lane, count = 0, near = 0;
    if (from / gpus != node) from = n->home; /* a group is larger than a node */
    bool there = from == n->home;
    for (uint32_t i = 0; i < n->count; i++) {
        if (n->ranks[i] / gpus != node) continue;
        legs[count++] = (leg){n->home, n->ranks[i]};
        there |= n->ranks[i] == from;
        near++;
    }
    if (near < n->count && !there) legs[count++] = (leg){n->home, from};
    for (uint32_t i = 0, end; i < n->count; i = end) {
        for (end = i + 1; end < n->count && n->ranks[end] / gpus == n->ranks[i] / gpus; end++) {}
        if (n->ranks[i] / gpus != node) count += reach_node(n, i, end, from, group, lane, legs + count);
    }
    return count;
}

fcp_code heads_place_between(planning *x, const strategy *other, uint32_t **out_home, uint32_t **out_exec) {
    const bool keeps = strategy_keeps_homes(x->program);
    wholes made = {0};
    view v;
    view_open(x, &v);
    fcp_code code = place_wholes(&v.planning, other, keeps || other->given, &made);
    view_close(x, &v);
    if (!code && x->program->equal)
        code = keeps ? place_check_equal(x, made.home) : place_equal(x, &made.home, &made.exec);
    return code ? code : divide_wholes(x, &made, out_home, out_exec);
}
