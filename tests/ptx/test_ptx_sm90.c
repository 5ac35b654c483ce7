/* The PTX that NVRTC makes of the kernels for sm_90a, executed here, against the definition of attention in float64. */
#include <stdlib.h>

#include "judge.h"

/* Whole boxes and ragged ones; blocks that take several items; a rank's own keys and those that came. */
Test(ptx_sm90, head_dim_64) {
    if (!compiler()) return;
    right(MODEL(2, 1, 64, bf16) CLUSTER(2) BATCH(200, 60) PLAN("mask = causal"), &ptx_sm90_backend, 1);
    right(MODEL(2, 2, 64, fp16) CLUSTER(1) BATCH(300, 1, 128) PLAN("mask = full; sink = [0.5, -1.0]"), &ptx_sm90_backend, 2);
    right(MODEL(1, 1, 64, fp16) CLUSTER(1) BATCH(260, 70) PLAN("mask = causal"), &ptx_unordered_sm90_backend, 3);
}

Test(ptx_sm90, head_dim_128) {
    if (!compiler()) return;
    right(MODEL(2, 1, 128, bf16) CLUSTER(2) BATCH(290, 40) PLAN("mask = causal"), &ptx_sm90_backend, 4);
    right(MODEL(2, 2, 128, fp16) CLUSTER(1) BATCH(200) PLAN("mask = full"), &ptx_unordered_sm90_backend, 5);
}

/* The backward pass is that in two kernels, compiled for sm_90a. */
Test(ptx_sm90, head_dim_256) {
    if (!compiler()) return;
    right(MODEL(1, 1, 256, bf16) CLUSTER(1) BATCH(200, 30) PLAN("mask = causal"), &ptx_sm90_backend, 6);
}

Test(ptx_sm90, scores) {
    if (!compiler()) return;
    right(MODEL(1, 1, 128, bf16) CLUSTER(1) BATCH(150) PLAN("mask = causal; score = softcap"), &ptx_sm90_backend, 7);
    right(MODEL(2, 1, 64, fp16) CLUSTER(1) BATCH(150) PLAN("mask = window(w = 50); score = alibi"), &ptx_sm90_backend, 8);
}
