/* test_cuda_no_tokens.c: tests sessions on CUDA devices, on the stand-in driver, with batches in which sequences
 * have no queries, no keys, or neither; and with batches of nothing else. The driver refuses a grid of no CTAs, and a
 * tensor map of no rows. */
#include <criterion/criterion.h>

#include "tests/support/amount.h"
#include "tests/support/cuda_stand.h"

enum { HOPPER = 232448 };

static fcp_plan *plan_for(const char *lengths, const char *settings, unsigned ranks) {
    char text[600];
    snprintf(text, sizeof text,
             "model { heads = 4; kv_heads = 2; head_dim = 64; dtype = bf16 }\ncluster { gpus = %u }\n"
             "batch { lengths = %s }\nplan { mask = causal; block = 128; passes = forward, backward; %s }\n",
             ranks, lengths, settings);
    return plan_named(lengths, text);
}

static const char *const batches[] = {"[0]", "[0:7, 0]", "[7:0, 0]", "[0, 150, 0:40, 70:0, 3:90, 0]", "[0:200, 140:0]"};
static const char *const settings[] = {"layout = contiguous", "sink = 0.5", "strategy = ring; layout = zigzag",
                                       "strategy = cad; layout = contiguous"};

static void run_all(int major, int minor, fcp_fuse fuse, unsigned first) {
    standin *x = stand();
    x->major = major;
    x->minor = minor;
    if (major == 9) x->shared = HOPPER;
    for (unsigned i = 0; i < 5; i++)
        for (unsigned j = 0; j < 4; j++) {
            if (amount((i + j + first) % 4, 0)) continue;
            const fcp_session_options options = {.size = sizeof options, .backend = "cuda", .timeout_s = 100,
                                                 .graph_from = 1, .partition = FCP_PARTITION_GRID, .fuse = fuse};
            fcp_plan *plan = plan_for(batches[i], settings[j], 1 + (i + j) % 3);
            char what[120];
            snprintf(what, sizeof what, "%s with %s on sm_%d%d", batches[i], settings[j], major, minor);
            x->devices = 1 + (int)(i % 2);
            stand_run(x, plan, &options, 2, what);
            fcp_plan_free(plan);
        }
}

Test(cuda_no_tokens, by_stages) { run_all(8, 0, FCP_FUSE_STAGES, 0); }
Test(cuda_no_tokens, fused) { run_all(8, 0, FCP_FUSE_PASS, 1); }
Test(cuda_no_tokens, hopper) { run_all(9, 0, FCP_FUSE_STAGES, 2); }
Test(cuda_no_tokens, hopper_fused) { run_all(9, 0, FCP_FUSE_PASS, 3); }
