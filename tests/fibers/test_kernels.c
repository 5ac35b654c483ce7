/* The kernels' skeletons on fibers: whole plans, forward and backward, against the definition of attention. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../../runtime/exec.h"
#include "../../runtime/numeric.h"
#include "../../runtime/reference.h"
#include "../unit/hand_plan.h"
#include "../unit/plain.h"
#include "fibers.h"

enum { ALL = (1 << FCP_TENSORS) - 1 };
static const char *const masks[] = {"full", "causal", "none", "window", "odd", "head", "tail", "gap"};
static const uint64_t mixed[] = {300, 60, 129, 1, 200, 64};

/* Runs every pass of a plan on fibers and judges what comes out; twice, for the same bits. */
static void judge_plan(const fcp_plan *plan, uint64_t seed, const char *what) {
    fcp_shape shape;
    fcp_session *session;
    fcp_error err = {0};
    fcp_session_options options = {.compute_threads = 2, .timeout_s = 100};
    fcp_packed packed = {0}, again = {0};
    fcp_plan_shape(plan, &shape);
    cr_assert(fcp_session_create_on(plan, &fibers_backend, &options, &session, &err) == FCP_OK, "%s: %s", what, err.message);
    cr_assert(fcp_packed_alloc(&shape, ALL, &packed, &err) == FCP_OK, "%s", err.message);
    fcp_packed_draw(&shape, ALL, seed, &packed);
    unsigned passes = 0;
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        if (!shape.has_pass[pass]) continue;
        passes |= 1u << pass;
        cr_assert(fcp_session_run_packed(session, plan, (fcp_pass)pass, &packed, NULL, &err) == FCP_OK, "%s: %s", what,
                  err.message);
        cr_assert(fcp_packed_alloc(&shape, ALL, &again, &err) == FCP_OK, "%s", err.message);
        for (int t = 0; t < FCP_TENSORS; t++) {
            uint64_t tokens = shape.tokens;
            size_t bytes = tokens * fcp_tensor_token_bytes(&shape, (fcp_tensor)t);
            memcpy(again.t[t], packed.t[t], bytes);
        }
        cr_assert(fcp_session_run_packed(session, plan, (fcp_pass)pass, &again, NULL, &err) == FCP_OK, "%s: %s", what,
                  err.message);
        for (int t = 0; t < FCP_TENSORS; t++)
            if (fcp_pass_outputs((fcp_pass)pass) >> t & 1)
                cr_assert(!memcmp(again.t[t], packed.t[t], shape.tokens * fcp_tensor_token_bytes(&shape, (fcp_tensor)t)),
                          "%s: two runs differ in %s", what, fcp_tensor_name((fcp_tensor)t));
    }
    fcp_check_report report = FCP_CHECK_START;
    cr_assert(fcp_check_passes(plan, passes, &packed, 2, NULL, &report, &err) == FCP_OK, "%s", err.message);
    for (int t = 0; t < FCP_TENSORS; t++)
        cr_assert(!report.tensor[t].checked || report.tensor[t].ok, "%s: %s: error %g, naive %g, allowed %g, at %lu", what,
                  fcp_tensor_name((fcp_tensor)t), report.tensor[t].max_abs_error, report.tensor[t].reference_error,
                  report.tensor[t].tolerance, (unsigned long)report.tensor[t].worst);
    fcp_packed_free(&packed);
    fcp_packed_free(&again);
    fcp_session_free(session);
}

static void judge_hand(hand *h, const char *mask) {
    char what[120];
    cr_assert_not_null(h);
    snprintf(what, sizeof what, "mask %s, %u ranks, %u / %u heads of %u, %s", mask, h->problem.ranks, h->problem.heads,
             h->problem.kv_heads, h->problem.head_dim, fcp_dtype_name((fcp_dtype)h->problem.dtype));
    judge_plan(&h->plan, 5, what);
    hand_free(h);
}

Test(kernels, masks) {
    for (size_t m = 0; m < sizeof masks / sizeof *masks; m++)
        judge_hand(hand_make(1 + m % 3, 2, 1 + m % 2, 16, m % 2 ? FCP_BF16 : FCP_FP16, 256, masks[m], mixed, 6), masks[m]);
}

Test(kernels, head_dims) {
    static const uint64_t lengths[] = {150, 70, 20};
    static const uint32_t dims[] = {16, 32, 64, 128, 256};
    for (size_t i = 0; i < 5; i++)
        for (int dtype = FCP_FP16; dtype <= FCP_BF16; dtype++)
            judge_hand(hand_make(2, 2, 1, dims[i], (fcp_dtype)dtype, 128, "causal", lengths, 3), "causal");
}
