/* coarse.c: bounds what the approximate functions of a score may do to the numbers of a strip (RULE.md: Approximate
 * functions).
 *
 * Why apart from rounding.c: the error of such a function depends on its argument alone. So pairs with like logits have
 * like errors, which add up where errors of rounding cancel. Here nothing cancels: all errors of a sum are added up.
 *
 * Requires: calls between the steps of a strip's exact computation, as rounding.c has them; only if the score has such
 *           functions, and there are kernels for the dtype.
 * Gives:    `whole` in sums and row_bounds (strip.h), and more for LSE.
 * Cost:     for each such function a score is evaluated twice more, and a slope too; then O(1) a pair.
 */
#include <math.h>

#include "runtime/judge/strip.h"

void check_coarse_off(const struct strip *s, mc_code code, const check_coarse_code *coarse, uint32_t i,
                      struct tile tile, const double *logits, double *out) {
    const uint8_t *allow = s->allow + i * s->n + tile.key;
    double exact[TILE] = {0}, up[TILE] = {0}, down[TILE] = {0};
    for (uint32_t j = 0; j < tile.count; j++) out[j] = 0;
    if (!coarse->count) return;
    check_exact_score(s, code, i, tile, logits, exact);
    for (uint32_t f = 0; f < coarse->count; f++) {
        check_exact_score(s, coarse->up[f], i, tile, logits, up);
        check_exact_score(s, coarse->down[f], i, tile, logits, down);
        for (uint32_t j = 0; j < tile.count; j++) {
            const double off = fmax(fabs(up[j] - exact[j]), fabs(down[j] - exact[j]));
            if (allow[j] && off > 0) out[j] += off; /* not NaN, which infinities leave */
        }
    }
}

void check_coarse_arguments(struct task *t, const double *logits) {
    const struct strip *s = &t->strip;
    const check_run *run = t->run;
    for (uint32_t i = 0; i < s->rows; i++) {
        t->rows[i].delta_whole = 0;
        for (struct tile tile = first_tile(s); tile.count; tile = next_tile(s, tile)) {
            const size_t at = i * s->n + tile.key;
            check_coarse_off(s, s->score, &run->coarse_score, i, tile, logits + at, t->p_whole + at);
            if (t->exact.slope)
                check_coarse_off(s, s->slope, &run->coarse_slope, i, tile, logits + at, t->slope_whole + at);
        }
    }
}

/* Replaces, in p_whole, what the exponents of a row are off by, by what its P are off by. If key j's exponent is off by
 * x, its P grows by up to P (e^x - 1), and the sum of all with it. Where LSE is given, nothing but its own exponent
 * moves a P. Returns by how much the sum may grow. */
static double bound_row(struct task *t, uint32_t i) {
    const struct strip *s = &t->strip;
    const double *p = t->exact.p + i * s->n;
    double *whole = t->p_whole + i * s->n, grows = 0, shrinks = 0;
    enum { MOST = 300 }; /* e^300 is finite */
    for (struct tile tile = first_tile(s); s->wants_rows && tile.count; tile = next_tile(s, tile))
        for (size_t j = tile.key; j < tile.key + tile.count; j++) {
            if (!s->allow[i * s->n + j]) continue;
            grows += p[j] * expm1(fmin(whole[j], MOST));
            shrinks -= p[j] * expm1(-whole[j]);
        }
    const double rest = fmax(1 - shrinks, TINY);
    for (struct tile tile = first_tile(s); tile.count; tile = next_tile(s, tile))
        for (size_t j = tile.key; j < tile.key + tile.count; j++) {
            const double moved = p[j] * (expm1(fmin(whole[j], MOST)) + grows) / rest;
            whole[j] = s->allow[i * s->n + j] ? fmin(moved, fmax(p[j], 1 - p[j])) : 0;
        }
    return grows;
}

void check_coarse_forward(struct task *t) {
    const struct strip *s = &t->strip;
    for (uint32_t i = 0; i < s->rows; i++) {
        struct row_bounds *r = &t->rows[i];
        if (!r->live) continue;
        const double lse = log1p(bound_row(t, i));
        r->lse += lse;
        r->pair += lse;
        for (struct tile tile = first_tile(s); tile.count; tile = next_tile(s, tile))
            for (size_t j = tile.key; j < tile.key + tile.count; j++)
                t->sums_o[i].whole += t->p_whole[i * s->n + j] * t->v_most[j];
    }
}

double check_coarse_pair(const struct task *t, uint32_t i, size_t j, double slope, double slope_whole, double scale) {
    const struct row_bounds *r = &t->rows[i];
    const size_t at = i * t->strip.n + j;
    const double p = t->exact.ds[at], p_whole = t->p_whole[at], inner = fabs(t->exact.p[at] - r->centre);
    const double moved = p_whole * (inner + r->delta_whole) + p * r->delta_whole;
    return scale * (moved * slope + (p + p_whole) * (inner + r->delta_whole) * slope_whole);
}

void check_coarse_backward(struct task *t) {
    const struct strip *s = &t->strip;
    const struct check_exact_buffers *b = &t->exact;
    for (uint32_t i = 0; i < s->rows; i++) {
        struct row_bounds *r = &t->rows[i];
        if (!r->live) continue;
        for (struct tile tile = first_tile(s); s->wants_rows && tile.count; tile = next_tile(s, tile))
            for (size_t at = i * s->n + tile.key; at < i * s->n + tile.key + tile.count; at++)
                if (t->p_whole[at] > 0) r->delta_whole += t->p_whole[at] * fabs(b->p[at]);
        for (struct tile tile = first_tile(s); tile.count; tile = next_tile(s, tile))
            for (size_t j = tile.key; j < tile.key + tile.count; j++) {
                const size_t at = i * s->n + j;
                if (!s->allow[at] || !check_live_pair(t, i, j)) continue;
                const double off = check_coarse_pair(t, i, j, fabs(b->slope[at]), t->slope_whole[at], fabs(s->scale));
                t->sums_v[j].whole += t->p_whole[at] * r->g_most;
                t->sums_q[i].whole += off * t->k_most[j];
                t->sums_k[j].whole += off * r->q_most;
            }
    }
}
