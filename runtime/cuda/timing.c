/* timing.c: when each instruction of a run began and ended, by events in the streams.
 *
 * A stream does its work in order. So one event between every two instructions of a queue tells the end of one and the
 * beginning of the next:
 *
 *   base     at[0]       at[1]         at[2]                  at[n]      out
 *   |  IN    | instr 0   |  instr 1    |         ...          |   OUT    |
 *
 * Requires: a session that records timings. It makes no graphs, because an event within a graph is only an edge and has
 *           no time.
 * Method:   - Times count from `base`, an event of each device, which follows the stream in which the run begins.
 *           - The launches of IN and OUT have no events of their own; the first of them gets the time of all.
 *           - If transfers over net have their own stream, an instruction ends when both communication streams have
 *             done it. For that the local stream waits for the net stream after each instruction, in timed runs only.
 * Cost:     an event for each instruction and two for each rank, made and freed in each run.
 */
#include "runtime/cuda/cuda.h"

#include <stdlib.h>

static fcp_code make(fcp_cuda_session *s, cu_event *out, fcp_error *err) {
    return fcp_cuda_check(s->cuda, s->cuda->call.event_create(out, 0), err, "no event that tells the time can be made");
}

static fcp_code record(fcp_cuda_session *s, cu_event event, cu_stream stream, fcp_error *err) {
    return fcp_cuda_check(s->cuda, s->cuda->call.event_record(event, stream), err,
                          "cannot record an event that tells the time");
}

static fcp_code make_rank(fcp_cuda_session *s, fcp_pass pass, uint32_t rank, fcp_error *err) {
    cuda_rank *r = &s->ranks[rank];
    fcp_code code = fcp_cuda_use(s, r->device, err);
    if (!code && !r->device->base) {
        code = make(s, &r->device->base, err);
        if (!code) code = record(s, r->device->base, r->streams[FCP_COMPUTE], err);
    }
    for (int q = 0; !code && q < FCP_QUEUES; q++) {
        uint32_t count = fcp_stream_of(s->plan, pass, rank, (fcp_queue)q)->count + 1;
        r->times[q] = calloc(count, sizeof *r->times[q]);
        if (!r->times[q]) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %u events", count);
        r->time_count[q] = count;
        for (uint32_t i = 0; !code && i < count; i++) code = make(s, &r->times[q][i], err);
    }
    return code ? code : make(s, &r->time_out, err);
}

fcp_code fcp_cuda_timing_begin(fcp_cuda_session *s, fcp_pass pass, cuda_device *d, cu_stream origin, fcp_error *err) {
    if (!s->base.times) return FCP_OK;
    if (!s->cuda->call.event_elapsed)
        return fcp_fail(err, FCP_E_BACKEND, "this driver does not tell the time of events");
    fcp_code code = fcp_cuda_fork(s, CUDA_ALL_STREAMS, d, origin, err);
    for (uint32_t r = s->base.first_rank; !code && r < fcp_cuda_end(s); r++) code = make_rank(s, pass, r, err);
    return code ? code : fcp_cuda_use(s, d, err);
}

fcp_code fcp_cuda_timing_instr(fcp_cuda_session *s, cuda_rank *rank, fcp_queue queue, uint32_t at, fcp_error *err) {
    if (!s->base.times) return FCP_OK;
    bool both = queue == FCP_COMM && rank->streams[CUDA_NET];
    fcp_code code = both ? fcp_cuda_follow(s, rank->device, rank->streams[CUDA_NET], rank->streams[FCP_COMM], err)
                         : FCP_OK;
    return code ? code : record(s, rank->times[queue][at], rank->streams[queue], err);
}

fcp_code fcp_cuda_timing_out(fcp_cuda_session *s, fcp_error *err) {
    fcp_code code = FCP_OK;
    for (uint32_t r = s->base.first_rank; s->base.times && !code && r < fcp_cuda_end(s); r++) {
        code = fcp_cuda_use(s, s->ranks[r].device, err);
        if (!code) code = record(s, s->ranks[r].time_out, s->ranks[r].streams[FCP_COMM], err);
    }
    return code;
}

static fcp_code ask(fcp_cuda_session *s, const cuda_rank *r, cu_event event, uint64_t *out, fcp_error *err) {
    float milliseconds = 0;
    fcp_code code = fcp_cuda_check(s->cuda, s->cuda->call.event_elapsed(&milliseconds, r->device->base, event), err,
                                   "an event does not tell its time");
    *out = milliseconds > 0 ? (uint64_t)(1e6 * (double)milliseconds) : 0;
    return code;
}

/* Is it an instruction that has nothing in the stream, and of which class is what it moves? */
static bool moves_beside(const fcp_plan *plan, fcp_pass pass, const fcp_instr *x, fcp_class *out) {
    if (x->op == FCP_OP_COPY) *out = (fcp_class)plan->transfers[x->a].cls;
    else if (x->op == FCP_OP_LAUNCH) *out = fcp_cuda_moved_by(plan, pass, x);
    else return false;
    return *out == FCP_IN || *out == FCP_OUT;
}

static fcp_code read_queue(fcp_cuda_session *s, fcp_pass pass, uint32_t rank, fcp_queue q, fcp_error *err) {
    cuda_rank *r = &s->ranks[rank];
    const fcp_stream *stream = fcp_stream_of(s->plan, pass, rank, q);
    fcp_timing *to = s->base.times->instrs + stream->first;
    uint64_t begin = 0, end = 0, out = 0;
    bool moved[FCP_CLASSES] = {false};
    fcp_code code = ask(s, r, r->times[q][0], &begin, err);
    if (!code) code = ask(s, r, r->time_out, &out, err);
    const uint64_t begun = begin;
    for (uint32_t i = 0; !code && i < stream->count; i++, begin = end) {
        const fcp_instr *x = &s->plan->instrs[stream->first + i];
        fcp_class cls;
        code = ask(s, r, r->times[q][i + 1], &end, err);
        if (end < begin) end = begin;
        to[i] = (fcp_timing){begin, end};
        if (!moves_beside(s->plan, pass, x, &cls)) continue;
        uint64_t until = cls == FCP_IN ? begun : out > end ? out : end, from = cls == FCP_IN ? 0 : end;
        to[i] = (fcp_timing){moved[cls] || q == FCP_COMPUTE ? until : from, until};
        moved[cls] = true;
    }
    for (uint32_t i = 0; !code && q == FCP_COMM && i < stream->count;
         i++) { /* a launch moves all of its transfers at once */
        const fcp_instr *x = &s->plan->instrs[stream->first + i];
        for (uint32_t t = x->a; x->op == FCP_OP_LAUNCH && t < x->a + x->b; t++) s->base.times->transfers[t] = to[i].end;
    }
    return code;
}

fcp_code fcp_cuda_timing_read(fcp_cuda_session *s, fcp_pass pass, fcp_error *err) {
    fcp_code code = FCP_OK;
    for (uint32_t r = s->base.first_rank; s->base.times && !code && r < fcp_cuda_end(s); r++) {
        code = fcp_cuda_use(s, s->ranks[r].device, err);
        for (int q = 0; !code && q < FCP_QUEUES; q++) code = read_queue(s, pass, r, (fcp_queue)q, err);
    }
    return code;
}

void fcp_cuda_timing_end(fcp_cuda_session *s) {
    const fcp_cuda_table *call = &s->cuda->call;
    for (uint32_t r = s->base.first_rank; s->base.times && s->ranks && r < fcp_cuda_end(s); r++) {
        cuda_rank *x = &s->ranks[r];
        for (int q = 0; q < FCP_QUEUES; q++) {
            for (uint32_t i = 0; x->times[q] && i < x->time_count[q]; i++)
                if (x->times[q][i]) call->event_destroy(x->times[q][i]);
            free(x->times[q]);
            x->times[q] = NULL;
        }
        if (x->time_out) call->event_destroy(x->time_out);
        x->time_out = NULL;
    }
    for (uint32_t i = 0; s->base.times && i < s->device_count; i++) {
        if (s->devices[i].base) call->event_destroy(s->devices[i].base);
        s->devices[i].base = NULL;
    }
}
