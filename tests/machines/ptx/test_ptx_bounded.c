/* test_ptx_bounded.c: executes the builds of the kernels that look for faults on a GPU (FK_BOUND, FK_DELAY in
 * codegen/kernels/prim_ptx.h). Delayed CTAs and bounded waits change no result. If an arrival or a turn is missing, the
 * wait for it gives up and names it, where it would otherwise never end. Builds with FK_WAITED change no result either,
 * and count what warps wait for. */
#include "tests/machines/ptx/judge.h"

/* The machine's clock goes on by one for each instruction. Kernels here take some hundred thousand; delays are up to a
 * million. */
#define SHAKEN "#define FK_DELAY 1\n#define FK_BOUND 100000000\n"
#define BOUNDED "#define FK_BOUND 2000000\n"
#define LONG MODEL(1, 1, 64, bf16) CLUSTER(1) BATCH(460, 60) PLAN("mask = full")

static void give_nothing(void) {
    ptx_waits x;
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        ptx_device_waits((fcp_pass)pass, &x);
        cr_assert_eq(x.gave_up[0], 0, "wait %u for %u gave up", x.gave_up[1], x.gave_up[3]);
    }
}

Test(ptx_bounded, delays_change_nothing) {
    if (!compiler()) return;
    ptx_device_define(SHAKEN);
    right(MODEL(2, 1, 64, bf16) CLUSTER(1) BATCH(200, 30) PLAN("mask = causal"), &ptx_ordered_backend, 1);
    right(MODEL(1, 1, 64, bf16) CLUSTER(1) BATCH(150) PLAN("mask = causal"), &ptx_sm90_backend, 2);
    give_nothing();
    ptx_device_define("");
}

/* What the machine says, and what the kernel has written down, of a pass with a flaw. */
static void with_flaw(const ptx_change *flaw, const fcp_backend *backend, fcp_pass pass, const char *program,
                      char *text, ptx_waits *waits) {
    fcp_plan *plan = plan_named("program", program);
    ptx_device_change(flaw);
    judge(plan, backend, 3, text);
    cr_assert(ptx_device_change(NULL), "nothing was changed");
    ptx_device_waits(pass, waits);
    ptx_device_waits((fcp_pass)!pass, &(ptx_waits){0});
    fcp_plan_free(plan);
}

typedef struct flaw {
    const char *what;
    ptx_change change;
    const fcp_backend *backend;
    fcp_pass pass;
    const char *first, *others; /* what is said of the first wait that gave up, and of its CTA */
} flaw;
#define ARRIVE "mbarrier.arrive.shared::cta.b64 _,"

Test(ptx_bounded, what_is_missing_is_named) {
    const flaw flaws[] = {
        {"nobody frees a stage",
         {"fk_forward_sm90", ARRIVE, "// ", -1, NULL},
         &ptx_sm90_backend,
         FCP_FORWARD,
         "for mbarrier \"",
         "(consumer 0) for "},
        {"a turn",
         {"fk_backward_ordered", "st.release.gpu.global.u32", "// ", -1, NULL},
         &ptx_ordered_backend,
         FCP_BACKWARD,
         "for a lock's turn at ",
         "(all warps) for named barrier 0"},
        {"a turn, sm_90a",
         {"fk_backward_ordered_sm90", "st.release.gpu.global.u32", "// ", -1, NULL},
         &ptx_sm90_backend,
         FCP_BACKWARD,
         "for a lock's turn at ",
         "(passers) for named barrier 7, \"a turn of dQ\""},
    };
    if (!compiler()) return;
    for (size_t i = 0; i < sizeof flaws / sizeof *flaws; i++) {
        char text[TEXT] = "", said[1000] = "";
        ptx_waits x;
        ptx_device_define("");
        with_flaw(&flaws[i].change, flaws[i].backend, flaws[i].pass, LONG, text, &x);
        cr_expect(strstr(text, "deadlock") && !x.gave_up[0], "%s is missing, and waits have no bound: %s",
                  flaws[i].what, text);
        ptx_device_define(BOUNDED);
        with_flaw(&flaws[i].change, flaws[i].backend, flaws[i].pass, LONG, text, &x);
        cr_expect(!strstr(text, "deadlock"), "%s is missing: %s", flaws[i].what, text);
        wait_gave_up(&x.names, x.gave_up, said, sizeof said);
        cr_expect(x.gave_up[0] && strstr(said, flaws[i].first) && strstr(said, flaws[i].others),
                  "%s is missing: %s; %s", flaws[i].what, said, text);
        fprintf(stderr, "%s: %s; %s\n", flaws[i].what, said, text);
    }
    ptx_device_define("");
}

/* A build that counts waits: each role has waited for what it must wait for, and no longer than it lasted. */
static void waited_for(fcp_pass pass, const char *const *wanted) {
    ptx_waits x;
    wait_line lines[WAIT_LINES];
    ptx_device_waits(pass, &x);
    const uint32_t count = wait_lines(&x.names, (const uint64_t(*)[FK_WAITS])x.waited, lines);
    for (uint32_t i = 0; i < count; i++) {
        fprintf(stderr, "%s waits for %s: %.1f %%\n", lines[i].role, lines[i].name, 100 * lines[i].part);
        cr_expect(lines[i].part > 0 && lines[i].part < 1 && lines[i].whole_ns > 0, "%s waits for %s: %g of %g",
                  lines[i].role, lines[i].name, lines[i].part, lines[i].whole_ns);
    }
    for (; *wanted; wanted++) {
        bool found = false;
        char text[2 * WAIT_NAME + 4];
        for (uint32_t i = 0; i < count; i++) {
            snprintf(text, sizeof text, "%.79s: %.79s", lines[i].role, lines[i].name);
            found |= strcmp(text, *wanted) == 0;
        }
        cr_expect(found, "nobody has waited as in '%s'", *wanted);
    }
}

Test(ptx_bounded, waits_are_counted) {
    static const char *const forward[] = {
        "producer: mbarrier \"K free, stage 0\"", "consumer 0: mbarrier \"K full, stage 0\"",
        "consumer 1: mbarrier \"V full, stage 1\"", "consumer 0: named barrier 2, \"the turn of consumer 0\"", NULL};
    static const char *const backward[] = {
        "loaders: named barrier 12, \"a ticket\"",       "waiters: a lock's turn",
        "passers: named barrier 10, \"dQ of a step\"",   "worker 0: mbarrier \"rows full, stage 0\"",
        "worker 1: named barrier 4, \"dS of all keys\"", NULL};
    static const char *const older[] = {"all warps: cp.async", "all warps: named barrier 0", NULL};
    if (!compiler()) return;
    ptx_device_define("#define FK_WAITED 1\n");
    right(LONG, &ptx_sm90_backend, 4);
    waited_for(FCP_FORWARD, forward);
    waited_for(FCP_BACKWARD, backward);
    right(MODEL(1, 1, 64, bf16) CLUSTER(1) BATCH(150) PLAN("mask = causal"), &ptx_ordered_backend, 5);
    waited_for(FCP_FORWARD, older);
    waited_for(FCP_BACKWARD, older);
    ptx_device_define("");
}

/* Builds that lack a part run to their end, and only the results of that part are wrong. */
Test(ptx_bounded, without_a_part) {
    static const struct { const char *lines, *wrong; } builds[] = {
        {"#define FK_WITHOUT_SOFTMAX 1\n", "o: error"},
        {"#define FK_WITHOUT_DQ 1\n", "dq: error"},
    };
    if (!compiler()) return;
    fcp_plan *plan = plan_named("program", MODEL(1, 1, 64, bf16) CLUSTER(1) BATCH(150) PLAN("mask = causal"));
    for (size_t i = 0; i < sizeof builds / sizeof *builds; i++) {
        char text[TEXT] = "";
        ptx_device_define(builds[i].lines);
        judge(plan, &ptx_sm90_backend, 4, text);
        cr_expect(!strncmp(text, builds[i].wrong, strlen(builds[i].wrong)), "%s: %s", builds[i].lines, text);
    }
    ptx_device_define("");
    fcp_plan_free(plan);
}
