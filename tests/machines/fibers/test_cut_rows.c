/* test_cut_rows.c: rows whose keys are cut, because there are fewer rows than multiprocessors. Each part leaves a running
 * state, and the one that comes last joins them. The results are right, and their bits the same in every run, whichever
 * part that is. */
#include <stdio.h>

#include "runtime/kernels/work.h"
#include "tests/machines/fibers/fibers.h"
#include "tests/support/amount.h"
#include "tests/support/judge_plan.h"
#include "tests/support/order_model.h"
#include "tests/support/plan_of.h"

/* How many parts the forward lists of all ranks have together; `later`: how many go on from an earlier state. */
static uint64_t parts_of(const fcp_plan *plan, bool later) {
    uint64_t parts = 0;
    for (uint32_t rank = 0; rank < plan->problem->ranks; rank++) {
        fcp_kernel_work w = {0};
        fcp_arena a;
        fcp_error err;
        uint64_t *first = order_model_arena(plan, rank, FCP_FORWARD, &a);
        const fcp_stream *stream = fcp_stream_of(plan, FCP_FORWARD, rank, FCP_COMPUTE);
        for (uint32_t i = stream->first; i < stream->first + stream->count; i++) {
            const fcp_instr *x = &plan->instrs[i];
            if (x->op != FCP_OP_ATTEND) continue;
            for (w.range = FCP_NONE; (w.range = fcp_kernel_next_range(plan, x->a, x->b, w.range)) != FCP_NONE;) {
                cr_assert_eq(fcp_kernel_rows(&w, &a, x->a, x->b, &err), FCP_OK);
                for (uint32_t r = 0; r < w.row_count; r++)
                    parts += w.rows[r].parts > 1 && (!later || !(w.rows[r].flags & FK_FIRST));
            }
        }
        fcp_kernel_work_free(&w);
        free(first);
    }
    return parts;
}

static void judge_stages(const char *model, const char *rest, const fcp_backend *backend, bool later, bool twice) {
    char text[800];
    snprintf(text, sizeof text, "model { %s }\n%s", model, rest);
    fcp_plan *plan = plan_named("cut.fcp", text);
    cr_assert(parts_of(plan, later), "%s", text);
    judge_plan(plan, backend, 7, twice && (amount(false, true) || backend == &fibers_backend), text);
    fcp_plan_free(plan);
}

static void judge(const char *model, const char *rest, const fcp_backend *backend, bool twice) {
    judge_stages(model, rest, backend, false, twice);
}

#define ONE(mask, more) "cluster { gpu = h100 }\nbatch { lengths = [1900, 300] }\nplan { mask = " mask \
                        "; block = 1K; strategy = fcp(coalesce = 8); passes = forward" more " }\n"
/* Stages, of which the later ones go on from the running states of those before. */
#define FOUR "cluster { gpus = 2; gpu = h100 }\nbatch { lengths = [2500, 700] }\nplan { mask = causal; block = 512; " \
             "passes = forward }\n"
Test(cut_rows, causal) { judge("heads = 2; kv_heads = 1; head_dim = 16", ONE("causal", ""), &fibers_backend, true); }
Test(cut_rows, causal_sm90) {
    judge("heads = 2; kv_heads = 1; head_dim = 64", ONE("causal", ""), &fibers_sm90_backend, true);
}
Test(cut_rows, wide_sm90) { /* a part has 64 keys to a step; fp16 */
    judge("heads = 1; kv_heads = 1; head_dim = 256; dtype = fp16", ONE("causal", ""), &fibers_sm90_backend, false);
}
Test(cut_rows, wide) {
    judge("heads = 1; kv_heads = 1; head_dim = 256; dtype = fp16", ONE("full", ""), &fibers_backend, false);
}
Test(cut_rows, score_and_sinks) {
    judge("heads = 4; kv_heads = 2; head_dim = 32; dtype = fp16",
          ONE("full", "; score = alibi; sink = [0.5, -1.0, 2.0, 0.0]"), &fibers_backend, false);
}
Test(cut_rows, score_and_sinks_sm90) {
    judge("heads = 2; kv_heads = 1; head_dim = 128; dtype = fp16", ONE("causal", "; score = alibi; sink = [0.5, -1.0]"),
          &fibers_sm90_backend, false);
}
Test(cut_rows, parts_without_a_pair) { /* some rows of a tile see no key of some parts */
    judge("heads = 2; kv_heads = 1; head_dim = 16",
          ONE("m", "") "mask m = k < 100 or (q % 2 == 0 and k < 1100) or (q % 3 == 0 and k > 1500)\n", &fibers_backend,
          true);
}
Test(cut_rows, by_head) {
    judge("heads = 2; kv_heads = 1; head_dim = 16",
          ONE("m", "") "mask m = causal and (h % 2 == 0 or q - k < 500)\n", &fibers_backend, false);
}
Test(cut_rows, stages) {
    judge_stages("heads = 2; kv_heads = 1; head_dim = 16", FOUR, &fibers_backend, true, true);
}
Test(cut_rows, stages_sm90) {
    judge_stages("heads = 2; kv_heads = 1; head_dim = 64", FOUR, &fibers_sm90_backend, true, true);
}

/* Two rows that are left for three multiprocessors: parts of different lengths. */
#define CHAIN "cluster { gpus = 2; gpu = h100 }\nbatch { lengths = [256:4K] }\nplan { mask = full; block = 1K; " \
              "strategy = ring; margin = 129; passes = forward }\n"
Test(cut_rows, chains) { judge("heads = 5; kv_heads = 1; head_dim = 16", CHAIN, &fibers_backend, true); }
Test(cut_rows, chains_sm90) { judge("heads = 5; kv_heads = 1; head_dim = 64", CHAIN, &fibers_sm90_backend, false); }
