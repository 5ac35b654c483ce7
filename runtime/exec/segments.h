/* segments.h: which memory a transfer reads or writes.
 *
 * A transfer moves some tokens of one block. Their bytes are not in one piece: a KV transfer takes rows of K and rows
 * of V. Each piece is a segment. The sender's segments have the same sizes, in the same order, as the receiver's.
 */
#ifndef FCP_EXEC_SEGMENTS_H
#define FCP_EXEC_SEGMENTS_H
#include "runtime/exec/arena.h"

enum { FCP_SEGMENTS = 6 }; /* room for more than any transfer has */
typedef struct fcp_segment {
    void *data;
    size_t bytes;
} fcp_segment;

/* Does a partial result travel rounded to bf16, so that its slot's bytes are not those that travel (plan.h: WIRE)? */
static inline bool fcp_is_rounded(const fcp_plan *plan, const fcp_transfer *t) {
    return plan->problem->wire == FCP_BF16 && fcp_is_partial((fcp_class)t->cls);
}

/* The segments of a transfer in a rank's arena, of any class but IN and OUT. Returns their number. */
uint32_t fcp_segments_block(const fcp_arena *arena, const fcp_transfer *t, fcp_segment out[FCP_SEGMENTS]);

/* The message of a rounded partial, from its slot, or into it: its segments end to end, of which m and l are as in the
 * slot, and all others have bf16 for each number. It has fcp_message_bytes (reshuffle.h). */
void fcp_partial_round(const fcp_arena *arena, const fcp_transfer *t, void *message);
void fcp_partial_widen(const fcp_arena *arena, const fcp_transfer *t, const void *message);
#endif
