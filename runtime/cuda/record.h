/* record.h: a pass put into the ranks' streams. */
#ifndef FCP_CUDA_RECORD_H
#define FCP_CUDA_RECORD_H
#include "runtime/cuda/parts.h"

/* A pass between home blocks and home blocks, put into the ranks' streams, after the origin and before
 * it goes on. It touches the arenas alone. `graph`: it becomes one. */
fcp_code fcp_cuda_record(fcp_cuda_session *s, fcp_pass pass, cuda_device *origin_device, cu_stream origin, bool graph,
                         fcp_error *err);
#endif
