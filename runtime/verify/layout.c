/* layout.c: the reshuffle of one rank, on the caller's side.
 *
 * Requires: checked tables: the layout of a side holds every token of it once, and so do the pieces. What the rank's
 * own
 *           instructions move in and out, by side (from rank.c).
 * Proves:   each token that the caller holds at this rank is moved in once and out once, from and to its very place in
 *           the block that holds it. Over all ranks every token of every block is then moved once, too, since layout
 *           and blocks hold each token once.
 * Cost:     linear if the transfers come in order of place, else that of sorting them.
 */
#include <stdlib.h>

#include "runtime/verify/parts.h"

static int by_place(const void *a, const void *b) {
    const placed *x = a, *y = b;
    return x->place < y->place ? -1 : x->place > y->place;
}

/* Copies come in order of place; what other ranks bring or take comes in order of rounds. So the list is nearly sorted,
 * and insertion is fast. A list that is far from sorted is left to qsort. */
static void sort_by_place(placed *p, size_t n) {
    size_t moves = 0;
    for (size_t i = 1; i < n; i++) {
        placed t = p[i];
        size_t j = i;
        for (; j && p[j - 1].place > t.place; j--) p[j] = p[j - 1];
        p[j] = t;
        moves += i - j;
        if (moves > 16 * n) {
            qsort(p, n, sizeof *p, by_place);
            return;
        }
    }
}

/* The piece of a block that holds its token `first`. */
static const fcp_piece *piece_at(const fcp_plan *plan, const fcp_block *k, uint32_t first) {
    const fcp_piece *pieces = plan->pieces + k->first_piece;
    uint32_t low = 0, high = k->pieces; /* offset[low] <= first < offset[high] */
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (pieces[middle].offset <= first)
            low = middle;
        else
            high = middle;
    }
    return pieces + low;
}

static fcp_code check_list(const verifier *v, uint32_t rank, fcp_side side, placed_list *list, const char *what) {
    const fcp_plan *plan = v->plan;
    const uint32_t *starts;
    const fcp_span *layout = fcp_side_layout(plan, side, &starts);
    const fcp_span *span = layout + starts[rank], *last = layout + starts[rank + 1];
    uint64_t place = 0; /* tokens of the caller's that have been moved */
    uint32_t used = 0;  /* tokens of *span among them */
    sort_by_place(list->items, list->count);
    for (uint64_t i = 0; i < list->count; i++) {
        const placed *m = &list->items[i];
        if (m->place != place)
            return fcp_verify_fail_rank(v, v->err, FCP_E_VERIFY_LAYOUT, rank,
                                        ": tokens of the caller are moved %s up to %llu, and next from %u on (block "
                                        "%u)",
                                        what, (unsigned long long)place, m->place, m->block);
        const fcp_piece *piece = piece_at(plan, &plan->blocks[m->block], m->first);
        uint32_t left = m->tokens, at = m->first - piece->offset;
        while (left) {
            if (span == last)
                return fcp_verify_fail_rank(v, v->err, FCP_E_VERIFY_LAYOUT, rank,
                                            ": more tokens are moved %s than the caller holds", what);
            if (span->sequence != piece->sequence || span->start + used != piece->start + at)
                return fcp_verify_fail_rank(v, v->err, FCP_E_VERIFY_LAYOUT, rank,
                                            ": token %llu of the caller is token %llu of sequence %u and is moved %s "
                                            "as token %llu of sequence %u (block %u)",
                                            (unsigned long long)place, (unsigned long long)(span->start + used),
                                            span->sequence, what, (unsigned long long)(piece->start + at),
                                            piece->sequence, m->block);
            uint32_t step = left;
            if (step > span->length - used) step = span->length - used;
            if (step > piece->length - at) step = piece->length - at;
            left -= step;
            place += step;
            used += step;
            at += step;
            if (used == span->length) {
                span++;
                used = 0;
            }
            if (at == piece->length && left) { /* a transfer does not leave its block, so there is a next one */
                piece++;
                at = 0;
            }
        }
    }
    if (span == last) return FCP_OK;
    return fcp_verify_fail_rank(v, v->err, FCP_E_VERIFY_LAYOUT, rank,
                                ": the caller's token %llu, of sequence %u, is not moved %s", (unsigned long long)place,
                                span->sequence, what);
}

fcp_code fcp_verify_layout(verifier *v, uint32_t rank) {
    fcp_code code = check_list(v, rank, FCP_QUERIES, &v->in[FCP_QUERIES], "in");
    if (!code) code = check_list(v, rank, FCP_QUERIES, &v->out[FCP_QUERIES], "out");
    if (code || !v->split) return code; /* blocks that hold both are listed with queries */
    code = check_list(v, rank, FCP_KEYS, &v->in[FCP_KEYS], "in");
    /* forward, keys have no results: match.c and rank.c let none out */
    return code || v->pass == FCP_FORWARD ? code : check_list(v, rank, FCP_KEYS, &v->out[FCP_KEYS], "out");
}
