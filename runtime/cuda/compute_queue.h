/* compute_queue.h: what the instructions of a compute queue put into a rank's stream. */
#ifndef FCP_CUDA_COMPUTE_QUEUE_H
#define FCP_CUDA_COMPUTE_QUEUE_H
#include "runtime/cuda/cuda_parts.h"

/* Makes the work lists of all ATTENDs of a rank's pass. The arena need not have its final address. */
fcp_code fcp_cuda_work_make(fcp_cuda_session *s, cuda_rank *rank, fcp_pass pass, fcp_error *err);
/* Each of these puts one thing into the rank's compute stream. In order: an ATTEND, or a fused run of them; behind it,
 * gradients of tables by the same lists; what a pass begins with (outputs set to what rows without keys get, gradients
 * set to 0); delta; a REDUCE, REDUCE_Q or MERGE; a FINISH or ROUND; zeros for those transient slots of dKV and dQ of an
 * ATTEND that hold no sum yet. */
fcp_code fcp_cuda_attend(fcp_cuda_session *s, cuda_rank *rank, fcp_pass pass, const cuda_attend *work, fcp_error *err);
fcp_code fcp_cuda_attend_tables(fcp_cuda_session *s, cuda_rank *rank, const cuda_attend *work, fcp_error *err);
fcp_code fcp_cuda_prepare(fcp_cuda_session *s, cuda_rank *rank, fcp_pass pass, fcp_error *err);
/* fk_fold_sinks, in the rank's communication stream. */
fcp_code fcp_cuda_fold_sinks(fcp_cuda_session *s, cuda_rank *rank, fk_support x, fcp_error *err);
/* fk_round_sums, likewise. */
fcp_code fcp_cuda_round_sums(fcp_cuda_session *s, cuda_rank *rank, fk_support x, fcp_error *err);
fcp_code fcp_cuda_delta(fcp_cuda_session *s, cuda_rank *rank, const fcp_instr *x, fcp_error *err);
fcp_code fcp_cuda_reduce(fcp_cuda_session *s, cuda_rank *rank, const fcp_instr *x, fcp_error *err);
fcp_code fcp_cuda_make_result(fcp_cuda_session *s, cuda_rank *rank, const fcp_instr *x, fcp_error *err);
fcp_code fcp_cuda_open_accumulators(fcp_cuda_session *s, cuda_rank *rank, const fcp_instr *x, fcp_error *err);
/* Rounds the gradients of home blocks to the output type, in a queue's stream: of blocks whose results leave early,
 * or of the others. */
fcp_code fcp_cuda_finish(fcp_cuda_session *s, cuda_rank *rank, fcp_queue queue, bool early, fcp_error *err);
#endif
