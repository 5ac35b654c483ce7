/* early.c: results that go out beside a pass's last stage, while it computes.
 *
 * Requires: a verified plan. Results of a home block that is done before the last stage have rounds of OUT of that stage: they
 *           are the first of those rounds that are behind every other one, and so the last that a rank launches but for what
 *           waits for the whole pass.
 * Gives:    parts.h. The pass, which touches arenas alone and may be a graph, makes these results ready in the rank's
 *           communication stream, behind what the plan has the first such launch wait for; backward ones are rounded there.
 *           Outside a graph the stream goes on with them. In a graph a node records an event in every launch of it, and a
 *           stream outside waits for that: what a wait names is the last record before it in the host's order, so it is
 *           put down after the launch, and each run waits for its own.
 * Cost:     an event a rank and pass of a graph; of a backward pass two more launches for each stretch of early home slots.
 * Order:    with nccl the groups of early rounds follow all groups of the pass: the event is behind those. In host memory
 *           that is not pinned the results of a device's ranks go through one stage, which waits for all of these ranks.
 */
#include "runtime/cuda/early.h"

#include <stdlib.h>

#include "runtime/cuda/device.h"
#include "runtime/cuda/reshuffle.h"
#include "runtime/cuda/rounds.h"
#include "runtime/cuda/work.h"

fcp_code fcp_cuda_early_find(fcp_cuda_session *s, uint32_t rank, fcp_pass pass, fcp_error *err) {
    const fcp_plan *plan = s->plan;
    const fcp_stream *stream = fcp_stream_of(plan, pass, rank, FCP_COMM);
    const cuda_early_rounds rounds = fcp_cuda_early_rounds(plan, pass);
    cuda_rank *r = &s->ranks[rank];
    cuda_early *e = &r->early[pass];
    for (uint32_t i = 0; i < stream->count; i++) {
        const fcp_instr *x = &plan->instrs[stream->first + i];
        if (x->op != FCP_OP_LAUNCH) continue;
        bool early = fcp_cuda_is_early(&rounds, x);
        if (x->c < rounds.to) e->end = i + 1;
        if (early) e->after = i + 1;
        for (uint32_t j = x->a; early && j < x->a + x->b; j++) {
            const fcp_transfer *t = &plan->transfers[j];
            if (t->dir != FCP_SEND) continue;
            if (!e->slots && !(e->slots = calloc((size_t)r->arena[pass].homes + 1, 1)))
                return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for rank %u", rank);
            e->slots[t->slot] = 1;
        }
    }
    return FCP_OK;
}

fcp_code fcp_cuda_early_ready(fcp_cuda_session *s, cuda_rank *rank, fcp_pass pass, cu_event prepared, fcp_error *err) {
    const fcp_cuda_table *call = &s->cuda->call;
    cu_stream stream = rank->streams[FCP_COMM];
    cuda_early *e = &rank->early[pass];
    fcp_code code = fcp_cuda_check(s->cuda, call->stream_wait_event(stream, prepared, 0), err, "cannot wait for an event");
    if (!code && pass == FCP_BACKWARD && e->slots) code = fcp_cuda_finish(s, rank, FCP_COMM, true, err);
    if (code || !s->capturing) return code;
    if (!e->event) code = fcp_cuda_event_take(s, rank->device, &e->event, err);
    return code ? code
                : fcp_cuda_check(s->cuda, call->event_record_flags(e->event, stream, CU_EVENT_RECORD_EXTERNAL), err,
                                 "cannot record an event that streams outside a graph wait for");
}

fcp_code fcp_cuda_early_move(fcp_cuda_session *s, fcp_pass pass, const fcp_tensors *tensors, bool graph, bool host, fcp_error *err) {
    const cuda_early_rounds rounds = fcp_cuda_early_rounds(s->plan, pass);
    fcp_code code = FCP_OK;
    if (rounds.from == rounds.to) return FCP_OK;
    for (uint32_t r = s->base.first_rank; !code && r < fcp_cuda_end(s); r++) {
        cuda_rank *rank = &s->ranks[r];
        const cuda_early *e = &rank->early[pass];
        cu_stream stream = rank->streams[FCP_COMM];
        if (!e->after) continue;
        code = fcp_cuda_use(s, rank->device, err);
        if (!code && graph)
            code = fcp_cuda_check(s->cuda, s->cuda->call.stream_wait_event(stream, e->event, 0), err, "cannot wait for an event");
        if (!code && host && e->slots) code = fcp_cuda_follow(s, rank->device, stream, rank->device->stage.stream, err);
    }
    return code ? code : fcp_cuda_reshuffle(s, pass, FCP_OUT, true, tensors, err);
}
