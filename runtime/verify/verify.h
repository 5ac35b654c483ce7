/* verify.h: the verifier: proves from a plan's tables alone that the plan is right. */
#ifndef FCP_VERIFY_VERIFY_H
#define FCP_VERIFY_VERIFY_H
#include "runtime/plan/enums.h"

typedef struct fcp_verify_report {
    uint64_t tiles, transfers;    /* transfers between ranks, in all passes */
    uint64_t rounds[FCP_PASSES];  /* INDEPENDENT ones */
    uint64_t delta[FCP_PASSES][FCP_FABRICS]; /* the most units that a rank sends, or receives, in those: their bound */
    uint64_t instructions;
    bool halves;                  /* work moves in two halves */
} fcp_verify_report;
/* Proves what runtime/verify/verify.c lists. The tables must have passed fcp_plan_check. Linear in the plan.
 * *out_report, if not NULL, says what was found. `stop` may be NULL; otherwise it is read again and again, and as soon
 * as it is not 0 the verifier returns FCP_E_INTERRUPTED. */
fcp_code fcp_plan_verify(const fcp_plan *plan, const volatile int *stop, fcp_verify_report *out_report,
                         fcp_error *err);
#endif
