/* segments.h: which memory a transfer reads or writes.
 *
 * A transfer moves some tokens of one block. Their bytes are not in one piece: a KV transfer takes rows of K and rows
 * of V. Each piece is a segment. The sender's segments have the same sizes, in the same order, as the receiver's.
 *
 * In a rank's arena a segment's bytes lie together. In the caller's tensors they do where the block is of all heads.
 * Where it is of a range of heads, each row of the caller's has those of other ranges between: so the caller's side is
 * described by strides.
 */
#ifndef FCP_EXEC_SEGMENTS_H
#define FCP_EXEC_SEGMENTS_H
#include "runtime/exec/arena.h"

enum { FCP_SEGMENTS = 6 }; /* the most that a transfer has: backward inputs are q, k, v, o, d_o and lse */
typedef struct fcp_segment {
    void *data;
    size_t bytes;
} fcp_segment;

/* A segment in the caller's tensors: `rows` rows, `row_stride` bytes apart; of each, `runs` runs of `bytes` bytes,
 * `run_stride` bytes apart. If the bytes lie together they are one run of one row. */
typedef struct fcp_strided {
    char *data;
    uint64_t rows;
    size_t row_stride;
    uint32_t runs;
    size_t run_stride, bytes;
} fcp_strided;

/* The segments of a transfer in a rank's arena: of a home block or of a slot. Returns their number. */
uint32_t fcp_segments_block(const fcp_arena *arena, const fcp_transfer *t, fcp_segment out[FCP_SEGMENTS]);
/* The same in the caller's tensors of that rank, for a transfer of inputs or outputs. */
uint32_t fcp_segments_caller(const fcp_arena *arena, const fcp_tensors *tensors, const fcp_transfer *t,
                             fcp_strided out[FCP_SEGMENTS]);

static inline size_t fcp_strided_bytes(const fcp_strided *s) { return (size_t)s->rows * s->runs * s->bytes; }
static inline bool fcp_strided_is_one(const fcp_strided *s) { return s->rows == 1 && s->runs == 1; }
/* Host memory: copies the segment's bytes to `dense`, where they lie together; or, with `back`, from there. */
void fcp_strided_copy(const fcp_strided *s, void *dense, bool back);
#endif
