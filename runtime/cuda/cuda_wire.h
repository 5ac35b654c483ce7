/* cuda_wire.h: partial results that are rounded on their way (runtime/plan/FORMAT.md: Wire). */
#ifndef FCP_CUDA_CUDA_WIRE_H
#define FCP_CUDA_CUDA_WIRE_H
#include "runtime/cuda/cuda_parts.h"
#include "runtime/exec/transport.h"

/* Of a rank's LAUNCH: rounds the partials that it sends into their messages (FCP_SEND), or makes fp32 of those that it
 * has received (FCP_RECV); each in the stream of its fabric. */
fcp_code fcp_cuda_wire(fcp_cuda_session *s, uint32_t rank, fcp_pass pass, const fcp_instr *launch,
                       const fcp_wires *wires, fcp_direction dir, fcp_error *err);
#endif
