/* packed.h: a session run on packed tensors. */
#ifndef FCP_JUDGE_PACKED_H
#define FCP_JUDGE_PACKED_H
#include "runtime/exec/tensors.h"

/* Runs a pass on packed tensors: cuts the inputs by the plan's layout, poisons the outputs, runs, puts the outputs
 * together, those of this process's ranks. All tensors of the pass must be there. *out_seconds (may be NULL): the run alone, without cutting. */
fcp_code fcp_session_run_packed(fcp_session *session, const fcp_plan *plan, fcp_pass pass, fcp_packed *packed,
                                double *out_seconds, fcp_error *err);

/* Of several processes, each of which has the rows of its own ranks: rank 0's gets the rows of all of the tensors of `set`, which
 * are there in all. All processes do it at the same point. With one process there is nothing to do. */
fcp_code fcp_session_collect_packed(fcp_session *session, const fcp_plan *plan, unsigned set, fcp_packed *packed,
                                    fcp_error *err);
#endif
