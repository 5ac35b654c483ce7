/* test_backward_sm90.c: tests the backward skeleton for sm_90a on fibers: runs whole plans and compares the gradients
 * with the definition of attention. */
#include "tests/support/cut_items.h"
#include "tests/support/hand_plan.h"
#include "tests/support/plan_of.h"
#include "tests/machines/fibers/programs.h"

/* Twice: the second time has the same bits. In make check one mask and one head_dim show that. */
static void judge_hand(hand *h, const fcp_backend *backend, const char *mask, bool twice) {
    char what[120];
    cr_assert_not_null(h);
    snprintf(what, sizeof what, "mask %s, %u ranks, %u / %u heads of %u, %s, %s", mask, h->problem.ranks,
             h->problem.heads, h->problem.kv_heads, h->problem.head_dim, fcp_dtype_name((fcp_dtype)h->problem.dtype),
             backend->name);
    judge_plan(&h->plan, backend, 5, twice, what);
    hand_free(h);
}

static const uint64_t mixed[] = {200, 60, 129, 1, 64};

static const char *const masks[] = {"full", "causal", "none", "window", "odd", "head", "tail", "gap"};

/* Whole tiles by TMA, ragged ones gathered; visits that are first, last, or neither; rows and keys that
 * moved. */
Test(backward_sm90, masks) {
    for (size_t m = 0; m < sizeof masks / sizeof *masks; m++) {
        if (amount(m % 3 == 0, false)) continue; /* those that masks_128 has */
        judge_hand(hand_make(1 + m % 3, 2, 1 + m % 2, 64, m % 2 ? FCP_BF16 : FCP_FP16, 256, masks[m], mixed, 5),
                   &fibers_sm90_backend, masks[m], amount(m == 1, true));
    }
}
Test(backward_sm90, masks_128) {
    for (size_t m = 0; m < sizeof masks / sizeof *masks; m += 3)
        judge_hand(hand_make(1 + m % 3, 2, 1 + m % 2, 128, m % 2 ? FCP_FP16 : FCP_BF16, 256, masks[m], mixed, 5),
                   &fibers_sm90_backend, masks[m], amount(m == 3, true));
}

/* dQ is added in any order, and is right all the same. */
Test(backward_sm90, unordered) {
    static const uint64_t lengths[] = {400, 130};
    for (uint32_t head_dim = 64; head_dim <= 128; head_dim *= 2) {
        hand *h = hand_make(2, 2, 1, head_dim, head_dim == 64 ? FCP_FP16 : FCP_BF16, 1024, "causal", lengths, 2);
        cr_assert_not_null(h);
        judge_plan(&h->plan, &fibers_unordered_sm90_backend, 7, false, "unordered");
        hand_free(h);
    }
}

/* dK and dV are stored where nothing has been added before, and added where something has: by an earlier ATTEND, or by
 * a REDUCE. */
Test(backward_sm90, sums_begin_and_go_on) {
    fcp_plan *plan =
        plan_named("begin.fcp", "model { heads = 1; kv_heads = 1; head_dim = 64; dtype = bf16 }\n"
                                "cluster { gpus = 3; gpu = cpu }\nbatch { lengths = [900, 300, 130, 20] }\n"
                                "plan { mask = causal; block = 128; strategy = cad; "
                                "passes = forward, backward }\n");
    const cut_items items = cut_items_of(plan, FCP_BACKWARD, FCP_KEYS_ORDERED);
    cr_assert(items.begin && items.go_on);
    judge_plan(plan, &fibers_sm90_backend, 5, false, "sums begin and go on");
    judge_plan(plan, &fibers_unordered_sm90_backend, 5, false, "sums begin and go on, in any order");
    fcp_plan_free(plan);
}

/* Random programs, of these head_dims. FIBER_RUNS sets how many are drawn. */
Test(backward_sm90, random_programs) {
    unsigned draws = draws_of(400), run = 0;
    random_program *p = calloc(1, sizeof *p);
    for (unsigned seed = 1; seed <= draws; seed++) {
        dice d = dice_of(seed, 90);
        draw_program(p, &d, 12000);
        const char *const defines[] = {seed % 2 ? "model.head_dim=64" : "model.head_dim=128",
                                       seed / 2 % 2 ? "model.dtype=bf16" : "model.dtype=fp16",
                                       "plan.passes=forward,backward"};
        uint32_t cost = p->heads * p->sequences * p->nodes * p->gpus * (seed % 2 ? 2 : 4);
        if (cost > 32 || p->tokens * p->heads < 64) continue;
        char *picture;
        fcpc_options options = {.size = sizeof(fcpc_options),
                                .defines = (const char **)(uintptr_t)defines,
                                .define_count = 3};
        fcp_plan *plan = make_plan(NULL, p, &options, &picture);
        const bool has = plan && fibers_kernels_of(plan);
        if (has)
            judge_plan(plan, seed % 5 ? &fibers_sm90_backend : &fibers_unordered_sm90_backend, seed, false, p->text);
        run += has;
        fcp_plan_free(plan);
        free(picture);
    }
    fprintf(stderr, "sm_90a: %u programs drawn, %u run\n", draws, run);
    cr_assert(run >= draws / 20, "too few programs were run for this test to mean anything");
    free(p);
}

/* Rows that see a key or two, each of small weight. Where they see no key, what is computed beside them is huge. */
Test(backward_sm90, few_keys) {
    static const uint64_t lengths[] = {1, 2, 1, 3, 1, 1, 2, 1};
    for (uint32_t head_dim = 64; head_dim <= 128; head_dim *= 2) {
        hand *h = hand_make(1, 4, 2, head_dim, FCP_BF16, 64, "full", lengths, 8);
        cr_assert_not_null(h);
        h->problem.scale = 8;
        judge_plan(&h->plan, &fibers_sm90_backend, 7, false, "few keys");
        hand_free(h);
    }
}
