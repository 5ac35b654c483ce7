/* regions.c: cuts a piece pair into regions with one bound each, from which its pairs and its cells follow.
 *
 * Requires, units: as in cells.c.
 * Gives: cells_pairs of cells.h; the cells of piece pairs that fall into few regions.
 * How: under one bound, as `k <= q` or `k < 600`, the pairs of a box follow from its corners, however large it is.
 *      1. A MIXED piece pair is cut where its mask changes (box_turn), until one bound is left in each part. For
 *         example, `k <= q and k < 600` is cut at key 600: the keys before it are under k <= q, and the others are
 *         NONE.
 *      2. The pairs of each region are counted from its corners.
 *      3. A cell on a boundary is often in several regions. Its pairs are the sum of what each has there, so no cell is
 *         solved by itself.
 *      A piece pair that takes many cuts is walked instead (walk.c).
 * Cost: O(boxes * nodes) for each unlike piece pair; for its cells also O(cells), each once for every region that it is
 *      in.
 */
#include "compiler/cells/cells_parts.h"

#include <string.h>

enum { TURNS = 128, HALVES = 6, CELLS_TURNS = 48, CELLS_MOST = 1024, CELLS_TRIES = 8 };

/* A piece pair that is being cut into regions, and what has been found so far. */
typedef struct regions {
    uint32_t turns, halves; /* how often it may still be cut: at a turn, or in the middle */
    bool spent;             /* something was left undecided */
    uint64_t sum;           /* pairs of the regions so far */
    const box *whole;
    uint64_t *cells; /* pairs of the cells of the whole box, row by row; NULL: nobody asks */
    uint32_t across; /* cells in a row */
} regions;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Adds the pairs of a region to the cells that it reaches into. p: the one bound of the region, which does not depend
 * on h; NULL: all of the region is allowed. */
static void add_to_cells(regions *g, const box *b, const box_program *p) {
    const box *w = g->whole;
    const form f = p ? p->nodes->f : (form){0};
    const int64_t first_col = (b->lo[BOX_K] - w->lo[BOX_K]) / FCP_CELL;
    box part = *b;
    for (int64_t q = b->lo[BOX_Q]; q < b->hi[BOX_Q]; q = part.hi[BOX_Q]) {
        const int64_t row = (q - w->lo[BOX_Q]) / FCP_CELL;
        part.lo[BOX_Q] = q;
        part.hi[BOX_Q] = least(w->lo[BOX_Q] + (row + 1) * FCP_CELL, b->hi[BOX_Q]);
        const int64_t last = part.hi[BOX_Q] - 1, from = f.x[BOX_Q] > 0 ? q : last, to = q + last - from;
        const uint64_t column = box_side(&part, BOX_Q) * box_side(&part, BOX_H);
        uint64_t *cell = g->cells + row * g->across + first_col;
        for (int64_t k = b->lo[BOX_K], end = w->lo[BOX_K] + first_col * FCP_CELL; k < b->hi[BOX_K];
             k = part.hi[BOX_K], cell++) {
            end += FCP_CELL;
            part.lo[BOX_K] = k;
            part.hi[BOX_K] = least(end, b->hi[BOX_K]);
            const int64_t right = part.hi[BOX_K] - 1, low = f.x[BOX_K] > 0 ? k : right;
            uint64_t pairs = column * box_side(&part, BOX_K);
            if (form_at(&f, from, low, 0) < 0) { /* not all of it is allowed */
                if (form_at(&f, to, k + right - low, 0) < 0) continue;
                cells_line_pairs(&part, p, &pairs);
            }
            *cell += pairs;
        }
    }
}

/* Chooses where to cut a box: where the program changes (box_turn), or if it changes too often for that, in the middle
 * of the longer side. */
static bool choose_cut(const box *b, const box_program *p, regions *g, int *d, int64_t *at) {
    if (p->loose || !g->turns) return false;
    for (*d = BOX_Q; *d <= BOX_K; ++*d)
        if (box_turn(p, b, *d, at)) {
            g->turns--;
            return true;
        }
    *d = box_side(b, BOX_Q) < box_side(b, BOX_K) ? BOX_K : BOX_Q;
    if (!g->halves || box_side(b, *d) < 2) return false;
    g->halves--;
    *at = b->lo[*d] + (b->hi[*d] - b->lo[*d]) / 2;
    return true;
}

/* Adds the regions of a MIXED box, whose program is specialised to it. */
static fcp_code add_regions(cells *c, const box *b, const box_program *p, regions *g) {
    uint64_t pairs;
    int64_t at = 0;
    int d = BOX_Q;
    if (cells_stopped(c)) return FCP_E_INTERRUPTED;
    if (cells_line_pairs(b, p, &pairs)) {
        g->sum += pairs;
        if (g->cells) add_to_cells(g, b, p);
        return FCP_OK;
    }
    g->spent |= (g->cells && p->diagonal) || !choose_cut(b, p, g, &d, &at); /* diagonal.c lists the cells of these */
    for (int i = 0; i < 2 && !g->spent; i++) {
        const box part = cells_side(b, d, at, i);
        stack_mark mark = stack_here(&c->stack);
        const box_program *special = p;
        box_class cls;
        fcp_code code = cells_classify(c, &part, &special, &cls);
        if (code == FCP_OK && cls == BOX_FULL && (code = cells_box_area(&part, &pairs)) == FCP_OK) {
            g->sum += pairs;
            if (g->cells) add_to_cells(g, &part, NULL);
        }
        if (code == FCP_OK && cls == BOX_MIXED) code = add_regions(c, &part, special, g);
        stack_back(&c->stack, mark);
        if (code != FCP_OK) return code;
    }
    return FCP_OK;
}

fcp_code cells_box_pairs(cells *c, const box *b, const box_program *p, uint64_t *out, bool *out_known) {
    size_t words = cells_box_words(c, ANSWER_PAIRS, b, p);
    uint64_t hash, area;
    const memo_entry *known = cells_find_words(c, c->key, words, &hash);
    *out = 0;
    *out_known = false;
    if (known) {
        *out = known->answer[0];
        *out_known = known->answer[1];
        return FCP_OK;
    }
    if (!words) return FCP_OK;
    stack_mark mark = stack_here(&c->stack);
    int64_t *key = cells_keep_words(c, words);
    regions g = {.turns = TURNS, .halves = HALVES};
    fcp_code code = key ? cells_box_area(b, &area) : FCP_E_NO_MEMORY; /* if it fits 64 bits, so does every sum */
    if (code == FCP_OK) code = add_regions(c, b, p, &g);
    *out = g.sum;
    *out_known = !g.spent;
    const uint64_t answer[3] = {*out, *out_known};
    if (code == FCP_OK && !memo_add(&c->memo, &c->keys, key, words, hash, answer)) code = FCP_E_NO_MEMORY;
    stack_back(&c->stack, mark);
    return code;
}

/* Whether it is worth trying to cut a piece pair into regions. It is not if one bound is left, or the program depends
 * on q - k alone, or reads arrays: a walk (walk.c) then takes less time. No more tries are made once failures exceed
 * CELLS_TRIES plus a quarter of the successes. */
static bool are_few(const cells *c, const box *b, const box_program *p) {
    const uint64_t across = (box_side(b, BOX_K) + FCP_CELL - 1) / FCP_CELL;
    return p->count > 1 && !p->diagonal && !p->loose && !p->placed && !p->on_h && p->on_q && p->on_k &&
           box_side(b, BOX_Q) <= (uint64_t)CELLS_MOST * FCP_CELL && across <= CELLS_MOST &&
           (box_side(b, BOX_Q) + FCP_CELL - 1) / FCP_CELL * across <= CELLS_MOST &&
           c->regions_failed <= CELLS_TRIES + c->regions_found / 4;
}

fcp_code cells_region_cells(cells *c, const box *b, const box_program *p, bool *out_known) {
    uint64_t pairs[CELLS_MOST];
    const uint32_t down = (uint32_t)((box_side(b, BOX_Q) + FCP_CELL - 1) / FCP_CELL);
    regions g = {.turns = CELLS_TURNS, .halves = HALVES, .whole = b, .cells = pairs,
                 .across = (uint32_t)((box_side(b, BOX_K) + FCP_CELL - 1) / FCP_CELL)};
    *out_known = false;
    if (!are_few(c, b, p)) return FCP_OK;
    memset(pairs, 0, (size_t)down * g.across * sizeof *pairs);
    fcp_code code = add_regions(c, b, p, &g);
    if (code != FCP_OK || g.spent) {
        c->regions_failed += g.spent;
        return code;
    }
    c->regions_found++;
    *out_known = true;
    cells_begin_runs(c);
    for (uint32_t row = 0, i = 0; row < down; row++) {
        const uint64_t height = (uint64_t)least(FCP_CELL, b->hi[BOX_Q] - b->lo[BOX_Q] - (int64_t)row * FCP_CELL);
        for (uint32_t col = 0; col < g.across && code == FCP_OK; col++, i++) {
            const int64_t width = least(FCP_CELL, b->hi[BOX_K] - b->lo[BOX_K] - (int64_t)col * FCP_CELL);
            const uint64_t area = height * (uint64_t)width * box_side(b, BOX_H);
            if (pairs[i]) code = cells_add_cells(c, row, col, 1, pairs[i], area);
        }
    }
    return code;
}
