/* support_kernels.h: runs small kernels, such as fk_gather, one at a time. The PTX backends of device.h leave this work
 * to the host, so no program that they run reaches these kernels. */
#ifndef PTX_SUPPORT_KERNELS_H
#define PTX_SUPPORT_KERNELS_H
#include "runtime/jit/kernel_source.h"
#include "tests/machines/ptx/judge.h"
#include "tests/machines/ptx/ptx.h"

/* The module of such kernels, for a plan with a model. */
static inline ptx_module *support_module(const char *model, unsigned skeletons) {
    char *source, *text, why[PTX_ERROR], program[400];
    fcp_error err;
    snprintf(program, sizeof program, "%s" CLUSTER(1) BATCH(60) PLAN("mask = causal"), model);
    fcp_plan *plan = plan_with("support", program, NULL, 0);
    cr_assert_eq(fcp_kernel_source(plan, skeletons, false, &source, &err), FCP_OK, "%s", err.message);
    cr_assert_eq(ptx_compile(source, "compute_80", &text, &err), FCP_OK, "%s", err.message);
    ptx_module *m = ptx_module_new(text, why);
    cr_assert(m, "%s", why);
    free(text);
    free(source);
    fcp_plan_free(plan);
    return m;
}

/* Runs one of them, on a grid that the seed draws. False: `why` says what went wrong. */
static inline bool support_run(ptx_module *m, const char *kernel, const void *parameters, size_t bytes,
                               const ptx_range *ranges, uint32_t count, unsigned seed, char why[PTX_ERROR]) {
    const ptx_launch launch = {.module = m,
                               .kernel = ptx_module_kernel(m, kernel),
                               .parameters = parameters,
                               .parameter_bytes = bytes,
                               .blocks = 1 + seed % 5,
                               .threads = FK_SUPPORT_THREADS,
                               .resident = 1 + seed % 3,
                               .ranges = ranges,
                               .range_count = count,
                               .seed = seed};
    cr_assert(launch.kernel, "%s", kernel);
    return ptx_run(&launch, why);
}
#endif
