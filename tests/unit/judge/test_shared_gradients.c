/* test_shared_gradients.c: tests the gradients of sinks and tables: what a session writes is the numerical derivative
 * of the definition in float64, and the judge calls it right, and anything else wrong, with its place. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/judge/packed.h"
#include "runtime/judge/reference.h"
#include "runtime/plan/plan.h"
#include "tests/support/plan_of.h"

enum { ALL = (1 << FCP_TENSORS) - 1, BOTH = 1 << FCP_FORWARD | 1 << FCP_BACKWARD };

typedef struct bench {
    fcp_plan *plan;
    fcp_shape shape;
    fcp_packed packed;
    fcp_check_report report;
    fcp_check_options options;
} bench;

static bench run_text(const char *text) {
    bench b = {.plan = plan_of(text), .options = {.passes = BOTH, .threads = 2, .shared = true}};
    fcp_session *session;
    fcp_error err;
    fcp_plan_shape(b.plan, &b.shape);
    cr_assert_eq(fcp_packed_alloc(&b.shape, ALL, &b.packed, &err), FCP_OK);
    fcp_packed_draw(&b.shape, ALL, 3, &b.packed);
    if (b.plan->sink_count) b.packed.d_sink = calloc(b.shape.heads, sizeof(float));
    const uint64_t numbers = fcp_plan_table_numbers(b.plan);
    if (numbers) b.packed.d_table = calloc(numbers, sizeof(float));
    cr_assert_eq(fcp_session_create(b.plan, NULL, &session, &err), FCP_OK, "%s", err.message);
    for (int pass = 0; pass < FCP_PASSES; pass++)
        cr_assert_eq(fcp_session_run_packed(session, b.plan, (fcp_pass)pass, &b.packed, NULL, &err), FCP_OK, "%s",
                     err.message);
    fcp_session_free(session);
    return b;
}

static void end(bench *b) {
    fcp_packed_free(&b->packed);
    fcp_plan_free(b->plan);
}

static void judge(bench *b) {
    fcp_error err;
    b->report = FCP_CHECK_START;
    cr_assert_eq(fcp_check_run(b->plan, &b->options, &b->packed, &b->report, &err), FCP_OK, "%s", err.message);
}

static const char *said(const bench *b, unsigned check) {
    static char text[400];
    fcp_check_text(b->plan, check, &b->report.tensor[check], text, sizeof text);
    return text;
}

/* The loss dO . O + dLSE . LSE, by the definition in float64. */
static double loss(const bench *b) {
    const size_t rows = b->shape.tokens * b->shape.heads, numbers = rows * b->shape.value_dim;
    const float *d_o = b->packed.t[FCP_TENSOR_DO], *d_lse = b->packed.t[FCP_TENSOR_DLSE];
    fcp_reference out = {.o = calloc(numbers, sizeof *out.o), .lse = calloc(rows, sizeof *out.lse)};
    fcp_error err;
    double sum = 0;
    cr_assert_eq(fcp_reference_compute(b->plan, &b->packed, 2, &out, &err), FCP_OK, "%s", err.message);
    for (size_t i = 0; i < numbers; i++) sum += (double)d_o[i] * out.o[i];
    for (size_t i = 0; b->shape.lse_gradient && i < rows; i++)
        if (isfinite(out.lse[i])) sum += (double)d_lse[i] * out.lse[i];
    free(out.o);
    free(out.lse);
    return sum;
}

/* The derivative of the loss by a number of the plan. */
static double slope_by(const bench *b, const double *number) {
    double *x = (double *)(uintptr_t)number; /* the plan is this test's own */
    const double was = *x, step = 0x1p-12;
    *x = was + step;
    const double up = loss(b);
    *x = was - step;
    const double down = loss(b);
    *x = was;
    return (up - down) / (2 * step);
}

#define MODEL(dtype, tables)                                                                                           \
    "model { heads = 4; kv_heads = 2; head_dim = 16; value_dim = 8; dtype = " dtype "\n" tables "}\n"                  \
    "cluster { gpus = 3 }\nbatch { lengths = [70, 1, 90:200] }\n"
#define SLOPES "  table slopes = [0.5, 0.25, 0.125, 0.0625]\n"
#define BIAS "  table bias = [[0.5, -0.25, 1.0], [1.5, 0.0, -1.0], [0.75, 0.5, 0.25]]\n"
#define LEFT "  table left = [3, 5, 9, 2]\n"
#define PLAN "plan { mask = causal; block = 64; "

static const char *const programs[] = {
    MODEL("fp32", "") PLAN "sink = 0.5 }\n",
    MODEL("fp32", "") PLAN "sink = -1.5; lse_gradient = true; strategy = zigzag }\n",
    MODEL("fp32", SLOPES) "score sc = s - slopes[h] * (q - k)\n" PLAN "score = sc }\n",
    MODEL("fp32", SLOPES BIAS) "score sc = s * bias[q % 3, k % 3] - slopes[h]\n" PLAN
                               "score = sc; sink = 1.0; lse_gradient = true; strategy = cad; layout = contiguous }\n",
    /* the derivative by a table depends on s; one table is read twice, and another has whole numbers */
    MODEL("fp32",
          LEFT BIAS
              SLOPES) "mask m = k <= q + left[h]\n"
                      "score sc = 5.0 * tanh((s + bias[h % 3, 1] * bias[0, q % 3]) / 5.0) + exp(slopes[k % 4] * 0.25)\n"
                      "plan { mask = m; block = 64; score = sc; sink = 0.25 }\n",
    /* queries that see no key */
    MODEL("fp32", SLOPES) "mask m = k < q - 20\nscore sc = s + max(slopes[h], 0.2)\n"
                          "plan { mask = m; block = 64; score = sc; sink = 0.25; lse_gradient = true }\n",
};

Test(shared_gradients, are_numerical_derivatives_of_the_definition) {
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        bench b = run_text(programs[i]);
        fcp_table table;
        judge(&b);
        cr_assert(b.report.ok, "program %zu: %s, %s", i, said(&b, FCP_CHECK_DSINK), said(&b, FCP_CHECK_DTABLE));
        cr_assert_eq(b.report.tensor[FCP_CHECK_DSINK].checked, b.packed.d_sink != NULL);
        cr_assert_eq(b.report.tensor[FCP_CHECK_DTABLE].checked, b.packed.d_table != NULL);
        for (uint32_t h = 0; b.packed.d_sink && h < b.shape.heads; h++) {
            const double right = slope_by(&b, &b.plan->sink[h]), is = (double)b.packed.d_sink[h];
            cr_assert(fabs(is - right) <= 1e-4 * (1 + fabs(right)), "program %zu: sink %u: %g, not %g", i, h, is,
                      right);
        }
        for (uint32_t t = 0; t < fcp_plan_tables(b.plan, t, &table); t++)
            for (uint64_t n = 0; n < table.rows * (table.columns ? table.columns : 1); n++) {
                const double right = slope_by(&b, &table.values[n]), is = (double)b.packed.d_table[table.first + n];
                cr_assert(fabs(is - right) <= 1e-4 * (1 + fabs(right)), "program %zu: %s %llu: %g, not %g", i,
                          table.name, (unsigned long long)n, is, right);
            }
        end(&b);
    }
}

/* Spoils a number, in each of these ways, and expects it to be found in its place. */
static void spoil(bench *b, unsigned check, float *numbers, size_t at, const char *place) {
    const float was = numbers[at], wrong[] = {-was, 2 * was, 0, was * 1.001f, NAN, INFINITY};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        numbers[at] = wrong[i];
        judge(b);
        cr_assert(!b->report.ok && !b->report.tensor[check].ok, "%zu", i);
        cr_assert_eq(b->report.tensor[check].worst, at);
        cr_assert_eq((fcp_verdict)b->report.tensor[check].verdict, i < 4 ? FCP_DIFFERS : FCP_NOT_FINITE, "%s",
                     said(b, check));
        cr_assert(strstr(said(b, check), place), "%s", said(b, check));
    }
    numbers[at] = was;
    judge(b);
    cr_assert(b->report.ok);
}

Test(shared_gradients, wrong_ones_are_found_with_their_place) {
    bench b = run_text(programs[3]);
    spoil(&b, FCP_CHECK_DSINK, b.packed.d_sink, 2, "dsink ");
    spoil(&b, FCP_CHECK_DSINK, b.packed.d_sink, 2, "(head 2");
    fcp_table bias, slopes; /* the score reads bias first */
    cr_assert_eq(fcp_plan_tables(b.plan, 0, &bias), 2);
    fcp_plan_tables(b.plan, 1, &slopes);
    cr_assert(bias.columns == 3 && slopes.rows == 4);
    spoil(&b, FCP_CHECK_DTABLE, b.packed.d_table, slopes.first + 3, "(table slopes, element 3");
    spoil(&b, FCP_CHECK_DTABLE, b.packed.d_table, bias.first + 5, "(table bias, row 1, column 2");
    b.options.shared = false; /* nobody has added up what ranks have */
    b.packed.d_sink[0] = 77;
    judge(&b);
    cr_assert(b.report.ok && !b.report.tensor[FCP_CHECK_DSINK].checked && !b.report.tensor[FCP_CHECK_DTABLE].checked);
    end(&b);
}

/* The verdict, and all figures, do not depend on how many threads there are. */
Test(shared_gradients, the_same_figures_with_any_number_of_threads) {
    bench b = run_text(programs[4]);
    b.options.threads = 1;
    judge(&b);
    const fcp_check one = b.report.tensor[FCP_CHECK_DTABLE];
    for (unsigned threads = 2; threads < 7; threads++) {
        b.options.threads = threads;
        judge(&b);
        const fcp_check *is = &b.report.tensor[FCP_CHECK_DTABLE];
        cr_assert(is->max_abs_error == one.max_abs_error && is->reference_error == one.reference_error &&
                  is->tolerance == one.tolerance && is->share == one.share && is->worst == one.worst);
    }
    end(&b);
}

/* A sample has O and LSE of all queries, but not all pairs. */
Test(shared_gradients, of_sinks_are_checked_in_a_sample_and_of_tables_are_not) {
    bench b = run_text(programs[3]);
    b.options.work = fcp_check_work(b.plan, BOTH) / 4;
    b.packed.d_table[0] = NAN;
    judge(&b);
    cr_assert(b.report.ok && b.report.sampled && b.report.tensor[FCP_CHECK_DSINK].checked);
    cr_assert(!b.report.tensor[FCP_CHECK_DTABLE].checked);
    b.packed.d_sink[1] *= 1.01f;
    judge(&b);
    cr_assert(!b.report.tensor[FCP_CHECK_DSINK].ok);
    end(&b);
}

/* Keys have all of every sum but for 1e-40 of it, or less: then so do gradients of sinks, and that says something. */
Test(shared_gradients, of_sinks_that_count_for_nothing) {
    bench b = run_text(MODEL("fp32", "") "score far = s + 95.0\n" PLAN "score = far; sink = 0.0 }\n");
    judge(&b);
    cr_assert(b.report.ok, "%s", said(&b, FCP_CHECK_DSINK));
    b.packed.d_sink[1] = 1e-3f;
    judge(&b);
    cr_assert_eq((fcp_verdict)b.report.tensor[FCP_CHECK_DSINK].verdict, FCP_DIFFERS);
    end(&b);
}

/* What 16 bits leave of P and dS is allowed, and more is not. */
Test(shared_gradients, in_two_bytes) {
    static const char *const dtypes[] = {MODEL("fp16", SLOPES BIAS), MODEL("bf16", SLOPES BIAS)};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        char text[800];
        snprintf(text, sizeof text,
                 "%sscore sc = s - slopes[h] * (q - k) * 0.05 + bias[q %% 3, k %% 3]\n" PLAN
                 "score = sc; sink = 1.0 }\n",
                 dtypes[i]);
        bench b = run_text(text);
        judge(&b);
        cr_assert(b.report.ok, "%s, %s", said(&b, FCP_CHECK_DSINK), said(&b, FCP_CHECK_DTABLE));
        b.packed.d_table[6] *= -1;
        b.packed.d_sink[3] *= 1.01f;
        judge(&b);
        cr_assert(!b.report.tensor[FCP_CHECK_DSINK].ok && !b.report.tensor[FCP_CHECK_DTABLE].ok);
        end(&b);
    }
}
