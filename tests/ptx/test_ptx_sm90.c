/* The PTX that NVRTC makes of the kernels for sm_90a, executed here, against the definition of attention in float64. */
#include <stdlib.h>

#include "judge.h"

/* Whole boxes and ragged ones; blocks that take several items; a rank's own keys and those that came. */
Test(ptx_sm90, head_dim_64) {
    if (!compiler()) return;
    right(MODEL(2, 1, 64, bf16) CLUSTER(2) BATCH(200, 60) PLAN("mask = causal"), &ptx_sm90_backend, 1);
    right(MODEL(2, 2, 64, fp16) CLUSTER(1) BATCH(300, 1, 128) PLAN("mask = full; sink = [0.5, -1.0]"), &ptx_sm90_backend, 2);
    right(MODEL(1, 1, 64, fp16) CLUSTER(1) BATCH(260, 70) PLAN("mask = causal"), &ptx_unordered_sm90_backend, 3);
}

Test(ptx_sm90, head_dim_128) {
    if (!compiler()) return;
    right(MODEL(2, 1, 128, bf16) CLUSTER(2) BATCH(290, 40) PLAN("mask = causal"), &ptx_sm90_backend, 4);
    right(MODEL(2, 2, 128, fp16) CLUSTER(1) BATCH(200) PLAN("mask = full"), &ptx_unordered_sm90_backend, 5);
}

/* The backward pass is that in two kernels, compiled for sm_90a. */
Test(ptx_sm90, head_dim_256) {
    if (!compiler()) return;
    right(MODEL(1, 1, 256, bf16) CLUSTER(1) BATCH(200, 30) PLAN("mask = causal"), &ptx_sm90_backend, 6);
}

Test(ptx_sm90, scores) {
    if (!compiler()) return;
    right(MODEL(1, 1, 128, bf16) CLUSTER(1) BATCH(150) PLAN("mask = causal; score = softcap"), &ptx_sm90_backend, 7);
    right(MODEL(2, 1, 64, fp16) CLUSTER(1) BATCH(150) PLAN("mask = window(w = 50); score = alibi"), &ptx_sm90_backend, 8);
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

/* The second and third number in braces change places: a tensor copy's head and row. */
static char *swapped(const char *text, const char *at) {
    char numbers[3][20], by[80];
    const char *begin = strchr(at, '{');
    if (!begin || sscanf(begin, "{%19[^,], %19[^,], %19[^}]}", numbers[0], numbers[1], numbers[2]) != 3) return NULL;
    int length = snprintf(by, sizeof by, "{%s, %s, %s}", numbers[0], numbers[2], numbers[1]);
    return replaced(text, begin, strcspn(begin, "}") + 1, by, (size_t)length);
}

/* The last operand, a number, becomes less by 16 before. */
static char *less(const char *text, const char *at) {
    char name[20], by[80];
    const char *end = strchr(at, ';'), *begin = end;
    while (begin && begin > at && begin[-1] != ' ') begin--;
    if (!begin || end - begin >= (int)sizeof name) return NULL;
    snprintf(name, sizeof name, "%.*s", (int)(end - begin), begin);
    int length = snprintf(by, sizeof by, "sub.s32 %s, %s, 16;\n\t", name, name);
    return replaced(text, at, 0, by, (size_t)length);
}

#define FORWARD "fk_forward_sm90"
#define BACKWARD "fk_backward_ordered_sm90"
static const struct {
    const char *what;
    unsigned head_dim;
    ptx_change change;
} flaws[] = {
    {"another stride", 64, {FORWARD, "4611686293305294848", "4611686155866341376", -1, NULL}},
    {"another distance of columns", 128, {FORWARD, ", 67108864;", ", 33554432;", -1, NULL}},
    {"V is not turned", 64, {FORWARD, ", p, 1, 1, 1; }", ", p, 1, 1, 0; }", -1, NULL}},
    {"16 bytes too far", 128, {FORWARD, ", 1030;", ", 1031;", -1, NULL}},
    {"a copy's coordinates", 64, {FORWARD, "cp.async.bulk.tensor", "", 1, swapped}},
    {"fewer bytes are expected", 64, {FORWARD, "mbarrier.arrive.expect_tx", "", 1, less}},
    {"products are not waited for", 64, {FORWARD, "wgmma.wait_group.sync.aligned 0;", "", 0, NULL}},
    {"one group too many may be under way", 64, {FORWARD, "wgmma.wait_group.sync.aligned 1;", "wgmma.wait_group.sync.aligned 2;", 0, NULL}},
    {"no group", 64, {FORWARD, "wgmma.commit_group.sync.aligned;", "", 0, NULL}},
    {"no wgmma.fence", 64, {FORWARD, "wgmma.fence.sync.aligned;", "", 1, NULL}},
    {"no fence of gathered rows", 64, {FORWARD, "fence.proxy.async.shared::cta;", "", 1, NULL}},
    {"no fence of barriers", 64, {FORWARD, "fence.mbarrier_init.release.cluster;", "", 0, NULL}},
    {"gathered rows are not waited for", 64, {FORWARD, "cp.async.wait_all;", "", 0, NULL}},
    {"too many registers", 64, {FORWARD, "setmaxnreg.inc.sync.aligned.u32 232", "setmaxnreg.inc.sync.aligned.u32 240", -1, NULL}},
};

Test(ptx_sm90, flaws) {
    char text[TEXT];
    if (!compiler()) return;
    fcp_plan *plans[2] = {
        gpu_plan("flaws", MODEL(1, 1, 64, bf16) CLUSTER(1) BATCH(460, 60) PLAN("mask = full"), NULL, 0),
        gpu_plan("flaws", MODEL(1, 1, 128, bf16) CLUSTER(1) BATCH(200, 60) PLAN("mask = causal"), NULL, 0)};
    for (size_t i = 0; i < sizeof flaws / sizeof *flaws; i++) {
        ptx_device_change(&flaws[i].change);
        judge(plans[flaws[i].head_dim == 128], &ptx_sm90_backend, 1, text);
        fprintf(stderr, "%s: %s\n", flaws[i].what, text);
        cr_expect(ptx_device_change(NULL) > 0, "%s: nothing was changed", flaws[i].what);
        cr_expect(*text, "%s: not found", flaws[i].what);
    }
    for (int i = 0; i < 2; i++) fcp_plan_free(plans[i]);
}
#ifdef EXPLORE
Test(ptx_sm90, explore) {
    char text[TEXT];
    fcp_plan *plan = gpu_plan("flaws", MODEL(1, 1, 64, bf16) CLUSTER(1) BATCH(460, 60) PLAN("mask = full"), NULL, 0);
    static const struct { const char *kernel, *find, *by; char *(*edit)(const char *, const char *); } all[] = {
        {FORWARD, "1, 0, p; }", "1, 1, p; }", NULL}, {FORWARD, "bar.", "", without}, {FORWARD, "mbarrier.arrive.shared", "", without},
        {FORWARD, "wgmma.wait", "", without}, {FORWARD, "wgmma.fence", "", without}, {FORWARD, "wgmma.commit", "", without}, {FORWARD, "fence", "", without},
        {FORWARD, "cp.async.bulk", "", swapped}, {FORWARD, "cp.async.bulk", "", without}, {FORWARD, "mbarrier.arrive.exp", "", less},
        {BACKWARD, "1, 0, p; }", "1, 1, p; }", NULL}, {BACKWARD, "bar.", "", without}, {BACKWARD, "mbarrier.arrive.shared", "", without},
        {BACKWARD, "wgmma.wait", "", without}, {BACKWARD, "wgmma.fence", "", without}, {BACKWARD, "wgmma.commit", "", without}, {BACKWARD, "fence", "", without},
        {BACKWARD, "cp.async.bulk", "", swapped}, {BACKWARD, "cp.async.bulk", "", without}, {BACKWARD, "mbarrier.arrive.exp", "", less}, {BACKWARD, "cp.async.wait_all", "", without},
        {BACKWARD, "ld.acquire.gpu", "ld", NULL}, {BACKWARD, "st.release.gpu", "st", NULL}, {BACKWARD, ", p, 1, 1, 1, 1; }", ", p, 1, 1, 0, 1; }", NULL},{BACKWARD, ", p, 1, 1, 1, 1; }", ", p, 1, 1, 1, 0; }", NULL}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int n = 0; ; n++) {
            ptx_change c = {all[i].kernel, all[i].find, all[i].by, n, all[i].edit};
            ptx_device_change(&c);
            judge(plan, &ptx_sm90_backend, 1, text);
            if (!ptx_device_change(NULL)) break;
            const char *at = strstr(text, "line ");
            fprintf(stderr, "%s %s %d: %.260s\n", all[i].kernel, all[i].find, n, *text ? at ? at : text : "NOT FOUND");
        }
}
#endif
