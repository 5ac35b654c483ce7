/* warn.h: what a batch and its mask together have to say for themselves, beyond errors. */
#ifndef FCPC_PROBLEM_WARN_H
#define FCPC_PROBLEM_WARN_H
#include "compiler/problem/problem.h"

/* Warns, each with its place (spans shifted by `shift` in d) and consequence: a mask that allows nothing, or
 * everything, in the whole batch; queries that see no key; parameters larger than every sequence; a mask of the
 * program's own that is the same for (q, k) as for (k, q). FCP_E_NO_MEMORY, FCP_E_INTERRUPTED. */
fcp_code warn_batch(planning *x);
#endif
