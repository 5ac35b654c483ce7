/* list.h: what row_lists.c, deal.c, key_lists.c, locks.c and key_lists_fused.c share, which make the work lists of worklists.h. */
#ifndef FCP_KERNELS_LIST_H
#define FCP_KERNELS_LIST_H
#include "runtime/worklists/worklists.h"

/* What each scratch array is for. */
enum {
    FCP_LIST_CURSORS,
    FCP_LIST_SIZES,
    FCP_LIST_FIRSTS,
    FCP_LIST_PERMUTED,
    FCP_LIST_LOCKS,
    FCP_LIST_TURNS,
    FCP_LIST_PIECES,
    FCP_LIST_JOINS,
    FCP_LIST_SCRATCHES
};

/* Scratch memory for `count` elements; its contents are undefined. NULL: out of memory. It belongs to the work list. */
void *fcp_list_scratch(fcp_kernel_work *w, int which, size_t count, size_t size);

fcp_code fcp_list_no_memory(fcp_error *err);
fcp_code fcp_list_too_long(fcp_error *err);

/* Is KV head `kv` of the range listed? */
static inline bool fcp_list_wants(const fcp_kernel_work *w, uint32_t kv) {
    return !w->kv_count || kv - w->kv_first < w->kv_count;
}

/* By head: the heads that a run is of, a bit each, from the first of its FK_SET_HEADS neighbours on. Else 0. */
static inline uint32_t fcp_list_heads_of(const fk_row_run *run) {
    return run->cls >> FK_SET_SHIFT & ((1u << FK_SET_HEADS) - 1);
}

/* How many cells of keys an item of rows has. */
uint32_t fcp_list_cells(const fcp_kernel_work *w, const fk_row_item *item);
/* Lists the keys of cells [from, to) of an item again, as runs of its own. */
fcp_code fcp_list_copy_runs(fcp_kernel_work *w, const fcp_arena *a, fk_row_item *item, uint32_t from, uint32_t to,
                            fcp_error *err);
/* Puts a list of rows of the forward pass, longest first, into the order in which blocks end earliest, and cuts the
 * keys of some rows if blocks end earlier then (deal.c). */
fcp_code fcp_list_deal(fcp_kernel_work *w, const fcp_arena *a, fcp_error *err);

/* A list of keys that is kept while others are made. */
struct fcp_list_kept {
    fk_key_item *keys;
    fk_row_run *runs;
    uint32_t key_count, run_count, key_capacity, run_capacity;
};
/* Makes room in `all` for so many more items and runs. */
fcp_code fcp_list_reserve(struct fcp_list_kept *all, uint64_t keys, uint64_t runs, fcp_error *err);
/* Makes `all` the list of w, in place of what w has. */
void fcp_list_put(fcp_kernel_work *w, const struct fcp_list_kept *all);

/* Gives the pieces of a list of keys their locks and turns (locks.c). False: out of memory. */
bool fcp_list_give_turns(fcp_kernel_work *w, const fcp_arena *a, fcp_kernel_order order);

/* How many bytes after the beginning of the arena a place is. */
fk_u64 fcp_list_offset(const fcp_arena *a, const void *place);

/* Where the TMA finds the K and V of token `at` of a KV slot: in which tensors, in which of their rows, and in
 * which slot of theirs. False: a number does not fit in the TMA's 32-bit coordinates. */
struct fcp_list_place {
    uint32_t place, row, slot;
};
bool fcp_list_key_rows(const fcp_arena *a, uint32_t slot, uint64_t at, struct fcp_list_place *out);

/* How much work an item is, and where it stands. */
struct fcp_list_size {
    uint64_t size;
    uint32_t index;
};
/* Sorts `count` items of `bytes` bytes each, longest first. */
bool fcp_list_sort(fcp_kernel_work *w, void *items, uint32_t count, size_t bytes, struct fcp_list_size *sizes);
#endif
