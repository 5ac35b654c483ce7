/* recurrent_host.h: layers that recur, on the processors of this machine. */
#ifndef FCP_HOST_RECURRENT_HOST_H
#define FCP_HOST_RECURRENT_HOST_H
#include "runtime/exec/agree.h"
#include "runtime/host/queues.h"

/* The tensors of a call, for each rank of this process: one of these. */
typedef union fcp_recurrent_tensors {
    const fcp_halo_rank *halo;
    const fcp_halo_gradient_rank *gradient;
    const fcp_scan_rank *scan;
} fcp_recurrent_tensors;

/* Runs a call on this process's ranks. On an error the session goes on, unless its ranks are processes and the error is
 * not one on which all have agreed: *out_broken. */
fcp_code fcp_recurrent_run(fcp_exec *s, const fcp_call *call, fcp_recurrent_tensors tensors, bool *out_broken,
                           fcp_error *err);
/* Forgets what is known of the session's plan, and frees the memory of its ranks. */
void fcp_recurrent_free(fcp_exec *s);
#endif
