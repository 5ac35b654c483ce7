/* early.h: results that leave while the last stage computes. */
#ifndef FCP_CUDA_EARLY_H
#define FCP_CUDA_EARLY_H
#include "runtime/cuda/parts.h"

/* Of a rank whose slots are laid out: which, and when. */
fcp_code fcp_cuda_early_find(fcp_cuda_session *s, uint32_t rank, fcp_pass pass, fcp_error *err);
/* In recording, where `after` is reached: they are made ready in the communication stream, behind `prepared`; in a graph an
 * event says so, outside it too. */
fcp_code fcp_cuda_early_ready(fcp_cuda_session *s, cuda_rank *rank, fcp_pass pass, cu_event prepared, fcp_error *err);
/* Puts them into callers' tensors, once the pass has been put into the origin: the ranks' communication streams are where
 * `after` is, or are to be, if it was a graph. `host`: stages follow. */
fcp_code fcp_cuda_early_move(fcp_cuda_session *s, fcp_pass pass, const fcp_tensors *tensors, bool graph, bool host, fcp_error *err);
#endif
