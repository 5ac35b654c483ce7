/* diagonal.c: lists the cells of stretches in which the mask depends on q - k alone: each diagonal is solved once. A
 * stretch is a rectangle of units, which are either cells or pairs of pieces of one size.
 *
 * Requires, units: as in cells.c; a mask that depends on q - k alone in the stretch, and cannot fault there.
 * Gives: for each row of units, from left to right: of cells the runs of FULL and PARTIAL ones; of pairs of pieces one
 *      entry each, with its shape.
 * How: under `q - k < 4096` the cell in row 40 and column 8 holds the same as the cell in row 41 and column 9. In
 *      general a unit in row r and column c of a stretch holds the same as every other with the same t = r - c.
 *      1. A list says what the units of each t hold. It is made by halving a range of t until the mask is all or
 *         nothing in it, or one t is left. It is kept for all stretches with the same mask.
 *      2. Each row of units is a part of that list, read from right to left.
 *      3. The last unit of a row or a column may be cut short. If the list has FULL or NONE for the whole unit, the cut
 *         one is the same. If not, it is looked up by t and its own height and width.
 * Cost: a stretch whose list is known: O(nodes of the mask + runs or entries written). A new one: besides, O(nodes) for
 *      each range of t that is looked at, and the cost of each unit that is solved.
 */
#include "compiler/cells/cells_parts.h"
#include "compiler/base/bisect.h"

#include <string.h>

#define FULL UINT64_MAX /* the value of a FULL unit; else a cell has its pairs and a piece its shape */

/* --- finding ---------------------------------------------------------------------------------------------------- */

typedef struct finder {
    cells *c;
    const box *b; /* the stretch */
    int64_t unit;
    bool pieces;
    size_t base; /* its runs in c->found begin here. Finders nest: the shape of a piece has diagonals of cells */
} finder;

/* The value of a MIXED unit; *out_any is false if it has no pairs after all. */
static fcp_code unit_value(cells *c, const box *unit, const box_program *p, bool pieces, uint64_t *out, bool *out_any) {
    uint64_t area = 0;
    if (pieces) {
        uint32_t shape = FCP_NONE;
        fcp_code code = cells_pair_shape(c, unit, p, &shape);
        *out = shape;
        *out_any = shape != FCP_NONE;
        return code;
    }
    fcp_code code = cells_cell_pairs(c, unit, p, out);
    if (code == FCP_OK) code = cells_box_area(unit, &area);
    if (code != FCP_OK) return code;
    *out_any = *out != 0;
    if (*out == area) *out = FULL;
    return FCP_OK;
}

static fcp_code add_found(finder *f, int64_t first, int64_t end, uint64_t value) {
    cells *c = f->c;
    diagonal_run *last = c->found_count > f->base ? &c->found[c->found_count - 1] : NULL;
    if (last && last->end == first && last->value == value) {
        last->end = end;
        return FCP_OK;
    }
    if (!FCP_GROW(c->found, c->found_room, c->found_count + 1)) return FCP_E_NO_MEMORY;
    c->found[c->found_count++] = (diagonal_run){first, end, value};
    return FCP_OK;
}

/* Appends the runs of whole units with t in [first, end). */
static fcp_code find_runs(finder *f, int64_t first, int64_t end, const box_program *p) {
    cells *c = f->c;
    if (cells_stopped(c)) return FCP_E_INTERRUPTED;
    box d = *f->b; /* the units of one column that have these t */
    d.lo[BOX_Q] = f->b->lo[BOX_Q] + first * f->unit;
    d.hi[BOX_Q] = f->b->lo[BOX_Q] + end * f->unit;
    d.hi[BOX_K] = f->b->lo[BOX_K] + f->unit;
    stack_mark mark = stack_here(&c->stack);
    box_class cls;
    fcp_code code = cells_classify(c, &d, &p, &cls);
    if (code == FCP_OK && cls == BOX_FULL) {
        code = add_found(f, first, end, FULL);
    } else if (code == FCP_OK && cls == BOX_MIXED && end - first > 1) {
        int64_t middle = first + (end - first) / 2;
        code = find_runs(f, first, middle, p);
        if (code == FCP_OK) code = find_runs(f, middle, end, p);
    } else if (code == FCP_OK && cls == BOX_MIXED) {
        uint64_t value = 0;
        bool any = false;
        for (int i = 0; first < 0 && i < 2; i++) { /* above the corner: moved along the diagonal into the stretch */
            d.lo[i] -= first * f->unit;
            d.hi[i] -= first * f->unit;
        }
        code = unit_value(c, &d, p, f->pieces, &value, &any);
        if (code == FCP_OK && any) code = add_found(f, first, end, value);
    }
    stack_back(&c->stack, mark);
    return code;
}

/* Extends the known diagonals of a mask to all t in [lo, hi). Only those before and after the known ones are solved.
 * Every range that is asked for includes t = 0, so what was known and what is new leave no gap. */
static fcp_code extend_diagonals(finder *f, int64_t lo, int64_t hi, const box_program *p, uint32_t number) {
    cells *c = f->c;
    diagonals d = c->diagonals[number];
    if (d.lo <= lo && hi <= d.hi) return FCP_OK;
    f->base = c->found_count;
    fcp_code code = lo < d.lo ? find_runs(f, lo, d.lo, p) : FCP_OK;
    if (code == FCP_OK && !FCP_GROW(c->found, c->found_room, c->found_count + d.count)) code = FCP_E_NO_MEMORY;
    if (code == FCP_OK && d.count) {
        memcpy(c->found + c->found_count, d.runs, d.count * sizeof *d.runs);
        c->found_count += d.count;
    }
    if (code == FCP_OK && hi > d.hi) code = find_runs(f, d.hi, hi, p);
    size_t count = c->found_count - f->base;
    c->found_count = f->base;
    if (code != FCP_OK) return code;
    d.runs = ARENA_NEW(&c->keys, diagonal_run, count);
    if (!d.runs) return FCP_E_NO_MEMORY;
    if (count) memcpy(d.runs, c->found + f->base, count * sizeof *d.runs);
    d.count = count;
    if (lo < d.lo) d.lo = lo;
    if (hi > d.hi) d.hi = hi;
    c->diagonals[number] = d;
    return FCP_OK;
}

fcp_code cells_find_diagonals(cells *c, const box *b, uint64_t unit, bool pieces, const box_program *p, uint32_t *out) {
    size_t words = cells_box_words(c, ANSWER_DIAGONALS, b, p);
    c->key[1] = (int64_t)unit; /* in place of the sides: the size of the stretch does not matter */
    c->key[2] = pieces;
    uint64_t hash = memo_hash(c->key, words);
    const memo_entry *known = memo_find(&c->memo, c->key, words, hash);
    if (known) {
        *out = (uint32_t)known->answer[0];
    } else {
        if (!FCP_GROW(c->diagonals, c->diagonals_room, c->diagonals_count + 1)) return FCP_E_NO_MEMORY;
        *out = (uint32_t)c->diagonals_count;
        const uint64_t answer[3] = {*out};
        c->diagonals[c->diagonals_count++] = (diagonals){0};
        if (!memo_add(&c->memo, &c->keys, c->key, words, hash, answer)) return FCP_E_NO_MEMORY;
    }
    int64_t whole_rows = (int64_t)(box_side(b, BOX_Q) / unit), whole_cols = (int64_t)(box_side(b, BOX_K) / unit);
    if (whole_rows == 0 || whole_cols == 0) return FCP_OK;
    finder f = {.c = c, .b = b, .unit = (int64_t)unit, .pieces = pieces};
    return extend_diagonals(&f, 1 - whole_cols, whole_rows, p, *out);
}

/* --- emitting --------------------------------------------------------------------------------------------------- */

/* Writes columns [first, end) of the stretch, which are FULL. */
static fcp_code emit_full(const diagonal_row *d, int64_t first, int64_t end) {
    uint64_t height = box_side(&d->b, BOX_Q), width = box_side(&d->b, BOX_K), from = (uint64_t)first * d->unit;
    uint64_t to = (uint64_t)end * d->unit < width ? (uint64_t)end * d->unit : width;
    uint32_t col = d->col + (uint32_t)first, count = (uint32_t)(end - first);
    if (!d->pieces) {
        uint64_t area = height * (to - from) * box_side(&d->b, BOX_H);
        return cells_add_cells(d->c, d->row, col, count, area, area);
    }
    uint32_t shape, whole = (uint32_t)((to - from) / d->unit), rest = (uint32_t)((to - from) % d->unit);
    fcp_code code = FCP_OK;
    if (whole) code = cells_full_shape(d->c, (uint32_t)height, (uint32_t)d->unit, &shape);
    if (code == FCP_OK && whole) code = cells_add_entries(d->c, d->row, col, whole, shape);
    if (code == FCP_OK && rest) code = cells_full_shape(d->c, (uint32_t)height, rest, &shape);
    if (code == FCP_OK && rest) code = cells_add_entries(d->c, d->row, col + whole, 1, shape);
    return code;
}

/* The value of a unit on diagonal t that is cut short. */
static fcp_code cut_value(const diagonal_row *d, const box *unit, int64_t t, uint64_t *out, bool *out_any) {
    cells *c = d->c;
    const int64_t key[4] = {ANSWER_CUT, (int64_t)d->number, t,
                            (int64_t)(box_side(unit, BOX_Q) << 32 | box_side(unit, BOX_K))};
    uint64_t hash = memo_hash(key, 4);
    const memo_entry *known = memo_find(&c->memo, key, 4, hash);
    if (known) {
        c->stats.memo_hits++;
        *out = known->answer[0];
        *out_any = known->answer[1];
        return FCP_OK;
    }
    stack_mark mark = stack_here(&c->stack);
    const box_program *p = d->program;
    box_class cls;
    fcp_code code = cells_classify(c, unit, &p, &cls);
    *out = FULL;
    *out_any = cls != BOX_NONE;
    if (code == FCP_OK && cls == BOX_MIXED) code = unit_value(c, unit, p, d->pieces, out, out_any);
    stack_back(&c->stack, mark);
    const uint64_t answer[3] = {*out, *out_any};
    if (code == FCP_OK && !memo_add(&c->memo, &c->keys, key, 4, hash, answer)) code = FCP_E_NO_MEMORY;
    return code;
}

/* Writes columns [first, end) of the stretch, one by one, as units that may be cut short. */
static fcp_code emit_cut(const diagonal_row *d, int64_t first, int64_t end) {
    fcp_code code = FCP_OK;
    for (int64_t i = first; i < end && code == FCP_OK; i++) {
        box unit = d->b;
        uint64_t value;
        bool any;
        if (cells_stopped(d->c)) return FCP_E_INTERRUPTED;
        unit.lo[BOX_K] += i * (int64_t)d->unit;
        if (unit.lo[BOX_K] + (int64_t)d->unit < unit.hi[BOX_K]) unit.hi[BOX_K] = unit.lo[BOX_K] + (int64_t)d->unit;
        code = cut_value(d, &unit, d->r - i, &value, &any);
        if (code != FCP_OK || !any) continue;
        if (value == FULL) code = emit_full(d, i, i + 1);
        else if (d->pieces) code = cells_add_entries(d->c, d->row, d->col + (uint32_t)i, 1, (uint32_t)value);
        else code = cells_add_cells(d->c, d->row, d->col + (uint32_t)i, 1, value, UINT64_MAX);
    }
    return code;
}

fcp_code cells_emit_diagonals(const diagonal_row *row) {
    const diagonals d = row->c->diagonals[row->number];
    const int64_t unit = (int64_t)row->unit, r = row->r;
    const int64_t width = (int64_t)box_side(&row->b, BOX_K), cols = (width + unit - 1) / unit;
    /* how many whole units this row has: none, if the row itself is cut short */
    const int64_t whole = (int64_t)box_side(&row->b, BOX_Q) == unit ? width / unit : 0;
    size_t low = 0, high = d.count; /* low: how many runs begin at r or before */
    BISECT(low, high, i, d.runs[i].first <= r)
    /* columns before `known` and from `known_end` on hold only units that are cut short, which are not in the runs */
    int64_t known = r >= d.hi ? r - d.hi + 1 : 0, known_end = r - d.lo + 1 < cols ? r - d.lo + 1 : cols;
    if (known > cols) known = cols;
    fcp_code code = emit_cut(row, 0, known);
    for (size_t i = low; i-- > 0 && code == FCP_OK;) {
        const diagonal_run *run = &d.runs[i]; /* t = r - column */
        int64_t first = r - run->end + 1 > known ? r - run->end + 1 : known;
        int64_t end = r - run->first + 1 < known_end ? r - run->first + 1 : known_end;
        if (first >= known_end) break;
        if (first >= end) continue;
        if (run->value == FULL) {
            code = emit_full(row, first, end);
            continue;
        }
        int64_t middle = whole < first ? first : whole < end ? whole : end;
        uint32_t col = row->col + (uint32_t)first, count = (uint32_t)(middle - first);
        if (count && row->pieces) code = cells_add_entries(row->c, row->row, col, count, (uint32_t)run->value);
        else if (count) code = cells_add_cells(row->c, row->row, col, count, run->value * count, UINT64_MAX);
        if (code == FCP_OK) code = emit_cut(row, middle, end);
    }
    if (code == FCP_OK) code = emit_cut(row, known_end > known ? known_end : known, cols);
    return code;
}
