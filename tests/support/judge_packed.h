/* judge_packed.h: compares what a session has computed with the definition of attention in float64. */
#ifndef JUDGE_PACKED_H
#define JUDGE_PACKED_H
#include "runtime/judge/packed.h"
#include "runtime/judge/reference.h"
#include "tests/support/plain.h"

/* Fails the test if an output of these passes (bits) is wrong, and names the worst row. Returns what the judge says. */
static inline fcp_check_report judge_packed(const fcp_plan *plan, unsigned passes, const fcp_packed *packed,
                                            const char *what) {
    const fcp_check_options options = {.passes = passes, .threads = 2};
    fcp_check_report report = FCP_CHECK_START;
    fcp_error err = {0};
    cr_assert(fcp_check_run(plan, &options, packed, &report, &err) == FCP_OK, "%s: %s", what, err.message);
    for (int t = 0; t < FCP_TENSORS; t++)
        cr_assert(!report.tensor[t].checked || report.tensor[t].ok, "%s: %s: error %g, naive %g, allowed %g, at %lu",
                  what, fcp_tensor_name((fcp_tensor)t), report.tensor[t].max_abs_error,
                  report.tensor[t].reference_error, report.tensor[t].tolerance, (unsigned long)report.tensor[t].worst);
    return report;
}
#endif
