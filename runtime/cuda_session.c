/* cuda_session.c: sessions on CUDA devices: all ranks of a plan in this process, `local`: streams, events and copies.
 *
 * Requires: a verified plan; a driver, and NVRTC unless the kernels are in the disk cache.
 * Cost:     an arena a rank on its device of what fcp_rank_memory counts, work lists as long as the plan's cells, two
 *           streams a rank. The first runs of a pass are put down anew; from the run that graph_from names they are one
 *           graph, which touches arenas alone, so that it serves whatever tensors.
 * Order:    IN, the pass, OUT, each behind the one before it. Runs follow each other, on whatever streams.
 * Failure:  an error names rank, stage and instruction: where it shows itself in putting down, or by the marks that the
 *           devices write (cuda_marks.c); what was put down is waited for, at most timeout_s a stream; and the session
 *           refuses further runs.
 */
#include "cuda_session.h"

#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "cuda_parts.h"
#include "kernel_source.h"

enum { DEFAULT_TIMEOUT_S = 120, DEFAULT_GRAPH_FROM = 3, ARENA_ALIGN = 64, NOWHERE = 4096 };

/* --- making ------------------------------------------------------------------------------------------------------- */

/* A rank's slots, and its work lists, in an arena that does not begin anywhere yet. */
static fcp_code plan_rank(fcp_cuda_session *s, uint32_t index, fcp_error *err) {
    cuda_rank *r = &s->ranks[index];
    const fcp_homes *h = &s->homes[index];
    uint32_t dkv = 0;
    fcp_code code = FCP_OK;
    r->device = &s->devices[(index - s->base.first_rank) % s->device_count];
    for (int pass = 0; !code && pass < FCP_PASSES; pass++) {
        if (!(s->plan->problem->passes >> pass & 1)) continue;
        fcp_slots *slots = &r->slots[pass];
        fcp_slots_of(s->plan, (fcp_pass)pass, index, h->homes, h->tokens, slots);
        fcp_arena_lay(s->plan, (fcp_pass)pass, index, slots, h->first, (void *)(uintptr_t)NOWHERE, &r->arena[pass]);
        if (r->arena[pass].bytes > r->arena_bytes) r->arena_bytes = r->arena[pass].bytes;
        if (slots->dkv > dkv) dkv = slots->dkv;
        code = fcp_cuda_work_make(s, r, (fcp_pass)pass, err);
        r->device->need += r->work[pass].size;
    }
    r->device->need += r->arena_bytes + r->lock_words * 4;
    r->filled = calloc((size_t)dkv + 1, 1);
    if (!code && !r->filled) code = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for rank %u", index);
    return code;
}

static fcp_code check_memory(fcp_cuda_session *s, fcp_error *err) {
    fcp_code code = FCP_OK;
    for (uint32_t i = 0; !code && i < s->device_count; i++) {
        cuda_device *d = &s->devices[i];
        size_t available = 0, total = 0;
        d->need += fcp_cuda_environment_size(s->plan);
        code = fcp_cuda_use(s, d, err);
        if (!code)
            code = fcp_cuda_check(s->cuda, s->cuda->call.memory_info(&available, &total), err,
                                  "device %d does not say how much memory it has", d->handle);
        if (!code && d->need > available)
            code = fcp_fail(err, FCP_E_NO_MEMORY,
                            "device %d (%s) has %.2f of %.2f GB free, and its ranks need %.2f GB; more GPUs, smaller blocks or "
                            "fewer buffers would do", d->handle, d->name, (double)available / 1e9, (double)total / 1e9,
                            (double)d->need / 1e9);
    }
    return code;
}

static fcp_code make_streams(fcp_cuda_session *s, cuda_rank *r, fcp_error *err) {
    const fcp_cuda_table *call = &s->cuda->call;
    int least = 0, greatest = 0;
    fcp_code code = fcp_cuda_use(s, r->device, err);
    if (!code)
        code = fcp_cuda_check(s->cuda, call->priorities(&least, &greatest), err, "device %d has no priorities", r->device->handle);
    for (int q = 0; !code && q < FCP_QUEUES; q++) {
        cu_stream *out = &r->streams[q];
        cu_result result = q == FCP_COMPUTE && r->device->green
                               ? call->green_stream(out, r->device->green, CU_STREAM_NON_BLOCKING, least)
                               : call->stream_create(out, CU_STREAM_NON_BLOCKING, q == FCP_COMM ? greatest : least);
        code = fcp_cuda_check(s->cuda, result, err, "device %d makes no stream", r->device->handle);
    }
    return code;
}

/* A rank's memory on its device, and its streams. */
static fcp_code make_rank(fcp_cuda_session *s, uint32_t index, fcp_error *err) {
    cuda_rank *r = &s->ranks[index];
    fcp_code code = make_streams(s, r, err);
    if (!code) code = fcp_cuda_memory(s, r->device, r->arena_bytes, NULL, "an arena", &r->memory, err);
    if (!code && r->memory % ARENA_ALIGN) code = fcp_fail(err, FCP_E_RUN, "device memory at an odd address");
    if (!code && r->lock_words) code = fcp_cuda_memory(s, r->device, r->lock_words * 4, NULL, "locks", &r->locks, err);
    for (int pass = 0; !code && pass < FCP_PASSES; pass++) {
        if (!(s->plan->problem->passes >> pass & 1)) continue;
        cuda_work *w = &r->work[pass];
        fcp_arena_lay(s->plan, (fcp_pass)pass, index, &r->slots[pass], s->homes[index].first, (void *)(uintptr_t)r->memory,
                      &r->arena[pass]);
        if (w->size) code = fcp_cuda_memory(s, r->device, w->size, w->bytes, "work lists", &w->memory, err);
        free(w->bytes);
        w->bytes = NULL;
        if (!code) code = fcp_cuda_maps_make(s, r, (fcp_pass)pass, err);
    }
    return code;
}

static fcp_code make(fcp_cuda_session *s, fcp_partition partition, fcp_error *err) {
    const fcp_plan *plan = s->plan;
    uint32_t ranks = plan->problem->ranks;
    fcp_code code = FCP_OK;
    s->base.rank_count = ranks;
    s->device_count = (uint32_t)s->cuda->devices < ranks ? (uint32_t)s->cuda->devices : ranks;
    s->devices = calloc(s->device_count, sizeof *s->devices);
    s->ranks = calloc(ranks, sizeof *s->ranks);
    s->homes = fcp_homes_of(plan);
    if (!s->devices || !s->ranks || !s->homes)
        return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for a session of %u ranks", ranks);
    code = fcp_cuda_devices_open(s, err);
    for (uint32_t r = s->base.first_rank; !code && r < fcp_cuda_end(s); r++) code = plan_rank(s, r, err);
    if (!code) code = check_memory(s, err);
    if (!code) code = fcp_cuda_kernels_load(s, err);
    if (!code) code = fcp_cuda_use(s, &s->devices[0], err);
    if (!code)
        code = fcp_cuda_check(s->cuda, s->cuda->call.stream_create(&s->origin, CU_STREAM_NON_BLOCKING, 0), err,
                              "device 0 makes no stream");
    if (!code) code = fcp_cuda_environment_load(s, err);
    if (!code) code = fcp_cuda_partition_open(s, partition, err);
    if (!code) code = fcp_cuda_marks_open(s, err);
    for (uint32_t r = s->base.first_rank; !code && r < fcp_cuda_end(s); r++) code = make_rank(s, r, err);
    return code;
}

/* Waits for everything in the session's streams, but no longer than for one stream: what has hung hangs. */
static void drain(fcp_cuda_session *s) {
    fcp_error ignored;
    double begin = fcp_clock();
    if (s->origin) fcp_cuda_wait(s, s->origin, "", &ignored);
    for (uint32_t r = s->base.first_rank; s->ranks && r < fcp_cuda_end(s); r++)
        for (int q = 0; q < FCP_QUEUES; q++)
            if (s->ranks[r].streams[q] && fcp_clock() - begin < s->timeout_s)
                fcp_cuda_wait(s, s->ranks[r].streams[q], "", &ignored);
}

static void close_rank(fcp_cuda_session *s, cuda_rank *r) {
    const fcp_cuda_table *call = &s->cuda->call;
    if (r->device && r->device->retained) call->context_set(r->device->context);
    for (int q = 0; q < FCP_QUEUES; q++)
        if (r->streams[q]) call->stream_destroy(r->streams[q]);
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        if (r->work[pass].memory) call->release(r->work[pass].memory);
        free(r->work[pass].bytes);
        free(r->work[pass].attends);
    }
    if (r->locks) call->release(r->locks);
    if (r->memory) call->release(r->memory);
    free(r->filled);
}

static void session_free(fcp_session *base) {
    fcp_cuda_session *s = (fcp_cuda_session *)base;
    if (s->cuda) {
        const fcp_cuda_table *call = &s->cuda->call;
        cu_context before = NULL;
        if (s->devices) call->context_get(&before);
        if (s->origin) {
            fcp_error ignored;
            fcp_cuda_use(s, &s->devices[0], &ignored);
            if (s->finished) call->stream_wait_event(s->origin, s->finished, 0);
            drain(s);
        }
        for (int pass = 0; pass < FCP_PASSES; pass++)
            if (s->graphs[pass]) call->graph_exec_destroy(s->graphs[pass]);
        for (uint32_t r = s->base.first_rank; s->ranks && r < fcp_cuda_end(s); r++) close_rank(s, &s->ranks[r]);
        if (s->origin) call->context_set(s->devices[0].context);
        if (s->origin) call->stream_destroy(s->origin);
        fcp_cuda_marks_close(s);
        for (uint32_t i = 0; s->devices && i < s->device_count; i++) fcp_cuda_device_close(s, &s->devices[i]);
        if (s->devices) call->context_set(before);
    }
    free(s->ranks);
    free(s->homes);
    free(s->devices);
    fcp_cuda_close(s->cuda);
    free(s);
}

/* --- running ------------------------------------------------------------------------------------------------------ */

/* The pass as a graph. */
static fcp_code capture(fcp_cuda_session *s, fcp_pass pass, fcp_error *err) {
    const fcp_cuda_table *call = &s->cuda->call;
    cu_graph graph = NULL;
    fcp_error ignored;
    fcp_code code = fcp_cuda_use(s, &s->devices[0], err);
    if (!code)
        code = fcp_cuda_check(s->cuda, call->capture_begin(s->origin, CU_CAPTURE_THREAD_LOCAL), err, "no graph can be begun");
    if (code) return code;
    code = fcp_cuda_record(s, pass, &s->devices[0], s->origin, err);
    fcp_code ended = fcp_cuda_check(s->cuda, call->capture_end(s->origin, &graph), code ? &ignored : err,
                                    "the %s pass does not become a graph", fcp_pass_names[pass]);
    if (!code) code = ended;
    if (!code)
        code = fcp_cuda_check(s->cuda, call->graph_instantiate(&s->graphs[pass], graph, 0), err,
                              "the graph of the %s pass cannot be made", fcp_pass_names[pass]);
    if (graph) call->graph_destroy(graph);
    return code;
}

static fcp_code run_pass(fcp_cuda_session *s, fcp_pass pass, cuda_device *d, cu_stream origin, fcp_error *err) {
    fcp_code code = FCP_OK;
    if (s->runs[pass] < UINT32_MAX) s->runs[pass]++;
    if (!s->graphs[pass] && s->graph_from < UINT32_MAX && s->runs[pass] >= s->graph_from) code = capture(s, pass, err);
    if (code) return code;
    if (!s->graphs[pass]) return fcp_cuda_record(s, pass, d, origin, err);
    return fcp_cuda_check(s->cuda, s->cuda->call.graph_launch(s->graphs[pass], origin), err,
                          "the graph of the %s pass cannot be launched", fcp_pass_names[pass]);
}

/* What comes after this run, on whatever stream, waits for it. */
static fcp_code mark_finished(fcp_cuda_session *s, cuda_device *d, cu_stream origin, fcp_error *err) {
    if (s->finished && s->finished_device != d) {
        fcp_cuda_event_give(s->finished_device, s->finished);
        s->finished = NULL;
    }
    fcp_code code = s->finished ? FCP_OK : fcp_cuda_event_take(s, d, &s->finished, err);
    s->finished_device = d;
    if (!code) code = fcp_cuda_check(s->cuda, s->cuda->call.event_record(s->finished, origin), err, "cannot record an event");
    return code;
}

static fcp_code reshuffle(fcp_cuda_session *s, fcp_pass pass, fcp_class cls, const fcp_tensors *tensors, cuda_device *d,
                          cu_stream origin, fcp_error *err) {
    fcp_code code = fcp_cuda_fork(s, d, origin, err);
    if (!code) code = fcp_cuda_reshuffle(s, pass, cls, tensors, err);
    return code ? code : fcp_cuda_join(s, origin, err);
}

static fcp_code put_down(fcp_cuda_session *s, fcp_pass pass, const fcp_tensors *tensors, cuda_device *d, cu_stream origin,
                         bool wait, fcp_error *err) {
    fcp_code code = FCP_OK;
    if (s->finished)
        code = fcp_cuda_check(s->cuda, s->cuda->call.stream_wait_event(origin, s->finished, 0), err, "cannot wait for an event");
    if (!code) code = fcp_cuda_marks_begin(s, pass, d, origin, err);
    if (!code) code = reshuffle(s, pass, FCP_IN, tensors, d, origin, err);
    if (!code) code = run_pass(s, pass, d, origin, err);
    if (!code) code = reshuffle(s, pass, FCP_OUT, tensors, d, origin, err);
    if (!code) code = mark_finished(s, d, origin, err);
    if (!code && wait) {
        char what[40] = "the forward pass";
        if (pass == FCP_BACKWARD) memcpy(what, "the backward pass", sizeof "the backward pass");
        code = fcp_cuda_wait(s, origin, what, err);
    }
    return code;
}

/* The device of a caller's stream. */
static fcp_code device_of(fcp_cuda_session *s, cu_stream stream, cuda_device **out, fcp_error *err) {
    cu_context context = NULL;
    fcp_code code = fcp_cuda_check(s->cuda, s->cuda->call.stream_context(stream, &context), err, "not a stream");
    if (code) return code;
    for (uint32_t i = 0; i < s->device_count; i++)
        if (s->devices[i].context == context) {
            *out = &s->devices[i];
            return FCP_OK;
        }
    return fcp_fail(err, FCP_E_ARGUMENT, "the stream is not of a primary context of the devices %u to %u, which the session uses",
                    s->first_device, s->first_device + s->device_count - 1);
}

static fcp_code session_run(fcp_session *base, fcp_pass pass, const fcp_tensors *tensors, void *stream, fcp_error *err) {
    fcp_cuda_session *s = (fcp_cuda_session *)base;
    cu_context before = NULL;
    cuda_device *d = &s->devices[0];
    bool host = false;
    fcp_error why = {0};
    if (s->broken)
        return fcp_fail(err, FCP_E_RUN, "this session has failed, and a new one is needed: %.400s", s->why.message);
    fcp_code code = fcp_cuda_check(s->cuda, s->cuda->call.context_get(&before), &why, "no current context");
    if (!code) code = fcp_cuda_use(s, d, &why);
    if (!code && stream) code = device_of(s, stream, &d, &why);
    if (!code) code = fcp_cuda_tensors_check(s, pass, tensors, &host, &why);
    if (!code) {
        code = put_down(s, pass, tensors, d, stream ? stream : s->origin, host || !stream, &why);
        if (code) {
            fcp_cuda_fail_where(s, code, &why);
            s->broken = true;
            s->why = why;
            drain(s);
        }
    }
    s->cuda->call.context_set(before);
    if (code && err) *err = why;
    return code;
}

static const char *session_backend(const fcp_session *s) { return s->kind->name; }
static const char *session_transport(const fcp_session *s) {
    (void)s;
    return "local";
}

static fcp_partition session_partition(const fcp_session *base, const char **out_why) {
    const fcp_cuda_session *s = (const fcp_cuda_session *)base;
    *out_why = s->partition_why;
    return s->partition;
}

static const fcp_session_kind cuda_kind = {.name = "cuda",
                                           .run = session_run,
                                           .free = session_free,
                                           .backend = session_backend,
                                           .transport = session_transport,
                                           .partition = session_partition,
                                           .streams = true};

fcp_code fcp_cuda_session_create(const fcp_plan *plan, const fcp_session_options *options, fcp_session **out_session,
                                 fcp_error *err) {
    fcp_code code = fcp_kernel_check(plan, err);
    if (code) return code;
    fcp_cuda_session *s = calloc(1, sizeof *s);
    if (!s) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for a session");
    s->base = (fcp_session){&cuda_kind, plan};
    s->plan = plan;
    s->mma_sync = options && options->mma_sync;
    s->timeout_s = options && options->timeout_s ? options->timeout_s : DEFAULT_TIMEOUT_S;
    s->graph_from = options && options->graph_from ? options->graph_from : DEFAULT_GRAPH_FROM;
    cu_context before = NULL;
    code = fcp_cuda_open(&s->cuda, err);
    if (!code) code = fcp_cuda_check(s->cuda, s->cuda->call.context_get(&before), err, "no current context");
    if (!code) {
        code = make(s, options ? options->partition : FCP_PARTITION_AUTO, err);
        s->cuda->call.context_set(before);
    }
    if (code) session_free(&s->base);
    else *out_session = &s->base;
    return code;
}
