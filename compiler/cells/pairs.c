/* pairs.c: how many pairs each piece pair of a sequence has, without its cells.
 *
 * Requires, units: as in cells.c.
 * Gives: cells_pairs of cells.h.
 * How: under one bound, as `k <= q` or `k < 600`, the pairs of a box follow from its corners, however large it is. So a
 *      MIXED piece pair is cut where the mask turns until one bound is left in each part. For example, of
 *      `k <= q and k < 600` the keys before 600 are under k <= q, and the others are NONE. A piece pair for which that
 *      takes many cuts gets a shape, as in cells_grid.
 * Cost: O(boxes * nodes) for each unlike piece pair.
 */
#include "compiler/cells/parts.h"

enum { TURNS = 128, HALVES = 6 };

/* How often a piece pair may still be cut: at a turn, or in the middle. */
typedef struct budget {
    uint32_t turns, halves;
    bool spent; /* something was left undecided */
} budget;

/* Where to cut a box: at a turn, or where there are too many of them, in the middle of its longer side. */
static bool choose_cut(const box *b, const box_program *p, budget *left, int *d, int64_t *at) {
    if (p->loose || !left->turns) return false;
    for (*d = BOX_Q; *d <= BOX_K; ++*d)
        if (box_turn(p, b, *d, at)) {
            left->turns--;
            return true;
        }
    *d = box_side(b, BOX_Q) < box_side(b, BOX_K) ? BOX_K : BOX_Q;
    if (!left->halves || box_side(b, *d) < 2) return false;
    left->halves--;
    *at = b->lo[*d] + (b->hi[*d] - b->lo[*d]) / 2;
    return true;
}

/* Adds the pairs of a MIXED box, whose program is specialised to it. */
static fcp_code add_pairs(cells *c, const box *b, const box_program *p, budget *left, uint64_t *sum) {
    uint64_t pairs;
    int64_t at = 0;
    int d = BOX_Q;
    if (cells_stopped(c)) return FCP_E_INTERRUPTED;
    if (cells_line_pairs(b, p, &pairs)) {
        *sum += pairs;
        return FCP_OK;
    }
    left->spent |= !choose_cut(b, p, left, &d, &at);
    for (int i = 0; i < 2 && !left->spent; i++) {
        box part = *b;
        if (i) part.lo[d] = at;
        else part.hi[d] = at;
        stack_mark mark = stack_here(&c->stack);
        const box_program *special = p;
        box_class cls;
        fcp_code code = cells_classify(c, &part, &special, &cls);
        if (code == FCP_OK && cls == BOX_FULL && (code = cells_box_area(&part, &pairs)) == FCP_OK) *sum += pairs;
        if (code == FCP_OK && cls == BOX_MIXED) code = add_pairs(c, &part, special, left, sum);
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
    budget left = {.turns = TURNS, .halves = HALVES};
    fcp_code code = key ? cells_box_area(b, &area) : FCP_E_NO_MEMORY; /* if it fits 64 bits, so does every sum */
    if (code == FCP_OK) code = add_pairs(c, b, p, &left, out);
    *out_known = !left.spent;
    const uint64_t answer[3] = {*out, *out_known};
    if (code == FCP_OK && !memo_add(&c->memo, &c->keys, key, words, hash, answer)) code = FCP_E_NO_MEMORY;
    stack_back(&c->stack, mark);
    return code;
}
