/* environment.h: what masks and scores read on a device: sequences, fields, slices, sinks. */
#ifndef FCP_CUDA_ENVIRONMENT_H
#define FCP_CUDA_ENVIRONMENT_H
#include "runtime/cuda/cuda_parts.h"

/* How many bytes it takes on each device, where this process has so many ranks. */
size_t fcp_cuda_environment_size(const fcp_plan *plan, uint32_t ranks);
/* How far one rank's gradients of sinks, and its largest logits, are from the next one's. */
size_t fcp_cuda_sink_sums_size(const fcp_plan *plan);
size_t fcp_cuda_maxima_size(const fcp_plan *plan);
/* Copies it to all devices, in the place of an earlier plan's. */
fcp_code fcp_cuda_environment_load(fcp_cuda_session *s, fcp_error *err);
#endif
