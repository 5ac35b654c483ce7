/* test_value_dim.c: tests every kernel with V narrower than K, and with rows of 96 and 192 numbers: whole plans,
 * forward and backward, compared with the definition of attention. Keys move between ranks, so a slot holds rows of two
 * lengths, those of K and of V. */
#include <stdio.h>

#include "tests/machines/fibers/fibers.h"
#include "tests/support/amount.h"
#include "tests/support/cut_items.h"
#include "tests/support/judge_plan.h"
#include "tests/support/plan_of.h"

static fcp_plan *make(const char *model, const char *rest) {
    char text[800];
    snprintf(text, sizeof text, "model { %s }\n%s", model, rest);
    fcp_plan *plan = plan_named("value.fcp", text);
    cr_assert(plan, "%s", text);
    return plan;
}

static void judge(const char *model, const char *rest, const fcp_backend *backend, bool twice) {
    fcp_plan *plan = make(model, rest);
    judge_plan(plan, backend, 11, twice && amount(false, true), model);
    fcp_plan_free(plan);
}

/* Whole steps of every kernel and ragged ones; cells that are full, partial, and none; home keys and moved ones. */
#define BOTH(mask, more) "cluster { gpus = 2 }\nbatch { lengths = [330, 70, 20] }\nplan { mask = " mask \
                         "; block = 256; passes = forward, backward" more " }\n"
static const fcp_backend *const backends[] = {&fibers_backend, &fibers_ordered_backend, &fibers_unordered_backend,
                                              &fibers_sm90_backend, &fibers_unordered_sm90_backend};
static void judge_all(const char *model, unsigned which, const char *rest) {
    for (unsigned i = 0; i < sizeof backends / sizeof *backends; i++)
        if (which >> i & 1) judge(model, rest, backends[i], i == 1);
}
enum { SPLIT = 1, ORDERED = 2, UNORDERED = 4, SM90 = 8, MMA = SPLIT | ORDERED | UNORDERED };

Test(value_dim, narrow) { judge_all("heads = 4; kv_heads = 2; head_dim = 32; value_dim = 16", MMA, BOTH("causal", "")); }
Test(value_dim, narrow_score) {
    judge_all("heads = 4; kv_heads = 2; head_dim = 32; value_dim = 16; dtype = fp16", MMA,
              BOTH("causal", "; score = alibi; sink = [0.5, -1.0, 2.0, 0.0]"));
}
Test(value_dim, rows_of_96) { judge_all("heads = 2; kv_heads = 1; head_dim = 96", MMA, BOTH("causal", "")); }
Test(value_dim, rows_of_96_and_64) {
    judge_all("heads = 2; kv_heads = 1; head_dim = 96; value_dim = 64; dtype = fp16", MMA,
              BOTH("causal", "; score = alibi"));
}
Test(value_dim, rows_of_128_and_64) {
    judge_all("heads = 2; kv_heads = 1; head_dim = 128; value_dim = 64; dtype = fp16", ORDERED | SM90,
              BOTH("causal", ""));
}
Test(value_dim, rows_of_192) {
    judge_all("heads = 2; kv_heads = 1; head_dim = 192; dtype = fp16", SPLIT | SM90, BOTH("causal", ""));
}
Test(value_dim, rows_of_192_and_128) {
    judge_all("heads = 2; kv_heads = 1; head_dim = 192; value_dim = 128", SPLIT | SM90, BOTH("causal", ""));
}
Test(value_dim, rows_of_192_and_128_full) {
    judge_all("heads = 2; kv_heads = 2; head_dim = 192; value_dim = 128", SPLIT | SM90, BOTH("full", ""));
}
Test(value_dim, rows_of_192_and_128_score) {
    judge_all("heads = 2; kv_heads = 1; head_dim = 192; value_dim = 128; dtype = fp16", SPLIT | SM90,
              BOTH("causal", "; score = alibi; sink = [0.5, -1.0]"));
}

/* Moved keys on TMA: several slots, each with rows of K and then of V. */
Test(value_dim, slots_sm90) {
    judge("heads = 2; kv_heads = 2; head_dim = 192; value_dim = 128",
          "cluster { gpus = 4 }\nbatch { lengths = [900, 200] }\nplan { mask = full; block = 128; strategy = ring; "
          "passes = forward, backward }\n",
          &fibers_sm90_backend, false);
}

/* Lists by head. */
#define WINDOWS "cluster { gpus = 2 }\nbatch { lengths = [270, 130] }\nmask m = causal and (q - k < 60 or h % 2 == 0)\n" \
                "plan { mask = m; block = 256; passes = forward, backward }\n"
Test(value_dim, by_head) { judge_all("heads = 4; kv_heads = 2; head_dim = 32; value_dim = 16", MMA, WINDOWS); }
Test(value_dim, by_head_sm90) {
    judge_all("heads = 2; kv_heads = 1; head_dim = 192; value_dim = 128", SM90, WINDOWS);
}

/* Rows whose keys are cut, joined by the kernel itself; and by fk_combine, where heads of a group share a tile. */
static void judge_cut(const char *model, const fcp_backend *backend) {
    fcp_plan *plan = make(model, "cluster { gpu = h100 }\nbatch { lengths = [256:960, 70] }\nplan { mask = causal; "
                                 "block = 1K; strategy = fcp(coalesce = 8); passes = forward }\n");
    cr_assert(cut_items_of(plan, FCP_FORWARD, FCP_KEYS_ALONE).parts, "%s", model);
    judge_plan(plan, backend, 7, false, model);
    fcp_plan_free(plan);
}
Test(value_dim, cut) { judge_cut("heads = 2; kv_heads = 1; head_dim = 32; value_dim = 16", &fibers_backend); }
Test(value_dim, cut_192) { judge_cut("heads = 1; kv_heads = 1; head_dim = 192; dtype = fp16", &fibers_backend); }
Test(value_dim, cut_sm90) {
    judge_cut("heads = 1; kv_heads = 1; head_dim = 192; value_dim = 128", &fibers_sm90_backend);
}
static void judge_packed_rows(const char *model, const fcp_backend *backend) {
    fcp_plan *plan = make(model, "cluster { gpus = 2 }\nbatch { lengths = [1:1300, 7:600, 33:40, 150, 20:130] }\n"
                                 "plan { mask = causal; block = 256; passes = forward }\n");
    cr_assert(fcp_plan_packed(plan) && cut_items_of(plan, FCP_FORWARD, FCP_KEYS_ALONE).merges, "%s", model);
    judge_plan(plan, backend, 7, false, model);
    fcp_plan_free(plan);
}
Test(value_dim, packed) { judge_packed_rows("heads = 6; kv_heads = 2; head_dim = 32; value_dim = 16", &fibers_backend); }
Test(value_dim, packed_sm90) {
    judge_packed_rows("heads = 4; kv_heads = 1; head_dim = 192; value_dim = 128", &fibers_sm90_backend);
}
