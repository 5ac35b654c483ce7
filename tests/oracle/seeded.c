/* seeded.c: tests that the judge finds wrong results. Each case changes right results as one typical mistake of a
 * program would, and the judge must refuse the tensors in which the mistake shows. Cases run in all dtypes, and with a
 * softmax that is flat, peaked, or nearly one-hot. In the last one, a mistake is smallest compared with rounding.
 */
#include <criterion/criterion.h>

#include "tests/oracle/peaked.h"

/* A program in parts, so that an error can change one. */
typedef struct parts {
    const char *dtype, *mask, *score;
    double scale, sink;
    uint32_t tokens;
    bool sinks, d_lse; /* d_lse: the backward pass takes a gradient of LSE */
} parts;

static void text_of(const parts *p, peaked_text *out) {
    out->size = 0;
    peaked_put(out, "model { heads = 4; kv_heads = 2; head_dim = 16; dtype = %s; scale = %.5f }\n", p->dtype, p->scale);
    peaked_put(out, "cluster { gpus = 2 }\nbatch { lengths = [%u] }\nmask seen = %s\nscore drawn = %s\n", p->tokens,
               p->mask, p->score);
    peaked_put(out, "plan {\n  mask = seen\n  score = drawn\n  block = 16\n  passes = forward, backward\n");
    if (p->sinks) peaked_put(out, "  sink = %.3f\n", p->sink);
    if (p->d_lse) peaked_put(out, "  lse_gradient = true\n");
    peaked_put(out, "}\n");
}

static peaked_run run_of(const parts *p) {
    peaked_text text;
    text_of(p, &text);
    return peaked_compute(text.at, 11, false);
}

/* Are logits far away, some of them; and all, so that q k is lost in them? Then LSE shows little. */
static bool some_far(const parts *p) { return strstr(p->score, "e38") != NULL; }
static bool all_far(const parts *p) { return strstr(p->score, "s - 2.4e38") != NULL; }

/* One error: the right results of `p` are in `r`; it makes them wrong. Returns the tensors that are (a bit each), of
 * which every one must be refused; 0: it cannot be made here. */
typedef struct fault {
    const char *name;
    unsigned (*make)(const parts *p, peaked_run *r);
} fault;
enum {
    O = 1 << FCP_TENSOR_O, LSE = 1 << FCP_TENSOR_LSE, LOW = 1 << FCP_TENSOR_LSE_LOW, DQ = 1 << FCP_TENSOR_DQ,
    DK = 1 << FCP_TENSOR_DK, DV = 1 << FCP_TENSOR_DV, FORWARD = O | LSE, BACKWARD = DQ | DK | DV
};

/* --- tensors as floats -------------------------------------------------------------------------------------------- */

static size_t count_of(const peaked_run *r, fcp_tensor t) {
    return fcp_packed_bytes(&r->shape, t) / fcp_dtype_size(fcp_tensor_dtype(&r->shape, t));
}
static float *floats_of(const peaked_run *r, fcp_tensor t) {
    float *x = malloc(count_of(r, t) * sizeof *x);
    cr_assert_not_null(x);
    fcp_to_float(fcp_tensor_dtype(&r->shape, t), r->packed.t[t], x, count_of(r, t));
    return x;
}
static void put_floats(peaked_run *r, fcp_tensor t, float *x) {
    fcp_from_float(fcp_tensor_dtype(&r->shape, t), x, r->packed.t[t], count_of(r, t));
    free(x);
}
static size_t row_of(const peaked_run *r, fcp_tensor t, uint64_t token, uint32_t head) {
    return (token * (fcp_tensor_of_keys(t) ? r->shape.kv_heads : r->shape.heads) + head) * r->shape.head_dim;
}

/* Takes outputs from another program's run on the same inputs. */
static unsigned take(const parts *other, peaked_run *r, unsigned tensors) {
    peaked_run x = run_of(other);
    for (int t = 0; t < FCP_TENSORS; t++)
        if (tensors >> t & 1) memcpy(r->packed.t[t], x.packed.t[t], fcp_packed_bytes(&r->shape, (fcp_tensor)t));
    peaked_close(&x);
    return tensors;
}

/* The gradients that another program makes of these O and LSE. */
static peaked_run gradients_by(const parts *other, const peaked_run *r) {
    peaked_text text;
    text_of(other, &text);
    peaked_run x = peaked_open(plan_of(text.at), 11);
    for (int t = 0; t < FCP_TENSORS; t++)
        if ((O | LSE | LOW) >> t & 1)
            memcpy(x.packed.t[t], r->packed.t[t], fcp_packed_bytes(&r->shape, (fcp_tensor)t));
    peaked_pass(x.plan, FCP_BACKWARD, &x.packed);
    return x;
}

/* --- errors ------------------------------------------------------------------------------------------------------- */

/* All numbers of a gradient are off by three times the most that the naive computation is. */
static unsigned off_by_three(peaked_run *r, fcp_tensor t) {
    const double off = 3 * r->report.tensor[t].reference_error;
    float *x = floats_of(r, t);
    if (!(off > 0)) return free(x), 0;
    for (size_t i = 0; i < count_of(r, t); i++) x[i] += (float)(i % 2 ? off : -off);
    put_floats(r, t, x);
    return 1u << t;
}
static unsigned dq_off(const parts *p, peaked_run *r) { return (void)p, off_by_three(r, FCP_TENSOR_DQ); }
static unsigned dk_off(const parts *p, peaked_run *r) { return (void)p, off_by_three(r, FCP_TENSOR_DK); }
static unsigned dv_off(const parts *p, peaked_run *r) { return (void)p, off_by_three(r, FCP_TENSOR_DV); }

/* The key that most was paid attention to is not seen. */
static unsigned key_dropped(const parts *p, peaked_run *r) {
    char mask[100];
    parts other = *p;
    float *dv = floats_of(r, FCP_TENSOR_DV), most = 0;
    uint64_t key = 1;
    for (uint64_t k = 1; k < r->shape.key_tokens; k++) {
        float sum = 0;
        for (uint32_t i = 0; i < r->shape.head_dim; i++) sum += fabsf(dv[row_of(r, FCP_TENSOR_DV, k, 0) + i]);
        if (sum > most) most = sum, key = k;
    }
    free(dv);
    snprintf(mask, sizeof mask, "%s and (k != %u or q == k)", p->mask, (unsigned)key);
    other.mask = mask;
    return take(&other, r, O | (all_far(p) ? 0 : LSE) | BACKWARD);
}

static unsigned sink_ignored(const parts *p, peaked_run *r) {
    parts other = *p;
    other.sinks = false;
    return p->sinks ? take(&other, r, O | LSE | BACKWARD) : 0;
}
static unsigned lse_without_sink(const parts *p, peaked_run *r) {
    parts other = *p;
    other.sinks = false;
    return p->sinks ? take(&other, r, LSE) : 0;
}
static unsigned sign_of_scale(const parts *p, peaked_run *r) {
    parts other = *p;
    other.scale = -p->scale;
    return all_far(p) ? take(&other, r, DQ | DK) : take(&other, r, O | LSE | BACKWARD);
}

/* The keys of a block count twice: exp(s + log 2) is 2 exp(s). That is a tile computed twice, or a state of it merged
 * twice. */
static unsigned keys_twice(const parts *p, peaked_run *r) {
    char score[200];
    parts other = *p;
    snprintf(score, sizeof score, "(%s) + (if k >= 16 and k < 32 then 0.69314718 else 0.0)", p->score);
    other.score = score;
    return all_far(p) ? 0 : take(&other, r, FORWARD);
}

/* The partial gradients of a block of keys are added twice. */
static unsigned partial_twice(const parts *p, peaked_run *r) {
    char mask[100];
    parts other = *p;
    snprintf(mask, sizeof mask, "(%s) and k / 16 == 1", p->mask);
    other.mask = mask;
    peaked_run x = gradients_by(&other, r);
    for (int t = FCP_TENSOR_DQ; t <= FCP_TENSOR_DV; t++) {
        float *sum = floats_of(r, (fcp_tensor)t), *more = floats_of(&x, (fcp_tensor)t);
        for (size_t i = 0; i < count_of(r, (fcp_tensor)t); i++) sum[i] += more[i];
        put_floats(r, (fcp_tensor)t, sum);
        free(more);
    }
    peaked_close(&x);
    return BACKWARD;
}

/* Query heads 0 and 2, which have other keys, are exchanged in the results. */
static unsigned heads_exchanged(const parts *p, peaked_run *r) {
    for (int t = FCP_TENSOR_O; t <= FCP_TENSOR_DQ; t += FCP_TENSOR_DQ - FCP_TENSOR_O) {
        float *x = floats_of(r, (fcp_tensor)t);
        for (uint64_t token = 0; token < r->shape.tokens; token++)
            for (uint32_t i = 0; i < r->shape.head_dim; i++) {
                float *a = &x[row_of(r, (fcp_tensor)t, token, 0) + i], *b = &x[row_of(r, (fcp_tensor)t, token, 2) + i];
                const float kept = *a;
                *a = *b, *b = kept;
            }
        put_floats(r, (fcp_tensor)t, x);
    }
    return (void)p, O | DQ;
}
/* The same of KV heads. */
static unsigned kv_heads_exchanged(const parts *p, peaked_run *r) {
    for (int t = FCP_TENSOR_DK; t <= FCP_TENSOR_DV; t++) {
        float *x = floats_of(r, (fcp_tensor)t);
        for (uint64_t token = 0; token < r->shape.key_tokens; token++)
            for (uint32_t i = 0; i < r->shape.head_dim; i++) {
                float *a = &x[row_of(r, (fcp_tensor)t, token, 0) + i], *b = &x[row_of(r, (fcp_tensor)t, token, 1) + i];
                const float kept = *a;
                *a = *b, *b = kept;
            }
        put_floats(r, (fcp_tensor)t, x);
    }
    return (void)p, DK | DV;
}

/* The rows of a tensor with the largest number and its neighbour are exchanged. */
static unsigned rows_exchanged(const parts *p, peaked_run *r) {
    for (int t = FCP_TENSOR_O; t <= FCP_TENSOR_DV; t++) {
        if (t == FCP_TENSOR_DO || t == FCP_TENSOR_LSE) continue;
        float *x = floats_of(r, (fcp_tensor)t);
        size_t largest = 0;
        for (size_t i = 0; i < count_of(r, (fcp_tensor)t); i++)
            if (fabsf(x[i]) > fabsf(x[largest])) largest = i;
        const uint64_t row = row_of(r, (fcp_tensor)t, 1, 0), token = largest / row, other = token ? token - 1 : 1;
        for (uint32_t i = 0; i < r->shape.head_dim; i++) {
            float *a = &x[token * row + largest % row / r->shape.head_dim * r->shape.head_dim + i];
            float *b = a + other * row - token * row;
            const float kept = *a;
            *a = *b, *b = kept;
        }
        put_floats(r, (fcp_tensor)t, x);
    }
    return (void)p, O | BACKWARD;
}

/* The slope's factor is lost. */
static unsigned slope_forgotten(const parts *p, peaked_run *r) {
    for (int t = FCP_TENSOR_DQ; t <= FCP_TENSOR_DK; t++) {
        float *x = floats_of(r, (fcp_tensor)t);
        for (size_t i = 0; i < count_of(r, (fcp_tensor)t); i++) x[i] /= 1.125f;
        put_floats(r, (fcp_tensor)t, x);
    }
    return strstr(p->score, "1.125") ? DQ | DK : 0;
}

/* delta is forgotten in dS = P (dP - delta). */
static unsigned delta_forgotten(const parts *p, peaked_run *r) {
    float *o = floats_of(r, FCP_TENSOR_O), *zero = calloc(count_of(r, FCP_TENSOR_O), sizeof *zero);
    cr_assert_not_null(zero);
    put_floats(r, FCP_TENSOR_O, zero);
    peaked_run x = gradients_by(p, r);
    put_floats(r, FCP_TENSOR_O, o);
    for (int t = FCP_TENSOR_DQ; t <= FCP_TENSOR_DK; t++)
        memcpy(r->packed.t[t], x.packed.t[t], fcp_packed_bytes(&r->shape, (fcp_tensor)t));
    peaked_close(&x);
    return DQ | DK;
}

/* The gradient of LSE is forgotten in delta. */
static unsigned lse_gradient_forgotten(const parts *p, peaked_run *r) {
    parts other = *p;
    other.d_lse = false;
    if (!p->d_lse) return 0;
    peaked_run x = gradients_by(&other, r);
    for (int t = FCP_TENSOR_DQ; t <= FCP_TENSOR_DK; t++)
        memcpy(r->packed.t[t], x.packed.t[t], fcp_packed_bytes(&r->shape, (fcp_tensor)t));
    peaked_close(&x);
    return DQ | DK;
}

/* What rounding took from LSE is lost on the way to the backward pass. Where logits are so far away that log n is all
 * that is taken, every key counts whole. */
static unsigned lse_low_lost(const parts *p, peaked_run *r) {
    float *low = floats_of(r, FCP_TENSOR_LSE_LOW), *zero = calloc(count_of(r, FCP_TENSOR_LSE_LOW), sizeof *zero);
    cr_assert_not_null(zero);
    put_floats(r, FCP_TENSOR_LSE_LOW, zero);
    peaked_run x = gradients_by(p, r);
    put_floats(r, FCP_TENSOR_LSE_LOW, low);
    for (int t = FCP_TENSOR_DQ; t <= FCP_TENSOR_DV; t++)
        memcpy(r->packed.t[t], x.packed.t[t], fcp_packed_bytes(&r->shape, (fcp_tensor)t));
    peaked_close(&x);
    return all_far(p) ? BACKWARD : some_far(p) ? DV : 0;
}

/* Results are rounded to fp16 where the tensors are fp32. */
static unsigned rounded_to_fp16(const parts *p, peaked_run *r) {
    if (r->shape.dtype != FCP_FP32) return 0;
    for (int t = FCP_TENSOR_O; t <= FCP_TENSOR_DV; t++) {
        if (t == FCP_TENSOR_DO) continue;
        float *x = floats_of(r, (fcp_tensor)t);
        for (size_t i = 0; i < count_of(r, (fcp_tensor)t); i++) x[i] = fcp_round_to(FCP_FP16, x[i]);
        put_floats(r, (fcp_tensor)t, x);
    }
    return O | (some_far(p) ? 0 : LSE) | BACKWARD;
}

/* What enters the products is: V, say, as it is loaded. */
static unsigned loaded_as_fp16(const parts *p, peaked_run *r) {
    peaked_text text;
    if (r->shape.dtype != FCP_FP32) return 0;
    text_of(p, &text);
    peaked_run x = peaked_open(plan_of(text.at), 11);
    float *v = floats_of(&x, FCP_TENSOR_V);
    for (size_t i = 0; i < count_of(&x, FCP_TENSOR_V); i++) v[i] = fcp_round_to(FCP_FP16, v[i]);
    put_floats(&x, FCP_TENSOR_V, v);
    peaked_pass(x.plan, FCP_FORWARD, &x.packed);
    memcpy(r->packed.t[FCP_TENSOR_O], x.packed.t[FCP_TENSOR_O], fcp_packed_bytes(&r->shape, FCP_TENSOR_O));
    peaked_close(&x);
    return O;
}

static const fault faults[] = {
    {"dQ off by three naive errors", dq_off}, {"dK off by three naive errors", dk_off},
    {"dV off by three naive errors", dv_off}, {"a key dropped", key_dropped}, {"the sink ignored", sink_ignored},
    {"LSE without the sink", lse_without_sink}, {"the sign of the scale lost", sign_of_scale},
    {"keys counted twice", keys_twice}, {"partial gradients added twice", partial_twice},
    {"query heads exchanged", heads_exchanged}, {"KV heads exchanged", kv_heads_exchanged},
    {"rows exchanged", rows_exchanged}, {"the slope forgotten", slope_forgotten}, {"delta forgotten", delta_forgotten},
    {"the gradient of LSE forgotten", lse_gradient_forgotten}, {"what rounding took from LSE lost", lse_low_lost},
    {"results rounded to fp16", rounded_to_fp16}, {"V loaded as fp16", loaded_as_fp16}};

/* --- the test ----------------------------------------------------------------------------------------------------- */

Test(oracle_seeded, every_error_is_found) {
    static const char *const dtypes[] = {"fp32", "fp16", "bf16"};
    /* flat, peaked, and as good as hard; the sink is about as large as a row's logits; then logits that are far away */
    static const parts programs[] = {
        {.mask = "k <= q", .score = "s", .scale = 0.25, .sink = 2, .tokens = 64, .sinks = true},
        {.mask = "k <= q", .score = "1.125 * s", .scale = -2, .sink = 12, .tokens = 64, .sinks = true},
        {.mask = "k <= q", .score = "1.125 * s", .scale = 16, .sink = 85, .tokens = 64, .sinks = true},
        {.mask = "k <= q and q - k < 40", .score = "s + 1.125 * tanh(s)", .scale = 1, .tokens = 50, .d_lse = true},
        {.mask = "k <= q", .score = "1.125 * s - 2.4e38", .scale = 0.25, .tokens = 64},
        {.mask = "k <= q", .score = "if k < 3 then -3.4e38 else 1.125 * s", .scale = 0.25, .tokens = 64,
         .d_lse = true}};
    unsigned found[sizeof faults / sizeof *faults] = {0}, missed = 0;
    for (size_t i = 0; i < 3 * sizeof programs / sizeof *programs; i++) {
        parts p = programs[i / 3];
        p.dtype = dtypes[i % 3];
        for (size_t f = 0; f < sizeof faults / sizeof *faults; f++) {
            peaked_run r = run_of(&p);
            peaked_judge(&r);
            cr_assert(r.report.ok, "%s, scale %g: not right before", p.dtype, p.scale);
            const unsigned wrong = faults[f].make(&p, &r);
            peaked_judge(&r);
            for (int t = 0; t < FCP_TENSORS; t++) {
                if (!(wrong >> t & 1)) continue;
                found[f]++;
                if ((fcp_verdict)r.report.tensor[t].verdict == FCP_DIFFERS) continue;
                fprintf(stderr,
                        "%s, scale %g: %s is not seen in %s: error %g, of the naive computation %g, allowed %g\n",
                        p.dtype, p.scale, faults[f].name, fcp_tensor_name((fcp_tensor)t),
                        r.report.tensor[t].max_abs_error, r.report.tensor[t].reference_error,
                        r.report.tensor[t].tolerance);
                missed++;
            }
            peaked_close(&r);
        }
    }
    for (size_t f = 0; f < sizeof faults / sizeof *faults; f++) cr_assert(found[f], "%s: never made", faults[f].name);
    cr_assert_eq(missed, 0);
}
