/* judge_plan.h: runs a plan on the machine of fibers and compares the results with the definition of attention in
 * float64. */
#ifndef JUDGE_PLAN_H
#define JUDGE_PLAN_H
#include <stdio.h>
#include <string.h>

#include "runtime/host/executor.h"
#include "runtime/judge/packed.h"
#include "runtime/judge/reference.h"
#include "tests/support/plain.h"
#include "tests/machines/fibers/fibers.h"

enum { ALL = (1 << FCP_TENSORS) - 1 };

/* Runs every pass of a plan on fibers and judges the results. With `twice` it runs them again, and the bits must be
 * the same. */
static inline void judge_plan(const fcp_plan *plan, const fcp_backend *backend, uint64_t seed, bool twice,
                              const char *what) {
    fcp_shape shape;
    fcp_session *session;
    fcp_error err = {0};
    fcp_session_options options = {.size = sizeof options, .compute_threads = 2, .timeout_s = 100};
    fcp_packed packed = {0}, again = {0};
    fcp_plan_shape(plan, &shape);
    cr_assert(fcp_session_create_on(plan, backend, &options, &session, &err) == FCP_OK, "%s: %s", what, err.message);
    cr_assert(fcp_packed_alloc(&shape, ALL, &packed, &err) == FCP_OK, "%s", err.message);
    fcp_packed_draw(&shape, ALL, seed, &packed);
    unsigned passes = 0;
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        if (!shape.has_pass[pass]) continue;
        passes |= 1u << pass;
        cr_assert(fcp_session_run_packed(session, plan, (fcp_pass)pass, &packed, NULL, &err) == FCP_OK, "%s: %s", what,
                  err.message);
        if (!twice) continue;
        cr_assert(fcp_packed_alloc(&shape, ALL, &again, &err) == FCP_OK, "%s", err.message);
        for (int t = 0; t < FCP_TENSORS; t++) {
            uint64_t dims[3];
            fcp_tensor_shape(&shape, (fcp_tensor)t, dims);
            size_t bytes = dims[0] * fcp_tensor_token_bytes(&shape, (fcp_tensor)t);
            memcpy(again.t[t], packed.t[t], bytes);
        }
        cr_assert(fcp_session_run_packed(session, plan, (fcp_pass)pass, &again, NULL, &err) == FCP_OK, "%s: %s", what,
                  err.message);
        for (int t = 0; t < FCP_TENSORS; t++) {
            uint64_t dims[3];
            fcp_tensor_shape(&shape, (fcp_tensor)t, dims);
            if (fcp_pass_outputs((fcp_pass)pass) >> t & 1)
                cr_assert(!memcmp(again.t[t], packed.t[t], dims[0] * fcp_tensor_token_bytes(&shape, (fcp_tensor)t)),
                          "%s: two runs differ in %s", what, fcp_tensor_name((fcp_tensor)t));
        }
    }
    fcp_check_report report = FCP_CHECK_START;
    cr_assert(fcp_check_run(plan,
                      &(fcp_check_options){.passes = passes, .threads = 2}, &packed, &report, &err) == FCP_OK, "%s",
                      err.message);
    for (int t = 0; t < FCP_TENSORS; t++)
        cr_assert(!report.tensor[t].checked || report.tensor[t].ok, "%s: %s: error %g, naive %g, allowed %g, at %lu", what,
                  fcp_tensor_name((fcp_tensor)t), report.tensor[t].max_abs_error, report.tensor[t].reference_error,
                  report.tensor[t].tolerance, (unsigned long)report.tensor[t].worst);
    fcp_packed_free(&packed);
    fcp_packed_free(&again);
    fcp_session_free(session);
}
#endif
