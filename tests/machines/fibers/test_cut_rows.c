/* test_cut_rows.c: tests rows whose keys are cut into parts, because there are fewer rows than SMs. The CTA of each
 * part leaves a running state, and the CTA that ends last joins these states. The results are right, and their bits the
 * same in every run, whichever part comes last. */
#include <stdio.h>

#include "tests/machines/fibers/fibers.h"
#include "tests/support/amount.h"
#include "tests/support/cut_items.h"
#include "tests/support/judge_plan.h"
#include "tests/support/plan_of.h"

static void judge_stages(const char *model, const char *rest, const fcp_backend *backend, bool later, bool twice) {
    char text[800];
    snprintf(text, sizeof text, "model { %s }\n%s", model, rest);
    fcp_plan *plan = plan_named("cut.fcp", text);
    const cut_items cut = cut_items_of(plan, FCP_FORWARD, FCP_KEYS_ALONE);
    cr_assert(later ? cut.later : cut.parts, "%s", text);
    judge_plan(plan, backend, 7, twice && (amount(false, true) || backend == &fibers_backend), text);
    fcp_plan_free(plan);
}

static void judge(const char *model, const char *rest, const fcp_backend *backend, bool twice) {
    judge_stages(model, rest, backend, false, twice);
}

#define ONE(mask, more) "cluster { gpu = h100 }\nbatch { lengths = [256:960, 70] }\nplan { mask = " mask \
                        "; block = 1K; strategy = fcp(coalesce = 8); passes = forward" more " }\n"
/* Stages, of which the later ones go on from the running states of those before. */
#define FOUR "cluster { gpus = 2; gpu = h100 }\nbatch { lengths = [1500, 300] }\nplan { mask = causal; block = 512; " \
             "passes = forward }\n"
Test(cut_rows, causal) { judge("heads = 2; kv_heads = 1; head_dim = 16", ONE("causal", ""), &fibers_backend, true); }
Test(cut_rows, causal_sm90) {
    judge("heads = 2; kv_heads = 1; head_dim = 64", ONE("causal", ""), &fibers_sm90_backend, true);
}
Test(cut_rows, wide_sm90) { /* a part has 64 keys to a step; fp16 */
    judge("heads = 1; kv_heads = 1; head_dim = 256; dtype = fp16", ONE("causal", ""), &fibers_sm90_backend, false);
}
Test(cut_rows, wide) {
    judge("heads = 1; kv_heads = 1; head_dim = 256; dtype = fp16", ONE("full", ""), &fibers_backend, false);
}
Test(cut_rows, score_and_sinks) {
    judge("heads = 4; kv_heads = 2; head_dim = 32; dtype = fp16",
          ONE("full", "; score = alibi; sink = [0.5, -1.0, 2.0, 0.0]"), &fibers_backend, false);
}
Test(cut_rows, score_and_sinks_sm90) {
    judge("heads = 2; kv_heads = 1; head_dim = 128; dtype = fp16", ONE("causal", "; score = alibi; sink = [0.5, -1.0]"),
          &fibers_sm90_backend, false);
}
Test(cut_rows, parts_without_a_pair) { /* some rows of a tile see no key of some parts */
    judge("heads = 2; kv_heads = 1; head_dim = 16",
          ONE("m", "") "mask m = k < 50 or (q % 2 == 0 and k < 520) or (q % 3 == 0 and k > 700)\n", &fibers_backend,
          true);
}
Test(cut_rows, by_head) {
    judge("heads = 2; kv_heads = 1; head_dim = 16",
          ONE("m", "") "mask m = causal and (h % 2 == 0 or q - k < 250)\n", &fibers_backend, false);
}
Test(cut_rows, stages) {
    judge_stages("heads = 2; kv_heads = 1; head_dim = 16", FOUR, &fibers_backend, true, true);
}
Test(cut_rows, stages_sm90) {
    judge_stages("heads = 2; kv_heads = 1; head_dim = 64", FOUR, &fibers_sm90_backend, true, true);
}

/* Two rows that are left for three SMs: parts of different lengths. */
#define CHAIN "cluster { gpus = 2; gpu = h100 }\nbatch { lengths = [256:4K] }\nplan { mask = full; block = 1K; " \
              "strategy = ring; margin = 129; passes = forward }\n"
Test(cut_rows, chains) { judge("heads = 5; kv_heads = 1; head_dim = 16", CHAIN, &fibers_backend, true); }
Test(cut_rows, chains_sm90) { judge("heads = 5; kv_heads = 1; head_dim = 64", CHAIN, &fibers_sm90_backend, false); }
