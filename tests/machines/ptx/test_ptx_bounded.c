/* test_ptx_bounded.c: executes the builds of the kernels that look for faults on a GPU (FK_BOUND, FK_DELAY in
 * codegen/kernels/prim_ptx.h). Delayed CTAs and bounded waits change no result. If an arrival or a turn is missing, the
 * wait for it gives up and names it, where it would otherwise never end. */
#include "tests/machines/ptx/judge.h"

/* The machine's clock goes on by one for each instruction. Kernels here take some hundred thousand; delays are up to a
 * million. */
#define SHAKEN "#define FK_DELAY 1\n#define FK_BOUND 100000000\n"
#define BOUNDED "#define FK_BOUND 2000000\n"
#define LONG MODEL(1, 1, 64, bf16) CLUSTER(1) BATCH(460, 60) PLAN("mask = full")

static void give_nothing(void) {
    uint32_t x[PTX_GAVE_UP];
    ptx_device_gave_up(x);
    cr_assert_eq(x[0], 0, "a wait of kind %u for %u gave up", x[1], x[3]);
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
static void with_flaw(const ptx_change *flaw, const fcp_backend *backend, const char *program, char *text,
                      uint32_t gave_up[PTX_GAVE_UP]) {
    fcp_plan *plan = plan_named("program", program);
    ptx_device_change(flaw);
    judge(plan, backend, 3, text);
    cr_assert(ptx_device_change(NULL), "nothing was changed");
    ptx_device_gave_up(gave_up);
    fcp_plan_free(plan);
}

typedef struct flaw {
    const char *what;
    ptx_change change;
    const fcp_backend *backend;
    uint32_t kind; /* 1: a barrier; 2: a turn */
} flaw;

Test(ptx_bounded, what_is_missing_is_named) {
    const flaw flaws[] = {
        {"an arrival", {"fk_forward_sm90", "mbarrier.arrive.shared::cta.b64 _,", "// ", -1, NULL}, &ptx_sm90_backend,
         1},
        {"a turn", {"fk_backward_ordered", "st.release.gpu.global.u32", "// ", -1, NULL}, &ptx_ordered_backend, 2},
    };
    if (!compiler()) return;
    for (size_t i = 0; i < sizeof flaws / sizeof *flaws; i++) {
        char text[TEXT] = "";
        uint32_t x[PTX_GAVE_UP];
        ptx_device_define("");
        with_flaw(&flaws[i].change, flaws[i].backend, LONG, text, x);
        cr_expect(strstr(text, "deadlock") && !x[0], "%s is missing, and waits have no bound: %s", flaws[i].what, text);
        ptx_device_define(BOUNDED);
        with_flaw(&flaws[i].change, flaws[i].backend, LONG, text, x);
        cr_expect(!strstr(text, "deadlock"), "%s is missing: %s", flaws[i].what, text);
        cr_expect(x[0] && x[1] == flaws[i].kind, "%s is missing: %u waits gave up, of kind %u; %s", flaws[i].what, x[0],
                  x[1], text);
        fprintf(stderr, "%s: kind %u at %#x, value %u, block %u, thread %u; %s\n", flaws[i].what, x[1], x[2], x[3],
                x[4], x[5], text);
    }
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
