/* test_cuda_kernels.c: tests which kernels a session chooses for a device, given its shared memory and the plan,
 * and how it uses the resources that the driver reports for them. */
#include "codegen/kernels/abi.h"
#include "tests/support/cuda_stand.h"
#include "tests/support/temporary.h"

static fcp_plan *of_head_dim(unsigned head_dim, const char *more) {
    char text[400];
    snprintf(text, sizeof text,
             "model { heads = 1; kv_heads = 1; head_dim = %u; dtype = bf16 }\ncluster { nodes = 1; gpus = 2 }\n"
             "batch { lengths = [200, 60] }\nplan { mask = causal; block = 128%s }\n", head_dim, more);
    return plan_named("kernels", text);
}

static void refused(standin *x, const fcp_plan *plan, fcp_code code, const char *part) {
    fcp_session_options options = {.size = sizeof options, .backend = "cuda"};
    fcp_session *session;
    fcp_error err = {0};
    x->plan = plan;
    cr_assert_eq(fcp_session_create(plan, &options, &session, &err), code, "%s", err.message);
    cr_assert(strstr(err.message, part), "\"%s\" is not in: %s", part, err.message);
    cr_assert_eq(x->live, 0);
}

/* 99 KiB, as sm_86 and sm_89: where head_dim is 128, the backward pass in one kernel fits with one buffer of dO, but in
 * 16 bytes less than that takes only in two. With a score it has shorter steps, and fits with two buffers. */
Test(kernels, shared_memory) {
    enum { ONE_BUFFER = FK_ORDERED_SHARED(128, 128, 0, 1) };
    static const char one[] = "fk_forward, fk_backward_ordered", two[] = "fk_forward, fk_backward_dq, fk_backward_dkv",
                      any[] = "fk_forward, fk_backward_unordered";
    static const struct {
        unsigned head_dim;
        int shared;
        const char *more, *kernels;
    } rows[] = {{128, 163 << 10, "", one},
                {128, 99 << 10, "", one},
                {128, ONE_BUFFER, "", one},
                {128, ONE_BUFFER - 16, "", two},
                {64, 99 << 10, "", one},
                {128, 163 << 10, "; deterministic = false", any},
                {128, 99 << 10, "; deterministic = false", any},
                {128, ONE_BUFFER - 16, "; deterministic = false", two},
                {128, 227 << 10, "; deterministic = true", one},
                {256, 227 << 10, "; deterministic = false", two}};
    standin *x = stand();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fcp_plan *plan = of_head_dim(rows[i].head_dim, rows[i].more);
        x->shared = rows[i].shared;
        x->minor = rows[i].shared <= 99 << 10 ? 6 : 0;
        cr_assert(stand_judge(x, plan, rows[i].kernels, 1).ok);
        cr_assert_str_eq(x->launched, rows[i].kernels, "row %zu: %s", i, x->launched);
        fcp_plan_free(plan);
    }
    x->shared = 90 << 10; /* too little for two as well */
    fcp_plan *plan = of_head_dim(128, "");
    char want[120];
    snprintf(want, sizeof want, "gives a CTA 92160 bytes of shared memory; fk_backward_dkv needs %d",
             FK_DKV_SHARED(128, 128, 0));
    refused(x, plan, FCP_E_BACKEND, want);
    fcp_plan_free(plan);
    plan = of_head_dim(128, "; passes = forward");
    x->shared = 48 << 10;
    refused(x, plan, FCP_E_BACKEND, "fk_forward needs 65536: another GPU, or a smaller head_dim, would do");
    fcp_plan_free(plan);
}

/* Loads a stand-in for NVRTC of a major version under the name by which the loader knows NVRTC of that version. */
static void load_nvrtc(const char *folder, int major, char path[200]) {
    char command[600];
    const char *cc = getenv("CC");
    snprintf(path, 200, "%s/%d.so", folder, major);
    snprintf(command, sizeof command,
             "%s -DNVRTC_MAJOR=%d -w -I. -shared -fPIC -Wl,-soname,libnvrtc.so.%d -o %s tests/machines/standin/nvrtc.c",
             cc && *cc ? cc : "cc", major, major, path);
    cr_assert_eq(system(command), 0);
    cr_assert_not_null(dlopen(path, RTLD_NOW | RTLD_LOCAL), "%s", dlerror());
}
/* How many programs it has compiled. */
static long compilations(const char *path) {
    void *symbol = dlsym(dlopen(path, RTLD_NOW | RTLD_NOLOAD), "standin_compilations");
    long *(*count)(void);
    memcpy(&count, &symbol, sizeof count);
    return *count();
}

/* Two versions of NVRTC are there, and the driver takes the cubins of the older one only. If it is for CUDA 12, the
 * newer one never compiles. If it says that it is for CUDA 13, its refusal makes the older one compile, with all results
 * that may mean it. If the older one is not there, the error says what to install. */
Test(kernels, older_nvrtc) {
    static const int results[] = {200, 209, 222};
    char folder[TEMPORARY], older[200], newer[200], cache[200];
    standin *x = stand();
    cr_assert(temporary_folder(folder, "nvrtc"));
    load_nvrtc(folder, 12, older);
    load_nvrtc(folder, 13, newer);
    fcp_plan *plan = of_head_dim(64, "");
    x->newest = 12;
    long before = 0;
    for (unsigned i = 0; i < 4; i++) {
        x->version = i ? 13000 : 12020;
        x->newest_with = results[i ? i - 1 : 0];
        snprintf(cache, sizeof cache, "%s/cache%u", folder, i);
        setenv("FCP_CACHE", cache, 1);
        unsetenv("FCP_NVRTC");
        long made = compilations(older);
        for (int again = 0; again < 2; again++) cr_assert(stand_judge(x, plan, "older", 1).ok);
        cr_assert_eq(compilations(older) - made, 2, "two passes, and the second time the cache has them");
        cr_assert_eq(compilations(newer) - before, i ? 2 : 0);
        before = compilations(newer);
    }
    setenv("FCP_NVRTC", newer, 1);
    refused(x, plan, FCP_E_RUN, "the driver is for CUDA 13.0");
    x->version = 12020;
    refused(x, plan, FCP_E_RUN, "install NVRTC 12 (FCP_NVRTC names its file), or a newer driver");
    fcp_plan_free(plan);
    char command[200];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    cr_assert_eq(system(command), 0);
}

/* A score that reads a table of reals, which is float on the device. */
Test(kernels, tables) {
    static const char text[] =
        "model { heads = 2; kv_heads = 1; head_dim = 16; dtype = bf16\n table near = [0, 1 x 3, 2 x 9, 3 x 40]\n"
        "table bias = [[0.3, -1.7, 0.01, 2.1], [1.9, 0.1, -0.7, -2.3]] }\ncluster { nodes = 1; gpus = 2 }\n"
        "batch { lengths = [200, 60] }\nscore biased(table b) = s + b[h, near[min(q - k, 52)]]\n"
        "plan { mask = causal; block = 128; score = biased(b = bias) }\n";
    standin *x = stand();
    fcp_plan *plan = plan_named("tables", text);
    cr_assert(stand_judge(x, plan, "tables", 1).ok);
    fcp_plan_free(plan);
}

/* Rows whose keys are cut, run after run: a launch leaves its counters as it found them. */
Test(kernels, cut_rows) {
    standin *x = stand();
    for (unsigned i = 0; i < 2; i++) {
        char text[300];
        snprintf(text, sizeof text,
                 "model { heads = 1; kv_heads = 1; head_dim = %u; dtype = bf16 }\ncluster { gpus = %u; gpu = h100 }\n"
                 "batch { lengths = [1300, 200] }\nplan { mask = causal; block = %u; passes = forward }\n", i ? 64 : 16,
                 i ? 1 : 2, i ? 2048 : 512);
        fcp_plan *plan = plan_named("cut", text);
        x->seed = i;
        cr_assert(stand_judge(x, plan, text, 3).ok);
        fcp_plan_free(plan);
    }
}

/* A kernel that takes more than its budget is an error. Spilled registers are a warning. */
Test(kernels, what_they_take) {
    standin *x = stand();
    fcp_plan *plan = of_head_dim(64, "");
    fcp_session_options options = {.size = sizeof options, .backend = "cuda"};
    fcp_session *session;
    fcp_error err = {0};
    x->registers = 256;
    refused(x, plan, FCP_E_COMPILE, "fk_forward takes 256 registers a thread on device 0");
    x->registers = 97; /* as much as attention may, but the small kernels may not */
    refused(x, plan, FCP_E_COMPILE, "fk_begin_lse takes 97 registers a thread");
    x->registers = 0;
    x->fixed = x->shared - 24576 + 1; /* with what fk_forward is given */
    refused(x, plan, FCP_E_COMPILE, "bytes of shared memory on device 0 (stand-in 0) beside its 24576");
    x->fixed = 0;
    x->local = 48;
    cr_assert_eq(fcp_session_create(plan, &options, &session, &err), FCP_OK, "%s", err.message);
    cr_assert(strstr(fcp_session_warning(session), "fk_forward keeps 48 bytes a thread in local memory on device 0"),
              "%s", fcp_session_warning(session));
    fcp_session_free(session);
    x->local = 0;
    setenv("FCP_CACHE", "/nowhere/at/all", 1);
    cr_assert_eq(fcp_session_create(plan, &options, &session, &err), FCP_OK, "%s", err.message);
    cr_assert(strstr(fcp_session_warning(session), "no kernel cache"), "%s", fcp_session_warning(session));
    fcp_session_free(session);
    fcp_plan_free(plan);
}
