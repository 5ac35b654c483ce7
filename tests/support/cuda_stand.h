/* cuda_stand.h: opens the driver and the compiler that stand in, and makes small plans, for tests of CUDA sessions. */
#ifndef CUDA_STAND_H
#define CUDA_STAND_H
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/machines/standin/standin.h"
#include "tests/support/gpu_plan.h"

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

static inline fcp_plan *make_plan(const char *mask, unsigned ranks, unsigned nodes, const char *more) {
    char text[600];
    snprintf(text, sizeof text,
             "model { heads = 2; kv_heads = %u; head_dim = 16; dtype = %s }\ncluster { nodes = %u; gpus = %u }\n"
             "batch { lengths = [%u, 130, 60] }\nplan { mask = %s; block = 128; passes = forward, backward%s }\n",
             ranks % 2 ? 1 : 2, ranks % 3 ? "bf16" : "fp16", nodes, ranks / nodes, 300 + 130 * ranks, mask, more);
    return gpu_plan(mask, text, NULL, 0);
}
#endif
