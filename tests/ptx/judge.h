/* judge.h: programs run by PTX, and judged as those on fibers are: by the definition of attention in float64. */
#ifndef PTX_JUDGE_H
#define PTX_JUDGE_H
#include <stdio.h>
#include <string.h>

#include "../../runtime/exec.h"
#include "../../runtime/reference.h"
#include "../unit/gpu_plan.h"
#include "compile.h"
#include "device.h"

enum { JUDGE_TENSORS = (1 << FCP_TENSORS) - 1, JUDGE_TEXT = 900 };

/* Without NVRTC nothing can be executed, and the test is skipped. */
static inline bool judge_open(void) {
    fcp_error err;
    if (ptx_compiler(&err) == FCP_OK) return true;
    cr_skip_test("no PTX is executed: %s", err.message);
    return false;
}

/* Runs every pass of a plan and judges what comes out: "" if all is right, else what is not. */
static inline void judge_ptx(const fcp_plan *plan, const fcp_backend *backend, uint64_t seed, char *text) {
    fcp_shape shape;
    fcp_session *session = NULL;
    fcp_error err = {0};
    fcp_session_options options = {.compute_threads = 1, .timeout_s = 300};
    fcp_packed packed = {0};
    fcp_check_report report = FCP_CHECK_START;
    fcp_plan_shape(plan, &shape);
    fcp_code code = fcp_session_create_on(plan, backend, &options, &session, &err);
    if (!code) code = fcp_packed_alloc(&shape, JUDGE_TENSORS, &packed, &err);
    if (!code) fcp_packed_draw(&shape, JUDGE_TENSORS, seed, &packed);
    for (int pass = 0; !code && pass < FCP_PASSES; pass++)
        if (shape.has_pass[pass]) code = fcp_session_run_packed(session, plan, (fcp_pass)pass, &packed, NULL, &err);
    ptx_device_trouble(text, JUDGE_TEXT);
    if (!code && !*text) code = fcp_check_passes(plan, plan->problem->passes, &packed, 1, NULL, &report, &err);
    if (code) snprintf(text, JUDGE_TEXT, "%s", err.message);
    for (int t = 0; !*text && t < FCP_TENSORS; t++)
        if (report.tensor[t].checked && !report.tensor[t].ok)
            snprintf(text, JUDGE_TEXT, "%s: error %g, naive %g, allowed %g, at %lu", fcp_tensor_name((fcp_tensor)t),
                     report.tensor[t].max_abs_error, report.tensor[t].reference_error, report.tensor[t].tolerance,
                     (unsigned long)report.tensor[t].worst);
    fcp_packed_free(&packed);
    fcp_session_free(session);
}

/* A program as text must be right. */
static inline void judge_right(const char *program, const fcp_backend *backend, uint64_t seed) {
    char text[JUDGE_TEXT];
    fcp_plan *plan = gpu_plan("program.fcp", program, NULL, 0);
    judge_ptx(plan, backend, seed, text);
    cr_expect(!*text, "%s%s: %s", program, backend->name, text);
    fcp_plan_free(plan);
}

/* A flaw must be found. */
static inline void judge_wrong(const char *program, const fcp_backend *backend, const char *what, const ptx_change *change) {
    char text[JUDGE_TEXT];
    fcp_plan *plan = gpu_plan("program.fcp", program, NULL, 0);
    ptx_device_change(change);
    judge_ptx(plan, backend, 1, text);
    cr_expect(ptx_device_change(NULL) > 0, "%s: nothing was changed", what);
    cr_expect(*text, "%s: not found", what);
    if (*text) fprintf(stderr, "%s: %s\n", what, text);
    fcp_plan_free(plan);
}

/* The parts of a program. */
#define MODEL(heads, kv_heads, d, type) "model { heads = " #heads "; kv_heads = " #kv_heads "; head_dim = " #d "; dtype = " #type " }\n"
#define CLUSTER(gpus) "cluster { nodes = 1; gpus = " #gpus " }\n"
#define BATCH(...) "batch { lengths = [" #__VA_ARGS__ "] }\n"
#define PLAN(...) "plan { block = 128; passes = forward, backward; " __VA_ARGS__ " }\n"
#endif
