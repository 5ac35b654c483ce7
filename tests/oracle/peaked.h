/* peaked.h: draws small programs from a seed, with softmax anywhere between flat and peaked, and computes their results
 * on the host. Scales are positive or negative, sinks lie between far below the logits and far above them, logits are
 * near 0 or as far from it as float32 reaches, and inputs are about 1 or up to 1e4. */
#ifndef PEAKED_H
#define PEAKED_H
#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/numeric.h"
#include "runtime/judge/packed.h"
#include "runtime/judge/reference.h"
#include "runtime/plan/plan.h"
#include "tests/support/plan_of.h"
#include "tests/support/splitmix.h"

enum { PEAKED_TEXT = 1200, PEAKED_TENSORS = (1 << FCP_TENSORS) - 1,
       PEAKED_INPUTS = 1 << FCP_TENSOR_Q | 1 << FCP_TENSOR_K | 1 << FCP_TENSOR_V | 1 << FCP_TENSOR_DO |
                       1 << FCP_TENSOR_DLSE };

/* A text that is put together. */
typedef struct peaked_text {
    char at[PEAKED_TEXT];
    size_t size;
} peaked_text;

static inline void peaked_put(peaked_text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static inline void peaked_put(peaked_text *t, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(t->at + t->size, sizeof t->at - t->size, format, args);
    va_end(args);
    cr_assert(n >= 0 && (size_t)n < sizeof t->at - t->size, "a program is too long");
    t->size += (size_t)n;
}

static inline uint32_t peaked_roll(uint64_t *state, uint32_t n) { return (uint32_t)(splitmix(state) >> 33) % n; }
static inline double peaked_between(uint64_t *state, double low, double high) {
    return low + (high - low) * (double)peaked_roll(state, 1 << 20) / (1 << 20);
}

/* A score of the logit, which may be steep where the logit is large. */
static inline void peaked_score(peaked_text *t, uint64_t *state) {
    const double a = peaked_between(state, 0.3, 2), b = peaked_between(state, -3, 3);
    switch (peaked_roll(state, 10)) {
    case 0: peaked_put(t, "softcap(c = %.4f)", 10 * a); return;
    case 1: peaked_put(t, "alibi"); return;
    case 2: peaked_put(t, "drawn\nscore drawn = s * (%.4f) + (%.4f)", b, 10 * b); return;
    case 3: peaked_put(t, "drawn\nscore drawn = s + %.4f * tanh(s / %.4f)", 4 * a, a); return;
    case 4: peaked_put(t, "drawn\nscore drawn = sqrt(%.4f + s * s) * (%.4f)", a, b); return;
    case 5: peaked_put(t, "drawn\nscore drawn = log(%.4f + s * s) * (%.4f)", a, 3 * b); return;
    case 6: peaked_put(t, "drawn\nscore drawn = min(max(s, %.4f), %.4f)", 10 * b - 4, 10 * b + 9); return;
    case 7: peaked_put(t, "drawn\nscore drawn = if q - k < %u then s - %.4f else exp(tanh(s)) * (%.4f)",
                       peaked_roll(state, 20), a, 3 * b); return;
    case 8: peaked_put(t, "drawn\nscore drawn = abs(s) * (%.4f)", b); return;
    default: peaked_put(t, "drawn\nscore drawn = s + abs(q - k) * (%.4f)", 7 * b); return;
    }
}

/* A magnitude from 1 to 10^most, and a sign. */
static inline double peaked_far(uint64_t *state, double most) {
    return pow(10, peaked_between(state, 0, most)) * (peaked_roll(state, 2) ? 1 : -1);
}

/* A score whose logits are far from 0, all of them or some, as an additive mask makes them. */
static inline void peaked_far_score(peaked_text *t, uint64_t *state) {
    const double most = peaked_roll(state, 2) ? 38.5 : 12, lowest = peaked_roll(state, 2) ? -FLT_MAX : -1e9;
    switch (peaked_roll(state, 7)) {
    case 0: case 1: peaked_put(t, "drawn\nscore drawn = s + (%.8e)", peaked_far(state, most)); return;
    case 2: peaked_put(t, "drawn\nscore drawn = s + (if k < %u then %.8e else 0.0)", peaked_roll(state, 20), lowest);
        return;
    case 3: peaked_put(t, "drawn\nscore drawn = if k < %u or q < %u then %.8e else s", peaked_roll(state, 20),
                       peaked_roll(state, 20), lowest); return;
    case 4: peaked_put(t, "drawn\nscore drawn = s * (%.8e)", peaked_far(state, most / 2)); return;
    case 5: peaked_put(t, "drawn\nscore drawn = 20.0 * tanh(s / 20.0) + (%.8e)", peaked_far(state, most)); return;
    default: peaked_put(t, "drawn\nscore drawn = s + abs(q - k) * (%.8e)", peaked_far(state, most - 2)); return;
    }
}

/* What is added to the model: V of another width than K, or in it. Returns the width. */
static inline uint32_t peaked_values(peaked_text *t, uint64_t *state, uint32_t head_dim) {
    static const uint32_t widths[] = {8, 16, 24, 40, 64};
    uint32_t width = peaked_roll(state, 3) ? head_dim : widths[peaked_roll(state, 5)];
    const bool in_keys = width <= head_dim && peaked_roll(state, 5) == 0;
    if (width != head_dim) peaked_put(t, "; value_dim = %u", width);
    if (in_keys) peaked_put(t, "; values = keys");
    return width;
}

/* A program of its own for each seed. */
static inline void peaked_program(uint64_t seed, peaked_text *out) {
    static const char *const masks[] = {
        "causal", "full", "window(w = 1)", "window(w = 2)", "window(w = 7)", "window_both(l = 3, r = 2)",
        "prefix(p = 5)", "some\nmask some = k % 3 == 0 or q == k", "none\nmask none = k < q - 2",
        "one\nmask one = k == q / 2"};
    static const char *const strategies[] = {"fcp", "ring", "zigzag", "cad", "dcp"};
    static const char *const dtypes[] = {"fp32", "fp16", "bf16"};
    static const uint32_t dims[] = {8, 16, 32, 128};
    uint64_t state = seed;
    peaked_text mask = {.size = 0}, score = {.size = 0}, values = {.size = 0};
    const uint32_t kv_heads = 1 + peaked_roll(&state, 2), heads = kv_heads * (1 + peaked_roll(&state, 2));
    const uint32_t dtype = peaked_roll(&state, 3), sequences = 1 + peaked_roll(&state, 3);
    const char *strategy = strategies[peaked_roll(&state, 5)];
    const double scale = 0.1 * pow(160, peaked_between(&state, 0, 1)) * (peaked_roll(&state, 2) ? 1 : -1);
    const uint32_t head_dim = dims[peaked_roll(&state, 4)];
    peaked_values(&values, &state, head_dim);
    out->size = 0;
    peaked_put(out, "model { heads = %u; kv_heads = %u; head_dim = %u; dtype = %s; scale = %.5f%.*s }\n", heads,
               kv_heads, head_dim, dtypes[dtype], scale, (int)values.size, values.at);
    peaked_put(out, "cluster { gpus = %u }\nbatch { lengths = [", 1 + peaked_roll(&state, 4));
    for (uint32_t i = 0; i < sequences; i++)
        peaked_put(out, "%s%u", i ? ", " : "", 1 + peaked_roll(&state, peaked_roll(&state, 2) ? 6 : 60));
    peaked_put(out, "] }\n");
    peaked_put(&mask, "%s", masks[peaked_roll(&state, sizeof masks / sizeof *masks)]);
    switch (peaked_roll(&state, 4)) {
    case 0: peaked_score(&score, &state); break;
    case 1: peaked_far_score(&score, &state); break;
    default: break;
    }
    /* what is named is declared in lines of their own, behind the plan */
    const char *more_mask = strchr(mask.at, '\n'), *more_score = score.size ? strchr(score.at, '\n') : NULL;
    peaked_put(out, "plan {\n  mask = %.*s\n  strategy = %s\n  block = %u\n",
               (int)(more_mask ? more_mask - mask.at : (long)mask.size), mask.at, strategy,
               peaked_roll(&state, 2) ? 16 : 128);
    if (score.size)
        peaked_put(out, "  score = %.*s\n", (int)(more_score ? more_score - score.at : (long)score.size), score.at);
    if (peaked_roll(&state, 2)) {
        peaked_put(out, "  sink = [");
        for (uint32_t h = 0; h < heads; h++)
            peaked_put(out, "%s%.3f", h ? ", " : "",
                       peaked_roll(&state, 2) ? peaked_between(&state, -90, 90) : peaked_between(&state, -4, 8));
        peaked_put(out, "]\n");
    }
    if (dtype && peaked_roll(&state, 4) == 0) peaked_put(out, "  wire = bf16\n");
    const bool backward = peaked_roll(&state, 5) != 0;
    if (backward && peaked_roll(&state, 3) == 0) peaked_put(out, "  lse_gradient = true\n");
    peaked_put(out, "  passes = forward%s\n}\n", backward ? ", backward" : "");
    if (more_mask) peaked_put(out, "%s\n", more_mask + 1);
    if (more_score) peaked_put(out, "%s\n", more_score + 1);
}

/* A plan, inputs and what came of them. */
typedef struct peaked_run {
    fcp_plan *plan;
    fcp_shape shape;
    fcp_packed packed;
    fcp_check_report report;
    double slope; /* about the steepest that the score is */
} peaked_run;

/* One pass of a plan on tensors that are there. */
static inline void peaked_pass(const fcp_plan *plan, fcp_pass pass, fcp_packed *packed) {
    fcp_session *session;
    fcp_error err = {0};
    fcp_session_options options = {.size = sizeof options, .compute_threads = 1, .timeout_s = 100};
    cr_assert(fcp_session_create(plan, &options, &session, &err) == FCP_OK, "%s", err.message);
    cr_assert(fcp_session_run_packed(session, plan, pass, packed, NULL, &err) == FCP_OK, "%s", err.message);
    fcp_session_free(session);
}

/* Makes an input up to 1e4 times as large, in one of three programs. */
static inline void peaked_enlarge(const fcp_shape *shape, fcp_tensor t, uint64_t *state, fcp_packed *packed) {
    const fcp_dtype dtype = fcp_tensor_dtype(shape, t);
    const size_t count = fcp_packed_bytes(shape, t) / fcp_dtype_size(dtype);
    const double by = peaked_roll(state, 3) ? 1 : fabs(peaked_far(state, 4));
    float *x = malloc((count + 1) * sizeof *x);
    cr_assert_not_null(x);
    fcp_to_float(dtype, packed->t[t], x, count);
    for (size_t i = 0; i < count; i++) x[i] = (float)(x[i] * by);
    fcp_from_float(dtype, x, packed->t[t], count);
    free(x);
}

/* Room for a plan's tensors, and drawn inputs. */
static inline peaked_run peaked_open(fcp_plan *plan, uint64_t seed) {
    peaked_run r = {.plan = plan};
    fcp_plan_shape(plan, &r.shape);
    cr_assert(fcp_packed_alloc(&r.shape, PEAKED_TENSORS, &r.packed, NULL) == FCP_OK);
    fcp_packed_draw(&r.shape, PEAKED_TENSORS, seed, &r.packed);
    return r;
}

/* All passes of a program on drawn inputs, which are large ones where `enlarged`. */
static inline peaked_run peaked_compute(const char *text, uint64_t seed, bool enlarged) {
    fcp_session *session;
    fcp_error err = {0};
    fcp_session_options options = {.size = sizeof options, .compute_threads = 1, .timeout_s = 100};
    static const char steep[] = "score drawn = s * (";
    const char *factor = strstr(text, steep);
    peaked_run r = peaked_open(plan_of(text), seed);
    uint64_t state = seed;
    r.slope = factor ? fabs(strtod(factor + strlen(steep), NULL)) : 1;
    for (int t = 0; enlarged && t < FCP_TENSORS; t++)
        if (PEAKED_INPUTS >> t & 1) peaked_enlarge(&r.shape, (fcp_tensor)t, &state, &r.packed);
    cr_assert(fcp_session_create(r.plan, &options, &session, &err) == FCP_OK, "%s\n%s", err.message, text);
    for (int pass = 0; pass < FCP_PASSES; pass++)
        if (r.shape.has_pass[pass])
            cr_assert(fcp_session_run_packed(session, r.plan, (fcp_pass)pass, &r.packed, NULL, &err) == FCP_OK,
                      "%s\n%s", err.message, text);
    fcp_session_free(session);
    return r;
}

/* Judges all rows, or of every `part` about one. */
static inline void peaked_judge_part(peaked_run *r, double part) {
    const unsigned passes = r->plan->problem->passes;
    const fcp_check_options options = {
        .passes = passes, .threads = 1, .work = part > 1 ? fcp_check_work(r->plan, passes) / part : 0};
    fcp_error err = {0};
    r->report = FCP_CHECK_START;
    cr_assert(fcp_check_run(r->plan, &options, &r->packed, &r->report, &err) == FCP_OK, "%s", err.message);
}

static inline void peaked_judge(peaked_run *r) { peaked_judge_part(r, 1); }

static inline const char *peaked_said(const peaked_run *r, fcp_tensor t) {
    static char text[400];
    fcp_check_text(r->plan, t, &r->report.tensor[t], text, sizeof text);
    return text;
}

static inline void peaked_close(peaked_run *r) {
    fcp_packed_free(&r->packed);
    fcp_plan_free(r->plan);
}
#endif
