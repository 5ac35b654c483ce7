/* slope.h: what the judge makes of a score: its derivative, and what it is on GPUs. Private to runtime/judge. */
#ifndef FCP_JUDGE_SLOPE_H
#define FCP_JUDGE_SLOPE_H
#include "codegen/mask/code.h"

/* The derivative of a score by s, as code that mc_eval_score and mc_eval_score_row evaluate; of no nodes if the score
 * has none. out->nodes is malloc'd. False: out of memory. */
bool check_slope(mc_code score, mc_code *out);

/* The score, where tanh, exp, log and sqrt give 1 + 2^-16 of what they should, as they may on GPUs; of no nodes if the
 * score has none of these. out->nodes is malloc'd. False: out of memory. */
bool check_rough(mc_code score, mc_code *out);
#endif
