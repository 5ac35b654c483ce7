/* packed.h: running a session on packed tensors, as tests and `fcpc run` do. A trainer holds tensors cut by rank and
 * calls fcp_session_run itself. */
#ifndef FCP_JUDGE_PACKED_H
#define FCP_JUDGE_PACKED_H
#include "runtime/exec/tensors.h"

/* Runs a pass on packed tensors: cuts the inputs by the plan's layout, runs, and puts the outputs together. The
 * tensors of the pass must all be there; of the outputs only the rows of this process's ranks are written, the others
 * become NaN. *out_seconds: the run alone, without cutting; may be NULL. */
fcp_code fcp_session_run_packed(fcp_session *session, const fcp_plan *plan, fcp_pass pass, fcp_packed *packed,
                                double *out_seconds, fcp_error *err);

/* Each process has the rows of its own ranks; afterwards rank 0's process has all rows of the tensors of `set` (bit t
 * is fcp_tensor t), which must be allocated in every process. All processes call this at the same point. With one
 * process nothing happens. */
fcp_code fcp_session_collect_packed(fcp_session *session, const fcp_plan *plan, unsigned set, fcp_packed *packed,
                                    fcp_error *err);
#endif
