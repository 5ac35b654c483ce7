/* first_holders.c: says which rank holds which tokens when attention begins: those that the caller put there.
 *
 * Requires: checked lengths.
 * Gives: the rule of the caller's layout (runtime/plan/layout.h); and, made by that rule, the runs of tokens that each
 *     rank holds, by sequence and start.
 * Cost: O(sequences + runs).
 *
 * The rule divides the batch into *deals*. A deal is some sequences of the batch and the ranks on which they lie. If
 * the program says by `on` which ranks hold which part of the batch, each part is a deal. Otherwise there is one deal:
 * all sequences on all ranks, except the servers of strategy cad, which hold no tokens.
 */
#include "compiler/problem/problem.h"
#include "compiler/problem/problem_tuning.h"
#include "compiler/sema/strategies.h"
#include "runtime/plan/bytes.h"

static const uint64_t *prefix_sums(const uint64_t *lengths, uint32_t count, arena *a) {
    uint64_t *sums = ARENA_NEW(a, uint64_t, count + (size_t)1);
    if (!sums) return NULL;
    sums[0] = 0;
    for (uint32_t i = 0; i < count; i++) sums[i + 1] = sums[i] + lengths[i];
    return sums;
}

fcp_code problem_deal(planning *x, problem *p) {
    const struct fcpc_program *g = x->program;
    uint32_t holders = p->ranks - g->servers, parts = g->part_count && x->lengths == g->lengths ? g->part_count : 0,
             next = 0;
    fcp_deal *deals = ARENA_NEW(&x->memory, fcp_deal, parts + (size_t)1);
    const uint64_t *queries = prefix_sums(p->queries, p->sequences, &x->work);
    const uint64_t *keys = p->split ? prefix_sums(p->lengths, p->sequences, &x->work) : queries;
    if (!deals || !queries || !keys) return FCP_E_NO_MEMORY;
    p->rule = (fcp_rule){.layout = g->layout, .ranks = p->ranks, .group = program_layout_group(g), .deals = deals,
                         .offsets = {queries, keys}};
    const program_part all = {p->sequences, 0, p->ranks};
    for (const program_part *part = parts ? g->parts : &all, *last = part + (parts ? parts : 1); part < last; part++) {
        uint32_t end = part->end < holders ? part->end : holders, first = part->first < end ? part->first : end - 1;
        if (!part->count) continue;
        deals[p->rule.deal_count++] = (fcp_deal){next, (uint32_t)part->count, first, end - first};
        next += (uint32_t)part->count;
        if (g->layout_group && (end - first) % g->layout_group)
            return planning_fail(x, FCP_E_VALUE, g->at[AT_LENGTHS],
                                 "ranks %u..%u hold tokens, and do not divide into groups of %u", first, end,
                                 g->layout_group);
    }
    return FCP_OK;
}

/* Returns the least length of a sequence for which zigzag pays on so many ranks.
 *
 * In zigzag all ranks of a sequence have rows and keys of it, so each key travels to all their nodes. A sequence of n
 * tokens has n keys to send and about n^2 / 2 pairs to compute. So if n is large enough, sending is hidden behind
 * computing. The length returned is that at which sending the keys over net takes half as long as computing the pairs,
 * with kernels at four sevenths of the cluster's FLOPs. It does not depend on the mask, because layers with different
 * masks share their homes.
 *
 * Example: with 64 query heads and 8 KV heads on H200s it is 39,600 tokens on 8 nodes, and 175,000 on 32 nodes. With
 * `cad`, the forward pass of wlbllm-256 in zigzag, whose longest sequence has 131,072 tokens, takes 215 ms if sequences
 * of 65,536 tokens stay in zigzag, and 85 ms if they are gathered. */
static uint64_t hidden_length(const problem *p, uint64_t ranks) {
    const struct fcpc_program *g = p->program;
    const uint64_t in_node = (uint64_t)g->gpus * p->lanes, nodes = (ranks + in_node - 1) / in_node;
    const fcp_problem facts = problem_early_facts(g);
    const unsigned __int128 keys = (unsigned __int128)fcp_slot_bytes(&facts, FCP_KV, FCP_FORWARD) * (nodes - 1),
                            work = (unsigned __int128)g->heads * (g->head_dim + g->value_dim) * 7 * g->cluster.inter;
    if (strategy_shares_heads(g->strategy) || !work) return 0; /* who computes some heads needs all keys of them */
    return (uint64_t)(2 * keys * 4 * g->cluster.flops / work);
}

fcp_code problem_held(planning *x, fcp_side side, problem_run **out, uint32_t *out_count) {
    const problem *p = x->problem;
    fcp_rule rules[2] = {p->rule, p->rule};
    rules[0].layout = FCP_LAYOUT_CONTIGUOUS;
    fcp_walk walks[2] = {fcp_walk_of(&rules[0], side), fcp_walk_of(&rules[1], side)};
    const uint64_t *offsets = p->rule.offsets[side];
    problem_run *runs = NULL;
    size_t room = 0, count = 0;
    for (uint32_t s = 0; s < p->sequences; s++) {
        uint64_t n = offsets[s + 1] - offsets[s], at = 0;
        if (planning_stopped_at(x, s)) return FCP_E_INTERRUPTED;
        if (!n) continue;
        fcp_walk_to(&walks[0], s, 0); /* finds the group, too */
        bool zigzag = p->rule.layout == FCP_LAYOUT_ZIGZAG && n / walks[0].group >= ZIGZAG_LEAST &&
                      n >= hidden_length(p, walks[0].group);
        fcp_walk *w = &walks[zigzag];
        if (zigzag) fcp_walk_to(w, s, 0);
        for (;;) {
            uint64_t end = fcp_walk_end(w) - offsets[s];
            uint64_t to = end < n ? end : n;
            if (!(runs = arena_grow(&x->work, runs, count, &room, sizeof *runs))) return FCP_E_NO_MEMORY;
            runs[count++] = (problem_run){s, fcp_walk_rank(w), at, to};
            if (to == n) break;
            at = to;
            fcp_walk_next(w);
        }
    }
    if (count > UINT32_MAX / 4) return FCP_E_PLAN_SIZE;
    *out = runs;
    *out_count = (uint32_t)count;
    return FCP_OK;
}
