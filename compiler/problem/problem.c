/* problem.c: checks the lengths of a batch.
 *
 * Requires: lengths from anywhere; nothing is assumed of them.
 * Gives: a problem with its sequences, whose tokens, keys and query-key positions fit the plan's counters.
 * Cost: O(sequences).
 */
#include "compiler/problem/problem.h"

#include <string.h>

enum { MAX_BATCH_BITS = 40 };

static fcp_code check_lengths(planning *x, problem *p) {
    const span at = x->program->at[AT_LENGTHS];
    const uint64_t *lengths = x->lengths, *queries = x->queries, most = UINT64_C(1) << MAX_BATCH_BITS;
    size_t count = x->count;
    if (!count) return planning_fail(x, FCP_E_LENGTHS, at, "the batch has no sequences");
    if (count > UINT32_MAX / 2)
        return planning_fail(x, FCP_E_LENGTHS, at, "the batch has %zu sequences; at most 2^31", count);
    for (size_t i = 0; i < count; i++) {
        if (lengths[i] > most || (p->key_tokens += lengths[i]) > most)
            return planning_fail(x, FCP_E_LENGTHS, at,
                                 "the lengths add up to more than 2^%d tokens (at sequence %zu)", MAX_BATCH_BITS, i);
    }
    p->tokens = p->key_tokens;
    p->lengths = p->queries = lengths;
    p->sequences = (uint32_t)count;
    if (!queries || !memcmp(queries, lengths, count * sizeof *queries)) return FCP_OK;
    p->split = true;
    p->queries = queries;
    p->tokens = 0;
    for (size_t i = 0; i < count; i++) {
        if (queries[i] > most || (p->tokens += queries[i]) > most)
            return planning_fail(x, FCP_E_LENGTHS, at, "the queries add up to more than 2^%d (at sequence %zu)",
                                 MAX_BATCH_BITS, i);
    }
    return FCP_OK;
}

/* Refuses batches that no plan holds, before memory for their blocks is taken: a rank counts its tokens in 31 bits, and
 * on average it holds tokens / ranks of them. */
static fcp_code check_size(planning *x, const problem *p) {
    const uint64_t most = (uint64_t)p->ranks * INT32_MAX;
    if (p->tokens <= most && p->key_tokens <= most) return FCP_OK;
    return planning_fail(x, FCP_E_PLAN_SIZE, planning_size_span(x),
                         "the batch is too large for a plan of %u ranks: each would hold more than 2^31 tokens",
                         p->ranks);
}

fcp_code problem_check_blocks(planning *x) {
    const problem *p = x->problem;
    if (problem_least_blocks(p, p->block) <= PROBLEM_BLOCKS_MAX) return FCP_OK;
    return planning_fail(x, FCP_E_PLAN_SIZE, planning_size_span(x),
                         "more than %d blocks of %u tokens are more than a plan holds", PROBLEM_BLOCKS_MAX, p->block);
}

fcp_code problem_open(planning *x) {
    problem *p = ARENA_ZNEW(&x->work, problem, 1);
    if (!p) return FCP_E_NO_MEMORY;
    *p = (problem){.program = x->program, .binding = x->binding, .ranks = x->program->nodes * x->program->gpus,
                   .lanes = 1, .block = x->block, .unit = x->block, .range_kv = x->program->kv_heads,
                   .range_sub = x->program->heads / x->program->kv_heads};
    fcp_code code = check_lengths(x, p);
    if (!code) code = problem_deal(x, p);
    if (code) return code;
    unsigned __int128 positions = 0;
    for (uint32_t s = 0; s < p->sequences; s++) positions += (unsigned __int128)p->queries[s] * p->lengths[s];
    if (mc_uses(x->program->mask) & MC_USES_H) positions *= x->program->heads;
    if (positions > INT64_MAX)
        return planning_fail(x, FCP_E_LENGTHS, x->program->at[AT_LENGTHS],
                             "the sequences have more than 2^63 query-key positions together");
    p->positions = (uint64_t)positions;
    x->problem = p;
    return check_size(x, p);
}
