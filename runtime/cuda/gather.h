/* gather.h: puts the moving of a unit's rows into streams: one launch of fk_gather. */
#ifndef FCP_CUDA_GATHER_H
#define FCP_CUDA_GATHER_H
#include "runtime/cuda/cuda_parts.h"

/* Makes the records of a rank's bundles, in host memory; then they go to its device. */
fcp_code fcp_cuda_gather_plan(fcp_cuda_session *s, uint32_t rank, fcp_error *err);
fcp_code fcp_cuda_gather_load(fcp_cuda_session *s, uint32_t rank, fcp_error *err);

/* A move of the rows of a transfer of class IN or OUT. */
typedef struct cuda_unit_move {
    const fcp_transfer *transfer; /* as the rank lists it, or would */
    uint32_t to, from;            /* FK_IN_MESSAGE, FK_AT_BLOCKS, FK_AT_CALLER; not both FK_IN_MESSAGE */
    const fcp_arena *home;        /* the arena of the home */
    const fcp_tensors *caller;    /* the caller's tensors */
    cu_ptr message;               /* used if it is an end */
} cuda_unit_move;
/* Puts it into `stream`, one of the device of `rank`, on which all the memory is. */
fcp_code fcp_cuda_gather(fcp_cuda_session *s, uint32_t rank, const cuda_unit_move *move, cu_stream stream,
                         fcp_error *err);
#endif
