/* test_cuda_sinks.c: sinks that a run brings, and their gradients, on the stand-in driver: against the host, for
 * several ranks and ranges of heads, in host and device memory, with and without graphs. */
#include <math.h>

#include "tests/support/amount.h"
#include "tests/support/cuda_stand.h"
#include "tests/support/rank_tensors.h"

enum { HEADS = 8, RANKS_MAX = 4, TIMES = 4 };

static fcp_plan *sink_plan(const char *strategy, unsigned ranks, const char *layout, unsigned tokens) {
    char text[500];
    snprintf(text, sizeof text,
             "model { heads = 8; kv_heads = 4; head_dim = 16; dtype = bf16 }\ncluster { gpus = %u }\n"
             "batch { lengths = [%u, 61, 70] }\nplan { mask = causal; block = 128; strategy = %s%s\n"
             "sink = [0.5, -1.0, 2.0, 0.0, 1.0, 0.25, -0.5, 3.0] }\n",
             ranks, tokens, strategy, layout);
    return plan_named("sinks.fcp", text);
}

/* The tensors of all ranks of a plan. */
struct run {
    const fcp_plan *plan;
    fcp_shape shape;
    fcp_tensors tensors[RANKS_MAX];
    float sink[HEADS], d_sink[RANKS_MAX][HEADS];
};

static void run_open(struct run *x, const fcp_plan *plan) {
    *x = (struct run){.plan = plan};
    fcp_plan_shape(plan, &x->shape);
    rank_tensors_open(plan, &x->shape, x->tensors);
}

/* Both passes; with `own`, on sinks of the run. */
static void passes(struct run *x, fcp_session *session, bool own) {
    fcp_error err = {0};
    for (uint32_t r = 0; r < x->shape.ranks; r++) {
        for (int h = 0; h < HEADS; h++) x->sink[h] = 1.5f - 0.5f * (float)h, x->d_sink[r][h] = 99;
        x->tensors[r].sink = own ? x->sink : NULL;
        x->tensors[r].d_sink = x->d_sink[r];
    }
    for (int pass = 0; pass < FCP_PASSES; pass++)
        cr_assert(fcp_session_run(session, (fcp_pass)pass, x->tensors, &err) == FCP_OK, "%s; %s", err.message,
                  stand()->trouble);
}

static void compare(const struct run *cuda, const struct run *host, const char *what) {
    double largest = 0;
    for (uint32_t r = 0; r < host->shape.ranks; r++)
        for (int h = 0; h < HEADS; h++) {
            const double a = (double)cuda->d_sink[r][h], b = (double)host->d_sink[r][h];
            cr_assert(fabs(a - b) < 0.02 * (1 + fabs(b)), "%s: rank %u, head %d: %g, not %g", what, r, h, a, b);
            largest = fmax(largest, fabs(b));
        }
    cr_assert(largest > 0.2, "%s: nothing was tested", what);
}

static void judge(const char *strategy, unsigned ranks, const char *layout, unsigned tokens) {
    standin *control = stand();
    fcp_plan *plan = sink_plan(strategy, ranks, layout, tokens);
    fcp_session *cuda, *host;
    struct run ours, theirs;
    fcp_error err = {0};
    float first[2][RANKS_MAX][HEADS];
    control->plan = plan;
    run_open(&ours, plan);
    run_open(&theirs, plan);
    cr_assert(fcp_session_create(plan, NULL, &host, &err) == FCP_OK, "%s", err.message);
    const fcp_session_options options = {.size = sizeof options, .backend = "cuda", .timeout_s = 100};
    cr_assert(fcp_session_create(plan, &options, &cuda, &err) == FCP_OK, "%s", err.message);
    /* from the third on by graphs; every other time on the plan's sinks */
    for (int time = 0; time < (int)amount(TIMES - 1, TIMES); time++) {
        const bool own = time % 2 == 0;
        passes(&ours, cuda, own);
        passes(&theirs, host, own);
        compare(&ours, &theirs, strategy);
        if (time < 2) memcpy(first[time], ours.d_sink, sizeof ours.d_sink);
        else cr_assert(memcmp(first[time % 2], ours.d_sink, ranks * sizeof ours.d_sink[0]) == 0, "the same bits");
    }
    cr_assert(memcmp(first[0], first[1], ranks * sizeof ours.d_sink[0]) != 0, "a run's own sinks matter");
    fcp_session_free(cuda);
    fcp_session_free(host);
    cr_assert(!*control->trouble && !control->live, "%s: %s", strategy, control->trouble);
    rank_tensors_close(&ours.shape, ours.tensors);
    rank_tensors_close(&theirs.shape, theirs.tensors);
    fcp_plan_free(plan);
}

Test(cuda_sinks, one_rank) { judge("fcp", 1, "", 140); }
Test(cuda_sinks, several_ranks) { judge("fcp", 3, "; layout = zigzag", 140); }
Test(cuda_sinks, a_gradient_of_lse) { judge("fcp", 2, "; layout = zigzag; lse_gradient = true", 140); }
Test(cuda_sinks, ranges_of_heads) { judge("ulysses", 4, "; layout = contiguous", 90); }
Test(cuda_sinks, heads_in_turns) { judge("upipe", 2, "", 90); }
