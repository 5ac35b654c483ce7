/* cuda_stand.h: opens the stand-in driver and the stand-in compiler, and makes small plans, for tests of CUDA
 * sessions. */
#ifndef CUDA_STAND_H
#define CUDA_STAND_H
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/plan/plan.h"
#include "tests/machines/standin/standin.h"
#include "tests/support/judge_packed.h"
#include "tests/support/plan_of.h"

static inline standin *stand_of(const char *driver) {
    const char *build = getenv("B");
    char path[512];
    if (!build || !*build) build = "build";
    snprintf(path, sizeof path, "%s/standin/libnvrtc.so", build);
    setenv("FCP_NVRTC", path, 1);
    snprintf(path, sizeof path, "%s/kernels", build);
    setenv("FCP_CACHE", path, 1);
    snprintf(path, sizeof path, "%s/standin/%s", build, driver);
    setenv("FCP_CUDA_DRIVER", path, 1);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(handle, "%s", dlerror());
    standin *(*get)(void);
    void *symbol = dlsym(handle, "standin_control");
    memcpy(&get, &symbol, sizeof get);
    return get();
}
static inline standin *stand(void) { return stand_of("libcuda.so"); }

static inline fcp_plan *make_plan_of(unsigned longest, const char *mask, unsigned ranks, unsigned nodes,
                                     const char *more) {
    char text[600];
    snprintf(text, sizeof text,
             "model { heads = 2; kv_heads = %u; head_dim = 16; dtype = %s }\ncluster { nodes = %u; gpus = %u }\n"
             "batch { lengths = [%u, 130, 60] }\nplan { mask = %s; block = 128; passes = forward, backward%s }\n",
             ranks % 2 ? 1 : 2, ranks % 3 ? "bf16" : "fp16", nodes, ranks / nodes, longest, mask, more);
    return plan_named(mask, text);
}
static inline fcp_plan *make_plan(const char *mask, unsigned ranks, unsigned nodes, const char *more) {
    return make_plan_of(80 + 50 * ranks, mask, ranks, nodes, more);
}
/* With more blocks for each rank, and so more transfers. */
static inline fcp_plan *make_longer_plan(const char *mask, unsigned ranks, unsigned nodes, const char *more) {
    return make_plan_of(120 + 60 * ranks, mask, ranks, nodes, more);
}

/* Runs the plan's passes `times` times in a session with these options. Inputs differ each time, so that anything which
 * a run takes from the one before is wrong. All results are judged, and nothing may be left on a device. Returns the
 * judge's report on the last run. */
static inline fcp_check_report stand_run(standin *x, const fcp_plan *plan, const fcp_session_options *options,
                                         int times, const char *what) {
    enum { ALL = (1 << FCP_TENSORS) - 1 };
    fcp_check_report report = FCP_CHECK_START;
    fcp_session *session;
    fcp_shape shape;
    fcp_packed packed = {0};
    fcp_error err = {0};
    const long live = x->live;
    x->plan = plan;
    fcp_plan_shape(plan, &shape);
    cr_assert(fcp_session_create(plan, options, &session, &err) == FCP_OK, "%s: %s", what, err.message);
    cr_assert_str_empty(fcp_session_warning(session), "%s: %s", what, fcp_session_warning(session));
    cr_assert(fcp_packed_alloc(&shape, ALL, &packed, &err) == FCP_OK, "%s", err.message);
    for (int i = 0; i < times; i++) {
        fcp_packed_draw(&shape, ALL, 5 + (uint64_t)i, &packed);
        for (int pass = 0; pass < FCP_PASSES; pass++)
            if (shape.has_pass[pass])
                cr_assert(fcp_session_run_packed(session, plan, (fcp_pass)pass, &packed, NULL, &err) == FCP_OK,
                          "%s: %s; %s", what, err.message, x->trouble);
        report = judge_packed(plan, plan->problem->passes, &packed, what);
    }
    fcp_packed_free(&packed);
    fcp_session_free(session);
    cr_assert_str_empty(x->trouble, "%s: %s", what, x->trouble);
    cr_assert_eq(x->live, live, "%s: %ld objects are left", what, x->live - live);
    return report;
}

/* The same with usual options. x->launched then says by which kernels. */
static inline fcp_check_report stand_judge(standin *x, const fcp_plan *plan, const char *what, int times) {
    const fcp_session_options options = {.size = sizeof options,
                                         .backend = "cuda",
                                         .timeout_s = 100,
                                         .partition = FCP_PARTITION_GRID};
    x->launched[0] = 0;
    return stand_run(x, plan, &options, times, what);
}
#endif
