/* test_ptx_fuse.c: executes the PTX of fused passes, whose CTAs wait for flags. What other ranks send arrives while the
 * kernel runs. If a wait or a fence is taken out, the machine must notice. */
#define _GNU_SOURCE
#include "runtime/worklists/fuse.h"
#include "runtime/jit/kernel_source.h"
#include "tests/machines/ptx/judge.h"
#include "tests/support/amount.h"
#include "tests/support/fused_plans.h"

#define FUSED(gpus, lengths, rest)                                                                                     \
    CLUSTER(gpus) BATCH(lengths)                                                                                       \
    "plan { block = 128; passes = forward, backward; strategy = fcp(coalesce = 1, buffers = 8); " rest " }\n"
#define MOVED(strategy, rest)                                                                                          \
    CLUSTER(3) BATCH(290, 130)                                                                                         \
    "plan { block = 128; passes = forward, backward; layout = planned; strategy = " strategy "; " rest " }\n"
#define COMMA ,

Test(ptx_fuse, programs) {
    if (!compiler()) return;
    ptx_device_fuse(true);
    for (uint64_t seed = 0; seed < 3; seed++) {
        ptx_device_seed(seed);
        right(MODEL(2, 1, 32, fp16) FUSED(3, 300 COMMA 100, "mask = causal"),
              seed ? &ptx_ordered_backend : &ptx_unordered_backend, seed);
        right(MODEL(1, 1, 64, bf16) FUSED(3, 290 COMMA 130, "mask = full"),
              seed ? &ptx_sm90_backend : &ptx_unordered_sm90_backend, seed);
    }
    right(MODEL(1, 1, 32, bf16) FUSED(3, 290 COMMA 100, "mask = full"), &ptx_backend, 3); /* by stages backward */
    right(MODEL(4, 2, 64, bf16) FUSED(2, 1:700 COMMA 130, "mask = causal; sink = [0.5, -1.0, 0.1, 2.0]"),
          &ptx_sm90_backend, 4);
    ptx_device_seed(0);
    ptx_device_fuse(false);
}

/* Runs a plan if there are kernels for it; frees it. Plans are `planned`, lest results that leave early end a run. */
static bool runs(fcp_plan *plan, uint64_t seed, const char *what) {
    char text[TEXT] = "";
    fcp_error err;
    const bool may = !fcp_kernel_check(plan, &err);
    ptx_device_seed(seed % 3);
    if (may) judge(plan, seed % 4 ? &ptx_ordered_backend : &ptx_unordered_backend, seed, text);
    cr_expect_str_empty(text, "seed %lu, %s: %s", (unsigned long)seed, what, text);
    fcp_plan_free(plan);
    return may;
}

Test(ptx_fuse, drawn) {
    const unsigned wanted = amount(6, 80);
    unsigned run = 0;
    random_program *p = calloc(1, sizeof *p);
    if (!compiler()) return;
    ptx_device_fuse(true);
    for (unsigned seed = 1; seed < 12000 && run < wanted; seed++) {
        dice d = dice_of(seed, 93);
        draw_program(p, &d, 12000);
        fcp_plan *plan = fused_drawn(p, run % FUSED_WAYS, true);
        run += plan && runs(plan, seed, p->text);
    }
    ptx_device_seed(0);
    ptx_device_fuse(false);
    free(p);
    cr_assert_eq(run, wanted, "%u programs were run", run);
}

Test(ptx_fuse, examples) {
    const size_t step = amount(13, 1);
    size_t run = 0;
    if (!compiler()) return;
    ptx_device_fuse(true);
    for (size_t i = 0; i < FUSED_EXAMPLES; i += step)
        run += runs(fused_example(i, (unsigned)(i / step % FUSED_WAYS), true), i, fused_example_of(i)->file);
    ptx_device_seed(0);
    ptx_device_fuse(false);
    cr_assert_gt(run, FUSED_EXAMPLES / step / 2, "%zu of %zu examples were run", run, FUSED_EXAMPLES / step);
}

/* Rows that are moved: the kernels wait for queries, too, on sm_90a before its copy engine brings them. */
Test(ptx_fuse, moved) {
    if (!compiler()) return;
    ptx_device_fuse(true);
    for (uint64_t seed = 0; seed < 3; seed++) {
        ptx_device_seed(seed);
        right(MODEL(2, 1, 32, fp16) MOVED("cad(buffers = 2)", "mask = causal"), &ptx_ordered_backend, seed);
        right(MODEL(1, 1, 64, bf16) MOVED("cad(buffers = 2)", "mask = full"), &ptx_sm90_backend, seed);
        if (seed) continue;
        right(MODEL(1, 1, 192; value_dim = 128, bf16) MOVED("cad(buffers = 2)", "mask = full"), &ptx_sm90_backend, seed);
        right(MODEL(1, 1, 96; value_dim = 32, bf16) MOVED("cad(buffers = 2)", "mask = full"), &ptx_ordered_backend, seed);
    }
    ptx_device_seed(0);
    ptx_device_fuse(false);
}

/* The text with the load at `at` replaced: its register gets a constant. */
static char *loads(const char *text, const char *at, int constant) {
    const char *name = strchr(at, '%'), *end = strchr(at, ';');
    char *out = NULL;
    if (!name || !end ||
        asprintf(&out, "%.*smov.u32 %.*s, %d%s", (int)(at - text), text, (int)strcspn(name, ","), name, constant, end) <
            0)
        return NULL;
    return out;
}
/* As if the flag were up; as if all 32 flags of a word had been waited for. */
static char *already_up(const char *text, const char *at) { return loads(text, at, 1); }
static char *all_awaited(const char *text, const char *at) { return loads(text, at, -1); }

Test(ptx_fuse, flaws) {
    static const struct {
        const char *what, *says;
        const fcp_backend *backend;
        ptx_change change;
        bool moved;
    } flaws[] = {
        {"nobody waits", "o: ", &ptx_backend, {"fk_forward", "ld.relaxed.sys.global.u32", NULL, 2, already_up}},
        {"no fence", "missing fence", &ptx_backend, {"fk_forward", "fence.acq_rel.sys;", "", -1, NULL}},
        {"no fence before the copy engine",
         "missing fence",
         &ptx_sm90_backend,
         {"fk_forward_sm90", "fence.acq_rel.sys;", "", -1, NULL}},
        {"no proxy fence",
         "missing proxy fence",
         &ptx_sm90_backend,
         {"fk_forward_sm90", "fence.proxy.async.global;", "", -1, NULL}},
        {"no proxy fence before Q",
         "missing proxy fence",
         &ptx_sm90_backend,
         {"fk_forward_sm90", "fence.proxy.async.global;", "", 0, NULL},
         true},
        {"waits for keys are thought to be over",
         "o: ",
         &ptx_sm90_backend,
         {"fk_forward_sm90", "ld.shared.u32", NULL, 3, all_awaited}},
        {"waits for Q are thought to be over",
         "o: ",
         &ptx_sm90_backend,
         {"fk_forward_sm90", "ld.shared.u32", NULL, 2, all_awaited},
         true},
        {"nobody waits for Q",
         "o: ",
         &ptx_backend,
         {"fk_forward", "ld.relaxed.sys.global.u32", NULL, 0, already_up},
         true},
        /* flags of net come first, and no node has a neighbour */
        {"gradients wait for nothing",
         "d",
         &ptx_ordered_backend,
         {"fk_backward_ordered", "ld.relaxed.sys.global.u32", NULL, 1, already_up}},
        {"gradients wait for no queries",
         "d",
         &ptx_ordered_backend,
         {"fk_backward_ordered", "ld.relaxed.sys.global.u32", NULL, 1, already_up},
         true},
        {"gradients wait for nothing on sm_90a",
         "d",
         &ptx_sm90_backend,
         {"fk_backward_ordered_sm90", "ld.relaxed.sys.global.u32", NULL, 1, already_up}},
        {"gradients have no fence",
         "missing fence",
         &ptx_unordered_backend,
         {"fk_backward_unordered", "fence.acq_rel.sys;", "", -1, NULL}},
        {"gradients have no fence on sm_90a",
         "missing fence",
         &ptx_sm90_backend,
         {"fk_backward_ordered_sm90", "fence.acq_rel.sys;", "", -1, NULL}},
        {"gradients have no proxy fence",
         "missing proxy fence",
         &ptx_sm90_backend,
         {"fk_backward_ordered_sm90", "fence.proxy.async.global;", "", -1, NULL}},
        {"gradients have no proxy fence before queries",
         "missing proxy fence",
         &ptx_sm90_backend,
         {"fk_backward_ordered_sm90", "fence.proxy.async.global;", "", -1, NULL},
         true},
    };
    if (!compiler()) return;
    fcp_plan *home = plan_named("program", MODEL(1, 1, 64, bf16) FUSED(3, 290 COMMA 130, "mask = full"));
    fcp_plan *moved = plan_named("program", MODEL(1, 1, 64, bf16) MOVED("cad(buffers = 2)", "mask = full"));
    ptx_device_fuse(true);
    for (size_t i = 0; i < sizeof flaws / sizeof *flaws; i++) {
        char text[TEXT] = "";
        ptx_device_change(&flaws[i].change);
        judge(flaws[i].moved ? moved : home, flaws[i].backend, 1, text);
        cr_expect(ptx_device_change(NULL), "%s: nothing was changed", flaws[i].what);
        cr_expect(strstr(text, flaws[i].says), "%s: '%s'", flaws[i].what, text);
    }
    ptx_device_fuse(false);
    fcp_plan_free(home);
    fcp_plan_free(moved);
}
