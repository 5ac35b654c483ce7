/* test_far.c: tests every kernel with logits of any size: rows whose logits are far from 0, rows beside them whose
 * logits are near 0, and rows that see no key. Results are those of float64, and each logit has the same bits in both
 * passes (far_logits.h). */
#include "tests/machines/fibers/fibers.h"
#include "tests/support/amount.h"
#include "tests/support/cut_items.h"
#include "tests/support/far_logits.h"

static const fcp_backend *const backends[] = {&fibers_backend, &fibers_ordered_backend, &fibers_unordered_backend,
                                              &fibers_sm90_backend, &fibers_unordered_sm90_backend};
enum { SPLIT = 1, ORDERED = 2, UNORDERED = 4, SM90 = 8, SM90_UNORDERED = 16, MMA = SPLIT | ORDERED | UNORDERED };

static void exact_on(unsigned which, const char *model, const char *rest, const char *score, double grain) {
    char text[1000];
    snprintf(text, sizeof text, "model { %s%s }\n%s%s", strstr(model, "scale") ? "" : "scale = 0.25; ", model,
             rest, score);
    for (unsigned i = 0; i < sizeof backends / sizeof *backends; i++)
        if (which >> i & 1) far_exact(text, backends[i], grain, i + 3);
}

#define TWO "cluster { gpus = 2 }\nbatch { lengths = [200, 70, 3] }\n"
#define BOTH(mask, more) TWO "plan { mask = " mask "; block = 128; passes = forward, backward" more " }\n"

/* --- a score moves all logits, or some ---------------------------------------------------------------------------- */

Test(far, offsets) {
    static const struct { const char *score; double grain; } all[] = {
        {"score far = s - 2.4e38\n", 1}, {"score far = s + 2.4e38\n", 1}, {"score far = s - 3.4028234663852886e38\n", 1},
        {"score far = s + 3.4028234663852886e38\n", 1}, {"score far = s - 1.0e9\n", 64}, {"score far = s + 1.0e9\n", 64},
        {"score far = s - 1.0e5\n", 1}, {"score far = s + 1.0e5\n", 1}, {"score far = s * 3.0 - 1.0e7\n", 8}};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        exact_on(i % 3 == 0 ? SPLIT : i % 3 == 1 ? ORDERED : UNORDERED,
                 i % 2 ? "heads = 2; kv_heads = 1; head_dim = 16; dtype = fp16" : "heads = 2; kv_heads = 2; head_dim = 32",
                 BOTH("causal", "; score = far"), all[i].score, all[i].grain);
}

/* As additive masks do it: a pair that does not count has the least number that there is, or -1e9. Of some rows no pair
 * counts, and all their keys weigh alike. */
#define REST(x, n) x " - " n " * floor(" x " / " n ") < 0.5"
#define HOLES(least) "score holes = if " REST("k", "3.0") " or " REST("q", "5.0") " then s " least " else s\n"
Test(far, additive_masks) {
    static const char *const scores[] = {HOLES("- 3.4028234663852886e38"), HOLES("- 1.0e9"), HOLES("- 65504.0"),
                                         HOLES("- 3.3895313892515355e38")};
    for (unsigned i = 0; i < sizeof scores / sizeof *scores; i++)
        exact_on(i % 2 ? SPLIT : ORDERED,
                 i % 2 ? "heads = 2; kv_heads = 1; head_dim = 16; dtype = fp16" : "heads = 2; kv_heads = 1; head_dim = 16",
                 BOTH("full", "; score = holes"), scores[i], 1);
}

Test(far, scores_sm90) {
    static const char *const scores[] = {HOLES("- 3.4028234663852886e38"), HOLES("- 1.0e9")};
    for (unsigned i = 0; i < 2; i++)
        exact_on(i ? SM90 : SM90_UNORDERED, "heads = 2; kv_heads = 1; head_dim = 64", BOTH("causal", "; score = holes"),
                 scores[i], 1);
    exact_on(SM90, "heads = 1; kv_heads = 1; head_dim = 128; dtype = fp16", BOTH("causal", "; score = far"),
             "score far = s - 2.4e38\n", 1);
}

/* Heads that are far and heads that are near. */
Test(far, heads_apart) {
    exact_on(ORDERED, "heads = 4; kv_heads = 2; head_dim = 16", BOTH("causal", "; score = far"),
             "score far = if h < 2 then s - 1.0e12 else s\n", 1);
}

/* --- sinks -------------------------------------------------------------------------------------------------------- */

Test(far, sinks) {
    exact_on(SPLIT, "heads = 4; kv_heads = 2; head_dim = 16",
             BOTH("causal", "; score = far; sink = [-1.0e9, -1.0e9, -2.0e9, 0.0]"), "score far = s - 1.0e9\n", 64);
    exact_on(ORDERED, "heads = 2; kv_heads = 1; head_dim = 32; dtype = fp16",
             BOTH("causal", "; sink = [1.7014118346046923e38, -1.7014118346046923e38]"), "", 1);
    exact_on(ORDERED, "heads = 2; kv_heads = 1; head_dim = 16",
             BOTH("causal", "; score = far; sink = [1.7014118346046923e38, -2.0]"),
             "score far = s + 1.7014118346046923e38\n", 1);
    exact_on(SM90, "heads = 2; kv_heads = 1; head_dim = 64; dtype = fp16", BOTH("none", "; sink = [1.7014118346046923e38, -1.0e9]"),
             "mask none = k < q - 120\n", 1);
}

/* --- inputs ------------------------------------------------------------------------------------------------------- */

/* Without a score: near and far rows in one warp, by the size of their logits; scales of both signs. */
Test(far, inputs) {
    static const double grains[] = {1, 16, 100, 4096, 0x1p80};
    for (unsigned i = 0; i < sizeof grains / sizeof *grains; i++) {
        exact_on(i % 2 ? SPLIT : ORDERED, "heads = 2; kv_heads = 1; head_dim = 16", BOTH("causal", ""), "", grains[i]);
        if (grains[i] < 1e4) /* fp16 has no more */
            exact_on(i % 2 ? UNORDERED : SPLIT, "heads = 2; kv_heads = 1; head_dim = 32; dtype = fp16", BOTH("full", ""),
                     "", grains[i]);
    }
    exact_on(MMA, "scale = -2.0; heads = 2; kv_heads = 1; head_dim = 16", BOTH("causal", ""), "", 16);
    exact_on(SPLIT, "heads = 1; kv_heads = 1; head_dim = 256", BOTH("causal", ""), "", 64);
}
Test(far, inputs_sm90) {
    exact_on(SM90, "heads = 2; kv_heads = 1; head_dim = 64", BOTH("causal", ""), "", 0x1p80);
    exact_on(SM90, "heads = 2; kv_heads = 1; head_dim = 64", BOTH("causal", ""), "", 100);
    exact_on(SM90_UNORDERED, "heads = 1; kv_heads = 1; head_dim = 128; dtype = fp16", BOTH("full", ""), "", 16);
    exact_on(SM90, "scale = -1.0; heads = 1; kv_heads = 1; head_dim = 64; dtype = fp16", BOTH("causal", ""), "", 16);
    exact_on(SM90, "heads = 1; kv_heads = 1; head_dim = 256", BOTH("causal", ""), "", 64);
}

/* --- states ------------------------------------------------------------------------------------------------------- */

#define FAR "score far = if " REST("q", "3.0") " then s - 2.4e38 else if " REST("q", "2.0") " then s + 1.0e9 else s\n"
Test(far, states_travel) {
    static const char *const strategies[] = {"ring", "zigzag", "cad", "dcp"};
    for (unsigned i = 0; i < 4; i++) {
        char rest[500];
        snprintf(rest, sizeof rest,
                 "cluster { gpus = 4 }\nbatch { lengths = [400, 90] }\n"
                 "plan { mask = causal; block = 128; strategy = %s; score = far; passes = forward, backward }\n",
                 strategies[i]);
        exact_on(i % 2 ? SPLIT : ORDERED, "heads = 2; kv_heads = 1; head_dim = 16", rest, FAR, 64);
    }
}

static void cut(const char *model, const char *more, const char *score, const fcp_backend *backend, double grain) {
    char text[1000];
    snprintf(text, sizeof text,
             "model { scale = 0.25; %s }\ncluster { gpu = h100 }\nbatch { lengths = [256:960, 70] }\nplan { mask = causal; "
             "block = 1K; strategy = fcp(coalesce = 8); passes = forward%s }\n%s", model, more, score);
    fcp_plan *plan = plan_named("cut.fcp", text);
    cr_assert(cut_items_of(plan, FCP_FORWARD, FCP_KEYS_ALONE).parts, "%s", text);
    fcp_plan_free(plan);
    far_exact(text, backend, grain, 9);
}
Test(far, cut_rows) {
    cut("heads = 2; kv_heads = 1; head_dim = 16", "; score = far", FAR, &fibers_backend, 64);
    cut("heads = 2; kv_heads = 1; head_dim = 32; dtype = fp16", "", "", &fibers_backend, 100);
    cut("heads = 2; kv_heads = 1; head_dim = 64", "", "", &fibers_sm90_backend, 4096);
}

#define SHORT(more) "cluster { gpus = 2 }\nbatch { lengths = [1:1300, 7:600, 33:40, 150, 20:130] }\n" \
                    "plan { mask = causal; block = 256; passes = forward" more " }\n"
Test(far, short_queries) {
    exact_on(SPLIT, "heads = 6; kv_heads = 2; head_dim = 16", SHORT("; score = far"), FAR, 64);
    exact_on(SPLIT, "heads = 4; kv_heads = 2; head_dim = 32; dtype = fp16", SHORT("; sink = [1.0e9, -1.0e9, 0.5, 900.0]"), "",
             100);
    exact_on(SM90, "heads = 4; kv_heads = 1; head_dim = 64", SHORT(""), "", 100);
}

/* --- bits --------------------------------------------------------------------------------------------------------- */

static void adds_up(unsigned which, const char *model, const char *plan, const char *score) {
    char text[1000];
    snprintf(text, sizeof text, "model { %s }\n" TWO "plan { block = 128; passes = forward, backward; %s }\n%s", model, plan,
             score);
    for (unsigned i = 0; i < sizeof backends / sizeof *backends; i++)
        if (which >> i & 1) far_adds_up(text, backends[i], i + 3);
}
/* Logits of up to 1e3 to 1e30, none of which has a bit to spare. */
#define LARGE "score large = s * 1.37e24\n"
Test(far, logits_have_the_same_bits_in_both_passes) {
    adds_up(MMA, "scale = 300.0; heads = 2; kv_heads = 1; head_dim = 16", "mask = causal", "");
    adds_up(MMA, "scale = 1.1e6; heads = 2; kv_heads = 1; head_dim = 32; dtype = fp16", "mask = full", "");
    adds_up(ORDERED, "scale = -1.3e9; heads = 2; kv_heads = 2; head_dim = 64", "mask = causal", "");
    adds_up(UNORDERED, "scale = 9.7e5; heads = 1; kv_heads = 1; head_dim = 128", "mask = causal", "");
    adds_up(SPLIT, "scale = 1.1e6; heads = 1; kv_heads = 1; head_dim = 256; dtype = fp16", "mask = causal", "");
    adds_up(SPLIT, "scale = 1.1e6; heads = 2; kv_heads = 1; head_dim = 16", "mask = causal; score = more",
            "score more = s * 3.7 + (q - k) * 1.3e5\n");
    adds_up(ORDERED, "scale = 1.1e6; heads = 2; kv_heads = 1; head_dim = 32", "mask = causal; score = large", LARGE);
}
Test(far, logits_have_the_same_bits_in_both_passes_sm90) {
    adds_up(SM90, "scale = 1.1e6; heads = 2; kv_heads = 1; head_dim = 64", "mask = causal", "");
    adds_up(SM90_UNORDERED, "scale = 9.7e5; heads = 1; kv_heads = 1; head_dim = 128; dtype = fp16", "mask = causal", "");
    adds_up(SM90, "scale = 1.1e6; heads = 1; kv_heads = 1; head_dim = 256", "mask = causal", "");
    adds_up(SM90, "scale = 1.1e6; heads = 1; kv_heads = 1; head_dim = 64", "mask = causal; score = more",
            "score more = s * 3.7 + (q - k) * 1.3e5\n");
}
