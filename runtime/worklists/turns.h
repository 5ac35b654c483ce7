/* turns.h: a model, in whole numbers, of how long the blocks of the backward pass take for a work list, and how much of
 * that they wait for their turns. key_lists.c chooses by it how items are cut; a test and a benchmark judge lists by it.
 *
 * Each block takes pieces of work in the order of the list: an item, a KV head, some query heads, and where an item is
 * several blocks' one of its parts. 64 rows of a run and a query head are a step. In an ordered list a step adds to dQ
 * when the piece before it has added to the same rows. At its end a piece adds to dK, then to dV. If others have the
 * same keys they take turns at each, unless sums are added by atomics. The model leaves out other copies, shared
 * memory, and what steps really cost. */
#ifndef FCP_KERNELS_TURNS_H
#define FCP_KERNELS_TURNS_H
#include "runtime/worklists/worklists.h"

enum { FCP_LIST_STEP = 8 }; /* units that a step takes */
typedef struct fcp_list_time {
    uint64_t end, work; /* when the last block ends; what the steps of all take, without waiting */
} fcp_list_time;

/* What takes a list: how many KV heads of `group` query heads each it is for, unless it is by head (worklists.h); how many
 * blocks an item is (FK_DKV_PARTS); on how many SMs; and for what pieces wait. */
typedef struct fcp_list_user {
    uint32_t kv_heads, group, parts, blocks;
    bool by_head, turns_at_rows, turns_at_keys;
} fcp_list_user;

/* For a list that fcp_kernel_keys has made. No number of `user` is 0. False: out of memory. */
bool fcp_list_time_of(const fcp_kernel_work *work, const fcp_list_user *user, fcp_list_time *out);
#endif
