/* bench_heads.c: measures what it costs that a mask differs by head.
 *
 * One plan has eight heads with windows of 128 to 8192 keys. Eight more plans have, for all their heads, the window of
 * one of these. An eighth of such a plan is what that head needs alone. The sum of the eight eighths is compared with
 * the first plan, in pairs and in processor time of the host.
 */
#include <stdio.h>
#include <string.h>

#include "compiler/fcpc.h"
#include "runtime/judge/packed.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/plan_summary.h"
#include "tests/bench/bench.h"

enum { HEADS = 8, RUNS = 3, ALL = (1 << FCP_TENSORS) - 1 };
static const int windows[HEADS] = {128, 512, 128, 1024, 8192, 256, 8192, 512};

/* The plan with all windows, or if head >= 0 with this head's for all. */
static fcp_plan *plan_of_heads(int head) {
    char text[500], mask[80] = "causal and q - k < w[h]";
    if (head >= 0) snprintf(mask, sizeof mask, "causal and q - k < %d", windows[head]);
    snprintf(text, sizeof text,
             "model { heads = %d; kv_heads = %d; head_dim = 128; dtype = bf16; "
             "table w = [128, 512, 128, 1024, 8192, 256, 8192, 512] }\n"
             "cluster { gpus = 1; gpu = cpu }\nbatch { lengths = [8K] }\nmask m = %s\n"
             "plan { mask = m; block = 2K; passes = forward, backward }\n",
             HEADS, HEADS, mask);
    return bench_plan_of(text, NULL, 0);
}

/* A plan with what it takes to run it, and the least processor time of its runs of each pass. */
typedef struct subject {
    fcp_plan *plan;
    fcp_session *session;
    fcp_packed packed;
    double seconds[FCP_PASSES];
} subject;

static bool subject_open(subject *x, int head) {
    fcp_shape shape;
    fcp_error err;
    *x = (subject){.plan = plan_of_heads(head)};
    if (!x->plan) return false;
    fcp_plan_shape(x->plan, &shape);
    if (fcp_session_create(x->plan, NULL, &x->session, &err) || fcp_packed_alloc(&shape, ALL, &x->packed, &err))
        return false;
    fcp_packed_draw(&shape, ALL, 1, &x->packed);
    return true;
}

static void subject_close(subject *x) {
    fcp_session_free(x->session);
    fcp_packed_free(&x->packed);
    fcp_plan_free(x->plan);
}

static bool subject_run(subject *x, bool first) {
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        fcp_error err;
        const double begin = bench_processor();
        if (fcp_session_run_packed(x->session, x->plan, (fcp_pass)pass, &x->packed, NULL, &err)) return false;
        const double spent = bench_processor() - begin;
        if (first || spent < x->seconds[pass]) x->seconds[pass] = spent;
    }
    return true;
}

static void print_rows(const subject *all, const subject *own) {
    uint64_t pairs = 0;
    for (int h = 0; h < HEADS; h++) pairs += own[h].plan->summary->pairs;
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        char name[100], note[120];
        double sum = 0;
        for (int h = 0; h < HEADS; h++) sum += own[h].seconds[pass] / HEADS;
        const double ratio = all->seconds[pass] / sum;
        snprintf(name, sizeof name, "heads: windows by head, host %s, over their own masks",
                 pass ? "backward" : "forward");
        snprintf(note, sizeof note, "processor time %.2f s, their own masks %.2f s; 8K tokens, 8 heads of 128",
                 all->seconds[pass], sum);
        bench_row(name, ratio, "x", "<= 1.1", ratio <= 1.1, note);
    }
    const uint64_t found = all->plan->summary->pairs;
    bench_row("heads: windows by head, pairs over their own masks", (double)found / (double)pairs, "x", "= 1",
              found == pairs, "");
}

void bench_heads(void) {
    subject x[1 + HEADS] = {0};
    bool ok = true;
    if (!bench_may_want("heads: windows")) return;
    for (int i = 0; ok && i <= HEADS; i++) ok = subject_open(&x[i], i - 1);
    for (int run = 0; ok && run < RUNS; run++)
        for (int i = 0; ok && i <= HEADS; i++) ok = subject_run(&x[i], !run);
    if (ok) print_rows(&x[0], x + 1);
    else bench_row("heads: windows", 0, "", "runs", false, "a plan or a session could not be made");
    for (int i = 0; i <= HEADS; i++) subject_close(&x[i]);
}
