/* bench_host.c: the host backend's attention beside OpenBLAS's matrix product, on the same processors in the same run:
 * 16K tokens, causal, 8 heads of 128. Rates count useful operations: 4 (forward) or 10 (backward) * head_dim a pair
 * and head. And 4K tokens with a score beside the same without, in turns. */
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../compiler/fcpc.h"
#include "../../runtime/plan.h"
#include "../../runtime/tensors.h"
#include "bench.h"

enum { RUNS = 3, SIDE = 2048, TOKENS = 16384, HEADS = 8, HEAD_DIM = 128, SCORE_TOKENS = 4096 };

static double gflops_of_sgemm(float *a, float *b, float *c) {
    double begin = bench_now();
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, SIDE, SIDE, SIDE, 1, a, SIDE, b, SIDE, 0, c, SIDE);
    return 2.0 * SIDE * SIDE * SIDE / (bench_now() - begin) * 1e-9;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int count) {
    qsort(x, (size_t)count, sizeof *x, by_value);
    return x[count / 2];
}

static fcp_plan *make_plan(const char *dtype, int ranks, int tokens) {
    char text[400];
    fcp_plan *plan = NULL;
    fcpc_program *program = NULL;
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    snprintf(text, sizeof text,
             "model { heads = %d; kv_heads = %d; head_dim = %d; dtype = %s }\n"
             "cluster { nodes = 1; gpus = %d; gpu = cpu }\n"
             "batch { lengths = [%d] }\n"
             "plan { mask = causal; block = 2048; strategy = fcp; passes = forward, backward }\n",
             HEADS, HEADS, HEAD_DIM, dtype, ranks, tokens);
    fcp_code code = fcpc_parse_text("bench.fcp", text, strlen(text), NULL, d, &program);
    if (code == FCP_OK) code = fcpc_plan(program, NULL, 0, NULL, d, NULL, &plan);
    if (code != FCP_OK) {
        char *picture = fcpc_diagnostics_render(d, false);
        fprintf(stderr, "%s", picture ? picture : "no plan\n");
        free(picture);
    }
    fcpc_program_free(program);
    fcpc_diagnostics_free(d);
    return plan;
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
    double ratio = median(ratios, RUNS), rate = median(rates, RUNS);
    snprintf(name, sizeof name, "host %s, 16K causal, %s, over sgemm", pass == FCP_FORWARD ? "forward" : "backward",
             dtype);
    snprintf(note, sizeof note, "%.0f GFLOP/s useful, sgemm %.0f; %d rank%s", rate, rate / ratio, ranks,
             ranks > 1 ? "s" : "");
    bench_row(name, ratio, "x", pass == FCP_FORWARD ? ">= 0.6" : ">= 0.5", ratio >= goal, note);
}

/* --- scores ------------------------------------------------------------------------------------------------------- */

static mc_node node(mc_op op, uint32_t a, uint32_t b, double real, int64_t imm) {
    mc_node x = {.op = op, .a = a, .b = b, .c = MC_NONE, .guard = MC_NONE, .imm = imm};
    if (op == MC_CONST_F) memcpy(&x.imm, &real, sizeof x.imm);
    return x;
}

/* s + (k - q) 2^(-8 (h + 1) / heads), or 20 tanh(s / 20); and their slopes. Returns the numbers of nodes. */
static void score_code(bool alibi, mc_node *score, uint64_t *score_count, mc_node *slope, uint64_t *slope_count) {
    const uint32_t none = MC_NONE;
    if (alibi) {
        const mc_node nodes[] = {node(MC_S, none, none, 0, 0), node(MC_K, none, none, 0, 0),
                                 node(MC_Q, none, none, 0, 0), node(MC_SUB, 1, 2, 0, 0),
                                 node(MC_H, none, none, 0, 0), node(MC_CONST_I, none, none, 0, 1),
                                 node(MC_ADD, 4, 5, 0, 0), node(MC_TO_F, 6, none, 0, 0),
                                 node(MC_CONST_F, none, none, -8.0 / HEADS, 0), node(MC_MUL_F, 7, 8, 0, 0),
                                 node(MC_EXP2_F, 9, none, 0, 0), node(MC_TO_F, 3, none, 0, 0),
                                 node(MC_MUL_F, 11, 10, 0, 0), node(MC_ADD_F, 0, 12, 0, 0)};
        memcpy(score, nodes, sizeof nodes);
        *score_count = sizeof nodes / sizeof *nodes;
        slope[0] = node(MC_CONST_F, none, none, 1, 0);
        *slope_count = 1;
        return;
    }
    const mc_node nodes[] = {node(MC_S, none, none, 0, 0), node(MC_CONST_F, none, none, 20, 0),
                             node(MC_DIV_F, 0, 1, 0, 0), node(MC_TANH_F, 2, none, 0, 0)};
    memcpy(score, nodes, sizeof nodes);
    memcpy(slope, nodes, sizeof nodes);
    score[4] = node(MC_MUL_F, 1, 3, 0, 0);
    *score_count = 5;
    slope[4] = node(MC_CONST_F, none, none, 1, 0);
    slope[5] = node(MC_MUL_F, 3, 3, 0, 0);
    slope[6] = node(MC_SUB_F, 4, 5, 0, 0);
    *slope_count = 7;
}

/* A row each: the median over the runs of the rate with a score over the rate without, measured in turns. */
static void measure_scores(void) {
    static const char *const names[] = {"alibi", "soft-cap"};
    fcp_plan *plan = make_plan("fp32", 1, SCORE_TOKENS);
    fcp_packed packed = {0};
    fcp_shape shape;
    fcp_error err;
    if (!plan) return;
    fcp_plan_shape(plan, &shape);
    bool ok = fcp_packed_alloc(&shape, (1u << FCP_TENSORS) - 1, &packed, &err) == FCP_OK;
    if (ok) fcp_packed_draw(&shape, (1u << FCP_TENSORS) - 1, 1, &packed);
    for (int pass = 0; ok && pass < FCP_PASSES; pass++)
        for (int i = 0; ok && i < 2; i++) {
            mc_node score[16], slope[16];
            double ratios[RUNS], with = 0, without = 0;
            char name[80], note[120];
            for (int run = 0; ok && run < RUNS; run++) {
                fcp_session *session = NULL;
                plan->score = score;
                plan->slope = slope;
                for (int scored = 0; ok && scored < 2; scored++) {
                    if (scored) score_code(i == 0, score, &plan->score_count, slope, &plan->slope_count);
                    else plan->score_count = plan->slope_count = 0;
                    ok = fcp_session_create(plan, NULL, &session, &err) == FCP_OK &&
                         fcp_session_run_packed(session, plan, (fcp_pass)pass, &packed, scored ? &with : &without,
                                                &err) == FCP_OK;
                    fcp_session_free(session);
                    session = NULL;
                }
                ratios[run] = without / with;
            }
            plan->score_count = plan->slope_count = 0;
            if (!ok) break;
            double ratio = median(ratios, RUNS);
            snprintf(name, sizeof name, "host %s, %s, over the same without", pass ? "backward" : "forward", names[i]);
            snprintf(note, sizeof note, "the last run: %.2f s, without %.2f s", with, without);
            bench_row(name, ratio, "x", ">= 0.6", ratio >= 0.6, note);
        }
    if (!ok) bench_row("host", 0, "", "runs", false, err.message);
    fcp_packed_free(&packed);
    fcp_plan_free(plan);
}

static void measure_dtype(const char *dtype, const struct product *x) {
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    int ranks = processors < 1 ? 1 : processors > 8 ? 8 : (int)processors;
    fcp_plan *plan = make_plan(dtype, ranks, TOKENS);
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
