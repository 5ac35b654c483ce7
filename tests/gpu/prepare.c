/* prepare.c: compiles kernels in advance, on a machine with NVRTC and without a GPU.
 *
 * It makes sessions of all plans that will run, on the stand-in driver, for devices of each capability asked for. So
 * exactly the sources, options and architectures that the sessions on the GPU machine will ask for are compiled, and
 * carried.c keeps them.
 *
 * Requires: FCP_CUDA_DRIVER names the stand-in, FCP_NVRTC the carried library, and GPU_KERNELS_WRITE is set, as in the
 *           Makefile.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/base/clock.h"
#include "tests/gpu/climb.h"

typedef struct count {
    unsigned plans, failed;
} count;

static void report(count *c, const char *what, const char *why) {
    c->failed++;
    fprintf(stderr, "gpu-check: %.80s: %s\n", what, why);
}

static bool make(gpu *g, fcp_plan *plan, const char *what, void *context) {
    count *c = context;
    g->control->plan = plan;
    for (int older = 0; older < (g->machine.major == 9 && !g->fuse ? 2 : 1); older++) {
        fcp_session_options options = {.size = sizeof options, .backend = "cuda", .mma_sync = older, .fuse = g->fuse};
        fcp_session *session = NULL;
        fcp_error err;
        if (fcp_session_create(plan, &options, &session, &err)) report(c, what, err.message);
        fcp_session_free(session);
    }
    g->control->plan = NULL;
    c->plans++;
    return true;
}

static bool make_text(gpu *g, const char *text, void *context) {
    char why[GPU_WHY];
    fcp_plan *plan = gpu_plan_of("gpu-check.fcp", text, NULL, 0, why);
    if (!plan) report(context, text, why);
    else make(g, plan, text, context);
    fcp_plan_free(plan);
    return true;
}

static bool make_defined(gpu *g, const char *defines, const char *text, void *context) {
    setenv("GPU_DEFINES", defines, 1);
    bool more = make_text(g, text, context);
    unsetenv("GPU_DEFINES");
    return more;
}

static void make_ceilings(gpu *g, count *c) {
    for (int wgmma = 0; wgmma < (g->machine.major == 9 ? 2 : 1); wgmma++) {
        char arch[32], *source = gpu_ceiling_text(wgmma);
        fcp_jit *jit = NULL;
        fcp_cubin cubin = {0};
        fcp_error err = {.message = "out of memory"};
        bool cached;
        snprintf(arch, sizeof arch, "sm_%d%d%s", g->machine.major, g->machine.minor, wgmma ? "a" : "");
        if (!source || fcp_jit_open(NULL, &jit, &err) ||
            fcp_jit_compile(jit, "gpu-check.cu", source, arch, NULL, &cubin, &cached, &err))
            report(c, "the kernel that only multiplies", err.message);
        fcp_cubin_free(&cubin);
        fcp_jit_close(jit);
        free(source);
    }
}

static void make_rungs(gpu *g, count *c) {
    for (int set = 0; set < RUNG_SETS; set++) {
        fcp_cubin cubin = {0};
        char why[GPU_WHY];
        if (!climb_compile(g, (rung_set)set, &cubin, why)) report(c, "the ladder", why);
        fcp_cubin_free(&cubin);
    }
}

static void ignore(void *context, const char *question, const char *answer) {
    (void)context, (void)question, (void)answer;
}

int gpu_prepare(gpu *g, const char *capabilities) {
    char folder[400];
    const char *at = capabilities;
    int used = 0, status = 0;
    snprintf(folder, sizeof folder, "%.380s/kernels", g->folder);
    mkdir(folder, 0755);
    for (int major, minor; sscanf(at, " %d.%d%n", &major, &minor, &used) == 2; at += used) {
        fcp_error err;
        count c = {0};
        char why[GPU_WHY];
        double begin = fcp_clock();
        if (gpu_open(g, &err) || !g->control) {
            fprintf(stderr, "gpu-check: kernels are made beforehand on the driver that stands in: %s\n", err.message);
            return 1;
        }
        g->control->major = major;
        g->control->minor = minor;
        g->control->shared = major == 8 ? 166912 : 232448;
        g->control->memory = (size_t)1 << 42;
        g->control->idle = true;
        if (gpu_look(g, &g->machine, &err)) report(&c, "the machine", err.message);
        conformance(g, ignore, NULL);
        g->control->idle = true;
        make_ceilings(g, &c);
        make_rungs(g, &c);
        if (!gpu_correct_examples(g, make, &c, why) || !gpu_correct_edges(g, make, &c, why) ||
            !gpu_correct_random(g, make, &c, why))
            report(&c, "plans", why);
        gpu_measured_maxima(g, make_text, &c);
        gpu_measured_recurrent(g, make_text, &c);
        gpu_measured(g, make_text, &c);
        gpu_measured_runtime(g, make_text, &c);
        gpu_measured_pointers(g, make_text, &c);
        gpu_measured_ranks(g, make_text, &c);
        gpu_measured_smoke(g, make_defined, &c);
        gpu_measured_waits(g, make_defined, &c);
        gpu_measured_shaken(g, make_defined, &c);
        gpu_measured_variants(g, make_defined, &c);
        gpu_measured_fused(g, make_defined, &c);
        setenv("GPU_OPTION", GPU_LINES, 1); /* last: what the tools look at */
        gpu_measured_checked(g, make_text, &c);
        gpu_measured_profiled(g, make_text, &c);
        unsetenv("GPU_OPTION");
        printf("kernels of %u plans for devices of capability %d.%d: %u failed, %.0f s\n", c.plans, major, minor,
               c.failed, fcp_clock() - begin);
        if (c.failed) status = 1;
        gpu_close(g);
    }
    return status;
}
