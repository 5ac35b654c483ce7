/* packed.h: runs a session on packed tensors, which have the whole batch: cuts them by rank, and puts the results
 * together. */
#ifndef FCP_JUDGE_PACKED_H
#define FCP_JUDGE_PACKED_H
#include "runtime/exec/tensors.h"

/* Runs a pass on packed tensors: cuts the inputs by the plan's layout, fills the outputs with NaNs, runs, and puts
 * the outputs of this process's ranks together. All tensors of the pass must be there; optional ones
 * (fcp_pass_optional) take part if they are. *out_seconds, if not NULL, is how long the run itself took, without
 * cutting. */
fcp_code fcp_session_run_packed(fcp_session *session, const fcp_plan *plan, fcp_pass pass, fcp_packed *packed,
                                double *out_seconds, fcp_error *err);

/* If each rank is a process, a process has only its own ranks' rows after a run. This brings all rows of the tensors
 * of `set` (a bit per fcp_tensor) to the process of rank 0. All processes must have allocated the tensors, and must
 * call this at the same point. With one process it does nothing. */
fcp_code fcp_session_collect_packed(fcp_session *session, const fcp_plan *plan, unsigned set, fcp_packed *packed,
                                    fcp_error *err);

/* Likewise, adds up the gradients of sinks and tables, those of them that are wanted, over all processes: afterwards
 * rank 0's process has the batch's, with the bits that they have where all ranks are one process. */
fcp_code fcp_session_sum_packed(fcp_session *session, const fcp_plan *plan, fcp_packed *packed, fcp_error *err);
#endif
