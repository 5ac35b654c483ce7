/* test_ptx_far.c: tests logits of any size in the PTX that NVRTC makes. Results are those of float64. NVRTC must
 * compile a logit to the same bits in both passes, also if a score is made of products and sums (far_logits.h). */
#include "tests/machines/ptx/judge.h"
#include "tests/support/amount.h"
#include "tests/support/far_logits.h"

static void exact_on(const fcp_backend *backend, const char *model, const char *plan, const char *score, double grain) {
    char text[1000];
    snprintf(text, sizeof text,
             "model { %s%s }\ncluster { gpus = 2 }\nbatch { lengths = [150, 40] }\n"
             "plan { block = 128; passes = forward, backward; %s }\n%s", strstr(model, "scale") ? "" : "scale = 0.25; ",
             model, plan, score);
    far_exact(text, backend, grain, 5);
    ptx_device_trouble(text, sizeof text);
    cr_assert_str_empty(text, "%s", text);
}
static void adds_up(const fcp_backend *backend, const char *model, const char *plan, const char *score) {
    char text[1000];
    snprintf(text, sizeof text,
             "model { %s }\ncluster { gpus = 2 }\nbatch { lengths = [150, 40] }\n"
             "plan { block = 128; passes = forward, backward; %s }\n%s", model, plan, score);
    far_adds_up(text, backend, 5);
    ptx_device_trouble(text, sizeof text);
    cr_assert_str_empty(text, "%s", text);
}

#define HOLES "score holes = if abs(k - 60) < 20 or abs(q - 40) < 9 then s - 3.4028234663852886e38 else s\n"

Test(ptx_far, near_and_far_rows) {
    if (!compiler()) return;
    exact_on(&ptx_ordered_backend, "heads = 2; kv_heads = 1; head_dim = 16", "mask = causal", "", 100);
    exact_on(&ptx_backend, "heads = 2; kv_heads = 1; head_dim = 32; dtype = fp16", "mask = causal", "", 16);
    exact_on(&ptx_unordered_sm90_backend, "heads = 1; kv_heads = 1; head_dim = 64", "mask = causal", "", 0x1p80);
    if (amount(false, true))
        exact_on(&ptx_sm90_backend, "scale = -1.0; heads = 1; kv_heads = 1; head_dim = 128", "mask = causal", "", 16);
}
Test(ptx_far, scores_and_sinks) {
    if (!compiler()) return;
    exact_on(&ptx_backend, "heads = 2; kv_heads = 1; head_dim = 16", "mask = full; score = holes", HOLES, 1);
    exact_on(&ptx_unordered_backend, "heads = 2; kv_heads = 1; head_dim = 16; dtype = fp16",
             "mask = causal; score = far; sink = [-1.0e9, 0.0]", "score far = s - 1.0e9\n", 64);
    exact_on(&ptx_sm90_backend, "heads = 1; kv_heads = 1; head_dim = 64",
             "mask = causal; score = holes; sink = [1.7014118346046923e38]", HOLES, 1);
}
Test(ptx_far, logits_have_the_same_bits_in_both_passes) {
    /* The compiler may make one instruction of the scale's product and what follows, or of those within the score. */
    static const char more[] = "score more = s * 3.7 + (q - k) * 1.3e5 - abs(q * 0.37 - k) * 1.7e4\n";
    if (!compiler()) return;
    adds_up(&ptx_ordered_backend, "scale = 1.1e6; heads = 2; kv_heads = 1; head_dim = 16", "mask = causal", "");
    adds_up(&ptx_backend, "scale = 1.1e6; heads = 2; kv_heads = 1; head_dim = 16; dtype = fp16",
            "mask = causal; score = more", more);
    adds_up(&ptx_unordered_backend, "scale = 1.1e6; heads = 2; kv_heads = 1; head_dim = 32",
            "mask = causal; score = more", more);
    adds_up(&ptx_sm90_backend, "scale = 1.1e6; heads = 1; kv_heads = 1; head_dim = 64", "mask = causal", "");
    adds_up(&ptx_unordered_sm90_backend, "scale = 1.1e6; heads = 1; kv_heads = 1; head_dim = 64",
            "mask = causal; score = more", more);
    if (amount(true, false)) return;
    adds_up(&ptx_sm90_backend, "scale = 9.7e5; heads = 1; kv_heads = 1; head_dim = 256", "mask = causal", "");
    adds_up(&ptx_sm90_backend, "scale = 1.1e6; heads = 1; kv_heads = 1; head_dim = 128", "mask = causal; score = more",
            more);
}
