/* test_ptx_sm90.c: executes the PTX that NVRTC makes of the kernels for sm_90a, and compares the results with the
 * definition of attention in float64.
 */
#include <stdlib.h>

#include "tests/machines/ptx/judge.h"

/* Under a sanitizer, which is slower, only some of what there is. */
static bool slow(void) {
    const char *sanitizer = getenv("SAN");
    return sanitizer && *sanitizer;
}

/* Whole boxes and ragged ones; blocks that take several items; a rank's own keys and those that came. */
Test(ptx_sm90, head_dim_64) {
    if (!compiler()) return;
    right(MODEL(2, 1, 64, bf16) CLUSTER(2) BATCH(200, 60) PLAN("mask = causal"), &ptx_sm90_backend, 1);
    if (slow()) return;
    right(MODEL(2, 2, 64, fp16) CLUSTER(1) BATCH(300, 1, 128) PLAN("mask = full; sink = [0.5, -1.0]"),
                &ptx_sm90_backend, 2);
    right(MODEL(1, 1, 64, fp16) CLUSTER(1) BATCH(260, 70) PLAN("mask = causal"), &ptx_unordered_sm90_backend, 3);
}

Test(ptx_sm90, head_dim_128) {
    if (!compiler()) return;
    if (!slow()) right(MODEL(2, 1, 128, bf16) CLUSTER(2) BATCH(290, 40) PLAN("mask = causal"), &ptx_sm90_backend, 4);
    right(MODEL(2, 2, 128, fp16) CLUSTER(1) BATCH(200) PLAN("mask = full"), &ptx_unordered_sm90_backend, 5);
}

/* The backward pass is that in two kernels, compiled for sm_90a. */
Test(ptx_sm90, head_dim_256) {
    if (!compiler()) return;
    right(MODEL(1, 1, 256, bf16) CLUSTER(1) BATCH(200, 30) PLAN("mask = causal"), &ptx_sm90_backend, 6);
}

/* V narrower than K. Slots of keys that came have rows of two lengths. */
Test(ptx_sm90, value_dim) {
    if (!compiler()) return;
    right(MODEL(2, 1, 192; value_dim = 128, bf16) CLUSTER(3) BATCH(500) PLAN("mask = full; strategy = ring"),
          &ptx_sm90_backend, 6);
    if (slow()) return;
    right(MODEL(1, 1, 192, fp16) CLUSTER(1) BATCH(200, 30) PLAN("mask = causal; score = softcap"), &ptx_sm90_backend, 6);
    right(MODEL(1, 1, 128; value_dim = 64, bf16) CLUSTER(1) BATCH(200, 30) PLAN("mask = causal"),
          &ptx_unordered_sm90_backend, 6);
}

Test(ptx_sm90, scores) {
    if (!compiler()) return;
    if (!slow())
        right(MODEL(1, 1, 128, bf16) CLUSTER(1) BATCH(150) PLAN("mask = causal; score = softcap"), &ptx_sm90_backend,
              7);
    right(MODEL(2, 1, 64, fp16) CLUSTER(1) BATCH(150) PLAN("mask = window(w = 50); score = alibi"),
                &ptx_sm90_backend, 8);
}

/* The machine's tanh.approx is as coarse as it may be; of an exact tanh the judge would not allow that. */
Test(ptx_sm90, approximate_score) {
    const char *program = MODEL(1, 1, 64; scale = 2.0, bf16) CLUSTER(1) BATCH(150)
        PLAN("mask = causal; score = softcap(c = 30, approximate = true)");
    const char *const exactly = "approximate=false";
    char text[TEXT];
    if (!compiler()) return;
    fcp_plan *plan = plan_named("program", program), *exact = plan_with("program", program, &exactly, 1);
    judge(plan, &ptx_sm90_backend, 8, text);
    cr_assert_str_empty(text, "%s", text);
    judge_as(plan, exact, &ptx_sm90_backend, 8, text);
    cr_assert_str_not_empty(text);
    fcp_plan_free(plan);
    fcp_plan_free(exact);
}

/* Keys that nearly every row sees: several items have them, and add to dK and dV in turn. */
Test(ptx_sm90, shared_keys) {
    if (!compiler() || slow()) return;
    right(MODEL(1, 1, 64, bf16) CLUSTER(1) BATCH(4400) SHARED_KEYS, &ptx_sm90_backend, 9);
}

/* --- flaws, each of which must be found --------------------------------------------------------------------------- */

/* The text with `length` bytes at `at` replaced. */
static char *replaced(const char *text, const char *at, size_t length, const char *by, size_t by_length) {
    char *out = malloc(strlen(text) + by_length + 1), *to = out;
    if (!out) return NULL;
    memcpy(to, text, (size_t)(at - text));
    to += at - text;
    memcpy(to, by, by_length);
    strcpy(to + by_length, at + length);
    return out;
}

/* The statement is gone. */
static char *without(const char *text, const char *at) { return replaced(text, at, strcspn(at, ";") + 1, "", 0); }

/* The second number in braces and all behind it change places: a TMA load's head and row; words that are stored. */
static char *swapped(const char *text, const char *at) {
    char numbers[3][20], by[80];
    const char *begin = strchr(at, '{');
    if (!begin || sscanf(begin, "{%19[^,], %19[^,], %19[^}]}", numbers[0], numbers[1], numbers[2]) != 3) return NULL;
    int length = snprintf(by, sizeof by, "{%s, %s, %s}", numbers[0], numbers[2], numbers[1]);
    return replaced(text, begin, strcspn(begin, "}") + 1, by, (size_t)length);
}

/* What stands at the end of `before` becomes more by `more` in front of the statement at `at`, by an instruction. */
static char *more(const char *text, const char *at, const char *before, const char *instruction, const char *by) {
    char name[20], line[120];
    const char *begin = before;
    while (begin && begin > at && begin[-1] != ' ') begin--;
    if (!begin || begin == at || before - begin >= (int)sizeof name) return NULL;
    snprintf(name, sizeof name, "%.*s", (int)(before - begin), begin);
    int length = snprintf(line, sizeof line, "%s %s, %s, %s;\n\t", instruction, name, name, by);
    return replaced(text, at, 0, line, (size_t)length);
}
static char *fewer_bytes(const char *text, const char *at) { return more(text, at, strchr(at, ';'), "add.s32", "-16"); }
/* Of a counter that becomes 0 behind its greatest number. */
static char *counts_on(const char *text, const char *at) { return more(text, at, strchr(at, ';'), "add.s32", "1"); }
/* Of a product's B, in its descriptor. */
static char *operand(const char *text, const char *at, const char *by) {
    return more(text, at, strstr(at, ", p,"), "add.s64", by);
}
static char *half_stride(const char *text, const char *at) { return operand(text, at, "-137438953472"); }
static char *half_lead(const char *text, const char *at) { return operand(text, at, "-33554432"); }
static char *too_far(const char *text, const char *at) { return operand(text, at, "1"); }

#define FORWARD "fk_forward_sm90"
#define BACKWARD "fk_backward_ordered_sm90"
typedef struct flaw {
    const char *what;
    ptx_change change;
} flaw;

/* Each must be found: in the place that it names, or else, since compilers lay code out as they like, in another
 * one. */
static void all_wrong(const char *program, const flaw *flaws, size_t count) {
    if (!compiler()) return;
    fcp_plan *plan = plan_named("program.fcp", program);
    for (size_t i = 0; i < count; i += slow() ? 4 : 1) {
        char text[TEXT] = "";
        ptx_change change = flaws[i].change;
        unsigned made = 1;
        for (int other = -1; !*text && made; other++) {
            if (other >= 0) change.which = other;
            if (other >= 0 && flaws[i].change.which < 0) break;
            ptx_device_change(&change);
            judge(plan, &ptx_sm90_backend, 1, text);
            made = ptx_device_change(NULL);
            cr_expect(made || other >= 0, "%s: nothing was changed", flaws[i].what);
        }
        cr_expect(*text, "%s: not found", flaws[i].what);
        fprintf(stderr, "%s: %s\n", flaws[i].what, text);
    }
    fcp_plan_free(plan);
}

Test(ptx_sm90, forward_flaws) {
    static const flaw flaws[] = {
        {"another stride", {FORWARD, "wgmma.mma_async", "", 1, half_stride}},
        {"V is not turned", {FORWARD, ", p, 1, 1, 1; }", ", p, 1, 1, 0; }", -1, NULL}},
        {"a copy's coordinates", {FORWARD, "cp.async.bulk.tensor", "", 1, swapped}},
        {"fewer bytes are expected", {FORWARD, "mbarrier.arrive.expect_tx", "", 1, fewer_bytes}},
        {"Q is not waited for", {FORWARD, "mbarrier.try_wait", "", 0, without}},
        {"a stage is not left", {FORWARD, "mbarrier.arrive.shared", "", 5, without}},
        {"products are not waited for", {FORWARD, "wgmma.wait_group.sync.aligned 0;", "", 0, NULL}},
        {"too many groups under way", {FORWARD, "wait_group.sync.aligned 1;", "wait_group.sync.aligned 2;", 0, NULL}},
        {"no group", {FORWARD, "wgmma.commit_group.sync.aligned;", "", 0, NULL}},
        {"no wgmma.fence", {FORWARD, "wgmma.fence.sync.aligned;", "", 1, NULL}},
        {"gathered rows are not fenced", {FORWARD, "fence.proxy.async.shared::cta;", "", 1, NULL}},
        {"gathered rows are not waited for", {FORWARD, "cp.async.wait_all;", "", 0, NULL}},
        {"gathered rows are not met", {FORWARD, "bar.sync", "", 6, without}},
        {"barriers are not fenced", {FORWARD, "fence.mbarrier_init.release.cluster;", "", 0, NULL}},
        {"the counter is not 0 again", {FORWARD, "atom.relaxed.gpu.global.inc.u32", NULL, 0, counts_on}},
        {"words of O change places", {FORWARD, "st.global.v4.u32", "", 1, swapped}},
        {"too many registers", {FORWARD, "inc.sync.aligned.u32 232", "inc.sync.aligned.u32 240", -1, NULL}},
    };
    all_wrong(MODEL(1, 1, 64, bf16) CLUSTER(1) BATCH(460, 60) "plan { block = 128; passes = forward; mask = full }",
              flaws, sizeof flaws / sizeof *flaws);
}

Test(ptx_sm90, wide_flaws) {
    static const flaw flaws[] = {
        {"another distance of boxes", {FORWARD, "wgmma.mma_async", "", 16, half_lead}},
        {"16 bytes too far", {FORWARD, "wgmma.mma_async", "", 5, too_far}},
    };
    all_wrong(MODEL(1, 1, 128, bf16) CLUSTER(1) BATCH(200, 60) "plan { block = 128; passes = forward; mask = causal }",
              flaws, sizeof flaws / sizeof *flaws);
}

Test(ptx_sm90, backward_flaws) {
    static const flaw flaws[] = {
        {"dS is not turned", {BACKWARD, ", p, 1, 1, 1, 1; }", ", p, 1, 1, 0, 1; }", 3, NULL}},
        {"K is not turned", {BACKWARD, ", p, 1, 1, 1, 1; }", ", p, 1, 1, 1, 0; }", 3, NULL}},
        {"dS is not fenced", {BACKWARD, "fence.proxy.async.shared::cta;", "", 4, NULL}},
        {"a turn is not waited for", {BACKWARD, "bar.sync", "", 4, without}},
        {"dS is not met", {BACKWARD, "bar.sync", "", 5, without}},
        {"dQ is not waited for", {BACKWARD, "wgmma.wait_group.sync.aligned 1;", "", 0, NULL}},
        {"dP is not waited for", {BACKWARD, "wait_group.sync.aligned 1;", "wait_group.sync.aligned 2;", 2, NULL}},
        {"a step's products are not waited for", {BACKWARD, "wgmma.wait_group.sync.aligned 0;", "", 0, NULL}},
        {"a lock is not acquired", {BACKWARD, "ld.acquire.gpu.global.u32", "ld.global.u32", 0, NULL}},
        {"a lock is not released", {BACKWARD, "st.release.gpu.global.u32", "st.global.u32", 0, NULL}},
        {"dQ is not fenced", {BACKWARD, "fence.proxy.async.shared::cta;", "", 3, NULL}},
        {"what was acquired is not fenced", {BACKWARD, "fence.proxy.async.global;", "", -1, NULL}},
        {"dQ is not waited for until it is read", {BACKWARD, "cp.async.bulk.wait_group.read 0;", "", 0, NULL}},
        {"dQ is not waited for until it is added", {BACKWARD, "cp.async.bulk.wait_group 0;", "", 0, NULL}},
        {"no group of dQ", {BACKWARD, "cp.async.bulk.commit_group;", "", 0, NULL}},
        {"gathered keys are not waited for", {BACKWARD, "cp.async.wait_all;", "", 0, NULL}},
        {"a copy's coordinates", {BACKWARD, "cp.async.bulk.tensor", "", 2, swapped}},
    };
    all_wrong(MODEL(1, 1, 64, bf16) CLUSTER(1) BATCH(460, 60) PLAN("mask = full"), flaws, sizeof flaws / sizeof *flaws);
}
