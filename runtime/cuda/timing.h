/* timing.h: when each instruction of a run began and ended, as events in the streams saw it. */
#ifndef FCP_CUDA_TIMING_H
#define FCP_CUDA_TIMING_H
#include "runtime/cuda/cuda_parts.h"

/* All of them do nothing in a session that records no timings.
 *
 * begin: the run begins, in `origin`, a stream of device d: makes the events. instr: everything before instruction `at`
 * of a queue is in its stream; the rank's device is current. out: results have been put into the communication streams.
 * read: the run has ended: fills s->base.times. end: frees the events, whether or not the run went well. */
fcp_code fcp_cuda_timing_begin(fcp_cuda_session *s, fcp_pass pass, cuda_device *d, cu_stream origin, fcp_error *err);
fcp_code fcp_cuda_timing_instr(fcp_cuda_session *s, cuda_rank *rank, fcp_queue queue, uint32_t at, fcp_error *err);
fcp_code fcp_cuda_timing_out(fcp_cuda_session *s, fcp_error *err);
fcp_code fcp_cuda_timing_read(fcp_cuda_session *s, fcp_pass pass, fcp_error *err);
void fcp_cuda_timing_end(fcp_cuda_session *s);
#endif
