/* test_shared_keys.c: tests the backward pass with keys that nearly every row sees. Their item of work is cut into
 * several, whose CTAs add to dK and dV one after the other, or in any order. */
#include "tests/machines/fibers/fibers.h"
#include "tests/support/amount.h"
#include "tests/support/cut_items.h"
#include "tests/support/judge_plan.h"
#include "tests/support/plan_of.h"

static void judge_length(const char *model, unsigned length, const fcp_backend *backend, fcp_key_order order,
                         bool twice) {
    char text[300];
    snprintf(text, sizeof text, "model { %s }\ncluster { gpus = 1 }\nbatch { lengths = [%u] }\n"
             "plan { mask = lambda(sink = 20, window = 90); block = 1K; strategy = fcp(coalesce = 8); "
             "passes = forward, backward }\n", model, length);
    fcp_plan *plan = plan_named("shared.fcp", text);
    cr_assert(cut_items_of(plan, FCP_BACKWARD, order).shared, "%s: no item is cut", model);
    judge_plan(plan, backend, 3, twice && (amount(false, true) || backend == &fibers_ordered_backend), model);
    fcp_plan_free(plan);
}
static void judge(const char *model, const fcp_backend *backend, fcp_key_order order, bool twice) {
    judge_length(model, 1500, backend, order, twice);
}

Test(shared_keys, ordered) {
    judge("heads = 2; kv_heads = 1; head_dim = 16; dtype = bf16", &fibers_ordered_backend, FCP_KEYS_ORDERED, true);
}
/* dK and dV alone: two blocks share an item's keys, and each has turns of its own. */
Test(shared_keys, split) {
    judge("heads = 1; kv_heads = 1; head_dim = 16; dtype = bf16", &fibers_backend, FCP_KEYS_ALONE, true);
}
Test(shared_keys, split_in_two_blocks) {
    judge_length("heads = 2; kv_heads = 1; head_dim = 256; dtype = bf16", 300, &fibers_backend, FCP_KEYS_ALONE, true);
}
Test(shared_keys, unordered) {
    judge("heads = 1; kv_heads = 1; head_dim = 16; dtype = fp16", &fibers_unordered_backend, FCP_KEYS_JOINT, false);
}
Test(shared_keys, ordered_sm90) {
    judge("heads = 1; kv_heads = 1; head_dim = 64; dtype = bf16", &fibers_sm90_backend, FCP_KEYS_ORDERED, true);
}
Test(shared_keys, unordered_sm90) {
    judge("heads = 1; kv_heads = 1; head_dim = 64; dtype = fp16", &fibers_unordered_sm90_backend, FCP_KEYS_JOINT,
          false);
}
