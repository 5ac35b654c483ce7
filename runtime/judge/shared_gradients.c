/* shared_gradients.c: judges the gradients of what all rows share: sinks, and tables of reals that a score reads.
 *
 * Tables. Each pair adds dS times the score's derivative by what it reads to one element for each read (RULE.md: Sinks
 *         and tables). Sums are kept element by element, for each row, then for a task, and then for the run. What a
 *         pair's share may be off by comes from rounding.c, as for dQ and dK.
 * Sinks.  Their gradients are made of O, LSE and dO alone, so they are computed from the O and LSE of the result, which
 *         are judged by themselves.
 *
 * Requires: reference.h: fcp_check_options.shared.
 * Cost:     tables: as fcp_check_run says; sinks: value_dim multiplications for each row of queries.
 */
#include "runtime/judge/judge_parts.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/plan_arrays.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/numeric.h"
#include "runtime/judge/strip.h"

/* --- reads -------------------------------------------------------------------------------------------------------- */

/* Whether a node of the score reads a table of reals; *out_first is where that begins among all tables. */
static bool reads_table(const fcp_plan *plan, const mc_node *x, uint64_t *out_first) {
    if (x->op != MC_LOAD_F && x->op != MC_LOAD2_F) return false;
    *out_first = 0;
    for (uint64_t i = 0; i < (uint64_t)x->imm; i++)
        if (fcp_array_learnable(&plan->arrays[i])) *out_first += fcp_array_bytes(&plan->arrays[i]) / sizeof(double);
    return fcp_array_learnable(&plan->arrays[x->imm]);
}

bool check_reads_make(check_run *run) {
    const fcp_plan *plan = run->plan;
    const mc_code score = {plan->score, (uint32_t)plan->score_count};
    run->reads = calloc(score.count + 1, sizeof *run->reads);
    if (!run->reads) return false;
    for (uint32_t i = 0; i < score.count; i++) {
        check_read *read = &run->reads[run->read_count];
        if (!reads_table(plan, &score.nodes[i], &read->first)) continue;
        read->load = (mc_code){score.nodes, i + 1};
        run->read_count++;
        if (!check_slope(score, i, &read->part)) return false;
        if (run->shape.dtype != FCP_FP32 && !check_coarse(read->part, &read->coarse)) return false;
    }
    return true;
}

void check_reads_free(check_run *run) {
    for (uint32_t i = 0; i < run->read_count; i++) {
        free((mc_node *)(uintptr_t)run->reads[i].part.nodes);
        check_coarse_free(&run->reads[i].coarse);
    }
    free(run->reads);
}

/* --- sums --------------------------------------------------------------------------------------------------------- */

bool check_tables_open(const check_run *run, check_tables *tables) {
    const uint64_t numbers = fcp_plan_table_numbers(run->plan);
    tables->elements = calloc(numbers + 1, sizeof *tables->elements);
    tables->touched = calloc(numbers + 1, 2 * sizeof *tables->touched);
    if (!tables->elements || !tables->touched) return false;
    tables->in_row = tables->touched + numbers;
    return true;
}

void check_tables_close(check_tables *tables) {
    free(tables->elements);
    free(tables->touched);
}

static check_element *touch(check_tables *tables, uint32_t number) {
    check_element *e = &tables->elements[number];
    if (!e->touched) tables->touched[tables->touched_count++] = number;
    e->touched = true;
    return e;
}

void check_tables_move(check_tables *task, check_tables *run) {
    for (uint32_t i = 0; i < task->touched_count; i++) {
        check_element *from = &task->elements[task->touched[i]], *to = touch(run, task->touched[i]);
        to->value += from->value;
        to->naive += from->naive;
        to->squares += from->squares;
        to->whole += from->whole;
        to->flat += from->flat;
        to->one = fmax(to->one, from->one);
        *from = (check_element){0};
    }
    task->touched_count = 0;
}

/* Adds a row to a task. Its pairs have the error of delta in common, and what all P of the row are off by together. */
static void add_row(check_tables *tables, const struct row_bounds *r) {
    for (uint32_t i = 0; i < tables->in_row_count; i++) {
        check_element *e = &tables->elements[tables->in_row[i]];
        e->value += e->row_value;
        e->squares += square(r->delta_off * e->row_share) + square((r->relative + r->shared) * e->row_value);
        e->row_value = e->row_share = 0;
        e->in_row = false;
    }
    tables->in_row_count = 0;
}

/* --- pairs -------------------------------------------------------------------------------------------------------- */

/* A read, for a row and the keys of a tile. */
struct read_values {
    double part[TILE], off[TILE]; /* the score's derivative by what is read, and what that is off by */
    double whole[TILE];           /* the same because of approximate functions */
    float naive[TILE];
    uint32_t place[TILE]; /* of the element in its table; MC_NONE: there is none */
};

/* Evaluates a read. `logits` are those of the tile's keys. The derivative is off by how far it moves if a logit is off,
 * up or down; by twice the naive one's error; and by some ulps. */
static void evaluate(const struct task *t, const check_read *read, uint32_t i, struct tile tile, const double *logits,
                     const float *naive, struct read_values *out) {
    const struct strip *s = &t->strip;
    const uint8_t *allow = s->allow + i * s->n + tile.key;
    const double units = UNIT * (s->dtype == FCP_FP32 ? 16 : 64);
    double moved[TILE], up[TILE], down[TILE];
    check_exact_score(s, read->part, i, tile, logits, out->part);
    check_naive_score(s, read->part, i, tile, naive, out->naive);
    for (uint32_t j = 0; j < tile.count; j++) moved[j] = logits[j] + check_bound_logit(t, i, tile.key + j, logits[j]);
    check_exact_score(s, read->part, i, tile, moved, up);
    for (uint32_t j = 0; j < tile.count; j++) moved[j] = 2 * logits[j] - moved[j];
    check_exact_score(s, read->part, i, tile, moved, down);
    for (uint32_t j = 0; j < tile.count; j++) {
        if (!allow[j]) continue;
        const double x = out->part[j];
        out->off[j] = fmax(fabs(up[j] - x), fabs(down[j] - x)) + units * (1 + fabs(x));
        if (isfinite(out->naive[j])) out->off[j] += 2 * fabs((double)out->naive[j] - x);
    }
    check_coarse_off(s, read->part, &read->coarse, i, tile, logits, out->whole);
    const mc_tile pairs = {.q = s->env->q_first + (int64_t)(s->row + i),
                           .k = (int64_t)(s->key + tile.key),
                           .h = s->head,
                           .rows = 1,
                           .keys = tile.count};
    mc_load_places(read->load, s->env, &pairs, naive, tile.count, s->scratch, out->place);
}

/* Adds the pairs of a row and a tile. */
static void add_pairs(struct task *t, const check_read *read, uint32_t i, struct tile tile, float naive_centre,
                      const struct read_values *x) {
    const struct strip *s = &t->strip;
    check_tables *tables = t->tables;
    for (uint32_t j = 0; j < tile.count; j++) {
        const size_t key = tile.key + j, at = i * s->n + key;
        if (!s->allow[at] || x->place[j] == MC_NONE || !check_live_pair(t, i, key)) continue;
        const double p = t->exact.ds[at], share = p == 0 ? 0 : p * x->part[j];
        const float naive = t->naive.ds[at];
        const struct pair_off off = check_bound_pair(t, i, key, fabs(x->part[j]), x->off[j], 1);
        const uint32_t number = (uint32_t)read->first + x->place[j];
        check_element *e = touch(tables, number);
        if (!e->in_row) tables->in_row[tables->in_row_count++] = number;
        e->in_row = true;
        e->row_value += share * (t->exact.p[at] - t->rows[i].centre);
        e->row_share += share;
        if (naive != 0) e->naive += naive * (t->naive.p[at] - naive_centre) * x->naive[j];
        e->squares += off.squares;
        if (t->p_whole) e->whole += check_coarse_pair(t, i, key, fabs(x->part[j]), x->whole[j], 1);
        e->flat += off.lost + t->run->wire_state * off.all;
        e->one = fmax(e->one, off.one);
    }
}

void check_tables_add(struct task *t) {
    const struct strip *s = &t->strip;
    struct read_values values;
    double logits[TILE];
    float naive[TILE];
    for (uint32_t i = 0; i < s->rows; i++) {
        const double *q = t->exact.q + i * s->d;
        float centre = -t->naive.d_lse[i];
        if (!t->rows[i].live) continue;
        for (size_t x = 0; x < s->vd; x++) centre += t->naive.d_o[i * s->vd + x] * t->naive.o[i * s->vd + x];
        for (struct tile tile = first_tile(s); tile.count; tile = next_tile(s, tile)) {
            for (uint32_t j = 0; j < tile.count; j++) {
                const double *k = t->exact.k + (tile.key + j) * s->d;
                double dot = 0;
                for (size_t x = 0; x < s->d; x++) dot += q[x] * k[x];
                naive[j] = (float)(logits[j] = dot * s->scale);
            }
            for (uint32_t r = 0; r < t->run->read_count; r++) {
                evaluate(t, &t->run->reads[r], i, tile, logits, naive, &values);
                add_pairs(t, &t->run->reads[r], i, tile, centre, &values);
            }
        }
        add_row(t->tables, &t->rows[i]);
    }
}

/* --- verdicts ----------------------------------------------------------------------------------------------------- */

/* Judges one number, which may be off by `off` and what rounding it to float takes. */
static void judge_number(measure *m, uint64_t at, float result, double naive, double exact, double off, double flat,
                         double one) {
    const double size = fabs(exact), is = (double)result;
    const bool told = !(off > 0 && off >= fmax(size, one / 4));
    off = fmin(off + flat, FLT_MAX);
    measure_number(m, FCP_FP32, at, &is, naive, exact, off + fcp_ulp(FCP_FP32, size + off) / 2, told, false);
}

void check_tables_judge(const check_run *run, fcp_check_report *report) {
    const uint64_t numbers = fcp_plan_table_numbers(run->plan);
    const double relative = UNIT * (4 + check_bound_added(run->shape.dtype, 256));
    measure found = {0};
    for (uint64_t i = 0; i < numbers; i++) {
        const check_element *e = &run->tables.elements[i];
        judge_number(&found, i, run->in->d_table[i], (double)e->naive, e->value, sqrt(e->squares) + e->whole,
                     e->flat + relative * fabs(e->value), e->one);
    }
    measure_report(&found, FCP_CHECK_DTABLE, report);
}

/* What a row has of the gradient of its head's sink. */
struct sink_row {
    double value, off, one; /* off: what it may be off by; one: what it would be with P = 1 */
    float naive;
};

/* Row `at` of O, LSE and dO, which all have a row for each token and head. */
static struct sink_row sink_row(const check_run *run, uint64_t at, double sink, float *o, float *g) {
    const fcp_shape *s = &run->shape;
    const size_t vd = s->value_dim, e = fcp_dtype_size(s->dtype);
    const float *lses = run->in->t[FCP_TENSOR_LSE], *lows = run->in->t[FCP_TENSOR_LSE_LOW],
                *d_lses = s->lse_gradient ? run->in->t[FCP_TENSOR_DLSE] : NULL;
    const double lse = (double)lses[at], low = lows ? (double)lows[at] : 0, d_lse = d_lses ? (double)d_lses[at] : 0;
    const double x = sink - lse - low, p = exp(x);
    double delta = 0, o_square = 0, g_square = 0;
    float naive = 0;
    fcp_to_float(s->dtype, (const char *)run->in->t[FCP_TENSOR_O] + at * vd * e, o, vd);
    fcp_to_float(s->dtype, (const char *)run->in->t[FCP_TENSOR_DO] + at * vd * e, g, vd);
    for (size_t i = 0; i < vd; i++) {
        delta += (double)o[i] * (double)g[i];
        naive += o[i] * g[i];
        o_square += square((double)o[i]);
        g_square += square((double)g[i]);
    }
    const double delta_off =
        check_bound_product(s->dtype, vd, delta, sqrt(o_square * g_square)) + 2 * UNIT * fabs(d_lse);
    const double p_off = UNIT * (8 + 4 * fabs(x) + check_bound_added(s->dtype, 256)) + (p < TINY ? 1 : 0);
    return (struct sink_row){.value = -p * (delta - d_lse),
                             .off = p * (delta_off + p_off * fabs(delta - d_lse)),
                             .one = fabs(delta - d_lse),
                             .naive = -expf((float)x) * (naive - (float)d_lse)};
}

bool check_sinks_judge(const check_run *run, fcp_check_report *report) {
    const fcp_shape *s = &run->shape;
    const uint32_t heads = s->heads;
    const double relative = UNIT * (4 + check_bound_added(s->dtype, 256));
    check_element *sums = calloc(heads, sizeof *sums);
    float *rows = malloc(2 * (size_t)s->value_dim * sizeof *rows);
    measure found = {0};
    const bool ok = sums && rows;
    for (uint64_t at = 0; ok && at < s->tokens * heads; at++) {
        check_element *e = &sums[at % heads];
        const struct sink_row row = sink_row(run, at, run->plan->sink[at % heads], rows, rows + s->value_dim);
        e->value += row.value;
        e->naive += row.naive;
        e->squares += square(row.off);
        e->one = fmax(e->one, row.one);
    }
    for (uint32_t h = 0; ok && h < heads; h++)
        judge_number(&found, h, run->in->d_sink[h], (double)sums[h].naive, sums[h].value, sqrt(sums[h].squares),
                     TINY * (double)s->tokens + relative * fabs(sums[h].value), sums[h].one);
    if (ok) measure_report(&found, FCP_CHECK_DSINK, report);
    free(sums);
    free(rows);
    return ok;
}
