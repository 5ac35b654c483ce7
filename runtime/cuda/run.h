/* run.h: running a pass: inputs in, the pass or its graph, outputs out; and what happens when that fails. */
#ifndef FCP_CUDA_RUN_H
#define FCP_CUDA_RUN_H
#include "runtime/cuda/parts.h"

fcp_code fcp_cuda_run(fcp_cuda_session *s, fcp_pass pass, const fcp_tensors *tensors, cu_stream stream, fcp_error *err);
/* Waits for all runs, within the time limit. */
fcp_code fcp_cuda_run_wait(fcp_cuda_session *s, fcp_error *err);
/* FCP_E_RUN with the reason, if the session has failed. */
fcp_code fcp_cuda_run_check(const fcp_cuda_session *s, fcp_error *err);
/* Destroys the graphs. */
void fcp_cuda_graphs_destroy(fcp_cuda_session *s);
/* A run has failed, for the reason *why, to which the place is added: ends what is under way. The session refuses further runs. */
void fcp_cuda_break(fcp_cuda_session *s, fcp_code code, fcp_error *why);
/* Waits until everything in the session's streams has ended or failed, at most one time limit in all. */
void fcp_cuda_drain(fcp_cuda_session *s);
#endif
