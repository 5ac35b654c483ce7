/* test_cuda_fuse.c: tests fused passes, whose CTAs wait for the rounds that bring what they read, on the stand-in
 * driver. That driver begins such a launch before, between and after the rounds, runs its CTAs in any order, and lets
 * no other kernel of the same device run while all of the launch's CTAs wait. Results are compared with the definition
 * of attention in float64. Gradients must have the same bits as by stages. */
#include <criterion/criterion.h>

#include "runtime/plan/plan_summary.h"
#include "runtime/worklists/fuse.h"
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

static size_t tensor_bytes(const fcp_shape *shape, fcp_tensor t) {
    uint64_t of[3];
    fcp_tensor_shape(shape, t, of);
    return of[0] * fcp_tensor_token_bytes(shape, t);
}

static fcp_session *session_of(const fcp_plan *plan, fcp_fuse fuse, const char *what) {
    fcp_session_options options = fused;
    fcp_session *session;
    fcp_error err = {0};
    options.fuse = fuse;
    cr_assert(fcp_session_create(plan, &options, &session, &err) == FCP_OK, "%s: %s", what, err.message);
    return session;
}

/* Runs both passes fused and judges the results. Then the gradients are computed in two other ways and must have the
 * same bits: fused with CTAs and rounds in another order (not in make check), and by stages. Returns how many launches
 * of the backward pass waited for flags. */
static unsigned long same_bits(standin *x, const fcp_plan *plan, const char *what) {
    enum { ALL = (1 << FCP_TENSORS) - 1, FIRST = FCP_TENSOR_DQ, COUNT = 3 };
    const long live = x->live;
    fcp_session *stages = session_of(plan, FCP_FUSE_STAGES, what), *pass = session_of(plan, FCP_FUSE_PASS, what);
    fcp_packed packed = {0};
    fcp_shape shape;
    fcp_error err = {0};
    char *kept[COUNT];
    unsigned long waited = 0;
    x->plan = plan;
    fcp_plan_shape(plan, &shape);
    cr_assert(fcp_packed_alloc(&shape, ALL, &packed, &err) == FCP_OK, "%s", err.message);
    fcp_packed_draw(&shape, ALL, 9, &packed);
    cr_assert(fcp_session_run_packed(pass, plan, FCP_FORWARD, &packed, NULL, &err) == FCP_OK, "%s: %s; %s", what,
              err.message, x->trouble);
    for (int time = 0; time < (int)amount(2, 3); time++) { /* the last time by stages */
        const bool first = time == 0, last = time + 1 == (int)amount(2, 3);
        const unsigned long before = x->kernels_with_flags;
        for (int t = 0; t < COUNT; t++)
            memset(packed.t[FIRST + t], 0xff, tensor_bytes(&shape, (fcp_tensor)(FIRST + t)));
        cr_assert(fcp_session_run_packed(last ? stages : pass, plan, FCP_BACKWARD, &packed, NULL, &err) == FCP_OK,
                  "%s: %s; %s", what, err.message, x->trouble);
        if (!last) waited += x->kernels_with_flags - before;
        if (first) judge_packed(plan, plan->problem->passes, &packed, what);
        for (int t = 0; t < COUNT; t++) {
            const size_t bytes = tensor_bytes(&shape, (fcp_tensor)(FIRST + t));
            if (first) kept[t] = memcpy(malloc(bytes + 1), packed.t[FIRST + t], bytes);
            else cr_assert(!memcmp(kept[t], packed.t[FIRST + t], bytes), "%s: %s has other bits", what,
                           fcp_tensor_name((fcp_tensor)(FIRST + t)));
        }
        x->seed += 1000;
    }
    for (int t = 0; t < COUNT; t++) free(kept[t]);
    fcp_packed_free(&packed);
    fcp_session_free(stages);
    fcp_session_free(pass);
    cr_assert_str_empty(x->trouble, "%s: %s", what, x->trouble);
    cr_assert_eq(x->live, live, "%s: %ld objects are left", what, x->live - live);
    return waited;
}

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
        if (i < amount(2, 4)) cr_assert_gt(same_bits(x, plan, cases[i].mask), 0, "no gradients have waited");
        fcp_plan_free(plan);
    }
    cr_assert_gt(x->kernels_with_flags, 0);
    cr_assert_gt(x->during, 0, "no launch has waited for a round");
    cr_assert_eq(x->graph_launches, amount(2, 4), "%lu graphs: only passes by stages may be some", x->graph_launches);
}

#define SMALL(model, lengths, plan)                                                                                    \
    "model { " model "; dtype = bf16 }\ncluster { gpus = 3 }\nbatch { lengths = [" lengths "] }\n"                     \
    "plan { block = 128; passes = forward, backward; strategy = fcp(coalesce = 1, buffers = 8); " plan " }\n"

/* The kernels for sm_90a; keys in parts, of which some wait for one round and some for another; heads that see
 * different keys; sinks and scores; results that go back to another layout. */
Test(cuda_fuse, programs) {
    static const struct {
        const char *text;
        bool hopper;
    } cases[] = {
        {SMALL("heads = 2; kv_heads = 1; head_dim = 64", "270, 140", "mask = causal"), true},
        {SMALL("heads = 1; kv_heads = 1; head_dim = 64", "270, 60", "mask = full; score = softcap"), true},
        {SMALL("heads = 1; kv_heads = 1; head_dim = 128", "270, 60", "mask = full"), true},
        {SMALL("heads = 4; kv_heads = 2; head_dim = 64", "1:400, 5:300, 130", "mask = causal"), true},
        {SMALL("heads = 4; kv_heads = 2; head_dim = 16", "1:400, 5:300, 130", "mask = causal"), false},
        {"mask by_head = causal and (q - k < 40 or h == 1)\n"
         SMALL("heads = 2; kv_heads = 2; head_dim = 32", "300, 60", "mask = by_head"), false},
        {"mask by_head = causal and (q - k < 40 or h == 1)\n"
         SMALL("heads = 4; kv_heads = 1; head_dim = 64", "300, 60", "mask = by_head"), true},
        {SMALL("heads = 8; kv_heads = 1; head_dim = 32", "300, 60", "mask = full"), false},
        {SMALL("heads = 8; kv_heads = 1; head_dim = 64", "300, 60", "mask = causal"), true},
        {SMALL("heads = 4; kv_heads = 1; head_dim = 64", "270, 60", "mask = causal; deterministic = false"), true},
        {SMALL("heads = 4; kv_heads = 1; head_dim = 32", "270, 60", "mask = full; deterministic = false"), false},
        {SMALL("heads = 2; kv_heads = 1; head_dim = 64", "300, 60", "mask = causal; wire = bf16; margin = 1"), true},
        {SMALL("heads = 2; kv_heads = 1; head_dim = 32", "300, 60",
               "mask = causal; sink = [0.5, -1.0]; layout = zigzag"), false}};
    unsigned long waited = 0;
    standin *x = stand();
    x->devices = 3;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (i % 3 == 1 && amount(true, false)) continue;
        fcp_plan *plan = plan_named("program", cases[i].text);
        x->major = cases[i].hopper ? 9 : 8;
        x->minor = 0;
        x->shared = cases[i].hopper ? HOPPER : 166912;
        x->seed = 3 * i;
        if (plan->problem->deterministic && i % amount(2, 1) == 0) waited += same_bits(x, plan, cases[i].text);
        else stand_run(x, plan, &fused, 1, cases[i].text);
        fcp_plan_free(plan);
    }
    cr_assert_gt(waited, 10, "%lu launches of gradients have waited", waited);
    cr_assert_gt(x->kernels_with_maps, 2);
    cr_assert_gt(x->during, 0, "no launch has waited for a round");
}

/* Random programs, placed in all ways. */
Test(cuda_fuse, drawn) {
    const unsigned draws = amount(100, 800);
    unsigned run = 0;
    fused_counts all[FCP_PASSES] = {{0}};
    unsigned long waited = 0;
    standin *x = stand();
    random_program *p = calloc(1, sizeof *p);
    for (unsigned seed = 1; seed <= draws; seed++) {
        dice d = dice_of(seed, 91);
        draw_program(p, &d, 12000);
        fcp_plan *plan = fused_drawn(p, seed % FUSED_WAYS, false);
        if (!plan) continue;
        x->devices = (int)(1 + seed % 3);
        x->seed = seed;
        if (plan->problem->deterministic) waited += same_bits(x, plan, p->text);
        else stand_run(x, plan, &fused, 1, p->text);
        for (int pass = 0; pass < FCP_PASSES; pass++) {
            const fused_counts c = fused_count(plan, (fcp_pass)pass);
            all[pass].attends += c.attends;
            all[pass].launches += c.launches;
        }
        fcp_plan_free(plan);
        run++;
    }
    free(p);
    cr_assert_gt(run, draws / 20, "only %u of %u programs were run", run, draws);
    cr_assert_gt(x->during, run / 4, "launches have waited for %lu rounds only", x->during);
    cr_assert_gt(waited, run / amount(2, 1), "%lu launches of gradients have waited", waited);
    for (int pass = 0; pass < FCP_PASSES; pass++)
        cr_assert_lt(all[pass].launches, all[pass].attends * 3 / 4, "%s: %u ATTENDs are %u launches",
                     fcp_pass_names[pass], all[pass].attends, all[pass].launches);
}

Test(cuda_fuse, examples) {
    const size_t step = amount(13, 1);
    standin *x = stand();
    x->devices = 3;
    for (size_t i = 0; i < FUSED_EXAMPLES; i += step)
        for (unsigned way = 0; way < FUSED_WAYS; way++) {
            if ((i / step + way) % FUSED_WAYS) continue; /* each example in one way */
            fcp_plan *plan = fused_example(i, way, false);
            x->seed = i;
            x->devices = way ? 1 + (int)(i + way) % 3 : 3;
            char what[120];
            snprintf(what, sizeof what, "%s, way %u, %d devices", fused_example_of(i)->file, way, x->devices);
            stand_run(x, plan, &fused, 1, what);
            fcp_plan_free(plan);
        }
}

/* Rows that several ranks compute: queries go, results come back. A device for each rank; several ranks on one; all on
 * one, where a launch that waits must not have the SMs on which others compute what it waits for. */
Test(cuda_fuse, moved) {
    static const char *const strategies[] = {"cad(buffers = 1)", "cad(buffers = 3)", "dcp(buffers = 2)",
                                             "fcp(coalesce = 1, buffers = 1)", "fcp(coalesce = 1, buffers = 2)"};
    standin *x = stand();
    fused_counts all[FCP_PASSES] = {{0}};
    unsigned long waited = 0;
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++)
        for (int devices = 1; devices <= 4; devices += devices) {
            if (amount(1, 0) && (1 << i % 3) != devices) continue; /* quickly: one of the three */
            char more[120];
            snprintf(more, sizeof more, "; margin = 1; strategy = %s", strategies[i]);
            fcp_plan *plan = make_plan(i % 2 ? "causal" : "full", 4, devices == 4 ? 2 : 1, more);
            x->devices = devices;
            x->seed = i + 10 * (uint64_t)devices;
            if (amount(i % 2 != 0, true)) stand_run(x, plan, &fused, amount(1, 2), strategies[i]);
            if (i % amount(2, 1) == 0) waited += same_bits(x, plan, strategies[i]);
            for (int pass = 0; pass < FCP_PASSES; pass++) {
                const fused_counts c = fused_count(plan, (fcp_pass)pass);
                all[pass].attends += c.attends;
                all[pass].launches += c.launches;
            }
            fcp_plan_free(plan);
        }
    cr_assert_gt(x->during, 0, "no launch has waited for a round");
    cr_assert_gt(waited, 0, "no gradients have waited");
    for (int pass = 0; pass < FCP_PASSES; pass++)
        cr_assert_lt(all[pass].launches, all[pass].attends * (pass ? 9 : 8) / 10, "%s: %u ATTENDs are %u launches",
                     fcp_pass_names[pass], all[pass].attends, all[pass].launches);
}

/* How many launches a pass is, by its buffers: ATTENDs of a rank join until one needs a slot that the run has. With one
 * buffer only tiles that waited for a later stage (schedule/even_stages.c) need nothing that has just come, and
 * join. */
Test(cuda_fuse, runs) {
    uint32_t before[FCP_PASSES] = {UINT32_MAX, UINT32_MAX};
    for (unsigned buffers = 1; buffers <= 8; buffers *= 2) {
        char text[300];
        snprintf(text, sizeof text, "model { heads = 2; head_dim = 16; dtype = bf16 }\ncluster { nodes = 1; gpus = 4 }\n"
                 "batch { lengths = [560, 130, 60] }\nplan { mask = full; block = 128; passes = forward, backward; "
                 "strategy = fcp(coalesce = 1, buffers = %u) }\n", buffers);
        fcp_plan *plan = plan_named("runs.fcp", text);
        for (int pass = 0; pass < FCP_PASSES; pass++) {
            const fused_counts c = fused_count(plan, (fcp_pass)pass);
            cr_assert(buffers > 1 || 10 * c.launches >= 9 * c.attends, "%u launches of %u ATTENDs", c.launches,
                      c.attends);
            cr_assert_lt(c.launches, before[pass], "%s: %u launches with %u buffers", fcp_pass_names[pass], c.launches,
                         buffers);
            cr_assert(buffers < 8 || c.launches == 4, "%u launches of 4 ranks", c.launches);
            before[pass] = c.launches;
        }
        fcp_plan_free(plan);
    }
}

/* A plan that nobody has verified: an ATTEND waits for a round that waits for it; rounds are out of order. */
Test(cuda_fuse, circles) {
    for (int i = 0; i < 2 * FCP_PASSES; i++) {
        const int wrong = i / FCP_PASSES;
        const fcp_pass pass = (fcp_pass)(i % FCP_PASSES);
        fcp_plan *plan = make_plan("full", 4, 1, "; strategy = fcp(coalesce = 1, buffers = 1)");
        const fcp_stream *compute = fcp_stream_of(plan, pass, 0, FCP_COMPUTE);
        const fcp_stream *comm = fcp_stream_of(plan, pass, 0, FCP_COMM);
        fcp_instr *instrs = (fcp_instr *)(uintptr_t)plan->instrs;
        fcp_fusion_run *runs;
        uint32_t count;
        fcp_error err = {0};
        for (uint32_t n = 0; !wrong && n < compute->count; n++)
            if (instrs[compute->first + n].op == FCP_OP_WAIT) instrs[compute->first + n].a = comm->count;
        for (uint32_t n = comm->count; wrong && n-- > 0;)
            if (instrs[comm->first + n].op == FCP_OP_LAUNCH) {
                instrs[comm->first + n].c = 0;
                break;
            }
        cr_assert_eq(fcp_fusion_runs(plan, pass, 0, &runs, &count, &err), FCP_E_BACKEND, "%d", wrong);
        cr_assert(strstr(err.message, fcp_pass_names[pass]), "%s", err.message);
        cr_assert(strstr(err.message, "it waits for itself, or its rounds are out of order"), "%s", err.message);
        cr_assert_null(runs);
        fcp_plan_free(plan);
    }
}

/* Transfers between ranks of one device need SMs, and so a margin. */
Test(cuda_fuse, refused) {
    standin *x = stand();
    fcp_plan *plan = make_plan("causal", 4, 1, "; strategy = cad(buffers = 8); margin = 0");
    fcp_session *session = NULL;
    fcp_error err = {0};
    x->plan = plan;
    x->devices = 1;
    cr_assert_eq(fcp_session_create(plan, &fused, &session, &err), FCP_E_BACKEND);
    cr_assert(strstr(err.message, "a margin of at least 1"), "%s", err.message);
    cr_assert_eq(x->live, 0, "%ld objects are left", x->live);
    fcp_plan_free(plan);
}

/* Two kernels compute the backward pass by stages, and what is asked for says so. */
Test(cuda_fuse, two_kernels) {
    standin *x = stand();
    fcp_plan *plan = plan_named("program", SMALL("heads = 1; kv_heads = 1; head_dim = 256", "150, 40", "mask = full"));
    x->devices = 3;
    cr_assert_eq(same_bits(x, plan, "head_dim 256"), 0, "gradients have waited");
    for (int joint = 0; joint < 2; joint++) {
        fcp_plan *other = joint ? make_plan("full", 3, 1, "") : plan;
        fcp_session *session = session_of(other, FCP_FUSE_PASS, "one kernel or two");
        cr_assert_eq(fcp_session_fused(session, FCP_FORWARD), FCP_FUSE_PASS);
        cr_assert_eq(fcp_session_fused(session, FCP_BACKWARD), joint ? FCP_FUSE_PASS : FCP_FUSE_STAGES);
        fcp_session_free(session);
        fcp_plan_free(other);
    }
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
