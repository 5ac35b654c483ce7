/* dcp_problem.c: runs dcp on a problem: computes bytes and caps, and reports blocks that are too large for the cap on
 * tokens.
 *
 * Requires: a problem with its tiles.
 * Gives: a home for each block and a rank for each tile. No rank has more pairs than (1 + epsilon_compute) times the
 *     mean, unless single tiles are too heavy, nor more tokens than (1 + epsilon_memory) times the mean. With
 *     epsilon_nodes the first mean is that of the rank's node, and no node has more than (1 + epsilon_nodes) times the
 *     mean of nodes.
 * Cost: that of dcp_partition_batch.
 * Units: pairs; tokens, weighted where the plan is split (place_input.c); epsilons are in millionths.
 */
#include <string.h>

#include "compiler/base/integers.h"
#include "compiler/place/dcp/dcp.h"
#include "compiler/problem/problem.h"
#include "runtime/plan/bytes.h"

/* Reports that no placement within the stated epsilon_memory was found. Says what would do: a cap of the mean plus one
 * block always suffices. */
static fcp_code report_cap(planning *x, const place_input *in, uint64_t tokens, uint64_t most) {
    const struct fcpc_program *g = x->program;
    const double mean = (double)tokens / in->ranks, stated = g->epsilon_memory / 1e6;
    const uint64_t thousandths = (in->block * (uint64_t)in->ranks * 1000 + tokens - 1) / tokens;
    const uint64_t block = (uint64_t)(x->block * stated * mean / in->block) / FCP_CELL * FCP_CELL;
    diag_error(x->d, FCP_E_VALUE, planning_span(x, g->at[AT_EPSILON]),
               "epsilon_memory = %.10g: blocks of %u tokens are %.3g %% of a rank's, and one rank would have %.3g %% "
               "over the mean",
               stated, x->block, 100 * in->block / mean, 100 * (most / mean - 1));
    if (block) diag_hint(x->d, "%.10g or block = %llu would do", thousandths / 1e3, (unsigned long long)block);
    else diag_hint(x->d, "%.10g would do", thousandths / 1e3);
    return FCP_E_VALUE;
}

/* Makes the input of dcp from a problem. passes: the passes whose bytes count. */
static fcp_code dcp_input_of(planning *x, const place_input *in, const bool passes[FCP_PASSES], dcp_input *out,
                             uint64_t *out_tokens) {
    const problem *p = x->problem;
    const struct fcpc_program *g = x->program;
    dcp_block *block = ARENA_NEW(&x->scratch, dcp_block, p->block_count + (size_t)1);
    uint32_t *fixed = x->block_home ? ARENA_NEW(&x->scratch, uint32_t, p->block_count + (size_t)1) : NULL;
    if (!block || (x->block_home && !fixed)) return FCP_E_NO_MEMORY;
    const place_bytes each = place_token_bytes(x, passes);
    *out_tokens = 0;
    for (uint32_t b = 0; b < p->block_count; b++) {
        *out_tokens += in->tokens[b];
        const uint64_t keys = problem_holds(p, b, FCP_KEYS) ? p->blocks[b].tokens : 0;
        const uint64_t rows = problem_holds(p, b, FCP_QUERIES) ? p->blocks[b].tokens : 0;
        block[b] = (dcp_block){in->tokens[b], keys * each.kv, rows * each.whole, rows * each.part};
        if (fixed) fixed[b] = x->block_home[b] / p->lanes; /* a rank here may stand for several of the caller's */
    }
    uint64_t net = g->nodes > 1 && g->cluster.inter ? (g->cluster.intra + g->cluster.inter / 2) / g->cluster.inter : 1;
    *out = (dcp_input){.ranks = in->ranks,
                       .gpus = in->gpus,
                       .blocks = in->blocks,
                       .block = block,
                       .fixed = fixed,
                       .tile_start = p->tile_start,
                       .tile_k = p->tile_k,
                       .tile_pairs = p->tile_pairs,
                       .net = (uint32_t)max_u64(1, min_u64(net, 1000)),
                       .pair_cap = dcp_cap_of(p->pairs, in->ranks, program_rank_tolerance(g)),
                       .token_cap = dcp_cap_of(*out_tokens, in->ranks, g->epsilon_memory),
                       .within = g->tolerance,
                       .stop = in->stop};
    if (g->epsilon_nodes && in->ranks > in->gpus)
        out->node_pair_cap = dcp_cap_of(p->pairs, in->ranks / in->gpus, g->epsilon_nodes);
    if (out->fixed) { /* tokens are where they are */
        out->token_cap = UINT64_MAX / 2;
        return FCP_OK;
    }
    /* Whole blocks reach this cap always: some rank has at most the mean, and so has room for one more block. */
    if (g->at[AT_EPSILON].source == SPAN_NONE.source && out->token_cap < place_token_cap(in))
        out->token_cap = place_token_cap(in);
    return FCP_OK;
}

fcp_code dcp_cut(planning *x) {
    return x->program->layout == FCP_LAYOUT_PLANNED ? problem_cut_blocks(x) : problem_cut_held(x, &x->block_home);
}

fcp_code place_by_dcp(planning *x, const place_input *in, uint32_t *home) {
    const problem *p = x->problem;
    dcp_input d;
    uint64_t tokens, most = 0, *held = ARENA_ZNEW(&x->scratch, uint64_t, in->ranks);
    x->tile_rank = ARENA_NEW(&x->work, uint32_t, p->tile_count + (size_t)1);
    if (!x->tile_rank || !held) return FCP_E_NO_MEMORY;
    fcp_code code = dcp_input_of(x, in, x->program->passes, &d, &tokens);
    if (!code) code = dcp_partition_batch(&d, &x->scratch, home, x->tile_rank);
    if (code) return code;
    for (uint32_t b = 0; b < p->block_count; b++)
        if ((held[home[b]] += in->tokens[b]) > most) most = held[home[b]];
    if (d.fixed) memcpy(home, x->block_home, p->block_count * sizeof *home);
    const bool stated = x->program->at[AT_EPSILON].source != SPAN_NONE.source && !d.fixed;
    return stated && most > d.token_cap ? report_cap(x, in, tokens, most) : FCP_OK;
}

fcp_code exec_by_dcp(planning *x, const uint32_t *home, uint32_t *exec) {
    (void)home;
    memcpy(exec, x->tile_rank, x->problem->tile_count * sizeof *exec);
    return FCP_OK;
}

fcp_code dcp_bound_of(planning *x, uint64_t *out_bytes) {
    static const bool forward[FCP_PASSES] = {[FCP_FORWARD] = true};
    const problem *p = x->problem;
    place_input in;
    dcp_input d;
    dcp_cost cost;
    uint64_t tokens;
    fcp_problem facts;
    problem_facts(x, &facts);
    *out_bytes = 0;
    if (p->split || facts.mask_uses & MC_USES_H) return FCP_OK;
    uint32_t *exec = ARENA_NEW(&x->scratch, uint32_t, p->tile_count + (size_t)1);
    fcp_code code = exec ? place_input_of(x, &in) : FCP_E_NO_MEMORY;
    for (uint32_t t = 0; t < p->tile_count && !code; t++) exec[t] = placement_exec(x->placement, t);
    if (!code) code = dcp_input_of(x, &in, forward, &d, &tokens);
    if (!code) code = dcp_cost_of(&d, x->placement->home, exec, &x->scratch, &cost);
    if (code) return code;
    if (cost.most_pairs > d.pair_cap) d.pair_cap = cost.most_pairs; /* blocks or tiles are too large for less */
    if (cost.most_tokens > d.token_cap) d.token_cap = cost.most_tokens;
    return dcp_bound(&d, &x->scratch, out_bytes);
}
