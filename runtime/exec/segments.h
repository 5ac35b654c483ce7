/* segments.h: which memory a transfer reads or writes.
 *
 * A transfer moves some tokens of one block. Their bytes are not in one piece: a KV transfer takes rows of K and rows
 * of V. Each piece is a segment. The sender's segments have the same sizes, in the same order, as the receiver's.
 */
#ifndef FCP_EXEC_SEGMENTS_H
#define FCP_EXEC_SEGMENTS_H
#include "runtime/exec/rank_memory.h"
#include "runtime/plan/instructions.h"

enum { FCP_SEGMENTS = 6 }; /* room for more than any transfer has */
typedef struct fcp_segment {
    void *data;
    size_t bytes;
} fcp_segment;

/* The segments of a transfer in a rank's arena, of any class but IN and OUT. Returns their number. */
uint32_t fcp_segments_block(const fcp_arena *arena, const fcp_transfer *t, fcp_segment out[FCP_SEGMENTS]);

/* Returns whether a segment of a partial result has sums, and not m or l, the last two segments of a STATE. */
static inline bool fcp_is_sum(const fcp_transfer *t, uint32_t segment) { return t->cls != FCP_STATE || segment == 0; }
/* What travels of a partial result that is rounded for its way: m and l as they lie in the slot, then the sums as
 * bf16 in a message. fcp_rounded_bytes: room for the message of any one transfer of a pass; 0 if nothing is rounded. */
uint32_t fcp_segments_rounded(const fcp_arena *arena, const fcp_transfer *t, void *message,
                              fcp_segment out[FCP_SEGMENTS]);
uint64_t fcp_rounded_bytes(const fcp_plan *plan, fcp_pass pass);
/* The sums, from the slot into the segments that travel, or back. */
void fcp_partial_round(const fcp_arena *arena, const fcp_transfer *t, const fcp_segment wire[FCP_SEGMENTS]);
void fcp_partial_widen(const fcp_arena *arena, const fcp_transfer *t, const fcp_segment wire[FCP_SEGMENTS]);
#endif
