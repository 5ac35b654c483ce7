/* test_nccl_fuse.c: tests fused passes in which each rank is a process and receives by NCCL, with the stand-ins. While
 * a launch waits for its keys, NCCL goes on with SMs of its own, and no other kernel runs. Results are right, and equal
 * those of one process. */
#include "tests/support/amount.h"
#include "tests/support/fused_plans.h"
#include "tests/support/nccl_agree.h"

/* Several processes, on one node or two, whose net has a communicator of its own. */
Test(nccl_fuse, ranks) {
    static const char *const masks[] = {"causal", "full", "window(w = 200)"};
    unsigned long during = 0;
    for (unsigned ranks = 2; ranks <= amount(4, 8); ranks += 1 + ranks / 4) {
        char what[80], lengths[40];
        snprintf(lengths, sizeof lengths, "%u, 130", 150 + 70 * ranks);
        snprintf(what, sizeof what, "%s on %u ranks", masks[ranks % 3], ranks);
        fcp_plan *plan = make_plan(masks[ranks % 3], ranks, ranks % 2 ? 1 : 2, lengths,
                                   "; margin = 1; strategy = fcp(coalesce = 1, buffers = 8)");
        task x = {.plan = plan, .fuse = FCP_FUSE_PASS, .graph_from = ranks % 2 ? 1 : UINT32_MAX,
                  .times = (int)amount(1 + ranks % 2, 2),
                  .seed = ranks, .odd = 99, .device_memory = ranks % 4 == 0};
        agree(&x, what);
        during += x.during;
        fcp_plan_free(plan);
    }
    cr_assert_gt(during, 0, "nothing ran while a launch waited");
}

/* Makes a session and nothing else. */
static void create_only(process *p) {
    fcp_session *session = NULL;
    set_up(p, 0);
    p->word->code = create(p, &session, &p->word->err);
    fcp_session_free(session);
}

/* Creates a session in all processes; returns how many ranks refuse. All must: those that could do it are told which
 * rank cannot. */
static unsigned refusals(const fcp_plan *plan, const char *why) {
    task x = {.plan = plan, .fuse = FCP_FUSE_PASS, .graph_from = UINT32_MAX, .odd = 99, .way = BY_FILE};
    const unsigned ranks = plan->problem->ranks;
    unsigned own = 0, all = 0;
    process_shared *s = process_shared_make();
    process_run(s, ranks, create_only, &x);
    process_all_well(s, ranks, 0, why);
    for (unsigned r = 0; r < ranks; r++) {
        const process_word *w = &s->words[r];
        all += w->code != FCP_OK;
        own += w->code == FCP_E_BACKEND && strstr(w->err.message, why);
        cr_assert(!w->code || w->code == FCP_E_START || (w->code == FCP_E_BACKEND && strstr(w->err.message, why)),
                  "rank %u: %d %s", r, w->code, w->err.message);
    }
    process_shared_end(s, false);
    cr_assert(!all || (all == ranks && own), "%u of %u ranks refuse, %u for a reason of their own", all, ranks, own);
    return all;
}

Test(nccl_fuse, refused) {
    static const char *const cases[] = {"; margin = 0; strategy = fcp(coalesce = 1, buffers = 8)",
                                        "; margin = 0; strategy = cad(buffers = 2)"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fcp_plan *plan = make_plan("causal", 4, 1, "560, 130", cases[i]);
        cr_assert_eq(refusals(plan, "a margin of at least 1"), 4, "%s is not refused", cases[i]);
        fcp_plan_free(plan);
    }
}

static void agrees(const fcp_plan *plan, uint64_t seed, const char *what) {
    task x = {.plan = plan, .fuse = FCP_FUSE_PASS, .graph_from = 1, .times = 1, .seed = seed, .odd = 99,
              .way = BY_FILE};
    agree(&x, what);
}

/* Queries go and results come back, also rounded on their way; slots are used again. */
Test(nccl_fuse, moved) {
    static const char *const cases[] = {"cad(buffers = 4); wire = bf16", "cad(buffers = 1)", "dcp(buffers = 2)",
                                        "fcp(coalesce = 1, buffers = 1)"};
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (amount(i == 1, false)) continue;
        char more[100];
        snprintf(more, sizeof more, "; margin = 1; strategy = %s", cases[i]);
        fcp_plan *plan = make_plan(i % 2 ? "causal" : "full", 4, 1 + i % 2, "500, 130", more);
        agrees(plan, i, cases[i]);
        fcp_plan_free(plan);
    }
}

Test(nccl_fuse, drawn) {
    const unsigned wanted = amount(2, 30);
    unsigned run = 0;
    PROCESS_PARENT_BEGINS();
    random_program *p = calloc(1, sizeof *p);
    PROCESS_PARENT_ENDS();
    for (unsigned seed = 1; seed <= 12000 && run < wanted; seed++) {
        dice d = dice_of(seed, 92);
        draw_program(p, &d, 12000);
        PROCESS_PARENT_BEGINS();
        fcp_plan *plan = p->nodes * p->gpus <= PROCESSES ? fused_drawn(p, seed % FUSED_WAYS, false) : NULL;
        PROCESS_PARENT_ENDS();
        if (plan && plan->transfers_count) {
            agrees(plan, seed, p->text);
            run++;
        }
        fcp_plan_free(plan);
    }
    free(p);
    cr_assert_eq(run, wanted, "%u programs were run", run);
}

Test(nccl_fuse, examples) {
    const size_t step = amount(31, 1);
    for (size_t i = 0; i < FUSED_EXAMPLES; i += step) {
        PROCESS_PARENT_BEGINS();
        fcp_plan *plan = fused_example(i, (unsigned)(i / step % FUSED_WAYS), false);
        PROCESS_PARENT_ENDS();
        agrees(plan, i, fused_example_of(i)->file);
        fcp_plan_free(plan);
    }
}
