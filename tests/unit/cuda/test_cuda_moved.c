/* test_cuda_moved.c: tests CUDA sessions on plans in which blocks are computed away from home, with partial and whole
 * results, relays, and merges on the way. The plans are random (scatter.h). The kernels run on fibers, and the driver
 * is the stand-in. */
#include "runtime/exec/segments.h"
#include "tests/support/amount.h"
#include "tests/support/cuda_stand.h"
#include "tests/support/scatter.h"

/* Runs both passes, the second time from a graph. Outputs must be right, or have nothing finite. */
static void run_judged(standin *x, const fcp_plan *plan, const char *what) {
    const fcp_check_report report = stand_judge(x, plan, what, 2);
    for (int t = 0; t < FCP_TENSORS; t++)
        cr_assert(!report.tensor[t].checked || report.tensor[t].ok || report.tensor[t].verdict == FCP_NOTHING_FINITE,
                  "%s: %s: error %g, naive %g, allowed %g at %lu", what, fcp_tensor_name((fcp_tensor)t),
                  report.tensor[t].max_abs_error, report.tensor[t].reference_error, report.tensor[t].tolerance,
                  (unsigned long)report.tensor[t].worst);
}

Test(cuda_moved, scattered_plans) {
    static const char *const masks[] = {"causal", "full", "window(w = 100)", "lambda(sink = 9, window = 150)",
                                        "shared_question(p = 40, answers = 3)", "prefix(p = 70)"};
    static const char *const more[] = {"", "; deterministic = false", "; score = softcap(c = 20.0)", "; sink = 0.5"};
    standin *x = stand();
    uint32_t whole = 0, merged = 0, rounded = 0;
    for (uint64_t seed = 1; seed < 1 + amount(7, 80); seed++) {
        char text[600];
        uint32_t nodes = 1 + scatter_draw(seed, 100, 0, 2), gpus = 1 + scatter_draw(seed, 100, 1, 3);
        uint32_t kv_heads = 1 + scatter_draw(seed, 100, 2, 2), dim = scatter_draw(seed, 100, 3, 4) ? 16 : 64;
        snprintf(text, sizeof text,
                 "model { heads = %u; kv_heads = %u; head_dim = %u; dtype = %s }\ncluster { nodes = %u; gpus = %u }\n"
                 "batch { lengths = [%u, 130%s, 60] }\nplan { mask = %s; block = 128%s%s }\n",
                 kv_heads * (1 + scatter_draw(seed, 100, 4, 2)), kv_heads, dim,
                 scatter_draw(seed, 100, 5, 2) ? "bf16" : "fp16", nodes, gpus, 150 + scatter_draw(seed, 100, 6, 250),
                 scatter_draw(seed, 100, 7, 4) ? "" : ":300", masks[scatter_draw(seed, 100, 8, 6)],
                 more[scatter_draw(seed, 100, 9, dim == 64 ? 2 : 4)],
                 scatter_draw(seed, 100, 10, 2) ? "; wire = bf16" : "");
        scatter by = scatter_new(seed);
        by.one_range = seed % 3 == 0;
        by.whole = seed % 4 == 0;
        fcp_plan *plan = scatter_plan(text, &by);
        cr_assert_not_null(plan, "%s", text);
        for (uint64_t b = 0; b < plan->blocks_count; b++) whole += plan->blocks[b].flags & FCP_BLOCK_WHOLE;
        for (uint64_t i = 0; i < plan->instrs_count; i++) merged += plan->instrs[i].op == FCP_OP_MERGE;
        for (uint64_t i = 0; i < plan->transfers_count; i++) rounded += fcp_is_rounded(plan, &plan->transfers[i]);
        run_judged(x, plan, text);
        fcp_plan_free(plan);
    }
    cr_assert(whole > 10 && merged > 10 && rounded > 10, "%u whole blocks, %u merges, %u rounded partials", whole,
              merged, rounded);
}
