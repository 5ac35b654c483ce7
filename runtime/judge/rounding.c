/* rounding.c: bounds what rounding may do to the numbers of a strip, by the rule of RULE.md.
 *
 * Requires: calls between the steps of a strip's exact computation (strip.h says which function after which step).
 * Gives:    squares of errors, number by number, and bounds that rows and keys share (strip.h).
 * Cost:     half as many multiplications as the exact computation in the forward pass, five sixths in the backward
 *           pass. A score is evaluated twice more in float64, and where logits are large four times.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "runtime/base/numeric.h"
#include "runtime/judge/strip.h"

double check_length_of(const double *x, size_t d, double *out_most) {
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

/* The sum of n errors, each at most x and as likely up as down, is at most this times the root of the sum of x^2. */
static double spread(double n) { return n < 16 ? sqrt(n) : 4; }

double check_bound_added(fcp_dtype dtype, double n) {
    return 3 * sqrt(fmin(n, 256)) + (dtype == FCP_FP32 ? 0 : n / 16);
}
static double added(const struct strip *s, double n) { return check_bound_added(s->dtype, n); }

/* The units of a product of vectors by which it is off because what has been added up so far may be near to it. */
static double drift_of(double d) { return 1.7 * sqrt(d); }

/* By what part of it a term of a sum of n is off because it is rounded to the dtype and added in fp32, squared. */
static double term_of(const struct strip *s, double n) {
    return square(added(s, n) * UNIT) + square(spread(n) * part_rounded(s->dtype));
}

/* How many units the base that kernels subtract from exponents is off by, where LSE is x. Kernels without a score
 * may scale before they subtract, while the base is below 256 in units of log2. */
static double base_off(const struct strip *s, double x) {
    return s->score.count || !for_gpus(s) ? 0 : fmin(fabs(x), 178);
}

/* What a product of vectors of d numbers is off by, of which the lengths' product is `most`. */
static double product_off(fcp_dtype dtype, size_t d, double drift, double product, double most) {
    const double steps = dtype == FCP_FP32 ? 0 : (double)d / 16;
    return UNIT * ((2 + steps) * most + drift * fabs(product));
}
double check_bound_product(fcp_dtype dtype, size_t d, double product, double most) {
    return product_off(dtype, d, drift_of((double)d), product, most);
}
static double value_product_off(const struct task *t, double product, double most) {
    return product_off(t->strip.dtype, t->strip.vd, t->drift_v, product, most);
}

double check_bound_logit(const struct task *t, uint32_t i, size_t j, double logit) {
    const double most = fabs(t->strip.scale) * t->rows[i].q * t->k_length[j];
    return product_off(t->strip.dtype, t->strip.d, t->drift, logit, most) + 2 * UNIT * fabs(logit);
}

/* What the arguments of the softmax are off by, where there is no score. */
static void bound_logits(struct task *t) {
    const struct strip *s = &t->strip;
    for (uint32_t i = 0; i < s->rows; i++)
        for (struct tile tile = first_tile(s); tile.count; tile = next_tile(s, tile))
            for (size_t j = tile.key; j < tile.key + tile.count; j++) {
                const double logit = t->exact.p[i * s->n + j];
                t->p_off[i * s->n + j] = check_bound_logit(t, i, j, logit) + UNIT * (fabs(logit) + 8);
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

/* Raises c->logit to the error of the naive score for logits that are `by` times those of a row. Where a score moves
 * logits far away, rounding is coarse, and a row of few keys may show little of that by chance. */
static void compare_elsewhere(const struct task *t, uint32_t i, double by, struct compared *c) {
    const struct strip *s = &t->strip;
    float moved[TILE], naive[TILE];
    double logits[TILE], exact[TILE];
    for (struct tile tile = first_tile(s); tile.count; tile = next_tile(s, tile)) {
        const size_t at = i * s->n + tile.key;
        for (uint32_t j = 0; j < tile.count; j++) logits[j] = moved[j] = (float)(t->weight[at + j] * s->scale * by);
        check_naive_score(s, s->score, i, tile, moved, naive);
        check_exact_score(s, s->score, i, tile, logits, exact);
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

/* How far the score and its slope move in a row if its logits move, up or down, by as much as they may be off. Keeps
 * what was there before if that is more. */
static void move_scores(struct task *t, uint32_t i, const double *dots, bool up) {
    const struct strip *s = &t->strip;
    double moved[TILE], score[TILE], slope[TILE] = {0};
    for (struct tile tile = first_tile(s); tile.count; tile = next_tile(s, tile)) {
        const size_t at = i * s->n + tile.key;
        for (uint32_t j = 0; j < tile.count; j++) {
            const double logit = dots[at + j] * s->scale, off = check_bound_logit(t, i, tile.key + j, logit);
            moved[j] = up ? logit + off : logit - off;
        }
        check_exact_score(s, s->score, i, tile, moved, score);
        if (t->exact.slope) check_exact_score(s, s->slope, i, tile, moved, slope);
        for (uint32_t j = 0; j < tile.count; j++) {
            if (!s->allow[at + j]) continue;
            t->p_off[at + j] = fmax(t->p_off[at + j], fabs(score[j] - t->exact.p[at + j]));
            if (t->exact.slope)
                t->slope_off[at + j] = fmax(t->slope_off[at + j], fabs(slope[j] - t->exact.slope[at + j]));
        }
    }
}

/* If there is a score, bounds the errors of the softmax's arguments, which are its values (p_off), and of its slopes
 * (slope_off): evaluates the score again for logits that are as far off as they may be. Called when p holds the
 * arguments, both in the exact and in the naive computation.
 *
 * A sample may check keys alone. Then P is computed from the LSE of the judged result. That LSE has the error that all
 * logits of the row share. So in this case the exact arguments are moved by the shared error, too, and it cancels. */
static void bound_scores(struct task *t) {
    struct strip *s = &t->strip;
    const bool kinks = has_kinks(s->score), gpus = for_gpus(s);
    double rough[TILE] = {0};
    check_exact_dots(s, &t->exact, t->exact.q, t->exact.k, s->d, t->weight);
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
            if (s->rough.count && gpus) check_exact_score(s, s->rough, i, tile, logits, rough);
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
    const struct check_exact_buffers *b = &t->exact;
    for (uint32_t i = 0; i < s->rows; i++) {
        struct row_bounds *r = &t->rows[i];
        *r = (struct row_bounds){.unit_length = 1 / sqrt((double)s->vd)};
        t->sums_o[i] = t->sums_q[i] = (struct sums){0};
        r->q = check_length_of(b->q + i * s->d, s->d, &r->q_most);
        if (t->run->backward) r->g = check_length_of(b->d_o + i * s->vd, s->vd, &r->g_most);
    }
    for (size_t i = 0; i < s->rows * s->d; i++) t->q2[i] = square(b->q[i]);
    for (size_t i = 0; i < s->rows * s->vd; i++) t->g2[i] = square(b->d_o[i]);
}

/* out[i] += sum over keys of a[i][key] * keys[key]^2, number by number */
static void gather_squares(const struct strip *s, struct check_exact_buffers *b, const double *a, const double *keys,
                           size_t d, double *out) {
    memset(out, 0, s->rows * d * sizeof *out);
    for (struct tile t = first_tile(s); t.count; t = next_tile(s, t)) {
        for (size_t i = 0; i < t.count * d; i++) b->turned[i] = square(keys[t.key * d + i]);
        check_exact_product(out, d, a + t.key, s->n, 1, b->turned, d, s->rows, t.count, (uint32_t)d);
    }
}

/* By how much a part p of a sum of 1 grows, or shrinks, if its exponent is up to `off` more, or less. `x` is the
 * logarithm of p, which is finite even where p itself is rounded to 0. */
static double growth(double p, double x, double off) {
    enum { MOST = 300 };
    if (off < 1e-4) return p * (off + off * off / 2);
    return off < 1 ? p * expm1(off) : fmax(exp(fmin(x + off, MOST)) - p, 0);
}
static double shrinkage(double p, double off) { return off < 1e-4 ? p * off : -p * expm1(-off); }

/* How far off a part p of a sum of 1 may be, if the part itself grows or shrinks by so much, and the other parts by
 * so much together. */
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

/* Bounds the errors of the exponents of a row's softmax (in p_off), and gives what the errors of all but the largest
 * term do to the row's sum.
 *   weight     holds the arguments of the softmax
 *   sink       the sink is one more term of the sum: this is the logarithm of its part
 *   sink_off   the error of the sink's exponent
 *
 * The arguments of all keys may share an error (`shift`). It cancels between keys, but not between a key and the sink.
 * So it is added to whichever is not the largest term: to the keys if the sink is, and to the sink if a key is. */
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

/* The factor of an error of P in a sum of squares. The bound of a small error of an exponent is much larger than the
 * usual error; a large one leaves P anywhere. */
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

/* The same where LSE is given: no sum compensates for the errors of an exponent, nor for that of LSE, if it is not
 * given as a pair. */
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
void check_bound_forward(struct task *t) {
    struct strip *s = &t->strip;
    struct check_exact_buffers *b = &t->exact;
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
        r->o = check_length_of(b->o + i * s->vd, s->vd, &o_most);
        const double base = base_off(s, lse);
        r->relative = UNIT * (4 + 2 * base + r->added);
        r->shared = UNIT * (8 + 4 * base + r->added);
        r->pair = sum_off + 2 * fabs(r->shift) + r->shared + (s->score.count ? 2 * UNIT * fabs(lse) : 0);
        r->lse = r->pair + 3 * UNIT * fabs(lse);
    }
    if (s->wants_rows) gather_squares(s, b, t->weight, b->v, s->vd, t->squares_o);
    if (t->p_whole) check_coarse_forward(t);
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

/* Bounds the error of delta, which is computed from O as it was rounded. An error of P moves O by v - O, and delta
 * by dP - delta; the rounding of P v is not compensated. Called when p holds dP and ds P. */
static void bound_delta(struct task *t) {
    const struct strip *s = &t->strip;
    const struct check_exact_buffers *b = &t->exact;
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

struct pair_off check_bound_pair(const struct task *t, uint32_t i, size_t j, double slope, double slope_off,
                                 double scale) {
    const struct row_bounds *r = &t->rows[i];
    const size_t at = i * t->strip.n + j;
    const double p = t->exact.ds[at];
    const double inner = fabs(t->exact.p[at] - r->centre), ds = p * inner * slope * scale;
    const double small = t->least * fmax(1, scale), share = p * slope * scale;
    const double product = share * value_product_off(t, t->exact.p[at], r->g * t->v_length[j]);
    const double turn = p * inner * scale * slope_off;
    const double moved = t->p_off[at] * (inner + r->delta_off) * slope * scale;
    const double d_lse = fabs(t->exact.d_lse[i]);
    struct pair_off off = {.lost = TINY * (1 + scale) + (p > 2 * TINY ? 0 : ds)};
    off.squares = square(moved) + square(ds) * (square(r->shared) + t->term_q);
    if (ds > 2 * small) off.squares += square(t->spread_q * small);
    else off.lost += ds;
    off.squares = off.squares + square(product) + square(turn) + square(share * r->delta_off);
    off.all = ds + share * (r->g * (t->v_length[j] + r->o) * r->unit_length + d_lse);
    off.one = (r->g * t->v_length[j] * r->unit_length + d_lse) * fmax(1, slope) * scale;
    return off;
}

/* What a pair's share in dQ and dK may be off by, squared. */
static double gradient_square(struct task *t, uint32_t i, size_t j) {
    const struct strip *s = &t->strip;
    const struct row_bounds *r = &t->rows[i];
    const size_t at = i * s->n + j;
    const bool sloped = t->exact.slope != NULL;
    const struct pair_off off =
        check_bound_pair(t, i, j, sloped ? fabs(t->exact.slope[at]) : 1, sloped ? t->slope_off[at] : 0, fabs(s->scale));
    t->sums_q[i].lost += off.lost * (1 + t->k_most[j]);
    t->sums_q[i].all += off.all * t->k_most[j];
    t->sums_q[i].one = fmax(t->sums_q[i].one, off.one * t->k_most[j]);
    t->sums_k[j].lost += off.lost * (1 + r->q_most);
    t->sums_k[j].all += off.all * r->q_most;
    t->sums_k[j].one = fmax(t->sums_k[j].one, off.one * r->q_most);
    return off.squares;
}

bool check_live_pair(const struct task *t, uint32_t i, size_t j) {
    const size_t at = i * t->strip.n + j;
    return t->rows[i].live && (t->exact.ds[at] > 0 || t->p_off[at] > 0);
}

/* The same of the gradients. Called when p holds dP and ds P. */
void check_bound_backward(struct task *t) {
    struct strip *s = &t->strip;
    struct check_exact_buffers *b = &t->exact;
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
    if (s->wants_keys) check_exact_scatter(s, t->weight, t->g2, s->vd, t->squares_v);
    for (uint32_t i = 0; s->wants_rows && i < s->rows; i++)
        for (struct tile tile = first_tile(s); tile.count; tile = next_tile(s, tile))
            for (size_t at = i * s->n + tile.key; at < i * s->n + tile.key + tile.count; at++)
                t->weight[at] = t->weight[at] > 0 ? b->ds[at] * (b->slope ? b->slope[at] : 1) * s->scale : 0;
    if (s->wants_rows) {
        memset(t->common, 0, s->rows * s->d * sizeof *t->common);
        check_exact_gather(s, t->weight, b->k, s->d, t->common);
    }
    for (uint32_t i = 0; i < s->rows; i++)
        for (struct tile tile = first_tile(s); tile.count; tile = next_tile(s, tile))
            for (size_t j = tile.key; j < tile.key + tile.count; j++)
                t->weight[i * s->n + j] = check_live_pair(t, i, j) ? gradient_square(t, i, j) : 0;
    if (s->wants_rows) gather_squares(s, b, t->weight, b->k, s->d, t->squares_q);
    if (s->wants_keys) check_exact_scatter(s, t->weight, t->q2, s->d, t->squares_k);
    if (t->p_whole) check_coarse_backward(t);
}

void check_bound_arguments(struct task *t) {
    open_bounds(t);
    if (t->strip.score.count) bound_scores(t);
    else bound_logits(t);
    if (t->p_whole) check_coarse_arguments(t, t->weight);
    memcpy(t->weight, t->exact.p, t->strip.rows * t->strip.n * sizeof *t->weight);
}

void check_bound_task(struct task *t, double terms) {
    const struct strip *s = &t->strip;
    t->part = part_rounded(s->dtype);
    t->drift = drift_of((double)s->d);
    t->drift_v = drift_of((double)s->vd);
    t->least = least_of(s->dtype);
    t->term_q = term_of(s, terms);
    t->spread_q = spread(terms);
    t->added_q = added(s, terms);
}
