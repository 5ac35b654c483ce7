/* capacity.h: does the plan fit the memory that the program allows? */
#ifndef FCPC_CAPACITY_H
#define FCPC_CAPACITY_H
#include "compiler/planning/planning.h"

/* FCP_E_MEMORY_CAP: the fullest rank needs more than cluster.memory; the error says which rank, how much, and
 * whether fewer rounds to a stage would do, or another `relay`, or, where work moves, a larger tolerance. Cost: linear
 * in ranks; on an error, scheduling once, and again for each smaller `coalesce` if the smallest would do, and planning
 * at most three times. */
fcp_code capacity_check(planning *x);
#endif
