/* visit_products.c: cuts a visit into matrix products (*strips* and *jobs*: visit_products.h).
 *
 * Example:  a strip has two rows of cells. In row 0, columns 0 to 2 are not NONE; in row 1, columns 0 to 3. Columns 0
 *           to 2 have both rows active, column 3 only row 1. That makes two jobs: 2 x 3 cells, and 1 x 1 cell.
 * Requires: a verified plan: parts in the order of Q pieces, runs in the order of rows and columns.
 * Method:   1. Go over the columns, and stop wherever a run of either row begins or ends. Between two stops the same
 *              rows are active, that is, not NONE.
 *           2. Join neighbouring columns with the same active rows into a segment, of at most FCP_JOB_CELLS columns.
 *           3. Make a job of each stretch of neighbouring active rows of a segment.
 * Cost:     linear in the runs of the strip's rows, and a binary search for each part and row.
 */
#include "runtime/host/visit_products.h"

#include <stdlib.h>

#include "runtime/base/grow.h"

/* Columns [begin, end) of cells in which the same rows are not NONE: bit r of `active` is row r. Bit j of partial[r]
 * says that cell (r, begin + j) is PARTIAL. */
struct segment {
    uint32_t begin, end, active;
    uint8_t partial[FCP_STRIP_CELLS];
};

/* Two rows of cells of a part, from row `row` of its Q piece on, whose jobs are added to `work`. */
struct strip {
    fcp_work *work;
    const fcp_plan *plan;
    const fcp_part *part;
    uint32_t tile, row;
};

void fcp_work_free(fcp_work *work) {
    free(work->jobs);
    free(work->cursors);
    *work = (fcp_work){0};
}

fcp_code fcp_work_begin(fcp_work *work, const fcp_plan *plan, const fcp_visit *visit) {
    if (!FCP_GROW(work->cursors, work->cursor_capacity, visit->tiles))
        return FCP_E_NO_MEMORY;
    for (uint32_t i = 0; i < visit->tiles; i++) work->cursors[i] = plan->tiles[visit->first_tile + i].first_part;
    return FCP_OK;
}

/* Appends a segment's jobs, one for each stretch of neighbouring active rows. */
static bool emit(const struct strip *of, const struct segment *s) {
    const fcp_plan *plan = of->plan;
    const fcp_piece *q = &plan->pieces[of->part->q_piece], *k = &plan->pieces[of->part->k_piece];
    const uint64_t first_row = of->row;
    fcp_work *work = of->work;
    for (uint32_t r = 0; r < FCP_STRIP_CELLS; r++) {
        if (!(s->active >> r & 1)) continue;
        uint32_t until = r + 1;
        while (until < FCP_STRIP_CELLS && s->active >> until & 1) until++;
        if (!FCP_GROW(work->jobs, work->capacity, work->count + 1)) return false;
        uint64_t row_end = first_row + (uint64_t)until * FCP_CELL, key_end = (uint64_t)s->end * FCP_CELL;
        fcp_job *job = &work->jobs[work->count++];
        *job = (fcp_job){.tile = of->tile, .row = r * FCP_CELL, .key = k->offset + s->begin * FCP_CELL};
        job->rows = (uint32_t)((row_end < q->length ? row_end : q->length) - first_row) - job->row;
        job->keys = (uint32_t)((key_end < k->length ? key_end : k->length) - (uint64_t)s->begin * FCP_CELL);
        job->q_position = plan->sequences[q->sequence].q_first + (int64_t)(q->start + first_row + job->row);
        job->k_position = (int64_t)(k->start + (uint64_t)s->begin * FCP_CELL);
        for (uint32_t i = r; i < until; i++) job->partial[i - r] = s->partial[i];
        r = until;
    }
    return true;
}

/* Adds columns [begin, end) to the open segment. Whenever it is full, or the active rows change, closes it and opens
 * another. */
static bool extend(const struct strip *of, struct segment *open, uint32_t begin, uint32_t end, uint32_t active,
                   uint32_t partial) {
    while (begin < end) {
        bool fits = open->end > open->begin && open->end == begin && open->active == active &&
                    open->end - open->begin < FCP_JOB_CELLS;
        if (!fits) {
            if (open->end > open->begin && !emit(of, open)) return false;
            *open = (struct segment){.begin = begin, .end = begin, .active = active};
        }
        uint32_t room = FCP_JOB_CELLS - (open->end - open->begin), take = end - begin < room ? end - begin : room;
        uint32_t bits = ((1u << take) - 1) << (open->end - open->begin);
        for (uint32_t r = 0; r < FCP_STRIP_CELLS; r++)
            if (partial >> r & 1) open->partial[r] |= (uint8_t)bits;
        open->end += take;
        begin += take;
    }
    return true;
}

static bool sweep(const struct strip *of, uint32_t cls) {
    const fcp_plan *plan = of->plan;
    const fcp_shape_rec *shape = &plan->shapes[of->part->shape + cls];
    uint32_t at[FCP_STRIP_CELLS], end[FCP_STRIP_CELLS], column = 0, row = of->row / FCP_CELL;
    for (uint32_t r = 0; r < FCP_STRIP_CELLS; r++) at[r] = fcp_run_of_row(plan, shape, row + r);
    for (uint32_t r = 0; r < FCP_STRIP_CELLS; r++)
        end[r] = r + 1 < FCP_STRIP_CELLS ? at[r + 1] : fcp_run_of_row(plan, shape, row + r + 1);
    struct segment open = {0};
    for (;;) {
        uint32_t begin = UINT32_MAX, until = UINT32_MAX, active = 0, partial = 0;
        for (uint32_t r = 0; r < FCP_STRIP_CELLS; r++) {
            if (at[r] == end[r]) continue;
            uint32_t col = plan->runs[at[r]].col;
            if (col < column) col = column;
            if (col < begin) begin = col;
        }
        if (begin == UINT32_MAX) break;
        for (uint32_t r = 0; r < FCP_STRIP_CELLS; r++) {
            if (at[r] == end[r]) continue;
            const fcp_run *run = &plan->runs[at[r]];
            uint32_t change = run->col > begin ? run->col : run->col + run->count;
            if (change < until) until = change;
            if (run->col > begin) continue;
            active |= 1u << r;
            if (run->cls == FCP_CELL_PARTIAL) partial |= 1u << r;
        }
        if (!extend(of, &open, begin, until, active, partial)) return false;
        column = until;
        for (uint32_t r = 0; r < FCP_STRIP_CELLS; r++)
            while (at[r] < end[r] && plan->runs[at[r]].col + plan->runs[at[r]].count <= column) at[r]++;
    }
    return open.end == open.begin || emit(of, &open);
}

fcp_code fcp_work_strip(fcp_work *work, const fcp_plan *plan, const fcp_visit *visit, uint32_t cls, uint32_t q_piece,
                        uint32_t row) {
    work->count = 0;
    for (uint32_t i = 0; i < visit->tiles; i++) {
        const fcp_tile *tile = &plan->tiles[visit->first_tile + i];
        uint32_t end = tile->first_part + tile->parts, at = work->cursors[i];
        while (at < end && plan->parts[at].q_piece < q_piece) at++;
        work->cursors[i] = at;
        for (; at < end && plan->parts[at].q_piece == q_piece; at++) {
            const struct strip strip = {work, plan, &plan->parts[at], visit->first_tile + i, row};
            if (!sweep(&strip, cls)) return FCP_E_NO_MEMORY;
        }
    }
    return FCP_OK;
}
