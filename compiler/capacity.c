/* capacity.c: compares the fullest rank with cluster.memory.
 *
 * Requires: slots and rounds. Gives: an error, with what would help, where the plan does not fit.
 */
#include "compiler/capacity.h"

#include "compiler/lower/lower.h"

static uint64_t peak_of(const planning *x) {
    fcp_problem facts;
    problem_facts(x, &facts);
    return lower_memory_peak(x, &facts);
}

/* The peak with fewer rounds to a stage; UINT64_MAX where there is no such schedule. Leaves x as it is. */
static fcp_code peak_with(planning *x, uint32_t coalesce, uint64_t *out_peak) {
    planning other = *x;
    other.coalesce = coalesce;
    other.memory = other.work = (arena){0};
    fcp_code code = schedule_build(&other);
    arena_reset(&other.scratch);
    if (!code) code = slots_build(&other);
    *out_peak = code ? UINT64_MAX : peak_of(&other);
    arena_free(&other.memory);
    arena_free(&other.work);
    x->scratch = other.scratch;
    arena_reset(&x->scratch);
    return code == FCP_E_PLAN_SIZE ? FCP_OK : code;
}

fcp_code capacity_check(planning *x) {
    uint64_t peak = peak_of(x), cap = x->program->memory_cap;
    if (peak <= cap) return FCP_OK;
    uint32_t would = 0;
    uint64_t bytes = 0;
    for (uint32_t coalesce = x->coalesce / 2; coalesce && !would; coalesce /= 2) {
        fcp_code code = peak_with(x, coalesce, &bytes);
        if (code) return code;
        if (bytes <= cap) would = coalesce;
    }
    diag_error(x->d, FCP_E_MEMORY_CAP, planning_span(x, x->program->memory_span),
               "the plan needs %llu bytes on its fullest rank, cluster.memory allows %llu", (unsigned long long)peak,
               (unsigned long long)cap);
    if (would)
        diag_hint(x->d, "strategy %s(coalesce = %u) would need %llu bytes", fcp_strategy_names[x->program->strategy],
                  would, (unsigned long long)bytes);
    else
        diag_hint(x->d, "cluster.memory = %llu MB would do, or more ranks",
                  (unsigned long long)((peak + 999999) / 1000000));
    return FCP_E_MEMORY_CAP;
}
