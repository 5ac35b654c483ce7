/* layout.c: the reshuffle of one rank, on the caller's side.
 *
 * Requires: checked tables: the layout of a side holds every token of it once, and so do the pieces for each range of
 *           heads. What the rank's own instructions move in and out, by side (from rank.c).
 * Proves:   for each range of heads, each token that the caller holds at this rank is moved in once and out once, from
 *           and to its very place in the block that holds it. Over all ranks every token of every block is then moved
 *           once, too, since layout and blocks hold each token once.
 * Method:   What is moved is sorted by (range of heads, place), and each range is held against the layout. With several
 *           ranges, runs of the layout that continue each other are joined first. Where a run then ends, a piece or a
 *           transfer ends, too: so all ranges together take no more steps than there are of these.
 * Cost:     linear if the transfers come in order of place, else that of sorting them.
 */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/verify/parts.h"

/* Which of the ranges of its side a block's heads are: ranges are of equal size, and begin at its multiples. */
static uint32_t range_of(const verifier *v, fcp_side side, const fcp_block *k) {
    const fcp_heads *h = &v->plan->heads[k->heads];
    uint32_t subs = side == FCP_KEYS ? 1 : v->p->heads / v->p->kv_heads / v->p->range_sub;
    return h->kv_first / v->p->range_kv * subs + h->sub_first / v->p->range_sub;
}

static bool before(const placed *x, const placed *y) {
    return x->range < y->range || (x->range == y->range && x->place < y->place);
}
static int by_place(const void *a, const void *b) { return before(a, b) ? -1 : before(b, a); }

/* Copies come in order of place; what other ranks bring or take comes in order of rounds. So the list is nearly sorted,
 * and insertion is fast. A list that is far from sorted is left to qsort. */
static void sort_by_place(placed *p, size_t n) {
    size_t moves = 0;
    for (size_t i = 1; i < n; i++) {
        placed t = p[i];
        size_t j = i;
        for (; j && before(&t, &p[j - 1]); j--) p[j] = p[j - 1];
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

/* The caller's tokens of a side at a rank, in runs; with several ranges of heads, no run continues the one before. */
typedef struct caller {
    const fcp_span *span, *last;
    uint32_t ranges;
} caller;

static fcp_code find_caller(verifier *v, uint32_t rank, fcp_side side, caller *out) {
    const uint32_t *starts;
    const fcp_span *layout = fcp_side_layout(v->plan, side, &starts);
    uint32_t count = starts[rank + 1] - starts[rank];
    out->span = layout + starts[rank];
    out->last = out->span + count;
    out->ranges = v->p->kv_heads / v->p->range_kv;
    if (side == FCP_QUERIES) out->ranges *= v->p->heads / v->p->kv_heads / v->p->range_sub;
    if (out->ranges == 1 || !count) return FCP_OK;
    if (count > v->joined_room) {
        free(v->joined);
        v->joined = malloc((size_t)count * sizeof *v->joined);
        v->joined_room = v->joined ? count : 0;
        if (!v->joined) return fcp_fail(v->err, FCP_E_NO_MEMORY, "out of memory to verify a layout of %u runs", count);
    }
    fcp_span *to = v->joined;
    *to = *out->span;
    for (const fcp_span *s = out->span + 1; s < out->last; s++) {
        if (s->sequence == to->sequence && s->start == to->start + to->length) to->length += s->length;
        else *++to = *s;
    }
    out->span = v->joined;
    out->last = to + 1;
    return FCP_OK;
}

/* Holds what is moved of one range of heads, from *at on, against the caller's tokens. *at is then behind it. */
static fcp_code check_range(const verifier *v, uint32_t rank, const caller *c, const placed_list *list, uint32_t range,
                            size_t *at_item, const char *what) {
    const fcp_plan *plan = v->plan;
    const fcp_span *span = c->span, *last = c->last;
    uint64_t place = 0; /* tokens of the caller's that have been moved */
    uint32_t used = 0;  /* tokens of *span among them */
    char heads[48] = "";
    if (c->ranges > 1) snprintf(heads, sizeof heads, " for range %u of heads", range);
    for (; *at_item < list->count && list->items[*at_item].range == range; ++*at_item) {
        const placed *m = &list->items[*at_item];
        if (m->place != place)
            return fcp_verify_fail_rank(v, v->err, FCP_E_VERIFY_LAYOUT, rank,
                                        ": tokens of the caller are moved %s up to %llu, and next from %u on (block "
                                        "%u)%s",
                                        what, (unsigned long long)place, m->place, m->block, heads);
        const fcp_piece *piece = piece_at(plan, &plan->blocks[m->block], m->first);
        uint32_t left = m->tokens, at = m->first - piece->offset;
        while (left) {
            if (span == last)
                return fcp_verify_fail_rank(v, v->err, FCP_E_VERIFY_LAYOUT, rank,
                                            ": more tokens are moved %s than the caller holds%s", what, heads);
            if (span->sequence != piece->sequence || span->start + used != piece->start + at)
                return fcp_verify_fail_rank(v, v->err, FCP_E_VERIFY_LAYOUT, rank,
                                            ": token %llu of the caller is token %llu of sequence %u and is moved %s "
                                            "as token %llu of sequence %u (block %u)%s",
                                            (unsigned long long)place, (unsigned long long)(span->start + used),
                                            span->sequence, what, (unsigned long long)(piece->start + at),
                                            piece->sequence, m->block, heads);
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
                                ": the caller's token %llu, of sequence %u, is not moved %s%s",
                                (unsigned long long)place, span->sequence, what, heads);
}

static fcp_code check_list(const verifier *v, uint32_t rank, fcp_side side, const caller *c, placed_list *list,
                           const char *what) {
    size_t at = 0;
    if (c->ranges > 1)
        for (size_t i = 0; i < list->count; i++)
            list->items[i].range = range_of(v, side, &v->plan->blocks[list->items[i].block]);
    sort_by_place(list->items, list->count);
    if (c->span == c->last && !list->count) return FCP_OK;
    for (uint32_t range = 0; range < c->ranges; range++) {
        fcp_code code = check_range(v, rank, c, list, range, &at, what);
        if (code) return code;
    }
    return FCP_OK;
}

fcp_code fcp_verify_layout(verifier *v, uint32_t rank) {
    for (int side = 0; side < (v->split ? FCP_SIDES : 1); side++) { /* blocks that hold both are listed with queries */
        caller c;
        fcp_code code = find_caller(v, rank, (fcp_side)side, &c);
        if (!code) code = check_list(v, rank, (fcp_side)side, &c, &v->in[side], "in");
        /* forward, keys have no results: match.c and rank.c let none out */
        if (!code && (side == FCP_QUERIES || v->pass == FCP_BACKWARD))
            code = check_list(v, rank, (fcp_side)side, &c, &v->out[side], "out");
        if (code) return code;
    }
    return FCP_OK;
}
