/* test_cuda.c: sessions on CUDA devices, through a driver that stands in: what they compute, that nothing is unordered, and
 * what becomes of errors. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../../runtime/reference.h"
#include "../standin/standin.h"
#include "gpu_plan.h"
#include "../../runtime/cuda_driver.h"

enum { ALL = (1 << FCP_TENSORS) - 1 };

static standin *stand(void) {
    const char *build = getenv("B");
    char path[512];
    if (!build || !*build) build = "build";
    snprintf(path, sizeof path, "%s/standin/libnvrtc.so", build);
    setenv("FCP_NVRTC", path, 1);
    snprintf(path, sizeof path, "%s/kernels", build);
    setenv("FCP_CACHE", path, 1);
    snprintf(path, sizeof path, "%s/standin/libcuda.so", build);
    setenv("FCP_CUDA_DRIVER", path, 1);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(handle, "%s", dlerror());
    standin *(*get)(void);
    void *symbol = dlsym(handle, "standin_control");
    memcpy(&get, &symbol, sizeof get);
    return get();
}

static fcp_plan *make_plan(const char *mask, unsigned ranks, unsigned nodes, const char *more) {
    char text[600];
    snprintf(text, sizeof text,
             "model { heads = 2; kv_heads = %u; head_dim = 16; dtype = %s }\ncluster { nodes = %u; gpus = %u }\n"
             "batch { lengths = [%u, 130, 60] }\nplan { mask = %s; block = 128; passes = forward, backward%s }\n",
             ranks % 2 ? 1 : 2, ranks % 3 ? "bf16" : "fp16", nodes, ranks / nodes, 300 + 130 * ranks, mask, more);
    return gpu_plan(mask, text, NULL, 0);
}

static void judge(const fcp_plan *plan, fcp_packed *packed, const char *what) {
    fcp_check_report report = FCP_CHECK_START;
    fcp_error err = {0};
    cr_assert(fcp_check_passes(plan, plan->problem->passes, packed, 2, NULL, &report, &err) == FCP_OK, "%s", err.message);
    for (int t = 0; t < FCP_TENSORS; t++)
        cr_assert(!report.tensor[t].checked || report.tensor[t].ok, "%s: %s: error %g, allowed %g", what,
                  fcp_tensor_name((fcp_tensor)t), report.tensor[t].max_abs_error, report.tensor[t].tolerance);
}

/* Every pass `times` times, each judged. */
static void run_plan(standin *x, const fcp_plan *plan, uint32_t graph_from, int times, const char *what) {
    fcp_session_options options = {.backend = "cuda", .timeout_s = 100, .graph_from = graph_from};
    fcp_session *session;
    fcp_shape shape;
    fcp_error err = {0};
    long live = x->live;
    x->plan = plan;
    fcp_plan_shape(plan, &shape);
    cr_assert(fcp_session_create(plan, &options, &session, &err) == FCP_OK, "%s: %s", what, err.message);
    cr_assert_str_eq(fcp_session_backend(session), "cuda");
    cr_assert_str_eq(fcp_session_transport(session), "local");
    for (int i = 0; i < times; i++) {
        fcp_packed packed = {0};
        cr_assert(fcp_packed_alloc(&shape, ALL, &packed, &err) == FCP_OK, "%s", err.message);
        fcp_packed_draw(&shape, ALL, (uint64_t)i + 1, &packed);
        for (int pass = 0; pass < FCP_PASSES; pass++)
            if (shape.has_pass[pass])
                cr_assert(fcp_session_run_packed(session, plan, (fcp_pass)pass, &packed, NULL, &err) == FCP_OK,
                          "%s, run %d: %s; %s", what, i, err.message, x->trouble);
        judge(plan, &packed, what);
        fcp_packed_free(&packed);
    }
    fcp_session_free(session);
    cr_assert_str_empty(x->trouble, "%s: %s", what, x->trouble);
    cr_assert_eq(x->live, live, "%s: %ld objects are left", what, x->live - live);
}

Test(cuda, ranks_and_devices) {
    static const char *const masks[] = {"causal", "full", "window(w = 200)", "lambda(sink = 8, window = 100)"};
    standin *x = stand();
    for (unsigned ranks = 1; ranks <= 8; ranks++) {
        char what[80];
        x->devices = 1 + (int)ranks % 3;
        x->seed = ranks;
        fcp_plan *plan = make_plan(masks[ranks % 4], ranks, ranks % 2 ? 1 : 2, "");
        snprintf(what, sizeof what, "%s on %u ranks, %d devices", masks[ranks % 4], ranks, x->devices);
        run_plan(x, plan, UINT32_MAX, 1, what);
        fcp_plan_free(plan);
    }
    cr_assert(x->kernels > 0 && x->copies > 0 && x->peer_copies > 0 && x->graph_launches == 0);
}
