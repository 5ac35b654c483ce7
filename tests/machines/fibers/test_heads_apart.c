/* test_heads_apart.c: tests all kernels with masks that differ by head, for which each item of a work list is for some
 * heads only. The cases: in a group of heads some see the same keys and some do not; a group has more heads than the
 * set of an item can name; items are cut; heads are divided among ranks. */
#include "tests/machines/fibers/fibers.h"
#include "tests/support/amount.h"
#include "tests/support/cut_items.h"
#include "tests/support/judge_plan.h"
#include "tests/support/plan_of.h"

static void judge(const char *text, const fcp_backend *backend, bool by_head, bool twice) {
    fcp_plan *plan = plan_named("apart.fcp", text);
    cr_assert_eq(fcp_plan_by_head(plan), by_head);
    judge_plan(plan, backend, 5, twice && (amount(false, true) || backend == &fibers_ordered_backend), text);
    fcp_plan_free(plan);
}

static void judge_cut(const char *text, const fcp_backend *backend) {
    fcp_plan *plan = plan_named("apart.fcp", text);
    cr_assert(fcp_plan_by_head(plan) && cut_items_of(plan, FCP_BACKWARD, FCP_KEYS_ORDERED).shared, "no item is cut");
    judge_plan(plan, backend, 5, false, text);
    fcp_plan_free(plan);
}

/* Windows of four lengths; head 3 sees the diagonal alone, head 5 nothing beyond its sink. */
#define WINDOWS(dim)                                                                                                   \
    "model { heads = 6; kv_heads = 2; head_dim = " dim "; table w = [130, 70, 130, 1, 4096, 0] }\n"                    \
    "cluster { gpus = 2 }\nbatch { lengths = [270, 130] }\n"                                                           \
    "mask m = causal and (q - k < w[h] or k < 5)\n"                                                                    \
    "plan { mask = m; block = 256; passes = forward, backward }\n"

Test(heads_apart, split) { judge(WINDOWS("16"), &fibers_backend, true, true); }
Test(heads_apart, split_in_two_blocks) {
    judge("model { heads = 3; kv_heads = 1; head_dim = 256 }\ncluster { gpus = 1 }\nbatch { lengths = [180] }\n"
          "mask m = causal and (q - k < 60 or h != 1)\nplan { mask = m; block = 256; passes = forward, backward }\n",
          &fibers_backend, true, false);
}
Test(heads_apart, ordered) { judge(WINDOWS("16"), &fibers_ordered_backend, true, true); }
Test(heads_apart, unordered) { judge(WINDOWS("16"), &fibers_unordered_backend, true, false); }
Test(heads_apart, ordered_sm90) { judge(WINDOWS("64"), &fibers_sm90_backend, true, true); }
Test(heads_apart, unordered_sm90) { judge(WINDOWS("64"), &fibers_unordered_sm90_backend, true, false); }

/* 20 heads of one KV head: a set has at most 16. Every third head sees all. */
#define GROUP                                                                                                          \
    "model { heads = 20; kv_heads = 1; head_dim = 16 }\ncluster { gpus = 1 }\nbatch { lengths = [180] }\n"             \
    "mask m = causal and (q - k < 60 or h % 3 == 0)\nplan { mask = m; block = 256; passes = forward, backward }\n"
Test(heads_apart, large_group) { judge(GROUP, &fibers_ordered_backend, true, false); }
Test(heads_apart, large_group_split) { judge(GROUP, &fibers_backend, true, false); }

/* Keys that one head of each group sees from every row: their items are cut. */
Test(heads_apart, cut_items) {
    judge_cut("model { heads = 4; kv_heads = 2; head_dim = 16 }\ncluster { gpus = 1 }\nbatch { lengths = [1300] }\n"
              "mask m = causal and (q - k < 90 or (k < 20 and h % 2 == 0))\n"
              "plan { mask = m; block = 1K; strategy = fcp(coalesce = 8); passes = forward, backward }\n",
              &fibers_ordered_backend);
}

/* Each rank has heads of both classes; then each has heads of one class alone, and its list is not by head. */
#define DIVIDED(test)                                                                                                  \
    "model { heads = 4; kv_heads = 4; head_dim = 16 }\ncluster { gpus = 2 }\nbatch { lengths = [320] }\n"              \
    "mask m = causal and (q - k < 70 or " test ")\n"                                                                   \
    "plan { mask = m; layout = contiguous; strategy = ulysses(inside = 2); passes = forward, backward }\n"
Test(heads_apart, divided) { judge(DIVIDED("h % 2 == 0"), &fibers_ordered_backend, true, false); }
Test(heads_apart, divided_by_class) { judge(DIVIDED("h < 2"), &fibers_ordered_backend, false, false); }

/* The mask names h, and yet every head sees the same. */
Test(heads_apart, one_class) {
    judge("model { heads = 4; kv_heads = 2; head_dim = 16; table w = [70 x 4] }\ncluster { gpus = 2 }\n"
          "batch { lengths = [320] }\nmask m = causal and q - k < w[h]\n"
          "plan { mask = m; passes = forward, backward }\n", &fibers_ordered_backend, false, false);
}
