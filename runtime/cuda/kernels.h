/* kernels.h: the kernels of a session: compiled, loaded and checked on each device. */
#ifndef FCP_CUDA_KERNELS_H
#define FCP_CUDA_KERNELS_H
#include "runtime/cuda/cuda_parts.h"

/* Loads the kernels that the plan needs on all devices. If it is called again for another plan, the kernels of a pass
 * stay if their source is the same. */
fcp_code fcp_cuda_kernels_load(fcp_cuda_session *s, fcp_error *err);
#endif
