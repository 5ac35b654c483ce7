/* test_nccl.c: runs plans whose ranks are processes that communicate by NCCL, with stand-ins for NCCL and the
 * driver. The results are right, and equal those of one process. */
#include <limits.h>

#include "tests/oracle/random_program.h"
#include "tests/support/amount.h"
#include "tests/support/nccl_agree.h"

Test(nccl, ranks) {
    static const char *const masks[] = {"causal", "full", "window(w = 200)", "lambda(sink = 8, window = 100)"};
    for (unsigned ranks = 1; ranks <= 8; ranks++) {
        if (amount(ranks == 4 || ranks == 6 || ranks == 7, false)) continue;
        char what[80], lengths[40];
        snprintf(lengths, sizeof lengths, ranks > 6 ? "60:%u, 130, 60" : "%u, 130, 60", 120 + 50 * ranks);
        const char *layout = ranks == 5 || ranks == 7 ? "; layout = zigzag" : ranks % 2 ? ""
                             : ranks > 4              ? "; layout = zigzag(group = 2)" : "; layout = contiguous";
        fcp_plan *plan = make_plan(masks[ranks % 4], ranks, ranks % 2 ? 1 : 2, lengths, layout);
        snprintf(what, sizeof what, "%s on %u ranks", masks[ranks % 4], ranks);
        task x = {
            .plan = plan, .graph_from = UINT32_MAX, .times = 1, .seed = ranks, .way = ranks % 2 ? BY_ID : BY_FILE};
        agree(&x, what);
        fcp_plan_free(plan);
    }
}

Test(nccl, graphs) {
    for (unsigned ranks = amount(2, 1); ranks <= amount(3, 4); ranks++) {
        fcp_plan *plan = make_plan(ranks == 3 ? "full" : "causal", ranks, 1, "280, 130", "; layout = zigzag");
        task x = {.plan = plan, .graph_from = ranks == 2 ? 1 : 2, .times = 3, .seed = 40 + ranks, .odd = 99};
        agree(&x, "graphs");
        fcp_plan_free(plan);
    }
}

/* Ranks that have no tokens, or nobody to talk to in most rounds. The last batch has two blocks for seven ranks. */
Test(nccl, uneven) {
    static const char *const lengths[] = {"240, 60", "270, 20, 20", "300, 65", "200"};
    for (unsigned i = 0; i < 4; i++) {
        fcp_plan *plan = make_plan("causal", 4 + i, 1, lengths[i], i == 1 ? "; strategy = ring" : "");
        unsigned long least = ULONG_MAX, most = 0;
        for (uint32_t r = 0; r < 4 + i; r++) {
            unsigned long groups = groups_of(plan, r, 1, UINT32_MAX, false);
            least = groups < least ? groups : least;
            most = groups > most ? groups : most;
        }
        cr_assert(i == 1 || least < most, "%lu, %lu", least, most);
        task x = {.plan = plan, .graph_from = 1, .times = (int)amount(1, 2), .seed = 60 + i};
        agree(&x, lengths[i]);
        fcp_plan_free(plan);
    }
}

Test(nccl, device_memory) {
    for (unsigned i = 0; i < 2; i++) {
        fcp_plan *plan = make_plan("causal", 3, 1, "280, 130", i ? "; layout = zigzag" : "");
        task x = {.plan = plan, .graph_from = 2, .times = (int)amount(1 + i, 2), .seed = 80 + i, .device_memory = true};
        agree(&x, "device memory");
        fcp_plan_free(plan);
    }
}

/* Graphs of the callers'. */
Test(nccl, callers_graphs) {
    for (unsigned i = 0; i < 2; i++) {
        fcp_plan *plan = make_plan("causal", 2 + 2 * i, 1 + i, "280, 130", i ? "; layout = zigzag" : "");
        task x = {.plan = plan, .graph_from = UINT32_MAX, .times = 1, .seed = 90 + i, .device_memory = true,
                  .outer = true};
        agree(&x, "graphs of the callers'");
        fcp_plan_free(plan);
    }
}

Test(nccl, random_programs) {
    unsigned run = 0, wanted = amount(2, 8);
    PROCESS_PARENT_BEGINS();
    random_program *p = calloc(1, sizeof *p);
    PROCESS_PARENT_ENDS();
    for (unsigned seed = 1; seed <= 12000 && run < wanted; seed++) {
        dice d = dice_of(seed, 99);
        draw_program(p, &d, 12000);
        uint32_t ranks = p->nodes * p->gpus;
        if (p->dtype == FCP_FP32 || p->head_dim > 32 || p->head_dim < 16 || ranks < 2 || ranks > PROCESSES) continue;
        if (p->heads * p->sequences * ranks > 48 || p->tokens * p->heads < 64 * ranks) continue;
        fcpc_options options = FCPC_OPTIONS_INIT;
        PROCESS_PARENT_BEGINS();
        fcpc_diagnostics *said = fcpc_diagnostics_new();
        fcpc_program *program = NULL;
        fcp_plan *plan = NULL;
        fcp_code code = fcpc_parse_text("drawn.fcp", p->text, p->size, &options, said, &program);
        if (!code) code = fcpc_plan(program, NULL, 0, NULL, said, NULL, &plan);
        fcpc_program_free(program);
        fcpc_diagnostics_free(said);
        PROCESS_PARENT_ENDS();
        if (code || !plan->transfers_count) {
            fcp_plan_free(plan);
            continue;
        }
        task x = {.plan = plan, .graph_from = seed % 2 ? 1 : UINT32_MAX, .times = 1, .seed = seed, .way = BY_FILE};
        agree(&x, p->text);
        fcp_plan_free(plan);
        run++;
    }
    free(p);
    cr_assert(run == wanted, "%u programs", run);
}
