/* run_pass.c: a run of a pass: inputs in, the pass or its graph, outputs out; and what happens if that fails.
 *
 * Requires: a session that was made completely; tensors of all its ranks.
 * Order:    IN, the pass and OUT come one after the other, except for results that are sent early (early.c). Each run
 *           comes after the run before it, whatever streams the caller names. The same holds for runs of sessions that
 *           share arenas.
 * Graphs:   - The first runs of a pass put its instructions into streams one by one. From run graph_from on the pass is
 *             one graph. It touches nothing but arenas, so it serves any tensors.
 *           - Two kinds of runs have graphs of their own: a backward pass with gradients of tables, which launches
 *             more, and a forward pass with the largest logits, whose kernels have other parameters.
 *           - If the caller captures the stream, the instructions are put into it one by one, with IN and OUT, and
 *             become a part of the caller's graph. That graph also gets nodes that wait for the event of the run before
 *             and record it, so its launches and other runs come one after the other.
 * Failure:  an error names rank, stage and instruction: the one that was being put into a stream, or the one that the
 *           marks of the devices point to (marks.c). Then the run waits for what is in streams, at most timeout_s for
 *           each, and the session refuses further runs.
 */
#include "runtime/cuda/cuda.h"
#include "runtime/plan/enum_names.h"

#include <string.h>

enum { RUN_COST = 4 }; /* a run puts about as much into streams as so many instructions, beside its own */

fcp_code fcp_cuda_run_check(const fcp_cuda_session *s, fcp_error *err) {
    return s->broken ? fcp_fail(err, FCP_E_RUN, "this session has failed, and a new one is needed: %.400s",
                                s->why.message) : FCP_OK;
}

void fcp_cuda_graphs_destroy(fcp_cuda_session *s) {
    for (int i = 0; i < CUDA_GRAPHS; i++) {
        if (s->graphs[i]) s->cuda->call.graph_exec_destroy(s->graphs[i]);
        s->graphs[i] = NULL;
    }
}

/* The number of the graph that a run of a pass would be. */
static int graph_of(const fcp_cuda_session *s, fcp_pass pass) {
    const int i = s->table_gradients ? CUDA_TABLE_GRADIENTS : s->maxima ? CUDA_MAXIMA : (int)pass;
    return s->base.keys_kept ? i + CUDA_WITH_KEYS : i;
}

/* Waits for a stream, or only looks at it. True: it has ended or failed. */
static bool drain_stream(fcp_cuda_session *s, cu_stream stream, bool waits) {
    fcp_error ignored;
    if (!stream) return true;
    if (waits) fcp_cuda_wait(s, stream, "", &ignored);
    return s->cuda->call.stream_query(stream) != CU_ERROR_NOT_READY;
}

void fcp_cuda_drain(fcp_cuda_session *s) {
    bool waits = !s->hung, quiet = drain_stream(s, s->origin, waits);
    for (uint32_t r = s->base.first_rank; s->ranks && r < fcp_cuda_end(s); r++)
        for (int q = 0; q < CUDA_STREAMS; q++) {
            quiet &= drain_stream(s, s->ranks[r].streams[q], waits && quiet);
            quiet &= drain_stream(s, s->ranks[r].marks[q], waits && quiet);
        }
    for (uint32_t i = 0; s->devices && i < s->device_count; i++)
        quiet &= drain_stream(s, s->devices[i].staging.stream, waits && quiet);
    s->hung = !quiet;
}

/* Makes the graph of a pass. */
static fcp_code capture(fcp_cuda_session *s, fcp_pass pass, fcp_error *err) {
    const fcp_cuda_table *call = &s->cuda->call;
    cu_graph graph = NULL;
    fcp_error ignored;
    fcp_code code = fcp_cuda_use(s, &s->devices[0], err);
    if (!code)
        code = fcp_cuda_check(s->cuda, call->capture_begin(s->origin, CU_CAPTURE_THREAD_LOCAL), err,
                              "no graph can be begun");
    if (code) return code;
    code = fcp_cuda_record(s, pass, &s->devices[0], s->origin, true, err);
    fcp_code ended = fcp_cuda_check(s->cuda, call->capture_end(s->origin, &graph), code ? &ignored : err,
                                    "the %s pass does not become a graph", fcp_pass_names[pass]);
    if (!code) code = ended;
    if (!code)
        code = fcp_cuda_check(s->cuda, call->graph_instantiate(&s->graphs[graph_of(s, pass)], graph, 0), err,
                              "the graph of the %s pass cannot be made", fcp_pass_names[pass]);
    if (graph) call->graph_destroy(graph);
    return code;
}

static fcp_code run_pass(fcp_cuda_session *s, fcp_pass pass, cuda_device *d, cu_stream origin, fcp_error *err) {
    fcp_code code = FCP_OK;
    if (s->outer) return fcp_cuda_record(s, pass, d, origin, false, err);
    const int i = graph_of(s, pass);
    if (s->runs[i] < UINT32_MAX) s->runs[i]++;
    const bool may = s->graph_from < UINT32_MAX && !fcp_cuda_fused(s, pass);
    if (!s->graphs[i] && may && s->runs[i] >= s->graph_from) code = capture(s, pass, err);
    if (code) return code;
    if (!s->graphs[i]) return fcp_cuda_record(s, pass, d, origin, false, err);
    code = fcp_cuda_use(s, d, err); /* capturing has made other devices current */
    if (code) return code;
    return fcp_cuda_check(s->cuda, s->cuda->call.graph_launch(s->graphs[i], origin), err,
                          "the graph of the %s pass cannot be launched", fcp_pass_names[pass]);
}

/* Waits for the call before, whatever stream that was put into. In a graph of the caller's each launch waits for it. */
fcp_code fcp_cuda_await_before(fcp_cuda_session *s, cu_stream origin, fcp_error *err) {
    cu_event finished = fcp_cuda_lender(s)->finished;
    if (!finished) return FCP_OK;
    return fcp_cuda_check(s->cuda,
                          s->cuda->call.stream_wait_event(origin, finished, s->outer ? CU_EVENT_WAIT_EXTERNAL : 0),
                          err, "cannot wait for the run before");
}

/* Records the event for which the next run waits. In a graph of the caller's each launch records it, so it is the same
 * event as long as the session lives. */
fcp_code fcp_cuda_mark_finished(fcp_cuda_session *s, cu_stream origin, fcp_error *err) {
    fcp_cuda_session *of = fcp_cuda_lender(s); /* its events live longer */
    fcp_code code = of->finished ? FCP_OK : fcp_cuda_event_take(of, &of->devices[0], &of->finished, err);
    if (code) return code;
    return fcp_cuda_check(
        s->cuda, s->cuda->call.event_record_flags(of->finished, origin, s->outer ? CU_EVENT_RECORD_EXTERNAL : 0), err,
        "cannot record an event");
}

/* Does IN or OUT. With `host`, some tensors lie in host memory, and it has been read or written when this returns.
 * *inside: the tensors that the transport uses in their place, from IN on. */
static fcp_code reshuffle(fcp_cuda_session *s, fcp_pass pass, fcp_class cls, const fcp_tensors *tensors,
                          const fcp_tensors **inside, cuda_device *d, cu_stream origin, bool host, fcp_error *err) {
    fcp_net *net = s->base.net;
    fcp_code code = fcp_cuda_fork(s, CUDA_COMM_STREAMS, d, origin, err);
    if (!code && cls == FCP_IN) code = fcp_cuda_marks_begin(s, pass, d, origin, err);
    if (!code && host) code = fcp_cuda_stagings_follow(s, d, origin, err);
    if (!code && cls == FCP_IN) code = fcp_net_stage_in(net, pass, tensors, inside, err);
    if (!code && cls == FCP_IN) code = fcp_cuda_sinks_in(s, tensors, err);
    if (!code && cls == FCP_IN) code = fcp_cuda_tables_in(s, tensors, err);
    if (!code) code = fcp_cuda_reshuffle(s, pass, cls, false, *inside, err);
    if (!code && cls == FCP_OUT && pass == FCP_BACKWARD) code = fcp_cuda_sinks_out(s, tensors, err);
    if (!code && cls == FCP_OUT && s->table_gradients) code = fcp_cuda_tables_out(s, tensors, err);
    if (!code && cls == FCP_OUT) code = fcp_cuda_maxima_out(s, tensors, err);
    if (!code && cls == FCP_OUT) code = fcp_net_stage_out(net, pass, tensors, *inside, err);
    for (uint32_t i = 0; !code && host && cls == FCP_OUT && i < s->device_count; i++)
        code = fcp_cuda_staging_flush(s, &s->devices[i], err);
    if (!code && cls == FCP_OUT) code = fcp_cuda_timing_out(s, err);
    if (!code && host) code = fcp_cuda_stagings_join(s, origin, err);
    return code ? code : fcp_cuda_join(s, CUDA_COMM_STREAMS, origin, err);
}

/* A run of a pass, with the caller's tensors. host: some of them lie in host memory. */
struct pass_run {
    fcp_pass pass;
    const fcp_tensors *tensors;
    bool host;
};

/* Puts a run into a stream of the session's first device. */
static fcp_code put_down(fcp_cuda_session *s, void *call, cu_stream origin, bool wait, fcp_error *err) {
    const struct pass_run *run = call;
    const fcp_pass pass = run->pass;
    const fcp_tensors *tensors = run->tensors;
    const bool host = run->host;
    cuda_device *d = &s->devices[0];
    const fcp_tensors *inside = tensors;
    const fcp_cuda_session *of = fcp_cuda_lender(s);
    if (s->laid != of->arenas) fcp_cuda_graphs_destroy(s); /* nothing runs: arenas have moved since */
    fcp_code code = s->laid != of->arenas ? fcp_cuda_ranks_follow(s, err) : FCP_OK;
    for (uint32_t r = s->base.first_rank; r < fcp_cuda_end(s); r++)
        s->ranks[r].arena[pass].keys_kept = s->base.keys_kept;
    if (!code) code = fcp_net_watch(s->base.net, "what ran before", err);
    if (!code) code = fcp_net_pace(s->base.net, RUN_COST, err);
    if (!code) code = fcp_cuda_await_before(s, origin, err);
    if (!code) code = fcp_cuda_timing_begin(s, pass, d, origin, err);
    if (!code) code = reshuffle(s, pass, FCP_IN, tensors, &inside, d, origin, host, err);
    if (!code) code = run_pass(s, pass, d, origin, err);
    if (!code) code = fcp_cuda_early_move(s, pass, inside, s->graphs[graph_of(s, pass)] && !s->outer,
                                              host && inside == tensors, err);
    if (!code) code = reshuffle(s, pass, FCP_OUT, tensors, &inside, d, origin, host, err);
    if (!code) code = fcp_cuda_mark_finished(s, origin, err);
    if (!code && (wait || s->base.times)) {
        char what[40] = "the forward pass";
        if (pass == FCP_BACKWARD) memcpy(what, "the backward pass", sizeof "the backward pass");
        code = fcp_cuda_wait(s, origin, what, err);
        if (!code) code = fcp_net_watch(s->base.net, what, err);
    }
    if (!code) code = fcp_cuda_timing_read(s, pass, err);
    fcp_cuda_timing_end(s);
    return code;
}

/* Finds the device of a caller's stream. */
static fcp_code device_of(fcp_cuda_session *s, cu_stream stream, cuda_device **out, fcp_error *err) {
    cu_context context = NULL;
    fcp_code code = fcp_cuda_check(s->cuda, s->cuda->call.stream_context(stream, &context), err, "not a stream");
    if (code) return code;
    for (uint32_t i = 0; i < s->device_count; i++)
        if (s->devices[i].context == context) {
            *out = &s->devices[i];
            return FCP_OK;
        }
    return fcp_fail(err, FCP_E_ARGUMENT,
                    "the stream is not of a primary context of the devices %u to %u, which the session uses",
                    s->first_device, s->first_device + s->device_count - 1);
}

fcp_code fcp_cuda_see_capture(fcp_cuda_session *s, cu_stream stream, fcp_error *err) {
    int capturing = 0;
    const fcp_code code =
        fcp_cuda_check(s->cuda, s->cuda->call.stream_capturing(stream, &capturing), err, "not a stream");
    s->outer = !code && capturing;
    return code;
}

/* Can the run become a part of a graph of the caller's? */
static fcp_code see_capture(fcp_cuda_session *s, cu_stream stream, fcp_error *err) {
    const fcp_code code = fcp_cuda_see_capture(s, stream, err);
    if (!s->outer) return code;
    if (s->base.keys_kept)
        return fcp_fail(err, FCP_E_ARGUMENT,
                        "the stream is being captured, and the run keeps keys of a run before it, "
                        "which a graph may not find");
    s->base.captured = true;
    if (s->base.times)
        return fcp_fail(err, FCP_E_ARGUMENT, "the stream is being captured, and a session with timings waits for each "
                        "run: make one without");
    if (!fcp_cuda_lender(s)->finished || s->laid != fcp_cuda_lender(s)->arenas)
        return fcp_fail(err, FCP_E_ARGUMENT, "the stream is being captured, and the plan has not run since its memory "
                        "was made: run each pass once outside the capture");
    for (uint32_t i = 0; i < s->device_count; i++)
        s->devices[i].own_sinks = s->devices[i].own_tables = true; /* a launch of the graph may be what came last */
    return FCP_OK;
}

fcp_code fcp_cuda_refuse_host(fcp_error *err) {
    return fcp_fail(err, FCP_E_TENSOR, "the stream is being captured, and some tensors lie in host memory: a graph has "
                    "tensors in device memory alone");
}

void fcp_cuda_break(fcp_cuda_session *s, fcp_code code, fcp_error *why) {
    fcp_cuda_fail_where(s, code, why);
    s->broken = true;
    s->why = *why;
    for (uint32_t i = 0; i < s->device_count; i++) fcp_cuda_staging_drop(&s->devices[i]);
    fcp_net_abort(s->base.net);
    fcp_cuda_drain(s);
}

/* Is it the handle of a default stream? That means a different stream in each context. */
static bool is_default(cu_stream stream) {
    return (uintptr_t)stream == CU_DEFAULT_LEGACY || (uintptr_t)stream == CU_DEFAULT_PER_THREAD;
}

/* Puts a call down for a default stream, or for a stream of another device d than the first. A default stream can be
 * used only while its device is current, and a call makes other devices current. So the session's own stream does the
 * work: it follows the caller's stream, which then follows it. */
static fcp_code put_beside(fcp_cuda_session *s, cuda_put *put, void *call, cuda_device *d, cu_stream stream, bool host,
                           fcp_error *err) {
    fcp_code code = fcp_cuda_use(s, d, err);
    if (!code) code = fcp_cuda_follow(s, d, stream, s->origin, err);
    if (!code) code = put(s, call, s->origin, host, err);
    if (!code) code = fcp_cuda_use(s, d, err);
    return code ? code : fcp_cuda_follow(s, &s->devices[0], s->origin, stream, err);
}

/* After a failed run: makes the session's stream follow the caller's, so that what the run put there is waited for,
 * too. */
static void follow_caller(fcp_cuda_session *s, cuda_device *d, cu_stream stream) {
    fcp_error ignored;
    fcp_cuda_follow(s, d, stream, s->origin, &ignored);
}

fcp_code fcp_cuda_call_begin(fcp_cuda_session *s, cu_stream stream, cu_context *out_before, cuda_device **out_device,
                             fcp_error *err) {
    fcp_code code = fcp_cuda_check(s->cuda, s->cuda->call.context_get(out_before), err, "no current context");
    *out_device = &s->devices[0];
    if (!code && !is_default(stream)) code = fcp_cuda_use(s, &s->devices[0], err);
    return code || !stream ? code : device_of(s, stream, out_device, err);
}

fcp_code fcp_cuda_call_put(fcp_cuda_session *s, cuda_put *put, void *call, cuda_device *d, cu_stream stream, bool host,
                           fcp_error *err) {
    const fcp_code code = is_default(stream) || d != &s->devices[0]
                              ? put_beside(s, put, call, d, stream, host, err)
                              : put(s, call, stream ? stream : s->origin, host || !stream, err);
    if (code && stream && !is_default(stream) && !s->outer) follow_caller(s, d, stream);
    if (code) fcp_cuda_break(s, code, err);
    return code;
}

fcp_code fcp_cuda_run(fcp_cuda_session *s, fcp_pass pass, const fcp_tensors *tensors, cu_stream stream,
                      fcp_error *err) {
    cu_context before = NULL;
    cuda_device *d = NULL;
    struct pass_run run = {pass, tensors, false};
    fcp_error why = {0};
    fcp_code code = fcp_cuda_run_check(s, err);
    if (code) return code;
    code = fcp_cuda_call_begin(s, stream, &before, &d, &why);
    if (!code && stream) code = see_capture(s, stream, &why);
    if (!code) code = fcp_cuda_use(s, &s->devices[0], &why);
    if (!code) code = fcp_cuda_tensors_check(s, pass, tensors, &run.host, &why);
    if (!code) code = fcp_cuda_tables_check(s, pass, tensors, &why);
    fcp_cuda_maxima_check(s, pass, tensors);
    if (!code && s->table_gradients) code = fcp_cuda_use(s, &s->devices[0], &why);
    if (!code && s->outer && run.host) code = fcp_cuda_refuse_host(&why);
    else if (!code) code = fcp_cuda_call_put(s, put_down, &run, d, stream, run.host, &why);
    s->outer = false;
    s->cuda->call.context_set(before);
    if (code && err) *err = why;
    return code;
}

fcp_code fcp_cuda_run_wait(fcp_cuda_session *s, fcp_error *err) {
    cu_context before = NULL;
    fcp_error why = {0};
    fcp_code code = fcp_cuda_run_check(s, err);
    cu_event finished = fcp_cuda_lender(s)->finished;
    if (code || !finished) return code;
    code = fcp_cuda_check(s->cuda, s->cuda->call.context_get(&before), &why, "no current context");
    if (!code) code = fcp_cuda_use(s, &s->devices[0], &why);
    if (!code) code = fcp_cuda_event_await(s, s->origin, finished, &why);
    if (!code) code = fcp_cuda_wait(s, s->origin, "what was run", &why);
    if (code) fcp_cuda_break(s, code, &why);
    s->cuda->call.context_set(before);
    if (code && err) *err = why;
    return code;
}
