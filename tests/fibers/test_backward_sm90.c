/* The backward skeleton for sm_90a on fibers: whole plans against the definition of attention. */
#include "../unit/hand_plan.h"
#include "judge_plan.h"

static void judge_hand(hand *h, const fcp_backend *backend, const char *mask) {
    char what[120];
    cr_assert_not_null(h);
    snprintf(what, sizeof what, "mask %s, %u ranks, %u / %u heads of %u, %s, %s", mask, h->problem.ranks, h->problem.heads,
             h->problem.kv_heads, h->problem.head_dim, fcp_dtype_name((fcp_dtype)h->problem.dtype), backend->name);
    judge_plan(&h->plan, backend, 5, true, what);
    hand_free(h);
}

static const uint64_t mixed[] = {300, 60, 129, 1, 200, 64};

static const char *const masks[] = {"full", "causal", "none", "window", "odd", "head", "tail", "gap"};

Test(backward_sm90, masks) {
    for (size_t m = 0; m < sizeof masks / sizeof *masks; m++)
        judge_hand(hand_make(1 + m % 3, 2, 1 + m % 2, 64, m % 2 ? FCP_BF16 : FCP_FP16, 256, masks[m], mixed, 6),
                   &fibers_sm90_backend, masks[m]);
}
Test(backward_sm90, masks_128) {
    for (size_t m = 0; m < sizeof masks / sizeof *masks; m++)
        judge_hand(hand_make(1 + m % 3, 2, 1 + m % 2, 128, m % 2 ? FCP_FP16 : FCP_BF16, 256, masks[m], mixed, 6),
                   &fibers_sm90_backend, masks[m]);
}
