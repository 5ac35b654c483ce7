/* stretches.h: a rank's tokens as layers that recur see them. */
#ifndef FCP_PLAN_STRETCHES_H
#define FCP_PLAN_STRETCHES_H
#include "runtime/plan/plan.h"

/* The stretches of a rank, in the order of its tensors, as fcp_plan_stretches (fcp.h) gives them; `document` and
 * `start` are by the plan's own numbers, which in an extract are others than in the whole plan. NULL: counts them. The
 * plan must be indexed; one with other keys than queries has none. Cost: linear in the rank's spans and documents. */
uint32_t fcp_stretches_of(const fcp_plan *plan, uint32_t rank, fcp_stretch *out);
#endif
