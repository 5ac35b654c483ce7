/* kept_keys.h: runs that use the K and V of the run before.
 *
 * Heads are computed in phases, and query heads of several phases share KV heads (upipe). Then K and V of the first of
 * these phases are still where it received them, and the next phase moves its queries alone.
 *
 * That what such a run reads is there follows from what the verifier has proven of the plan, and from fcp_keys_stay:
 *   - A run of the plan writes each KV slot with one block, and home blocks with the caller's K and V. Nothing else
 *     writes there: K and V have memory of their own, at the same place in both passes (rank_memory.c). So at the end of
 *     a run every slot has what the plan says of it at any time.
 *   - A run that keeps keys has the same instructions and waits, and moves everything but K and V. Each tile reads the
 *     slots that the verifier has looked at, and they have had the right blocks since before the run began.
 */
#ifndef FCP_EXEC_KEPT_KEYS_H
#define FCP_EXEC_KEPT_KEYS_H
#include "runtime/plan/instructions.h"
#include "runtime/plan/records.h"

/* Returns whether K and V of a run stay for the next one, at ranks `first` and `count` that follow: no pass uses a KV
 * slot for two blocks, both passes have each block in the same slot, and inputs come from the caller of the block's home
 * alone, so that the caller may leave K and V out. If memory runs out, it returns false.
 * Cost: linear in the transfers of these ranks. */
bool fcp_keys_stay(const fcp_plan *plan, uint32_t first, uint32_t count);
#endif
