/* conformance_nccl.c: asks NCCL for what the runtime relies on, with one rank that sends to itself. The same
 * questions go to the stand-in library and to the real one, as in conformance.c. The communicator does not
 * block, as in the runtime.
 *
 * Requires: an open driver (gpu_open).
 * Gives:    gpu.h.
 * Cost:     a communicator, and some MiB of NCCL's memory.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/base/clock.h"
#include "runtime/libraries/nccl.h"
#include "tests/gpu/gpu.h"

enum { WORDS = 4096, BYTES = WORDS * 4, PATIENCE_S = 30 };

typedef struct asked {
    gpu *g;
    fcp_nccl *nccl;
    nccl_comm comm, other; /* other: a second one of the same rank, as transfers over net have */
    cu_stream stream, beside;
    char *memory; /* three times BYTES of NCCL's: from, to, and what comes by the other communicator */
    void *enrolled;
    char answer[GPU_ANSWER];
} asked;
#define say(q, ...) gpu_say((q)->answer, __VA_ARGS__)

/* Until a communicator has done what was begun. */
static bool settle_on(asked *q, nccl_comm comm, nccl_result result, const char *what) {
    fcp_patience left = fcp_patience_of(PATIENCE_S, 0.1);
    if (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS)
        return say(q, "%s gave %d: %s", what, result, q->nccl->call.last_error(NULL));
    for (nccl_result state = NCCL_IN_PROGRESS; state != NCCL_SUCCESS;) {
        nccl_result asking = q->nccl->call.async_error(comm, &state);
        if (asking || (state != NCCL_SUCCESS && state != NCCL_IN_PROGRESS))
            return say(q, "%s: %d, %d", what, asking, state);
        if (state == NCCL_IN_PROGRESS && fcp_patience_ends(&left))
            return say(q, "%s did not end in %d s", what, PATIENCE_S);
        if (state == NCCL_IN_PROGRESS) nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    return true;
}

static bool settle(asked *q, nccl_result result, const char *what) { return settle_on(q, q->comm, result, what); }

/* A group: BYTES from the beginning of the memory to part `to` of it, to itself. */
static bool group_on(asked *q, nccl_comm comm, cu_stream stream, int to) {
    const fcp_nccl_table *call = &q->nccl->call;
    nccl_result begun = call->group_start();
    nccl_result sent = begun ? begun : call->send(q->memory, BYTES, NCCL_INT8, 0, comm, stream);
    nccl_result received = begun ? begun : call->receive(q->memory + to * BYTES, BYTES, NCCL_INT8, 0, comm, stream);
    nccl_result ended = begun ? begun : call->group_end();
    bool good = !begun && (!sent || sent == NCCL_IN_PROGRESS) && (!received || received == NCCL_IN_PROGRESS);
    return good ? settle_on(q, comm, ended, "a group")
                : say(q, "a group gave %d, %d, %d, %d", begun, sent, received, ended);
}
static bool group(asked *q) { return group_on(q, q->comm, q->stream, 1); }

static bool fill(asked *q, int half, unsigned word) {
    return q->g->cuda->call.fill((cu_ptr)(uintptr_t)(q->memory + half * BYTES), word, WORDS, q->stream) == CU_SUCCESS ||
           say(q, "NCCL's memory cannot be filled");
}
static bool arrived_at(asked *q, int part, unsigned word) {
    unsigned *host = malloc(BYTES);
    if (!host) return say(q, "out of memory");
    cu_result copied = q->g->cuda->call.copy_out(host, (cu_ptr)(uintptr_t)(q->memory + part * BYTES), BYTES, q->stream);
    cu_result waited = q->g->cuda->call.stream_wait(q->stream);
    bool good = !copied && !waited;
    for (int i = 0; good && i < WORDS; i++) good = host[i] == word;
    unsigned first = host[0];
    free(host);
    return good || say(q, "what arrived is %x, not %x (%d, %d)", first, word, copied, waited);
}

static bool arrived(asked *q, unsigned word) { return arrived_at(q, 1, word); }

static bool sends(asked *q) { return fill(q, 0, 0x11) && fill(q, 1, 0) && group(q) && arrived(q, 0x11); }

static bool several(asked *q) { /* groups follow each other, and what the stream has before and after */
    for (unsigned i = 1; i < 5; i++)
        if (!fill(q, 0, i) || !group(q)) return false;
    return arrived(q, 4);
}

static bool alone(asked *q) { /* outside a group there is nothing to end */
    nccl_result result = q->nccl->call.group_end();
    return result == NCCL_INVALID_USAGE || result == NCCL_INVALID_ARGUMENT ||
           say(q, "ending a group that was not begun gave %d, not 5 or 4", result);
}

static bool captured(asked *q) {
    const fcp_cuda_table *call = &q->g->cuda->call;
    cu_graph graph = NULL;
    cu_graph_exec ready = NULL;
    if (!fill(q, 0, 0x22) || !fill(q, 1, 0) || call->stream_wait(q->stream)) return say(q, "no fill");
    if (call->capture_begin(q->stream, CU_CAPTURE_THREAD_LOCAL)) return say(q, "no capture");
    bool put = group(q);
    cu_result ended = call->capture_end(q->stream, &graph);
    cu_result made = put && !ended ? call->graph_instantiate(&ready, graph, 0) : 1;
    bool good = put && (ended || made ? say(q, "a captured group gave %d, %d", ended, made) : arrived(q, 0));
    for (unsigned i = 0; good && i < 3; i++) /* launched again, it moves what is there then */
        good = fill(q, 0, 0x30 + i) && (!call->graph_launch(ready, q->stream) || say(q, "no launch")) &&
               arrived(q, 0x30 + i);
    if (ready) call->graph_exec_destroy(ready); /* before the communicator */
    if (graph) call->graph_destroy(graph);
    return good;
}

static bool gathers(asked *q) {
    if (!fill(q, 0, 0x44) || !fill(q, 1, 0)) return false;
    return settle(q, q->nccl->call.all_gather(q->memory, q->memory + BYTES, BYTES, NCCL_INT8, q->comm, q->stream),
                  "gathering") &&
           arrived(q, 0x44);
}

/* `to` goes on after what `from` has now. */
static bool follow(asked *q, cu_stream from, cu_stream to) {
    const fcp_cuda_table *call = &q->g->cuda->call;
    cu_event event = NULL;
    if (call->event_create(&event, CU_EVENT_DISABLE_TIMING)) return say(q, "no event");
    bool good = !call->event_record(event, from) && !call->stream_wait_event(to, event, 0);
    call->event_destroy(event);
    return good || say(q, "a stream does not follow another");
}

/* Two communicators, a group of each in a stream of its own, side by side in one graph that is launched twice. */
static bool side_by_side(asked *q) {
    const fcp_cuda_table *call = &q->g->cuda->call;
    cu_graph graph = NULL;
    cu_graph_exec ready = NULL;
    if (!group_on(q, q->other, q->beside, 2) || call->stream_wait(q->beside)) return say(q, "they are not connected");
    if (call->capture_begin(q->stream, CU_CAPTURE_THREAD_LOCAL)) return say(q, "no capture");
    bool put = follow(q, q->stream, q->beside) && group_on(q, q->other, q->beside, 2) && group(q) &&
               follow(q, q->beside, q->stream);
    cu_result ended = call->capture_end(q->stream, &graph);
    cu_result made = put && !ended ? call->graph_instantiate(&ready, graph, 0) : 1;
    bool good = put && (!ended && !made ? true : say(q, "two captured groups gave %d, %d", ended, made));
    for (unsigned i = 0; good && i < 2; i++)
        good = fill(q, 0, 0x50 + i) && fill(q, 1, 0) && fill(q, 2, 0) &&
               (!call->graph_launch(ready, q->stream) || say(q, "no launch")) && arrived(q, 0x50 + i) &&
               arrived_at(q, 2, 0x50 + i);
    if (ready) call->graph_exec_destroy(ready);
    if (graph) call->graph_destroy(graph);
    return good;
}

/* A communicator of one rank. */
static bool join(asked *q, nccl_comm *out) {
    const fcp_nccl_table *call = &q->nccl->call;
    nccl_config config = NCCL_CONFIG;
    nccl_id id;
    config.blocking = 0;
    config.cga_cluster_size = 1;
    config.max_ctas = 8;
    nccl_result result = call->unique_id(&id);
    if (result) return say(q, "an id gave %d", result);
    result = call->init(out, 1, id, 0, &config);
    if (!*out) return say(q, "a communicator of one rank gave %d: %.200s", result, call->last_error(NULL));
    return settle_on(q, *out, result, "a communicator of one rank");
}

static bool open_asked(asked *q) {
    fcp_error err;
    void *memory = NULL;
    if (fcp_nccl_open(&q->nccl, &err)) return say(q, "skipped: %.270s", err.message);
    const fcp_nccl_table *call = &q->nccl->call;
    if (q->g->cuda->call.stream_create(&q->stream, CU_STREAM_NON_BLOCKING, 0) ||
        q->g->cuda->call.stream_create(&q->beside, CU_STREAM_NON_BLOCKING, 0))
        return say(q, "no stream");
    if (!join(q, &q->comm) || !join(q, &q->other)) return false;
    nccl_result result = call->allocate(&memory, 3 * BYTES);
    q->memory = memory;
    if (result || (uintptr_t)memory % 256) return say(q, "NCCL's memory: %d, at %p", result, memory);
    result = call->enroll(q->comm, memory, 3 * BYTES, &q->enrolled);
    return !result || say(q, "registering memory gave %d", result);
}

static bool close_asked(asked *q) {
    const fcp_nccl_table *call = q->nccl ? &q->nccl->call : NULL;
    bool good = true;
    if (q->stream) q->g->cuda->call.stream_wait(q->stream);
    if (q->beside) q->g->cuda->call.stream_wait(q->beside);
    if (q->other) {
        good = settle_on(q, q->other, call->finalize(q->other), "ending");
        if (good ? call->destroy(q->other) : call->abort(q->other)) good = say(q, "a second communicator does not end");
    }
    if (q->comm) {
        nccl_result struck = q->enrolled ? call->strike(q->comm, q->enrolled) : NCCL_SUCCESS;
        good = settle(q, call->finalize(q->comm), "ending") && good;
        nccl_result destroyed = good ? call->destroy(q->comm) : call->abort(q->comm);
        if (good && (struck || destroyed)) good = say(q, "giving up memory gave %d, ending %d", struck, destroyed);
    }
    if (q->memory && call->release(q->memory)) good = say(q, "NCCL does not take its memory back");
    if (q->stream) q->g->cuda->call.stream_destroy(q->stream);
    if (q->beside) q->g->cuda->call.stream_destroy(q->beside);
    fcp_nccl_close(q->nccl);
    return good;
}

unsigned conformance_nccl(gpu *g, void (*tell)(void *context, const char *question, const char *answer),
                          void *context) {
    static const struct { const char *text; bool (*ask)(asked *q); } questions[] = {
        {"NCCL: a group sends to its own rank", sends},
        {"NCCL: groups on a stream follow each other, and what it has", several},
        {"NCCL: a group that was not begun does not end", alone},
        {"NCCL: a group becomes part of a graph, launched again and again", captured},
        {"NCCL: gathering from all ranks", gathers},
        {"NCCL: groups of two communicators, side by side in one graph", side_by_side}};
    asked q = {.g = g};
    unsigned wrong = 0;
    bool open = open_asked(&q), skipped = !open && strncmp(q.answer, "skipped", 7) == 0;
    tell(context, "NCCL: a communicator, and memory that it knows", open ? NULL : q.answer);
    wrong += !open && !skipped;
    for (size_t i = 0; open && i < sizeof questions / sizeof *questions; i++) {
        bool good = questions[i].ask(&q);
        tell(context, questions[i].text, good ? NULL : q.answer);
        wrong += !good;
    }
    bool closed = close_asked(&q);
    if (open) tell(context, "NCCL: it ends, and takes back what it gave", closed ? NULL : q.answer);
    return wrong + (open && !closed);
}
