/* reshuffle.h: between the caller's tensors and home blocks. */
#ifndef FCP_CUDA_RESHUFFLE_H
#define FCP_CUDA_RESHUFFLE_H
#include "runtime/cuda/parts.h"

/* Where they lie, and whether that will do; *out_host: some are in host memory. */
fcp_code fcp_cuda_tensors_check(fcp_cuda_session *s, fcp_pass pass, const fcp_tensors *tensors, bool *out_host,
                                fcp_error *err);
/* IN or OUT, in the homes' communication streams: of OUT what goes out early, or the rest. */
fcp_code fcp_cuda_reshuffle(fcp_cuda_session *s, fcp_pass pass, fcp_class cls, bool early, const fcp_tensors *tensors,
                            fcp_error *err);
/* Those transfers of a LAUNCH or COPY of a rank that are at the caller's side and of class cls, as copies that need nobody
 * else: the memory of both sides is in this process. `tensors`: this rank's. */
fcp_code fcp_cuda_move_runs(fcp_cuda_session *s, uint32_t rank, fcp_pass pass, fcp_class cls, const fcp_instr *x,
                            const fcp_tensors *tensors, fcp_error *err);
#endif
