/* fabrics.h: works out what transfers over one fabric must wait for in the other, if each fabric has a queue of its
 * own. */
#ifndef FCP_PLAN_FABRICS_H
#define FCP_PLAN_FABRICS_H
#include "runtime/plan/records.h"

/* Has the plan ranks of one node, and more than one node? */
static inline bool fcp_two_fabrics(const fcp_problem *p) { return p->gpus > 1 && p->ranks > p->gpus; }

/* Before instruction i of the rank's communication queue begins its transfers over fabric f, the first out[i][f]
 * instructions must have ended theirs over the other fabric. 0: it need not wait, or an earlier instruction has
 * waited for as much. `out` has an entry for each instruction of the queue. False: out of memory. Requires a
 * verified plan. */
bool fcp_fabric_waits(const fcp_plan *plan, fcp_pass pass, uint32_t rank, uint32_t (*out)[FCP_FABRICS]);
#endif
