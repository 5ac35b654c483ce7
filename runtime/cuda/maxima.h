/* maxima.h: the largest logit of each head, of the rows that a rank finishes. */
#ifndef FCP_CUDA_MAXIMA_H
#define FCP_CUDA_MAXIMA_H
#include "runtime/cuda/cuda_parts.h"

/* Notes whether a run wants them. */
void fcp_cuda_maxima_check(fcp_cuda_session *s, fcp_pass pass, const fcp_tensors *tensors);
/* Where kernels of a pass raise those of a rank: a float for each head of the model. 0: the run does not want them. */
cu_ptr fcp_cuda_maxima_of(const fcp_cuda_session *s, const cuda_rank *rank, fcp_pass pass);
/* Sets them to -inf, in the rank's compute stream: a part of the pass, and so of its graph. */
fcp_code fcp_cuda_maxima_begin(fcp_cuda_session *s, cuda_rank *rank, fcp_pass pass, fcp_error *err);
/* Behind a forward pass: brings them to those callers that want them. */
fcp_code fcp_cuda_maxima_out(fcp_cuda_session *s, const fcp_tensors *tensors, fcp_error *err);
#endif
