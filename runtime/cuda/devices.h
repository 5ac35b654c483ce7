/* devices.h: opening and closing the devices of a session. */
#ifndef FCP_CUDA_DEVICES_H
#define FCP_CUDA_DEVICES_H
#include "runtime/cuda/parts.h"

/* Opens the session's devices: contexts, direct copies between them, stages. */
fcp_code fcp_cuda_devices_open(fcp_cuda_session *s, fcp_error *err);
/* Closes them; nothing of theirs is under way. What one device has: kernels, environment, stage, events, partition. */
void fcp_cuda_devices_close(fcp_cuda_session *s);
/* Frees what they have on the host, whether or not they could be closed. */
void fcp_cuda_devices_free(fcp_cuda_session *s);
#endif
