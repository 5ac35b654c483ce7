/* plan_check.h: checks that make a plan's tables safe to read: every index and count in them is in range. */
#ifndef FCP_PLAN_PLAN_CHECK_H
#define FCP_PLAN_PLAN_CHECK_H
#include "runtime/fcp.h"

/* Every index, count and enum is in range; check.c says what else. Says nothing of what the plan means. `stop` may be
 * NULL; otherwise it is read again and again, and once it is not 0 the check ends with FCP_E_INTERRUPTED. */
fcp_code fcp_plan_check(const fcp_plan *plan, const volatile int *stop, fcp_error *err);
/* fcp_plan_homes with a `stop`, as for fcp_plan_check. */
fcp_code fcp_plan_homes_until(const fcp_plan *plan, const volatile int *stop, uint8_t out_digest[FCP_DIGEST_BYTES],
                              fcp_error *err);
/* Returns whether the numbers of a plan's field of documents are there, one for each token. */
bool fcp_documents_are_sound(const fcp_plan *plan);
/* Returns whether there are as many ranks as the streams are for, in groups of equal size, and the layout is a known
 * one. */
bool fcp_layout_is_sound(const fcp_plan *plan);
#endif
