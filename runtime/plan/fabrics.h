/* fabrics.h: works out what transfers over one fabric must wait for in the other, if each fabric has a queue of its
 * own. */
#ifndef FCP_PLAN_FABRICS_H
#define FCP_PLAN_FABRICS_H
#include "runtime/plan/records.h"

/* Returns whether the plan uses both fabrics: it has several ranks in a node, and several nodes. */
static inline bool fcp_two_fabrics(const fcp_problem *p) { return p->gpus > 1 && p->ranks > p->gpus; }

/* Says what each instruction of a rank's communication queue must wait for. Requires a verified plan. False: out of
 * memory.
 *
 * out[i][f] is for instruction i of the queue and fabric f: before it begins its transfers over f, the first out[i][f]
 * instructions must have ended theirs over the other fabric. It is 0 if nothing has to be waited for, or an earlier
 * instruction has waited for as much. `out` has an entry for each instruction of the queue. */
bool fcp_fabric_waits(const fcp_plan *plan, fcp_pass pass, uint32_t rank, uint32_t (*out)[FCP_FABRICS]);
#endif
