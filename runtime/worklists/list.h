/* list.h: what the files of this folder share that make the work lists of worklists.h: memory, sorting, and pieces of
 * the lists. */
#ifndef FCP_WORKLISTS_LIST_H
#define FCP_WORKLISTS_LIST_H
#include "runtime/worklists/worklists.h"

/* What each scratch array is for. */
enum {
    FCP_WORKLISTS_CURSORS,
    FCP_WORKLISTS_SIZES,
    FCP_WORKLISTS_FIRSTS,
    FCP_WORKLISTS_PERMUTED,
    FCP_WORKLISTS_LOCKS,
    FCP_WORKLISTS_TURNS,
    FCP_WORKLISTS_PIECES,
    FCP_WORKLISTS_JOINS,
    FCP_WORKLISTS_EMPTY,
    FCP_WORKLISTS_SCRATCHES
};

/* Scratch memory for `count` elements; its contents are undefined. NULL: out of memory. It belongs to the work list. */
void *fcp_worklists_scratch(fcp_worklists *w, int which, size_t count, size_t size);

fcp_code fcp_worklists_no_memory(fcp_error *err);
fcp_code fcp_worklists_too_long(fcp_error *err);

/* Is KV head `kv` of the range listed? */
static inline bool fcp_worklists_wants(const fcp_worklists *w, uint32_t kv) {
    return !w->kv_count || kv - w->kv_first < w->kv_count;
}

/* By head: which heads a run of rows is for, a bit each, among FK_SET_HEADS neighbouring heads. Otherwise 0. */
static inline uint32_t fcp_worklists_heads_of(const fk_row_run *run) {
    return run->cls >> FK_SET_SHIFT & ((1u << FK_SET_HEADS) - 1);
}

/* How many cells of keys an item of rows has. */
uint32_t fcp_worklists_cells(const fcp_worklists *w, const fk_row_item *item);
/* Gives an item runs of its own: the keys of its cells [from, to). */
fcp_code fcp_worklists_copy_runs(fcp_worklists *w, const fcp_arena *a, fk_row_item *item, uint32_t from, uint32_t to,
                                 fcp_error *err);
/* Orders a list of rows of the forward pass, which stand longest first, so that the last CTA ends earliest, and cuts
 * the keys of some rows if it ends earlier then (deal.c). */
fcp_code fcp_worklists_deal(fcp_worklists *w, const fcp_arena *a, fcp_error *err);

/* A list of keys that is kept while others are made. */
struct fcp_worklists_kept {
    fk_key_item *keys;
    fk_row_run *runs;
    uint32_t key_count, run_count, key_capacity, run_capacity;
};
/* Makes room in `all` for so many more items and runs. */
fcp_code fcp_worklists_reserve(struct fcp_worklists_kept *all, uint64_t keys, uint64_t runs, fcp_error *err);
/* Makes `all` the list of w, in place of its own. */
void fcp_worklists_replace_keys(fcp_worklists *w, const struct fcp_worklists_kept *all);

/* Which sums of dK and dV are empty when the launch for a range of heads begins, which does visits [first, first +
 * count) of an ATTEND: out_slots[b] becomes the DKV slot in which the launch adds to KV block b if nothing has been
 * added there yet, and nothing is by other launches of the ATTEND; FCP_NONE otherwise (empty_sums.c). */
void fcp_worklists_empty_sums(const fcp_arena *a, uint32_t range, uint32_t first, uint32_t count, uint32_t *out_slots);

/* Gives the pieces of a list of keys their locks and turns (locks.c). False: out of memory. */
bool fcp_worklists_give_turns(fcp_worklists *w, const fcp_arena *a, fcp_key_order order);

/* How many bytes after the beginning of the arena a place is. */
fk_u64 fcp_worklists_offset(const fcp_arena *a, const void *place);

/* Where TMA finds the K and V of token `at` of a KV slot: in which tensors, in which of their rows, and in which slot
 * of theirs. False: a number does not fit in the 32-bit coordinates of TMA. */
struct fcp_worklists_place {
    uint32_t place, row, slot;
};
bool fcp_worklists_key_rows(const fcp_arena *a, uint32_t slot, uint64_t at, struct fcp_worklists_place *out);

/* How much work an item is, and where it stands. */
struct fcp_worklists_size {
    uint64_t size;
    uint32_t index;
};
/* Sorts `count` items of `bytes` bytes each, longest first. */
bool fcp_worklists_sort(fcp_worklists *w, void *items, uint32_t count, size_t bytes, struct fcp_worklists_size *sizes);
#endif
