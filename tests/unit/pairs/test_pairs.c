/* test_pairs.c: tests the proof that a plan computes exactly the pairs of its mask. Plans are damaged in their pairs
 * alone, so that no other check finds it. The proof must refuse a damaged plan exactly if brute force, which looks at
 * every pair, finds a pair that is computed wrongly or a count that is wrong. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "compiler/fcpc.h"
#include "runtime/base/stop.h"
#include "runtime/plan/head_ranges.h"
#include "tests/support/amount.h"
#include "tests/support/plan_of.h"
#include "tests/support/plan_tables.h"
#include "tests/support/splitmix.h"

#define MODEL "model { heads = 4; kv_heads = 2; head_dim = 16 }\n"
static const char *const programs[] = {
    MODEL "batch { lengths = [500, 300, 129] }\ncluster { gpus = 3 }\nplan { mask = causal; block = 256 }",
    MODEL "batch { lengths = [600, 40 x 5] }\ncluster { nodes = 2; gpus = 2 }\n"
          "plan { mask = lambda(sink = 70, window = 200); block = 128; passes = forward, backward }",
    MODEL "batch { lengths = [500, 160]; field doc = [0 x 300, 5 x 200, 7 x 160]; field g = [0 x 659, 1] }\n"
          "plan { mask = m; block = 128 }\nmask m = doc[q] == doc[k] or g[k] == 1",
    MODEL "batch { lengths = [200:600, 300, 1:500] }\ncluster { gpus = 2 }\n"
          "plan { mask = causal; block = 128; layout = contiguous; passes = forward, backward }",
    MODEL
    "batch { lengths = [700, 1:400] }\n"
    "mask m = slices([0, 300, 0, 300, causal], [100, 700, 50, 400, both], [250, 600, 300, 500, inverse]) or q == k\n"
    "plan { mask = m; block = 128; passes = forward, backward }",
    /* ranges of heads; and heads that see different pairs, in one range and in several */
    "model { heads = 8; kv_heads = 4; head_dim = 16 }\nbatch { lengths = [400, 130] }\ncluster { gpus = 4 }\n"
    "plan { mask = window(w = 300); block = 128; strategy = ulysses }",
    "model { heads = 6; kv_heads = 2; head_dim = 16; table w = [100, 400, 100, 1, 600, 0] }\n"
    "batch { lengths = [400, 130] }\nmask m = causal and q - k < w[h]\nplan { mask = m; block = 128 }",
    "model { heads = 8; kv_heads = 4; head_dim = 16 }\nbatch { lengths = [400, 130] }\ncluster { gpus = 4 }\n"
    "mask m = causal and (q - k < 200 or h == 0 or h == 7)\n"
    "plan { mask = m; block = 128; strategy = ulysses; layout = contiguous }",
    "model { heads = 2; kv_heads = 1; head_dim = 16 }\nbatch { lengths = [512] }\n"
    "mask m = h == 1 or (q >= 256 and k < 256)\nplan { mask = m; block = 128 }",
    MODEL "batch { lengths = [600, 300] }\ncluster { gpus = 2 }\nmask m = causal and (q / 128 - k / 128) % 2 == 0\n"
          "plan { mask = m; block = 256; strategy = cad; layout = contiguous }",
    /* few values: cells are counted by classes of positions (classes.c) */
    "model { heads = 4; kv_heads = 2; head_dim = 16; table t = [3, 1, 0, 1, 2, 0, 5] }\n"
    "batch { lengths = [900] }\nmask m = t[q % 7] <= t[k % 7]\nplan { mask = m; block = 256 }",
    "model { heads = 4; kv_heads = 2; head_dim = 16; table t = [3, 1, 0, 1, 2, 0, 5] }\n"
    "batch { lengths = [600:800, 100] }\ncluster { gpus = 2 }\n"
    "mask m = t[q * q % 7] == t[k % 7] or (k <= q and t[q % 5] * t[k % 3] % 4 == h % 2)\n"
    "plan { mask = m; block = 256 }",
    /* blocks that each head keeps or leaves out, which are no multiples of cells; a number of each sequence */
    "model { heads = 2; kv_heads = 1; head_dim = 16 }\n"
    "batch { lengths = [400, 130:300]; field p = [150, 40] over sequences; field keep = [1 x 9, 0, 1, 1, 0 x 4, 1 x 9, "
    "0 "
    "x 6, 1 x 29, 0, 0, 1, 1, 0, 1, 0, 1, 1, 0, 1, 0, 0, 1] over heads, queries / 96, keys / 96 }\n"
    "mask m = k < p or k <= q and keep[h, q / 96, k / 96] == 1\nplan { mask = m; block = 128 }",
    MODEL "batch { lengths = [600]; field w = [1, 600, 128, 300] over heads; field start = [0 x 300, 250 x 300, 590 x "
          "600] over kv_heads, keys }\ncluster { gpus = 2 }\n"
          "mask m = k <= q and q - k < w[h] or q < start[h / 2, k]\nplan { mask = m; block = 256 }",
};
enum { PROGRAMS = sizeof programs / sizeof *programs };

static uint64_t below(uint64_t *state, uint64_t n) { return splitmix(state) % n; }

/* --- by every pair ------------------------------------------------------------------------------------------------ */

typedef struct bound {
    mc_env env;
    mc_array arrays[8];
    mc_bands bands[4];
    int64_t *scratch;
    uint8_t *allowed, *times; /* by query and key of the sequence: is it allowed, and how often is it computed? */
} bound;

/* What a part computes, added to `times`; and is its number of pairs right? */
static bool add_part(const fcp_plan *plan, const bound *b, const fcp_part *c, const fcp_shape_rec *s) {
    const fcp_piece *qp = &plan->pieces[c->q_piece], *kp = &plan->pieces[c->k_piece];
    const uint64_t n = (uint64_t)b->env.n;
    uint64_t pairs = 0;
    for (uint64_t q = qp->start; q < qp->start + qp->length; q++)
        for (uint64_t k = kp->start; k < kp->start + kp->length; k++) pairs += b->allowed[q * n + k];
    for (uint32_t r = s->first_run; r < s->first_run + s->runs; r++) {
        const fcp_run *run = &plan->runs[r];
        for (uint32_t i = run->row * FCP_CELL; i < qp->length && i < (run->row + 1) * FCP_CELL; i++)
            for (uint32_t j = run->col * FCP_CELL; j < kp->length && j < (run->col + run->count) * FCP_CELL; j++) {
                const uint64_t at = (qp->start + i) * n + kp->start + j;
                b->times[at] += run->cls == FCP_CELL_FULL || b->allowed[at];
            }
    }
    return pairs == s->pairs;
}

/* Of one sequence and head: is each allowed pair computed once and no other at all, and are all numbers right? */
static bool head_is_right(const fcp_plan *plan, bound *b, uint32_t sequence, uint32_t head) {
    const fcp_problem *p = plan->problem;
    const mc_code mask = {plan->mask, (uint32_t)plan->mask_count};
    const size_t all = (size_t)(b->env.queries * b->env.n);
    bool right = true;
    b->allowed = malloc(all);
    b->times = calloc(all, 1);
    for (int64_t q = 0; q < b->env.queries; q++)
        for (int64_t k = 0; k < b->env.n; k++)
            b->allowed[q * b->env.n + k] = mc_eval(mask, &b->env, b->env.q_first + q, k, head, b->scratch);
    for (uint64_t i = 0; i < plan->tiles_count; i++) {
        const fcp_tile *t = &plan->tiles[i];
        const uint32_t heads = plan->blocks[t->q_block].heads;
        uint32_t at = 0;
        while (at < fcp_range_heads(p) && fcp_model_head(p, &plan->heads[heads], at) != head) at++;
        for (uint32_t c = t->first_part; at < fcp_range_heads(p) && c < t->first_part + t->parts; c++) {
            const fcp_part *part = &plan->parts[c];
            if (plan->pieces[part->q_piece].sequence == sequence)
                right &= add_part(plan, b, part, &plan->shapes[part->shape + fcp_class_of(plan, heads, at)]);
        }
    }
    right = right && !memcmp(b->allowed, b->times, all);
    free(b->allowed);
    free(b->times);
    return right;
}

static bool is_right(const fcp_plan *plan) {
    bound b = {.scratch = malloc(plan->mask_count * sizeof(int64_t))};
    bool right = true;
    for (uint32_t s = 0; s < plan->sequences_count && right; s++) {
        fcp_plan_env(plan, s, b.arrays, b.bands, &b.env);
        for (uint32_t h = 0; h < plan->problem->heads && right; h++) {
            /* without h, the heads of a range see the same */
            if (!plan->range_classes && h % (plan->problem->heads / fcp_plan_ranges(plan))) continue;
            right = head_is_right(plan, &b, s, h);
        }
    }
    free(b.scratch);
    return right;
}

/* --- damage ------------------------------------------------------------------------------------------------------- */

/* Makes numbers of pairs those that follow from the shapes. */
static void count_again(tables *t) {
    const fcp_plan *plan = tables_plan(t);
    uint64_t *blocks = calloc(t->blocks_count, sizeof *blocks);
    fcp_summary *s = t->summary;
    s->pairs = s->pairs_max_block = s->pairs_max_rank = 0;
    s->tiles = t->tiles_count;
    for (uint64_t i = 0; i < t->tiles_count; i++) {
        fcp_tile *tile = &t->tiles[i];
        const uint32_t heads = t->blocks[tile->q_block].heads;
        tile->pairs = 0;
        for (uint32_t c = tile->first_part; c < tile->first_part + tile->parts; c++)
            for (uint32_t cls = 0; cls < fcp_class_count(plan, heads); cls++) {
                const uint32_t shape = t->parts[c].shape + cls;
                if (shape < t->shapes_count)
                    tile->pairs += t->shapes[shape].pairs *
                                   (plan->range_classes ? fcp_class_size(plan, heads, cls) : 1);
            }
        s->pairs += tile->pairs;
        blocks[tile->q_block] += tile->pairs;
        if (blocks[tile->q_block] > s->pairs_max_block) s->pairs_max_block = blocks[tile->q_block];
    }
    for (uint32_t r = 0; r < t->problem->ranks; r++) {
        uint32_t count;
        const fcp_instr *x = stream_instrs(t, FCP_FORWARD, r, FCP_COMPUTE, &count);
        uint64_t pairs = 0;
        for (uint32_t i = 0; i < count; i++)
            for (uint32_t v = x[i].a; x[i].op == FCP_OP_ATTEND && v < x[i].a + x[i].b; v++)
                for (uint32_t k = 0; k < t->visits[v].tiles; k++)
                    pairs += t->tiles[t->visits[v].first_tile + k].pairs;
        if (pairs > s->pairs_max_rank) s->pairs_max_rank = pairs;
    }
    free(blocks);
}

static uint32_t shape_of_run(const tables *t, uint64_t run) {
    uint32_t s = 0;
    while (run - t->shapes[s].first_run >= t->shapes[s].runs) s++;
    return s;
}

/* Puts one of a run's cells into a run of its own, of class `cls`, or leaves it out if that is NONE. */
static void change_cell(tables *t, uint64_t run, uint32_t at, uint32_t cls) {
    const uint32_t shape = shape_of_run(t, run);
    const fcp_run was = t->runs[run], after = {was.row, was.col + at + 1, was.count - at - 1, was.cls};
    const fcp_run one = {was.row, was.col + at, 1, cls & 3u};
    const uint32_t before = (uint32_t)t->runs_count;
    t->runs[run].count = at & 0x3fffffffu;
    if (after.count) INSERT(t, runs, run + 1, after);
    if (cls != FCP_CELL_NONE) INSERT(t, runs, run + 1, one);
    if (!at) {
        memmove(t->runs + run, t->runs + run + 1, (t->runs_count - run - 1) * sizeof *t->runs);
        t->runs_count--;
    }
    const uint32_t more = (uint32_t)t->runs_count - before; /* or fewer, modulo 2^32 */
    t->shapes[shape].runs += more;
    for (uint64_t s = 0; s < t->shapes_count; s++)
        if ((int64_t)t->shapes[s].first_run > (int64_t)run) t->shapes[s].first_run += more;
}

/* A cell of one class becomes one of another. Where its pairs are known, the shape's number goes with them. */
static bool turn_cell(tables *t, uint64_t *state, uint32_t from, uint32_t to) {
    uint64_t chosen = t->runs_count, seen = 0;
    for (uint64_t r = 0; r < t->runs_count; r++)
        if (t->runs[r].cls == from && below(state, ++seen) == 0) chosen = r;
    if (chosen == t->runs_count) return false;
    fcp_shape_rec *s = &t->shapes[shape_of_run(t, chosen)];
    const uint32_t at = (uint32_t)below(state, t->runs[chosen].count);
    const uint64_t pairs = s->pairs, cell = FCP_CELL * FCP_CELL;
    if (from == FCP_CELL_FULL && to == FCP_CELL_NONE) s->pairs = pairs >= cell ? pairs - cell : pairs;
    if (from == FCP_CELL_PARTIAL) s->pairs = to == FCP_CELL_FULL ? pairs + cell / 2 : pairs - below(state, cell);
    if (from == FCP_CELL_PARTIAL && below(state, 2)) s->pairs = pairs;
    change_cell(t, chosen, at, to);
    return true;
}
static bool full_to_partial(tables *t, uint64_t *state) { return turn_cell(t, state, FCP_CELL_FULL, FCP_CELL_PARTIAL); }
static bool full_to_none(tables *t, uint64_t *state) { return turn_cell(t, state, FCP_CELL_FULL, FCP_CELL_NONE); }
static bool partial_to_full(tables *t, uint64_t *state) { return turn_cell(t, state, FCP_CELL_PARTIAL, FCP_CELL_FULL); }
static bool partial_to_none(tables *t, uint64_t *state) { return turn_cell(t, state, FCP_CELL_PARTIAL, FCP_CELL_NONE); }

/* A run of FULL cells has a cell more at its end, or lies elsewhere. */
static bool other_run(tables *t, uint64_t *state) {
    fcp_run *r = NULL;
    uint64_t seen = 0;
    for (uint64_t i = 0; i < t->runs_count; i++)
        if (t->runs[i].cls == FCP_CELL_FULL && below(state, ++seen) == 0) r = &t->runs[i];
    if (!r) return false;
    const uint32_t by = below(state, 2) ? 1 : UINT32_MAX;
    switch (below(state, 3)) {
    case 0: r->count++; break;
    case 1: r->col += by; break;
    default: r->row += by; break;
    }
    return true;
}

static bool wrong_count(tables *t, uint64_t *state) {
    fcp_shape_rec *s = &t->shapes[below(state, t->shapes_count)];
    s->pairs += below(state, 2) ? 1 + below(state, 9) : UINT64_MAX - below(state, 9);
    return true;
}

/* Two counts that add up as before. */
static bool exchange_counts(tables *t, uint64_t *state) {
    fcp_shape_rec *a = &t->shapes[below(state, t->shapes_count)], *b = &t->shapes[below(state, t->shapes_count)];
    a->pairs++;
    b->pairs--;
    return a != b;
}

static bool other_shape(tables *t, uint64_t *state) {
    fcp_part *c = &t->parts[below(state, t->parts_count)];
    const uint32_t keep = c->shape;
    uint64_t seen = 0;
    for (uint32_t s = 0; s < t->shapes_count; s++) {
        const fcp_shape_rec *x = &t->shapes[s], *y = &t->shapes[keep];
        if (s != keep && x->q_length == y->q_length && x->k_length == y->k_length && below(state, ++seen) == 0)
            c->shape = s;
    }
    return c->shape != keep;
}

static bool drop_part(tables *t, uint64_t *state) {
    uint64_t chosen = t->tiles_count, seen = 0;
    for (uint64_t i = 0; i < t->tiles_count; i++)
        if (t->tiles[i].parts > 1 && below(state, ++seen) == 0) chosen = i;
    if (chosen == t->tiles_count) return false;
    fcp_tile *tile = &t->tiles[chosen];
    const uint32_t at = tile->first_part + (uint32_t)below(state, tile->parts--);
    memmove(t->parts + at, t->parts + at + 1, (t->parts_count-- - at - 1) * sizeof *t->parts);
    for (uint64_t i = 0; i < t->tiles_count; i++) t->tiles[i].first_part -= t->tiles[i].first_part > at;
    return true;
}

/* A tile less, of a visit that has others. Its blocks may have to be at the rank for nothing, which is refused. */
static bool lose_tile(tables *t, uint64_t *state) {
    uint64_t chosen = t->visits_count, seen = 0;
    for (uint64_t i = 0; i < t->visits_count; i++)
        if (t->visits[i].tiles > 1 && below(state, ++seen) == 0) chosen = i;
    if (chosen == t->visits_count) return false;
    fcp_visit *v = &t->visits[chosen];
    const uint32_t at = v->first_tile + (uint32_t)below(state, v->tiles--);
    const fcp_tile gone = t->tiles[at];
    memmove(t->tiles + at, t->tiles + at + 1, (t->tiles_count-- - at - 1) * sizeof *t->tiles);
    for (uint64_t i = 0; i < t->visits_count; i++) t->visits[i].first_tile -= t->visits[i].first_tile > at;
    memmove(t->parts + gone.first_part, t->parts + gone.first_part + gone.parts,
            (t->parts_count - gone.first_part - gone.parts) * sizeof *t->parts);
    t->parts_count -= gone.parts;
    for (uint64_t i = 0; i < t->tiles_count; i++)
        if (t->tiles[i].first_part > gone.first_part) t->tiles[i].first_part -= gone.parts;
    return true;
}

/* What the mask is, and what it reads, is something else. */
static bool other_constant(tables *t, uint64_t *state) {
    uint64_t chosen = t->mask_count, seen = 0;
    for (uint64_t i = 0; i < t->mask_count; i++)
        if (t->mask[i].op == MC_CONST_I && below(state, ++seen) == 0) chosen = i;
    if (chosen == t->mask_count) return false;
    t->mask[chosen].imm += (int64_t)below(state, 3) - 1;
    return true;
}
static bool other_comparison(tables *t, uint64_t *state) {
    static const mc_op ops[] = {MC_EQ, MC_NE, MC_LT, MC_LE};
    uint64_t chosen = t->mask_count, seen = 0;
    for (uint64_t i = 0; i < t->mask_count; i++)
        if (t->mask[i].op >= MC_EQ && t->mask[i].op <= MC_LE && below(state, ++seen) == 0) chosen = i;
    if (chosen == t->mask_count) return false;
    t->mask[chosen].op = ops[below(state, 4)];
    return true;
}
static bool other_element(tables *t, uint64_t *state) {
    const fcp_array *a = t->arrays_count ? &t->arrays[below(state, t->arrays_count)] : NULL;
    if (!a || a->width == MC_F64) return false;
    t->data[a->offset + below(state, a->count) * a->width] ^= 1 + below(state, 3);
    return true;
}
static bool other_band(tables *t, uint64_t *state) {
    if (!t->bands_count) return false;
    mc_band *b = &t->bands[below(state, t->bands_count)];
    *(below(state, 2) ? &b->lo : &b->hi) += below(state, 2) ? 1 : -1;
    return true;
}
/* A head sees what heads of another class see. */
static bool other_class(tables *t, uint64_t *state) {
    if (!t->head_classes_count) return false;
    uint32_t *cls = &t->head_classes[below(state, t->head_classes_count)], keep = *cls;
    *cls = t->head_classes[below(state, t->head_classes_count)];
    return *cls != keep;
}

/* Some word of what decides about pairs, by a little or to anything. count_again leaves alone what is nonsense then,
 * and mostly fcp_plan_check refuses it. */
static bool other_word(tables *t, uint64_t *state) {
    const struct {
        void *at;
        uint64_t bytes;
    } of[] = {{t->runs, t->runs_count * sizeof *t->runs},
              {t->shapes, t->shapes_count * sizeof *t->shapes},
              {t->mask, t->mask_count * sizeof *t->mask},
              {t->mask, t->mask_count * sizeof *t->mask},
              {t->arrays, t->arrays_count * sizeof *t->arrays},
              {t->data, t->data_count / 4 * 4},
              {t->band_rows, t->band_rows_count * sizeof *t->band_rows},
              {t->bands, t->bands_count * sizeof *t->bands}};
    const uint64_t i = below(state, sizeof of / sizeof *of);
    if (!of[i].bytes) return false;
    uint32_t *word = (uint32_t *)of[i].at + below(state, of[i].bytes / 4);
    switch (below(state, 4)) {
    case 0: *word += 1; break;
    case 1: *word -= 1; break;
    case 2: *word ^= 1u << below(state, 32); break;
    default: *word = (uint32_t)splitmix(state); break;
    }
    return true;
}

/* Damage, and what must come of it now and then: a plan that is right all the same, and one that is wrong. */
static const struct {
    const char *name;
    bool (*apply)(tables *t, uint64_t *state);
    bool right, wrong;
} kinds[] = {
#define K(name, right, wrong) {#name, name, right, wrong}
    K(full_to_partial, true, false), K(full_to_none, false, true),     K(partial_to_full, false, true),
    K(partial_to_none, false, true), K(other_run, false, true),        K(wrong_count, false, true),
    K(exchange_counts, false, true), K(other_shape, false, true),      K(drop_part, false, true),
    K(lose_tile, false, true),       K(other_constant, true, true),    K(other_comparison, true, true),
    K(other_element, true, true),    K(other_band, false, true),       K(other_class, false, true),
    K(other_word, true, true),
#undef K
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* The message names what there is to name. */
static void check_message(const tables *t, const fcp_error *err) {
    unsigned sequence;
    cr_expect(sscanf(err->message, "sequence %u:", &sequence) == 1 && sequence < t->sequences_count, "%s",
              err->message);
    cr_expect(strstr(err->message, "tile") && strstr(err->message, "quer") && strstr(err->message, "key"), "%s",
              err->message);
    cr_expect(!t->head_classes_count || strstr(err->message, "of head class"), "%s", err->message);
}

Test(pairs, damage_is_refused_where_it_changes_pairs) {
    unsigned right[KINDS] = {0}, wrong[KINDS] = {0};
    for (int i = 0; i < PROGRAMS; i++) {
        fcp_plan *plan = plan_of(programs[i]);
        fcp_error err;
        fcp_pairs_proof proof = {0};
        cr_expect(is_right(plan));
        cr_expect_eq(fcp_plan_verify_pairs(plan, 0, NULL, &proof, &err), FCP_OK, "program %d: %s", i, err.message);
        cr_expect_eq(proof.pairs, plan->summary->pairs);
        for (int k = 0; k < KINDS; k++)
            for (unsigned try = 0; try < amount(3, 16) * (kinds[k].apply == other_word ? 8 : 1); try++) {
                tables t;
                uint64_t state = (uint64_t)i * 1000003 + (uint64_t)k * 1009 + try;
                tables_copy(&t, plan);
                tables_plan(&t);
                bool done = kinds[k].apply(&t, &state);
                if (done) {
                    count_again(&t);
                    done = judge(&t, &err) == FCP_OK;
                }
                if (done) {
                    const bool good = is_right(&t.plan);
                    const fcp_code code = fcp_plan_verify_pairs(&t.plan, 0, NULL, NULL, &err);
                    good ? right[k]++ : wrong[k]++;
                    cr_expect_eq(code, good ? FCP_OK : FCP_E_VERIFY_PAIRS, "%s, program %d, try %u: %s %s",
                                 kinds[k].name, i, try, fcp_code_name(code), err.message);
                    if (code == FCP_E_VERIFY_PAIRS) check_message(&t, &err);
                }
                tables_free(&t);
            }
        fcp_plan_free(plan);
    }
    for (int k = 0; k < KINDS; k++) {
        cr_expect(right[k] || !kinds[k].right, "%s: never harmless", kinds[k].name);
        cr_expect(wrong[k] || !kinds[k].wrong, "%s: never wrong", kinds[k].name);
    }
}

/* --- what it costs ------------------------------------------------------------------------------------------------ */

static fcp_pairs_proof cost_of(const char *mask, unsigned thousands) {
    char text[500];
    snprintf(text, sizeof text,
             "model { heads = 8; kv_heads = 1; head_dim = 64; table t = [3, 1, 0, 1, 2, 0, 5] }\n"
             "batch { lengths = [%uK] }\ncluster { gpus = 8 }\n"
             "mask odd = (q * k) %% 1009 < 13\nmask few = t[q %% 7] == t[k %% 7]\n"
             "plan { mask = %s; block = 4K; layout = planned; passes = forward }",
             thousands, mask);
    fcp_plan *plan = plan_of(text);
    fcp_pairs_proof proof = {0};
    fcp_error err;
    cr_assert_eq(fcp_plan_verify_pairs(plan, 0, NULL, &proof, &err), FCP_OK, "%s: %s", mask, err.message);
    cr_expect_eq(proof.pairs, plan->summary->pairs);
    fcp_plan_free(plan);
    return proof;
}

/* Twice the length has four times the pairs and twice the boundary. Of that, what repeats itself is looked at once. */
Test(pairs, cost_grows_with_the_boundary) {
    static const char *const masks[] = {"causal", "window(w = 5000)", "lambda(sink = 100, window = 3000)",
                                        "shared_question(p = 20, answers = 4)", "block_causal(b = 640)",
                                        "dilated(w = 9000, d = 7)", "rect(0..512K, 0..512K, causal)"};
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        const fcp_pairs_proof half = cost_of(masks[i], 512), all = cost_of(masks[i], 1024);
        cr_expect_lt(all.boxes, 2 * half.boxes + half.boxes / 4, "%s: %llu, %llu boxes", masks[i],
                     (unsigned long long)half.boxes, (unsigned long long)all.boxes);
        cr_expect_lt(all.elements, 64 * 128 * 128, "%s: %llu elements", masks[i], (unsigned long long)all.elements);
        cr_expect_lt(all.boxes, 40000, "%s: %llu boxes", masks[i], (unsigned long long)all.boxes);
    }
    /* with few values, only as many pairs are looked at as there would be work to find the classes */
    const fcp_pairs_proof few = cost_of("few", 32);
    cr_expect_leq(few.elements, 2u * (2 * 32768 / 128) * 128 * 128);
    cr_expect_gt(few.boxes, 256u * 256u);
    /* a mask without structure is looked at pair by pair, each once */
    const fcp_pairs_proof odd = cost_of("odd", 4);
    cr_expect_eq(odd.elements, 4096u * 4096u);
}

/* Blocks that are no multiples of cells: each block of a cell is decided at once, and pairs are looked at only where
 * the diagonal or a window crosses a block for the first time. */
Test(pairs, blocks_are_looked_at_as_blocks) {
    enum { TOKENS = 2048 };
    for (int cell = 32; cell <= 100; cell += 17) {
        const int side = (TOKENS + cell - 1) / cell;
        char *text = malloc(400 + 3 * (size_t)(side * side)), *to = text;
        uint64_t state = (uint64_t)cell;
        fcp_pairs_proof proof;
        fcp_error err;
        to += sprintf(to, "batch { lengths = [%d]; field keep = [1", TOKENS);
        for (int i = 1; i < side * side; i++) to += sprintf(to, ", %d", (int)(splitmix(&state) % 2));
        sprintf(to,
                "] over queries / %d, keys / %d }\nmask m = k <= q and (q - k < 300 or keep[q / %d, k / %d] == 1)\n"
                "plan { mask = m; block = 512 }",
                cell, cell, cell, cell);
        fcp_plan *plan = plan_of(text);
        cr_assert_eq(fcp_plan_verify_pairs(plan, 0, NULL, &proof, &err), FCP_OK, "cells of %d: %s", cell, err.message);
        cr_expect_eq(proof.pairs, plan->summary->pairs);
        cr_expect_lt(proof.elements, TOKENS * TOKENS / 16, "cells of %d: %llu elements", cell,
                     (unsigned long long)proof.elements);
        cr_expect_lt(proof.boxes, 8 * (uint64_t)(side * side), "cells of %d: %llu boxes", cell,
                     (unsigned long long)proof.boxes);
        fcp_plan_free(plan);
        free(text);
    }
}

/* Work is counted: a limit is kept or not, whatever the machine does, and little is done beyond it. */
Test(pairs, limit) {
    fcp_plan *plan = plan_of("batch { lengths = [1500] }\nmask odd = (q * q + k * k * k) % 10007 < 13\n"
                             "plan { mask = odd; block = 1K }");
    const double limits[] = {1e-9, 1e-5, 1e-3};
    fcp_pairs_proof whole, proof = {.boxes = 77};
    fcp_error err;
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(fcp_plan_verify_pairs(plan, limits[i], NULL, &proof, &err), FCP_E_TOO_LONG);
        cr_expect(strstr(err.message, "single pairs were evaluated, up to query"), "%s", err.message);
        cr_expect_eq(proof.boxes, 77, "nothing is written");
    }
    const double wrong[] = {-1, NAN, INFINITY, 1e30};
    for (int i = 0; i < 4; i++) cr_expect_eq(fcp_plan_verify_pairs(plan, wrong[i], NULL, NULL, &err), FCP_E_ARGUMENT);
    cr_assert_eq(fcp_plan_verify_pairs(plan, 0, NULL, &whole, &err), FCP_OK);
    double low = 1e-3, high = 1; /* the least limit with which it is proven */
    for (int i = 0; i < 24; i++) {
        const double middle = (low + high) / 2;
        *(fcp_plan_verify_pairs(plan, middle, NULL, NULL, &err) ? &low : &high) = middle;
    }
    const double work = (double)whole.elements * (double)plan->mask_count / 2 + 64.0 * (double)whole.boxes;
    cr_expect(high * 1e9 > 0.9 * work && high * 1e9 < 1.5 * work, "%g s, where %g is counted", high, work / 1e9);
    fcp_plan_free(plan);
}

/* In place of the runtime's: the end is wanted from question number `end` on, or when the caller says so. */
static unsigned asked, end;
bool fcp_stop_asked(const volatile int *stop) { return (stop && *stop) || ++asked == end; }

/* It asks often, and may end at any question. */
Test(pairs, stops_when_told) {
    fcp_plan *plan = plan_of("batch { lengths = [2500]; field f = [0 x 2000, 1 x 500] }\n"
                             "mask odd = (q * k + f[k]) % 1009 < 13\nplan { mask = odd; block = 1K }");
    const volatile int stop = 1;
    fcp_pairs_proof proof = {.boxes = 77};
    fcp_error err;
    cr_assert_eq(fcp_plan_verify_pairs(plan, 0, &stop, &proof, &err), FCP_E_INTERRUPTED);
    cr_expect_str_eq(err.message, "interrupted");
    fcp_code code = FCP_E_INTERRUPTED;
    unsigned questions = 0;
    for (; code == FCP_E_INTERRUPTED; questions++) {
        cr_expect_eq(proof.boxes, 77, "nothing is written");
        asked = 0;
        end = questions + 1;
        code = fcp_plan_verify_pairs(plan, 0, NULL, &proof, &err);
    }
    cr_expect_eq(code, FCP_OK);
    cr_expect_gt(questions, 400 / 16, "for 400 cells");
    fcp_plan_free(plan);
}
