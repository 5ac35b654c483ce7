/* tallies.c: counts cells by classes of positions (box/tally.h), where a mask reads arrays of few values.
 *
 * Requires, units: as in cells.c; a MIXED box, and its program specialised to it.
 * Gives: the counts of a rectangle of cells; the cells of a stretch of units, for a walk (walk.c).
 * Cost: as tally.c says. Too many classes are noticed early. After TRIES such failures among rectangles of one size,
 *      and more than one for each success, no more are tried in this sequence.
 */
#include "compiler/cells/cells_parts.h"

enum { TRIES = 64 };

/* The place in c->tallies of a rectangle of so many rows of cells, and columns. */
static uint32_t tally_size(uint32_t down, uint32_t across) {
    return 31 - (uint32_t)__builtin_clz(down > across ? down : across);
}

bool cells_tally_fails(const cells *c, uint32_t down, uint32_t across) {
    const uint32_t size = tally_size(down, across);
    return size < sizeof c->tallies / sizeof *c->tallies && c->tallies[size].failed > TRIES + c->tallies[size].good;
}

fcp_code cells_tally(cells *c, const box *b, const box_program *p, const tally_cuts *q, const tally_cuts *k,
                     const uint32_t **out_pairs) {
    uint64_t work;
    *out_pairs = NULL;
    if (cells_tally_fails(c, q->count, k->count)) return FCP_OK;
    const uint32_t size = tally_size(q->count, k->count);
    fcp_code code = tally_cells(c->tally, p, b, q, k, c->stop, out_pairs, &work);
    if (code != FCP_OK) return code;
    c->stats.work += work;
    if (*out_pairs) c->tallies[size].good++;
    else c->tallies[size].failed++;
    return FCP_OK;
}

/* Cuts a side of a box into cells. False: there are too many. */
static bool cut_side(const box *b, int d, tally_cuts *out) {
    const uint64_t count = (box_side(b, d) + FCP_CELL - 1) / FCP_CELL;
    if (count > TALLY_SIDE) return false;
    out->count = (uint32_t)count;
    for (uint32_t i = 0; i < out->count; i++) out->at[i] = b->lo[d] + (int64_t)i * FCP_CELL;
    out->at[out->count] = b->hi[d];
    return true;
}

fcp_code cells_count_tally(cells *c, const box *b, const box_program *p, uint64_t out[3], bool *out_known) {
    tally_cuts q, k;
    const uint32_t *pairs;
    *out_known = false;
    if (!c->tally || !tally_fits(p, b) || !cut_side(b, BOX_Q, &q) || !cut_side(b, BOX_K, &k)) return FCP_OK;
    fcp_code code = cells_tally(c, b, p, &q, &k, &pairs);
    if (code != FCP_OK || !pairs) return code;
    for (uint32_t i = 0; i < q.count; i++) {
        const uint64_t column = (uint64_t)(q.at[i + 1] - q.at[i]) * box_side(b, BOX_H);
        for (uint32_t j = 0; j < k.count; j++) {
            const uint64_t here = *pairs++;
            const bool full = here == column * (uint64_t)(k.at[j + 1] - k.at[j]);
            out[0] += full;
            out[1] += here > 0 && !full;
            out[2] += here;
        }
    }
    *out_known = true;
    return FCP_OK;
}

/* The pairs of one cell of a tally; *out_area: its elements. */
static uint64_t cell_at(const unit_tally *t, uint32_t i, uint32_t j, uint64_t *out_area) {
    const tally_cuts *q = &t->cuts[BOX_Q], *k = &t->cuts[BOX_K];
    *out_area = (uint64_t)(q->at[i + 1] - q->at[i]) * (uint64_t)(k->at[j + 1] - k->at[j]) * t->heads;
    return t->pairs[i * k->count + j];
}

/* Adds the piece pair in row r and column s of the tally. */
static fcp_code emit_pair(cells *c, const unit_tally *t, uint32_t r, uint32_t s) {
    const uint32_t *q = t->first[BOX_Q] + r, *k = t->first[BOX_K] + s;
    const uint32_t q_length = (uint32_t)(t->cuts[BOX_Q].at[q[1]] - t->cuts[BOX_Q].at[q[0]]);
    const uint32_t k_length = (uint32_t)(t->cuts[BOX_K].at[k[1]] - t->cuts[BOX_K].at[k[0]]);
    uint64_t pairs = 0, area;
    uint32_t shape;
    fcp_code code = FCP_OK;
    for (uint32_t i = q[0]; i < q[1]; i++)
        for (uint32_t j = k[0]; j < k[1]; j++) pairs += cell_at(t, i, j, &area);
    if (!pairs) return FCP_OK;
    if (c->pairs_only) return cells_add_sum(c, t->row + r, t->col + s, pairs);
    cells_begin_runs(c);
    for (uint32_t i = q[0]; i < q[1]; i++)
        for (uint32_t j = k[0]; j < k[1] && code == FCP_OK; j++) {
            pairs = cell_at(t, i, j, &area);
            if (pairs) code = cells_add_cells(c, i - q[0], j - k[0], 1, pairs, area);
        }
    if (code == FCP_OK) code = cells_runs_shape(c, q_length, k_length, &shape);
    return code == FCP_OK ? cells_add_entries(c, t->row + r, t->col + s, 1, shape) : code;
}

fcp_code cells_emit_tally(cells *c, const unit_tally *t, uint32_t row, bool pieces) {
    fcp_code code = FCP_OK;
    if (pieces) {
        for (uint32_t s = 0; t->first[BOX_K][s] < t->cuts[BOX_K].count && code == FCP_OK; s++)
            code = emit_pair(c, t, row - t->row, s);
        return code;
    }
    for (uint32_t j = 0; j < t->cuts[BOX_K].count && code == FCP_OK; j++) { /* a unit is a cell */
        uint64_t area, pairs = cell_at(t, row - t->row, j, &area);
        if (pairs) code = cells_add_cells(c, row, t->col + j, 1, pairs, area);
    }
    return code;
}
