/* test_array_parts.c: tests which values of a field each sequence sees, against the definition: a value for each head,
 * for each cell that holds a query, and for each cell that holds a key, in this order. */
#include <criterion/criterion.h>

#include "runtime/plan/plan.h"
#include "runtime/plan/plan_arrays.h"
#include "runtime/plan/plan_index.h"
#include "tests/support/plan_of.h"
#include "tests/support/plan_tables.h"
#include "tests/support/splitmix.h"

static uint64_t state = 1;
static int64_t draw(int64_t below) { return (int64_t)(splitmix(&state) % (uint64_t)below); }

static fcp_array draw_field(void) {
    static const uint32_t cells[] = {0, 1, 2, 7, 16, 100, 128, 1000, 1 << 30};
    return (fcp_array){.kind = FCP_FIELD,
                       .width = MC_I32,
                       .heads = (uint32_t)draw(4),
                       .q_cell = cells[draw(9)],
                       .k_cell = cells[draw(9)]};
}

static fcp_sequence draw_sequence(void) {
    fcp_sequence s = {.keys = (uint64_t)draw(400), .queries = (uint64_t)draw(400)};
    if (draw(3) == 0) s.keys = (uint64_t)draw(3);
    if (draw(3) == 0) s.queries = (uint64_t)draw(3);
    s.q_first = draw(2) ? 0 : (int64_t)s.keys - (int64_t)s.queries;
    return s;
}

/* The cells of `cell` positions that hold one of `count` positions from `first` on; -1: of one position, at 0. */
static int64_t cells_of(int64_t first, int64_t count, int64_t cell, int64_t *out) {
    int64_t cells = 0;
    if (!cell) return out[0] = 0, 1;
    for (int64_t i = first; i < first + count; i++) {
        const int64_t at = i >= 0 ? i / cell : -((-i + cell - 1) / cell);
        if (!cells || out[cells - 1] != at) out[cells++] = at;
    }
    return cells;
}

Test(array_parts, are_what_the_definition_says) {
    static int32_t values[4 * 400 * 400];
    static int64_t rows[400], columns[400];
    for (int32_t i = 0; i < 4 * 400 * 400; i++) values[i] = i;
    for (int draws = 0; draws < 4000; draws++) {
        const fcp_array field = draw_field();
        const fcp_sequence s = draw_sequence();
        const mc_env env = {.n = (int64_t)s.keys, .q_first = s.q_first, .queries = (int64_t)s.queries};
        const mc_array part = fcp_array_part(&field, values, 5, &env);
        const int64_t heads = field.heads ? field.heads : 1;
        const int64_t row_count = cells_of(s.q_first, env.queries, field.q_cell, rows);
        const int64_t column_count = cells_of(0, env.n, field.k_cell, columns);
        uint64_t next = 0;
        cr_assert_eq(mc_array_total(&part), (uint64_t)(heads * row_count * column_count));
        for (int64_t h = 0; h < heads; h++)
            for (int64_t r = 0; r < row_count; r++)
                for (int64_t c = 0; c < column_count; c++, next++) {
                    int64_t index[3] = {0};
                    int dims = 0;
                    uint64_t at;
                    if (field.heads) index[dims++] = h;
                    if (field.q_cell) index[dims++] = rows[r];
                    if (field.k_cell) index[dims++] = columns[c];
                    cr_assert(mc_place(&part, index[0], index[1], index[2], &at) && at == next,
                              "heads %u, cells of %u and %u", field.heads, field.q_cell, field.k_cell);
                    cr_assert_eq(mc_load(&part, index[0], index[1], index[2]), 5 + (int64_t)next);
                    for (int d = 0; d < dims && next == 0; d++) { /* nothing before the first */
                        index[d]--;
                        cr_assert(!mc_place(&part, index[0], index[1], index[2], &at));
                        index[d]++;
                    }
                    for (int d = 0; d < dims && next + 1 == mc_array_total(&part); d++) { /* or behind the last */
                        index[d]++;
                        cr_assert(!mc_place(&part, index[0], index[1], index[2], &at));
                        index[d]--;
                    }
                }
        cr_assert_eq(next, mc_array_total(&part));
        cr_assert_eq(mc_array_dims(&part), fcp_array_dims(&field) ? fcp_array_dims(&field) : 1);
    }
}

/* Sequences' values stand one behind the other; those of tables are the same for all. */
Test(array_parts, begin_where_those_before_end) {
    enum { ARRAYS = 12, SEQUENCES = 30 };
    for (int draws = 0; draws < 200; draws++) {
        fcp_array arrays[ARRAYS];
        fcp_sequence sequences[SEQUENCES];
        fcp_plan plan = {.arrays = arrays, .arrays_count = ARRAYS, .sequences = sequences};
        plan.sequences_count = 1 + (uint64_t)draw(SEQUENCES);
        for (int i = 0; i < ARRAYS; i++) arrays[i] = draw_field();
        arrays[3] = (fcp_array){.kind = FCP_TABLE, .width = MC_I8, .count = 7};
        for (uint64_t s = 0; s < plan.sequences_count; s++) sequences[s] = draw_sequence();
        cr_assert_eq(fcp_plan_index(&plan, NULL), FCP_OK);
        for (uint64_t i = 0; i < ARRAYS; i++) {
            uint64_t next = 0;
            for (uint32_t s = 0; s <= plan.sequences_count; s++) {
                cr_assert_eq(fcp_array_start(&plan, i, s), i == 3 ? 0 : next);
                if (s == plan.sequences_count) break;
                const fcp_sequence *of = &sequences[s];
                const mc_env env = {.n = (int64_t)of->keys, .q_first = of->q_first, .queries = (int64_t)of->queries};
                const mc_array part = fcp_array_part(&arrays[i], NULL, 0, &env);
                next += mc_array_total(&part);
            }
        }
        free(plan.array_starts);
        free(plan.sequence_offsets);
    }
}

/* Sums that do not fit become a number that no plan has; a file of some kilobytes gets no gigabytes of memory. */
Test(array_parts, hostile) {
    static fcp_array arrays[3000];
    static fcp_sequence sequences[6000];
    fcp_plan plan = {.arrays = arrays, .arrays_count = 1, .sequences = sequences, .sequences_count = 3};
    static const uint64_t odd[] = {0, 1, (uint64_t)1 << 40, (uint64_t)INT64_MAX, (uint64_t)INT64_MAX + 1, UINT64_MAX};
    static const int64_t first[] = {0, INT64_MIN, INT64_MAX, -1, (int64_t)1 << 40};
    static const uint32_t sides[] = {0, 1, 3, 1 << 30, UINT32_MAX};
    for (int draws = 0; draws < 20000; draws++) {
        arrays[0] = (fcp_array){.kind = FCP_FIELD,
                                .width = MC_I8,
                                .heads = sides[draw(5)],
                                .q_cell = sides[draw(5)],
                                .k_cell = sides[draw(5)]};
        for (int s = 0; s < 3; s++)
            sequences[s] = (fcp_sequence){.queries = odd[draw(6)], .keys = odd[draw(6)], .q_first = first[draw(5)]};
        if (fcp_plan_index(&plan, NULL) == FCP_OK)
            for (uint32_t s = 0; s < 3; s++)
                cr_assert_leq(fcp_array_start(&plan, 0, s), fcp_array_start(&plan, 0, s + 1));
        free(plan.array_starts);
        free(plan.sequence_offsets);
        plan.array_starts = NULL;
        plan.sequence_offsets = NULL;
    }
    fcp_error err;
    memset(sequences, 0, sizeof sequences);
    for (int i = 0; i < 3000; i++) arrays[i] = (fcp_array){.kind = FCP_FIELD, .width = MC_I8};
    plan.sequences_count = 6000;
    plan.arrays_count = 3000;
    cr_expect_eq(fcp_plan_index(&plan, &err), FCP_E_PLAN_FORMAT);
    cr_expect_str_eq(err.message, "3000 arrays for 6000 sequences");
    plan.arrays_count = 600;
    cr_expect_eq(fcp_plan_index(&plan, &err), FCP_OK);
    free(plan.array_starts);
    free(plan.sequence_offsets);
}

static uint32_t dims_read(const fcp_array *a) { return fcp_array_dims(a) ? fcp_array_dims(a) : 1; }

/* Is the record one of a field that the batch has all values of, in the bytes that it had before? Zeros lie behind
 * them, up to a multiple of 64. */
static bool is_sound(const tables *t, const fcp_array *now, const fcp_array *was) {
    static int64_t cells[400];
    uint64_t count = 0;
    const bool wider = was->width == MC_I8 && (now->width == MC_I16 || now->width == MC_I32 || now->width == MC_I64) &&
                       was->count * now->width <= (was->count + 63) / 64 * 64;
    if (now->width != was->width && !wider) return false;
    if (now->kind == FCP_TABLE && was->count && !was->heads && !was->q_cell && !was->k_cell) return true;
    if (now->kind != FCP_FIELD || now->pad || now->columns || now->offset != was->offset) return false;
    if (now->heads && now->heads != t->problem->heads && now->heads != t->problem->kv_heads) return false;
    if (now->q_cell > 1 << 30 || now->k_cell > 1 << 30 || now->lo > now->hi) return false;
    if (now->name >= t->names_count || (now->file != FCP_NONE && now->file >= t->names_count)) return false;
    for (uint64_t s = 0; s < t->sequences_count; s++) {
        const fcp_sequence *of = &t->sequences[s];
        const int64_t rows = cells_of(of->q_first, (int64_t)of->queries, now->q_cell, cells);
        count += (now->heads ? now->heads : 1) * (uint64_t)(rows * cells_of(0, (int64_t)of->keys, now->k_cell, cells));
    }
    return now->count == count && count == was->count && dims_read(now) == dims_read(was);
}

/* Every number of a field's record is changed, to anything and to what another field has: the plan is refused, unless
 * the record is sound all the same: larger cells may be as many, and numbers of sequences may be a table. */
Test(array_parts, damaged_records) {
    fcp_plan *plan = plan_of("model { heads = 4; kv_heads = 2; head_dim = 16 }\ncluster { gpus = 2 }\n"
                             "batch { lengths = [300, 120:300, 2]\n field p = [20, 70, 1] over sequences\n"
                             " field keep = [1 x 19, 0 x 6, 1 x 8, 0 x 3, 1 x 5] over queries / 64, keys / 64\n"
                             " field w = [0 x 12] over heads\n field doc = [1 x 602]\n"
                             " field slope = [0.5, 0.25, 1.0, -1.0, 0.0, 0.0] over kv_heads }\n"
                             "mask m = k < p or k <= q and keep[q / 64, k / 64] == 1 or w[h] > k + doc[k]\n"
                             "score x = s + slope[h / 2]\nplan { mask = m; score = x; block = 128 }");
    unsigned sound = 0, refused = 0;
    for (uint64_t i = 0; i < plan->arrays_count; i++)
        for (size_t word = 0; word < offsetof(fcp_array, lo) / 4; word++) {
            static const uint32_t odd[] = {0, 1, 2, 3, 4, 63, 65, 128, 400, 1 << 30, (1 << 30) + 1, UINT32_MAX};
            for (size_t x = 0; x < sizeof odd / sizeof *odd; x++) {
                tables t;
                fcp_error err;
                tables_copy(&t, plan);
                fcp_array *a = &t.arrays[i], was = *a;
                ((uint32_t *)a)[word] = odd[x];
                const bool same = !memcmp(a, &was, sizeof was);
                const bool want = same || is_sound(&t, a, &was);
                const fcp_code code = fcp_plan_check(tables_plan(&t), NULL, &err);
                cr_expect_eq(code, want ? FCP_OK : FCP_E_PLAN_FORMAT, "array %d, word %zu: %u: %s %s", (int)i, word,
                             odd[x], fcp_code_name(code), code ? err.message : "");
                sound += want && !same;
                refused += !want;
                tables_free(&t);
            }
        }
    cr_expect(sound > 10 && refused > 300, "%u sound, %u refused", sound, refused);
    fcp_plan_free(plan);
}
