/* bench_host.c: compares the rate of the host backend's attention with that of OpenBLAS's matrix product, on the same
 * processors in the same run.
 *
 * The batch has 16K tokens, a causal mask and 8 heads of 128. A rate counts useful operations: for each pair and head
 * 4 * head_dim forward and 10 * head_dim backward. A second comparison runs 4K tokens with a score and without, in
 * turns. */
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compiler/fcpc.h"
#include "runtime/judge/packed.h"
#include "tests/bench/bench.h"

enum { RUNS = 3, SIDE = 2048, TOKENS = 16384, HEADS = 8, HEAD_DIM = 128, SCORE_TOKENS = 4096 };

static double gflops_of_sgemm(float *a, float *b, float *c) {
    double begin = bench_now();
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, SIDE, SIDE, SIDE, 1, a, SIDE, b, SIDE, 0, c, SIDE);
    return 2.0 * SIDE * SIDE * SIDE / (bench_now() - begin) * 1e-9;
}

/* `score`: "" or "score = ...; ". */
static fcp_plan *make_plan(const char *dtype, int ranks, int tokens, const char *score) {
    char text[500];
    snprintf(text, sizeof text,
             "model { heads = %d; kv_heads = %d; head_dim = %d; dtype = %s }\n"
             "cluster { nodes = 1; gpus = %d; gpu = cpu }\n"
             "batch { lengths = [%d] }\n"
             "plan { mask = causal; %sblock = 2048; strategy = fcp; passes = forward, backward }\n",
             HEADS, HEADS, HEAD_DIM, dtype, ranks, tokens, score);
    return bench_plan_of(text, NULL, 0);
}

struct product {
    float *a, *b, *c;
};

/* A row: the median over the runs of attention's rate over the rate of the products before and after it. */
static void measure(fcp_session *session, const fcp_plan *plan, fcp_pass pass, fcp_packed *packed,
                    const struct product *x, const char *dtype, int ranks) {
    double ratios[RUNS], rates[RUNS], seconds = 0, goal = pass == FCP_FORWARD ? 0.6 : 0.5;
    double operations = (pass == FCP_FORWARD ? 4.0 : 10.0) * HEAD_DIM * HEADS * TOKENS * (TOKENS + 1.0) / 2;
    char name[80], note[120];
    for (int i = 0; i < RUNS; i++) {
        fcp_error err;
        double before = gflops_of_sgemm(x->a, x->b, x->c);
        if (fcp_session_run_packed(session, plan, pass, packed, &seconds, &err) != FCP_OK) {
            bench_row("host", 0, "", "runs", false, err.message);
            return;
        }
        rates[i] = operations / seconds * 1e-9;
        ratios[i] = 2 * rates[i] / (before + gflops_of_sgemm(x->a, x->b, x->c));
    }
    double ratio = bench_median(ratios, RUNS), rate = bench_median(rates, RUNS);
    snprintf(name, sizeof name, "host %s, 16K causal, %s, over sgemm", pass == FCP_FORWARD ? "forward" : "backward",
             dtype);
    snprintf(note, sizeof note, "%.0f GFLOP/s useful, sgemm %.0f; %d rank%s", rate, rate / ratio, ranks,
             ranks > 1 ? "s" : "");
    bench_row(name, ratio, "x", pass == FCP_FORWARD ? ">= 0.6" : ">= 0.5", ratio >= goal, note);
}

/* --- scores ------------------------------------------------------------------------------------------------------- */

/* A row each: the median over the runs of the rate with a score over the rate without, measured in turns. */
static void measure_scores(void) {
    static const struct { const char *name, *text; } scores[] = {{"alibi", "score = alibi; "},
                                                                 {"soft-cap", "score = softcap(c = 20.0); "}};
    enum { PLANS = 1 + sizeof scores / sizeof *scores };
    fcp_plan *plans[PLANS] = {make_plan("fp32", 1, SCORE_TOKENS, "")};
    fcp_session *sessions[PLANS] = {0};
    fcp_packed packed = {0};
    fcp_shape shape;
    fcp_error err = {.message = "no plan"};
    bool ok = true;
    for (int i = 1; i < PLANS; i++) plans[i] = make_plan("fp32", 1, SCORE_TOKENS, scores[i - 1].text);
    for (int i = 0; ok && i < PLANS; i++)
        ok = plans[i] && fcp_session_create(plans[i], NULL, &sessions[i], &err) == FCP_OK;
    if (ok) fcp_plan_shape(plans[0], &shape);
    ok = ok && fcp_packed_alloc(&shape, (1u << FCP_TENSORS) - 1, &packed, &err) == FCP_OK;
    if (ok) fcp_packed_draw(&shape, (1u << FCP_TENSORS) - 1, 1, &packed);
    for (int pass = 0; ok && pass < FCP_PASSES; pass++) {
        double seconds[PLANS] = {0}, ratios[PLANS][RUNS];
        for (int run = 0; ok && run < RUNS; run++)
            for (int i = 0; ok && i < PLANS; i++) {
                ok = fcp_session_run_packed(sessions[i], plans[i], (fcp_pass)pass, &packed, &seconds[i], &err) ==
                     FCP_OK;
                ratios[i][run] = seconds[0] / seconds[i];
            }
        for (int i = 1; ok && i < PLANS; i++) {
            char name[80], note[120];
            double ratio = bench_median(ratios[i], RUNS);
            snprintf(name, sizeof name, "host %s, 4K causal, %s, over the same without", pass ? "backward" : "forward",
                     scores[i - 1].name);
            snprintf(note, sizeof note, "the last run: %.2f s, without %.2f s", seconds[i], seconds[0]);
            bench_row(name, ratio, "x", ">= 0.6", ratio >= 0.6, note);
        }
    }
    if (!ok) bench_row("host", 0, "", "runs", false, err.message);
    fcp_packed_free(&packed);
    for (int i = 0; i < PLANS; i++) {
        fcp_session_free(sessions[i]);
        fcp_plan_free(plans[i]);
    }
}

static void measure_dtype(const char *dtype, const struct product *x) {
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    int ranks = processors < 1 ? 1 : processors > 8 ? 8 : (int)processors;
    fcp_plan *plan = make_plan(dtype, ranks, TOKENS, "");
    fcp_session *session = NULL;
    fcp_packed packed = {0};
    fcp_shape shape;
    fcp_error err;
    if (!plan) return;
    fcp_plan_shape(plan, &shape);
    if (fcp_session_create(plan, NULL, &session, &err) == FCP_OK &&
        fcp_packed_alloc(&shape, (1u << FCP_TENSORS) - 1, &packed, &err) == FCP_OK) {
        fcp_packed_draw(&shape, (1u << FCP_TENSORS) - 1, 1, &packed);
        measure(session, plan, FCP_FORWARD, &packed, x, dtype, ranks);
        measure(session, plan, FCP_BACKWARD, &packed, x, dtype, ranks);
    } else bench_row("host", 0, "", "runs", false, err.message);
    fcp_session_free(session);
    fcp_packed_free(&packed);
    fcp_plan_free(plan);
}

void bench_host(void);
void bench_host(void) {
    size_t bytes = (size_t)SIDE * SIDE * sizeof(float);
    struct product x = {malloc(bytes), malloc(bytes), malloc(bytes)};
    for (size_t i = 0; x.a && x.b && x.c && i < (size_t)SIDE * SIDE; i++) {
        x.a[i] = (float)(i % 17) / 17;
        x.b[i] = (float)(i % 13) / 13;
    }
    if (x.a && x.b && x.c) {
        gflops_of_sgemm(x.a, x.b, x.c);
        measure_dtype("fp32", &x);
        measure_dtype("bf16", &x);
        measure_scores();
    }
    free(x.a);
    free(x.b);
    free(x.c);
}
