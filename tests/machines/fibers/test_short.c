/* test_short.c: tests the forward kernels with few queries and many keys, as in decoding and chunked prefill. The query
 * heads of a group share the rows of a tile, and keys are cut into parts whose results are joined. */
#include <stdio.h>

#include "tests/machines/fibers/fibers.h"
#include "tests/support/amount.h"
#include "tests/support/cut_items.h"
#include "tests/support/judge_plan.h"
#include "tests/support/plan_of.h"

static void judge_lengths(const char *model, const char *lengths, const char *rest, const fcp_backend *backend,
                          bool packed, bool twice) {
    char text[800];
    snprintf(text, sizeof text, "model { %s }\ncluster { gpus = 2 }\n"
             "batch { lengths = [%s] }\n%s", model, lengths, rest);
    fcp_plan *plan = plan_named("short.fcp", text);
    cr_assert_eq(fcp_plan_packed(plan), packed, "%s", text);
    cr_assert(!packed || cut_items_of(plan, FCP_FORWARD, FCP_KEYS_ALONE).merges, "no keys are cut: %s", text);
    judge_plan(plan, backend, 7, twice && (amount(false, true) || backend == &fibers_backend), text);
    fcp_plan_free(plan);
}

/* A program of a model and a plan. Sequences have 1 to 64 queries, rows that fill several tiles or none, and one is as
 * long as its keys. */
static void judge(const char *model, const char *rest, const fcp_backend *backend, bool packed, bool twice) {
    judge_lengths(model, "1:1300, 7:600, 64:900, 33:40, 150, 20:130", rest, backend, packed, twice);
}

#define PLAN(mask, more) "plan { mask = " mask "; block = 256; passes = forward" more " }\n"
Test(short_queries, causal) {
    judge("heads = 6; kv_heads = 2; head_dim = 16", PLAN("causal", ""), &fibers_backend, true, true);
}
Test(short_queries, causal_sm90) {
    judge("heads = 8; kv_heads = 2; head_dim = 64", PLAN("causal", ""), &fibers_sm90_backend, true, true);
}
Test(short_queries, one_head_a_group) {
    judge("heads = 2; kv_heads = 2; head_dim = 64", PLAN("causal", ""), &fibers_sm90_backend, true, false);
}
Test(short_queries, large_group) { /* more heads than a tile has rows; parts of tiles are left over */
    judge_lengths("heads = 130; kv_heads = 1; head_dim = 16", "1:2100, 3:900, 20:130", PLAN("window(w = 700)", ""),
                  &fibers_backend, true, false);
}
Test(short_queries, no_spans) { /* the mask is asked about each pair */
    judge("heads = 6; kv_heads = 2; head_dim = 32; dtype = fp16", PLAN("dilated(w = 900, d = 3)", ""),
          &fibers_backend, true, false);
}
Test(short_queries, score_and_sinks) {
    judge("heads = 4; kv_heads = 2; head_dim = 16", PLAN("causal", "; score = alibi; sink = [0.5, -1.0, 2.0, 0.0]"),
          &fibers_backend, true, false);
}
Test(short_queries, score_and_sinks_sm90) {
    judge("heads = 4; kv_heads = 1; head_dim = 128; dtype = fp16",
          PLAN("causal", "; score = alibi; sink = [0.5, -1.0, 2.0, 0.0]"), &fibers_sm90_backend, true, false);
}
Test(short_queries, rows_without_keys) {
    judge("heads = 4; kv_heads = 2; head_dim = 16", PLAN("m", "; sink = [0.5, -1.0, 2.0, 0.0]")
          "mask m = k < q - 890 or (q % 2 == 0 and k < 700)\n", &fibers_backend, true, false);
}
Test(short_queries, heads_away) { /* blocks hold some of the heads; masks and scores mean the model's */
    judge("heads = 8; kv_heads = 4; head_dim = 16", PLAN("causal", "; score = alibi; strategy = ulysses"),
          &fibers_backend, true, false);
}
Test(short_queries, gradients) { /* the backward pass is not packed */
    judge("heads = 2; kv_heads = 1; head_dim = 64", PLAN("causal", ", backward"), &fibers_sm90_backend, true, false);
}
Test(short_queries, heads_apart) { /* where heads see different pairs, they do not share tiles */
    judge("heads = 4; kv_heads = 2; head_dim = 16", PLAN("m", "")
          "mask m = causal and (q - k < 300 or h % 2 == 0)\n", &fibers_backend, false, false);
}
