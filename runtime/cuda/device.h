/* device.h: one device: making it current, its events, streams that follow each other, waiting with a time limit. */
#ifndef FCP_CUDA_DEVICE_H
#define FCP_CUDA_DEVICE_H
#include "runtime/cuda/cuda_parts.h"

/* Makes the device's context current for this thread. */
fcp_code fcp_cuda_use(const fcp_cuda_session *s, const cuda_device *d, fcp_error *err);
/* The architecture that its kernels are compiled for, such as "sm_80". A device of 9.0 is sm_90a, with the copy
 * engine and the products of warpgroups. */
void fcp_cuda_arch(const cuda_device *d, char out[32]);
bool fcp_cuda_is_sm_90a(const cuda_device *d);
/* Take an event of a device, or give it back. It may be given back as soon as every stream that is to wait for it has
 * been told so. The current context stays current. */
fcp_code fcp_cuda_event_take(fcp_cuda_session *s, cuda_device *d, cu_event *out, fcp_error *err);
void fcp_cuda_event_give(cuda_device *d, cu_event event);
/* Records an event of device d in a stream: *out, which is taken for it. After an error it has been given back. */
fcp_code fcp_cuda_event_record(fcp_cuda_session *s, cuda_device *d, cu_stream stream, cu_event *out, fcp_error *err);
/* Work put into a stream from now on waits for an event. */
fcp_code fcp_cuda_event_await(fcp_cuda_session *s, cu_stream stream, cu_event event, fcp_error *err);
/* Work that is put into `to` from now on begins when all that is in `from` now has ended. `from` is a stream of
 * device d. */
fcp_code fcp_cuda_follow(fcp_cuda_session *s, cuda_device *d, cu_stream from, cu_stream to, fcp_error *err);
/* fork: streams of all ranks follow `origin`, a stream of device d. join: `origin` follows all of them. which: a bit
 * for each stream of a rank that does so. */
enum { CUDA_COMM_STREAMS = 1 << FCP_COMM, CUDA_ALL_STREAMS = (1 << CUDA_STREAMS) - 1 };
fcp_code fcp_cuda_fork(fcp_cuda_session *s, unsigned which, cuda_device *d, cu_stream origin, fcp_error *err);
fcp_code fcp_cuda_join(fcp_cuda_session *s, unsigned which, cu_stream origin, fcp_error *err);
/* Wait until the event has come, or the stream is empty. FCP_E_RUN: that failed, or did not happen within the
 * session's time limit; `what` names it in the message. */
fcp_code fcp_cuda_wait_event(fcp_cuda_session *s, cu_event event, const char *what, fcp_error *err);
fcp_code fcp_cuda_wait(fcp_cuda_session *s, cu_stream stream, const char *what, fcp_error *err);
#endif
