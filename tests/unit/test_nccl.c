/* test_nccl.c: plans whose ranks are processes that send by NCCL, through libraries that stand in for it and for the driver:
 * what they compute, and that it is what one process computes. */
#include <limits.h>

#include "../oracle/random_program.h"
#include "nccl_ranks.h"

/* All of it in one process. */
static void run_local(process *p) {
    const task *x = p->argument;
    fcp_session_options options = {.backend = "cuda", .timeout_s = 100, .graph_from = UINT32_MAX};
    fcp_session *session;
    fcp_shape shape;
    fcp_error err = {0};
    set_up(p, 0);
    fcp_plan_shape(x->plan, &shape);
    p->cuda->devices = 1 + (int)(x->seed % 3);
    CHECK(p, fcp_session_create(x->plan, &options, &session, &err) == FCP_OK, "%s", err.message);
    for (int i = 0; i < x->times && !p->word->failed[0]; i++) {
        fcp_packed packed = {0};
        CHECK(p, fcp_packed_alloc(&shape, ALL, &packed, &err) == FCP_OK);
        fcp_packed_draw(&shape, ALL, (uint64_t)i + 1, &packed);
        for (int pass = 0; pass < FCP_PASSES; pass++)
            if (shape.has_pass[pass])
                CHECK(p, fcp_session_run_packed(session, x->plan, (fcp_pass)pass, &packed, NULL, &err) == FCP_OK, "%s", err.message);
        for (uint32_t r = 0; r < shape.ranks; r++) put_out(x, r, i, 1, &packed);
        fcp_packed_free(&packed);
    }
    fcp_session_free(session);
}

/* By the definition, and by what one process gives. */
static void judge(process *p) {
    const task *x = p->argument;
    fcp_shape shape;
    fcp_error err = {0};
    fcp_plan_shape(x->plan, &shape);
    for (int i = 0; i < x->times; i++) {
        fcp_packed packed = {0};
        fcp_check_report report = FCP_CHECK_START;
        char *mine = x->out[0] + (size_t)i * x->at[FCP_TENSORS], *theirs = x->out[1] + (size_t)i * x->at[FCP_TENSORS];
        CHECK(p, fcp_packed_alloc(&shape, ALL, &packed, &err) == FCP_OK);
        fcp_packed_draw(&shape, ALL, (uint64_t)i + 1, &packed);
        for (int t = 0; t < FCP_TENSORS; t++) {
            uint64_t dims[3];
            fcp_tensor_shape(&shape, (fcp_tensor)t, dims);
            size_t bytes = dims[0] * fcp_tensor_token_bytes(&shape, (fcp_tensor)t);
            if (!(outputs(x->plan) >> t & 1)) continue;
            memcpy(packed.t[t], mine + x->at[t], bytes);
            CHECK(p, !memcmp(mine + x->at[t], theirs + x->at[t], bytes), "run %d: %s is not what one process gives", i,
                  fcp_tensor_name((fcp_tensor)t));
        }
        CHECK(p, fcp_check_passes(x->plan, x->plan->problem->passes, &packed, 1, NULL, &report, &err) == FCP_OK, "%s", err.message);
        for (int t = 0; t < FCP_TENSORS; t++)
            CHECK(p, !report.tensor[t].checked || report.tensor[t].ok, "%s: error %g, allowed %g", fcp_tensor_name((fcp_tensor)t),
                  report.tensor[t].max_abs_error, report.tensor[t].tolerance);
        fcp_packed_free(&packed);
    }
}

/* Ranks, one process, and the definition agree. */
static void agree(task *x, const char *what) {
    unsigned ranks = x->plan->problem->ranks;
    process_shared *s = process_shared_make();
    lay_out(x);
    process_run(s, ranks, run_rank, x);
    process_all_well(s, ranks, 0, what);
    for (unsigned r = 0; r < ranks; r++) cr_assert_eq(s->words[r].code, FCP_OK, "%s: rank %u: %s; %s", what, r, s->words[r].err.message, s->words[r].trouble);
    no_trouble(s, ranks, 0, what);
    process_run(s, 1, run_local, x);
    process_all_well(s, 1, 0, what);
    process_run(s, 1, judge, x);
    process_all_well(s, 1, 0, what);
    process_shared_end(s, false);
    for (int i = 0; i < 2; i++) munmap(x->out[i], x->at[FCP_TENSORS] * (size_t)x->times);
    x->out[0] = x->out[1] = NULL;
}

Test(nccl, ranks) {
    static const char *const masks[] = {"causal", "full", "window(w = 200)", "lambda(sink = 8, window = 100)"};
    for (unsigned ranks = 1; ranks <= 8; ranks++) {
        char what[80], lengths[40];
        snprintf(lengths, sizeof lengths, "%u, 130, 60", 300 + 70 * ranks);
        fcp_plan *plan = make_plan(masks[ranks % 4], ranks, ranks % 2 ? 1 : 2, lengths, ranks % 2 ? "" : "; layout = contiguous");
        snprintf(what, sizeof what, "%s on %u ranks", masks[ranks % 4], ranks);
        task x = {.plan = plan, .graph_from = UINT32_MAX, .times = 1, .seed = ranks, .way = ranks % 2 ? BY_ID : BY_FILE};
        agree(&x, what);
        fcp_plan_free(plan);
    }
}

Test(nccl, graphs) {
    for (unsigned ranks = 1; ranks <= 4; ranks++) {
        fcp_plan *plan = make_plan(ranks == 3 ? "full" : "causal", ranks, 1, "330, 130", "; layout = zigzag");
        task x = {.plan = plan, .graph_from = ranks == 2 ? 1 : 2, .times = 3, .seed = 40 + ranks, .odd = 99};
        agree(&x, "graphs");
        fcp_plan_free(plan);
    }
}

/* Ranks that have no tokens, or nobody to talk to in most rounds. */
Test(nccl, uneven) {
    static const char *const lengths[] = {"450, 60", "600, 20, 20", "700, 65"};
    for (unsigned i = 0; i < 3; i++) {
        fcp_plan *plan = make_plan("causal", 4 + i, 1, lengths[i], i == 1 ? "; strategy = ring" : "");
        unsigned long least = ULONG_MAX, most = 0;
        for (uint32_t r = 0; r < 4 + i; r++) {
            unsigned long groups = groups_of(plan, r, 1, UINT32_MAX, false);
            least = groups < least ? groups : least;
            most = groups > most ? groups : most;
        }
        cr_assert(i == 1 || least < most, "%lu, %lu", least, most);
        task x = {.plan = plan, .graph_from = 1, .times = 2, .seed = 60 + i};
        agree(&x, lengths[i]);
        fcp_plan_free(plan);
    }
}

Test(nccl, device_memory) {
    for (unsigned i = 0; i < 2; i++) {
        fcp_plan *plan = make_plan("causal", 3, 1, "330, 130", i ? "; layout = zigzag" : "");
        task x = {.plan = plan, .graph_from = 2, .times = 2, .seed = 80 + i, .device_memory = true};
        agree(&x, "device memory");
        fcp_plan_free(plan);
    }
}

Test(nccl, random_programs) {
    unsigned run = 0;
    PROCESS_PARENT_BEGINS();
    random_program *p = calloc(1, sizeof *p);
    PROCESS_PARENT_ENDS();
    for (unsigned seed = 1; seed <= 12000 && run < 8; seed++) {
        dice d = {.state = seed * UINT64_C(0x9e3779b97f4a7c15) + 99};
        for (int i = 0; i < 8; i++) roll(&d, 2);
        draw_program(p, &d, 12000);
        uint32_t ranks = p->nodes * p->gpus;
        if (p->dtype == FCP_FP32 || p->head_dim > 32 || p->head_dim < 16 || ranks < 2 || ranks > PROCESSES) continue;
        if (p->heads * p->sequences * ranks > 48 || p->tokens * p->heads < 64 * ranks) continue;
        fcpc_options options = {0};
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
    cr_assert(run == 8, "%u programs", run);
}
