/* stage.h: copies between a device and host memory that the driver cannot, or had better not, copy itself. */
#ifndef FCP_CUDA_STAGE_H
#define FCP_CUDA_STAGE_H
#include "runtime/cuda/cuda_parts.h"

fcp_code fcp_cuda_stage_open(fcp_cuda_session *s, cuda_device *d, fcp_error *err);
void fcp_cuda_stage_close(fcp_cuda_session *s, cuda_device *d);
size_t fcp_cuda_stage_pinned(const cuda_device *d); /* bytes of its two buffers */
/* Put copies into the stage's stream, the last of them once stage_push, stage_flush or stages_join is called. When
 * stage_in returns, `from` has been read. `to` of stage_out is written only when stage_flush has returned, which waits
 * for all copies of the stage. */
fcp_code fcp_cuda_stage_in(fcp_cuda_session *s, cuda_device *d, cu_ptr to, const void *from, size_t bytes,
                           fcp_error *err);
fcp_code fcp_cuda_stage_out(fcp_cuda_session *s, cuda_device *d, void *to, cu_ptr from, size_t bytes, fcp_error *err);
fcp_code fcp_cuda_stage_push(fcp_cuda_session *s, cuda_device *d, fcp_error *err);
fcp_code fcp_cuda_stage_flush(fcp_cuda_session *s, cuda_device *d, fcp_error *err);
/* Forgets what is still to be written to host memory. An error of the functions above does so, too. */
void fcp_cuda_stage_drop(cuda_device *d);
/* stages_follow: all stages follow `origin`, a stream of device d. stages_join: `origin` follows all of them. */
fcp_code fcp_cuda_stages_follow(fcp_cuda_session *s, cuda_device *d, cu_stream origin, fcp_error *err);
fcp_code fcp_cuda_stages_join(fcp_cuda_session *s, cu_stream origin, fcp_error *err);
#endif
