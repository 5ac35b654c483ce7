/* memory.h: memory of devices, and copies between them. */
#ifndef FCP_CUDA_MEMORY_H
#define FCP_CUDA_MEMORY_H
#include "runtime/cuda/parts.h"

/* Memory of a device, with bytes of ours if `from`. fcp_cuda_allocated: as many as are taken for so many, never none. */
size_t fcp_cuda_allocated(size_t bytes);
fcp_code fcp_cuda_memory(fcp_cuda_session *s, cuda_device *d, size_t bytes, const void *from, const char *what,
                         cu_ptr *out, fcp_error *err);
/* The same, where `held` bytes of it are there already: kept if they are enough, else given up first. */
fcp_code fcp_cuda_memory_again(fcp_cuda_session *s, cuda_device *d, size_t bytes, const void *from, const char *what,
                               cu_ptr *memory, size_t *held, fcp_error *err);
fcp_code fcp_cuda_copy(fcp_cuda_session *s, cuda_device *to_device, cu_ptr to, cuda_device *from_device, cu_ptr from,
                       size_t bytes, cu_stream stream, fcp_error *err);
#endif
