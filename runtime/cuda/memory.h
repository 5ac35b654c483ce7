/* memory.h: memory of devices, and copies between them. */
#ifndef FCP_CUDA_MEMORY_H
#define FCP_CUDA_MEMORY_H
#include "runtime/cuda/cuda_parts.h"

/* Allocates memory of a device, and fills it with `from` if that is not NULL. `what` names it in messages.
 * fcp_cuda_allocated says how many bytes are really allocated; that is never 0. */
size_t fcp_cuda_allocated(size_t bytes);
fcp_code fcp_cuda_memory(fcp_cuda_session *s, cuda_device *d, size_t bytes, const void *from, const char *what,
                         cu_ptr *out, fcp_error *err);
/* Gives memory of a device back, unless it is 0. No stream may still use it: the driver would wait for that, but the
 * caller's allocator hands it to others at once. The device is current, before and behind. */
fcp_code fcp_cuda_release(fcp_cuda_session *s, cuda_device *d, cu_ptr memory, fcp_error *err);
/* As fcp_cuda_memory, if there may be memory already, `held` bytes of it: it is used again if it is large enough, and
 * else given back first. */
fcp_code fcp_cuda_memory_again(fcp_cuda_session *s, cuda_device *d, size_t bytes, const void *from, const char *what,
                               cu_ptr *memory, size_t *held, fcp_error *err);
/* Puts a copy into a stream, within a device or between two. */
fcp_code fcp_cuda_copy(fcp_cuda_session *s, cuda_device *to_device, cu_ptr to, cuda_device *from_device, cu_ptr from,
                       size_t bytes, cu_stream stream, fcp_error *err);
#endif
