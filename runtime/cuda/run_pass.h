/* run_pass.h: running a pass: inputs in, the pass or its graph, outputs out; and what happens when that fails. */
#ifndef FCP_CUDA_RUN_PASS_H
#define FCP_CUDA_RUN_PASS_H
#include "runtime/cuda/cuda_parts.h"

/* Runs a pass, as `run` of fcp_session_kind says. */
fcp_code fcp_cuda_run(fcp_cuda_session *s, fcp_pass pass, const fcp_tensors *tensors, cu_stream stream, fcp_error *err);
/* Waits for all runs, at most for the time limit. */
fcp_code fcp_cuda_run_wait(fcp_cuda_session *s, fcp_error *err);
/* FCP_E_RUN, with the reason: the session has failed. */
fcp_code fcp_cuda_run_check(const fcp_cuda_session *s, fcp_error *err);
/* Destroys the graphs. */
void fcp_cuda_graphs_destroy(fcp_cuda_session *s);
/* A run has failed for the reason *why. Adds the place to it, ends what is running, and makes the session refuse
 * further runs. */
void fcp_cuda_break(fcp_cuda_session *s, fcp_code code, fcp_error *why);
/* Waits until everything in the session's streams has ended or failed. Once something hangs, it waits for nothing
 * more. */
void fcp_cuda_drain(fcp_cuda_session *s);
#endif
