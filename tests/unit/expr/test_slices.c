/* test_slices.c: tests how slices become bands (rows, each with ranges of keys), and how the evaluator treats bands,
 * against every pair of random sets of slices. */
#include "compiler/box/bands.h"
#include "compiler/cells/cells.h"
#include "compiler/sema/program.h"
#include "compiler/box/solve_rows.h"
#include "compiler/expr/slice_bands.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/plan_check.h"
#include "tests/support/amount.h"
#include "tests/support/plan_of.h"
#include "tests/support/temporary.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_MAX = 700, SET_MAX = 400 };

typedef struct set {
    slice at[SET_MAX];
    size_t count;
    int64_t n;
    uint64_t seed;
    arena memory;
    mc_bands bands;
    slices_overlap overlap;
} set;

static uint64_t draw(set *s, uint64_t below) {
    s->seed = s->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (s->seed >> 33) % below;
}

static int64_t between(set *s, int64_t lo, int64_t hi) { return lo + (int64_t)draw(s, (uint64_t)(hi - lo + 1)); }

static void add(set *s, int64_t q0, int64_t q1, int64_t k0, int64_t k1, uint32_t kind) {
    if (s->count == SET_MAX || q0 >= q1 || k0 >= k1) return;
    s->at[s->count] = (slice){q0, q1, k0, k1, kind, (uint32_t)s->count + 1};
    s->count++;
}

/* Seven ways to make a set: anything, one row or column, nested, side by side, chunked documents, a grid, rows. */
static void random_set(set *s, uint64_t seed, int64_t n) {
    s->seed = seed * 77 + 5;
    s->n = n;
    s->count = 0;
    size_t many = 1 + draw(s, 12);
    int64_t a = 0, b;
    switch (seed % 7) {
    case 0:
    case 1:
        for (size_t i = 0; i < many; i++) {
            int64_t q0 = between(s, 0, n - 1), k0 = between(s, 0, n - 1);
            int64_t q1 = seed % 2 ? q0 + 1 : between(s, q0 + 1, n), k1 = draw(s, 4) ? between(s, k0 + 1, n) : k0 + 1;
            add(s, q0, q1, k0, k1, (uint32_t)draw(s, SLICE_KINDS));
        }
        break;
    case 2:
        for (size_t i = 0; i < many && a < n; i++, a += between(s, 0, 6))
            add(s, a, n - between(s, 0, a), a, n - between(s, 0, a), (uint32_t)draw(s, SLICE_KINDS));
        break;
    case 3:
        for (; a < n; a = b) {
            b = between(s, a + 1, a + 40 < n ? a + 40 : n);
            add(s, a, b, between(s, 0, a), between(s, b, n), (uint32_t)draw(s, SLICE_KINDS));
        }
        break;
    case 4:
        for (; a < n;) {
            int64_t end = between(s, a + 1, a + 200 < n ? a + 200 : n), chunk = between(s, 1, 50);
            uint32_t kind = (uint32_t)draw(s, 2);
            for (b = a; b < end; b += chunk)
                add(s, b, b + chunk < end ? b + chunk : end, a, b + chunk < end ? b + chunk : end, kind);
            a = end;
        }
        if (draw(s, 2)) add(s, 0, n, 0, 1 + n / 10, SLICE_FULL);
        break;
    case 5: {
        int64_t side = between(s, 1, 30);
        for (a = 0; a + side <= n; a += side)
            for (b = 0; b + side <= n; b += side)
                if (!draw(s, 3))
                    add(s, a, a + side, b, b + side, draw(s, 3) ? SLICE_FULL : (uint32_t)draw(s, SLICE_KINDS));
        break;
    }
    default:
        for (a = 0; a < n; a++)
            if (draw(s, 5)) add(s, a, a + 1, draw(s, 2) ? 0 : a / 2, a + 1, (uint32_t)draw(s, 2));
        break;
    }
    if (!s->count) add(s, 0, n, 0, n, SLICE_CAUSAL);
}

static void unite(set *s) {
    arena_reset(&s->memory);
    cr_assert_eq(bands_of_slices(s->at, s->count, NULL, &s->memory, &s->bands, &s->overlap), FCP_OK);
}

static bool allows(const set *s, int64_t q, int64_t k) {
    for (size_t i = 0; i < s->count; i++)
        if (slice_allows(&s->at[i], q, k)) return true;
    return false;
}

static bool meet(const slice *a, const slice *b) {
    for (int64_t q = a->q0; q < a->q1; q++)
        for (int64_t k = a->k0; k < a->k1; k++)
            if (slice_allows(a, q, k) && slice_allows(b, q, k)) return true;
    return false;
}

/* Records ascend, the last is empty, bands are not empty, in order and apart in each row, no two records alike. */
static void check_form(const mc_bands *b, int64_t n, int seed) {
    cr_assert(b->row_count > 0 && b->rows[b->row_count - 1].count == 0, "seed %d", seed);
    uint32_t used = 0;
    for (uint32_t i = 0; i < b->row_count; i++) {
        const mc_band_rows *r = &b->rows[i];
        cr_assert(r->first == used && r->count <= b->band_count - used, "seed %d", seed);
        used += r->count;
        if (i + 1 == b->row_count) break;
        cr_assert_lt(r->q, b->rows[i + 1].q, "seed %d", seed);
        for (int64_t q = r->q; q < b->rows[i + 1].q; q++) {
            int64_t before = -1;
            for (uint32_t j = 0; j < r->count; j++) {
                const mc_band *x = &b->bands[r->first + j];
                int64_t lo = x->lo + x->lo_slope * q, hi = x->hi + x->hi_slope * q;
                cr_assert(lo > before && hi > lo && hi <= n, "seed %d: row %d, %d to %d", seed, (int)q, (int)lo,
                          (int)hi);
                before = hi;
            }
        }
        const mc_band_rows *next = r + 1;
        cr_assert(r->count != next->count ||
                      memcmp(b->bands + r->first, b->bands + next->first, r->count * sizeof *b->bands) != 0,
                  "seed %d: records %u and %u are alike", seed, i, i + 1);
    }
    cr_assert_eq(used, b->band_count);
}

Test(slices, union_of_random_sets) {
    static set s;
    unsigned overlapping = 0, apart = 0, empty = 0;
    for (uint64_t seed = 1; seed <= amount(1000, 3000); seed++) {
        int64_t n = 1 + (int64_t)(seed * 7919 % 90);
        random_set(&s, seed, n);
        unite(&s);
        check_form(&s.bands, n, (int)seed);
        const mc_node nodes[3] = {{MC_Q, MC_NONE, MC_NONE, MC_NONE, MC_NONE, 0, 0},
                                  {MC_K, MC_NONE, MC_NONE, MC_NONE, MC_NONE, 0, 0},
                                  {MC_BANDS, 0, 1, MC_NONE, MC_NONE, 0, 0}};
        const mc_code code = {nodes, 3};
        int64_t *scratch = malloc(mc_row_scratch(code) * sizeof *scratch);
        const mc_env env = {.n = n, .queries = n, .bands = &s.bands};
        uint64_t pairs = 0;
        for (int64_t q = -1; q <= n; q++) {
            uint8_t row[MC_ROW];
            int64_t k0 = (int64_t)draw(&s, 9) - 4;
            mc_eval_row(code, &env, q, k0, MC_ROW, 0, scratch, row);
            for (int64_t k = -4; k < n + 4; k++) {
                bool want = allows(&s, q, k);
                cr_assert_eq(mc_in_bands(&s.bands, q, k), want, "seed %d: q %d k %d", (int)seed, (int)q, (int)k);
                if (k >= k0 && k < k0 + MC_ROW)
                    cr_assert_eq(row[k - k0], want, "seed %d: row %d, %d", (int)seed, (int)q, (int)k);
                pairs += want;
            }
        }
        free(scratch);
        empty += !pairs;
        slices_overlap want = {0};
        bool in[SET_MAX] = {false};
        for (size_t i = 0; i < s.count; i++)
            for (size_t j = i + 1; j < s.count; j++) {
                if (!meet(&s.at[i], &s.at[j])) continue;
                if (!want.pairs++) want.first = i, want.second = j;
                in[i] = in[j] = true;
            }
        for (size_t i = 0; i < s.count; i++) want.slices += in[i];
        cr_assert(s.overlap.pairs == want.pairs && s.overlap.slices == want.slices && !s.overlap.at_least &&
                      s.overlap.first == want.first && s.overlap.second == want.second,
                  "seed %d: %d pairs of %d, not %d of %d", (int)seed, (int)s.overlap.pairs, (int)s.overlap.slices,
                  (int)want.pairs, (int)want.slices);
        overlapping += want.pairs > 0;
        apart += want.pairs == 0;
    }
    cr_assert(overlapping > amount(150, 500) && apart > 300 && empty > amount(2, 3), "%u %u %u", overlapping, apart,
              empty);
    arena_free(&s.memory);
}

/* --- the evaluator ------------------------------------------------------------------------------------------------ */

enum { MASKS = 9 };

static mc_code make_mask(int which, uint64_t seed, mc_node **out_nodes) {
    mc_builder *b = mc_builder_new();
    uint32_t q = mc_emit(b, MC_Q, MC_NONE, MC_NONE, MC_NONE, 0, MC_NONE, 0);
    uint32_t k = mc_emit(b, MC_K, MC_NONE, MC_NONE, MC_NONE, 0, MC_NONE, 0);
    uint32_t three = mc_emit(b, MC_CONST_I, MC_NONE, MC_NONE, MC_NONE, 2 + (int64_t)(seed % 5), MC_NONE, 0);
    uint32_t in = mc_emit(b, MC_BANDS, q, k, MC_NONE, 0, MC_NONE, 0), root = in;
    uint32_t other = mc_emit(b, MC_BANDS, q, k, MC_NONE, 1, MC_NONE, 0);
    uint32_t mirrored = mc_emit(b, MC_BANDS, k, q, MC_NONE, 0, MC_NONE, 0);
    uint32_t apart = mc_emit(b, MC_SUB, q, k, MC_NONE, 0, MC_NONE, 0);
    switch (which) {
    case 1:
        root = mc_emit(b, MC_AND, in, mc_emit(b, MC_LE, k, q, MC_NONE, 0, MC_NONE, 0), MC_NONE, 0, MC_NONE, 0);
        break;
    case 2: root = mc_emit(b, MC_OR, in, other, MC_NONE, 0, MC_NONE, 0); break;
    case 3: root = mirrored; break;
    case 4: root = mc_emit(b, MC_IFF, in, mirrored, MC_NONE, 0, MC_NONE, 0); break;
    case 5:
        root = mc_emit(b, MC_OR, in, mc_emit(b, MC_BANDS, q, q, MC_NONE, 1, MC_NONE, 0), MC_NONE, 0, MC_NONE, 0);
        break;
    case 6: {
        uint32_t half = mc_emit(b, MC_DIV, q, three, MC_NONE, 0, MC_NONE, 0),
                 on = mc_emit(b, MC_ADD, k, three, MC_NONE, 0, MC_NONE, 0);
        root = mc_emit(b, MC_BANDS, half, on, MC_NONE, 0, MC_NONE, 0);
        break;
    }
    case 7: {
        uint32_t rest = mc_emit(b, MC_MOD, apart, three, MC_NONE, 0, MC_NONE, 0);
        uint32_t zero = mc_emit(b, MC_CONST_I, MC_NONE, MC_NONE, MC_NONE, 0, MC_NONE, 0);
        uint32_t even = mc_emit(b, MC_EQ, rest, zero, MC_NONE, 0, MC_NONE, 0);
        root =
            mc_emit(b, MC_AND, mc_emit(b, MC_NOT, in, MC_NONE, MC_NONE, 0, MC_NONE, 0), even, MC_NONE, 0, MC_NONE, 0);
        break;
    }
    case 8:
        root = mc_emit(b, MC_IF_B, in, other, mc_emit(b, MC_LT, apart, three, MC_NONE, 0, MC_NONE, 0), 0, MC_NONE, 0);
        break;
    default: break;
    }
    mc_code code = {0};
    uint32_t *places;
    cr_assert(mc_extract(b, root, out_nodes, &places, &code.count));
    code.nodes = *out_nodes;
    free(places);
    mc_builder_free(b);
    return code;
}

static uint8_t table[N_MAX][N_MAX];

static uint64_t count_pairs(int64_t q0, int64_t q1, int64_t k0, int64_t k1) {
    uint64_t pairs = 0;
    for (int64_t q = q0; q < q1; q++)
        for (int64_t k = k0; k < k1; k++) pairs += table[q][k];
    return pairs;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static void check_grid(cells *c, const mc_env *env, set *s, int seed) {
    uint64_t cuts[64];
    uint32_t pieces = 0;
    int64_t n = env->n;
    for (int64_t at = 0; at < n && pieces < 60; at += between(s, 1, n / 3 + 1)) cuts[pieces++] = (uint64_t)at;
    cuts[pieces] = (uint64_t)n;
    const cell_entry *entries;
    size_t count, e = 0;
    cells_fault fault;
    cr_assert_eq(cells_grid(c, env, cuts, pieces, cuts, pieces, &entries, &count, &fault), FCP_OK);
    uint32_t shape_count, run_count;
    const fcp_run *runs;
    const fcp_shape_rec *shapes = cells_shapes(c, &shape_count, &runs, &run_count);
    for (uint32_t i = 0; i < pieces; i++)
        for (uint32_t j = 0; j < pieces; j++) {
            int64_t q0 = (int64_t)cuts[i], q1 = (int64_t)cuts[i + 1], k0 = (int64_t)cuts[j], k1 = (int64_t)cuts[j + 1];
            uint64_t want = count_pairs(q0, q1, k0, k1);
            if (!want) {
                cr_assert(e == count || entries[e].q_piece != i || entries[e].k_piece != j, "seed %d", seed);
                continue;
            }
            cr_assert(e < count && entries[e].q_piece == i && entries[e].k_piece == j, "seed %d: an entry missing",
                      seed);
            const fcp_shape_rec *shape = &shapes[entries[e++].shape];
            cr_assert_eq(shape->pairs, want, "seed %d", seed);
            uint8_t cls[8][8] = {{0}};
            for (uint32_t r = 0; r < shape->runs; r++)
                for (uint32_t x = 0; x < runs[shape->first_run + r].count; x++)
                    cls[runs[shape->first_run + r].row][runs[shape->first_run + r].col + x] =
                        (uint8_t)runs[shape->first_run + r].cls + 1;
            for (int64_t q = q0; q < q1; q += FCP_CELL)
                for (int64_t k = k0; k < k1; k += FCP_CELL) {
                    int64_t qe = least(q1, q + FCP_CELL), ke = least(k1, k + FCP_CELL);
                    uint64_t pairs = count_pairs(q, qe, k, ke), area = (uint64_t)((qe - q) * (ke - k));
                    uint8_t is = pairs == 0 ? 0 : pairs == area ? FCP_CELL_FULL + 1 : FCP_CELL_PARTIAL + 1;
                    cr_assert_eq(cls[(q - q0) / FCP_CELL][(k - k0) / FCP_CELL], is, "seed %d: a cell's class", seed);
                }
        }
    cr_assert_eq(e, count, "seed %d: entries too many", seed);
}

Test(slices, cells_of_random_sets) {
    static set s, t;
    uint64_t full = 0, partial = 0, none = 0;
    for (uint64_t seed = 1; seed <= amount(250, 700); seed++) {
        int64_t n = seed % 10 == 0 ? 400 + (int64_t)(seed * 31 % 300) : 1 + (int64_t)(seed * 7919 % 200);
        random_set(&s, seed / 3, n);
        random_set(&t, seed / 3 + 1000, n);
        unite(&s);
        unite(&t);
        const mc_bands bands[2] = {s.bands, t.bands};
        const mc_env env = {.n = n, .queries = n, .bands = bands};
        mc_node *nodes;
        mc_code code = make_mask((int)(seed % MASKS), seed, &nodes);
        int64_t *scratch = malloc(mc_row_scratch(code) * sizeof *scratch);
        for (int64_t q = 0; q < n; q++)
            for (int64_t k = 0; k < n; k++) table[q][k] = mc_eval(code, &env, q, k, 0, scratch);
        cells *c = cells_new(code, 1);
        cells_counts got, want = {0};
        cr_assert_eq(cells_count(c, &env, &got, NULL), FCP_OK);
        for (int64_t q = 0; q < n; q += FCP_CELL)
            for (int64_t k = 0; k < n; k += FCP_CELL) {
                int64_t q1 = least(n, q + FCP_CELL), k1 = least(n, k + FCP_CELL);
                uint64_t pairs = count_pairs(q, q1, k, k1);
                want.pairs += pairs;
                if (!pairs) want.none++;
                else if (pairs == (uint64_t)((q1 - q) * (k1 - k))) want.full++;
                else want.partial++;
            }
        cr_assert(got.pairs == want.pairs && got.full == want.full && got.partial == want.partial &&
                      got.none == want.none,
                  "seed %d, n %d: pairs %d %d, full %d %d, partial %d %d", (int)seed, (int)n, (int)got.pairs,
                  (int)want.pairs, (int)got.full, (int)want.full, (int)got.partial, (int)want.partial);
        check_grid(c, &env, &s, (int)seed);
        check_grid(c, &env, &s, (int)seed);
        full += want.full, partial += want.partial, none += want.none;
        cells_free(c);
        free(scratch);
        free(nodes);
    }
    cr_assert(full > 100 && partial > 500 && none > 100, "%d %d %d", (int)full, (int)partial, (int)none);
    arena_free(&s.memory);
    arena_free(&t.memory);
}

/* Ever smaller boxes: NONE and FULL are proofs, MIXED is always right for a leaf, programs and rows stay exact. */
Test(slices, boxes_of_random_sets) {
    static set s, t;
    unsigned linear = 0, decided = 0;
    for (uint64_t seed = 1; seed <= amount(700, 2000); seed++) {
        int64_t n = 1 + (int64_t)(seed * 7919 % 300);
        random_set(&s, seed, n);
        random_set(&t, seed + 1000, n);
        unite(&s);
        unite(&t);
        const mc_bands bands[2] = {s.bands, t.bands};
        const mc_env env = {.n = n, .queries = n, .bands = bands};
        mc_node *nodes;
        int which = seed % 2 ? (seed % 4 == 1 ? 0 : 3) : (int)(seed % MASKS);
        mc_code code = make_mask(which, seed, &nodes);
        int64_t *scratch = malloc(mc_row_scratch(code) * sizeof *scratch);
        for (int64_t q = 0; q < n; q++)
            for (int64_t k = 0; k < n; k++) table[q][k] = mc_eval(code, &env, q, k, 0, scratch);
        box_program *program = malloc(box_program_size(code.count)), *special = malloc(box_program_size(code.count));
        box_value *values = malloc(code.count * sizeof *values);
        uint32_t *numbers = malloc(code.count * sizeof *numbers);
        bands_index *index = seed % 3 ? bands_index_new(bands, 2, NULL) : NULL;
        rows *r = rows_new();
        box_program_make(code, &env, NULL, program);
        program->index = index;
        box b = {{0, 0, 0}, {n, n, 1}};
        for (int step = 0; step < 14; step++) {
            uint64_t want = count_pairs(b.lo[0], b.hi[0], b.lo[1], b.hi[1]);
            uint64_t area = (uint64_t)((b.hi[0] - b.lo[0]) * (b.hi[1] - b.lo[1]));
            bool simpler;
            box_class cls = box_evaluate(program, &b, values, &simpler);
            if (cls == BOX_NONE) cr_assert_eq(want, 0, "seed %d", (int)seed);
            if (cls == BOX_FULL) cr_assert_eq(want, area, "seed %d", (int)seed);
            if (cls == BOX_MIXED && (which == 0 || which == 3))
                cr_assert(want > 0 && want < area, "seed %d: MIXED", (int)seed);
            decided += cls != BOX_MIXED;
            box_specialise(program, values, numbers, special);
            linear += special->nodes[special->root].op >= BOX_LINEAR;
            memcpy(program, special, box_program_size(special->count));
            if (b.hi[1] - b.lo[1] <= ROWS_WIDTH) {
                rows_result got;
                cr_assert(rows_solve(r, program, &b, &got));
                cr_assert(!got.fault && got.pairs == want, "seed %d: %d, not %d", (int)seed, (int)got.pairs, (int)want);
            }
            if (box_bands_only(program)) cr_assert_eq(box_bands_pairs(program, &b), want, "seed %d", (int)seed);
            int d = (int)draw(&s, 2);
            if (b.hi[d] - b.lo[d] > 1) {
                int64_t middle = between(&s, b.lo[d] + 1, b.hi[d] - 1);
                if (draw(&s, 2)) b.lo[d] = middle;
                else b.hi[d] = middle;
            }
        }
        rows_free(r);
        bands_index_free(index);
        free(program);
        free(special);
        free(values);
        free(numbers);
        free(scratch);
        free(nodes);
    }
    cr_assert(linear > 300 && decided > 1000, "%u %u", linear, decided);
    arena_free(&s.memory);
    arena_free(&t.memory);
}

/* --- what is known ------------------------------------------------------------------------------------------------ */

/* The pictures of MagiAttention's documentation: a slice of as many queries and keys, by the number of its kind. */
Test(slices, definitions_of_magi_attention) {
    static const struct {
        int64_t queries, keys;
        const char *rows[SLICE_KINDS];
    } known[] = {
        {5, 2, {"11 11 11 11 11", "00 00 00 10 11", "11 01 00 00 00", "00 00 00 00 00"}},
        {2, 5, {"11111 11111", "11110 11111", "11111 01111", "11110 01111"}},
        {5, 5, {"11111 11111 11111 11111 11111", "10000 11000 11100 11110 11111", "11111 01111 00111 00011 00001",
                "10000 01000 00100 00010 00001"}},
    };
    static set s;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        for (uint32_t kind = 0; kind < SLICE_KINDS; kind++)
            for (int64_t at = 0; at < 20; at += 9) {
                s.count = 0;
                add(&s, at, at + known[i].queries, 3 * at, 3 * at + known[i].keys, kind);
                unite(&s);
                const char *want = known[i].rows[kind];
                for (int64_t q = 0; q < known[i].queries; q++, want += *want == ' ')
                    for (int64_t k = 0; k < known[i].keys; k++, want++) {
                        cr_assert_eq(slice_allows(&s.at[0], at + q, 3 * at + k), *want == '1');
                        cr_assert_eq(mc_in_bands(&s.bands, at + q, 3 * at + k), *want == '1');
                    }
            }
    arena_free(&s.memory);
}

/* A causal mask, however it is cut, is one record. */
Test(slices, records_that_go_on_are_one) {
    static set s;
    for (int64_t chunk = 1; chunk <= 64; chunk *= 2) {
        s.count = 0;
        for (int64_t q = 0; q < 256; q += chunk)
            add(&s, q, q + chunk, 0, q + chunk, chunk == 1 ? SLICE_FULL : SLICE_CAUSAL);
        unite(&s);
        cr_assert_eq(s.bands.row_count, 2);
        cr_assert_eq(s.bands.band_count, 1);
        const mc_band *b = s.bands.bands;
        cr_assert(b->lo == 0 && b->lo_slope == 0 && b->hi == 1 && b->hi_slope == 1);
        cr_assert(s.bands.rows[0].q == 0 && s.bands.rows[1].q == 256);
    }
    arena_free(&s.memory);
}

Test(slices, nothing_at_all) {
    static set s;
    s.count = 0;
    add(&s, 0, 9, 0, 3, SLICE_BOTH);
    unite(&s);
    cr_assert(s.bands.row_count == 1 && s.bands.band_count == 0 && !mc_in_bands(&s.bands, 4, 1));
    arena_free(&s.memory);
}

/* n static edges times n moving ones: more bands than are kept, and layers upon layers of slices. */
Test(slices, blow_up_is_an_error) {
    arena memory = {0};
    mc_bands bands;
    slices_overlap overlap;
    size_t count = 0, many = 2000;
    slice *all = calloc(2 * many, sizeof *all);
    const int64_t side = 1 << 20;
    for (size_t i = 0; i < many; i++) {
        int64_t at = (int64_t)i * 256;
        all[count++] = (slice){0, side, at, at + 100, SLICE_FULL, 1};
        all[count++] = (slice){0, side, at, at + side + 19, SLICE_BOTH, 2};
    }
    cr_assert_eq(bands_of_slices(all, count, NULL, &memory, &bands, &overlap), FCP_E_TOO_LARGE);
    free(all);
    arena_free(&memory);
}

Test(slices, far_positions) {
    const int64_t far = INT64_C(1) << 40;
    arena memory = {0};
    mc_bands bands;
    slices_overlap overlap;
    const slice all[3] = {
        {0, far, 0, far, SLICE_CAUSAL, 1}, {far - 3, far, 0, far, SLICE_BOTH, 2}, {0, 1, far - 1, far, SLICE_FULL, 3}};
    cr_assert_eq(bands_of_slices(all, 3, NULL, &memory, &bands, &overlap), FCP_OK);
    cr_assert(mc_in_bands(&bands, far - 1, far - 1) && mc_in_bands(&bands, 0, far - 1) &&
              !mc_in_bands(&bands, 1, far - 1));
    cr_assert(overlap.pairs == 1 && overlap.first == 0 && overlap.second == 1);
    mc_node *nodes;
    mc_code code = make_mask(0, 1, &nodes);
    cells *c = cells_new(code, 1);
    cells_counts counts;
    const mc_env env = {.n = 1 << 30, .queries = 1 << 30, .bands = &bands};
    cr_assert_eq(cells_count(c, &env, &counts, NULL), FCP_OK);
    cr_assert_eq(counts.pairs, ((uint64_t)1 << 30) * (((uint64_t)1 << 30) + 1) / 2);
    cells_free(c);
    free(nodes);
    arena_free(&memory);
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static char path[TEMPORARY];

static void write_bytes(const void *bytes, size_t size) {
    FILE *f = fopen(path, "wb");
    cr_assert_not_null(f);
    cr_assert_eq(fwrite(bytes, 1, size, f), size);
    cr_assert_eq(fclose(f), 0);
}

static void write_npy(const char *descr, size_t width, uint64_t count, uint64_t columns, const int64_t *values) {
    static unsigned char bytes[4096];
    char *text = (char *)bytes + 10;
    memcpy(bytes, "\x93NUMPY\1\0", 8);
    int size = snprintf(text, 512, "{'descr': '%s', 'fortran_order': False, 'shape': (%d, %d), }\n", descr, (int)count,
                        (int)columns);
    bytes[8] = (unsigned char)size;
    bytes[9] = 0;
    unsigned char *to = (unsigned char *)text + size;
    for (uint64_t i = 0; i < count * columns; i++, to += width) memcpy(to, &values[i], width); /* little-endian */
    write_bytes(bytes, (size_t)(to - bytes));
}

/* The program of slices(file(path)) with another mask around it; NULL: it failed, with `want`. */
static fcpc_program *parse(const char *mask, fcp_code want) {
    char source[512];
    int size = snprintf(source, sizeof source, "batch { lengths = [64] }\nmask m = %s\nplan { mask = m }\n", mask);
    for (char *at; (at = strstr(source, "FILE"));) {
        char rest[512];
        strcpy(rest, at + 4);
        size +=
            snprintf(at, sizeof source - (size_t)(at - source), "file(\"%s\")%s", path, rest) - (int)strlen(rest) - 4;
    }
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *p = NULL;
    fcp_code code = fcpc_parse_text("a.fcp", source, (size_t)size, NULL, d, &p);
    cr_assert_eq(code, want, "%s, not %s:\n%s", fcp_code_name(code), fcp_code_name(want),
                 fcpc_diagnostics_render(d, false));
    fcpc_diagnostics_free(d);
    return p;
}

static void same_bands(const mc_bands *a, const mc_bands *b) {
    cr_assert(a->row_count == b->row_count && a->band_count == b->band_count);
    cr_assert_eq(memcmp(a->rows, b->rows, a->row_count * sizeof *a->rows), 0);
    cr_assert_eq(memcmp(a->bands, b->bands, a->band_count * sizeof *a->bands), 0);
}

Test(slices, files_of_all_kinds_hold_the_same) {
    cr_assert(temporary_file(path, "slices"));
    const int64_t five[] = {0, 20, 0, 20, 1, 20, 40, 3, 60, 3, 40, 64, 0, 9, 0, 30, 50, 30, 64, 2};
    const int64_t four[] = {0, 20, 0, 20, 20, 40, 3, 60, 40, 64, 0, 9, 30, 50, 30, 64};
    static const char text[] = "# four\n0 20 0 20 causal\n\n20\t40, 3,60 both # a band\r\n40 64 0 9\n  30 50 30 64 2";
    fcpc_program *written =
        parse("slices([0, 20, 0, 20, causal], [20, 40, 3, 60, 3], [40, 64, 0, 9], [30, 50, 30, 64, inverse])", FCP_OK);
    fcpc_program *full =
        parse("slices([0, 20, 0, 20], [20, 40, 3, 60], [40, 64, 0, 9], [30, 50, 30, 64, full])", FCP_OK);
    cr_assert(written->slices_count == 1 && written->slices_about->count == 4 && written->slices_about->overlaps == 1 &&
              written->slices_about->overlapping == 2 && written->slices_about->reach == 64);
    static const struct {
        const char *descr;
        size_t width;
    } types[] = {{"|i1", 1}, {"|u1", 1}, {"<i4", 4}, {"<i8", 8}, {"<u2", 2}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (int columns = 4; columns <= 5; columns++) {
            write_npy(types[i].descr, types[i].width, 4, (uint64_t)columns, columns == 4 ? four : five);
            fcpc_program *p = parse("slices(FILE)", FCP_OK);
            same_bands(p->slices, columns == 4 ? full->slices : written->slices);
            fcpc_program_free(p);
        }
    write_bytes(text, sizeof text - 1);
    fcpc_program *p = parse("slices(FILE)", FCP_OK);
    same_bands(p->slices, written->slices);
    fcpc_program_free(p);
    p = parse("slices(FILE) or (k <= q and slices(FILE)) or slices([0, 1, 0, 1])", FCP_OK);
    cr_assert_eq(p->slices_count, 2, "a file is read once");
    same_bands(&p->slices[0], written->slices);
    cr_assert(strcmp(p->slices_about[0].file, path) == 0 && p->slices_about[0].count == 4);
    fcpc_program_free(p);
    fcpc_program_free(written);
    fcpc_program_free(full);
    unlink(path);
}

Test(slices, files_that_are_wrong) {
    cr_assert(temporary_file(path, "slices"));
    const int64_t far = (INT64_C(1) << 40) + 1;
    const int64_t bad[][5] = {{0, 0, 0, 1, 0}, {0, 1, 5, 5, 0}, {3, 2, 0, 1, 0}, {-1, 1, 0, 1, 0}, {0, 1, 0, far, 0},
                              {0, 1, 0, 1, 4}, {0, 1, 0, 1, -1}, {0, 1, 0, INT64_MAX, 0}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_npy("<i8", 8, 1, 5, bad[i]);
        parse("slices(FILE)", FCP_E_SLICES);
    }
    const int64_t good[10] = {0, 1, 0, 1, 0, 1, 2, 1, 2, 1}, most = -1;
    write_npy("<f8", 8, 2, 5, good);
    parse("slices(FILE)", FCP_E_FIELD_FILE);
    write_npy("<i8", 8, 5, 2, good);
    parse("slices(FILE)", FCP_E_FIELD_FILE);
    write_npy("<i8", 8, 0, 5, good);
    parse("slices(FILE)", FCP_E_SLICES);
    const int64_t unsigned_most[4] = {0, most, 0, 1};
    write_npy("<u8", 8, 1, 4, unsigned_most);
    parse("slices(FILE)", FCP_E_SLICES);
    write_bytes("\x93NUMPY\1\0", 8);
    parse("slices(FILE)", FCP_E_FIELD_FILE);
    write_bytes("", 0);
    parse("slices(FILE)", FCP_E_SLICES);
    write_bytes("0 1\0 2 3 4", 10);
    parse("slices(FILE)", FCP_E_FIELD_FILE);
    write_bytes("0 1 0 -", 7);
    parse("slices(FILE)", FCP_E_FIELD_FILE);
    unlink(path);
    parse("slices(FILE)", FCP_E_READ);
}

/* Beyond the longest sequence: an error of the batch, whichever batch it is. */
Test(slices, reach_of_a_batch) {
    fcpc_program *p = parse("slices([0, 64, 0, 30], [10, 20, 0, 65, causal]) or q == k", FCP_OK);
    fcp_plan *plan = NULL;
    const uint64_t longer[2] = {10, 65}, shorter[1] = {64};
    cr_assert_eq(fcpc_plan(p, NULL, 0, NULL, NULL, NULL, &plan), FCP_E_SLICES);
    cr_assert_eq(fcpc_plan(p, shorter, 1, NULL, NULL, NULL, &plan), FCP_E_SLICES);
    cr_assert_neq(fcpc_plan(p, longer, 2, NULL, NULL, NULL, &plan), FCP_E_SLICES);
    fcp_plan_free(plan);
    fcpc_program_free(p);
}

/* A plan's bands must be such that every reader finds the same in them. */
Test(slices, plans_with_bands_out_of_order) {
    char source[] = "cluster { gpus = 1 }\nbatch { lengths = [64] }\n"
                    "plan { mask = slices([0, 64, 0, 10], [0, 64, 20, 30], [30, 64, 0, 64, causal]) }";
    fcp_plan *plan = plan_of(source);
    cr_assert(plan->slices_count == 1 && plan->bands_count >= 3);
    mc_band *bands = (mc_band *)plan->bands;
    for (int damage = 0; damage < 5; damage++) {
        const mc_band kept[2] = {bands[0], bands[1]};
        fcp_error err = {0};
        cr_assert_eq(fcp_plan_check(plan, NULL, &err), FCP_OK);
        if (damage == 0) bands[0] = kept[1], bands[1] = kept[0];
        if (damage == 1) bands[0].hi = bands[1].lo; /* they touch */
        if (damage == 2) bands[0].hi = bands[0].lo; /* empty */
        if (damage == 3) bands[0].hi_slope = 1;     /* runs into the next */
        if (damage == 4) bands[1].hi = INT64_MAX;
        cr_assert_eq(fcp_plan_check(plan, NULL, &err), FCP_E_PLAN_FORMAT, "damage %d", damage);
        bands[0] = kept[0], bands[1] = kept[1];
    }
    fcp_plan_free(plan);
}

/* Slices may take seconds: a caller ends the parse, and gets no program. */
Test(slices, a_parse_can_be_stopped) {
    static const char text[] =
        "batch { lengths = [300] }\nplan { mask = slices([0, 300, 0, 300, causal], [10, 20, 5, 300, full]) }\n";
    volatile int stop = 0;
    const fcpc_options options = {.size = sizeof options, .stop = &stop};
    for (; stop < 2; stop++) {
        fcpc_diagnostics *d = fcpc_diagnostics_new();
        fcpc_program *p = NULL;
        fcp_code code = fcpc_parse_text("a.fcp", text, sizeof text - 1, &options, d, &p);
        cr_expect_eq(code, stop ? FCP_E_INTERRUPTED : FCP_OK);
        cr_expect_eq(p == NULL, stop, "a program of a parse that was stopped");
        cr_expect_eq(diag_errors(d), stop ? 1 : 0);
        fcpc_program_free(p);
        fcpc_diagnostics_free(d);
    }
}
