/* The PTX that NVRTC makes of our kernels, executed here, against the definition of attention in float64. */
#include <stdio.h>

#include "judge.h"

/* Flaws in the text of a kernel, each of which must be found. */
static const struct {
    const char *what;
    ptx_change change;
} flaws[] = {
    {"V is not transposed", {"fk_forward", ".x4.trans.shared", ".x4.shared", -1}},
    {"a copy is not waited for", {"fk_forward", "cp.async.wait_all;", "", 0}},
    {"another copy is not waited for", {"fk_forward", "cp.async.wait_all;", "", 1}},
    {"a barrier is missing", {"fk_forward", "bar.sync 0;", "", 1}},
    {"another barrier is missing", {"fk_forward", "bar.sync 0;", "", 2}},
    {"the other type", {"fk_forward", "f32.bf16.bf16.f32", "f32.f16.f16.f32", 3}},
    {"one lane too far", {"fk_forward", ", 0x1f, 0xffffffff;", ", 0x1f1f, 0xffffffff;", 0}},
};

Test(ptx, flaws) {
    static const char program[] = MODEL(2, 1, 64, bf16) CLUSTER(1) BATCH(200, 60) PLAN("mask = causal");
    char text[TEXT];
    if (!compiler()) return;
    fcp_plan *plan = gpu_plan("flaws", program, NULL, 0);
    for (size_t i = 0; i < sizeof flaws / sizeof *flaws; i++) {
        ptx_device_change(&flaws[i].change);
        judge(plan, &ptx_ordered_backend, 1, text);
        fprintf(stderr, "%s: %s\n", flaws[i].what, text);
        cr_expect(ptx_device_change(NULL) > 0, "%s: nothing was changed", flaws[i].what);
        cr_expect(*text, "%s: not found", flaws[i].what);
    }
    fcp_plan_free(plan);
}

Test(ptx, first) {
    if (!compiler()) return;
    right("model { heads = 2; kv_heads = 1; head_dim = 64; dtype = bf16 }\ncluster { nodes = 1; gpus = 1 }\nbatch { lengths = [200, 60] }\n"
          "plan { mask = causal; block = 128; passes = forward }\n", &ptx_backend, 1);
    right("model { heads = 2; kv_heads = 1; head_dim = 64; dtype = bf16 }\ncluster { nodes = 1; gpus = 2 }\nbatch { lengths = [200, 60] }\n"
          "plan { mask = causal; block = 128; passes = forward, backward }\n", &ptx_backend, 1);
    right("model { heads = 2; kv_heads = 1; head_dim = 64; dtype = bf16 }\ncluster { nodes = 1; gpus = 2 }\nbatch { lengths = [200, 60] }\n"
          "plan { mask = causal; block = 128; passes = forward, backward }\n", &ptx_ordered_backend, 1);
    right("model { heads = 2; kv_heads = 1; head_dim = 64; dtype = bf16 }\ncluster { nodes = 1; gpus = 2 }\nbatch { lengths = [200, 60] }\n"
          "plan { mask = causal; block = 128; passes = forward, backward }\n", &ptx_unordered_backend, 1);
}
