/* marks.h: how far each queue of each rank has come, as the devices write it. */
#ifndef FCP_CUDA_MARKS_H
#define FCP_CUDA_MARKS_H
#include "runtime/cuda/cuda_parts.h"

/* Everything below does nothing in a session without marks, which this may leave it to be. */
fcp_code fcp_cuda_marks_open(fcp_cuda_session *s, fcp_error *err);
void fcp_cuda_marks_close(fcp_cuda_session *s);
size_t fcp_cuda_marks_pinned(const fcp_cuda_session *s); /* bytes of host memory */
/* Sets all marks to "a run of this pass begins", in `origin`, a stream of device d. */
fcp_code fcp_cuda_marks_begin(fcp_cuda_session *s, fcp_pass pass, const cuda_device *d, cu_stream origin,
                              fcp_error *err);
/* mark_value: what is written when an instruction begins; `instr` is its number in the queue, or the count of
 * instructions when the queue ends. mark_at: where kernels of a compute queue write it. mark: writes a value when the
 * queue's stream has come to this place, beside it. */
uint32_t fcp_cuda_mark_value(fcp_pass pass, uint32_t instr);
cu_ptr fcp_cuda_mark_at(const fcp_cuda_session *s, const cuda_rank *rank);
fcp_code fcp_cuda_mark(fcp_cuda_session *s, const cuda_rank *rank, fcp_queue queue, uint32_t value, fcp_error *err);
/* `origin` follows what marks have been written. */
fcp_code fcp_cuda_marks_join(fcp_cuda_session *s, cu_stream origin, fcp_error *err);
/* Finds the rank of this process that has come least far and waits for no other rank, and puts its place before the
 * message of an error that does not name one yet: "rank 3, forward pass, stage 2, ...". May be called at any time, even
 * while something hangs. Returns the code. */
fcp_code fcp_cuda_fail_where(const fcp_cuda_session *s, fcp_code code, fcp_error *err);
#endif
