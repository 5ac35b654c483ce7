/* segments.h: which memory a transfer reads or writes. */
#ifndef FCP_EXEC_SEGMENTS_H
#define FCP_EXEC_SEGMENTS_H
#include "runtime/exec/arena.h"

enum { FCP_SEGMENTS = 6 };
typedef struct fcp_segment {
    void *data;
    size_t bytes;
} fcp_segment;

/* What a transfer moves at a rank, on its home's or its slot's side; or on the side of a caller, whose tensors of this rank
 * these are. Returns the number of segments; both sides of a transfer give the same sizes in the same order. */
uint32_t fcp_segments_block(const fcp_arena *arena, const fcp_transfer *t, fcp_segment out[FCP_SEGMENTS]);
uint32_t fcp_segments_caller(const fcp_arena *arena, const fcp_tensors *tensors, const fcp_transfer *t,
                             fcp_segment out[FCP_SEGMENTS]);
#endif
