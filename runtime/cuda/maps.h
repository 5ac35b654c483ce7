/* maps.h: tensor maps: they describe the tensors in a rank's arena to the copy engine of sm_90a. */
#ifndef FCP_CUDA_MAPS_H
#define FCP_CUDA_MAPS_H
#include "runtime/cuda/cuda_parts.h"

/* Makes the maps of a pass. The rank's arena must have its final address. */
fcp_code fcp_cuda_maps_make(fcp_cuda_session *s, cuda_rank *rank, fcp_pass pass, fcp_error *err);
/* The parameters for launching a kernel: `launch` itself; or, if the kernel takes maps, `maps`, which then includes
 * the launch. */
void *fcp_cuda_with_maps(const cuda_rank *rank, fcp_pass pass, cuda_kernel_id id, fk_launch *launch,
                         fk_launch_maps *maps);
#endif
