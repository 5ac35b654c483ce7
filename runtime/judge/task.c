/* task.c: one task of the judge: attention of some rows by its definition, and what rounding may do to each number.
 *
 * Requires: a checked plan; packed inputs.
 * Gives:    what the judged results are off by, as reference.h says; and the reference itself, where it is wanted.
 * Method:   STRIP queries are computed at a time, so that a tile of keys, once loaded, serves many. The mask is
 *           evaluated for every pair of a strip. Scores and slopes are evaluated pair by pair in float64; for the naive
 *           computation in rows of float32, as kernels do. What rounding may do is bounded between the steps of the
 *           exact computation, from what they have just made.
 * Cost:     as fcp_check_run says, of its rows.
 */
#include "runtime/judge/task.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/numeric.h"
#include "runtime/base/stop.h"

enum { STRIP = 32, TILE = 128 };

/* Queries [row, row + rows) of a sequence against its keys [key, key + n). */
struct strip {
    size_t n, d, vd; /* keys; numbers of a head of Q and K, and of V and O */
    uint64_t row, key;
    uint32_t rows;
    bool wants_rows, wants_keys; /* of gradients: dQ; dK and dV */
    double scale;
    fcp_dtype dtype;
    mc_code score, slope; /* of no nodes: the score is s */
    mc_code rough;        /* the score with functions that are off by 2^-16; of no nodes: it has none */
    const double *sink;   /* of the head, or NULL */
    const mc_env *env;
    int64_t head;
    int64_t *scratch;
    uint8_t *allow; /* [STRIP][n]: the mask */
    bool *live;     /* per TILE keys: some pair with them is allowed */
};

/* TILE keys, with some of which the strip has an allowed pair. first_tile and next_tile go through them; count is 0
 * behind the last. */
struct tile {
    size_t key;
    uint32_t count;
};

static struct tile tile_from(const struct strip *s, size_t key) {
    while (key < s->n && !s->live[key / TILE]) key += TILE;
    return (struct tile){key, key >= s->n ? 0 : s->n - key < TILE ? (uint32_t)(s->n - key) : TILE};
}
static struct tile first_tile(const struct strip *s) { return tile_from(s, 0); }
static struct tile next_tile(const struct strip *s, struct tile t) { return tile_from(s, t.key + TILE); }

/* A score, or its slope, of row i of the strip and the allowed keys of a tile. `out` may be `logits`. */
static void exact_score(const struct strip *s, mc_code code, uint32_t i, struct tile t, const double *logits,
                        double *out) {
    const uint8_t *allow = s->allow + i * s->n + t.key;
    for (uint32_t j = 0; j < t.count; j++)
        if (allow[j])
            out[j] = mc_eval_score(code, s->env, s->env->q_first + (int64_t)(s->row + i),
                                   (int64_t)(s->key + t.key + j), s->head, logits[j], s->scratch);
}

static void naive_score(const struct strip *s, mc_code code, uint32_t i, struct tile t, const float *logits,
                        float *out) {
    mc_eval_score_row(code, s->env, s->env->q_first + (int64_t)(s->row + i), (int64_t)(s->key + t.key), t.count,
                      s->head, logits, s->scratch, out);
}
_Static_assert((int)TILE <= (int)MC_ROW, "a tile is a row of the evaluator");

#define REAL double
#define NAME(x) exact_##x
#define EXP exp
#define LOG log
#define ROUND(dtype, x) (x)
#include "runtime/judge/reference_real.inc"
#undef REAL
#undef NAME
#undef EXP
#undef LOG
#undef ROUND

#define REAL float
#define NAME(x) naive_##x
#define EXP expf
#define LOG logf
#define ROUND(dtype, x) fcp_round_to(dtype, x)
#include "runtime/judge/reference_real.inc"
#undef REAL
#undef NAME
#undef EXP
#undef LOG
#undef ROUND

/* Of a row of a tensor: the absolute values that its numbers are sums of, and what of them may be lost because it is
 * small; and the most that one pair could add to a number if its P were 1. All for the largest component. */
struct sums {
    double all, lost, one;
};

/* What is known of a row of the strip, for bounds of its errors: see reference.h. */
struct row_bounds {
    bool live;                /* it sees a key, and LSE is finite */
    double term, spread, added; /* see term_of, spread and added; of sums over the keys that it sees */
    double unit_length;       /* 1 / sqrt(value_dim) */
    double q, q_most, o, g, g_most; /* lengths of Q, O and dO, and their largest numbers */
    double shift;             /* what the naive computation's logits are off by together: see compare_scores */
    double relative;          /* what all P of the row are off by together */
    double shared;            /* the same in the backward pass */
    double lse, pair;         /* what LSE is off by; and what it is together with what rounding took from it */
    double v_length;          /* of the longest V that it sees */
    double sink_off;          /* what the sink's part of the sum is off by */
    double delta;             /* rowsum(dO O) */
    double centre;            /* the same without dLSE: what is subtracted from dP */
    double delta_off;         /* what they are off by */
};

/* What a thread works with while it has a task. */
struct task {
    check_run *run;
    uint32_t kv_head;
    uint64_t offset, key_offset; /* packed index of the sequence's first query, first key */
    double part, least;          /* what rounding to the dtype takes: see part_rounded and least_of */
    double drift, drift_v;       /* see drift_of: of head_dim, and of value_dim */
    double term_q;               /* see term_of; of sums over queries */
    double spread_q, added_q;    /* see spread and added; of the same */
    struct strip strip;
    struct exact_buffers exact;
    struct naive_buffers naive;
    mc_env env;
    mc_array *arrays;
    mc_bands *bands;
    int64_t *scratch;
    measure measures[FCP_TENSORS];
    fcp_check_unit unit; /* what is computed: see open_task */
    double *k_length, *k_most, *v_length, *v_most; /* per key: see length_of */
    struct row_bounds rows[STRIP];
    struct sums *sums_k, *sums_v, sums_q[STRIP], sums_o[STRIP]; /* per key, and per row */
    /* Sums of squares of errors, number by number: of dK [n][d] and dV [n][vd], of O [STRIP][vd] and dQ [STRIP][d].
     * common: how far one of delta moves dQ [STRIP][d]. */
    double *squares, *squares_k, *squares_v, *squares_o, *squares_q, *common;
    double *q2, *g2; /* [STRIP][d], [STRIP][vd]: squares of Q and dO */
    double *weight;  /* [STRIP][n]: what a pair's error counts; before P is there, the softmax's argument */
    double *p_off;   /* [STRIP][n]: what P is off by; before it is there, what the softmax's argument is off by */
    double *slope_off; /* [STRIP][n]: what the slope is off by */
};

/* --- input -------------------------------------------------------------------------------------------------------- */

static void load(const check_run *run, fcp_tensor t, uint64_t token, uint32_t head, double *exact, float *naive) {
    const fcp_shape *shape = &run->shape;
    uint64_t dims[3];
    fcp_tensor_shape(shape, t, dims);
    size_t e = fcp_dtype_size(shape->dtype), at = (size_t)((token * dims[1] + head) * dims[2]);
    fcp_to_float(shape->dtype, (const char *)run->in->t[t] + at * e, naive, dims[2]);
    for (uint64_t i = 0; i < dims[2]; i++) exact[i] = naive[i];
}

static void fill_mask(struct task *t, uint32_t head) {
    struct strip *s = &t->strip;
    const fcp_plan *plan = t->run->plan;
    mc_code code = {plan->mask, (uint32_t)plan->mask_count};
    memset(s->live, 0, (s->n + TILE - 1) / TILE * sizeof *s->live);
    for (uint32_t i = 0; i < s->rows; i++)
        for (size_t key = 0; key < s->n; key += MC_ROW) {
            uint32_t width = s->n - key < MC_ROW ? (uint32_t)(s->n - key) : MC_ROW;
            uint8_t *out = s->allow + i * s->n + key;
            mc_eval_row(code, &t->env, t->env.q_first + (int64_t)(s->row + i), (int64_t)(s->key + key), width, head,
                        t->scratch, out);
            if (memchr(out, 1, width)) s->live[key / TILE] = true;
        }
}

/* --- judgement ---------------------------------------------------------------------------------------------------- */

/* How far the numbers of a row may be off: each by the root of `squares`, by `factor` times |common|, by `relative`
 * times itself, and by `flat`. NULL counts as 0. The first two are at most what one pair could add, `one`, and the
 * number itself, where `capped`. */
struct allowed {
    const double *squares, *common;
    double factor, relative, flat, one;
    bool capped;
};

/* LSE and what rounding took from it, together. For a query that sees no keys nothing was taken. */
static double pair_of(const check_run *run, uint64_t at, float low, bool empty) {
    const float lse = ((const float *)run->judged->t[FCP_TENSOR_LSE])[at];
    return empty && low != 0 ? NAN : (double)lse + (double)low;
}

/* Judges a row of a tensor, or one number of LSE, and keeps the reference if that is wanted. */
static void put_row(struct task *t, fcp_tensor tensor, uint64_t token, uint32_t head, const double *exact,
                    const float *naive, const struct allowed *a, double *kept, bool empty) {
    const check_run *run = t->run;
    uint64_t dims[3];
    fcp_tensor_shape(&run->shape, tensor, dims);
    uint64_t at = (token * dims[1] + head) * dims[2];
    if (kept) memcpy(kept + at, exact, dims[2] * sizeof *kept);
    if (!run->judged || !run->judged->t[tensor]) return;
    fcp_dtype dtype = fcp_tensor_dtype(&run->shape, tensor);
    const char *row = (const char *)run->judged->t[tensor] + at * fcp_dtype_size(dtype);
    const uint8_t *rows = run->rows[tensor == FCP_TENSOR_DK || tensor == FCP_TENSOR_DV ? FCP_KEYS : FCP_QUERIES];
    bool ours = !rows || rows[token / 8] >> token % 8 & 1;
    for (uint64_t i = 0; i < dims[2]; i++) {
        float value;
        fcp_to_float(dtype, row + i * fcp_dtype_size(dtype), &value, 1);
        const double result = tensor == FCP_TENSOR_LSE_LOW ? pair_of(run, at, value, empty) : (double)value;
        const double size = fabs(exact[i]);
        double off = a->squares ? sqrt(a->squares[i]) : 0;
        if (a->common) off += a->factor * fabs(a->common[i]);
        if (a->capped) off = fmin(off, a->one + size);
        const bool told = !(off > 0 && off >= fmax(size, a->one / 4));
        off = fmin(off + a->flat + a->relative * size, FLT_MAX);
        measure_number(&t->measures[tensor], dtype, at + i, ours ? &result : NULL, (double)naive[i], exact[i],
                       off + fcp_ulp(dtype, size + off) / 2, told, empty);
    }
}

/* --- what rounding may do ----------------------------------------------------------------------------------------- */

/* Half an ulp of fp32 at 1, and its smallest normal number. */
#define UNIT 0x1p-24
#define TINY 0x1p-126

static double square(double x) { return x * x; }

/* A vector's length, and its largest number. */
static double length_of(const double *x, size_t d, double *out_most) {
    double sum = 0, most = 0;
    for (size_t i = 0; i < d; i++) {
        sum += x[i] * x[i];
        if (fabs(x[i]) > most) most = fabs(x[i]);
    }
    *out_most = most;
    return sqrt(sum);
}

/* The most that rounding P or dS to the dtype takes from it, as a part of it; 0 if they stay in fp32. */
static double part_rounded(fcp_dtype dtype) { return dtype == FCP_FP32 ? 0 : fcp_ulp(dtype, 1) / 2; }
/* Twice this is the largest number that may become 0 on the way. */
static double least_of(fcp_dtype dtype) { return dtype == FCP_FP16 ? fcp_ulp(FCP_FP16, 0) / 2 : TINY; }

/* Whether there are kernels for the dtype. */
static bool for_gpus(const struct strip *s) { return s->dtype != FCP_FP32; }

/* Of n errors, each at most x and as likely up as down, the sum is at most this times the root of the sum of x^2. */
static double spread(double n) { return n < 16 ? sqrt(n) : 4; }

/* The units by which a sum of n terms is off because it is added up in fp32. */
static double added(const struct strip *s, double n) {
    return 3 * sqrt(fmin(n, 256)) + (s->dtype == FCP_FP32 ? 0 : n / 16);
}

/* The units of a product of vectors by which it is off because what has been added up so far may be near to it. */
static double drift_of(double d) { return 1.7 * sqrt(d); }

/* By what part of it a term of a sum of n is off because it is rounded to the dtype and added in fp32, squared. */
static double term_of(const struct strip *s, double n) {
    return square(added(s, n) * UNIT) + square(spread(n) * part_rounded(s->dtype));
}

/* How many units the base that kernels subtract from exponents is off by, where LSE is x: without a score they may
 * scale before they subtract, while the base is below 256 in units of log2. */
static double base_off(const struct strip *s, double x) {
    return s->score.count || !for_gpus(s) ? 0 : fmin(fabs(x), 178);
}

/* What a product of vectors of d numbers is off by, of which the lengths' product is `most`. */
static double product_off(const struct task *t, size_t d, double drift, double product, double most) {
    const double steps = t->strip.dtype == FCP_FP32 ? 0 : (double)d / 16;
    return UNIT * ((2 + steps) * most + drift * fabs(product));
}
static double value_product_off(const struct task *t, double product, double most) {
    return product_off(t, t->strip.vd, t->drift_v, product, most);
}

/* What a logit is off by before it is given to the score: it is q . k times the scale. */
static double scaled_off(const struct task *t, uint32_t i, size_t j, double logit) {
    const double most = fabs(t->strip.scale) * t->rows[i].q * t->k_length[j];
    return product_off(t, t->strip.d, t->drift, logit, most) + 2 * UNIT * fabs(logit);
}

/* What the arguments of the softmax are off by, where there is no score. */
static void bound_logits(struct task *t) {
    const struct strip *s = &t->strip;
    for (uint32_t i = 0; i < s->rows; i++)
        for (struct tile tile = first_tile(s); tile.count; tile = next_tile(s, tile))
            for (size_t j = tile.key; j < tile.key + tile.count; j++) {
                const double logit = t->exact.p[i * s->n + j];
                t->p_off[i * s->n + j] = scaled_off(t, i, j, logit) + UNIT * (fabs(logit) + 8);
            }
}

/* The naive computation's score and slopes beside the exact ones, in a row. */
struct compared {
    double most;         /* the row's largest exact logit */
    double shift;        /* what the naive one is off by there */
    double logit, slope; /* by how much more or less, or what a slope is off by, at most, where P is not 0 in fp32 */
};

enum { REACH = 110, FAR = 64 }; /* exp(-REACH) is 0; beyond FAR the ulps of moderate numbers are not those of logits */
static struct compared compare_scores(const struct task *t, uint32_t i) {
    const struct strip *s = &t->strip;
    const uint8_t *allow = s->allow + i * s->n;
    const double *exact = t->exact.p + i * s->n;
    const float *naive = t->naive.p + i * s->n;
    struct compared c = {.most = -INFINITY};
    double naive_most = -INFINITY;
    for (struct tile tile = first_tile(s); tile.count; tile = next_tile(s, tile))
        for (size_t j = tile.key; j < tile.key + tile.count; j++) {
            if (!allow[j]) continue;
            naive_most = fmax(naive_most, (double)naive[j]);
            if (!(exact[j] > c.most)) continue;
            c.most = exact[j];
            c.shift = (double)naive[j] - exact[j];
        }
    if (!isfinite(c.shift)) c.shift = 0;
    for (struct tile tile = first_tile(s); tile.count; tile = next_tile(s, tile))
        for (size_t j = tile.key; j < tile.key + tile.count; j++) {
            const bool seen = exact[j] >= c.most - REACH || (double)naive[j] >= naive_most - REACH;
            if (!allow[j] || !seen) continue;
            const double logit = fabs((double)naive[j] - exact[j] - c.shift);
            const double slope =
                t->exact.slope ? fabs((double)t->naive.slope[i * s->n + j] - t->exact.slope[i * s->n + j]) : 0;
            if (isfinite(logit)) c.logit = fmax(c.logit, logit);
            if (isfinite(slope)) c.slope = fmax(c.slope, slope);
        }
    return c;
}

/* Raises c->logit to what the naive score is off by for logits `by` times those of a row. Where a score moves logits
 * far away, rounding is coarse, and in a row of few keys it may do little by chance. */
static void compare_elsewhere(const struct task *t, uint32_t i, double by, struct compared *c) {
    const struct strip *s = &t->strip;
    float moved[TILE], naive[TILE];
    double logits[TILE], exact[TILE];
    for (struct tile tile = first_tile(s); tile.count; tile = next_tile(s, tile)) {
        const size_t at = i * s->n + tile.key;
        for (uint32_t j = 0; j < tile.count; j++) logits[j] = moved[j] = (float)(t->weight[at + j] * s->scale * by);
        naive_score(s, s->score, i, tile, moved, naive);
        exact_score(s, s->score, i, tile, logits, exact);
        for (uint32_t j = 0; j < tile.count; j++) {
            if (!s->allow[at + j] || !(t->exact.p[at + j] >= c->most - REACH)) continue;
            const double off = fabs((double)naive[j] - exact[j] - c->shift);
            if (isfinite(off)) c->logit = fmax(c->logit, off);
        }
    }
}

/* Whether a score has kinks or jumps. */
static bool has_kinks(mc_code code) {
    for (uint32_t i = 0; i < code.count; i++)
        switch (code.nodes[i].op) {
        case MC_LT_F: case MC_LE_F: case MC_EQ_F: case MC_NE_F: case MC_ABS_F: case MC_MIN_F: case MC_MAX_F:
        case MC_FLOOR_F: return true;
        default: break;
        }
    return false;
}

/* How far the score and its slope move in a row if its logits do, up or down, by as much as they may be off. What was
 * there before is kept if it is more. */
static void move_scores(struct task *t, uint32_t i, const double *dots, bool up) {
    const struct strip *s = &t->strip;
    double moved[TILE], score[TILE], slope[TILE] = {0};
    for (struct tile tile = first_tile(s); tile.count; tile = next_tile(s, tile)) {
        const size_t at = i * s->n + tile.key;
        for (uint32_t j = 0; j < tile.count; j++) {
            const double logit = dots[at + j] * s->scale, off = scaled_off(t, i, tile.key + j, logit);
            moved[j] = up ? logit + off : logit - off;
        }
        exact_score(s, s->score, i, tile, moved, score);
        if (t->exact.slope) exact_score(s, s->slope, i, tile, moved, slope);
        for (uint32_t j = 0; j < tile.count; j++) {
            if (!s->allow[at + j]) continue;
            t->p_off[at + j] = fmax(t->p_off[at + j], fabs(score[j] - t->exact.p[at + j]));
            if (t->exact.slope)
                t->slope_off[at + j] = fmax(t->slope_off[at + j], fabs(slope[j] - t->exact.slope[at + j]));
        }
    }
}

/* What the arguments of the softmax are off by, and the slopes, where there is a score: it is evaluated again for
 * logits that are as far off as they may be. Called when p holds the arguments in both computations.
 *
 * Rows of keys in a sample take LSE as the result has it, which is as far off as the logits are together. So there the
 * exact logits are moved to where the naive ones are. */
static void bound_scores(struct task *t) {
    struct strip *s = &t->strip;
    const bool kinks = has_kinks(s->score), gpus = for_gpus(s);
    double rough[TILE] = {0};
    exact_dots(s, &t->exact, t->exact.q, t->exact.k, s->d, t->weight);
    memset(t->p_off, 0, s->rows * s->n * sizeof *t->p_off);
    memset(t->slope_off, 0, s->rows * s->n * sizeof *t->slope_off);
    for (uint32_t i = 0; i < s->rows; i++) {
        struct compared c = compare_scores(t, i);
        if (fabs(c.most) > FAR) compare_elsewhere(t, i, 1.125, &c), compare_elsewhere(t, i, 0.875, &c);
        t->rows[i].shift = c.shift;
        move_scores(t, i, t->weight, true);
        if (kinks) move_scores(t, i, t->weight, false);
        for (struct tile tile = first_tile(s); tile.count; tile = next_tile(s, tile)) {
            const size_t at = i * s->n + tile.key;
            double *logits = t->weight + at, *exact = t->exact.p + at;
            for (uint32_t j = 0; j < tile.count; j++) logits[j] *= s->scale;
            if (s->rough.count && gpus) exact_score(s, s->rough, i, tile, logits, rough);
            for (uint32_t j = 0; j < tile.count; j++) {
                double *off = t->p_off + at + j;
                *off += 2 * c.logit + 8 * UNIT * (1 + fabs(exact[j] - c.most) + fmin(fabs(exact[j]), 16));
                if (s->rough.count && gpus) *off += fabs(rough[j] - exact[j]) + 256 * UNIT;
                if (t->exact.slope)
                    t->slope_off[at + j] +=
                        2 * c.slope + UNIT * (gpus ? 64 : 16) * (1 + fabs(t->exact.slope[at + j]));
                if (!s->wants_rows) exact[j] += c.shift;
            }
        }
    }
}

/* What is known of the strip's rows before they are computed, and of Q and dO. */
static void open_bounds(struct task *t) {
    const struct strip *s = &t->strip;
    const struct exact_buffers *b = &t->exact;
    for (uint32_t i = 0; i < s->rows; i++) {
        struct row_bounds *r = &t->rows[i];
        *r = (struct row_bounds){.unit_length = 1 / sqrt((double)s->vd)};
        t->sums_o[i] = t->sums_q[i] = (struct sums){0};
        r->q = length_of(b->q + i * s->d, s->d, &r->q_most);
        if (t->run->backward) r->g = length_of(b->d_o + i * s->vd, s->vd, &r->g_most);
    }
    for (size_t i = 0; i < s->rows * s->d; i++) t->q2[i] = square(b->q[i]);
    for (size_t i = 0; i < s->rows * s->vd; i++) t->g2[i] = square(b->d_o[i]);
}

/* out[i] += sum over keys of a[i][key] * keys[key]^2, number by number */
static void gather_squares(const struct strip *s, struct exact_buffers *b, const double *a, const double *keys,
                           size_t d, double *out) {
    memset(out, 0, s->rows * d * sizeof *out);
    for (struct tile t = first_tile(s); t.count; t = next_tile(s, t)) {
        for (size_t i = 0; i < t.count * d; i++) b->turned[i] = square(keys[t.key * d + i]);
        exact_product(out, d, a + t.key, s->n, 1, b->turned, d, s->rows, t.count, (uint32_t)d);
    }
}

/* By how much a part p of a sum of 1 grows, or shrinks, if its exponent is up to `off` more, or less. `x` is its
 * logarithm, which is finite where p is 0 because it is small. */
static double growth(double p, double x, double off) {
    enum { MOST = 300 };
    if (off < 1e-4) return p * (off + off * off / 2);
    return off < 1 ? p * expm1(off) : fmax(exp(fmin(x + off, MOST)) - p, 0);
}
static double shrinkage(double p, double off) { return off < 1e-4 ? p * off : -p * expm1(-off); }

/* How far a part p of a sum of 1 may be off that grows or shrinks by so much itself, and of which the others do,
 * added up. */
static double part_off(double p, double grows, double shrinks, double others_grow, double others_shrink) {
    const double rest = fmax(1 - p, 0), kept = fmax(1 - shrinks, 0), left = fmax(1 - others_shrink, 0);
    const double up = rest * grows / (1 + grows), down = rest > 0 ? fmin(rest * shrinks / kept, p) : 0;
    const double pushed = p * others_grow / (1 + others_grow);
    const double pulled = left > 0 ? fmin(p * others_shrink / left, rest) : rest;
    const double own = fmax(up, down), by_others = fmax(pushed, pulled);
    return fmin(sqrt(square(own) + square(by_others)), fmax(p, rest));
}

/* What rounding takes from the difference between a logit and LSE, and from that in units of log2. */
static double scaled_apart(double x) { return 4 * UNIT * fabs(x); }

/* A row's keys, and its sink: which has the most of the sum, and what the exponents of the others do to the sum. */
struct softmax_off {
    size_t top;              /* SIZE_MAX: the sink */
    double top_off;          /* what the top's exponent is off by, times its P */
    double grows, shrinks;   /* squares, of all but the top, added up */
    double reach;            /* the most that an exponent of these may be above LSE */
    double sink_off;         /* what the sink's exponent is off by */
};

/* What an exponent is off by, relative to the row's top. */
static double beside_top(const struct softmax_off *r, double off) { return sqrt(square(off) + square(r->top_off)); }

static void add_part(struct softmax_off *r, double p, double x, double off) {
    const double all = beside_top(r, off);
    r->grows += square(growth(p, x, all));
    r->shrinks += square(shrinkage(p, all));
    r->reach = fmax(r->reach, x + all);
}

/* `sink` is the logarithm of the sink's part of the sum, and `sink_off` what its exponent is off by. Arguments of the
 * softmax are in `weight`. What the keys are off by together they are off by beside the sink. */
static struct softmax_off bound_softmax(struct task *t, uint32_t i, double sink, double sink_off) {
    const struct strip *s = &t->strip;
    const double *p = t->exact.p + i * s->n, *x = t->weight + i * s->n;
    const double lse = t->exact.lse[i];
    double *off = t->p_off + i * s->n, *shift = &t->rows[i].shift;
    struct softmax_off r = {.top = SIZE_MAX, .reach = -INFINITY};
    double most = exp(sink);
    for (struct tile tile = first_tile(s); tile.count; tile = next_tile(s, tile))
        for (size_t j = tile.key; j < tile.key + tile.count; j++)
            if (p[j] > most) most = p[j], r.top = j;
    r.top_off = most * (r.top == SIZE_MAX ? sink_off : off[r.top]);
    if (!isfinite(r.top_off)) r.top_off = FLT_MAX;
    for (struct tile tile = first_tile(s); tile.count; tile = next_tile(s, tile))
        for (size_t j = tile.key; j < tile.key + tile.count; j++) {
            off[j] += scaled_apart(x[j] - lse) + (r.top == SIZE_MAX ? fabs(*shift) : 0);
            if (j != r.top && s->allow[i * s->n + j]) add_part(&r, p[j], x[j] - lse, off[j]);
        }
    r.sink_off = sink_off + (r.top == SIZE_MAX ? 0 : fabs(*shift));
    if (r.top == SIZE_MAX) *shift = 0;
    else if (sink > -INFINITY) add_part(&r, exp(sink), sink, r.sink_off);
    return r;
}

/* How often an error of P counts in a sum of squares. What a small error of an exponent is called is much more than it
 * mostly is; a large one leaves P anywhere. */
static double counted(double off) { return fmin(1 + off, 4); }

/* What a part of the sum is off by, whose exponent is off by so much. */
static double bound_part(const struct softmax_off *r, bool top, double p, double x, double off) {
    const double all = top ? off : beside_top(r, off), grows = growth(p, x, all), shrinks = shrinkage(p, all);
    const double others_grow = top ? r->grows : fmax(r->grows - square(grows), 0);
    const double others_shrink = top ? r->shrinks : fmax(r->shrinks - square(shrinks), 0);
    return counted(all) * part_off(p, grows, shrinks, sqrt(others_grow), sqrt(others_shrink));
}

/* Replaces, in p_off, what the exponent of a pair is off by, by what its P is off by. */
static void bound_parts(struct task *t, uint32_t i, const struct softmax_off *r) {
    const struct strip *s = &t->strip;
    const double *p = t->exact.p + i * s->n, *x = t->weight + i * s->n, lse = t->exact.lse[i];
    double *off = t->p_off + i * s->n;
    for (struct tile tile = first_tile(s); tile.count; tile = next_tile(s, tile))
        for (size_t j = tile.key; j < tile.key + tile.count; j++)
            off[j] = s->allow[i * s->n + j] ? bound_part(r, j == r->top, p[j], x[j] - lse, off[j]) : 0;
}

/* The same where LSE is given: nothing makes up for what an exponent is off by, and for what LSE is, if it is not given
 * as a pair. */
static void bound_given(struct task *t, uint32_t i) {
    const struct strip *s = &t->strip;
    const double *p = t->exact.p + i * s->n, *x = t->weight + i * s->n, lse = t->exact.lse[i], low = t->exact.low[i];
    const double lse_off = 4 * UNIT * (t->run->in->t[FCP_TENSOR_LSE_LOW] ? base_off(s, lse) : fabs(lse));
    double *off = t->p_off + i * s->n;
    for (struct tile tile = first_tile(s); tile.count; tile = next_tile(s, tile))
        for (size_t j = tile.key; j < tile.key + tile.count; j++) {
            const double all = off[j] + lse_off + scaled_apart(x[j] - lse), grows = growth(p[j], x[j] - lse - low, all);
            off[j] = s->allow[i * s->n + j] ? counted(all) * fmin(grows, fmax(p[j], 1 - p[j])) : 0;
        }
}

/* What P, O and LSE of the strip may be off by. Called when p holds P. */
static void bound_forward(struct task *t) {
    struct strip *s = &t->strip;
    struct exact_buffers *b = &t->exact;
    for (uint32_t i = 0; i < s->rows; i++) {
        struct row_bounds *r = &t->rows[i];
        const double *p = b->p + i * s->n, lse = b->lse[i];
        double *weight = t->weight + i * s->n, *p_off = t->p_off + i * s->n, keys = 0, sum_off = 0, o_most;
        r->live = isfinite(lse);
        for (struct tile tile = first_tile(s); tile.count; tile = next_tile(s, tile))
            for (size_t j = tile.key; j < tile.key + tile.count; j++) keys += r->live && p[j] > 0;
        r->spread = spread(keys);
        r->added = added(s, keys);
        r->term = term_of(s, keys);
        if (r->live && s->wants_rows) {
            const double sink_log = s->sink ? *s->sink - lse : -INFINITY;
            const double sink_off = s->sink ? UNIT * (8 + 4 * base_off(s, *s->sink)) : 0;
            const struct softmax_off of = bound_softmax(t, i, sink_log, sink_off);
            bound_parts(t, i, &of);
            if (s->sink) r->sink_off = bound_part(&of, of.top == SIZE_MAX, exp(sink_log), sink_log, of.sink_off);
            sum_off = sqrt(square(of.top_off) + square(log1p(sqrt(of.grows))));
            if (of.reach > 100) sum_off = of.top_off + of.reach + log(keys + 2);
        } else if (r->live) bound_given(t, i);
        const double small = square(r->spread * t->least);
        for (struct tile tile = first_tile(s); tile.count; tile = next_tile(s, tile))
            for (size_t j = tile.key; j < tile.key + tile.count; j++) {
                const bool live = r->live && (p[j] > 0 || p_off[j] > 0), lost = live && p[j] <= 2 * t->least;
                const double part = live ? p[j] * t->v_most[j] : 0;
                weight[j] = live ? square(p_off[j]) + square(p[j]) * r->term + (lost ? 0 : small) : 0;
                t->sums_o[i].all += part;
                t->sums_o[i].lost += (lost ? part : 0) + TINY;
                if (!r->live || !s->allow[i * s->n + j]) continue;
                t->sums_o[i].one = fmax(t->sums_o[i].one, t->v_most[j]);
                r->v_length = fmax(r->v_length, t->v_length[j]);
            }
        if (!r->live) continue;
        r->o = length_of(b->o + i * s->vd, s->vd, &o_most);
        const double base = base_off(s, lse);
        r->relative = UNIT * (4 + 2 * base + r->added);
        r->shared = UNIT * (8 + 4 * base + r->added);
        r->pair = sum_off + 2 * fabs(r->shift) + r->shared + (s->score.count ? 2 * UNIT * fabs(lse) : 0);
        r->lse = r->pair + 3 * UNIT * fabs(lse);
    }
    if (s->wants_rows) gather_squares(s, b, t->weight, b->v, s->vd, t->squares_o);
}

/* The most that a sum may be off whose terms are rounded by up to x each: of all x, and of all x^2. */
struct rounded {
    double all, squares;
};
static void add_rounded(struct rounded *r, double x) {
    r->all += x;
    r->squares += x * x;
}
static double rounded_off(const struct rounded *r) { return fmin(r->all, 4 * sqrt(r->squares)); }

/* How far delta may be off, which is made of O as it was rounded. What moves P moves O by v - O, and delta by
 * dP - delta; what rounding takes from P v is not made up for. Called when p holds dP and ds P. */
static void bound_delta(struct task *t) {
    const struct strip *s = &t->strip;
    const struct exact_buffers *b = &t->exact;
    for (uint32_t i = 0; i < s->rows; i++) {
        struct row_bounds *r = &t->rows[i];
        struct rounded of_o = {0}, of_p = {0};
        const double *g = b->d_o + i * s->vd, *o = b->o + i * s->vd, d_lse = b->d_lse[i];
        double squares = 0;
        if (!r->live) continue;
        for (size_t x = 0; x < s->vd; x++) {
            r->delta += g[x] * o[x];
            add_rounded(&of_o, fcp_ulp(s->dtype, o[x]) / 2 * fabs(g[x]));
        }
        r->centre = r->delta - d_lse;
        for (struct tile tile = first_tile(s); tile.count; tile = next_tile(s, tile))
            for (size_t j = tile.key; j < tile.key + tile.count; j++) {
                const double p = b->ds[i * s->n + j], dp = b->p[i * s->n + j], p_off = t->p_off[i * s->n + j];
                if (!(p > 0 || p_off > 0)) continue;
                squares += square(p_off * (dp - r->delta)) + square(p * r->added * UNIT * dp);
                add_rounded(&of_p, (t->part * p + fmin(p, t->least)) * fabs(dp));
            }
        squares += square(value_product_off(t, r->delta, r->g * r->o)) + square(r->sink_off * r->delta);
        r->delta_off = fmin(sqrt(squares), 2 * r->g * r->v_length) + rounded_off(&of_o) + rounded_off(&of_p) +
                       r->relative * fabs(r->delta) + 2 * UNIT * fabs(d_lse);
    }
}

/* What a pair's share in dQ and dK may be off by, squared. Its P is in ds, and dP in p. */
static double gradient_square(struct task *t, uint32_t i, size_t j) {
    const struct strip *s = &t->strip;
    const struct row_bounds *r = &t->rows[i];
    const size_t at = i * s->n + j;
    const double p = t->exact.ds[at], slope = t->exact.slope ? fabs(t->exact.slope[at]) : 1, scale = fabs(s->scale);
    const double inner = fabs(t->exact.p[at] - r->centre), ds = p * inner * slope * scale;
    const double small = t->least * fmax(1, scale), share = p * slope * scale;
    const double product = share * value_product_off(t, t->exact.p[at], r->g * t->v_length[j]);
    const double turn = p * inner * scale * (t->exact.slope ? t->slope_off[at] : 0);
    const double moved = t->p_off[at] * (inner + r->delta_off) * slope * scale;
    const double d_lse = fabs(t->exact.d_lse[i]);
    const double one = (r->g * t->v_length[j] * r->unit_length + d_lse) * fmax(1, slope) * scale;
    double sum = square(moved) + square(ds) * (square(r->shared) + t->term_q);
    double lost = TINY * (1 + scale) + (p > 2 * TINY ? 0 : ds);
    if (ds > 2 * small) sum += square(t->spread_q * small);
    else lost += ds;
    const double all = ds + share * (r->g * (t->v_length[j] + r->o) * r->unit_length + d_lse);
    t->sums_q[i].lost += lost * (1 + t->k_most[j]);
    t->sums_q[i].all += all * t->k_most[j];
    t->sums_q[i].one = fmax(t->sums_q[i].one, one * t->k_most[j]);
    t->sums_k[j].lost += lost * (1 + r->q_most);
    t->sums_k[j].all += all * r->q_most;
    t->sums_k[j].one = fmax(t->sums_k[j].one, one * r->q_most);
    return sum + square(product) + square(turn) + square(share * r->delta_off);
}

/* Whether a pair's P is not 0, or may be not. Its P is in ds. */
static bool live_pair(const struct task *t, uint32_t i, size_t j) {
    const size_t at = i * t->strip.n + j;
    return t->rows[i].live && (t->exact.ds[at] > 0 || t->p_off[at] > 0);
}

/* The same of the gradients. Called when p holds dP and ds P. */
static void bound_backward(struct task *t) {
    struct strip *s = &t->strip;
    struct exact_buffers *b = &t->exact;
    bound_delta(t);
    for (uint32_t i = 0; i < s->rows; i++)
        for (struct tile tile = first_tile(s); tile.count; tile = next_tile(s, tile))
            for (size_t j = tile.key; j < tile.key + tile.count; j++) {
                const struct row_bounds *r = &t->rows[i];
                const double p = b->ds[i * s->n + j];
                double *weight = &t->weight[i * s->n + j];
                if (*weight == 0) continue;
                *weight = square(t->p_off[i * s->n + j]) + square(p) * (square(r->shared) + t->term_q);
                t->sums_v[j].one = fmax(t->sums_v[j].one, r->g_most);
                if (p > 2 * t->least) *weight += square(t->spread_q * t->least);
                else t->sums_v[j].lost += p * r->g_most;
                t->sums_v[j].lost += TINY;
                t->sums_v[j].all += p * r->g_most;
            }
    if (s->wants_keys) exact_scatter(s, t->weight, t->g2, s->vd, t->squares_v);
    for (uint32_t i = 0; s->wants_rows && i < s->rows; i++)
        for (struct tile tile = first_tile(s); tile.count; tile = next_tile(s, tile))
            for (size_t at = i * s->n + tile.key; at < i * s->n + tile.key + tile.count; at++)
                t->weight[at] = t->weight[at] > 0 ? b->ds[at] * (b->slope ? b->slope[at] : 1) * s->scale : 0;
    if (s->wants_rows) {
        memset(t->common, 0, s->rows * s->d * sizeof *t->common);
        exact_gather(s, t->weight, b->k, s->d, t->common);
    }
    for (uint32_t i = 0; i < s->rows; i++)
        for (struct tile tile = first_tile(s); tile.count; tile = next_tile(s, tile))
            for (size_t j = tile.key; j < tile.key + tile.count; j++)
                t->weight[i * s->n + j] =
                    live_pair(t, i, j) ? gradient_square(t, i, j) : 0;
    if (s->wants_rows) gather_squares(s, b, t->weight, b->k, s->d, t->squares_q);
    if (s->wants_keys) exact_scatter(s, t->weight, t->q2, s->d, t->squares_k);
}

/* --- tasks -------------------------------------------------------------------------------------------------------- */

/* A number of a row and head of a tensor like LSE; 0 if there is no such tensor. */
static float row_number(const check_run *run, fcp_tensor t, uint64_t token, uint32_t head) {
    const float *at = run->in->t[t];
    return at ? at[token * run->shape.heads + head] : 0;
}

static void load_strip(struct task *t, uint32_t head) {
    check_run *run = t->run;
    struct strip *s = &t->strip;
    struct exact_buffers *exact = &t->exact;
    struct naive_buffers *naive = &t->naive;
    for (uint32_t i = 0; i < s->rows; i++) {
        uint64_t token = t->offset + s->row + i;
        load(run, FCP_TENSOR_Q, token, head, exact->q + i * s->d, naive->q + i * s->d);
        if (run->backward) load(run, FCP_TENSOR_DO, token, head, exact->d_o + i * s->vd, naive->d_o + i * s->vd);
        if (run->backward && run->shape.lse_gradient)
            exact->d_lse[i] = naive->d_lse[i] = row_number(run, FCP_TENSOR_DLSE, token, head);
        if (s->wants_rows) continue;
        load(run, FCP_TENSOR_O, token, head, exact->o + i * s->vd, naive->o + i * s->vd);
        exact->lse[i] = naive->lse[i] = row_number(run, FCP_TENSOR_LSE, token, head);
        exact->low[i] = naive->low[i] = row_number(run, FCP_TENSOR_LSE_LOW, token, head);
    }
    s->head = head;
    s->sink = run->plan->sink_count ? &run->plan->sink[head] : NULL;
}

/* Row i of numbers [rows][d], which are there only if something is judged. */
static const double *row_of(const double *numbers, size_t d, size_t i) { return numbers ? numbers + i * d : NULL; }

static void attend_strip(struct task *t, uint32_t head) {
    check_run *run = t->run;
    struct strip *s = &t->strip;
    fcp_reference none = {0}, *out = run->out ? run->out : &none;
    load_strip(t, head);
    exact_arguments(s, &t->exact, run->backward);
    if (run->judged) {
        naive_arguments(s, &t->naive, run->backward);
        open_bounds(t);
        if (s->score.count) bound_scores(t);
        else bound_logits(t);
        memcpy(t->weight, t->exact.p, s->rows * s->n * sizeof *t->weight);
    }
    if (s->wants_rows) exact_forward(s, &t->exact, run->backward);
    else exact_recompute(s, &t->exact);
    if (run->judged) bound_forward(t);
    if (run->backward) {
        exact_backward_v(s, &t->exact);
        if (run->judged) bound_backward(t);
        exact_backward(s, &t->exact);
    }
    if (run->judged) {
        if (s->wants_rows) naive_forward(s, &t->naive, run->backward);
        else naive_recompute(s, &t->naive);
    }
    if (run->judged && run->backward) {
        naive_backward_v(s, &t->naive);
        naive_backward(s, &t->naive);
    }
    for (uint32_t i = 0; i < s->rows && s->wants_rows; i++) {
        const struct row_bounds *r = &t->rows[i];
        const struct sums *o = &t->sums_o[i], *q = &t->sums_q[i];
        const double lse_square = square(r->lse), pair_square = square(r->pair);
        const struct allowed of_o = {.squares = row_of(t->squares_o, s->vd, i), .relative = r->relative, .one = o->one,
                                     .flat = o->lost + run->wire[FCP_TENSOR_O] * o->all, .capped = true},
                             of_lse = {.squares = &lse_square, .one = 4}, of_pair = {.squares = &pair_square, .one = 4},
                             of_q = {.squares = row_of(t->squares_q, s->d, i), .common = row_of(t->common, s->d, i),
                                     .factor = r->delta_off, .relative = r->relative + r->shared, .one = q->one,
                                     .flat = q->lost + run->wire[FCP_TENSOR_DQ] * q->all};
        uint64_t token = t->offset + s->row + i;
        bool empty = t->exact.empty[i];
        put_row(t, FCP_TENSOR_O, token, head, t->exact.o + i * s->vd, t->naive.o + i * s->vd, &of_o, out->o, empty);
        put_row(t, FCP_TENSOR_LSE, token, head, &t->exact.lse[i], &t->naive.lse[i], &of_lse, out->lse, empty);
        put_row(t, FCP_TENSOR_LSE_LOW, token, head, &t->exact.lse[i], &t->naive.lse[i], &of_pair, NULL, empty);
        if (run->backward)
            put_row(t, FCP_TENSOR_DQ, token, head, t->exact.dq + i * s->d, t->naive.dq + i * s->d, &of_q, out->dq,
                    empty);
    }
}

static void load_keys(struct task *t) {
    struct strip *s = &t->strip;
    struct exact_buffers *exact = &t->exact;
    struct naive_buffers *naive = &t->naive;
    for (size_t i = 0; i < s->n; i++) {
        uint64_t token = t->key_offset + s->key + i;
        load(t->run, FCP_TENSOR_K, token, t->kv_head, exact->k + i * s->d, naive->k + i * s->d);
        if (t->run->shape.values_in_keys) {
            memcpy(exact->v + i * s->vd, exact->k + i * s->d, s->vd * sizeof *exact->v);
            memcpy(naive->v + i * s->vd, naive->k + i * s->d, s->vd * sizeof *naive->v);
        } else load(t->run, FCP_TENSOR_V, token, t->kv_head, exact->v + i * s->vd, naive->v + i * s->vd);
        t->k_length[i] = length_of(exact->k + i * s->d, s->d, &t->k_most[i]);
        t->v_length[i] = length_of(exact->v + i * s->vd, s->vd, &t->v_most[i]);
    }
}

/* Adds dV to dK, whose first numbers it is the gradient of, too; and what it is off by, as a part of it `relative`. */
static void add_values(struct task *t, double relative) {
    const struct strip *s = &t->strip;
    for (size_t i = 0; i < s->n; i++) {
        struct sums *k = &t->sums_k[i];
        const struct sums *v = &t->sums_v[i];
        *k = (struct sums){k->all + v->all, k->lost + v->lost, fmax(k->one, v->one)};
        for (size_t x = 0; x < s->vd; x++) {
            const size_t key = i * s->d + x, value = i * s->vd + x;
            t->exact.dk[key] += t->exact.dv[value];
            t->naive.dk[key] += t->naive.dv[value];
            if (t->squares) t->squares_k[key] += t->squares_v[value] + square(relative * t->exact.dv[value]);
        }
    }
}

static void put_keys(struct task *t) {
    struct strip *s = &t->strip;
    fcp_reference none = {0}, *out = t->run->out ? t->run->out : &none;
    const double relative = UNIT * (4 + t->added_q);
    if (t->run->shape.values_in_keys) add_values(t, relative);
    naive_round_all(s, t->naive.dk, s->n * s->d);
    naive_round_all(s, t->naive.dv, s->n * s->vd);
    for (size_t i = 0; i < s->n; i++) {
        const struct sums *k = &t->sums_k[i], *v = &t->sums_v[i];
        const struct allowed of_k = {.squares = row_of(t->squares_k, s->d, i), .relative = relative, .one = k->one,
                                     .flat = k->lost + t->run->wire[FCP_TENSOR_DK] * k->all},
                             of_v = {.squares = row_of(t->squares_v, s->vd, i), .relative = relative, .one = v->one,
                                     .flat = v->lost + t->run->wire[FCP_TENSOR_DV] * v->all};
        uint64_t token = t->key_offset + s->key + i;
        put_row(t, FCP_TENSOR_DK, token, t->kv_head, t->exact.dk + i * s->d, t->naive.dk + i * s->d, &of_k, out->dk,
                false);
        put_row(t, FCP_TENSOR_DV, token, t->kv_head, t->exact.dv + i * s->vd, t->naive.dv + i * s->vd, &of_v, out->dv,
                false);
    }
}

static void run_task(struct task *t) {
    check_run *run = t->run;
    struct strip *s = &t->strip;
    uint32_t group = run->shape.heads / run->shape.kv_heads, first_head = t->kv_head * group, heads = group;
    bool by_head = run->plan->problem->mask_uses & MC_USES_H;
    uint64_t first = 0, end;
    fcp_plan_sequence_offset(run->plan, t->unit.sequence, &end);
    if (run->sample && s->wants_rows) {
        first = t->unit.first;
        end = first + t->unit.count;
        first_head = t->unit.head;
        heads = 1;
    }
    load_keys(t);
    for (s->row = first; s->row < end && !fcp_stop_asked(run->stop); s->row += STRIP) {
        s->rows = end - s->row < STRIP ? (uint32_t)(end - s->row) : STRIP;
        for (uint32_t h = first_head; h < first_head + heads; h++) {
            if (by_head || h == first_head) fill_mask(t, h);
            attend_strip(t, h);
        }
    }
    if (s->wants_keys) put_keys(t);
}

static int64_t *new_scratch(const fcp_plan *plan, mc_code slope, mc_code rough) {
    const mc_code codes[] = {{plan->mask, (uint32_t)plan->mask_count},
                             {plan->score, (uint32_t)plan->score_count}, slope, rough};
    size_t most = 0;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        size_t words = mc_row_scratch(codes[i]) + 1;
        if (words > most) most = words;
    }
    return calloc(most, sizeof(int64_t));
}

/* Room for the squares of errors. */
static bool open_squares(struct task *t) {
    const size_t n = t->strip.n, d = t->strip.d, vd = t->strip.vd;
    double *at = t->squares = calloc(n * (d + vd) + STRIP * (3 * d + 2 * vd) + 3 * STRIP * n, sizeof *at);
    if (!at) return false;
    t->squares_k = at, at += n * d;
    t->squares_v = at, at += n * vd;
    t->squares_q = at, at += STRIP * d;
    t->common = at, at += STRIP * d;
    t->q2 = at, at += STRIP * d;
    t->squares_o = at, at += STRIP * vd;
    t->g2 = at, at += STRIP * vd;
    t->weight = at, at += STRIP * n;
    t->p_off = at, at += STRIP * n;
    t->slope_off = at;
    return true;
}

static bool open_task(struct task *t, check_run *run, uint64_t index) {
    const fcp_plan *plan = run->plan;
    uint32_t kv_heads = run->shape.kv_heads;
    uint64_t n, queries, d = run->shape.head_dim, vd = run->shape.value_dim;
    bool rows = true, keys = run->backward;
    *t = (struct task){.run = run};
    if (run->sample) {
        t->unit = run->sample->units[index];
        rows = t->unit.side == FCP_QUERIES;
        keys = !rows;
    } else {
        t->unit = (fcp_check_unit){.sequence = run->order[index / kv_heads], .side = FCP_KEYS};
        t->unit.head = (uint32_t)(index % kv_heads);
    }
    t->kv_head = t->unit.side == FCP_QUERIES ? t->unit.head / (run->shape.heads / kv_heads) : t->unit.head;
    t->offset = fcp_plan_sequence_offset(plan, t->unit.sequence, &queries);
    t->key_offset = fcp_plan_key_offset(plan, t->unit.sequence, &n);
    if (!rows) n = t->unit.count;
    t->strip = (struct strip){.n = (size_t)n,
                              .key = rows ? 0 : t->unit.first,
                              .d = (size_t)d,
                              .vd = (size_t)vd,
                              .wants_rows = rows,
                              .wants_keys = keys,
                              .scale = run->shape.scale,
                              .dtype = run->shape.dtype,
                              .score = {plan->score, (uint32_t)plan->score_count},
                              .slope = run->slope,
                              .rough = run->rough,
                              .env = &t->env};
    const double terms = (double)queries * (run->shape.heads / kv_heads); /* of a sum over queries, at most */
    t->part = part_rounded(t->strip.dtype);
    t->drift = drift_of((double)d);
    t->drift_v = drift_of((double)vd);
    t->least = least_of(t->strip.dtype);
    t->term_q = term_of(&t->strip, terms);
    t->spread_q = spread(terms);
    t->added_q = added(&t->strip, terms);
    if (n > SIZE_MAX / 64 / (8 * (d + vd) + 8 * STRIP)) return false;
    t->strip.allow = calloc(n + 1, STRIP);
    t->strip.live = calloc(n / TILE + 1, sizeof *t->strip.live);
    t->scratch = t->strip.scratch = new_scratch(plan, run->slope, run->rough);
    t->arrays = calloc(plan->arrays_count + 1, sizeof *t->arrays);
    t->bands = calloc(plan->slices_count + 1, sizeof *t->bands);
    double *per_key = t->k_length = calloc(n + 1, 4 * sizeof *per_key);
    t->sums_k = calloc(n + 1, 2 * sizeof *t->sums_k);
    if (!t->strip.allow || !t->strip.live || !t->scratch || !t->arrays || !t->bands || !per_key || !t->sums_k)
        return false;
    t->k_most = per_key + n;
    t->v_length = per_key + 2 * n;
    t->v_most = per_key + 3 * n;
    t->sums_v = t->sums_k + n;
    if (run->judged && !open_squares(t)) return false;
    fcp_plan_env(plan, t->unit.sequence, t->arrays, t->bands, &t->env);
    bool sloped = run->backward && t->strip.slope.count;
    return exact_allocate(&t->exact, n, d, vd, sloped) && naive_allocate(&t->naive, n, d, vd, sloped);
}

static void close_task(struct task *t) {
    free(t->strip.allow);
    free(t->strip.live);
    free(t->scratch);
    free(t->arrays);
    free(t->bands);
    free(t->k_length);
    free(t->sums_k);
    free(t->squares);
    free(t->exact.memory);
    free(t->naive.memory);
}

bool check_task(check_run *run, uint64_t index, measure measures[FCP_TENSORS]) {
    struct task t;
    const bool ok = open_task(&t, run, index);
    if (ok) run_task(&t);
    if (ok) memcpy(measures, t.measures, sizeof t.measures);
    close_task(&t);
    return ok;
}
