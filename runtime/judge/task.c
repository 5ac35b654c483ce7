/* task.c: computes one task of the judge: attention of some rows by its definition, and the errors of the judged
 * numbers.
 *
 * Requires: a checked plan; packed inputs.
 * Gives:    how far off the judged results are, and may be (RULE.md); and the reference itself, if it is wanted.
 * Method:   STRIP queries are computed at a time, so that a tile of keys, once loaded, serves many. The mask is
 *           evaluated for every pair of a strip. The bounds (rounding.c) are computed between the steps of the exact
 *           computation (strip.c), from the results of those steps.
 * Cost:     as fcp_check_run says, for its rows.
 */
#include "runtime/judge/judge_parts.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/plan_arrays.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/numeric.h"
#include "runtime/base/stop.h"
#include "runtime/judge/strip.h"

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

/* How far off number i of a row may be. If its exact value is x, that is
 *
 *     sqrt(squares[i]) + factor * |common[i]| + whole + flat + relative * |x|
 *
 * An array that is NULL counts as 0. If `capped` is set, the first three terms together are at most one + |x|, where
 * `one` is the most that a single pair could add to the number. */
struct allowed {
    const double *squares, *common;
    double factor, relative, whole, flat, one;
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
        off += a->whole;
        if (a->capped) off = fmin(off, a->one + size);
        const bool told = !(off > 0 && off >= fmax(size, a->one / 4));
        off = fmin(off + a->flat + a->relative * size, FLT_MAX);
        measure_number(&t->measures[tensor], dtype, at + i, ours ? &result : NULL, (double)naive[i], exact[i],
                       off + fcp_ulp(dtype, size + off) / 2, told, empty);
    }
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
    struct check_exact_buffers *exact = &t->exact;
    struct check_naive_buffers *naive = &t->naive;
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
    check_exact_arguments(s, &t->exact, run->backward);
    if (run->judged) {
        check_naive_arguments(s, &t->naive, run->backward);
        check_bound_arguments(t);
    }
    if (s->wants_rows) check_exact_forward(s, &t->exact, run->backward);
    else check_exact_recompute(s, &t->exact);
    if (run->judged) check_bound_forward(t);
    if (run->backward) {
        check_exact_backward_v(s, &t->exact);
        if (run->judged) check_bound_backward(t);
    }
    if (run->judged) {
        if (s->wants_rows) check_naive_forward(s, &t->naive, run->backward);
        else check_naive_recompute(s, &t->naive);
    }
    if (run->judged && run->backward) check_naive_backward_v(s, &t->naive);
    if (t->tables) check_tables_add(t);
    if (run->backward) check_exact_backward(s, &t->exact);
    if (run->judged && run->backward) check_naive_backward(s, &t->naive);
    for (uint32_t i = 0; i < s->rows && s->wants_rows; i++) {
        const struct row_bounds *r = &t->rows[i];
        const struct sums *o = &t->sums_o[i], *q = &t->sums_q[i];
        const double lse_square = square(r->lse), pair_square = square(r->pair);
        const struct allowed of_o = {.squares = row_of(t->squares_o, s->vd, i),
                                     .relative = r->relative,
                                     .one = o->one,
                                     .whole = o->whole,
                                     .flat = o->lost + run->wire[FCP_TENSOR_O] * o->all,
                                     .capped = true},
                             of_lse = {.squares = &lse_square, .one = 4}, of_pair = {.squares = &pair_square, .one = 4},
                             of_q = {.squares = row_of(t->squares_q, s->d, i),
                                     .common = row_of(t->common, s->d, i),
                                     .factor = r->delta_off,
                                     .relative = r->relative + r->shared,
                                     .one = q->one,
                                     .whole = q->whole,
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
    struct check_exact_buffers *exact = &t->exact;
    struct check_naive_buffers *naive = &t->naive;
    for (size_t i = 0; i < s->n; i++) {
        uint64_t token = t->key_offset + s->key + i;
        load(t->run, FCP_TENSOR_K, token, t->kv_head, exact->k + i * s->d, naive->k + i * s->d);
        if (t->run->shape.values_in_keys) {
            memcpy(exact->v + i * s->vd, exact->k + i * s->d, s->vd * sizeof *exact->v);
            memcpy(naive->v + i * s->vd, naive->k + i * s->d, s->vd * sizeof *naive->v);
        } else load(t->run, FCP_TENSOR_V, token, t->kv_head, exact->v + i * s->vd, naive->v + i * s->vd);
        t->k_length[i] = check_length_of(exact->k + i * s->d, s->d, &t->k_most[i]);
        t->v_length[i] = check_length_of(exact->v + i * s->vd, s->vd, &t->v_most[i]);
    }
}

/* Adds dV to dK, whose first numbers it is the gradient of, too; and what it is off by, as a part of it `relative`. */
static void add_values(struct task *t, double relative) {
    const struct strip *s = &t->strip;
    for (size_t i = 0; i < s->n; i++) {
        struct sums *k = &t->sums_k[i];
        const struct sums *v = &t->sums_v[i];
        *k = (struct sums){k->all + v->all, k->lost + v->lost, fmax(k->one, v->one), k->whole + v->whole};
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
    check_naive_round_all(s, t->naive.dk, s->n * s->d);
    check_naive_round_all(s, t->naive.dv, s->n * s->vd);
    for (size_t i = 0; i < s->n; i++) {
        const struct sums *k = &t->sums_k[i], *v = &t->sums_v[i];
        const struct allowed of_k = {.squares = row_of(t->squares_k, s->d, i),
                                     .relative = relative,
                                     .one = k->one,
                                     .whole = k->whole,
                                     .flat = k->lost + t->run->wire[FCP_TENSOR_DK] * k->all},
                             of_v = {.squares = row_of(t->squares_v, s->vd, i),
                                     .relative = relative,
                                     .one = v->one,
                                     .whole = v->whole,
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

/* The most scratch that a code of these needs, or `most`. */
static size_t most_scratch(const mc_code *codes, size_t count, size_t most) {
    for (size_t i = 0; i < count; i++) {
        const size_t words = mc_row_scratch(codes[i]) + 1;
        if (words > most) most = words;
    }
    return most;
}
static size_t coarse_scratch(const check_coarse_code *code, size_t most) {
    return most_scratch(code->up, 2 * (size_t)code->count, most); /* `down` stands behind it */
}

static int64_t *new_scratch(const check_run *run) {
    const fcp_plan *plan = run->plan;
    const mc_code codes[] = {{plan->mask, (uint32_t)plan->mask_count},
                             {plan->score, (uint32_t)plan->score_count},
                             run->slope,
                             run->rough};
    size_t most = most_scratch(codes, sizeof codes / sizeof *codes, 0);
    most = coarse_scratch(&run->coarse_slope, coarse_scratch(&run->coarse_score, most));
    for (uint32_t i = 0; i < run->read_count; i++) /* what is read is evaluated by the score itself */
        most = coarse_scratch(&run->reads[i].coarse, most_scratch(&run->reads[i].part, 1, most));
    return calloc(most, sizeof(int64_t));
}

/* Room for the squares of errors. */
static bool open_squares(struct task *t) {
    const size_t n = t->strip.n, d = t->strip.d, vd = t->strip.vd;
    const bool coarse = t->run->coarse_score.count;
    double *at = t->squares = calloc(n * (d + vd) + STRIP * (3 * d + 2 * vd + (coarse ? 5 : 3) * n), sizeof *at);
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
    t->slope_off = at, at += STRIP * n;
    if (coarse) t->p_whole = at, t->slope_whole = at + STRIP * n;
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
    check_bound_task(t, terms);
    if (n > SIZE_MAX / 64 / (8 * (d + vd + STRIP))) return false;
    t->strip.allow = calloc(n + 1, STRIP);
    t->strip.live = calloc(n / TILE + 1, sizeof *t->strip.live);
    t->scratch = t->strip.scratch = new_scratch(run);
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
    return check_exact_allocate(&t->exact, n, d, vd, sloped) && check_naive_allocate(&t->naive, n, d, vd, sloped);
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

bool check_task(check_run *run, uint64_t index, measure measures[FCP_TENSORS], check_tables *tables) {
    struct task t;
    const bool ok = open_task(&t, run, index);
    t.tables = run->read_count ? tables : NULL;
    if (ok) run_task(&t);
    if (ok) memcpy(measures, t.measures, sizeof t.measures);
    close_task(&t);
    return ok;
}
