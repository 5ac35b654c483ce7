/* test_nccl_fuse.c: runs forward passes in one launch, in processes that communicate by NCCL, with the stand-ins. The
 * launch waits for keys that other processes send. The results are right, and equal those of one process. */
#include "tests/oracle/random_program.h"
#include "tests/support/amount.h"
#include "tests/support/nccl_agree.h"

static void agree_fused(fcp_plan *plan, uint64_t seed, const char *what) {
    task x = {.plan = plan, .graph_from = UINT32_MAX, .times = 2, .seed = seed, .fuse = FCP_FUSE_PASS,
              .device_memory = seed % 2, .way = seed % 3 ? BY_ID : BY_FILE};
    agree(&x, what);
}

/* One node, and nodes whose fabrics have streams and communicators of their own. */
Test(nccl_fuse, ranks) {
    static const char *const masks[] = {"causal", "full", "window(w = 200)"};
    for (unsigned ranks = 2; ranks <= 6; ranks += 2) {
        fcp_plan *plan = make_plan(masks[ranks / 2 - 1], ranks, ranks / 2, "900, 130, 60",
                                   "; margin = 1; strategy = fcp(coalesce = 1, buffers = 8)");
        cr_assert_gt(plan->summary->stages, 2, "%u ranks", ranks);
        agree_fused(plan, ranks, masks[ranks / 2 - 1]);
        fcp_plan_free(plan);
    }
}

/* A program that is drawn, if it is small and its rows are computed at home. NULL: it is not. */
static fcp_plan *plan_drawn(random_program *p, unsigned seed) {
    const char *const defines[] = {"plan.margin=1", "plan.strategy=fcp(coalesce=2, buffers=8)", "plan.passes=forward"};
    dice d = dice_of(seed, 92);
    fcp_plan *plan = NULL;
    fcp_error err;
    char *said = NULL;
    draw_program(p, &d, 12000);
    const uint32_t ranks = p->nodes * p->gpus;
    if (p->dtype == FCP_FP32 || p->head_dim > 32 || p->head_dim < 16 || ranks < 2 || ranks > PROCESSES) return NULL;
    if (p->heads * p->sequences * ranks > 48 || p->tokens * p->heads < 64 * ranks) return NULL;
    PROCESS_PARENT_BEGINS();
    if (plan_try("drawn.fcp", p->text, defines, 3, &plan, &said)) plan = NULL;
    free(said);
    PROCESS_PARENT_ENDS();
    bool fits = plan && plan->transfers_count;
    for (uint32_t r = 0; fits && r < ranks; r++) fits = fcp_fusion_check(plan, r, &err) == FCP_OK;
    if (fits) return plan;
    fcp_plan_free(plan);
    return NULL;
}

Test(nccl_fuse, drawn) {
    const unsigned wanted = amount(2, 12);
    unsigned run = 0;
    PROCESS_PARENT_BEGINS();
    random_program *p = calloc(1, sizeof *p);
    PROCESS_PARENT_ENDS();
    for (unsigned seed = 1; seed <= 12000 && run < wanted; seed++) {
        fcp_plan *plan = plan_drawn(p, seed);
        if (!plan) continue;
        agree_fused(plan, seed, p->text);
        fcp_plan_free(plan);
        run++;
    }
    free(p);
    cr_assert_eq(run, wanted, "%u programs", run);
}
