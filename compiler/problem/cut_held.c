/* cut_held.c: cuts a batch into blocks that stay where the caller holds their tokens.
 *
 * Requires: checked lengths; a block size.
 * Gives: blocks of at most x->block tokens that hold every token once, each with tokens of one rank; their homes.
 * Cost: O(runs + pieces), and sorting the remainders.
 *
 * A run is what one rank holds of a sequence without gaps. Each run is cut at multiples of the block size, counted from
 * its beginning. Example: blocks have 4 tokens. Rank 0 holds sequence A, which has 5 tokens, and the first 5 tokens of
 * sequence B. Both runs are cut into 4 tokens and a remainder of 1.
 *
 * - The remainder of A may share a block with other remainders of that rank. The whole sequence lies on one rank, so no
 *   other rank reads it.
 * - The remainder of B is a block of its own. Other ranks read it, and all that shared its block would travel along.
 */
#include "compiler/problem/problem.h"

typedef struct part_list {
    problem_part *at;
    size_t count, room;
} part_list;

/* Adds the parts of a run. whole: it is the whole sequence. */
static fcp_code cut_run(planning *x, const problem_run *run, uint32_t holds, bool whole, part_list *out) {
    const uint32_t block = x->problem->block;
    for (uint64_t at = run->start; at < run->end; at += block) {
        const uint32_t length = run->end - at < block ? (uint32_t)(run->end - at) : block;
        out->at = arena_grow(&x->scratch, out->at, out->count, &out->room, sizeof *out->at);
        if (!out->at) return FCP_E_NO_MEMORY;
        out->at[out->count++] = (problem_part){.sequence = run->sequence, .length = length, .home = run->rank,
                                               .place = whole && length < block ? 0 : FCP_NONE, .holds = holds,
                                               .start = at};
    }
    return FCP_OK;
}

fcp_code problem_cut_held(planning *x, uint32_t **out_home) {
    problem *p = x->problem;
    part_list parts = {0};
    fcp_code code = problem_check_blocks(x);
    for (int side = 0; side < (p->split ? FCP_SIDES : 1) && !code; side++) {
        const uint32_t holds = p->split ? 1u << side : FCP_HOLDS_BOTH;
        problem_run *runs = NULL;
        uint32_t count = 0;
        code = problem_held(x, (fcp_side)side, &runs, &count);
        for (uint32_t i = 0; i < count && !code; i++) {
            const bool whole = runs[i].end - runs[i].start == problem_length(p, runs[i].sequence, (fcp_side)side);
            code = planning_stopped_at(x, i) ? FCP_E_INTERRUPTED : cut_run(x, &runs[i], holds, whole, &parts);
            if (!code && parts.count > UINT32_MAX / 4)
                code = planning_fail(x, FCP_E_PLAN_SIZE, planning_size_span(x),
                                     "more than 2^30 pieces are more than a plan holds");
        }
    }
    return code ? code : problem_pack(x, parts.at, parts.count, out_home);
}
