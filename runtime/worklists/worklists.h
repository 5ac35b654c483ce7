/* worklists.h: turns one ATTEND instruction of a plan into the work lists that the kernels read
 * (codegen/kernels/abi.h).
 *
 * An item is one row or one column of cells, 128 positions, and one CTA works on it. The forward pass and dQ want rows
 * of queries, each with the runs of keys that it meets; dK and dV want columns of keys, each with its runs of rows.
 *
 * Order. Items stand in the list longest first, and items of one length in the order of the plan: CTAs take items from
 * the front, so the long ones do not start last. If each CTA has few pieces, the list of a forward pass may have
 * another order, with which the last CTA ends earlier (deal.c); it depends on how CTAs take pieces (`tickets`). Runs
 * stand in the order of the plan, but those of an ordered list go from the last row to the first.
 *
 * Bits. The bits of a result do not depend on which CTA runs when. Either a sum belongs to a single item of the launch,
 * which adds to it in the order of its runs; or several items add to the same sum and take turns, in the order of the
 * list.
 *
 * Short sequences. If a sequence has at most FCP_SHORT_QUERIES queries and more keys, the query heads of a group share
 * the rows of a tile. Its keys are cut into one to six parts for each SM that the plan is made for, whichever number
 * lets the last SM end first. A list of merges says how the parts are joined afterwards, in the order of the keys.
 * Other rows are cut by keys, too, if the last CTA then ends earlier (deal.c); the kernel itself joins these parts.
 *
 * By head. If the heads of a plan are of several classes (runtime/plan/FORMAT.md), each item is of one head, and meets
 * what this head sees. Items of all heads are one list, longest first.
 *
 * Offsets are bytes from the beginning of the arena (fcp_arena.k).
 */
#ifndef FCP_WORKLISTS_WORKLISTS_H
#define FCP_WORKLISTS_WORKLISTS_H
#include "codegen/kernels/abi.h"
#include "runtime/exec/rank_memory.h"
#include "runtime/worklists/fuse.h"

typedef struct fcp_worklists {
    uint32_t range; /* of which heads visits are listed, an index into the plan's; others are passed over */
    uint32_t kv_first, kv_count; /* lists by head are of these KV heads of the range; kv_count 0: of all */
    /* Not NULL: several ATTENDs are one launch, and rows have the keys of all of them. */
    const fcp_fusion *fusion;
    /* CTAs of the forward kernel take pieces from a counter, each the next one when it is ready, as fk_forward_sm90 does;
     * else they take those that fk_piece says. */
    bool tickets;
    /* what fcp_worklists_rows makes */
    fk_row_item *rows;
    fk_key_run *key_runs;
    uint32_t row_count, key_run_count;
    bool single; /* an item of rows is of one query head, or of those that share its tile; else it is for all heads */
    fk_merge_item *merges; /* of rows whose keys are in parts; split_bytes: of their parts' running states */
    uint32_t merge_count;
    uint64_t split_bytes;
    uint32_t cut_parts; /* of rows whose keys are cut, without FK_PACKED; their running states are split_bytes, too */
    /* what fcp_worklists_keys makes */
    fk_key_item *keys;
    fk_row_run *row_runs;
    uint32_t key_count, row_run_count, lock_count; /* lock_count: how many locks the turns of an ordered list need */
    uint32_t subs; /* an item is a piece of work for each KV head and each so many query heads of its group; fused: of
                    * those that its fk_key_fused says, which stand behind the items */
    /* private: memory that the next call uses again */
    uint32_t row_capacity, key_run_capacity, merge_capacity, key_capacity, row_run_capacity;
    void *scratch[9];
    size_t scratch_bytes[9];
} fcp_worklists;

void fcp_worklists_free(fcp_worklists *work);
/* Lists the rows of visits [first, first + count) with the keys that they meet: for attention if the arena is of the
 * forward pass, for dQ if it is of the backward pass. Rows that meet no key get an item only if something has to be
 * written for them. Errors: FCP_E_NO_MEMORY; FCP_E_RUN if a list is too long to be counted in 32 bits. */
fcp_code fcp_worklists_rows(fcp_worklists *work, const fcp_arena *arena, uint32_t first, uint32_t count,
                            fcp_error *err);
/* Lists the rows of a run of ATTENDs, as work->fusion says: each with the keys of all of them, in the order in which
 * they arrive. Rows whose last keys arrive earlier stand before others, and of these the longest first. */
fcp_code fcp_worklists_rows_fused(fcp_worklists *work, const fcp_arena *arena, fcp_error *err);
/* What a backward kernel computes from a list of keys, and how its items share sums.
 *   ALONE     dK and dV only. Pieces that have the same keys take turns by locks.
 *   JOINT     dK, dV and dQ. All are added by atomics.
 *   ORDERED   dK, dV and dQ. Pieces take turns by locks, and each run is of a single row of cells.
 * In each of them items are cut until there is enough work for the SMs that the plan is made for: into several items of
 * the same keys, or into pieces of some query heads each. */
typedef enum fcp_key_order { FCP_KEYS_ALONE, FCP_KEYS_JOINT, FCP_KEYS_ORDERED } fcp_key_order;
/* The order that a backward kernel (a skeleton EMIT_*) needs. */
fcp_key_order fcp_key_order_of(unsigned backward);
/* Lists the keys of the same visits with the rows that meet them. Errors: as fcp_worklists_rows. */
fcp_code fcp_worklists_keys(fcp_worklists *work, const fcp_arena *arena, uint32_t first, uint32_t count,
                            fcp_key_order order, fcp_error *err);

/* Lists the keys of a run of backward ATTENDs, as work->fusion says: the lists of its ATTENDs one behind the other,
 * with the flags that each item waits for. Not for FCP_KEYS_ALONE. */
fcp_code fcp_worklists_keys_fused(fcp_worklists *work, const fcp_arena *arena, fcp_key_order order, fcp_error *err);
/* The bytes of work->keys. */
static inline size_t fcp_worklists_key_bytes(const fcp_worklists *work) {
    return work->key_count * (sizeof *work->keys + (work->fusion ? sizeof(fk_key_fused) : 0));
}

/* How many pieces of work a list is.
 *   fcp_worklists_pieces       single: an item is a piece. Otherwise it is a piece for each of `heads` heads
 *   fcp_worklists_key_pieces   for a list of keys whose kernel has order JOINT or ORDERED: an item is for `kv_heads` KV
 *                              heads with `group` query heads each, and a piece for `subs` of these query heads */
static inline uint64_t fcp_worklists_pieces(bool single, uint32_t items, uint32_t heads) {
    return single ? items : (uint64_t)items * heads;
}
static inline uint64_t fcp_worklists_key_pieces(bool by_head, uint32_t items, uint32_t subs, uint32_t kv_heads,
                                                uint32_t group) {
    return fcp_worklists_pieces(by_head, items, kv_heads * ((group + subs - 1) / subs));
}
/* How many counters of 4 bytes a forward kernel has: for tickets, and for the parts of cut rows. 0: none. All are 0 when
 * the kernel begins and when it ends. */
static inline size_t fcp_worklists_counters(const fcp_worklists *work) {
    if (!work->tickets && !work->cut_parts) return 0;
    return FK_TICKET_COUNTERS + (size_t)work->cut_parts * FK_PART_COUNTERS;
}
/* How many words of 4 bytes the locks of an ordered list are, for `heads` query heads. */
static inline size_t fcp_worklists_lock_words(uint32_t locks, uint32_t heads) {
    return (size_t)locks * heads * FK_TURNS_OF_RUN;
}

/* A launch is for one range of heads. The next range, an index into plan->heads, that one of these visits has; after
 * FCP_NONE: the first. FCP_NONE: there is none. */
uint32_t fcp_launch_next_range(const fcp_plan *plan, uint32_t first, uint32_t count, uint32_t after);
/* Sinks as kernels read them: range by range, as many as a range has heads. sink_count: how many floats that are.
 * sinks_of: the address of those of a range, if all begin at `sinks`; 0 if the plan has none. */
void fcp_launch_sinks(const fcp_plan *plan, float *out);
size_t fcp_launch_sink_count(const fcp_plan *plan);
fk_u64 fcp_launch_sinks_of(const fcp_plan *plan, fk_u64 sinks, uint32_t range);

/* Fills the launch parameters that follow from arena and plan, for all heads of a range. The work list, the environment
 * and what a run wants stay 0. */
void fcp_launch_parameters(const fcp_arena *arena, uint32_t range, fk_launch *out_launch);
/* A tensor of an arena as TMA has to know it: its address; how many rows a slot has, how many slots there are, and of
 * how many heads of how many numbers a row consists; and the bytes from a head to the next, from a row and from a slot.
 * Rows are 0 if the pass or the rank has no such tensor. They stand in the order of fk_launch_maps. */
typedef struct fcp_launch_tensor {
    uint64_t address, rows, slots;
    uint32_t heads, numbers;
    uint64_t strides[3];
} fcp_launch_tensor;
enum { FCP_LAUNCH_TENSORS = 6 };
void fcp_launch_tensors(const fcp_arena *arena, fcp_launch_tensor out[FCP_LAUNCH_TENSORS]);
/* Joins launch parameters and the maps of those tensors, which are in the same order. */
void fcp_launch_maps(const fk_launch *launch, const fk_map maps[FCP_LAUNCH_TENSORS], fk_launch_maps *out);
/* The environment of the mask, to which fk_env points. These fill sequences_count, arrays_count and slices_count
 * records, for a plan whose sections DATA, BAND_ROWS and BANDS stand at the given addresses of the device. */
void fcp_launch_sequences(const fcp_plan *plan, fk_sequence *out);
void fcp_launch_arrays(const fcp_plan *plan, uint64_t data, fk_u64 *out);
/* The DATA section as kernels read it: data_count bytes, aligned to 8. It is the plan's section, except that tables of
 * reals become float, each at the place where it was: so a number is rounded once here and not with every use. */
void fcp_launch_data(const fcp_plan *plan, void *out);
void fcp_launch_bands(const fcp_plan *plan, uint64_t band_rows, uint64_t bands, fk_bands *out);
#endif
