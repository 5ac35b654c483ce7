/* hops.h: how often a partial result is rounded on its way. Private to runtime/judge. */
#ifndef FCP_JUDGE_HOPS_H
#define FCP_JUDGE_HOPS_H
#include "runtime/plan/enums.h"

/* How far rounding on the wire may move a sum, as a fraction of the sum of the absolute values that it is made of;
 * for each class of partial results, 0 if nothing is rounded. False: out of memory.
 *
 * Derivation: bf16 has 8 significant bits, so rounding x moves it by at most 2^-8 |x|. Let a rank send a sum x, and
 * let W be the sum of the absolute values in it, so |x| <= W. After one hop x is off by at most W ((1 + 2^-8) - 1).
 * After h hops, with partial results added on the way, it is off by at most W ((1 + 2^-8)^h - 1), where W counts all
 * that was added. h is the most hops that any partial result of the class makes, from the rank that computed it to
 * the one that makes the result. m and l travel in fp32, so the factors by which states are merged have no such
 * error. */
bool check_hops(const fcp_plan *plan, double out_error[FCP_CLASSES]);
#endif
