/* far.h: finds pairs to whose logits a score adds so large a constant (-10^9, say, to hide a key) that float32 loses
 * the log-sum-exp: log n, added to such a number, changes nothing. */
#ifndef FCPC_PROBLEM_FAR_H
#define FCPC_PROBLEM_FAR_H
#include "compiler/problem/problem.h"

/* The smallest constant that counts. At 2^20, neighbouring float32 numbers are 0.125 apart. So a log-sum-exp of that
 * size is off by up to 0.06, and probabilities computed from it by up to 6 %. */
#define FAR_CONSTANT 1048576.0

typedef struct far_score {
    uint32_t constant; /* the node of the score with the largest such constant; MC_NONE: there is none */
    double value;
    mc_node *nodes; /* of `near`, malloc'd */
    mc_code near;   /* the mask without the pairs that get such a constant; no nodes: no pair gets one, or it is not
                        * known which */
} far_score;

/* Finds the pairs that get no such constant; far.c says how. With sinks, constants below 0 do not matter, because then
 * the log-sum-exp is that of the sink. FCP_E_NO_MEMORY. */
fcp_code far_find(const struct fcpc_program *program, far_score *out);
#endif
