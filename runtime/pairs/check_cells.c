/* check_cells.c: checks that the cells of one part of a tile are those of the mask.
 *
 * Requires: a checked plan; the mask is that of the part's sequence, and of a head that the shape is for.
 * Proves:   - The mask allows every pair of a FULL cell.
 *           - It allows no pair of a cell that the shape does not name. If no tile has the two pieces it allows none.
 *           - The shape has as many pairs as the mask allows.
 *           A PARTIAL cell may have any pairs, because kernels evaluate the mask there.
 * Method:   the part is halved until a box of cells is decided, or is a single cell. The pairs of a single cell are
 *           counted by codegen/mask, unless an equal one has been counted before (box_memo.c) or its positions have few
 *           values (classes.c). If the mask reads an
 *           array there, by blocks of queries or keys, the cell is cut between these blocks first. A part is not looked
 *           at if another of the same shape, in which the mask is equal, has been proven before.
 * Cost:     boxes on the boundary of the mask, times the nodes of its code; and where those are not alike, the pairs of
 *           their cells.
 */
#include <stdio.h>

#include "runtime/base/stop.h"
#include "runtime/pairs/pairs_parts.h"
#include "runtime/plan/plan.h"

typedef unsigned long long ull;

enum {
    BETWEEN_STOPS = 256,
    CELL_BOXES = 16,
    CLASSES_WORK = 512,
    ONE_CELL = -1,
    NO_PART = -2 /* labels of keys; others are shapes */
};

/* Rows [r0, r1) and columns [c0, c1) of cells. */
typedef struct cell_rect {
    uint32_t r0, r1, c0, c1;
} cell_rect;

typedef struct part_view {
    pairs_prover *p;
    const pairs_meeting *m;
    const fcp_shape_rec *shape; /* NULL: there is no part */
    pairs_box all;
    uint64_t pairs;             /* that the mask allows, so far */
} part_view;

/* Estimates of the work of evaluating the mask: once for a box, and pair by pair. The unit is about a nanosecond of one
 * processor. */
static uint64_t box_work(const pairs_prover *p) { return 64 + 8 * (uint64_t)p->mask.code.count; }
static uint64_t pairs_work(const pairs_prover *p, uint64_t pairs) { return pairs * p->mask.code.count / 2; }

fcp_code fcp_pairs_ask(pairs_prover *p, const pairs_box *b, pairs_answer *out) {
    if (p->work > p->work_most)
        return fcp_fail(p->err, FCP_E_TOO_LONG,
                        "the mask takes longer than the limit of %.0f s of one processor: %llu boxes of pairs and %llu "
                        "single pairs were evaluated, up to query %lld of sequence %u", (double)p->work_most / 1e9,
                        (ull)p->proof.boxes, (ull)p->proof.elements, (long long)b->q0, p->sequence);
    p->work += box_work(p);
    if (++p->asked >= BETWEEN_STOPS) {
        p->asked = 0;
        if (fcp_stop_asked(p->stop)) return fcp_fail(p->err, FCP_E_INTERRUPTED, "interrupted");
    }
    p->proof.boxes++;
    *out = fcp_pairs_evaluate(&p->mask, b);
    return FCP_OK;
}

pairs_box fcp_pairs_box_of(const pairs_prover *p, uint32_t q_piece, uint32_t k_piece) {
    const fcp_piece *q = &p->plan->pieces[q_piece], *k = &p->plan->pieces[k_piece];
    const int64_t q0 = p->plan->sequences[p->sequence].q_first + (int64_t)q->start, k0 = (int64_t)k->start;
    return (pairs_box){q0, q0 + q->length, k0, k0 + k->length};
}

static uint64_t area(const pairs_box *b) { return (uint64_t)(b->q1 - b->q0) * (uint64_t)(b->k1 - b->k0); }

static pairs_box box_of(const part_view *v, cell_rect r) {
    pairs_box b = {v->all.q0 + (int64_t)r.r0 * FCP_CELL, v->all.q0 + (int64_t)r.r1 * FCP_CELL,
                   v->all.k0 + (int64_t)r.c0 * FCP_CELL, v->all.k0 + (int64_t)r.c1 * FCP_CELL};
    if (b.q1 > v->all.q1) b.q1 = v->all.q1;
    if (b.k1 > v->all.k1) b.k1 = v->all.k1;
    return b;
}

/* --- errors ------------------------------------------------------------------------------------------------------- */

/* " in head 3, of head class 1", where heads differ. */
static const char *head_text(const pairs_prover *p, char *out, size_t size) {
    *out = 0;
    if (p->plan->range_classes)
        snprintf(out, size, " in head %u, of head class %u", p->head, p->plan->head_classes[p->head]);
    return out;
}

static uint32_t tile_of(const fcp_plan *plan, uint32_t part) {
    uint32_t t = 0;
    while (part - plan->tiles[t].first_part >= plan->tiles[t].parts) t++;
    return t;
}

/* The first pair of a box that the mask allows, or does not. */
static void find_pair(const part_view *v, const pairs_box *b, bool allowed, int64_t *out_q, int64_t *out_k) {
    const pairs_mask *m = &v->p->mask;
    for (int64_t q = b->q0; q < b->q1; q++)
        for (int64_t k = b->k0; k < b->k1; k++)
            if (mc_eval(m->code, &m->env, q, k, v->p->head, m->scratch) == allowed) {
                *out_q = q;
                *out_k = k;
                return;
            }
}

/* Reports that cell (row, col) of the plan is not what the mask says: the mask allows a pair of it and the plan leaves
 * the cell out, or the reverse. */
static fcp_code wrong_cell(const part_view *v, uint32_t row, uint32_t col, bool allowed) {
    const pairs_prover *p = v->p;
    const fcp_plan *plan = p->plan;
    const pairs_box b = box_of(v, (cell_rect){row, row + 1, col, col + 1});
    int64_t q = b.q0, k = b.k0;
    char head[64];
    find_pair(v, &b, allowed, &q, &k);
    head_text(p, head, sizeof head);
    if (!v->shape)
        return fcp_fail(p->err, FCP_E_VERIFY_PAIRS,
                        "sequence %u: the mask lets query %lld see key %lld%s, and no tile has the pair, which is in "
                        "cell (%u, %u) of Q piece %u and KV piece %u, of blocks %u and %u",
                        p->sequence, (long long)q, (long long)k, head, row, col, v->m->q_piece, v->m->k_piece,
                        plan->pieces[v->m->q_piece].block, plan->pieces[v->m->k_piece].block);
    const uint32_t tile = tile_of(plan, v->m->part);
    return fcp_fail(p->err, FCP_E_VERIFY_PAIRS,
                    allowed ? "sequence %u: the mask lets query %lld see key %lld%s, and cell (%u, %u) of part %u of "
                              "tile %u, which has the pair, is not computed"
                            : "sequence %u: the mask does not let query %lld see key %lld%s, and cell (%u, %u) of part "
                              "%u of tile %u, which has the pair, is called full",
                    p->sequence, (long long)q, (long long)k, head, row, col, v->m->part - plan->tiles[tile].first_part,
                    tile);
}

static fcp_code wrong_pairs(const part_view *v) {
    const pairs_prover *p = v->p;
    const uint32_t tile = tile_of(p->plan, v->m->part);
    char head[64];
    return fcp_fail(p->err, FCP_E_VERIFY_PAIRS,
                    "sequence %u: of queries %lld to %lld and keys %lld to %lld%s the mask allows %llu pairs, and part "
                    "%u of tile %u says %llu",
                    p->sequence, (long long)v->all.q0, (long long)v->all.q1 - 1, (long long)v->all.k0,
                    (long long)v->all.k1 - 1, head_text(p, head, sizeof head), (ull)v->pairs,
                    v->m->part - p->plan->tiles[tile].first_part, tile, (ull)v->shape->pairs);
}

/* --- cells -------------------------------------------------------------------------------------------------------- */

/* The first of a row's runs that ends behind column `col`; the end of the shape's runs if there is none. */
static uint32_t run_at(const fcp_plan *plan, const fcp_shape_rec *s, uint32_t row, uint32_t col) {
    uint32_t low = fcp_run_of_row(plan, s, row), high = s->first_run + s->runs;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const fcp_run *r = &plan->runs[middle];
        if (r->row > row || (uint64_t)r->col + r->count > col) high = middle;
        else low = middle + 1;
    }
    return low;
}

/* Finds the first cell of the columns of a row that is FULL, or that no run names. */
static bool find_cell(const part_view *v, const cell_rect *r, uint32_t row, bool full, uint32_t *out_col) {
    const fcp_plan *plan = v->p->plan;
    uint32_t at = r->c0;
    if (v->shape) {
        const uint32_t end = v->shape->first_run + v->shape->runs;
        for (uint32_t i = run_at(plan, v->shape, row, at); i < end; i++) {
            const fcp_run *run = &plan->runs[i];
            if (run->row > row || run->col >= r->c1) break;
            if (!full && run->col > at) break;
            if (full && run->cls == FCP_CELL_FULL) {
                *out_col = run->col > at ? run->col : at;
                return true;
            }
            at = run->col + run->count;
        }
    }
    *out_col = at;
    return !full && at < r->c1;
}

/* Checks cells in which the mask allows all pairs, or none. If all, each must be in a run; if none, no cell may be
 * FULL. */
static fcp_code decided_cells(part_view *v, cell_rect r, bool allowed) {
    uint32_t col;
    for (uint32_t row = r.r0; row < r.r1; row++)
        if (find_cell(v, &r, row, !allowed, &col)) return wrong_cell(v, row, col, allowed);
    if (allowed) {
        const pairs_box b = box_of(v, r);
        v->pairs += area(&b);
    }
    return FCP_OK;
}

/* Finds where to cut the box that was asked about last, so that arrays that are read by blocks of queries or keys are
 * read in fewer blocks: `keep[q / 96, k / 96]` has up to four elements in a cell. Nothing is cut in slices thinner than
 * LEAST, because many small boxes take longer than their pairs. */
static bool find_cut(const pairs_mask *m, const pairs_box *b, pairs_box half[2]) {
    enum { LEAST = 16 };
    half[0] = half[1] = *b;
    for (uint32_t i = 0; i < m->code.count; i++) {
        const mc_node *x = &m->code.nodes[i];
        if (x->op != MC_DIV || m->values[i].lo == m->values[i].hi) continue;
        const pairs_value *of = &m->values[x->a], *by = &m->values[x->b];
        if (!of->linear || by->lo != by->hi || by->lo < LEAST || of->q + of->k != 1 || (of->q && of->k)) continue;
        const __int128 at = ((__int128)m->values[i].lo + 1) * by->lo - of->c; /* where the second quotient begins */
        if (of->q) half[0].q1 = half[1].q0 = (int64_t)at;
        else half[0].k1 = half[1].k0 = (int64_t)at;
        return true;
    }
    return false;
}

/* *out_pairs: how many pairs the mask allows in a cell, or in a part of one, the box that was asked about last. */
static fcp_code count_cell(pairs_prover *p, const pairs_box *b, uint64_t *out_pairs) {
    uint64_t pairs;
    pairs_box half[2];
    const bool key = fcp_pairs_key(&p->memo, &p->mask, b, ONE_CELL);
    *out_pairs = 0;
    if (key && fcp_pairs_find(&p->memo, out_pairs)) return FCP_OK;
    if (!key && find_cut(&p->mask, b, half)) {
        fcp_code code = FCP_OK;
        for (int i = 0; i < 2 && !code; i++) {
            pairs_answer of_half = FCP_PAIRS_MIXED;
            code = fcp_pairs_ask(p, &half[i], &of_half);
            pairs = of_half == FCP_PAIRS_ALL ? area(&half[i]) : 0;
            if (!code && of_half == FCP_PAIRS_MIXED) code = count_cell(p, &half[i], &pairs);
            *out_pairs += pairs;
        }
        return code;
    }
    if (fcp_pairs_classes_count(p->classes, &p->mask, b, p->head, out_pairs)) {
        p->work += CLASSES_WORK;
        p->asked++;
        if (key) fcp_pairs_keep(&p->memo, *out_pairs);
        return FCP_OK;
    }
    const mc_tile tile = {b->q0, b->k0, p->head, (uint32_t)(b->q1 - b->q0), (uint32_t)(b->k1 - b->k0)};
    pairs = mc_count_tile(p->mask.code, &p->mask.env, &tile, p->mask.scratch);
    p->proof.elements += area(b);
    p->work += pairs_work(p, area(b));
    p->asked += CELL_BOXES; /* that takes longer than a box */
    if (key) fcp_pairs_keep(&p->memo, pairs);
    *out_pairs = pairs;
    return FCP_OK;
}

/* Checks a single cell in which some pairs are allowed and some are not, as far as is known: counts them, and compares
 * with what the shape says of the cell. */
static fcp_code mixed_cell(part_view *v, cell_rect r) {
    const pairs_box b = box_of(v, r);
    uint64_t pairs;
    uint32_t col;
    fcp_code code = count_cell(v->p, &b, &pairs);
    if (code) return code;
    if (pairs && find_cell(v, &r, r.r0, false, &col)) return wrong_cell(v, r.r0, r.c0, true);
    if (pairs < area(&b) && find_cell(v, &r, r.r0, true, &col)) return wrong_cell(v, r.r0, r.c0, false);
    v->pairs += pairs;
    return FCP_OK;
}

/* Where to cut a side of n cells, which are at least 2: after the largest power of 2 below n. Parts of boxes that are
 * cut there look alike. */
static uint32_t cut_of(uint32_t n) {
    uint32_t cut = 1;
    while (cut < n - cut) cut *= 2;
    return cut;
}

/* Checks a rectangle of cells by halving it. `answer` is what the mask says of it; no other box was asked about
 * since. */
static fcp_code walk(part_view *v, cell_rect r, pairs_answer answer) {
    if (answer != FCP_PAIRS_MIXED) return decided_cells(v, r, answer == FCP_PAIRS_ALL);
    const uint32_t rows = r.r1 - r.r0, cols = r.c1 - r.c0;
    if (rows == 1 && cols == 1) return mixed_cell(v, r);
    cell_rect half[2] = {r, r};
    if (rows >= cols) half[0].r1 = half[1].r0 = r.r0 + cut_of(rows);
    else half[0].c1 = half[1].c0 = r.c0 + cut_of(cols);
    fcp_code code = FCP_OK;
    for (int i = 0; i < 2 && !code; i++) {
        const pairs_box b = box_of(v, half[i]);
        pairs_answer of_half = FCP_PAIRS_MIXED;
        code = fcp_pairs_ask(v->p, &b, &of_half);
        if (!code) code = walk(v, half[i], of_half);
    }
    return code;
}

fcp_code fcp_pairs_cells(pairs_prover *p, const pairs_meeting *m, pairs_answer answer) {
    const fcp_plan *plan = p->plan;
    const bool part = m->part != FCP_NONE;
    const uint32_t shape = part ? plan->parts[m->part].shape + p->cls : 0;
    part_view v = {p, m, part ? &plan->shapes[shape] : NULL, fcp_pairs_box_of(p, m->q_piece, m->k_piece), 0};
    const int64_t label = part ? (int64_t)shape : NO_PART;
    uint64_t ignored;
    if (answer == FCP_PAIRS_MIXED && fcp_pairs_key(&p->memo, &p->mask, &v.all, label)) {
        if (fcp_pairs_find(&p->memo, &ignored)) return FCP_OK;
        fcp_pairs_keep(&p->memo, 0); /* it is proven now, or nothing is */
    }
    const cell_rect all = {0, (uint32_t)((v.all.q1 - v.all.q0 + FCP_CELL - 1) / FCP_CELL), 0,
                           (uint32_t)((v.all.k1 - v.all.k0 + FCP_CELL - 1) / FCP_CELL)};
    fcp_code code = walk(&v, all, answer);
    return !code && part && v.pairs != v.shape->pairs ? wrong_pairs(&v) : code;
}
