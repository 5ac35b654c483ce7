/* cuda_reshuffle.h: between the caller's tensors and home blocks. */
#ifndef FCP_CUDA_CUDA_RESHUFFLE_H
#define FCP_CUDA_CUDA_RESHUFFLE_H
#include "runtime/cuda/cuda_parts.h"

/* Checks that every tensor of the pass lies where the session can use it. FCP_E_TENSOR: one does not. *out_host: some
 * are in host memory. */
fcp_code fcp_cuda_tensors_check(fcp_cuda_session *s, fcp_pass pass, const fcp_tensors *tensors, bool *out_host,
                                fcp_error *err);
/* Puts IN or OUT into the communication streams of the home ranks; of OUT either what leaves early, or the rest. */
fcp_code fcp_cuda_reshuffle(fcp_cuda_session *s, fcp_pass pass, fcp_class cls, bool early, const fcp_tensors *tensors,
                            fcp_error *err);
/* Copies bytes of something of the caller's, which was checked, into a rank's device or out of it: in the rank's
 * communication stream, or by the stage if they lie in ordinary host memory. */
fcp_code fcp_cuda_copy_outside(fcp_cuda_session *s, uint32_t rank, bool in, void *outside, cu_ptr inside, size_t bytes,
                               fcp_error *err);
/* Does those transfers of a rank's LAUNCH or COPY that are at the caller's side and of class cls, without the other
 * side: the memory of both must be in this process. `tensors`: those of this rank. */
fcp_code fcp_cuda_move_units(fcp_cuda_session *s, uint32_t rank, fcp_pass pass, fcp_class cls, const fcp_instr *x,
                             const fcp_tensors *tensors, fcp_error *err);
#endif
