/* test_approximate.c: tests kernels on fibers whose score has approximate functions, which these kernels compute as badly
 * as a GPU may (tests/support/coarse_tanh.h). The judge must allow that if the plan says that they are approximate, and
 * must find it if the plan does not.
 */
#include <stdio.h>

#include "tests/machines/fibers/fibers.h"
#include "tests/support/amount.h"
#include "tests/support/judge_plan.h"
#include "tests/support/plan_of.h"

/* A program whose score has `function` in place of each T. */
static fcp_plan *program(const char *model, const char *score, const char *rest, const char *function) {
    char text[900], called[300] = "";
    size_t size = 0;
    for (const char *at = score; *at; at++)
        size += (size_t)snprintf(called + size, sizeof called - size, *at == 'T' ? "%s" : "%.1s",
                                 *at == 'T' ? function : at);
    snprintf(text, sizeof text,
             "model { heads = 2; kv_heads = 1; %s }\ncluster { gpus = 2 }\nbatch { lengths = [330, 60] }\n"
             "score capped = %s\nplan { block = 128; passes = forward, backward; score = capped; %s }\n",
             model, called, rest);
    return plan_named("approximate.fcp", text);
}

static fcp_verdict verdict(const fcp_check_report *report, fcp_tensor t) {
    return (fcp_verdict)report->tensor[t].verdict;
}

static void judge(const char *model, const char *score, const char *rest, const fcp_backend *backend) {
    fcp_plan *coarse = program(model, score, rest, "tanh_approx"), *exact = program(model, score, rest, "tanh");
    fcp_packed packed = {0};
    fcp_error err = {0};
    fcp_check_options options = {.passes = 1 << FCP_FORWARD | 1 << FCP_BACKWARD, .threads = 2, .shared = true};
    judge_run(coarse, backend, 2, 11, &packed, score);
    const fcp_check_report all = judge_packed(coarse, options.passes, &packed, score);
    cr_assert(all.ok, "%s: nothing is proven", score);
    options.work = fcp_check_work(coarse, options.passes) / 4;
    for (int sampled = 0; sampled < 2; sampled++, options.work = 0) {
        fcp_check_report report = FCP_CHECK_START, other = FCP_CHECK_START;
        cr_assert(fcp_check_run(coarse, &options, &packed, &report, &err) == FCP_OK, "%s", err.message);
        cr_assert(report.ok, "%s", score);
        cr_assert(fcp_check_run(exact, &options, &packed, &other, &err) == FCP_OK, "%s", err.message);
        cr_assert_eq(verdict(&other, FCP_TENSOR_LSE), FCP_DIFFERS, "%s: the exact tanh allows it", score);
        if (coarse->problem->dtype == FCP_FP16) /* bf16 rounds P by more */
            cr_assert_eq(verdict(&other, FCP_TENSOR_DQ), FCP_DIFFERS, "%s: the exact tanh allows it", score);
    }
    fcp_packed_free(&packed);
    fcp_plan_free(coarse);
    fcp_plan_free(exact);
}

/* Logits of some tens, so that the function's error matters. */
Test(approximate, softcap) {
    judge("head_dim = 16; dtype = fp16; scale = 4.0", "30.0 * T(s / 30.0)", "mask = causal", &fibers_ordered_backend);
    judge("head_dim = 64; dtype = bf16; scale = 2.0", "30.0 * T(s / 30.0)", "mask = causal; sink = [4.0, -1.0]",
          &fibers_sm90_backend);
    if (amount(false, true))
        judge("head_dim = 128; dtype = fp16; scale = 1.0", "30.0 * T(s / 30.0)", "mask = full; lse_gradient = true",
              &fibers_sm90_backend);
}

/* The gradient of a table, too. */
Test(approximate, table) {
    judge("head_dim = 16; dtype = bf16; scale = 4.0; table gain = [0.5, 1.0, -1.5]", "30.0 * T(s * gain[k % 3] / 30.0)",
          "mask = causal", &fibers_ordered_backend);
}

/* Two of them, whose errors may cancel or not; one in the exponent. */
Test(approximate, other_scores) {
    judge("head_dim = 16; dtype = fp16; scale = 4.0", "40.0 * T(s / 50.0) - 20.0 * T(s / 90.0)",
          "mask = causal; lse_gradient = true", &fibers_unordered_backend);
    judge("head_dim = 16; dtype = bf16; scale = 4.0", "exp(-3.0 * T(s / 20.0))", "mask = window(w = 90)",
          &fibers_backend);
}
