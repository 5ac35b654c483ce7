/* data.c: checks the code of a plan's mask and score, and the arrays and slices that it reads; binds them to a
 * sequence.
 *
 * Requires: fcp_plan_check_data needs counts that match the pointers, and the plan's index; fcp_plan_env needs a
 *           checked plan.
 * Cost:     linear in nodes, arrays and bands. The values of arrays are not checked, because code is defined for all
 *           values.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/plan/file.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/sides.h"

typedef unsigned long long ull;

static uint32_t width_bytes(uint32_t width) { return width == MC_F64 ? 8 : width; }

static bool is_width(uint32_t width) {
    return width == MC_I8 || width == MC_I16 || width == MC_I32 || width == MC_I64 || width == MC_F64;
}

/* How many values a field must have, which its cells and the batch's sequences say. */
static uint64_t field_values(const fcp_plan *plan, uint64_t array) {
    const uint32_t n = (uint32_t)plan->sequences_count;
    return fcp_array_start(plan, array, n);
}

static bool is_field(const fcp_plan *plan, uint64_t array) {
    enum { CELL_MAX = 1 << 30 };
    const fcp_array *a = &plan->arrays[array];
    const fcp_problem *p = plan->problem;
    return !a->columns && a->q_cell <= CELL_MAX && a->k_cell <= CELL_MAX &&
           (!a->heads || a->heads == p->heads || a->heads == p->kv_heads) && a->count == field_values(plan, array);
}

static fcp_code check_arrays(const fcp_plan *plan, fcp_error *err) {
    uint64_t next = 0;
    if (plan->names_count && plan->names[plan->names_count - 1]) return malformed(err, "the names do not end");
    for (uint64_t i = 0; i < plan->arrays_count; i++) {
        const fcp_array *a = &plan->arrays[i];
        if (!(a->name < plan->names_count && (a->file == FCP_NONE || a->file < plan->names_count)))
            return malformed(err, "array %llu has no name", (ull)i);
        if (!(a->kind < FCP_ARRAY_KINDS && is_width(a->width) && a->lo <= a->hi && a->columns <= UINT32_MAX))
            return malformed(err, "array %llu: kind %u, width %u", (ull)i, a->kind, a->width);
        if (a->pad || (a->kind == FCP_TABLE && (a->heads || a->q_cell || a->k_cell)))
            return malformed(err, "array %llu: a table with cells, or padding", (ull)i);
        if (a->kind == FCP_FIELD && !is_field(plan, i))
            return malformed(err, "array %llu: %llu values over %u heads and cells of %u queries and %u keys", (ull)i,
                             (ull)a->count, a->heads, a->q_cell, a->k_cell);
        uint64_t bytes;
        if (!((a->count || a->kind != FCP_TABLE) &&
              !__builtin_mul_overflow(a->count, a->columns ? a->columns : 1, &bytes) &&
              !__builtin_mul_overflow(bytes, (uint64_t)width_bytes(a->width), &bytes) && a->offset == next &&
              bytes <= plan->data_count && next <= plan->data_count - bytes))
            return malformed(err, "array %llu: %llu elements at byte %llu of %llu", (ull)i, (ull)a->count,
                             (ull)a->offset, (ull)plan->data_count);
        next += bytes;
        while (next % FCP_FILE_ALIGN && next < plan->data_count)
            if (plan->data[next++]) return malformed(err, "array %llu: padding", (ull)i);
    }
    if (next != plan->data_count)
        return malformed(err, "%llu bytes of data, %llu of them in arrays", (ull)plan->data_count, (ull)next);
    return FCP_OK;
}

static int64_t edge_at(int64_t edge, int32_t slope, int64_t q) { return edge + (slope ? q : 0); }

/* Returns whether the bands of a record are not empty, in order, and apart in row q. The edges of bands are linear in
 * q. So if this holds in the first row and in the last, it holds in all rows between. */
static bool bands_in_order(const mc_band *bands, uint32_t count, int64_t q) {
    const int64_t far = INT64_C(1) << 42;
    if (q < -far || q > far) return count == 0;
    int64_t before = -2 * far - 1;
    for (uint32_t i = 0; i < count; i++) {
        const mc_band *b = &bands[i];
        if (b->lo < -far || b->lo > far || b->hi < -far || b->hi > far) return false;
        int64_t lo = edge_at(b->lo, b->lo_slope, q), hi = edge_at(b->hi, b->hi_slope, q);
        if (lo <= before || hi <= lo) return false;
        before = hi;
    }
    return true;
}

static fcp_code check_slices(const fcp_plan *plan, fcp_error *err) {
    uint64_t row = 0, band = 0;
    for (uint64_t i = 0; i < plan->slices_count; i++) {
        const fcp_slices *s = &plan->slices[i];
        if (!(s->first_row == row && s->first_band == band && s->rows && s->rows <= plan->band_rows_count - row &&
              s->bands <= plan->bands_count - band))
            return malformed(err, "slices %llu: rows from %u on, bands from %u on", (ull)i, s->first_row,
                             s->first_band);
        const mc_band_rows *r = plan->band_rows + row;
        uint64_t seen = 0; /* bands of all rows; no more than there are, so that this is linear */
        for (uint32_t j = 0; j < s->rows; j++) {
            bool last = j + 1 == s->rows;
            if (!(r[j].first <= s->bands && r[j].count <= s->bands - r[j].first && (j == 0 || r[j - 1].q < r[j].q) &&
                  (!last || r[j].count == 0)))
                return malformed(err, "slices %llu, rows %u: from row %lld on, bands %u, %u of them", (ull)i, j,
                                 (long long)r[j].q, r[j].first, r[j].count);
            seen += r[j].count;
            if (seen > s->bands) return malformed(err, "slices %llu, rows %u share bands with others", (ull)i, j);
        }
        for (uint32_t j = 0; j < s->bands; j++) {
            const mc_band *b = &plan->bands[band + j];
            if (!((b->lo_slope & ~1) == 0 && (b->hi_slope & ~1) == 0))
                return malformed(err, "slices %llu, band %u: slopes %d and %d", (ull)i, j, b->lo_slope, b->hi_slope);
        }
        for (uint32_t j = 0; j + 1 < s->rows; j++) {
            const mc_band *b = plan->bands + band + r[j].first;
            if (!(bands_in_order(b, r[j].count, r[j].q) && bands_in_order(b, r[j].count, r[j + 1].q - 1)))
                return malformed(err, "slices %llu, rows %u: bands that are empty, touch or are out of order", (ull)i,
                                 j);
        }
        row += s->rows;
        band += s->bands;
    }
    if (!(row == plan->band_rows_count && band == plan->bands_count))
        return malformed(err, "rows or bands of no slices");
    return FCP_OK;
}

static fcp_code check_code(const fcp_plan *plan, const mc_decls *decls, fcp_error *err) {
    const fcp_problem *p = plan->problem;
    uint32_t node = 0;
    mc_code mask = {plan->mask, (uint32_t)plan->mask_count}, score = {plan->score, (uint32_t)plan->score_count};
    mc_code slope = {plan->slope, (uint32_t)plan->slope_count};
    const char *wrong = mc_check(mask, MC_MASK, decls, &node);
    if (wrong) return malformed(err, "mask node %u: %s", node, wrong);
    if (p->mask_uses != mc_uses(mask))
        return malformed(err, "the mask uses %#x and is said to use %#x", mc_uses(mask), p->mask_uses);
    if (!score.count != !slope.count) return malformed(err, "a score without its derivative, or the reverse");
    wrong = score.count ? mc_check(score, MC_SCORE, decls, &node) : NULL;
    if (wrong) return malformed(err, "score node %u: %s", node, wrong);
    wrong = slope.count ? mc_check(slope, MC_SCORE, decls, &node) : NULL;
    if (wrong) return malformed(err, "slope node %u: %s", node, wrong);
    if (plan->sink_count && plan->sink_count != p->heads)
        return malformed(err, "%llu sinks for %u heads", (ull)plan->sink_count, p->heads);
    for (uint64_t h = 0; h < plan->sink_count; h++)
        if (!isfinite(plan->sink[h])) return malformed(err, "the sink of head %llu", (ull)h);
    return FCP_OK;
}

fcp_code fcp_plan_check_data(const fcp_plan *plan, fcp_error *err) {
    fcp_code code = check_arrays(plan, err);
    if (!code) code = check_slices(plan, err);
    if (code) return code;
    mc_array *arrays = calloc(plan->arrays_count + 1, sizeof *arrays);
    if (!arrays) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory to check %llu arrays", (ull)plan->arrays_count);
    for (uint64_t i = 0; i < plan->arrays_count; i++) {
        const uint32_t dims = fcp_array_dims(&plan->arrays[i]);
        arrays[i] = (mc_array){.columns = dims > 1, .planes = dims > 2, .width = (mc_width)plan->arrays[i].width};
    }
    const mc_decls decls = {arrays, (uint32_t)plan->arrays_count, (uint32_t)plan->slices_count};
    code = check_code(plan, &decls, err);
    free(arrays);
    return code;
}

mc_array fcp_array_part(const fcp_array *array, const void *data, uint64_t start, const mc_env *env) {
    mc_array out = {.data = data,
                    .count = (int64_t)array->count,
                    .columns = (int64_t)array->columns,
                    .width = (mc_width)array->width};
    if (array->kind == FCP_TABLE) return out;
    int64_t first[3] = {0}, count[3] = {1, 1, 1};
    uint32_t dims = 0;
    if (array->heads) count[dims++] = array->heads;
    if (array->q_cell) {
        const int64_t last = mc_wrap_add(env->q_first, mc_wrap_sub(env->queries, 1));
        first[dims] = mc_div(env->q_first, array->q_cell);
        count[dims] = env->queries ? mc_wrap_add(mc_wrap_sub(mc_div(last, array->q_cell), first[dims]), 1) : 0;
        dims++;
    }
    if (array->k_cell) count[dims++] = env->n / array->k_cell + (env->n % array->k_cell != 0);
    if (data) out.data = (const uint8_t *)data + start * width_bytes(array->width);
    const uint32_t row = dims == 3;
    if (dims == 3) out.planes = (uint32_t)count[0];
    out.first = first[row];
    out.count = count[row];
    if (dims < 2) return out;
    out.column_first = first[row + 1];
    out.columns = count[row + 1];
    if (!out.columns) out.count = 0, out.columns = 1; /* no elements, and still columns */
    return out;
}

uint64_t fcp_array_start(const fcp_plan *plan, uint64_t array, uint32_t sequence) {
    const fcp_array *a = &plan->arrays[array];
    if (a->kind == FCP_TABLE) return 0;
    if (plan->array_starts[array]) return plan->array_starts[array][sequence];
    return fcp_offsets(plan, fcp_array_is_over(a, FCP_QUERIES) ? FCP_QUERIES : FCP_KEYS)[sequence];
}

void fcp_plan_env(const fcp_plan *plan, uint32_t sequence, mc_array *arrays, mc_bands *bands, mc_env *out_env) {
    const fcp_sequence *of = &plan->sequences[sequence];
    *out_env = (mc_env){.n = (int64_t)of->keys,
                        .q_first = of->q_first,
                        .queries = (int64_t)of->queries,
                        .arrays = arrays,
                        .bands = bands};
    for (uint64_t i = 0; i < plan->arrays_count; i++)
        arrays[i] = fcp_array_part(&plan->arrays[i], plan->data + plan->arrays[i].offset,
                                   fcp_array_start(plan, i, sequence), out_env);
    for (uint64_t i = 0; i < plan->slices_count; i++) {
        const fcp_slices *s = &plan->slices[i];
        bands[i] = (mc_bands){plan->band_rows + s->first_row, plan->bands + s->first_band, s->rows, s->bands};
    }
}
