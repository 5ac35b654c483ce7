/* early.c: results that are sent while the last stage of a pass still computes.
 *
 *   stage     0          1          2, the last
 *   compute   [ATTEND]   [ATTEND]   [ATTEND                        ]
 *   comm      [round 0]  [round 1]  [OUT of finished blocks]           [OUT of the rest]
 *                                   ^ the first early round
 *
 * If a home block is finished before the last stage, its rounds of OUT belong to an earlier stage. In the plan, rounds
 * of OUT come after all other rounds, and these early ones come first among them. So in a rank's communication queue
 * they are after all transfers of the pass, and before what waits for the whole pass.
 *
 * A pass touches only arenas, and may be a graph that is launched for many runs. So it cannot move results to a run's
 * tensors itself. At the place of the first early round it only makes the results ready in the communication stream
 * (the backward pass rounds them there). They are moved by work outside the pass, which begins
 *   - without a graph: in the same stream, which simply goes on with OUT;
 *   - with a graph: in a stream outside of it, which waits for an event. A node of the graph records the event in each
 *     launch. A wait refers to the last record before it in the order of the host's calls. So the host asks for the
 *     wait after it has launched the graph, and every run waits for its own record.
 *
 * Requires: a verified plan.
 * Order:    with nccl, groups of early rounds come after all groups of the pass, and so does the event. Results for
 *           pageable memory go through the device's one staging stream, which waits for all ranks of the device.
 * Cost:     an event for each rank and pass of a graph; in a backward pass two more launches for each stretch of early
 *           home slots.
 */
#include "runtime/cuda/cuda.h"

#include <stdlib.h>

fcp_code fcp_cuda_early_find(fcp_cuda_session *s, uint32_t rank, fcp_pass pass, fcp_error *err) {
    const fcp_plan *plan = s->plan;
    const fcp_stream *stream = fcp_stream_of(plan, pass, rank, FCP_COMM);
    const cuda_early_rounds rounds = fcp_cuda_early_rounds(plan, pass, fcp_cuda_fused(s, pass));
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
            const fcp_bundle bundle = fcp_bundle_of(s->bundles, rank, t);
            fcp_bundle_run run;
            for (uint32_t k = 0; fcp_bundle_next(&bundle, t, &k, &run);)
                e->slots[plan->blocks[run.block].home_slot] = 1;
        }
    }
    return FCP_OK;
}

fcp_code fcp_cuda_early_ready(fcp_cuda_session *s, cuda_rank *rank, fcp_pass pass, cu_event prepared, fcp_error *err) {
    const fcp_cuda_table *call = &s->cuda->call;
    cu_stream stream = rank->streams[FCP_COMM];
    cuda_early *e = &rank->early[pass];
    fcp_code code = fcp_cuda_event_await(s, stream, prepared, err);
    if (!code && rank->streams[CUDA_NET]) code = fcp_cuda_follow(s, rank->device, rank->streams[CUDA_NET], stream, err);
    if (!code && pass == FCP_BACKWARD && e->slots) code = fcp_cuda_finish(s, rank, FCP_COMM, true, err);
    if (code || !s->capturing) return code;
    if (!e->event) code = fcp_cuda_event_take(s, rank->device, &e->event, err);
    return code ? code
                : fcp_cuda_check(s->cuda, call->event_record_flags(e->event, stream, CU_EVENT_RECORD_EXTERNAL), err,
                                 "cannot record an event that streams outside a graph wait for");
}

fcp_code fcp_cuda_early_move(fcp_cuda_session *s, fcp_pass pass, const fcp_tensors *tensors, bool graph, bool host,
                             fcp_error *err) {
    const cuda_early_rounds rounds = fcp_cuda_early_rounds(s->plan, pass, fcp_cuda_fused(s, pass));
    fcp_code code = FCP_OK;
    if (rounds.from == rounds.to) return FCP_OK;
    for (uint32_t r = s->base.first_rank; !code && r < fcp_cuda_end(s); r++) {
        cuda_rank *rank = &s->ranks[r];
        const cuda_early *e = &rank->early[pass];
        cu_stream stream = rank->streams[FCP_COMM];
        if (!e->after) continue;
        code = fcp_cuda_use(s, rank->device, err);
        if (!code && graph) code = fcp_cuda_event_await(s, stream, e->event, err);
        if (!code && host && e->slots)
            code = fcp_cuda_follow(s, rank->device, stream, rank->device->staging.stream, err);
    }
    return code ? code : fcp_cuda_reshuffle(s, pass, FCP_OUT, true, tensors, err);
}
