/* work.h: what the instructions of a compute queue put into a rank's stream. */
#ifndef FCP_CUDA_WORK_H
#define FCP_CUDA_WORK_H
#include "runtime/cuda/parts.h"

/* The work lists of a rank's ATTENDs of a pass, with an arena that begins anywhere. */
fcp_code fcp_cuda_work_make(fcp_cuda_session *s, cuda_rank *rank, fcp_pass pass, fcp_error *err);
fcp_code fcp_cuda_attend(fcp_cuda_session *s, cuda_rank *rank, fcp_pass pass, const cuda_attend *work, fcp_error *err);
fcp_code fcp_cuda_prepare(fcp_cuda_session *s, cuda_rank *rank, fcp_pass pass, fcp_error *err);
fcp_code fcp_cuda_delta(fcp_cuda_session *s, cuda_rank *rank, fcp_error *err);
fcp_code fcp_cuda_reduce(fcp_cuda_session *s, cuda_rank *rank, const fcp_instr *x, fcp_error *err);
fcp_code fcp_cuda_open_accumulators(fcp_cuda_session *s, cuda_rank *rank, const fcp_instr *x, fcp_error *err);
/* The backward pass's results of home blocks that go out early, or of the others, in a queue's stream. */
fcp_code fcp_cuda_finish(fcp_cuda_session *s, cuda_rank *rank, fcp_queue queue, bool early, fcp_error *err);
#endif
