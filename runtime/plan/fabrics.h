/* fabrics.h: transfers over net beside those over local: what of one fabric must wait for what of the other. */
#ifndef FCP_PLAN_FABRICS_H
#define FCP_PLAN_FABRICS_H
#include "runtime/plan/records.h"

/* Has the plan ranks of one node, and more than one node? */
static inline bool fcp_two_fabrics(const fcp_problem *p) { return p->gpus > 1 && p->ranks > p->gpus; }

/* What transfers over a fabric must wait for in the other one. Before instruction i of the rank's communication queue
 * begins its transfers over fabric f, the first out[i][f] instructions must have ended theirs over the other fabric. 0:
 * none, or none for which an earlier instruction has not waited. `out` has an entry for each instruction of the queue.
 * False: out of memory. Requires a verified plan. */
bool fcp_fabric_waits(const fcp_plan *plan, fcp_pass pass, uint32_t rank, uint32_t (*out)[FCP_FABRICS]);
#endif
