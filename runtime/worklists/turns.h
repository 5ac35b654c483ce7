/* turns.h: a model, in whole numbers, of how long the CTAs of the backward pass take for a work list, and how much of
 * that they wait for their turns. key_lists.c decides with it how items are cut; a test and a benchmark judge lists by
 * it.
 *
 * What the model does:
 *   - A CTA takes pieces of work in the order of the list. A piece is an item for one KV head and some query heads; if
 *     several CTAs share an item, a piece is one of the item's parts.
 *   - A piece is done in steps: 64 rows of a run, for one query head. In an ordered list a step adds to dQ when the
 *     piece before it has added to the same rows.
 *   - At its end a piece adds to dK, then to dV. Pieces that have the same keys take turns at dK and at dV, unless sums
 *     are added by atomics.
 * It leaves out other copies, shared memory, and what steps really cost.
 */
#ifndef FCP_WORKLISTS_TURNS_H
#define FCP_WORKLISTS_TURNS_H
#include "runtime/worklists/worklists.h"

enum { FCP_WORKLISTS_STEP = 8 }; /* units that a step takes */
typedef struct fcp_worklists_time {
    uint64_t end, work; /* when the last CTA ends; what the steps of all take, without waiting */
} fcp_worklists_time;

/* The kernel that a list is for, and the device.
 *   kv_heads, group                how many KV heads there are, and how many query heads each of them has
 *   parts                          how many CTAs share an item (FK_DKV_PARTS)
 *   ctas                           how many CTAs run, one on each SM
 *   by_head                        whether the list is by head (worklists.h)
 *   turns_at_rows, turns_at_keys   whether pieces wait for turns at rows, and at keys */
typedef struct fcp_worklists_user {
    uint32_t kv_heads, group, parts, ctas;
    bool by_head, turns_at_rows, turns_at_keys;
} fcp_worklists_user;

/* Runs the model on a list that fcp_worklists_keys has made. No number of `user` is 0. False: out of memory. */
bool fcp_worklists_time_of(const fcp_worklists *work, const fcp_worklists_user *user, fcp_worklists_time *out);
#endif
