/* exact_attention.h: attention by its definition in float64, for inputs whose logits float32 holds exactly.
 *
 * The judge allows an error that grows with the logits, because float32 rounds large logits more. If logits are exact,
 * that error does not arise: softmax depends only on the differences between the logits of a row, so a correct
 * result is right to the last few bits, however large they are. To make logits exact, inputs are drawn as small whole
 * numbers times a `grain`. Tests then allow an error of 1e-5. */
#ifndef EXACT_ATTENTION_H
#define EXACT_ATTENTION_H
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/numeric.h"
#include "runtime/exec/tensors.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/plan_arrays.h"
#include "tests/support/plain.h"

typedef struct exact {
    fcp_shape shape;
    double *t[FCP_TENSORS];     /* as packed tensors; those of inputs are the inputs */
    double *log_sum;            /* LSE is the row's largest logit or sink, and this is what the sum adds to it */
    double *max_logit, *d_sink; /* [heads] */
    double *d_table;            /* [keys of the batch]: the gradient of what is added to the logits of each key */
} exact;

static inline size_t exact_count(const fcp_shape *shape, int t) {
    return fcp_packed_bytes(shape, (fcp_tensor)t) / fcp_dtype_size(fcp_tensor_dtype(shape, (fcp_tensor)t));
}

/* Whole numbers -2 to 2, times `grain` in Q; others times a quarter in V, dO and dLSE. */
static inline void exact_draw(const fcp_shape *shape, uint64_t seed, double grain, fcp_packed *packed) {
    static const int drawn[] = {FCP_TENSOR_Q, FCP_TENSOR_K, FCP_TENSOR_V, FCP_TENSOR_DO, FCP_TENSOR_DLSE};
    uint64_t x = seed * 77 + 5;
    for (size_t i = 0; i < sizeof drawn / sizeof *drawn; i++) {
        const int t = drawn[i];
        const fcp_dtype dtype = fcp_tensor_dtype(shape, (fcp_tensor)t);
        for (size_t j = 0; packed->t[t] && j < exact_count(shape, t); j++) {
            x = x * UINT64_C(6364136223846793005) + 1442695040888963407u;
            const float n = (float)((int)(x >> 40 & 0xffff) % 5 - 2);
            const float number = t == FCP_TENSOR_Q ? n * (float)grain : t == FCP_TENSOR_K ? n : n / 4;
            fcp_from_float(dtype, &number, (char *)packed->t[t] + j * fcp_dtype_size(dtype), 1);
        }
    }
}

/* A row of a head: the allowed keys' logits, and what they add up to. */
typedef struct exact_row {
    double *x, *slope; /* [keys]; a key that is not allowed has -inf */
    double most, log_sum;
    bool any;
} exact_row;

static inline void exact_logits(const fcp_plan *plan, const mc_env *env, uint32_t head, int64_t q, int64_t keys,
                                int64_t *scratch, exact_row *row) {
    const mc_code mask = {plan->mask, (uint32_t)plan->mask_count}, score = {plan->score, (uint32_t)plan->score_count};
    const mc_code slope = {plan->slope, (uint32_t)plan->slope_count};
    row->any = false;
    row->most = -INFINITY;
    for (int64_t j = 0; j < keys; j++) {
        float s = (float)row->x[j], value = s, by = 1;
        if (score.count) mc_eval_score_row(score, env, q, j, 1, head, &s, scratch, &value);
        if (score.count) mc_eval_score_row(slope, env, q, j, 1, head, &s, scratch, &by);
        row->slope[j] = (double)by;
        row->x[j] = mc_eval(mask, env, q, j, head, scratch) ? (double)value : -INFINITY;
        row->any |= row->x[j] > -INFINITY;
        row->most = fmax(row->most, row->x[j]);
    }
}

/* What a plan computes of these inputs. exact_free ends it. */
static inline exact exact_make(const fcp_plan *plan, const fcp_packed *in) {
    exact e = {0};
    fcp_plan_shape(plan, &e.shape);
    const fcp_shape *s = &e.shape;
    const size_t d = s->head_dim, value = s->value_dim, apart = s->values_in_keys ? d : value, H = s->heads,
                 K = s->kv_heads;
    for (int t = 0; t < FCP_TENSORS; t++) {
        const size_t count = exact_count(s, t);
        e.t[t] = calloc(count + 1, sizeof *e.t[t]);
        float *numbers = calloc(count + 1, sizeof *numbers);
        cr_assert(e.t[t] && numbers);
        if (in->t[t]) fcp_to_float(fcp_tensor_dtype(s, (fcp_tensor)t), in->t[t], numbers, count);
        const bool input = t == FCP_TENSOR_Q || t == FCP_TENSOR_K || t == FCP_TENSOR_V || t == FCP_TENSOR_DO ||
                           (t == FCP_TENSOR_DLSE && s->lse_gradient);
        for (size_t i = 0; input && i < count; i++) e.t[t][i] = (double)numbers[i];
        free(numbers);
    }
    const double *q = e.t[FCP_TENSOR_Q], *k = e.t[FCP_TENSOR_K], *v = s->values_in_keys ? k : e.t[FCP_TENSOR_V];
    double *dk = e.t[FCP_TENSOR_DK], *dv = s->values_in_keys ? dk : e.t[FCP_TENSOR_DV];
    e.log_sum = calloc(s->tokens * H + 1, sizeof(double));
    e.max_logit = calloc(H, sizeof(double));
    e.d_sink = calloc(H, sizeof(double));
    e.d_table = calloc(s->key_tokens + 1, sizeof(double));
    double *memory = calloc(4 * s->key_tokens + 4, sizeof(double));
    int64_t *scratch = calloc(mc_row_scratch((mc_code){plan->mask, (uint32_t)plan->mask_count}) +
                                  mc_row_scratch((mc_code){plan->score, (uint32_t)plan->score_count}) +
                                  mc_row_scratch((mc_code){plan->slope, (uint32_t)plan->slope_count}) + 4096,
                              sizeof *scratch);
    mc_array *arrays = calloc(plan->arrays_count + 1, sizeof *arrays);
    mc_bands *bands = calloc(plan->slices_count + 1, sizeof *bands);
    cr_assert(e.log_sum && e.max_logit && e.d_sink && e.d_table && memory && scratch && arrays && bands);
    for (size_t h = 0; h < H; h++) e.max_logit[h] = -INFINITY;
    for (uint32_t seq = 0; seq < plan->sequences_count; seq++) {
        uint64_t queries, keys;
        const uint64_t q0 = fcp_plan_sequence_offset(plan, seq, &queries), k0 = fcp_plan_key_offset(plan, seq, &keys);
        mc_env env;
        fcp_plan_env(plan, seq, arrays, bands, &env);
        for (size_t i = 0; i < queries * H; i++) {
            const size_t h = i % H, g = h / (H / K), at = (q0 + i / H) * H + h;
            exact_row row = {.x = memory, .slope = memory + keys};
            double *p = memory + 2 * keys, *dp = p + keys, sum = 0, delta = 0;
            const double *d_o = e.t[FCP_TENSOR_DO] + at * value;
            double *o = e.t[FCP_TENSOR_O] + at * value, *dq = e.t[FCP_TENSOR_DQ] + at * d;
            for (size_t j = 0; j < keys; j++) {
                double dot = 0;
                for (size_t c = 0; c < d; c++) dot += q[at * d + c] * k[((k0 + j) * K + g) * d + c];
                row.x[j] = (double)(float)plan->problem->scale * dot;
            }
            exact_logits(plan, &env, (uint32_t)h, fcp_plan_query_position(plan, seq) + (int64_t)(i / H), (int64_t)keys,
                         scratch, &row);
            e.max_logit[h] = fmax(e.max_logit[h], row.most);
            const double sink = plan->sink_count ? plan->sink[h] : -INFINITY, most = fmax(row.most, sink);
            e.t[FCP_TENSOR_LSE][at] = most;
            if (plan->sink_count) sum = exp(sink - most);
            for (size_t j = 0; row.any && j < keys; j++) sum += p[j] = exp(row.x[j] - most);
            e.log_sum[at] = most > -INFINITY ? log(sum) : 0;
            for (size_t j = 0; row.any && j < keys; j++) {
                p[j] /= sum;
                for (size_t c = 0; c < value; c++) o[c] += p[j] * v[((k0 + j) * K + g) * apart + c];
            }
            for (size_t c = 0; c < value; c++) delta += o[c] * d_o[c];
            delta -= e.t[FCP_TENSOR_DLSE][at];
            if (plan->sink_count) e.d_sink[h] -= exp(sink - most) / sum * delta;
            for (size_t j = 0; row.any && j < keys; j++) {
                const size_t key = (k0 + j) * K + g;
                dp[j] = 0;
                for (size_t c = 0; c < value; c++) dp[j] += d_o[c] * v[key * apart + c];
                const double ds = p[j] * (dp[j] - delta), by = ds * row.slope[j] * plan->problem->scale;
                e.d_table[k0 + j] += ds;
                for (size_t c = 0; c < value; c++) dv[key * apart + c] += p[j] * d_o[c];
                for (size_t c = 0; c < d; c++) dq[c] += by * k[key * d + c];
                for (size_t c = 0; c < d; c++) dk[key * d + c] += by * q[at * d + c];
            }
        }
    }
    free(memory);
    free(scratch);
    free(arrays);
    free(bands);
    return e;
}

static inline void exact_free(exact *e) {
    for (int t = 0; t < FCP_TENSORS; t++) free(e->t[t]);
    free(e->log_sum);
    free(e->max_logit);
    free(e->d_sink);
    free(e->d_table);
}

/* What a result is compared with, and how near it must come. `wrong` is the first thing that is wrong, "" as long as
 * nothing is. */
typedef struct exact_found {
    const exact *e;
    const fcp_packed *is;
    double within; /* times the largest number of the tensor, or 1 */
    char wrong[240];
} exact_found;

__attribute__((format(printf, 3, 4))) static inline void exact_unless(exact_found *f, bool good,
                                                                      const char *format, ...) {
    va_list values;
    if (good || *f->wrong) return;
    va_start(values, format);
    vsnprintf(f->wrong, sizeof f->wrong, format, values);
    va_end(values);
}

static inline void exact_tensor(exact_found *f, fcp_tensor t) {
    const size_t count = exact_count(&f->e->shape, t);
    const fcp_dtype dtype = fcp_tensor_dtype(&f->e->shape, t);
    const double *right = f->e->t[t];
    double most = 1;
    for (size_t i = 0; i < count; i++) most = fmax(most, fabs(right[i]));
    for (size_t i = 0; i < count; i++) {
        float x;
        fcp_to_float(dtype, (const char *)f->is->t[t] + i * fcp_dtype_size(dtype), &x, 1);
        exact_unless(f, fabs((double)x - right[i]) <= f->within * most, "%s[%zu] is %.9g, not %.9g (of up to %g)",
                     fcp_tensor_name(t), i, (double)x, right[i], most);
    }
}

/* LSE is the nearest float, and with what rounding took from it the logarithm of the sum. */
static inline void exact_lse(exact_found *f) {
    const float *lse = f->is->t[FCP_TENSOR_LSE], *low = f->is->t[FCP_TENSOR_LSE_LOW];
    for (size_t i = 0; i < f->e->shape.tokens * f->e->shape.heads; i++) {
        const double most = f->e->t[FCP_TENSOR_LSE][i], log_sum = f->e->log_sum[i], is = (double)lse[i];
        if (!isfinite(most)) {
            exact_unless(f, is == most && low[i] == 0, "LSE[%zu] is %g and %g, not %g", i, is, (double)low[i], most);
            continue;
        }
        exact_unless(f, fabs(is - (most + log_sum)) <= fcp_ulp(FCP_FP32, most + log_sum) + f->within,
                     "LSE[%zu] is %.9g, not %.9g", i, is, most + log_sum);
        exact_unless(f, fabs(is - most + (double)low[i] - log_sum) <= f->within,
                     "LSE[%zu] is %.9g and %.9g, which is %.9g over the largest logit, not %.9g", i, is, (double)low[i],
                     is - most + (double)low[i], log_sum);
    }
}

/* All that both passes write. Returns what is wrong, "" if nothing is. */
static inline exact_found exact_compare(const exact *e, const fcp_packed *is, double within) {
    static const fcp_tensor all[] = {FCP_TENSOR_O, FCP_TENSOR_DQ, FCP_TENSOR_DK, FCP_TENSOR_DV};
    exact_found f = {.e = e, .is = is, .within = within};
    exact_lse(&f);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) exact_tensor(&f, all[i]);
    for (uint32_t h = 0; is->max_logit && h < e->shape.heads; h++)
        exact_unless(&f, (double)is->max_logit[h] == e->max_logit[h], "the largest logit of head %u is %.9g, not %.9g",
                     h, (double)is->max_logit[h], e->max_logit[h]);
    return f;
}
#endif
