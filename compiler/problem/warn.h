/* warn.h: warnings about what a mask does to a batch. */
#ifndef FCPC_PROBLEM_WARN_H
#define FCPC_PROBLEM_WARN_H
#include "compiler/problem/problem.h"

/* Warns, with the place and the consequence, of a mask that allows nothing or everything in the whole batch; of queries
 * that see no key; of parameters larger than every sequence; and of a mask of the program's own that is the same for
 * (q, k) as for (k, q). FCP_E_NO_MEMORY, FCP_E_INTERRUPTED. */
fcp_code warn_batch(planning *x);
#endif
