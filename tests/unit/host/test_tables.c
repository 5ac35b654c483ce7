/* test_tables.c: tests gradients of the tables that a score reads. They are compared with finite differences of the
 * loss, which is computed in float64 by the definition of attention. The exact sums of which these gradients are made
 * are tested as well. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/host/sums.h"
#include "runtime/judge/reference.h"
#include "tests/support/plan_of.h"
#include "tests/support/splitmix.h"

/* --- sums --------------------------------------------------------------------------------------------------------- */

static float sum_of(const float *x, size_t count, size_t step) {
    fcp_sums *s = fcp_sums_new(3);
    float out[3] = {7, 7, 7};
    cr_assert_not_null(s);
    fcp_sums_enter(s);
    for (size_t i = 0, at = 0; i < count; i++, at = (at + step) % count) fcp_sums_add(s, 1, x[at]);
    fcp_sums_leave(s);
    fcp_sums_read(s, out);
    cr_assert(out[0] == 0 && out[2] == 0, "only sum 1 was added to");
    const float sum = out[1];
    fcp_sums_clear(s);
    fcp_sums_read(s, out);
    cr_assert(out[1] == 0);
    fcp_sums_free(s);
    return sum;
}

static float two(float a, float b) { return sum_of((float[]){a, b}, 2, 1); }

Test(tables, sums_are_exact) {
    cr_assert(sum_of((float[]){1e30f, 1, -1e30f}, 3, 1) == 1);
    cr_assert(sum_of((float[]){0x1p127f, 0x1p-149f, -0x1p127f}, 3, 1) == 0x1p-149f);
    cr_assert(sum_of((float[]){-0x1p127f, -0x1p-149f, 0x1p127f}, 3, 1) == -0x1p-149f);
    cr_assert(two(1, 0x1p-24f) == 1, "a tie goes to the even one");
    cr_assert(two(0x1.000002p0f, 0x1p-24f) == 0x1.000004p0f);
    cr_assert(sum_of((float[]){1, 0x1p-24f, 0x1p-149f}, 3, 1) == 0x1.000002p0f, "just above a tie");
    cr_assert(two(-1, -0x1p-24f) == -1);
    cr_assert(two(0x1p-126f, -0x1p-149f) == 0x1p-126f - 0x1p-149f);
    cr_assert(two(0x1.fffffep127f, 0x1p103f) == INFINITY && two(-0x1.fffffep127f, -0x1p103f) == -INFINITY);
    cr_assert(two(INFINITY, -1) == INFINITY && isnan(two(INFINITY, -INFINITY)) && isnan(two(NAN, 1)));
}

/* Numbers of all sizes: the sum is that of whole numbers, and every order gives its bits. */
Test(tables, sums_do_not_depend_on_order) {
    enum { COUNT = 1009 }; /* a prime: every step reaches all */
    float x[COUNT], whole[COUNT];
    uint64_t seed = 5;
    int64_t sum = 0;
    for (size_t i = 0; i < COUNT; i++) {
        const int32_t n = (int32_t)(splitmix(&seed) >> 40) - (1 << 23);
        x[i] = ldexpf((float)n, (int)(splitmix(&seed) % 200) - 140);
        whole[i] = ldexpf((float)n, -60);
        sum += n;
    }
    const float first = sum_of(x, COUNT, 1);
    cr_assert(isfinite(first) && first != 0);
    for (size_t step = 2; step < 40; step += 3) cr_assert(sum_of(x, COUNT, step) == first, "step %zu", step);
    cr_assert(sum_of(whole, COUNT, 1) == ldexpf((float)sum, -60));
}

/* --- gradients ---------------------------------------------------------------------------------------------------- */

enum { HEADS = 4, DIM = 8, ALL = (1 << FCP_TENSORS) - 1, NUMBERS_MAX = 256 };

struct bench {
    fcp_plan *plan;
    fcp_shape shape;
    fcp_packed packed;
    size_t count; /* numbers of all tables */
    fcp_tensors run;
    float gradient[NUMBERS_MAX];
};

static void bench_open(struct bench *b, const char *score, const char *mask) {
    char source[1200];
    snprintf(source, sizeof source,
             "model { heads = 4; kv_heads = 2; head_dim = 8; dtype = fp32\n"
             "  table near = [[0.5, -0.25, 0.125], [0.0, 1.0, 0.5], [-1.0, 0.75, 0.25], [2.0, 0.5, -0.5]]\n"
             "  table gain = [1.25, 0.5, 1.5, -0.75]\n"
             "  table bucket = [0, 0, 1, 2, 1]\n"
             "  table cut = [0.25] }\n"
             "cluster { gpus = 1; gpu = cpu }\n"
             "batch { lengths = [70, 1, 41]; field soft = [0.5, 2.0, -1.5] over sequences\n"
             "  field w = [1.0, 0.5, 2.0, -1.0, 0.25, 1.5] over kv_heads; field far = [0 x 70, 3 x 42] }\n"
             "mask odd = q != k and q != 3\n"
             "score mine = %s\n"
             "plan { mask = %s; score = mine; block = 64; layout = contiguous }\n",
             score, mask);
    *b = (struct bench){.plan = plan_of(source)};
    fcp_plan_shape(b->plan, &b->shape);
    b->count = fcp_plan_table_numbers(b->plan);
    cr_assert(b->count && b->count <= NUMBERS_MAX);
    cr_assert(fcp_packed_alloc(&b->shape, ALL, &b->packed, NULL) == FCP_OK);
    fcp_packed_draw(&b->shape, ALL, 3, &b->packed);
    for (int t = 0; t < FCP_TENSORS; t++) fcp_tensors_set(&b->run, (fcp_tensor)t, b->packed.t[t]);
    b->run.d_lse = NULL; /* the plan takes none */
}

static void bench_close(struct bench *b) {
    fcp_packed_free(&b->packed);
    fcp_plan_free(b->plan);
}

/* Both passes; the gradients are then in b->gradient. */
static void bench_run(struct bench *b, uint32_t threads) {
    fcp_session *session;
    fcp_error err = {0};
    const fcp_session_options options = {.size = sizeof options, .compute_threads = threads};
    cr_assert(fcp_session_create(b->plan, &options, &session, &err) == FCP_OK, "%s", err.message);
    for (int again = 0; again < 2; again++) { /* the second time nothing is left of the first */
        memset(b->gradient, 0x7f, sizeof b->gradient);
        b->run.d_table = b->gradient;
        cr_assert(fcp_session_run(session, FCP_FORWARD, &b->run, &err) == FCP_OK, "%s", err.message);
        cr_assert(fcp_session_run(session, FCP_BACKWARD, &b->run, &err) == FCP_OK, "%s", err.message);
    }
    fcp_session_free(session);
}

/* Number i of all tables, in the plan. */
static double *number_of(const struct bench *b, size_t i) {
    fcp_table t;
    for (uint32_t n = 0; n < fcp_plan_tables(b->plan, n, &t); n++) {
        const size_t count = t.rows * (t.columns ? t.columns : 1);
        if (i >= t.first && i < t.first + count) return (double *)(uintptr_t)&t.values[i - t.first];
    }
    cr_assert(false, "there is no number %zu", i);
    return NULL;
}

/* sum of O * dO, by the definition */
static double loss(const struct bench *b) {
    const float *d_o = b->packed.t[FCP_TENSOR_DO];
    const size_t count = b->shape.tokens * HEADS * DIM;
    double *o = malloc(count * sizeof *o), sum = 0;
    cr_assert(fcp_reference_compute(b->plan, &b->packed, 2, &(fcp_reference){.o = o}, NULL) == FCP_OK);
    for (size_t i = 0; i < count; i++) sum += o[i] * d_o[i];
    free(o);
    return sum;
}

static const char *const scores[] = {"s + near[h, bucket[min(abs(q - k), 4)]]",
                                     "s * gain[h] + 0.5 * near[(q + k) % 4, k % 3]",
                                     "cut[0] * tanh(s * gain[q % 4] / cut[0])",
                                     "if s < cut[0] then s * near[h, 0] else max(s, near[h, 1]) + gain[h] * gain[3]",
                                     "s + exp(gain[h]) * (k - q) / 40.0 - abs(near[3 - h, q % 3]) + sqrt(cut[0])",
                                     "s + floor(gain[k % 4]) + near[h, k % 3]",
                                     /* fields have no gradients, and those of tables are multiplied by them */
                                     "s * soft + w[h / 2] * gain[(k + far[k]) % 4] - near[h, 1] * soft"};

static void compare(const char *score, const char *mask) {
    struct bench b;
    const double step = 1e-5;
    bench_open(&b, score, mask);
    bench_run(&b, 2);
    double largest = 0;
    for (size_t i = 0; i < b.count; i++) {
        double *x = number_of(&b, i), kept = *x, d[2];
        for (int side = 0; side < 2; side++) {
            *x = kept + (side ? step : -step);
            d[side] = loss(&b);
        }
        *x = kept;
        const double want = (d[1] - d[0]) / (2 * step);
        if (fabs(want) > largest) largest = fabs(want);
        cr_assert(fabs((double)b.gradient[i] - want) < 2e-4 * (1 + fabs(want)), "%s, %s: number %zu: %g, not %g", score,
                  mask, i, (double)b.gradient[i], want);
    }
    cr_assert(largest > 0.1, "%s: nothing was tested", score);
    bench_close(&b);
}

Test(tables, gradients_are_differences) {
    for (size_t i = 0; i < sizeof scores / sizeof *scores; i++) compare(scores[i], i % 2 ? "odd" : "causal");
}

Test(tables, any_number_of_threads_gives_the_same_bits) {
    float first[NUMBERS_MAX];
    for (uint32_t threads = 1; threads < 8; threads += 3) {
        struct bench b;
        bench_open(&b, scores[1], "causal");
        bench_run(&b, threads);
        if (threads == 1) memcpy(first, b.gradient, sizeof first);
        cr_assert(memcmp(first, b.gradient, b.count * sizeof *first) == 0, "%u threads", threads);
        bench_close(&b);
    }
}

/* A run's own tables do what the same numbers in the plan do; and those of the plan come back without them. */
Test(tables, a_run_has_tables_of_its_own) {
    struct bench b, other;
    float own[NUMBERS_MAX];
    bench_open(&b, scores[1], "causal");
    bench_open(&other, scores[1], "causal");
    for (size_t i = 0; i < b.count; i++) {
        own[i] = (float)*number_of(&b, i) + 0.25f * (float)(i % 5);
        *number_of(&other, i) = (double)own[i];
    }
    b.run.table = own;
    bench_run(&b, 2);
    bench_run(&other, 2);
    cr_assert(memcmp(b.gradient, other.gradient, b.count * sizeof *own) == 0);
    for (int t = 0; t < FCP_TENSORS; t++)
        cr_assert(memcmp(b.packed.t[t], other.packed.t[t], fcp_packed_bytes(&b.shape, (fcp_tensor)t)) == 0, "%s",
                  fcp_tensor_name((fcp_tensor)t));
    b.run.table = NULL;
    bench_run(&b, 2);
    cr_assert(memcmp(b.packed.t[FCP_TENSOR_O], other.packed.t[FCP_TENSOR_O],
                     fcp_packed_bytes(&b.shape, FCP_TENSOR_O)) != 0);
    bench_close(&b);
    bench_close(&other);
}

/* Keys that a query may not see add nothing, even if they are no numbers. */
Test(tables, masked_pairs_add_nothing) {
    struct bench b;
    bench_open(&b, scores[0], "odd");
    const size_t row = 3 * HEADS * DIM; /* query 3 of the first sequence sees no key */
    float *q = b.packed.t[FCP_TENSOR_Q], *d_o = b.packed.t[FCP_TENSOR_DO], before[NUMBERS_MAX];
    bench_run(&b, 2);
    memcpy(before, b.gradient, sizeof before);
    for (size_t i = row; i < row + HEADS * DIM; i++) q[i] = NAN, d_o[i] = INFINITY;
    bench_run(&b, 2);
    cr_assert(memcmp(before, b.gradient, b.count * sizeof *before) == 0);
    bench_close(&b);
}

Test(tables, of_a_run_need_a_plan_with_tables) {
    fcp_plan *plan = plan_of("model { heads = 2; head_dim = 8; dtype = fp32; table t = [1, 2] }\n"
                             "batch { lengths = [10] }\nscore mine = s + t[h]\nmask causal_ = k <= q\n"
                             "plan { mask = causal_; score = mine }\n");
    fcp_session *session;
    fcp_error err;
    float own[2] = {0};
    cr_assert(fcp_plan_tables(plan, 0, NULL) == 0 && fcp_plan_table_numbers(plan) == 0, "whole numbers are not learnt");
    cr_assert(fcp_session_create(plan, NULL, &session, &err) == FCP_OK, "%s", err.message);
    const fcp_tensors both[] = {{.table = own}, {.d_table = own}};
    for (int i = 0; i < 2; i++) {
        cr_assert(fcp_session_run(session, FCP_FORWARD, &both[i], &err) == FCP_E_TENSOR);
        cr_assert(strstr(err.message, "tables of its own, and the plan has none"), "%s", err.message);
    }
    fcp_session_free(session);
    fcp_plan_free(plan);
}
