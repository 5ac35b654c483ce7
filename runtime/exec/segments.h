/* segments.h: which memory a transfer reads or writes.
 *
 * A transfer moves some tokens of one block. Their bytes are not in one piece: a KV transfer takes rows of K and rows
 * of V. Each piece is a segment. The sender's segments have the same sizes, in the same order, as the receiver's.
 */
#ifndef FCP_EXEC_SEGMENTS_H
#define FCP_EXEC_SEGMENTS_H
#include "runtime/exec/arena.h"

enum { FCP_SEGMENTS = 6 }; /* the most that a transfer has: backward inputs are q, k, v, o, d_o and lse */
typedef struct fcp_segment {
    void *data;
    size_t bytes;
} fcp_segment;

/* The segments of a transfer in a rank's arena: of a home block or of a slot. Returns their number. */
uint32_t fcp_segments_block(const fcp_arena *arena, const fcp_transfer *t, fcp_segment out[FCP_SEGMENTS]);
/* The same in the caller's tensors of that rank, for a transfer of inputs or outputs. */
uint32_t fcp_segments_caller(const fcp_arena *arena, const fcp_tensors *tensors, const fcp_transfer *t,
                             fcp_segment out[FCP_SEGMENTS]);
#endif
