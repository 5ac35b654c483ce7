/* ranks.h: what the ranks of this process have on their devices. */
#ifndef FCP_CUDA_RANKS_H
#define FCP_CUDA_RANKS_H
#include "runtime/cuda/cuda_parts.h"

/* Makes the session's ranks those of a plan, as far as that allocates no device memory: lays out slots, makes work
 * lists, and checks that the devices have enough memory. After an error the session's ranks and plan are what they
 * were. */
fcp_code fcp_cuda_ranks_plan(fcp_cuda_session *s, const fcp_plan *plan, fcp_error *err);
/* Makes what the ranks need on the devices: kernels, environment, arenas, streams. `again`: there was another plan
 * before. */
fcp_code fcp_cuda_ranks_make(fcp_cuda_session *s, bool again, fcp_error *err);
/* Lays the arenas out anew where the lender has them now; no run is under way. The graphs of the session are worthless
 * then. */
fcp_code fcp_cuda_ranks_follow(fcp_cuda_session *s, fcp_error *err);
/* ranks_close frees what they have in the driver, ranks_free what they have in host memory. */
void fcp_cuda_ranks_close(fcp_cuda_session *s);
void fcp_cuda_ranks_free(fcp_cuda_session *s);
#endif
