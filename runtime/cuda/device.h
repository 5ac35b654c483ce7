/* device.h: one device: making it current, its events, streams that follow each other, waiting with a time limit. */
#ifndef FCP_CUDA_DEVICE_H
#define FCP_CUDA_DEVICE_H
#include "runtime/cuda/parts.h"

/* Makes the device current for this thread. */
fcp_code fcp_cuda_use(const fcp_cuda_session *s, const cuda_device *d, fcp_error *err);
/* What its kernels are compiled for, as "sm_90a"; whether that is sm_90a, with its copy engine and warpgroup products. */
void fcp_cuda_arch(const cuda_device *d, char out[32]);
bool fcp_cuda_is_sm_90a(const cuda_device *d);
/* Events of a device: taken when needed, given back when whatever waits for it has been told to. The device in use stays. */
fcp_code fcp_cuda_event_take(fcp_cuda_session *s, cuda_device *d, cu_event *out, fcp_error *err);
void fcp_cuda_event_give(cuda_device *d, cu_event event);
/* Work put into `to` from now on begins after what is in `from`, a stream of device d. */
fcp_code fcp_cuda_follow(fcp_cuda_session *s, cuda_device *d, cu_stream from, cu_stream to, fcp_error *err);
/* All streams of all ranks follow the origin, of device d; the origin follows all of them. */
fcp_code fcp_cuda_fork(fcp_cuda_session *s, cuda_device *d, cu_stream origin, fcp_error *err);
fcp_code fcp_cuda_join(fcp_cuda_session *s, cu_stream origin, fcp_error *err);
/* Until what is in the stream, or before the event, is done, or the session's patience is. */
fcp_code fcp_cuda_wait_event(fcp_cuda_session *s, cu_event event, const char *what, fcp_error *err);
fcp_code fcp_cuda_wait(fcp_cuda_session *s, cu_stream stream, const char *what, fcp_error *err);
#endif
