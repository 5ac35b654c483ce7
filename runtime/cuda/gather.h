/* gather.h: puts the moving of a unit's rows into streams: one launch of fk_gather. */
#ifndef FCP_CUDA_GATHER_H
#define FCP_CUDA_GATHER_H
#include "runtime/cuda/parts.h"

/* Makes the records of a rank's bundles, in host memory; then they go to its device. */
fcp_code fcp_cuda_gather_plan(fcp_cuda_session *s, uint32_t rank, fcp_error *err);
fcp_code fcp_cuda_gather_load(fcp_cuda_session *s, uint32_t rank, fcp_error *err);

/* Moves the rows of a transfer of class IN or OUT in `stream`, one of the device of `rank`, on which all the memory
 * is. `t`: as that rank lists it, or would. to, from: FK_IN_MESSAGE, FK_AT_BLOCKS or FK_AT_CALLER; one of them is not
 * FK_IN_MESSAGE. home: the arena of the home, if its blocks are an end. caller: tensors, if those are. */
fcp_code fcp_cuda_gather(fcp_cuda_session *s, uint32_t rank, fcp_pass pass, const fcp_transfer *t, uint32_t to,
                         uint32_t from, const fcp_arena *home, const fcp_tensors *caller, cu_ptr message,
                         cu_stream stream, fcp_error *err);
#endif
