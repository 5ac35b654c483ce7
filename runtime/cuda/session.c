/* session.c: sessions on CUDA devices: all ranks of a plan in this process, `local`: streams, events and copies; or one of
 * them, `nccl`: transport_nccl.c.
 *
 * Requires: a verified plan; a driver, and NVRTC unless the kernels are in the disk cache.
 * Cost:     an arena a rank on its device of what fcp_rank_memory counts, work lists as long as the plan's cells, two
 *           streams a rank. The first runs of a pass are put down anew; from the run that graph_from names they are one
 *           graph, which touches arenas alone, so that it serves whatever tensors.
 * Order:    IN, the pass, OUT, each behind the one before it, but for results that the plan moves beside the last stage
 *           (early.c). Runs follow each other, on whatever streams.
 * Failure:  an error names rank, stage and instruction: where it shows itself in putting down, or by the marks that the
 *           devices write (marks.c); what was put down is waited for, at most timeout_s a stream; and the session
 *           refuses further runs.
 */
#include "runtime/cuda/session.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/cuda/parts.h"
#include "runtime/kernels/source.h"

enum { DEFAULT_TIMEOUT_S = 120, DEFAULT_GRAPH_FROM = 3, ARENA_ALIGN = 64, NOWHERE = 4096 };
enum { RUN_COST = 4 }; /* what a run puts into streams beside its instructions, counted in those */

/* --- making ------------------------------------------------------------------------------------------------------- */

/* A device is to hold so many bytes where it holds some already, which are enough or are given up before. */
static void count_memory(cuda_device *d, size_t bytes, size_t held) {
    d->need.device += bytes > held ? bytes : held;
    d->need.held += held;
}

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
        if (!code) code = fcp_cuda_early_find(s, index, (fcp_pass)pass, err);
        count_memory(r->device, r->work[pass].size, r->work[pass].held);
    }
    count_memory(r->device, fcp_cuda_allocated(r->arena_bytes), r->memory_held);
    count_memory(r->device, r->lock_words * 4, r->locks_held);
    if (!code && fcp_partials_make(&r->partials, h->homes, dkv))
        code = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for rank %u", index);
    return code;
}

/* What a rank's process has besides. */
static void count_nccl(fcp_cuda_session *s) {
    cuda_device *d = &s->devices[0];
    size_t scratch = fcp_cuda_nccl_scratch(s);
    count_memory(d, scratch, scratch);
    for (int t = 0; s->host_tensors && t < FCP_TENSORS; t++) {
        size_t held, bytes = fcp_cuda_nccl_staged(s, (fcp_tensor)t, &held);
        count_memory(d, bytes, held);
    }
}

static fcp_code check_memory(fcp_cuda_session *s, fcp_error *err) {
    fcp_code code = FCP_OK;
    if (s->nccl) count_nccl(s);
    for (uint32_t i = 0; !code && i < s->device_count; i++) {
        cuda_device *d = &s->devices[i];
        size_t available = 0, total = 0;
        count_memory(d, fcp_cuda_allocated(fcp_cuda_environment_size(s->plan)), d->environment_held);
        d->need.pinned = fcp_cuda_stage_pinned(d) + (i ? 0 : fcp_cuda_marks_pinned(s));
        code = fcp_cuda_use(s, d, err);
        if (!code)
            code = fcp_cuda_check(s->cuda, s->cuda->call.memory_info(&available, &total), err,
                                  "device %d does not say how much memory it has", d->handle);
        if (!code && d->need.device > available + d->need.held)
            code = fcp_fail(err, FCP_E_NO_MEMORY,
                            "device %d (%s) has %.2f of %.2f GB free, and its ranks need %.2f GB; more GPUs, smaller blocks or "
                            "fewer buffers would do", d->handle, d->name, (double)(available + d->need.held) / 1e9, (double)total / 1e9,
                            (double)d->need.device / 1e9);
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

static fcp_code make_arena(fcp_cuda_session *s, cuda_rank *r, fcp_error *err) {
    if (!s->nccl) return fcp_cuda_memory_again(s, r->device, r->arena_bytes, NULL, "an arena", &r->memory, &r->memory_held, err);
    if (r->memory && r->arena_bytes <= r->memory_held) return FCP_OK;
    r->memory_held = 0;
    fcp_code code = fcp_cuda_nccl_memory(s, r, err);
    if (!code) r->memory_held = fcp_cuda_allocated(r->arena_bytes);
    return code;
}

/* A rank's memory on its device, and its streams: what is there already is kept. */
static fcp_code make_rank(fcp_cuda_session *s, uint32_t index, fcp_error *err) {
    cuda_rank *r = &s->ranks[index];
    fcp_code code = r->streams[0] ? FCP_OK : make_streams(s, r, err);
    if (!code) code = make_arena(s, r, err);
    if (!code && r->memory % ARENA_ALIGN) code = fcp_fail(err, FCP_E_RUN, "device memory at an odd address");
    if (!code && r->lock_words)
        code = fcp_cuda_memory_again(s, r->device, r->lock_words * 4, NULL, "locks", &r->locks, &r->locks_held, err);
    for (int pass = 0; !code && pass < FCP_PASSES; pass++) {
        if (!(s->plan->problem->passes >> pass & 1)) continue;
        cuda_work *w = &r->work[pass];
        fcp_arena_lay(s->plan, (fcp_pass)pass, index, &r->slots[pass], s->homes[index].first, (void *)(uintptr_t)r->memory,
                      &r->arena[pass]);
        if (w->size) code = fcp_cuda_memory_again(s, r->device, w->size, w->bytes, "work lists", &w->memory, &w->held, err);
        free(w->bytes);
        w->bytes = NULL;
        w->capacity = 0;
        if (!code) code = fcp_cuda_maps_make(s, r, (fcp_pass)pass, err);
    }
    return code;
}

/* What ranks have on the host. */
static void free_ranks(const fcp_cuda_session *s, cuda_rank *ranks) {
    for (uint32_t r = s->base.first_rank; ranks && r < fcp_cuda_end(s); r++) {
        for (int pass = 0; pass < FCP_PASSES; pass++) {
            free(ranks[r].work[pass].bytes);
            free(ranks[r].work[pass].attends);
            free(ranks[r].early[pass].slots);
        }
        fcp_partials_free(&ranks[r].partials);
    }
    free(ranks);
}

/* What a rank of another plan goes on with. */
static void take_over(cuda_rank *r, const cuda_rank *before) {
    *r = (cuda_rank){.memory = before->memory, .memory_held = before->memory_held, .locks = before->locks, .locks_held = before->locks_held};
    for (int q = 0; q < FCP_QUEUES; q++) r->streams[q] = before->streams[q];
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        r->work[pass] = (cuda_work){.memory = before->work[pass].memory, .held = before->work[pass].held};
        r->early[pass].event = before->early[pass].event;
    }
}

/* The session's ranks become those of a plan, as far as that needs no device; if it fails, they are what they were. */
static fcp_code plan_ranks(fcp_cuda_session *s, const fcp_plan *plan, fcp_error *err) {
    const fcp_plan *plan_before = s->plan;
    cuda_rank *before = s->ranks;
    fcp_homes *homes_before = s->homes;
    fcp_code code = FCP_OK;
    s->plan = plan;
    s->ranks = calloc(plan->problem->ranks, sizeof *s->ranks);
    s->homes = fcp_homes_of(plan);
    if (!s->ranks || !s->homes) code = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for a session of %u ranks", plan->problem->ranks);
    for (uint32_t i = 0; i < s->device_count; i++) s->devices[i].need = (cuda_need){0};
    for (uint32_t r = s->base.first_rank; !code && r < fcp_cuda_end(s); r++) {
        if (before) take_over(&s->ranks[r], &before[r]);
        code = plan_rank(s, r, err);
    }
    if (!code) code = check_memory(s, err);
    if (code && before) {
        free_ranks(s, s->ranks);
        free(s->homes);
        s->plan = plan_before;
        s->ranks = before;
        s->homes = homes_before;
    } else if (before) {
        free_ranks(s, before);
        free(homes_before);
    }
    if (!code) s->base.plan = plan;
    return code;
}

/* What the ranks need on devices that are open. */
static fcp_code make_ranks(fcp_cuda_session *s, bool again, fcp_error *err) {
    fcp_code code = fcp_cuda_kernels_load(s, err);
    if (!code) code = fcp_cuda_environment_load(s, err);
    if (again) fcp_cuda_partition_again(s);
    else if (!code) code = fcp_cuda_partition_open(s, err);
    if (!code && !again) code = fcp_cuda_marks_open(s, err);
    for (uint32_t r = s->base.first_rank; !code && r < fcp_cuda_end(s); r++) code = make_rank(s, r, err);
    if (!code && s->nccl && s->host_tensors) code = fcp_cuda_nccl_stage_open(s, err);
    return code;
}

static fcp_code make(fcp_cuda_session *s, const fcp_start *start, bool nccl, fcp_error *err) {
    uint32_t ranks = s->plan->problem->ranks;
    fcp_code code = nccl ? fcp_cuda_nccl_place(s, start, err) : FCP_OK;
    if (code) return code;
    if (!nccl) {
        s->base.rank_count = ranks;
        s->device_count = (uint32_t)s->cuda->devices < ranks ? (uint32_t)s->cuda->devices : ranks;
    }
    s->devices = calloc(s->device_count, sizeof *s->devices);
    if (!s->devices) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %u devices", s->device_count);
    code = fcp_cuda_devices_open(s, err);
    if (!code) code = fcp_cuda_use(s, &s->devices[0], err);
    if (!code)
        code = fcp_cuda_check(s->cuda, s->cuda->call.stream_create(&s->origin, CU_STREAM_NON_BLOCKING, 0), err,
                              "device %d makes no stream", s->devices[0].handle);
    for (uint32_t i = 0; !code && i < s->device_count; i++) code = fcp_cuda_stage_open(s, &s->devices[i], err);
    if (!code && nccl) code = fcp_cuda_nccl_connect(s, start, err);
    if (code) return code;
    code = plan_ranks(s, s->plan, err);
    if (!code) code = make_ranks(s, false, err);
    return nccl ? fcp_cuda_nccl_agree(s, s->plan, code, err) : code;
}

/* Waits for a stream, or only looks at it. Returns whether it has ended, or failed. */
static bool drain_stream(fcp_cuda_session *s, cu_stream stream, bool waits) {
    fcp_error ignored;
    if (!stream) return true;
    if (waits) fcp_cuda_wait(s, stream, "", &ignored);
    return s->cuda->call.stream_query(stream) != CU_ERROR_NOT_READY;
}

/* Waits for everything in the session's streams, but for no more than one that hangs: what has hung hangs. */
static void drain(fcp_cuda_session *s) {
    bool waits = !s->hung, quiet = drain_stream(s, s->origin, waits);
    for (uint32_t r = s->base.first_rank; s->ranks && r < fcp_cuda_end(s); r++)
        for (int q = 0; q < FCP_QUEUES; q++) quiet &= drain_stream(s, s->ranks[r].streams[q], waits && quiet);
    for (uint32_t i = 0; s->devices && i < s->device_count; i++)
        quiet &= drain_stream(s, s->devices[i].stage.stream, waits && quiet);
    s->hung = !quiet;
}

/* What a rank has in the driver. */
static void close_rank(fcp_cuda_session *s, cuda_rank *r, bool nccl) {
    const fcp_cuda_table *call = &s->cuda->call;
    if (r->device && r->device->retained) call->context_set(r->device->context);
    for (int q = 0; q < FCP_QUEUES; q++)
        if (r->streams[q]) call->stream_destroy(r->streams[q]);
    for (int pass = 0; pass < FCP_PASSES; pass++)
        if (r->work[pass].memory) call->release(r->work[pass].memory);
    if (r->locks) call->release(r->locks);
    if (r->memory && !nccl) call->release(r->memory);
}

/* What the session has in the driver. */
static void close_all(fcp_cuda_session *s) {
    const fcp_cuda_table *call = &s->cuda->call;
    bool nccl = s->nccl;
    for (int pass = 0; pass < FCP_PASSES; pass++)
        if (s->graphs[pass]) {
            call->graph_exec_destroy(s->graphs[pass]);
            s->graphs[pass] = NULL;
        }
    fcp_cuda_nccl_close(s);
    for (uint32_t r = s->base.first_rank; s->ranks && r < fcp_cuda_end(s); r++) close_rank(s, &s->ranks[r], nccl);
    if (s->origin) call->context_set(s->devices[0].context);
    if (s->origin) call->stream_destroy(s->origin);
    fcp_cuda_marks_close(s);
    for (uint32_t i = 0; s->devices && i < s->device_count; i++) fcp_cuda_device_close(s, &s->devices[i]);
}

static void session_free(fcp_session *base) {
    fcp_cuda_session *s = (fcp_cuda_session *)base;
    if (s->cuda) {
        const fcp_cuda_table *call = &s->cuda->call;
        cu_context before = NULL;
        if (s->devices) call->context_get(&before);
        if (s->nccl && (s->broken || !s->made)) fcp_cuda_nccl_abort(s);
        if (s->origin) {
            fcp_error ignored;
            fcp_cuda_use(s, &s->devices[0], &ignored);
            if (s->finished) call->stream_wait_event(s->origin, s->finished, 0);
            drain(s);
        }
        if (!s->hung) close_all(s);
        else fcp_cuda_nccl_close(s); /* the driver would wait for what hangs in giving its memory up: it stays */
        if (s->devices) call->context_set(before);
    }
    for (uint32_t i = 0; s->devices && i < s->device_count; i++) {
        for (int b = 0; b < 2; b++) free(s->devices[i].stage.buffers[b].out);
        free(s->devices[i].events);
        for (int pass = 0; pass < FCP_PASSES; pass++) free(s->devices[i].sources[pass]);
    }
    free_ranks(s, s->ranks);
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
    code = fcp_cuda_record(s, pass, &s->devices[0], s->origin, true, err);
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
    if (!s->graphs[pass]) return fcp_cuda_record(s, pass, d, origin, false, err);
    code = fcp_cuda_use(s, d, err); /* making it was done on all devices */
    if (code) return code;
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

/* IN or OUT; with `host`, tensors lie in memory of the host's: it is read, or written, when this returns. `inside`: with
 * nccl the tensors where the communicator finds them, from IN on. */
static fcp_code reshuffle(fcp_cuda_session *s, fcp_pass pass, fcp_class cls, const fcp_tensors *tensors, fcp_tensors *inside,
                          cuda_device *d, cu_stream origin, bool host, fcp_error *err) {
    fcp_code code = fcp_cuda_fork(s, d, origin, err);
    if (!code && host) code = fcp_cuda_stages_follow(s, d, origin, err);
    if (!code && s->nccl && cls == FCP_IN) code = fcp_cuda_nccl_stage_in(s, pass, tensors, inside, err);
    if (!code) code = fcp_cuda_reshuffle(s, pass, cls, false, s->nccl ? inside : tensors, err);
    if (!code && s->nccl && cls == FCP_OUT) code = fcp_cuda_nccl_stage_out(s, pass, tensors, inside, err);
    for (uint32_t i = 0; !code && host && cls == FCP_OUT && i < s->device_count; i++)
        code = fcp_cuda_stage_flush(s, &s->devices[i], err);
    if (!code && host) code = fcp_cuda_stages_join(s, origin, err);
    return code ? code : fcp_cuda_join(s, origin, err);
}

static fcp_code put_down(fcp_cuda_session *s, fcp_pass pass, const fcp_tensors *tensors, cuda_device *d, cu_stream origin,
                         bool host, bool wait, fcp_error *err) {
    fcp_tensors inside;
    fcp_code code = s->nccl ? fcp_cuda_nccl_watch(s, "what ran before", err) : FCP_OK;
    if (!code && s->nccl) code = fcp_cuda_nccl_pace(s, RUN_COST, err);
    if (!code && s->finished)
        code = fcp_cuda_check(s->cuda, s->cuda->call.stream_wait_event(origin, s->finished, 0), err, "cannot wait for an event");
    if (!code) code = fcp_cuda_marks_begin(s, pass, d, origin, err);
    if (!code) code = reshuffle(s, pass, FCP_IN, tensors, &inside, d, origin, host, err);
    if (!code) code = run_pass(s, pass, d, origin, err);
    if (!code) code = fcp_cuda_early_move(s, pass, s->nccl ? &inside : tensors, s->graphs[pass], host && !s->nccl, err);
    if (!code) code = reshuffle(s, pass, FCP_OUT, tensors, &inside, d, origin, host, err);
    if (!code) code = mark_finished(s, d, origin, err);
    if (!code && wait) {
        char what[40] = "the forward pass";
        if (pass == FCP_BACKWARD) memcpy(what, "the backward pass", sizeof "the backward pass");
        code = fcp_cuda_wait(s, origin, what, err);
        if (!code && s->nccl) code = fcp_cuda_nccl_watch(s, what, err);
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

/* Runs wait for each other by an event, and count themselves: what another graph would repeat does neither. */
static fcp_code refuse_capture(fcp_cuda_session *s, cu_stream stream, fcp_error *err) {
    int capturing = 0;
    fcp_code code = fcp_cuda_check(s->cuda, s->cuda->call.stream_capturing(stream, &capturing), err, "not a stream");
    if (!code && capturing)
        code = fcp_fail(err, FCP_E_ARGUMENT, "the stream is being captured into a graph: a session makes graphs of its own, and "
                                             "its runs are put into streams outside a capture");
    return code;
}

/* After an error in a run. */
static void break_down(fcp_cuda_session *s, fcp_code code, fcp_error *why) {
    fcp_cuda_fail_where(s, code, why);
    s->broken = true;
    s->why = *why;
    for (uint32_t i = 0; i < s->device_count; i++) fcp_cuda_stage_drop(&s->devices[i]);
    if (s->nccl) fcp_cuda_nccl_abort(s);
    drain(s);
}

static fcp_code session_wait(fcp_session *base, fcp_error *err);

static void session_refuse(fcp_session *base, const fcp_plan *plan, fcp_code code, const fcp_error *why) {
    fcp_cuda_session *s = (fcp_cuda_session *)base;
    cu_context before = NULL;
    fcp_error said = *why;
    if (!s->nccl || s->broken || s->cuda->call.context_get(&before)) return;
    if (!fcp_cuda_nccl_refuse(s, plan, code)) break_down(s, code, &said);
    s->cuda->call.context_set(before);
}

/* Once the ranks are those of the new plan there is no way back: an error then ends the session. With nccl all ranks do this
 * together, and what fails at one fails at all. */
static fcp_code session_rebind(fcp_session *base, const fcp_plan *plan, fcp_error *err) {
    fcp_cuda_session *s = (fcp_cuda_session *)base;
    cu_context before = NULL;
    fcp_error why = {0};
    fcp_code code = fcp_kernel_check(plan, &why);
    if (code) session_refuse(base, plan, code, &why);
    if (code && err) *err = why;
    if (!code) code = session_wait(base, err);
    if (!code) code = fcp_cuda_check(s->cuda, s->cuda->call.context_get(&before), err, "no current context");
    if (code) return code;
    code = plan_ranks(s, plan, &why);
    bool stays = code && !s->nccl;
    for (int pass = 0; pass < FCP_PASSES && !stays; pass++) {
        if (s->graphs[pass]) s->cuda->call.graph_exec_destroy(s->graphs[pass]);
        s->graphs[pass] = NULL;
        s->runs[pass] = 0;
    }
    if (!code) code = make_ranks(s, true, &why);
    if (s->nccl) code = fcp_cuda_nccl_agree(s, plan, code, &why);
    if (code && !stays) break_down(s, code, &why);
    s->cuda->call.context_set(before);
    if (code && err) *err = why;
    return code;
}

/* A stream of the driver's own, which means another one wherever another context is current. */
static bool is_default(cu_stream stream) {
    return (uintptr_t)stream == CU_DEFAULT_LEGACY || (uintptr_t)stream == CU_DEFAULT_PER_THREAD;
}

/* A run on a default stream of device d, which is used only where that device is current: the session's own stream follows
 * it, has the run, and is followed by it. */
static fcp_code run_beside(fcp_cuda_session *s, fcp_pass pass, const fcp_tensors *tensors, cuda_device *d, cu_stream stream,
                           bool host, fcp_error *err) {
    fcp_code code = fcp_cuda_use(s, d, err);
    if (!code) code = fcp_cuda_follow(s, d, stream, s->origin, err);
    if (!code) code = put_down(s, pass, tensors, &s->devices[0], s->origin, host, host, err);
    if (!code) code = fcp_cuda_use(s, d, err);
    if (code) return code;
    return fcp_cuda_check(s->cuda, s->cuda->call.stream_wait_event(stream, s->finished, 0), err, "cannot wait for an event");
}

/* A run has failed: what it put into the caller's stream, a graph perhaps, is waited for as what is in the session's own. */
static void follow_caller(fcp_cuda_session *s, cuda_device *d, cu_stream stream) {
    fcp_error ignored;
    fcp_cuda_follow(s, d, stream, s->origin, &ignored);
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
    if (!code && !is_default(stream)) code = fcp_cuda_use(s, d, &why);
    if (!code && stream) code = device_of(s, stream, &d, &why);
    if (!code && stream) code = refuse_capture(s, stream, &why);
    if (!code) code = fcp_cuda_use(s, d, &why);
    if (!code) code = fcp_cuda_tensors_check(s, pass, tensors, &host, &why);
    if (!code) {
        code = is_default(stream) ? run_beside(s, pass, tensors, d, stream, host, &why)
                                  : put_down(s, pass, tensors, d, stream ? stream : s->origin, host, host || !stream, &why);
        if (code && stream && !is_default(stream)) follow_caller(s, d, stream);
        if (code) break_down(s, code, &why);
    }
    s->cuda->call.context_set(before);
    if (code && err) *err = why;
    return code;
}

static fcp_code session_wait(fcp_session *base, fcp_error *err) {
    fcp_cuda_session *s = (fcp_cuda_session *)base;
    cu_context before = NULL;
    fcp_error why = {0};
    if (s->broken)
        return fcp_fail(err, FCP_E_RUN, "this session has failed, and a new one is needed: %.400s", s->why.message);
    if (!s->finished) return FCP_OK;
    fcp_code code = fcp_cuda_check(s->cuda, s->cuda->call.context_get(&before), &why, "no current context");
    if (!code) code = fcp_cuda_use(s, &s->devices[0], &why);
    if (!code)
        code = fcp_cuda_check(s->cuda, s->cuda->call.stream_wait_event(s->origin, s->finished, 0), &why,
                              "cannot wait for an event");
    if (!code) code = fcp_cuda_wait(s, s->origin, "what was run", &why);
    if (code) break_down(s, code, &why);
    s->cuda->call.context_set(before);
    if (code && err) *err = why;
    return code;
}

/* What one process says goes to `all` (NULL: nothing is said), what rank `from` has to rank 0. */
static fcp_code tell(fcp_cuda_session *s, const void *mine, void *all, uint32_t from, void *memory, size_t bytes, fcp_error *err) {
    cu_context before = NULL;
    fcp_error why = {0};
    if (s->broken)
        return fcp_fail(err, FCP_E_RUN, "this session has failed, and a new one is needed: %.400s", s->why.message);
    fcp_code code = fcp_cuda_check(s->cuda, s->cuda->call.context_get(&before), &why, "no current context");
    if (!code)
        code = all ? fcp_cuda_nccl_gather(s, mine, bytes, all, &why) : fcp_cuda_nccl_collect(s, from, memory, bytes, &why);
    if (code) break_down(s, code, &why);
    s->cuda->call.context_set(before);
    if (code && err) *err = why;
    return code;
}

static fcp_code session_gather(fcp_session *base, const void *mine, size_t bytes, void *out_all, fcp_error *err) {
    fcp_cuda_session *s = (fcp_cuda_session *)base;
    if (s->nccl) return tell(s, mine, out_all, 0, NULL, bytes, err);
    memcpy(out_all, mine, bytes);
    return FCP_OK;
}
static fcp_code session_collect(fcp_session *base, uint32_t from, void *memory, size_t bytes, fcp_error *err) {
    fcp_cuda_session *s = (fcp_cuda_session *)base;
    return s->nccl ? tell(s, NULL, NULL, from, memory, bytes, err) : FCP_OK;
}

static const char *session_backend(const fcp_session *s) { return s->kind->name; }
static const char *session_transport(const fcp_session *s) {
    return ((const fcp_cuda_session *)s)->nccl ? "nccl" : "local";
}

static fcp_partition session_partition(const fcp_session *base, const char **out_why) {
    const fcp_cuda_session *s = (const fcp_cuda_session *)base;
    *out_why = s->partition_why;
    return s->partition;
}

static const char *session_warning(const fcp_session *base) { return ((const fcp_cuda_session *)base)->warning; }

static const fcp_session_kind cuda_kind = {.name = "cuda",
                                           .run = session_run,
                                           .wait = session_wait,
                                           .rebind = session_rebind,
                                           .refuse = session_refuse,
                                           .gather = session_gather,
                                           .collect = session_collect,
                                           .free = session_free,
                                           .backend = session_backend,
                                           .transport = session_transport,
                                           .partition = session_partition,
                                           .warning = session_warning,
                                           .streams = true};

fcp_code fcp_cuda_session_create(const fcp_plan *plan, const fcp_session_options *options, fcp_session **out_session,
                                 fcp_error *err) {
    const char *transport = options && options->transport ? options->transport : "local";
    bool nccl = strcmp(transport, "nccl") == 0;
    if (!nccl && strcmp(transport, "local") != 0)
        return fcp_fail(err, FCP_E_BACKEND, "the cuda backend has no transport \"%.40s\": there are local and nccl", transport);
    fcp_code code = fcp_kernel_check(plan, err);
    if (code) return code;
    fcp_cuda_session *s = calloc(1, sizeof *s);
    if (!s) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for a session");
    s->base = (fcp_session){&cuda_kind, plan, 0, 0};
    s->plan = plan;
    s->mma_sync = options && options->mma_sync;
    s->timeout_s = options && options->timeout_s ? options->timeout_s : DEFAULT_TIMEOUT_S;
    s->partition_wanted = options ? options->partition : FCP_PARTITION_AUTO;
    s->graph_from = options && options->graph_from ? options->graph_from : DEFAULT_GRAPH_FROM;
    s->stage_bytes = options ? options->stage_bytes : 0;
    s->host_tensors = options && options->host_tensors;
    cu_context before = NULL;
    code = fcp_cuda_open(&s->cuda, err);
    if (!code) code = fcp_cuda_check(s->cuda, s->cuda->call.context_get(&before), err, "no current context");
    if (!code) {
        fcp_error why = {0};
        code = make(s, options ? options->start : NULL, nccl, &why);
        if (code && s->base.rank_count == 1 && nccl && strncmp(why.message, "rank ", 5) != 0)
            fcp_fail(err, code, "rank %u: %.500s", s->base.first_rank, why.message);
        else if (code && err) *err = why;
        s->made = !code;
        s->cuda->call.context_set(before);
    }
    if (code) session_free(&s->base);
    else *out_session = &s->base;
    return code;
}
