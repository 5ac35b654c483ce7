/* partition.h: which multiprocessors attention has. */
#ifndef FCP_CUDA_PARTITION_H
#define FCP_CUDA_PARTITION_H
#include "runtime/cuda/parts.h"

/* Which multiprocessors attention has. An error only where green contexts are wanted and cannot be had. */
fcp_code fcp_cuda_partition_open(fcp_cuda_session *s, fcp_error *err);
void fcp_cuda_partition_again(fcp_cuda_session *s); /* for another plan, with the streams that are there */
void fcp_cuda_partition_close(fcp_cuda_session *s, cuda_device *d); /* after the streams */
uint32_t fcp_cuda_attention_share(uint32_t multiprocessors, uint32_t margin);
#endif
