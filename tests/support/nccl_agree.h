/* nccl_agree.h: runs a plan in one process for each rank, and asserts that the results are right and have the same bits
 * as in a run in one process. */
#ifndef NCCL_AGREE_H
#define NCCL_AGREE_H
#include "tests/support/nccl_ranks.h"

/* All of it in one process. */
static inline void run_local(process *p) {
    const task *x = p->argument;
    fcp_session_options options = {.size = sizeof options,
                                   .backend = "cuda",
                                   .timeout_s = 100,
                                   .graph_from = UINT32_MAX,
                                   .fuse = x->fuse};
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
                CHECK(p, fcp_session_run_packed(session, x->plan, (fcp_pass)pass, &packed, NULL, &err) == FCP_OK, "%s",
                      err.message);
        for (uint32_t r = 0; r < shape.ranks; r++) put_out(x, r, i, 1, &packed);
        fcp_packed_free(&packed);
    }
    fcp_session_free(session);
}

/* By the definition, and by what one process gives. */
static inline void judge(process *p) {
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
        CHECK(p, fcp_check_run(x->plan,
                          &(fcp_check_options){.passes = x->plan->problem->passes, .threads = 1}, &packed, &report,
                          &err) == FCP_OK, "%s", err.message);
        for (int t = 0; t < FCP_TENSORS; t++)
            CHECK(p, !report.tensor[t].checked || report.tensor[t].ok, "%s: error %g, allowed %g",
                  fcp_tensor_name((fcp_tensor)t), report.tensor[t].max_abs_error, report.tensor[t].tolerance);
        fcp_packed_free(&packed);
    }
}

/* Ranks, one process, and the definition agree. */
static inline void agree(task *x, const char *what) {
    unsigned ranks = x->plan->problem->ranks;
    process_shared *s = process_shared_make();
    lay_out(x);
    process_run(s, ranks, run_rank, x);
    process_all_well(s, ranks, 0, what);
    for (unsigned r = 0; r < ranks; r++)
        cr_assert_eq(s->words[r].code, FCP_OK, "%s: rank %u: %s; %s", what, r, s->words[r].err.message,
                     s->words[r].trouble);
    no_trouble(s, ranks, 0, what);
    for (unsigned r = 0; r < ranks; r++) x->during += s->words[r].during;
    process_run(s, 1, run_local, x);
    process_all_well(s, 1, 0, what);
    process_run(s, 1, judge, x);
    process_all_well(s, 1, 0, what);
    process_shared_end(s, false);
    for (int i = 0; i < 2; i++) munmap(x->out[i], x->at[FCP_TENSORS] * (size_t)x->times);
    x->out[0] = x->out[1] = NULL;
}
#endif
