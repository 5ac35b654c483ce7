/* test_sm90.c: tests the skeletons for sm_90a on fibers: runs whole plans forward and backward, and compares the
 * results with the definition of attention. test_backward_sm90.c runs both passes under each mask. */
#include "tests/support/hand_plan.h"
#include "tests/support/hand_score.h"
#include "tests/machines/fibers/programs.h"

static void judge_hand(hand *h, const char *mask) {
    char what[120];
    cr_assert_not_null(h);
    snprintf(what, sizeof what, "mask %s, %u ranks, %u / %u heads of %u, %s", mask, h->problem.ranks, h->problem.heads,
             h->problem.kv_heads, h->problem.head_dim, fcp_dtype_name((fcp_dtype)h->problem.dtype));
    judge_plan(&h->plan, &fibers_sm90_backend, 5, false, what);
    hand_free(h);
}

Test(sm90, head_dims) {
    static const uint64_t lengths[] = {200, 128, 20};
    static const uint32_t dims[] = {64, 128, 256};
    for (size_t i = 0; i < 3; i++)
        for (int dtype = FCP_FP16; dtype <= FCP_BF16; dtype++) {
            if (i && amount(dtype == (i == 1 ? FCP_BF16 : FCP_FP16), false)) continue; /* both are of 64 */
            judge_hand(hand_make(2, 2, 1, dims[i], (fcp_dtype)dtype, 128, i == 1 ? "full" : "causal", lengths, 3),
                       i == 1 ? "full" : "causal");
        }
}

/* Items without keys before, between and after items with some, in one block: what counts numbers of Q must pass over
 * them. */
Test(sm90, without_keys) {
    static const uint64_t lengths[] = {300, 140, 260};
    hand_score *store = calloc(1, sizeof *store);
    cr_assert_not_null(store);
    for (uint32_t heads = 1; heads <= 3; heads++) {
        hand *h = hand_make(1, heads, 1, 64, heads % 2 ? FCP_BF16 : FCP_FP16, 256, "gap", lengths, 3);
        cr_assert_not_null(h);
        h->problem.passes = 1 << FCP_FORWARD;
        hand_score_put(h, store, NULL, heads != 2);
        judge_hand(h, "gap");
    }
    free(store);
}

/* Programs and examples of a head_dim that has skeletons for sm_90a. */
Test(sm90, random_programs) {
    static const fcp_backend *const backends[] = {&fibers_sm90_backend};
    const char *defines[] = {"model.head_dim=64", "plan.passes=forward"};
    random_programs(draws_of(750), backends, 1, defines);
}
Test(sm90, examples) { run_examples(true); }
