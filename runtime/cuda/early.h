/* early.h: results that leave while the last stage computes. */
#ifndef FCP_CUDA_EARLY_H
#define FCP_CUDA_EARLY_H
#include "runtime/cuda/cuda_parts.h"

/* Finds which results of a rank leave early, and when. The slots of the rank are laid out. */
fcp_code fcp_cuda_early_find(fcp_cuda_session *s, uint32_t rank, fcp_pass pass, fcp_error *err);
/* While a pass is put into streams, at the place that `after` names: makes early results ready in the communication
 * stream, after the event `prepared`. In a graph it also records the event that streams outside the graph wait
 * for. */
fcp_code fcp_cuda_early_ready(fcp_cuda_session *s, cuda_rank *rank, fcp_pass pass, cu_event prepared, fcp_error *err);
/* Moves early results to the callers' tensors, when the pass has been put into the origin. If it was a graph, the
 * ranks' communication streams first wait for the graph's event; otherwise they stand at the right place already.
 * `host`: stages follow them. */
fcp_code fcp_cuda_early_move(fcp_cuda_session *s, fcp_pass pass, const fcp_tensors *tensors, bool graph, bool host,
                             fcp_error *err);
#endif
