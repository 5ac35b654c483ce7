/* judge.h: runs programs whose kernels' PTX is executed, and compares the results with the definition of attention in
 * float64. */
#ifndef PTX_JUDGE_H
#define PTX_JUDGE_H
#include <stdio.h>
#include <string.h>

#include "runtime/judge/packed.h"
#include "runtime/judge/reference.h"
#include "tests/support/plan_of.h"
#include "tests/support/plain.h"
#include "tests/support/session_on.h"
#include "tests/support/skips.h"
#include "tests/machines/ptx/compile.h"
#include "tests/machines/ptx/device.h"

enum { ALL = (1 << FCP_TENSORS) - 1, TEXT = 900 };

static inline bool compiler(void) {
    fcp_error err;
    if (ptx_compiler(&err) == FCP_OK) return true;
    SKIPPED("executing PTX: %s", err.message);
    cr_skip_test();
    return false;
}

/* Runs every pass of a plan and judges the results as those of plan `as`. `text` is "" if all is right, and otherwise
 * says what is not. */
static inline void judge_as(const fcp_plan *plan, const fcp_plan *as, const fcp_backend *backend, uint64_t seed,
                            char *text) {
    fcp_shape shape;
    fcp_session *session = NULL;
    fcp_error err = {0};
    fcp_session_options options = {.size = sizeof options, .compute_threads = 1, .timeout_s = 300};
    fcp_packed packed = {0};
    fcp_check_report report = FCP_CHECK_START;
    fcp_plan_shape(plan, &shape);
    fcp_code code = session_on(plan, backend, &options, &session, &err);
    if (!code) code = fcp_packed_alloc(&shape, ALL, &packed, &err);
    if (!code) fcp_packed_draw(&shape, ALL, seed, &packed);
    for (int pass = 0; !code && pass < FCP_PASSES; pass++)
        if (shape.has_pass[pass]) code = fcp_session_run_packed(session, plan, (fcp_pass)pass, &packed, NULL, &err);
    ptx_device_trouble(text, TEXT);
    if (!code && !*text)
        code = fcp_check_run(as, &(fcp_check_options){.passes = plan->problem->passes, .threads = 1}, &packed, &report,
                             &err);
    if (code) snprintf(text, TEXT, "%s", err.message);
    for (int t = 0; !*text && t < FCP_TENSORS; t++)
        if (report.tensor[t].checked && !report.tensor[t].ok)
            snprintf(text, TEXT, "%s: error %g, naive %g, allowed %g, at %lu", fcp_tensor_name((fcp_tensor)t),
                     report.tensor[t].max_abs_error, report.tensor[t].reference_error, report.tensor[t].tolerance,
                     (unsigned long)report.tensor[t].worst);
    fcp_packed_free(&packed);
    fcp_session_free(session);
}

static inline void judge(const fcp_plan *plan, const fcp_backend *backend, uint64_t seed, char *text) {
    judge_as(plan, plan, backend, seed, text);
}

static inline void right(const char *program, const fcp_backend *backend, uint64_t seed) {
    char text[TEXT];
    fcp_plan *plan = plan_named("program", program);
    judge(plan, backend, seed, text);
    cr_assert_str_empty(text, "%s, %s: %s", program, backend->name, text);
    fcp_plan_free(plan);
}

/* Parts of programs. Lengths are small, so that a program is some tens of launches of a few blocks. */
#define MODEL(heads, kv_heads, d, type)                                                                                \
    "model { heads = " #heads "; kv_heads = " #kv_heads "; head_dim = " #d "; dtype = " #type " }\n"
#define CLUSTER(gpus) "cluster { nodes = 1; gpus = " #gpus " }\n"
#define BATCH(...) "batch { lengths = [" #__VA_ARGS__ "] }\n"
#define PLAN(...) "plan { block = 128; passes = forward, backward; " __VA_ARGS__ " }\n"
#define SHARED_KEYS                                                                                                    \
    "plan { block = 1K; strategy = fcp(coalesce = 8); passes = forward, backward; "                                    \
    "mask = lambda(sink = 20, window = 90) }\n"
#endif
