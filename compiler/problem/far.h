/* far.h: constants that a score adds and beside which float32 has no room for log n. */
#ifndef FCPC_PROBLEM_FAR_H
#define FCPC_PROBLEM_FAR_H
#include "compiler/problem/problem.h"

/* At 2^20 the neighbours of a float are 0.125 apart, so a log-sum-exp of that size is off by up to 0.06, and what is
 * computed from it by up to 6 %. */
#define FAR_CONSTANT 1048576.0

typedef struct far_score {
    uint32_t constant; /* the node of the score that has the largest such constant; MC_NONE: it has none */
    double value;
    mc_node *nodes;    /* malloc'd: the mask without the pairs to which one is added, */
    mc_code near;      /* as code; without nodes where no constant is added, or nobody can say to which pairs */
} far_score;

/* Which pairs get no such constant? A condition on whole numbers is decided; where a condition on reals chooses, both
 * of its sides must add one. Of products, quotients and functions nothing is known. With sinks, constants below 0 do
 * not matter: LSE is then the sink's. FCP_E_NO_MEMORY. */
fcp_code far_find(const struct fcpc_program *program, far_score *out);
#endif
