/* fabrics.h: each fabric in a stream of its own (runtime/plan/fabrics.h). */
#ifndef FCP_CUDA_FABRICS_H
#define FCP_CUDA_FABRICS_H
#include "runtime/cuda/cuda_parts.h"

/* The stream of a rank's transfers over a fabric. */
static inline cu_stream fcp_cuda_fabric_stream(const cuda_rank *r, unsigned fabric) {
    return fabric == FCP_NET && r->streams[CUDA_NET] ? r->streams[CUDA_NET] : r->streams[FCP_COMM];
}
#endif
