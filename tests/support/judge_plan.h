/* judge_plan.h: runs a plan on a backend of the host's executor and compares the results with the definition of
 * attention in float64. */
#ifndef JUDGE_PLAN_H
#define JUDGE_PLAN_H
#include <stdio.h>
#include <string.h>

#include "tests/support/judge_packed.h"
#include "tests/support/session_on.h"

enum { ALL = (1 << FCP_TENSORS) - 1 };

/* Runs a plan's passes with so many workers; inputs are drawn from the seed. */
static inline void judge_run(const fcp_plan *plan, const fcp_backend *backend, uint32_t workers, uint64_t seed,
                             fcp_packed *packed, const char *what) {
    fcp_shape shape;
    fcp_session *session;
    fcp_error err = {0};
    fcp_session_options options = {.size = sizeof options, .compute_threads = workers, .timeout_s = 100};
    fcp_plan_shape(plan, &shape);
    cr_assert(session_on(plan, backend, &options, &session, &err) == FCP_OK, "%s: %s", what, err.message);
    cr_assert(fcp_packed_alloc(&shape, ALL, packed, &err) == FCP_OK, "%s", err.message);
    fcp_packed_draw(&shape, ALL, seed, packed);
    if (!shape.has_pass[FCP_FORWARD]) memset(packed->t[FCP_TENSOR_LSE], 0, fcp_packed_bytes(&shape, FCP_TENSOR_LSE));
    for (int pass = 0; pass < FCP_PASSES; pass++)
        if (shape.has_pass[pass])
            cr_assert(fcp_session_run_packed(session, plan, (fcp_pass)pass, packed, NULL, &err) == FCP_OK, "%s: %s",
                      what, err.message);
    fcp_session_free(session);
}

/* Runs every pass of a plan and judges the results. With `twice` it runs them again, with one worker where the first
 * run had `workers`, and the bits must be the same. */
static inline void judge_plan_by(const fcp_plan *plan, const fcp_backend *backend, uint32_t workers, uint64_t seed,
                                 bool twice, const char *what) {
    fcp_shape shape;
    fcp_packed packed = {0}, again = {0};
    unsigned passes = 0;
    fcp_plan_shape(plan, &shape);
    judge_run(plan, backend, workers, seed, &packed, what);
    if (twice) judge_run(plan, backend, 1, seed, &again, what);
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        if (!shape.has_pass[pass]) continue;
        passes |= 1u << pass;
        for (int t = 0; twice && t < FCP_TENSORS; t++)
            if (fcp_pass_outputs((fcp_pass)pass) >> t & 1)
                cr_assert(!memcmp(again.t[t], packed.t[t], fcp_packed_bytes(&shape, (fcp_tensor)t)),
                          "%s: two runs differ in %s", what, fcp_tensor_name((fcp_tensor)t));
    }
    judge_packed(plan, passes, &packed, what);
    fcp_packed_free(&packed);
    fcp_packed_free(&again);
}
static inline void judge_plan(const fcp_plan *plan, const fcp_backend *backend, uint64_t seed, bool twice,
                              const char *what) {
    judge_plan_by(plan, backend, 2, seed, twice, what);
}
#endif
