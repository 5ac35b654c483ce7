/* check_slope.c: checks that the slope which a plan brings is the derivative of its score.
 *
 * The backward pass computes with that slope. A plan with another function for it would give the gradients of another
 * attention, and nothing else in the plan would show it. The same score always gives the same code for its derivative,
 * so the derivative is made again and compared node by node (E614).
 *
 * Requires: fcp_plan_check has passed.
 * Cost:     linear in the nodes of the score. Plans without a score cost nothing.
 *
 * The compiler makes the derivative with the same code (codegen/mask/derive.c). Whether that code is right is checked
 * by the judge, which derives scores in its own way (runtime/judge/slope.c).
 */
#include <stdlib.h>

#include "runtime/verify/verify_parts.h"

fcp_code fcp_verify_score(const verifier *v) {
    const fcp_plan *plan = v->plan;
    const mc_code score = {plan->score, (uint32_t)plan->score_count};
    mc_node *nodes = NULL;
    uint32_t count = 0, bad;
    if (!score.count) return FCP_OK;
    switch (mc_slope(score, !(v->p->passes & 1u << FCP_BACKWARD), &nodes, &count, &bad)) {
    case MC_DERIVED: break;
    case MC_NO_DERIVATIVE:
        return fcp_fail(v->err, FCP_E_VERIFY_SLOPE,
                        "score node %u is a floor of what depends on s: the score has no derivative", bad);
    case MC_TOO_LONG:
        return fcp_fail(v->err, FCP_E_VERIFY_SLOPE, "the score's derivative has more than %u operations", MC_MAX_NODES);
    default: return fcp_fail(v->err, FCP_E_NO_MEMORY, "out of memory for the derivative of a score");
    }
    uint32_t same = 0;
    while (same < count && same < plan->slope_count && !memcmp(&nodes[same], &plan->slope[same], sizeof *nodes)) same++;
    free(nodes);
    if (same == count && same == plan->slope_count) return FCP_OK;
    return fcp_fail(v->err, FCP_E_VERIFY_SLOPE,
                    "slope node %u is not that of the score's derivative, which has %u nodes", same, count);
}
