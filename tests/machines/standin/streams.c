/* streams.c: streams, events and graphs of the stand-in driver.
 *
 * A stream is represented by the last node that was put into it, and an event by the last node of a stream at the time
 * when it was recorded. During a capture, streams that have joined it put their nodes into the store of the capture.
 */
#include <stdlib.h>

#include "tests/machines/standin/symbols.h"

cu_stream streams, capture_origin;
store live = {.id = 1}, captured;
bool capture_bad;
static cu_graph_exec execs;
static uint64_t last_capture = UINT64_C(1) << 62;
static long ticks; /* events recorded */

/* --- streams and events ------------------------------------------------------------------------------------------- */

static struct cu_stream_ defaults[DEVICES + 1][2];

/* Replaces the handle of a default stream by that stream of the current context. */
cu_result stream_find(cu_stream *s) {
    uintptr_t handle = (uintptr_t)*s;
    if (handle > CU_DEFAULT_PER_THREAD) return CU_SUCCESS;
    if (!current) return INVALID_CONTEXT;
    cu_stream found = &defaults[current - contexts][handle == CU_DEFAULT_PER_THREAD];
    if (!found->context) {
        *found = (struct cu_stream_){.context = current, .next = streams};
        streams = found;
    }
    *s = found;
    return CU_SUCCESS;
}

/* Puts a node at the end of a stream; it also comes after node `also`. It remembers which word of host memory its
 * stream was last told to write. */
cu_result stream_put(cu_stream s, const node *made, uint32_t also) {
    node copy = *made, *n = &copy;
    uint64_t mark = n->op == FILL ? n->to : 0;
    unsigned value = n->word;
    if (n->op == KERNEL && n->function->parameters != sizeof n->parameters.gather && !kernel_is_recurrent(n)) {
        bool is_support = n->function->parameters == sizeof n->parameters.support;
        mark = is_support ? n->parameters.support.mark : n->parameters.launch.mark;
        value = is_support ? n->parameters.support.mark_value : n->parameters.launch.mark_value;
    }
    const allocation *marks = allocation_of(mark);
    if (marks && marks->host) {
        s->mark = mark;
        s->mark_value = value;
        cu_stream of = streams;
        while (of && (n->op != FILL || of != s->of)) of = of->next;
        if (of) of->mark = mark;
        if (of) of->mark_value = value;
    }
    n->marks = marks && marks->host;
    n->mark = s->mark;
    n->mark_value = s->mark_value;
    n->device = s->context->device;
    store *to = in_capture(s) ? &captured : &live;
    if (to == &live && !store_has_room(to)) return LAUNCH_FAILED;
    ref *last = in_capture(s) ? &s->captured : &s->last;
    const uint32_t deps[] = {node_of(to, *last), also};
    last->node = store_add(to, n, deps, 2, to == &live);
    last->store = to->id;
    return CU_SUCCESS;
}

API cuStreamCreateWithPriority(cu_stream *out, unsigned flags, int priority) {
    ENTER;
    if (!current || flags != CU_STREAM_NON_BLOCKING || priority > 0 || priority < -5) return CU_ERROR_INVALID_VALUE;
    *out = stream_new(current, NULL);
    return CU_SUCCESS;
}
cu_stream stream_new(cu_context context, cu_green green) {
    cu_stream s = calloc(1, sizeof *s);
    *s = (struct cu_stream_){.context = context, .next = streams, .green = green};
    streams = s;
    control.live++;
    return s;
}
cu_context context_of(cu_device d) { return &contexts[d]; }
API cuStreamDestroy_v2(cu_stream s) {
    cu_stream *at = &streams;
    while (*at && *at != s) at = &(*at)->next;
    if (!*at) trouble("a stream is ended that is not there");
    if (!*at) return INVALID_HANDLE;
    *at = s->next;
    if (s->green) green_stream_ends(s->green);
    free(s);
    control.live--;
    LEAVE;
}
static cu_result ask_node(uint32_t last, uint32_t steps) {
    if (last && !live.nodes[last - 1].done) store_run(&live, steps);
    if (last && !live.nodes[last - 1].done)
        return control.hang_with && store_stuck(&live) ? control.hang_with : CU_ERROR_NOT_READY;
    if (control.trouble[0]) return LAUNCH_FAILED;
    host_saw(&live, last);
    return CU_SUCCESS;
}
static cu_result ask(cu_stream s, uint32_t steps) {
    if (s->capture && capture_origin) {
        capture_bad = true;
        return CAPTURE_UNSUPPORTED;
    }
    return ask_node(node_of(&live, s->last), steps);
}
static uint32_t some_steps(void) { return 1 + (uint32_t)(control.seed >> 40) % 400; }
API cuStreamQuery(cu_stream s) {
    ENTER;
    STREAM(s);
    return ask(s, some_steps());
}
API cuStreamSynchronize(cu_stream s) {
    ENTER_OUTSIDE;
    STREAM(s);
    uint32_t last = s->capture && capture_origin ? 0 : node_of(&live, s->last);
    if (last) store_finish(&live, last);
    return ask(s, UINT32_MAX);
}
API cuStreamGetCtx(cu_stream s, cu_context *out) {
    ENTER;
    STREAM(s);
    cu_stream at = streams;
    while (at && at != s) at = at->next;
    if (!at) return INVALID_HANDLE;
    *out = s->context;
    return CU_SUCCESS;
}
API cuStreamIsCapturing(cu_stream s, int *out) {
    ENTER;
    STREAM(s);
    *out = in_capture(s);
    return CU_SUCCESS;
}
API cuStreamWaitEvent(cu_stream s, cu_event e, unsigned flags) {
    ENTER;
    STREAM(s);
    const node empty = {.op = EMPTY};
    if (flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL) return CU_ERROR_INVALID_VALUE;
    if (flags) { /* this becomes a node of the graph: each launch waits for what was recorded before it */
        const node n = {.op = EMPTY, .waits_for = e};
        return in_capture(s) ? stream_put(s, &n, 0) : CU_ERROR_INVALID_VALUE;
    }
    s->of = e->stream;
    if (capture_origin && e->capture == captured.id) {
        if (!in_capture(s)) s->captured = (ref){0};
        s->capture = captured.id;
        return stream_put(s, &empty, node_of(&captured, e->at));
    }
    if (in_capture(s)) {
        capture_bad = true;
        return CAPTURE_ISOLATION;
    }
    if (e->capture) return CAPTURED_EVENT; /* it was recorded during a capture that has ended, where it was no node */
    return stream_put(s, &empty, node_of(&live, e->at));
}
API cuEventCreate(cu_event *out, unsigned flags) {
    ENTER;
    if (!current || (flags && flags != CU_EVENT_DISABLE_TIMING)) return CU_ERROR_INVALID_VALUE;
    *out = calloc(1, sizeof **out);
    (*out)->context = current;
    (*out)->timed = !flags;
    control.live++;
    return CU_SUCCESS;
}
API cuEventDestroy_v2(cu_event e) {
    if (e->graphs) trouble("an event is ended that a graph records or awaits");
    free(e);
    control.live--;
    LEAVE;
}
API cuEventRecordWithFlags(cu_event e, cu_stream s, unsigned flags) {
    ENTER;
    STREAM(s);
    if (e->context != s->context) return INVALID_HANDLE;
    if (flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL) return CU_ERROR_INVALID_VALUE;
    if (flags) { /* this becomes a node of the graph: the event is recorded when the graph is launched, not now */
        const node n = {.op = EMPTY, .event = e};
        return in_capture(s) ? stream_put(s, &n, 0) : CU_ERROR_INVALID_VALUE;
    }
    e->capture = in_capture(s) ? captured.id : 0;
    e->at = in_capture(s) ? s->captured : s->last;
    e->tick = ++ticks;
    e->stream = s;
    return CU_SUCCESS;
}
API cuEventRecord(cu_event e, cu_stream s) { return cuEventRecordWithFlags(e, s, 0); }
/* No time passes here. A millisecond is counted for every event that was recorded in between. */
API cuEventElapsedTime(float *out, cu_event a, cu_event b) {
    ENTER;
    if (!a->timed || !b->timed || !a->tick || !b->tick) return INVALID_HANDLE;
    uint32_t m = node_of(&live, a->at), n = node_of(&live, b->at);
    if ((m && !live.nodes[m - 1].done) || (n && !live.nodes[n - 1].done)) return CU_ERROR_NOT_READY;
    *out = (float)(b->tick - a->tick);
    return CU_SUCCESS;
}
API cuEventQuery(cu_event e) {
    ENTER_OUTSIDE;
    if (e->capture) return CAPTURED_EVENT;
    return ask_node(node_of(&live, e->at), some_steps());
}

/* --- graphs ------------------------------------------------------------------------------------------------------- */

API cuStreamBeginCapture_v2(cu_stream s, int mode) {
    ENTER;
    if ((uintptr_t)s <= CU_DEFAULT_LEGACY) return CAPTURE_UNSUPPORTED;
    STREAM(s);
    if (capture_origin || mode < 0 || mode > 2) return CU_ERROR_INVALID_VALUE; /* all are as strict as the strictest */
    captured = (store){.id = ++last_capture, .graph = true};
    capture_origin = s;
    capture_bad = false;
    s->capture = captured.id;
    s->captured = (ref){0};
    return CU_SUCCESS;
}
API cuStreamEndCapture(cu_stream s, cu_graph *out) {
    STREAM(s);
    if (s != capture_origin) return CU_ERROR_INVALID_VALUE;
    cu_result result = capture_bad ? CAPTURE_INVALIDATED : CU_SUCCESS;
    uint32_t last = node_of(&captured, s->captured);
    for (cu_stream t = streams; t; t = t->next) {
        uint32_t theirs = in_capture(t) ? node_of(&captured, t->captured) : 0;
        if (theirs && !result && (!last || !store_before(&captured, theirs, last))) result = CAPTURE_UNJOINED;
    }
    for (cu_stream t = streams; t; t = t->next) t->capture = 0;
    capture_origin = NULL;
    if (injected()) result = control.fail_with;
    *out = NULL;
    if (result) {
        store_clear(&captured);
        return result;
    }
    *out = calloc(1, sizeof **out);
    (*out)->store = captured;
    captured = (store){0};
    control.live++;
    return CU_SUCCESS;
}
API cuGraphInstantiateWithFlags(cu_graph_exec *out, cu_graph g, unsigned long long flags) {
    ENTER_OUTSIDE;
    if (flags) return CU_ERROR_INVALID_VALUE;
    *out = calloc(1, sizeof **out);
    (*out)->next = execs;
    execs = *out;
    for (uint32_t i = 0; i < g->store.count; i++)
        store_add(&(*out)->store, &g->store.nodes[i], g->store.nodes[i].deps, g->store.nodes[i].dep_count, false);
    control.live++;
    return CU_SUCCESS;
}
API cuGraphLaunch(cu_graph_exec g, cu_stream s) {
    ENTER;
    STREAM(s);
    if (in_capture(s)) return CAPTURE_UNSUPPORTED;
    if (current != s->context) return INVALID_CONTEXT;
    const node empty = {.op = EMPTY};
    stream_put(s, &empty, 0);
    uint32_t begin = s->last.node, count = g->store.count, *deps = calloc(count + 2, sizeof *deps);
    for (uint32_t i = 0; i < count; i++) {
        const node *n = &g->store.nodes[i];
        for (uint32_t j = 0; j < n->dep_count; j++) deps[j] = begin + n->deps[j];
        deps[n->dep_count] = n->waits_for ? node_of(&live, n->waits_for->at) : 0;
        deps[n->dep_count + 1] = n->dep_count ? 0 : begin;
        uint32_t put_down = store_add(&live, n, deps, n->dep_count + 2, true);
        if (!n->event) continue;
        n->event->at = (ref){live.id, put_down};
        n->event->capture = 0;
        n->event->tick = ++ticks;
    }
    for (uint32_t i = 0; i < count; i++) deps[i] = begin + 1 + i;
    s->last.node = store_add(&live, &empty, deps, count, true);
    free(deps);
    bool computes = false;
    for (uint32_t i = 0; i < count; i++) computes |= g->store.nodes[i].op == KERNEL;
    control.graph_launches += computes;
    return CU_SUCCESS;
}
API cuGraphGetNodes(cu_graph g, void *out, size_t *count) {
    ENTER;
    if (out) return CU_ERROR_INVALID_VALUE;
    *count = g->store.count;
    return CU_SUCCESS;
}
API cuGraphDestroy(cu_graph g) {
    store_clear(&g->store);
    free(g);
    control.live--;
    LEAVE;
}
API cuGraphExecDestroy(cu_graph_exec g) {
    cu_graph_exec *at = &execs;
    while (*at && *at != g) at = &(*at)->next;
    if (!*at) trouble("a graph is ended that is not there");
    if (!*at) return INVALID_HANDLE;
    *at = g->next;
    store_clear(&g->store);
    free(g);
    control.live--;
    LEAVE;
}
