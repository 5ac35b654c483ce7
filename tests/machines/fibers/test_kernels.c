/* test_kernels.c: tests the skeletons for mma.sync on fibers: runs whole plans forward and backward, and compares the
 * results with the definition of attention. */
#include "tests/support/amount.h"
#include "tests/support/hand_plan.h"
#include "tests/machines/fibers/fibers.h"
#include "tests/support/judge_plan.h"
#include "tests/support/plan_of.h"

static const char *const masks[] = {"full", "causal", "none", "window", "odd", "head", "tail", "gap"};
static const uint64_t mixed[] = {200, 60, 129, 1, 100, 64};

/* Twice: the second time has the same bits. In make check one mask and one head_dim show that. */
static void judge_hand(hand *h, const fcp_backend *backend, const char *mask, bool twice) {
    char what[120];
    cr_assert_not_null(h);
    snprintf(what, sizeof what, "mask %s, %u ranks, %u / %u heads of %u, %s", mask, h->problem.ranks, h->problem.heads,
             h->problem.kv_heads, h->problem.head_dim, fcp_dtype_name((fcp_dtype)h->problem.dtype));
    judge_plan(&h->plan, backend, 5, twice, what);
    hand_free(h);
}

Test(kernels, masks) {
    for (size_t m = 0; m < sizeof masks / sizeof *masks; m++)
        judge_hand(hand_make(1 + m % 3, 2, 1 + m % 2, 16, m % 2 ? FCP_BF16 : FCP_FP16, 256, masks[m], mixed, 6),
                   &fibers_backend, masks[m], amount(m == 1, true));
}

/* Little work: pieces of the forward pass are dealt out one by one, and a list has an item for each head. */
Test(kernels, dealt) {
    static const fcp_backend *const all[] = {&fibers_backend, &fibers_sm90_backend};
    for (unsigned i = 0; i < amount(1, 2); i++) {
        char text[300];
        snprintf(text, sizeof text,
                 "model { heads = 55; kv_heads = 1; head_dim = %d }\ncluster { gpu = a100 }\n"
                 "batch { lengths = [200, 100, 60] }\n"
                 "plan { mask = causal; score = alibi; block = 1K; passes = forward }\n",
                 i ? 64 : 16);
        fcp_plan *plan = plan_named("dealt.fcp", text);
        judge_plan(plan, all[i], 11, i == 0, text);
        fcp_plan_free(plan);
    }
}

/* Blocks that wait for one another: many key items on few rows. */
Test(kernels, ordered) {
    static const uint64_t lengths[] = {300, 140};
    for (size_t m = 0; m < sizeof masks / sizeof *masks; m++)
        judge_hand(hand_make(1 + m % 2, 2, 1 + m % 2, 16, m % 2 ? FCP_BF16 : FCP_FP16, 1024, masks[m], lengths, 2),
                   &fibers_ordered_backend, masks[m], amount(m == 1, true));
}

/* The same, added in any order: right all the same, and not in the same order twice. */
Test(kernels, unordered) {
    static const uint64_t lengths[] = {300, 140};
    for (size_t m = 0; m < sizeof masks / sizeof *masks; m += amount(2, 1)) {
        hand *h = hand_make(1 + m % 2, 2, 1 + m % 2, 16, m % 2 ? FCP_BF16 : FCP_FP16, 1024, masks[m], lengths, 2);
        cr_assert_not_null(h);
        judge_plan(&h->plan, &fibers_unordered_backend, 5, false, masks[m]);
        hand_free(h);
    }
    fcp_shape shape;
    fcp_error err = {0};
    fcp_packed packed[2];
    memset(packed, 0, sizeof packed);
    fcp_session *session;
    fcp_session_options options = {.size = sizeof options, .compute_threads = 2, .timeout_s = 100};
    static const uint64_t longer[] = {700};
    hand *h = hand_make(1, 2, 1, 16, FCP_FP16, 1024, "full", longer, 1);
    cr_assert_not_null(h);
    fcp_plan_shape(&h->plan, &shape);
    cr_assert(session_on(&h->plan, &fibers_unordered_backend, &options, &session, &err) == FCP_OK, "%s", err.message);
    for (int i = 0; i < 2; i++) {
        cr_assert(fcp_packed_alloc(&shape, ALL, &packed[i], &err) == FCP_OK, "%s", err.message);
        fcp_packed_draw(&shape, ALL, 5, &packed[i]);
        for (int pass = 0; pass < FCP_PASSES; pass++)
            cr_assert(fcp_session_run_packed(session, &h->plan, (fcp_pass)pass, &packed[i], NULL, &err) == FCP_OK, "%s",
                      err.message);
    }
    for (int t = 0; t < FCP_TENSORS; t++) {
        uint64_t dims[3];
        fcp_tensor_shape(&shape, (fcp_tensor)t, dims);
        bool same = !memcmp(packed[0].t[t], packed[1].t[t], dims[0] * fcp_tensor_token_bytes(&shape, (fcp_tensor)t));
        cr_assert(same == (t != FCP_TENSOR_DQ), "two runs %s in %s", same ? "agree" : "differ",
                  fcp_tensor_name((fcp_tensor)t));
    }
    for (int i = 0; i < 2; i++) fcp_packed_free(&packed[i]);
    fcp_session_free(session);
    hand_free(h);
}

/* One buffer of dO instead of two, for devices with little shared memory: the bits are the same. */
Test(kernels, one_buffer) {
    static const uint64_t lengths[] = {300, 90};
    for (int dtype = FCP_FP16; dtype <= FCP_BF16; dtype++) {
        static const fcp_backend *const both[] = {&fibers_ordered_backend, &fibers_ordered_one_backend};
        fcp_packed packed[2];
        fcp_shape shape;
        hand *h = hand_make(1, 2, 1, 128, (fcp_dtype)dtype, 1024, dtype == FCP_BF16 ? "causal" : "window", lengths, 2);
        cr_assert_not_null(h);
        memset(packed, 0, sizeof packed);
        fcp_plan_shape(&h->plan, &shape);
        for (int i = 0; i < 2; i++) judge_run(&h->plan, both[i], 2, 5, &packed[i], both[i]->name);
        for (int t = 0; t < FCP_TENSORS; t++)
            cr_assert(!memcmp(packed[0].t[t], packed[1].t[t], fcp_packed_bytes(&shape, (fcp_tensor)t)), "%s differs",
                      fcp_tensor_name((fcp_tensor)t));
        judge_packed(&h->plan, h->plan.problem->passes, &packed[1], both[1]->name);
        for (int i = 0; i < 2; i++) fcp_packed_free(&packed[i]);
        if (dtype == FCP_BF16) judge_plan(&h->plan, &fibers_unordered_one_backend, 6, false, "unordered, one buffer");
        hand_free(h);
    }
}

Test(kernels, head_dims) {
    static const uint64_t lengths[] = {140, 60, 20};
    static const uint32_t dims[] = {16, 32, 64, 128, 256};
    for (size_t i = 0; i < 5; i++)
        for (int dtype = FCP_FP16; dtype <= FCP_BF16; dtype++) {
            judge_hand(hand_make(2, 2, 1, dims[i], (fcp_dtype)dtype, 128, "causal", lengths, 3),
                       dtype == FCP_FP16 ? &fibers_backend : &fibers_ordered_backend, "causal", amount(i == 1, true));
            if (amount(i % 2, false) || dims[i] == 256 || dtype == (dims[i] == 32 ? FCP_FP16 : FCP_BF16)) continue;
            hand *h = hand_make(2, 2, 1, dims[i], (fcp_dtype)dtype, 128, "causal", lengths, 3);
            cr_assert_not_null(h);
            judge_plan(&h->plan, &fibers_unordered_backend, 5, false, "unordered");
            hand_free(h);
        }
}
