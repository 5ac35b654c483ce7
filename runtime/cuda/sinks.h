/* sinks.h: sinks that a run brings, and their gradients. */
#ifndef FCP_CUDA_SINKS_H
#define FCP_CUDA_SINKS_H
#include "runtime/cuda/cuda_parts.h"

/* Puts a run's own sinks where kernels read them; if it has none, those of the plan. */
fcp_code fcp_cuda_sinks_in(fcp_cuda_session *s, const fcp_tensors *tensors, fcp_error *err);
/* Behind a backward pass: the gradients of those ranks whose callers want them. */
fcp_code fcp_cuda_sinks_out(fcp_cuda_session *s, const fcp_tensors *tensors, fcp_error *err);
#endif
