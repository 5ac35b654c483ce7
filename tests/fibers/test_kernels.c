/* The kernels' skeletons on fibers: whole plans, forward and backward, against the definition of attention. */
#include "../unit/hand_plan.h"
#include "judge_plan.h"

static const char *const masks[] = {"full", "causal", "none", "window", "odd", "head", "tail", "gap"};
static const uint64_t mixed[] = {300, 60, 129, 1, 200, 64};

static void judge_hand(hand *h, const fcp_backend *backend, const char *mask) {
    char what[120];
    cr_assert_not_null(h);
    snprintf(what, sizeof what, "mask %s, %u ranks, %u / %u heads of %u, %s", mask, h->problem.ranks, h->problem.heads,
             h->problem.kv_heads, h->problem.head_dim, fcp_dtype_name((fcp_dtype)h->problem.dtype));
    judge_plan(&h->plan, backend, 5, true, what);
    hand_free(h);
}

Test(kernels, masks) {
    for (size_t m = 0; m < sizeof masks / sizeof *masks; m++)
        judge_hand(hand_make(1 + m % 3, 2, 1 + m % 2, 16, m % 2 ? FCP_BF16 : FCP_FP16, 256, masks[m], mixed, 6),
                   &fibers_backend, masks[m]);
}

/* Blocks that wait for one another: many key items on few rows. */
Test(kernels, ordered) {
    static const uint64_t lengths[] = {700, 200};
    for (size_t m = 0; m < sizeof masks / sizeof *masks; m++)
        judge_hand(hand_make(1 + m % 2, 2, 1 + m % 2, 16, m % 2 ? FCP_BF16 : FCP_FP16, 1024, masks[m], lengths, 2),
                   &fibers_ordered_backend, masks[m]);
}

Test(kernels, head_dims) {
    static const uint64_t lengths[] = {150, 70, 20};
    static const uint32_t dims[] = {16, 32, 64, 128, 256};
    for (size_t i = 0; i < 5; i++)
        for (int dtype = FCP_FP16; dtype <= FCP_BF16; dtype++)
            judge_hand(hand_make(2, 2, 1, dims[i], (fcp_dtype)dtype, 128, "causal", lengths, 3),
                       dtype == FCP_FP16 ? &fibers_backend : &fibers_ordered_backend, "causal");
}
