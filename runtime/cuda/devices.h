/* devices.h: opening and closing the devices of a session. */
#ifndef FCP_CUDA_DEVICES_H
#define FCP_CUDA_DEVICES_H
#include "runtime/cuda/cuda_parts.h"

/* Opens the session's devices: their contexts, direct copies between them, and their stages. */
fcp_code fcp_cuda_devices_open(fcp_cuda_session *s, fcp_error *err);
/* Closes them, with their kernels, environments, stages, events and partitions. Nothing may be running on them. */
void fcp_cuda_devices_close(fcp_cuda_session *s);
/* Frees what they have in host memory, even if they could not be closed. */
void fcp_cuda_devices_free(fcp_cuda_session *s);
#endif
