/* array_extremes.c: finds the least and the greatest elements of arrays over any range, and the keys that slices let
 * rows see.
 *
 * Requires: a checked plan.
 * Method:   trees of minima and maxima answer for ranges. A group of level i + 1 has FCP_PAIRS_FAN groups of level i,
 *           and a range is a few groups of each level.
 *           Slices let a row see some intervals of keys, its bands, which are in order and do not touch. A record has
 *           the bands of a run of neighbouring rows, and their edges are linear in the row. So an edge is least or
 *           greatest at the record's first or last row, and only these two rows are looked at.
 * Cost:     to open: linear in the arrays and slices that the mask reads. A range: logarithmic in its length. Memory:
 *           16 bytes for every 15 elements, and 68 for each record of rows.
 */
#include <stdlib.h>

#include "runtime/base/stop.h"
#include "runtime/pairs/pairs_parts.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/plan_arrays.h"

/* UNIT: how many elements of an array have one entry in level 0 of its tree. Elements at the ends of a range that fill
 * no such group are looked at one by one. */
enum { UNIT = FCP_PAIRS_FAN, FEW_RECORDS = 64, BETWEEN_STOPS = 1 << 16 };

static void widen(int64_t lo, int64_t hi, int64_t *least, int64_t *greatest) {
    if (lo < *least) *least = lo;
    if (hi > *greatest) *greatest = hi;
}

/* Makes room for a tree of `count` groups at level 0. */
static bool tree_open(pairs_tree *t, uint64_t count) {
    uint64_t groups = count, all = 0;
    t->levels = 0;
    do {
        t->count[t->levels++] = groups;
        all += groups;
        groups = (groups + FCP_PAIRS_FAN - 1) / FCP_PAIRS_FAN;
    } while (t->count[t->levels - 1] > 1 && t->levels < FCP_PAIRS_LEVELS);
    int64_t *room = all <= SIZE_MAX / 32 ? malloc((size_t)(all + 1) * 2 * sizeof *room) : NULL;
    t->room = room;
    for (int i = 0; room && i < t->levels; i++) {
        t->least[i] = room;
        t->greatest[i] = room + t->count[i];
        room += 2 * t->count[i];
    }
    return t->room;
}

/* Fills the other levels from level 0. */
static void tree_fill(pairs_tree *t) {
    for (int i = 1; i < t->levels; i++)
        for (uint64_t g = 0; g < t->count[i]; g++) {
            uint64_t from = g * FCP_PAIRS_FAN, to = from + FCP_PAIRS_FAN;
            if (to > t->count[i - 1]) to = t->count[i - 1];
            int64_t lo = INT64_MAX, hi = INT64_MIN;
            for (uint64_t j = from; j < to; j++) widen(t->least[i - 1][j], t->greatest[i - 1][j], &lo, &hi);
            t->least[i][g] = lo;
            t->greatest[i][g] = hi;
        }
}

/* Widens [*lo, *hi] by groups [from, to) of level 0. */
static void tree_range(const pairs_tree *t, uint64_t from, uint64_t to, int64_t *lo, int64_t *hi) {
    for (int i = 0; from < to; i++) {
        const bool top = i + 1 == t->levels;
        const int64_t *least = t->least[i], *greatest = t->greatest[i];
        for (; from < to && (top || from % FCP_PAIRS_FAN); from++) widen(least[from], greatest[from], lo, hi);
        for (; from < to && to % FCP_PAIRS_FAN; to--) widen(least[to - 1], greatest[to - 1], lo, hi);
        from /= FCP_PAIRS_FAN;
        to /= FCP_PAIRS_FAN;
    }
}

/* --- arrays ------------------------------------------------------------------------------------------------------- */

static mc_array whole_array(const fcp_plan *plan, uint32_t id) {
    const fcp_array *a = &plan->arrays[id];
    return (mc_array){.data = plan->data + a->offset, .width = (mc_width)a->width};
}

static fcp_code array_open(pairs_facts *f, uint32_t id, const volatile int *stop, fcp_error *err) {
    const fcp_array *a = &f->plan->arrays[id];
    const mc_array all = whole_array(f->plan, id);
    const uint64_t count = fcp_array_values(a);
    pairs_tree *t = &f->array[id];
    if (t->room) return FCP_OK;
    if (!tree_open(t, (count + UNIT - 1) / UNIT))
        return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for the extremes of an array");
    for (uint64_t g = 0; g < t->count[0]; g++) {
        int64_t lo = INT64_MAX, hi = INT64_MIN;
        if (g % BETWEEN_STOPS == 0 && fcp_stop_asked(stop)) return fcp_fail(err, FCP_E_INTERRUPTED, "interrupted");
        for (uint64_t i = g * UNIT; i < count && i < (g + 1) * UNIT; i++) {
            const int64_t x = mc_int_at(&all, i);
            widen(x, x, &lo, &hi);
        }
        t->least[0][g] = lo;
        t->greatest[0][g] = hi;
    }
    tree_fill(t);
    return FCP_OK;
}

void fcp_pairs_extremes(const pairs_facts *f, uint32_t array, const mc_array *part, uint64_t from, uint64_t to,
                        int64_t *lo, int64_t *hi) {
    const mc_array all = whole_array(f->plan, array);
    const uint64_t skip = (uint64_t)((const uint8_t *)part->data - (const uint8_t *)all.data) / (uint64_t)all.width;
    from += skip;
    to += skip;
    for (; from < to && from % UNIT; from++) widen(mc_int_at(&all, from), mc_int_at(&all, from), lo, hi);
    for (; from < to && to % UNIT; to--) widen(mc_int_at(&all, to - 1), mc_int_at(&all, to - 1), lo, hi);
    tree_range(&f->array[array], from / UNIT, to / UNIT, lo, hi);
}

/* --- slices ------------------------------------------------------------------------------------------------------- */

static mc_bands bands_of(const pairs_facts *f, uint32_t id) {
    const fcp_slices *s = &f->plan->slices[id];
    return (mc_bands){f->plan->band_rows + s->first_row, f->plan->bands + s->first_band, s->rows, s->bands};
}

static int64_t begin_at(const mc_band *b, int64_t row) { return b->lo + (b->lo_slope ? row : 0); }
static int64_t end_at(const mc_band *b, int64_t row) { return b->hi + (b->hi_slope ? row : 0); }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t greater(int64_t a, int64_t b) { return a > b ? a : b; }

static fcp_code bands_open(pairs_facts *f, uint32_t id, const volatile int *stop, fcp_error *err) {
    const mc_bands b = bands_of(f, id);
    pairs_bands *out = &f->bands[id];
    if (out->reach.room) return FCP_OK;
    if (!tree_open(&out->reach, b.row_count) || !tree_open(&out->whole, b.row_count))
        return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for the reach of slices");
    for (uint32_t i = 0; i < b.row_count; i++) {
        const mc_band_rows *r = &b.rows[i];
        int64_t least = INT64_MAX, most = INT64_MIN, end = INT64_MIN, begin = INT64_MAX;
        if (i % BETWEEN_STOPS == 0 && fcp_stop_asked(stop)) return fcp_fail(err, FCP_E_INTERRUPTED, "interrupted");
        if (r->count) {
            const mc_band *first = b.bands + r->first, *last = first + r->count - 1;
            const int64_t from = r->q, to = r[1].q - 1; /* the last record has no bands */
            least = smaller(begin_at(first, from), begin_at(first, to));
            most = greater(end_at(last, from), end_at(last, to));
            if (first == last) {
                end = smaller(end_at(last, from), end_at(last, to));
                begin = greater(begin_at(first, from), begin_at(first, to));
            }
        }
        out->reach.least[0][i] = least;
        out->reach.greatest[0][i] = most;
        out->whole.least[0][i] = end;
        out->whole.greatest[0][i] = begin;
    }
    tree_fill(&out->reach);
    tree_fill(&out->whole);
    return FCP_OK;
}

/* The first band of a record that ends behind key c0 in some row of [r0, r1]. In each row the bands are in order, so
 * halving finds the first one that ends behind c0. The ends are linear in the row, so it is enough to look at rows r0
 * and r1. */
static const mc_band *first_ahead(const mc_band *bands, uint32_t count, int64_t r0, int64_t r1, int64_t c0) {
    uint32_t lo = 0, hi = count;
    while (lo < hi) {
        const uint32_t middle = lo + (hi - lo) / 2;
        if (end_at(&bands[middle], r0) > c0 || end_at(&bands[middle], r1) > c0) hi = middle;
        else lo = middle + 1;
    }
    return bands + lo;
}

/* Answers for rows [r0, r1] that are all of one record. *out_band: the first band that may reach into the keys; NULL:
 * none does. */
static pairs_answer in_record(const mc_bands *b, const mc_band_rows *r, int64_t r0, int64_t r1, int64_t c0, int64_t c1,
                              const mc_band **out_band) {
    const mc_band *all = b->bands + r->first, *x = first_ahead(all, r->count, r0, r1, c0);
    *out_band = NULL;
    if (x == all + r->count || smaller(begin_at(x, r0), begin_at(x, r1)) > c1) return FCP_PAIRS_NONE;
    *out_band = x;
    const bool covers = greater(begin_at(x, r0), begin_at(x, r1)) <= c0 && smaller(end_at(x, r0), end_at(x, r1)) > c1;
    return covers ? FCP_PAIRS_ALL : FCP_PAIRS_MIXED;
}

pairs_answer fcp_pairs_in_bands(const pairs_facts *f, uint32_t bands, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
    const mc_bands b = bands_of(f, bands);
    const mc_band_rows *last = mc_band_row(&b, r1), *first = mc_band_row(&b, r0), *at = first ? first : b.rows;
    bool none = true, all = first != NULL;
    if (!last) return FCP_PAIRS_NONE;
    if (last - at >= FEW_RECORDS) {
        const uint64_t from = (uint64_t)(at - b.rows), to = (uint64_t)(last - b.rows) + 1;
        int64_t least = INT64_MAX, most = INT64_MIN, end = INT64_MAX, begin = INT64_MIN;
        tree_range(&f->bands[bands].reach, from, to, &least, &most);
        if (least > c1 || most <= c0) return FCP_PAIRS_NONE;
        tree_range(&f->bands[bands].whole, from, to, &end, &begin);
        return all && begin <= c0 && end > c1 ? FCP_PAIRS_ALL : FCP_PAIRS_MIXED;
    }
    for (; at <= last; at++) {
        const mc_band *band;
        const int64_t to = at < last ? at[1].q - 1 : r1;
        const pairs_answer here = at->count ? in_record(&b, at, greater(r0, at->q), to, c0, c1, &band) : FCP_PAIRS_NONE;
        none &= here == FCP_PAIRS_NONE;
        all &= here == FCP_PAIRS_ALL;
        if (!none && !all) return FCP_PAIRS_MIXED;
    }
    return none ? FCP_PAIRS_NONE : FCP_PAIRS_ALL;
}

const mc_band *fcp_pairs_only_band(const pairs_facts *f, uint32_t bands, int64_t r0, int64_t r1, int64_t c0,
                                   int64_t c1) {
    const mc_bands b = bands_of(f, bands);
    const mc_band_rows *r = mc_band_row(&b, r0);
    const mc_band *band;
    if (!r || r != mc_band_row(&b, r1) || !r->count) return NULL;
    if (in_record(&b, r, r0, r1, c0, c1, &band) == FCP_PAIRS_NONE) return NULL;
    const mc_band *next = band + 1;
    if (next < b.bands + r->first + r->count && smaller(begin_at(next, r0), begin_at(next, r1)) <= c1) return NULL;
    return band;
}

/* --- both --------------------------------------------------------------------------------------------------------- */

fcp_code fcp_pairs_facts_open(pairs_facts *f, const fcp_plan *plan, const volatile int *stop, fcp_error *err) {
    *f = (pairs_facts){.plan = plan,
                       .array = calloc((size_t)plan->arrays_count + 1, sizeof *f->array),
                       .bands = calloc((size_t)plan->slices_count + 1, sizeof *f->bands)};
    if (!f->array || !f->bands) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory to look at a mask");
    fcp_code code = FCP_OK;
    for (uint64_t i = 0; i < plan->mask_count && !code; i++) {
        const mc_node *x = &plan->mask[i];
        if (mc_loads_int(x->op)) code = array_open(f, (uint32_t)x->imm, stop, err);
        if (x->op == MC_BANDS) code = bands_open(f, (uint32_t)x->imm, stop, err);
    }
    return code;
}

void fcp_pairs_facts_close(pairs_facts *f) {
    for (uint64_t i = 0; f->array && i < f->plan->arrays_count; i++) free(f->array[i].room);
    for (uint64_t i = 0; f->bands && i < f->plan->slices_count; i++) {
        free(f->bands[i].reach.room);
        free(f->bands[i].whole.room);
    }
    free(f->array);
    free(f->bands);
}
