/* partition.h: which multiprocessors attention has. */
#ifndef FCP_CUDA_PARTITION_H
#define FCP_CUDA_PARTITION_H
#include "runtime/cuda/cuda_parts.h"

/* Decides which multiprocessors attention may use on each device, and says why in partition_why. An error: green
 * contexts are asked for and cannot be had. */
fcp_code fcp_cuda_partition_open(fcp_cuda_session *s, fcp_error *err);
/* Checks that a fused pass leaves multiprocessors to transfers that need some: its blocks wait for transfers, and if
 * they had all multiprocessors, those would never begin. FCP_E_BACKEND. */
fcp_code fcp_cuda_partition_check(const fcp_cuda_session *s, fcp_error *err);
void fcp_cuda_partition_again(fcp_cuda_session *s); /* the same for another plan; streams stay as they are */
void fcp_cuda_partition_close(fcp_cuda_session *s, cuda_device *d); /* after its streams are destroyed */
#endif
