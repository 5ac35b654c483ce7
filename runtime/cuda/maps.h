/* maps.h: tensor maps: what the copy engine of sm_90 knows of the tensors in a rank's arena. */
#ifndef FCP_CUDA_MAPS_H
#define FCP_CUDA_MAPS_H
#include "runtime/cuda/parts.h"

/* Makes the maps of a pass, once the rank's arena lies where it will. */
fcp_code fcp_cuda_maps_make(fcp_cuda_session *s, cuda_rank *rank, fcp_pass pass, fcp_error *err);
/* The parameters for a launch of a kernel: *maps, with the launch in it, where the kernel takes maps, else *launch itself. */
void *fcp_cuda_with_maps(const cuda_rank *rank, fcp_pass pass, cuda_kernel_id id, fk_launch *launch, fk_launch_maps *maps);
#endif
