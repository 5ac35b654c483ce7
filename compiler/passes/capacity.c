/* capacity.c: refuses a plan whose fullest rank needs more than cluster.memory.
 *
 * Requires: slots. Gives: an error, to which compiler/advice adds hints. Cost: linear in ranks.
 */
#include <stdio.h>

#include "compiler/lower/lower.h"
#include "compiler/passes/pass_list.h"
#include "compiler/problem/problem.h"
#include "runtime/plan/bytes.h"

fcp_code capacity_check(planning *x) {
    fcp_problem facts;
    problem_facts(x, &facts);
    memory_peak most;
    const fcp_code code = lower_memory_need(x, &facts, &most);
    if (code) return code;
    const uint64_t cap = x->program->memory_cap;
    if (most.bytes <= cap) return FCP_OK;
    const fcp_class cls = most.pass == FCP_FORWARD ? FCP_STATE : FCP_DQ;
    const uint64_t partial =
        (uint64_t)x->slots->count[cls][most.rank] * facts.max_q_block * fcp_slot_bytes(&facts, cls, most.pass);
    char state[80] = "";
    if (x->placement->exec && partial)
        snprintf(state, sizeof state, " (%llu of them for %s)", (unsigned long long)partial,
                 most.pass == FCP_FORWARD ? "running states" : "partial gradients of queries");
    return planning_fail(x, FCP_E_MEMORY_CAP, x->program->at[AT_MEMORY],
                         "rank %u needs %llu bytes%s%s, cluster.memory allows %llu", most.rank,
                         (unsigned long long)most.bytes, state, x->program->linear_memory ? " with linear_memory" : "",
                         (unsigned long long)cap);
}
