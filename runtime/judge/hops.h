/* hops.h: how often a partial result is rounded on its way. Private to runtime/judge. */
#ifndef FCP_JUDGE_HOPS_H
#define FCP_JUDGE_HOPS_H
#include "runtime/plan/enums.h"

/* How far rounding on the wire may take a sum from what it would be, as a part of the sum of the absolute values that
 * it is made of; for each class of partial results, 0 if nothing is rounded. False: out of memory.
 *
 * Derivation: bf16 has 8 significant bits, so rounding x moves it by at most 2^-8 |x|. A rank sends a sum x, and W is
 * the sum of the absolute values in it: |x| <= W. After one hop x is off by at most W ((1 + 2^-8) - 1). After h hops,
 * with partials added on the way, it is off by at most W ((1 + 2^-8)^h - 1), where W counts all that was added. h is
 * the most hops that any partial of the class makes, from where it was computed to where the result is made. m and l
 * travel in fp32, so the factors by which states are merged are as exact as where nothing is rounded. */
bool check_hops(const fcp_plan *plan, double out_error[FCP_CLASSES]);
#endif
