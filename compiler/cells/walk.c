/* walk.c: lists the cells of a piece pair, or the piece pairs of a sequence, in order.
 *
 * Requires, units: as in cells.c.
 * Gives: entries in order of (query piece, key piece), or runs in order of (row, column).
 * How: a *unit* is a cell, or a piece. A span is a stretch of columns with what is known of the mask there.
 *      1. The walk begins with all rows of units, and one undecided span of all columns.
 *      2. The rows are halved. For each half, each undecided span is split until every part is FULL, or NONE and
 *         dropped, or no wider than there are rows. Spans that are decided already are passed on as they are.
 *      3. Step 2 is repeated for each half until one row is left. Each of its spans is then FULL, or counted, or a
 *         single unit.
 *      4. The row is written from left to right. So lists come out in order without being sorted.
 *      Rows and columns are split where the program changes (box_turn), so a mask of blocks falls into decided parts at
 *      once. If it does not change, they are split in the middle. If a span's program does not depend on q, one query
 *      is solved for all of them; likewise for k.
 *      A cell whose pairs must be evaluated one by one is first written as a placeholder. When enough such cells have
 *      been collected, they are counted together and the placeholders are replaced.
 * Cost: O((boundary + rows) * nodes).
 */
#include "compiler/cells/cells_parts.h"
#include "compiler/base/bisect.h"

#include <string.h>

typedef struct walk {
    cells *c;
    units rows, cols;
    uint64_t unit; /* the length of every unit, but that the last of a side may be shorter; 0: lengths differ */
    bool pieces;
} walk;

enum { TURN_DEPTH = 40 }; /* below this depth splits are in the middle, which bounds the depth */

/* --- units ------------------------------------------------------------------------------------------------------ */

static int64_t unit_at(const units *u, uint32_t i) {
    if (u->cuts) return u->start + (int64_t)u->cuts[i];
    int64_t at = u->start + (int64_t)i * FCP_CELL;
    return at < u->end ? at : u->end;
}

/* The unit of [first, end) that holds a position. */
static uint32_t unit_of(const units *u, uint32_t first, uint32_t end, int64_t position) {
    const uint64_t after = (uint64_t)(position - u->start);
    if (!u->cuts) return (uint32_t)(after / FCP_CELL);
    uint32_t next = first + 1;
    BISECT(next, end, i, u->cuts[i] <= after)
    return next - 1;
}

static units cell_units(int64_t start, int64_t end) {
    return (units){.start = start, .end = end, .count = (uint32_t)((end - start + FCP_CELL - 1) / FCP_CELL)};
}

static box units_box(const walk *w, uint32_t r0, uint32_t r1, uint32_t c0, uint32_t c1) {
    return make_box(w->c, unit_at(&w->rows, r0), unit_at(&w->rows, r1), unit_at(&w->cols, c0), unit_at(&w->cols, c1));
}

/* Where to split units [first, end), of which there are at least two, in dimension d: first < result < end. */
static uint32_t split_units(const units *u, uint32_t first, uint32_t end, const box_program *p, const box *b, int d,
                      unsigned depth) {
    int64_t at;
    if (p && depth < TURN_DEPTH && box_turn(p, b, d, &at)) {
        uint32_t unit = unit_of(u, first, end, at);
        return unit > first ? unit : first + 1;
    }
    return first + (end - first) / 2;
}

/* --- emitting --------------------------------------------------------------------------------------------------- */

/* A run with this class is a placeholder for an open cell; its `count` is the number of the cell in c->open. */
enum { CLASS_OPEN = 3, OPEN_MAX = 4096 };
_Static_assert((int)FCP_CELL_FULL < CLASS_OPEN && (int)FCP_CELL_PARTIAL < CLASS_OPEN, "a class of its own");

static fcp_code add_run(cells *c, uint32_t row, uint32_t col, uint32_t count, uint32_t cls) {
    if (c->row_run_count) {
        fcp_run *last = &c->row_runs[c->row_run_count - 1];
        if (cls != CLASS_OPEN && last->row == row && last->cls == cls && last->col + last->count == col) {
            last->count += count;
            return FCP_OK;
        }
    }
    if (!FCP_GROW(c->row_runs, c->row_run_room, c->row_run_count + 1)) return FCP_E_NO_MEMORY;
    c->row_runs[c->row_run_count++] = (fcp_run){.row = row, .col = col, .count = count, .cls = cls};
    return FCP_OK;
}

fcp_code cells_add_cells(cells *c, uint32_t row, uint32_t col, uint32_t count, uint64_t pairs, uint64_t area) {
    if (__builtin_add_overflow(c->shape_pairs, pairs, &c->shape_pairs)) return FCP_E_PLAN_SIZE;
    return add_run(c, row, col, count, pairs == area ? FCP_CELL_FULL : FCP_CELL_PARTIAL);
}

/* Counts the open cells, and replaces their placeholders by runs. */
static fcp_code settle_open(cells *c) {
    fcp_code code = cells_count_open(c);
    const size_t first = c->row_run_open, end = c->row_run_count;
    c->row_run_count = first; /* writing never overtakes reading */
    for (size_t i = first; i < end && code == FCP_OK; i++) {
        const fcp_run run = c->row_runs[i];
        if (run.cls == CLASS_OPEN) {
            const open_cell *o = &c->open[run.count];
            if (o->pairs) code = cells_add_cells(c, run.row, run.col, 1, o->pairs, o->area);
        } else {
            code = add_run(c, run.row, run.col, run.count, run.cls);
        }
    }
    c->row_run_open = c->row_run_count;
    cells_close_open(c);
    return code;
}

static fcp_code emit_cell_later(cells *c, const box *cell, uint32_t row, uint32_t col, const box_program *p) {
    uint64_t pairs, area;
    uint32_t open;
    fcp_code code = cells_cell_later(c, cell, p, &pairs, &open);
    if (code == FCP_OK && open == FCP_NONE) code = cells_box_area(cell, &area);
    if (code != FCP_OK) return code;
    if (open == FCP_NONE) return pairs ? cells_add_cells(c, row, col, 1, pairs, area) : FCP_OK;
    code = add_run(c, row, col, open, CLASS_OPEN);
    return code == FCP_OK && c->open_count >= OPEN_MAX ? settle_open(c) : code;
}

static fcp_code emit_cells(walk *w, uint32_t row, const unit_span *s) {
    cells *c = w->c;
    box b = units_box(w, row, row + 1, s->first, s->end);
    uint64_t pairs, area;
    fcp_code code = cells_box_area(&b, &area);
    if (code != FCP_OK) return code;
    if (s->kind == SPAN_FULL) {
        pairs = area;
    } else if (s->kind == SPAN_ALIKE) {
        pairs = s->pairs * box_side(&b, BOX_Q);
    } else if (s->end - s->first == 1) {
        return emit_cell_later(c, &b, row, s->first, s->program);
    } else { /* cells that have the same pairs in each column; the last may be narrower */
        box cell = units_box(w, row, row + 1, s->first, s->first + 1);
        code = cells_cell_pairs(c, &cell, s->program, &pairs);
        if (code != FCP_OK) return code;
        pairs = pairs / box_side(&cell, BOX_K) * box_side(&b, BOX_K);
    }
    return pairs ? cells_add_cells(c, row, s->first, s->end - s->first, pairs, area) : FCP_OK;
}

fcp_code cells_add_entries(cells *c, uint32_t row, uint32_t col, uint32_t count, uint32_t shape) {
    if (!FCP_GROW(c->entries, c->entry_room, c->entry_count + count)) return FCP_E_NO_MEMORY;
    cell_entry *to = c->entries + c->entry_count;
    for (uint32_t i = 0; i < count; i++) to[i] = (cell_entry){.q_piece = row, .k_piece = col + i, .shape = shape};
    c->entry_count += count;
    return FCP_OK;
}

static inline fcp_code add_sum(cells *c, uint32_t row, uint32_t col, uint64_t pairs) {
    if (c->sum_count >= SHAPE_NONE) return FCP_E_PLAN_SIZE;
    if (!FCP_GROW(c->sums, c->sum_room, c->sum_count + 1)) return FCP_E_NO_MEMORY;
    c->sums[c->sum_count] = pairs;
    return cells_add_entries(c, row, col, 1, SHAPE_NONE + (uint32_t)c->sum_count++);
}

fcp_code cells_add_sum(cells *c, uint32_t row, uint32_t col, uint64_t pairs) { return add_sum(c, row, col, pairs); }

/* Adds an entry for a piece pair whose pairs can be counted without making its shape (regions.c). */
static fcp_code emit_sum(walk *w, uint32_t row, const unit_span *s, const box *b, bool *out_counted) {
    cells *c = w->c;
    uint64_t pairs;
    fcp_code code = cells_box_pairs(c, b, s->program, &pairs, out_counted);
    return code != FCP_OK || !*out_counted || !pairs ? code : add_sum(c, row, s->first, pairs);
}

static fcp_code emit_pieces(walk *w, uint32_t row, const unit_span *s) {
    cells *c = w->c;
    const uint64_t *cuts = w->cols.cuts;
    uint32_t q_length = (uint32_t)(w->rows.cuts[row + 1] - w->rows.cuts[row]), shape = FCP_NONE;
    if (s->kind == SPAN_OPEN) {
        box b = units_box(w, row, row + 1, s->first, s->end);
        bool counted = false;
        fcp_code code = c->pairs_only ? emit_sum(w, row, s, &b, &counted) : FCP_OK;
        if (code != FCP_OK || counted) return code;
        code = cells_pair_shape(c, &b, s->program, &shape);
        return code != FCP_OK || shape == FCP_NONE ? code : cells_add_entries(c, row, s->first, 1, shape);
    }
    for (uint32_t i = s->first, end; i < s->end; i = end) { /* pieces of one length have one shape */
        uint64_t k_length = cuts[i + 1] - cuts[i];
        for (end = i + 1; end < s->end && cuts[end + 1] - cuts[end] == k_length;) end++;
        fcp_code code = cells_full_shape(c, q_length, (uint32_t)k_length, &shape);
        if (code == FCP_OK) code = cells_add_entries(c, row, i, end - i, shape);
        if (code != FCP_OK) return code;
    }
    return FCP_OK;
}

static fcp_code emit_stretch(walk *w, uint32_t row, const unit_span *s) {
    const diagonal_row d = {.c = w->c, .b = units_box(w, row, row + 1, s->first, s->end), .program = s->program,
                            .unit = w->unit, .pieces = w->pieces, .number = s->number, .row = row, .col = s->first,
                            .r = (int64_t)row - s->row};
    return cells_emit_diagonals(&d);
}

/* --- splitting -------------------------------------------------------------------------------------------------- */

/* Appends a span. If it and the last one of this level (spans from `base` on) are FULL, they are joined. */
static fcp_code add_span(cells *c, size_t base, unit_span s) {
    if (s.kind == SPAN_FULL && c->span_count > base) {
        unit_span *last = &c->spans[c->span_count - 1];
        if (last->kind == SPAN_FULL && last->end == s.first) {
            last->end = s.end;
            return FCP_OK;
        }
    }
    if (!FCP_GROW(c->spans, c->span_room, c->span_count + 1)) return FCP_E_NO_MEMORY;
    c->spans[c->span_count++] = s;
    return FCP_OK;
}

/* Cuts units [first, end) into cells. False: there are more than a tally takes. */
static bool cut_units(const units *u, uint32_t first, uint32_t end, tally_cuts *cuts, uint32_t *unit_first) {
    cuts->count = 0;
    if (end - first > TALLY_SIDE) return false;
    for (uint32_t i = first; i < end; i++) {
        unit_first[i - first] = cuts->count;
        for (int64_t at = unit_at(u, i); at < unit_at(u, i + 1); at += FCP_CELL) {
            if (cuts->count == TALLY_SIDE) return false;
            cuts->at[cuts->count++] = at;
        }
    }
    unit_first[end - first] = cuts->count;
    cuts->at[cuts->count] = unit_at(u, end);
    return true;
}

/* Makes a span of box b, of rows [r0, r1), a tally, if it is not too long. Its program fits that. */
static fcp_code tally_span(walk *w, uint32_t r0, uint32_t r1, const box *b, unit_span *s) {
    cells *c = w->c;
    unit_tally t;
    if (!cut_units(&w->rows, r0, r1, &t.cuts[BOX_Q], t.first[BOX_Q]) ||
        !cut_units(&w->cols, s->first, s->end, &t.cuts[BOX_K], t.first[BOX_K]))
        return FCP_OK;
    t.row = r0;
    t.col = s->first;
    t.heads = box_side(b, BOX_H);
    const uint32_t *pairs;
    fcp_code code = cells_tally(c, b, s->program, &t.cuts[BOX_Q], &t.cuts[BOX_K], &pairs);
    if (code != FCP_OK || !pairs) return code;
    const size_t bytes = (size_t)t.cuts[BOX_Q].count * t.cuts[BOX_K].count * sizeof *pairs;
    unit_tally *kept = stack_take(&c->stack, sizeof t + bytes);
    if (!kept) return FCP_E_NO_MEMORY;
    *kept = t;
    memcpy(kept->pairs, pairs, bytes);
    s->kind = SPAN_TALLY;
    s->tally = kept;
    return FCP_OK;
}

/* Solves a span of cells whose program does not depend on q, or has the same answer for all queries. It is one cell
 * wide, unless the program does not depend on k either (but on h, or on nothing). */
static fcp_code solve_span(walk *w, size_t base, uint32_t row, unit_span s) {
    box b = units_box(w, row, row + 1, s.first, s.end), cell = units_box(w, row, row + 1, s.first, s.first + 1);
    uint64_t pairs;
    fcp_code code = cells_cell_pairs(w->c, &cell, s.program, &pairs);
    if (code != FCP_OK || pairs == 0) return code;
    s.kind = SPAN_ALIKE;
    s.pairs = pairs / box_side(&cell, BOX_Q);
    if (s.end - s.first > 1) s.pairs = s.pairs / box_side(&cell, BOX_K) * box_side(&b, BOX_K);
    if (s.pairs == box_side(&b, BOX_K) * box_side(&b, BOX_H)) s.kind = SPAN_FULL;
    return add_span(w->c, base, s);
}

/* Are several rows of cells alike, under a program that names q? */
static bool are_alike(const box_program *p, const box *b, uint32_t count) {
    return count > 1 && p->placed && p->on_k && box_alike(p, b, BOX_Q);
}

/* Refines columns [c0, c1) for rows [r0, r1): appends what they fall into. */
static fcp_code refine_columns(walk *w, size_t base, uint32_t r0, uint32_t r1, uint32_t c0, uint32_t c1,
                               const box_program *p, unsigned depth) {
    cells *c = w->c;
    box b = units_box(w, r0, r1, c0, c1);
    box_class cls;
    fcp_code code = cells_classify(c, &b, &p, &cls);
    if (code != FCP_OK || cls == BOX_NONE) return code;
    if (cls == BOX_FULL) return add_span(c, base, (unit_span){.first = c0, .end = c1, .kind = SPAN_FULL});
    unit_span s = {.first = c0, .end = c1, .program = p};
    if (w->unit && p->diagonal && p->on_q && !p->loose && (r1 - r0 > 1 || c1 - c0 > 1)) {
        s.kind = SPAN_DIAGONAL;
        s.row = r0;
        code = cells_find_diagonals(c, &b, w->unit, w->pieces, p, &s.number);
        return code != FCP_OK ? code : add_span(c, base, s);
    }
    const bool tries = c->tally && (w->pieces || !cells_tally_fails(c, r1 - r0, c1 - c0));
    if (tries && p->on_q && p->on_k && tally_fits(p, &b)) {
        code = tally_span(w, r0, r1, &b, &s);
        if (code != FCP_OK) return code;
        if (s.kind == SPAN_TALLY) return add_span(c, base, s);
    }
    /* may all columns stay together; are all rows alike? */
    bool whole = !w->pieces && !p->on_k, alike = !w->pieces && (!p->on_q || are_alike(p, &b, r1 - r0));
    if (c1 - c0 > 1 && !whole && (alike || c1 - c0 > r1 - r0)) {
        uint32_t middle = split_units(&w->cols, c0, c1, p->on_k ? p : NULL, &b, BOX_K, depth);
        code = refine_columns(w, base, r0, r1, c0, middle, p, depth + 1);
        return code != FCP_OK ? code : refine_columns(w, base, r0, r1, middle, c1, p, depth + 1);
    }
    return alike ? solve_span(w, base, r0, s) : add_span(c, base, s);
}

/* Walks rows [r0, r1), whose columns are the spans [first, end) of the level above. */
static fcp_code walk_rows(walk *w, uint32_t r0, uint32_t r1, size_t first, size_t end, unsigned depth) {
    cells *c = w->c;
    if (cells_stopped(c)) return FCP_E_INTERRUPTED;
    stack_mark mark = stack_here(&c->stack);
    size_t base = c->span_count;
    fcp_code code = FCP_OK;
    for (size_t i = first; i < end && code == FCP_OK; i++) {
        unit_span s = c->spans[i];
        if (s.kind == SPAN_OPEN) code = refine_columns(w, base, r0, r1, s.first, s.end, s.program, depth);
        else code = add_span(c, base, s);
    }
    size_t top = c->span_count, open = base;
    while (open < top && c->spans[open].kind != SPAN_OPEN) open++;
    if (code == FCP_OK && (open == top || r1 - r0 == 1)) {
        for (uint32_t row = r0; row < r1 && code == FCP_OK; row++) {
            if (cells_stopped(c)) code = FCP_E_INTERRUPTED;
            for (size_t i = base; i < top && code == FCP_OK; i++) {
                unit_span s = c->spans[i];
                if (s.kind == SPAN_DIAGONAL) code = emit_stretch(w, row, &s);
                else if (s.kind == SPAN_TALLY) code = cells_emit_tally(c, s.tally, row, w->pieces);
                else code = w->pieces ? emit_pieces(w, row, &s) : emit_cells(w, row, &s);
            }
        }
    } else if (code == FCP_OK) {
        unit_span s = c->spans[open];
        box b = units_box(w, r0, r1, s.first, s.end);
        uint32_t middle = split_units(&w->rows, r0, r1, s.program->on_q ? s.program : NULL, &b, BOX_Q, depth);
        code = walk_rows(w, r0, middle, base, top, depth + 1);
        if (code == FCP_OK) code = walk_rows(w, middle, r1, base, top, depth + 1);
    }
    c->span_count = base;
    stack_back(&c->stack, mark);
    return code;
}

/* Walks all rows and columns, under one program. */
static fcp_code walk_all(walk *w, const box_program *p) {
    cells *c = w->c;
    size_t base = c->span_count;
    if (w->rows.count == 0 || w->cols.count == 0) return FCP_OK;
    if (!FCP_GROW(c->spans, c->span_room, base + 1)) return FCP_E_NO_MEMORY;
    c->spans[c->span_count++] = (unit_span){.first = 0, .end = w->cols.count, .program = p};
    fcp_code code = walk_rows(w, 0, w->rows.count, base, base + 1, 0);
    c->span_count = base;
    return code;
}

/* Are all pieces `unit` long, the last one perhaps shorter? */
static bool are_even(const uint64_t *cuts, uint32_t pieces, uint64_t unit) {
    for (uint32_t i = 0; i + 1 < pieces; i++)
        if (cuts[i + 1] - cuts[i] != unit) return false;
    return cuts[pieces] - cuts[pieces - 1] <= unit;
}

fcp_code cells_walk_pieces(cells *c, const uint64_t *q_cuts, uint32_t q_pieces, const uint64_t *k_cuts,
                           uint32_t k_pieces) {
    walk w = {.c = c, .rows = {.cuts = q_cuts, .start = c->env.q_first, .count = q_pieces},
              .cols = {.cuts = k_cuts, .count = k_pieces}, .pieces = true};
    if (q_pieces && k_pieces) {
        uint64_t unit = q_pieces > 1 ? q_cuts[1] - q_cuts[0] : k_cuts[1] - k_cuts[0];
        if (are_even(q_cuts, q_pieces, unit) && (k_cuts == q_cuts || are_even(k_cuts, k_pieces, unit))) w.unit = unit;
    }
    return walk_all(&w, c->base);
}

void cells_begin_runs(cells *c) {
    c->row_run_count = c->row_run_open = 0;
    c->shape_pairs = 0;
}

fcp_code cells_walk_cells(cells *c, const box *b, const box_program *p) {
    walk w = {.c = c, .rows = cell_units(b->lo[BOX_Q], b->hi[BOX_Q]),
              .cols = cell_units(b->lo[BOX_K], b->hi[BOX_K]), .unit = FCP_CELL};
    cells_begin_runs(c);
    cells_close_open(c); /* of a walk that was interrupted */
    fcp_code code = walk_all(&w, p);
    return code == FCP_OK && c->open_count ? settle_open(c) : code;
}
