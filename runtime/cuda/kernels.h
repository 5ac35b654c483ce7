/* kernels.h: the kernels of a session: compiled, loaded and checked on each device. */
#ifndef FCP_CUDA_KERNELS_H
#define FCP_CUDA_KERNELS_H
#include "runtime/cuda/parts.h"

/* Loads what the plan needs on all devices. Called again for another plan: of each pass, kernels whose source is the same stay. */
fcp_code fcp_cuda_kernels_load(fcp_cuda_session *s, fcp_error *err);
#endif
