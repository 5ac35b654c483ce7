/* plan_check.h: the checks that a plan passes before any other code reads its tables. */
#ifndef FCP_PLAN_PLAN_CHECK_H
#define FCP_PLAN_PLAN_CHECK_H
#include "runtime/fcp.h"

/* Every index, count and enum is in range. Says nothing of what the plan means. */
fcp_code fcp_plan_check(const fcp_plan *plan, fcp_error *err);
/* The same, with `stop` as for fcp_plan_verify. */
fcp_code fcp_plan_check_until(const fcp_plan *plan, const volatile int *stop, fcp_error *err);
/* The same as fcp_plan_homes. */
fcp_code fcp_plan_homes_until(const fcp_plan *plan, const volatile int *stop, uint8_t out_digest[FCP_DIGEST_BYTES],
                              fcp_error *err);
/* Are the numbers of a plan's field of documents there, one for each token? */
bool fcp_documents_are_sound(const fcp_plan *plan);
/* Are there as many ranks as the streams are for, in groups of equal size, and is the layout one that we know? */
bool fcp_layout_is_sound(const fcp_plan *plan);
#endif
