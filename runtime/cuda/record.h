/* record.h: a pass put into the ranks' streams. */
#ifndef FCP_CUDA_RECORD_H
#define FCP_CUDA_RECORD_H
#include "runtime/cuda/cuda_parts.h"

/* Puts a pass, from home blocks to home blocks, into the ranks' streams: after what is in `origin`, which then goes
 * on after the pass. The pass touches nothing but arenas. `graph`: it is being captured. `err` must not be NULL. */
fcp_code fcp_cuda_record(fcp_cuda_session *s, fcp_pass pass, cuda_device *origin_device, cu_stream origin, bool graph,
                         fcp_error *err);
#endif
