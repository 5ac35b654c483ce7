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

/* The segments of a transfer in a rank's arena, of any class but IN and OUT. Returns their number. */
uint32_t fcp_segments_block(const fcp_arena *arena, const fcp_transfer *t, fcp_segment out[FCP_SEGMENTS]);
#endif
