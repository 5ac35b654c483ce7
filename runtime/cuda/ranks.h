/* ranks.h: what the ranks of this process have on their devices. */
#ifndef FCP_CUDA_RANKS_H
#define FCP_CUDA_RANKS_H
#include "runtime/cuda/parts.h"

/* Makes the session's ranks those of a plan, as far as that needs no memory of a device: slots, work lists, and whether the
 * devices have memory enough. After an error the session's ranks and plan are what they were. */
fcp_code fcp_cuda_ranks_plan(fcp_cuda_session *s, const fcp_plan *plan, fcp_error *err);
/* Makes what they need on the devices: kernels, environment, arenas, streams. `again`: for another plan than before. */
fcp_code fcp_cuda_ranks_make(fcp_cuda_session *s, bool again, fcp_error *err);
/* Gives up what they have in the driver; and what they have on the host. */
void fcp_cuda_ranks_close(fcp_cuda_session *s);
void fcp_cuda_ranks_free(fcp_cuda_session *s);
#endif
