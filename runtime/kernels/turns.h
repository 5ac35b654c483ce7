/* turns.h: a model, in whole numbers, of how long the blocks of the backward pass take for a work list, and how much of
 * that they wait for their turns. keys.c chooses by it how items are cut; a test and a benchmark judge lists by it.
 *
 * Each block takes pieces of work (an item, a KV head, some query heads) in the order of the list. 64 rows of a run and
 * a query head are a step. A step adds to dQ when the piece before it has added to the same rows. At its end a piece
 * adds to dK and dV; if others have the same keys, in turn. The model leaves out other copies, shared memory, and what
 * steps really cost. It does not know lists by head. */
#ifndef FCP_KERNELS_TURNS_H
#define FCP_KERNELS_TURNS_H
#include "runtime/kernels/work.h"

typedef struct fcp_list_time {
    uint64_t end, work; /* when the last block ends; what the steps of all take, without waiting */
} fcp_list_time;

/* For a list that fcp_kernel_keys has made and `kv_heads` KV heads of `group` query heads each. With `turns` (for
 * ordered lists only) pieces wait for each other; without, never. `blocks` > 0. False: out of memory. */
bool fcp_list_time_of(const fcp_kernel_work *work, uint32_t kv_heads, uint32_t group, uint32_t blocks, bool turns,
                      fcp_list_time *out);
#endif
