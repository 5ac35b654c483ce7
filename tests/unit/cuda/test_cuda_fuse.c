/* test_cuda_fuse.c: tests forward passes in one launch, whose blocks wait for the rounds that bring their keys, through
 * the driver that stands in. It begins such a launch before, between and behind the rounds, runs its blocks in any
 * order, and lets nothing but copies run while all blocks wait. Results are compared with the definition of attention
 * in float64. */
#include <criterion/criterion.h>

#include "runtime/kernels/fuse.h"
#include "tests/support/amount.h"
#include "tests/support/cuda_stand.h"
#include "tests/support/fused_plans.h"
#include "tests/support/judge_packed.h"

enum { HOPPER = 232448 };

static const fcp_session_options fused = {.size = sizeof fused,
                                          .backend = "cuda",
                                          .timeout_s = 100,
                                          .graph_from = 1,
                                          .partition = FCP_PARTITION_GRID,
                                          .fuse = FCP_FUSE_PASS};

/* Devices of its own for each rank; all ranks on one; nodes, whose fabrics have streams of their own. */
Test(cuda_fuse, passes) {
    static const struct {
        const char *mask;
        unsigned ranks, nodes;
        int devices;
    } cases[] = {{"causal", 4, 1, 4}, {"full", 4, 2, 4}, {"window(w = 150)", 3, 1, 1}, {"causal", 6, 3, 6}};
    standin *x = stand();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fcp_plan *plan = make_plan(cases[i].mask, cases[i].ranks, cases[i].nodes,
                                   "; margin = 1; strategy = fcp(coalesce = 1, buffers = 8)");
        cr_assert_gt(plan->summary->stages, 2, "%s has %lu stages", cases[i].mask, (long)plan->summary->stages);
        x->devices = cases[i].devices;
        x->seed = i;
        stand_run(x, plan, &fused, i ? 1 : 2, cases[i].mask);
        fcp_plan_free(plan);
    }
    cr_assert_gt(x->kernels_with_flags, 0);
    cr_assert_gt(x->during, 0, "no launch has waited for a round");
    cr_assert_eq(x->graph_launches, 5, "%lu graphs: only backward passes may be some", x->graph_launches);
}

#define SMALL(model, lengths, plan)                                                                                    \
    "model { " model "; dtype = bf16 }\ncluster { gpus = 3 }\nbatch { lengths = [" lengths "] }\n"                     \
    "plan { block = 128; passes = forward; strategy = fcp(coalesce = 1, buffers = 8); " plan " }\n"

/* The kernels for sm_90a; keys in parts, of which some wait for one round and some for another; heads that see
 * different keys; sinks and scores; results that go back to another layout. */
Test(cuda_fuse, programs) {
    static const struct {
        const char *text;
        bool hopper;
    } cases[] = {
        {SMALL("heads = 2; kv_heads = 1; head_dim = 64", "300, 170", "mask = causal"), true},
        {SMALL("heads = 1; kv_heads = 1; head_dim = 64", "290, 100", "mask = full; score = softcap"), true},
        {SMALL("heads = 1; kv_heads = 1; head_dim = 128", "290, 100", "mask = full"), true},
        {SMALL("heads = 4; kv_heads = 2; head_dim = 64", "1:900, 5:400, 130", "mask = causal"), true},
        {SMALL("heads = 4; kv_heads = 2; head_dim = 16", "1:900, 5:400, 130", "mask = causal"), false},
        {"mask by_head = causal and (q - k < 40 or h == 1)\n"
         SMALL("heads = 2; kv_heads = 2; head_dim = 32", "400, 90", "mask = by_head"), false},
        {SMALL("heads = 2; kv_heads = 1; head_dim = 32", "400, 90",
               "mask = causal; sink = [0.5, -1.0]; layout = zigzag"), false}};
    standin *x = stand();
    x->devices = 3;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fcp_plan *plan = plan_named("program", cases[i].text);
        x->major = cases[i].hopper ? 9 : 8;
        x->minor = 0;
        x->shared = cases[i].hopper ? HOPPER : 166912;
        x->seed = 3 * i;
        stand_run(x, plan, &fused, 1, cases[i].text);
        fcp_plan_free(plan);
    }
    cr_assert_gt(x->kernels_with_maps, 2);
    cr_assert_gt(x->during, 0, "no launch has waited for a round");
}

/* Whether a plan is refused: some rank computes rows of another one, as with tokens = equal. */
static bool is_refused(standin *x, const fcp_plan *plan) {
    fcp_session *session = NULL;
    fcp_error err;
    x->plan = plan;
    const fcp_code code = fcp_session_create(plan, &fused, &session, &err);
    fcp_session_free(session);
    cr_assert(!code || (code == FCP_E_BACKEND && strstr(err.message, "their results travel")), "%s", err.message);
    return code;
}

/* Random programs, placed so that most compute rows at home. */
Test(cuda_fuse, drawn) {
    const unsigned draws = amount(150, 1500);
    unsigned run = 0;
    standin *x = stand();
    random_program *p = calloc(1, sizeof *p);
    for (unsigned seed = 1; seed <= draws; seed++) {
        dice d = dice_of(seed, 91);
        draw_program(p, &d, 12000);
        fcp_plan *plan = fused_drawn(p, false);
        if (!plan) continue;
        x->devices = (int)(1 + seed % 3);
        x->seed = seed;
        const bool refuses = is_refused(x, plan);
        if (!refuses) stand_run(x, plan, &fused, 1, p->text);
        fcp_plan_free(plan);
        run += !refuses;
    }
    free(p);
    cr_assert_gt(run, draws / 20, "only %u of %u programs were run", run, draws);
    cr_assert_gt(x->during, run / 4, "launches have waited for %lu rounds only", x->during);
}

Test(cuda_fuse, examples) {
    const size_t step = amount(4, 1);
    size_t run = 0;
    standin *x = stand();
    x->devices = 3;
    for (size_t i = 0; i < FUSED_EXAMPLES; i += step) {
        fcp_plan *plan = fused_example(i, false);
        const bool refuses = is_refused(x, plan);
        x->seed = i;
        if (!refuses) stand_run(x, plan, &fused, 1, fused_example_of(i)->file);
        else fprintf(stderr, "%s is refused\n", fused_example_of(i)->file);
        run += !refuses;
        fcp_plan_free(plan);
    }
    cr_assert_gt(run, FUSED_EXAMPLES / step * 3 / 4, "%zu of %zu examples were run", run, FUSED_EXAMPLES / step);
}

/* A plan of more stages than a plan may have buffers is told what helps. */
Test(cuda_fuse, many_stages) {
    static const small_example long_one = {"masks/global_field.fcp", NULL, {"model.heads=1"}};
    fcp_plan *plan;
    char *said;
    fcp_error err = {0};
    cr_assert_eq(fused_try(&long_one, "plan.strategy=fcp(coalesce=1, buffers=8)", false, &plan, &said), FCP_OK);
    cr_assert_eq(fcp_fusion_check_plan(plan, &err), FCP_E_BACKEND);
    cr_assert(strstr(err.message, "9 stages, but a plan at most 8 buffers"), "%s", err.message);
    free(said);
    fcp_plan_free(plan);
}

static void refused(standin *x, const char *more, int devices, fcp_code want, const char *why) {
    fcp_plan *plan = make_plan("causal", 4, 1, more);
    fcp_session *session = NULL;
    fcp_error err = {0};
    x->plan = plan;
    x->devices = devices;
    cr_assert_eq(fcp_session_create(plan, &fused, &session, &err), want, "%s", more);
    cr_assert(strstr(err.message, why), "%s: %s", more, err.message);
    cr_assert_eq(x->live, 0, "%s: %ld objects are left", more, x->live);
    fcp_plan_free(plan);
}

Test(cuda_fuse, refused) {
    standin *x = stand();
    refused(x, "; strategy = fcp(coalesce = 1, buffers = 1)", 4, FCP_E_BACKEND, "compile the plan with buffers = ");
    refused(x, "; strategy = fcp(coalesce = 1, buffers = 8); margin = 0", 1, FCP_E_BACKEND, "a margin of at least 1");
    refused(x, "; strategy = cad(buffers = 8)", 4, FCP_E_BACKEND, "their results travel");
}

Test(cuda_fuse, options) {
    fcp_plan *plan = make_plan("causal", 2, 1, "");
    fcp_session_options options = {.size = sizeof options, .backend = "host", .fuse = FCP_FUSE_PASS};
    fcp_session *session = NULL;
    fcp_error err = {0};
    cr_assert_eq(fcp_session_create(plan, &options, &session, &err), FCP_E_BACKEND);
    cr_assert(strstr(err.message, "host computes by stages"), "%s", err.message);
    options.fuse = (fcp_fuse)(FCP_FUSE_PASS + 1);
    cr_assert_eq(fcp_session_create(plan, &options, &session, &err), FCP_E_ARGUMENT);
    fcp_plan_free(plan);
}
