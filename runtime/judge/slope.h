/* slope.h: makes two codes of a score: its derivative, and the score as GPUs compute it. Private to runtime/judge. */
#ifndef FCP_JUDGE_SLOPE_H
#define FCP_JUDGE_SLOPE_H
#include "codegen/mask/code.h"

/* Makes the derivative of a score by s, as code that mc_eval_score and mc_eval_score_row evaluate; without nodes if
 * the score has none. out->nodes is malloc'd. False: out of memory. */
bool check_slope(mc_code score, mc_code *out);

/* Makes the score as GPUs may compute it: tanh, exp, log and sqrt give 1 + 2^-16 of what they should; without nodes
 * if the score has none of these. out->nodes is malloc'd. False: out of memory. */
bool check_rough(mc_code score, mc_code *out);
#endif
