/* deal.c: puts a list of rows of the forward pass into an order in which blocks end earlier, where there is one.
 *
 * Requires: a list of rows, longest first.
 * Gives:    fcp_list_deal of list.h.
 * Method:   blocks take pieces of work as fk_piece says: one each in their order, then one each in the reverse order.
 *           That is fair if pieces become shorter evenly. Another way is to give each block one of the longest pieces,
 *           then one each of the longest that are left, the longest of them to the block that has least to do so far,
 *           and so on. Both are counted, and the second is taken if its last block ends a hundredth earlier. Then
 *           the list has an item for each piece, in the order in which blocks find theirs.
 * Cost:     a sort of the blocks for each turn, and only where blocks have few pieces each.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/grow.h"
#include "runtime/kernels/list.h"

enum {
    MOST_TURNS = 64, /* pieces for each block: where there are more, the last of them does not matter */
    ENDS = 1         /* units of time to begin and end a piece; a cell takes two */
};

/* How many blocks attention has, as far as the plan knows. */
static uint64_t blocks_of(const fcp_arena *a) {
    const fcp_plan *plan = a->plan;
    const uint64_t all = plan->cluster->multiprocessors, margin = plan->problem->margin;
    return fcp_stream_of(plan, a->pass, a->rank, FCP_COMM)->count && margin < all ? all - margin : all;
}

/* The pieces of a list: piece i is item i / heads. */
struct pieces {
    uint64_t count, blocks;
    uint32_t heads;
    struct fcp_list_size *sizes; /* of each block: what it has to do, and its number */
    uint32_t *owners;            /* of each piece: the number of its block */
    uint64_t *units;             /* of each item */
};

/* When the last block ends that takes pieces from the list as it is. */
static uint64_t end_as_listed(const struct pieces *x) {
    uint64_t end = 0;
    for (uint64_t block = 0; block < x->blocks; block++) {
        uint64_t units = 0;
        for (uint64_t turn = 0, i; turn * x->blocks < x->count; turn++)
            if ((i = turn * x->blocks + (turn % 2 ? x->blocks - 1 - block : block)) < x->count)
                units += x->units[i / x->heads];
        if (units > end) end = units;
    }
    return end;
}

static int less_to_do(const void *a, const void *b) {
    const struct fcp_list_size *x = a, *y = b;
    if (x->size != y->size) return x->size < y->size ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* Deals the pieces out in the other way; returns when the last block ends. */
static uint64_t deal(struct pieces *x) {
    uint64_t end = 0;
    for (uint32_t b = 0; b < x->blocks; b++) x->sizes[b] = (struct fcp_list_size){0, b};
    for (uint64_t i = 0; i < x->count; i++) {
        const uint64_t at = i % x->blocks;
        if (!at) qsort(x->sizes, x->blocks, sizeof *x->sizes, less_to_do);
        x->owners[i] = x->sizes[at].index;
        x->sizes[at].size += x->units[i / x->heads];
        if (x->sizes[at].size > end) end = x->sizes[at].size;
    }
    return end;
}

/* Where piece i stands in the list, so that its owner finds it. In the last turn the pieces stand as they were dealt;
 * which block is which follows from that. */
static uint64_t place_of(const struct pieces *x, const uint32_t *ranks, uint64_t i) {
    const uint64_t turn = i / x->blocks, last = (x->count - 1) / x->blocks;
    const uint64_t rank = ranks[x->owners[i]];
    return turn * x->blocks + ((last - turn) % 2 ? x->blocks - 1 - rank : rank);
}

/* Makes an item of each piece, and puts them into the order in which they were dealt. */
static fcp_code put_in_order(fcp_kernel_work *w, const struct pieces *x, uint32_t first_head, fcp_error *err) {
    uint32_t *ranks = fcp_list_scratch(w, FCP_LIST_TURNS, x->blocks, sizeof *ranks);
    fk_row_item *out = fcp_list_scratch(w, FCP_LIST_PERMUTED, x->count, sizeof *out);
    if (!ranks || !out || !fcp_grow((void **)&w->rows, &w->row_capacity, (uint32_t)x->count, sizeof *w->rows))
        return fcp_list_no_memory(err);
    for (uint32_t b = 0; b < x->blocks; b++) ranks[x->sizes[b].index] = b;
    for (uint64_t i = 0; i < x->count; i++) {
        fk_row_item *item = &out[place_of(x, ranks, i)];
        *item = w->rows[i / x->heads];
        if (!w->single) item->flags |= (first_head + (uint32_t)(i % x->heads)) << FK_HEAD_SHIFT;
    }
    memcpy(w->rows, out, x->count * sizeof *out);
    w->row_count = (uint32_t)x->count;
    w->single = true;
    return FCP_OK;
}

fcp_code fcp_list_deal(fcp_kernel_work *w, const fcp_arena *a, fcp_error *err) {
    const fcp_problem *p = a->plan->problem;
    const uint32_t kv_heads = w->kv_count ? w->kv_count : p->range_kv, kv_first = w->kv_count ? w->kv_first : 0;
    struct pieces x = {.heads = w->single ? 1 : kv_heads * p->range_sub, .blocks = blocks_of(a)};
    x.count = (uint64_t)w->row_count * x.heads;
    if (x.count <= x.blocks || x.count > MOST_TURNS * x.blocks) return FCP_OK;
    x.units = fcp_list_scratch(w, FCP_LIST_FIRSTS, w->row_count, sizeof *x.units);
    x.sizes = fcp_list_scratch(w, FCP_LIST_SIZES, x.blocks, sizeof *x.sizes);
    x.owners = fcp_list_scratch(w, FCP_LIST_LOCKS, x.count, sizeof *x.owners);
    if (!x.units || !x.sizes || !x.owners) return fcp_list_no_memory(err);
    for (uint32_t i = 0; i < w->row_count; i++) x.units[i] = 2 * (uint64_t)fcp_list_cells(w, &w->rows[i]) + ENDS;
    return 100 * deal(&x) < 99 * end_as_listed(&x) ? put_in_order(w, &x, kv_first * p->range_sub, err) : FCP_OK;
}
