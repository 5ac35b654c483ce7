/* conformance.c: asks the CUDA driver, question by question, for what the runtime relies on.
 *
 * The same questions go to the stand-in driver, in `make check`, and to the real one in gpu-check. What a
 * question expects is what CUDA's documentation says. So a stand-in that answers otherwise is wrong, however well
 * tests run on it. All calls go through the runtime's table of functions. The kernels are those of
 * codegen/kernels/support.h.
 *
 * Requires: an open driver (gpu_open).
 * Gives:    gpu.h.
 * Cost:     some hundred calls; a few MiB of memory.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/kernels/abi.h"
#include "runtime/jit/jit.h"
#include "runtime/jit/kernel_source.h"
#include "tests/machines/standin/errors.h"
#include "tests/gpu/gpu.h"

enum { NUMBERS = 4096, BYTES = NUMBERS * 4 };

typedef struct asked {
    gpu *g;
    const fcp_cuda_table *call;
    fcp_plan *plan;
    cu_module module;
    cu_function add, round;
    cu_stream a, b;
    cu_ptr x, y;         /* NUMBERS floats each */
    float host[NUMBERS];
    char answer[GPU_ANSWER];
} asked;
#define say(q, ...) gpu_say((q)->answer, __VA_ARGS__)

/* Makes a call of the driver, whose result must be `wanted`. Otherwise the question returns with that answer. */
#define EXPECT(wanted, name, ...)                                                                                      \
    do {                                                                                                               \
        cu_result gave = q->call->name(__VA_ARGS__);                                                                   \
        if (gave != (wanted)) return say(q, "line %d: %s gave %d, not %d", __LINE__, #name, gave, (int)(wanted));      \
    } while (0)
#define CALL(name, ...) EXPECT(CU_SUCCESS, name, __VA_ARGS__)

/* --- what questions are made of ----------------------------------------------------------------------------------- */

static cu_result fill(asked *q, cu_ptr to, float value, cu_stream s) {
    unsigned word;
    memcpy(&word, &value, 4);
    return q->call->fill(to, word, NUMBERS, s);
}
/* to += from */
static cu_result add(asked *q, cu_ptr to, cu_ptr from, cu_stream s) {
    fk_support p = {.to = to, .from = from, .count = NUMBERS};
    void *parameters[] = {&p};
    cu_result result = q->call->launch(q->add, 4, 1, 1, FK_SUPPORT_THREADS, 1, 1, 0, s, parameters, NULL);
    memset(&p, 0x55, sizeof p); /* it was copied */
    return result;
}
/* When the stream is empty, are all numbers at `from` this value? */
static bool holds(asked *q, cu_ptr from, float value, cu_stream s) {
    cu_result copied = q->call->copy_out(q->host, from, BYTES, s), waited = q->call->stream_wait(s);
    if (copied || waited) return say(q, "reading back gave %d, waiting %d", copied, waited);
    for (int i = 0; i < NUMBERS; i++)
        if (q->host[i] != value) return say(q, "number %d is %g, not %g", i, (double)q->host[i], (double)value);
    return true;
}
static cu_result join(asked *q, cu_stream from, cu_stream to) { /* `to` goes on after `from` */
    cu_event event = NULL;
    cu_result result = q->call->event_create(&event, CU_EVENT_DISABLE_TIMING);
    if (!result) result = q->call->event_record(event, from);
    if (!result) result = q->call->stream_wait_event(to, event, 0);
    if (event) q->call->event_destroy(event);
    return result;
}

/* --- errors and contexts ------------------------------------------------------------------------------------------ */

static bool error_numbers(asked *q) {
    static const struct { int number; const char *name; } all[] = {DRIVER_ERROR_NAMES};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const char *name = NULL, *text = NULL;
        CALL(error_name, all[i].number, &name);
        CALL(error_text, all[i].number, &text);
        if (!name || strcmp(name, all[i].name))
            return say(q, "%d is %s, not %s", all[i].number, name ? name : "nothing", all[i].name);
        if (!text || !*text) return say(q, "%s has no text", name);
    }
    return true;
}

static bool contexts(asked *q) {
    cu_context now = NULL, again = NULL;
    size_t available, total;
    cu_ptr p;
    CALL(context_get, &now);
    if (now != q->g->context) return say(q, "the current context is not the one that was set");
    CALL(context_retain, &again, 0);
    CALL(context_release, 0);
    if (again != now) return say(q, "a device has two primary contexts");
    CALL(context_set, NULL);
    CALL(context_get, &now);
    cu_result told = q->call->memory_info(&available, &total), got = q->call->allocate(&p, 64);
    CALL(context_set, q->g->context);
    if (now) return say(q, "a context is current after none was set");
    if (told != INVALID_CONTEXT || got != INVALID_CONTEXT)
        return say(q, "without a context: %d, %d, not 201", told, got);
    CALL(memory_info, &available, &total);
    return available <= total && total ? true : say(q, "%zu of %zu bytes are free", available, total);
}

static bool devices(asked *q) {
    cu_device d;
    int value = 0;
    CALL(device_get, &d, 0);
    cu_result beyond = q->call->device_get(&d, q->g->cuda->devices);
    if (!beyond) return say(q, "there is a device beyond the last");
    CALL(device_attribute, &value, CU_MULTIPROCESSORS, 0);
    if (value < 1) return say(q, "%d multiprocessors", value);
    CALL(device_attribute, &value, CU_SHARED_MEMORY_OPTIN, 0);
    return value >= 48 << 10 ? true : say(q, "%d bytes of shared memory", value);
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

static bool allocation(asked *q) {
    cu_ptr p = 0;
    size_t available, total;
    CALL(memory_info, &available, &total);
    EXPECT(CU_ERROR_INVALID_VALUE, allocate, &p, 0);
    EXPECT(CU_ERROR_OUT_OF_MEMORY, allocate, &p, total + (total >> 1));
    CALL(allocate, &p, 1000);
    CALL(release, p);
    return p % 256 == 0 ? true : say(q, "memory begins at %llx", (unsigned long long)p);
}

static bool copies(asked *q) {
    for (int i = 0; i < NUMBERS; i++) q->host[i] = (float)i;
    CALL(copy_in, q->x, q->host, BYTES, q->a);
    CALL(copy, q->y, q->x, BYTES, q->a);
    CALL(copy, q->y + 5, q->x + 1, 3, q->a); /* any bytes */
    float back[NUMBERS];
    CALL(copy_out, back, q->y, BYTES, q->a);
    CALL(stream_wait, q->a);
    memcpy((char *)q->host + 5, (char *)q->host + 1, 3);
    return memcmp(back, q->host, BYTES) == 0 ? true : say(q, "what was copied is not what comes back");
}

static bool fills(asked *q) {
    EXPECT(CU_ERROR_INVALID_VALUE, fill, q->x + 2, 1, 4, q->a);
    CALL(fill, q->x, 0, NUMBERS, q->a);
    if (fill(q, q->x, 1.5f, q->a)) return say(q, "no fill");
    return holds(q, q->x, 1.5f, q->a);
}

static bool pointers(asked *q) {
    unsigned type = 0;
    int device = -1;
    CALL(pointer_attribute, &type, CU_POINTER_MEMORY_TYPE, q->x + 100);
    CALL(pointer_attribute, &device, CU_POINTER_DEVICE, q->x + 100);
    if (type != CU_MEMORY_DEVICE || device != 0)
        return say(q, "memory of device 0 is of type %u on device %d", type, device);
    EXPECT(CU_ERROR_INVALID_VALUE, pointer_attribute, &type, CU_POINTER_MEMORY_TYPE, (cu_ptr)(uintptr_t)q->host);
    return true;
}

/* Host memory that the device can write: a kernel writes there that it has begun, and the host reads it while the
 * stream still runs. */
static bool marked(asked *q, volatile unsigned *host) {
    cu_ptr seen = 0;
    unsigned type = 0;
    CALL(device_pointer, &seen, (void *)(uintptr_t)host, 0);
    CALL(pointer_attribute, &type, CU_POINTER_MEMORY_TYPE, (cu_ptr)(uintptr_t)host);
    if (type != CU_MEMORY_HOST) return say(q, "its type is %u", type);
    fk_support p = {.to = q->y, .from = q->x, .count = NUMBERS, .mark = seen + 4, .mark_value = 77};
    void *parameters[] = {&p};
    CALL(fill, seen, 5, 1, q->a);
    if (fill(q, q->x, 0, q->a) || fill(q, q->y, 0, q->a)) return say(q, "no fill");
    CALL(launch, q->add, 4, 1, 1, FK_SUPPORT_THREADS, 1, 1, 0, q->a, parameters, NULL);
    CALL(stream_wait, q->a);
    return host[0] == 5 && host[1] == 77 ? true : say(q, "the host reads %u, %u, not 5, 77", host[0], host[1]);
}
/* The same in a graph, launched twice. */
static bool marked_by_graph(asked *q, volatile unsigned *host) {
    cu_ptr seen = 0;
    cu_graph graph = NULL;
    cu_graph_exec ready = NULL;
    CALL(device_pointer, &seen, (void *)(uintptr_t)host, 0);
    fk_support p = {.to = q->y, .from = q->x, .count = NUMBERS, .mark = seen + 4, .mark_value = 78};
    void *parameters[] = {&p};
    CALL(capture_begin, q->a, CU_CAPTURE_THREAD_LOCAL);
    cu_result filled = q->call->fill(seen, 6, 1, q->a);
    cu_result launched = q->call->launch(q->add, 4, 1, 1, FK_SUPPORT_THREADS, 1, 1, 0, q->a, parameters, NULL);
    cu_result ended = q->call->capture_end(q->a, &graph);
    cu_result made = graph ? q->call->graph_instantiate(&ready, graph, 0) : CU_ERROR_INVALID_VALUE;
    bool good = !filled && !launched && !ended && !made;
    if (!good) say(q, "a fill of host memory in a capture: %d, %d, %d, %d", filled, launched, ended, made);
    for (int i = 0; good && i < 2; i++) {
        host[0] = host[1] = 0;
        cu_result run = q->call->graph_launch(ready, q->a), waited = q->call->stream_wait(q->a);
        good = !run && !waited && host[0] == 6 && host[1] == 78;
        if (!good) say(q, "%d, %d, and the host reads %u, %u, not 6, 78", run, waited, host[0], host[1]);
    }
    if (ready) q->call->graph_exec_destroy(ready);
    if (graph) q->call->graph_destroy(graph);
    return good;
}
static bool mapped(asked *q) {
    void *host = NULL;
    CALL(allocate_host, &host, BYTES, CU_HOST_PORTABLE | CU_HOST_DEVICEMAP);
    memset(host, 0, BYTES);
    bool good = marked(q, host) && marked_by_graph(q, host);
    q->call->stream_wait(q->a);
    CALL(release_host, host);
    return good;
}

/* --- streams and events ------------------------------------------------------------------------------------------- */

static bool streams(asked *q) {
    int least = 1, greatest = 1;
    cu_stream s = NULL;
    cu_context c = NULL;
    CALL(priorities, &least, &greatest);
    if (least < greatest) return say(q, "priorities from %d to %d", least, greatest);
    CALL(stream_create, &s, CU_STREAM_NON_BLOCKING, greatest);
    CALL(stream_context, s, &c);
    CALL(stream_query, s);
    CALL(stream_destroy, s);
    return c == q->g->context ? true : say(q, "a stream is not of the context that was current");
}

/* The handles of default streams mean those of the current context. They can wait for other streams, and others for
 * them. */
static bool defaults(asked *q) {
    for (uintptr_t handle = CU_DEFAULT_LEGACY; handle <= CU_DEFAULT_PER_THREAD; handle++) {
        cu_stream s;
        cu_context c = NULL;
        memcpy(&s, &handle, sizeof s);
        CALL(stream_context, s, &c);
        if (c != q->g->context) return say(q, "default stream %d is not of the current context", (int)handle);
        if (fill(q, q->x, 2, q->a) || fill(q, q->y, 0, q->a) || join(q, q->a, s) || add(q, q->y, q->x, s) ||
            join(q, s, q->a))
            return say(q, "default stream %d does not follow another, or is not followed", (int)handle);
        if (add(q, q->y, q->x, q->a) || !holds(q, q->y, 4, q->a)) return false;
    }
    EXPECT(CAPTURE_UNSUPPORTED, capture_begin, (cu_stream)(uintptr_t)CU_DEFAULT_LEGACY, CU_CAPTURE_THREAD_LOCAL);
    return true;
}

/* Work in a stream is done in order. A stream that waits for an event waits for what came before the event, and not
 * for what came after. */
static bool order(asked *q) {
    cu_event event = NULL;
    if (fill(q, q->x, 1, q->a) || fill(q, q->y, 0, q->a)) return say(q, "no fill");
    if (join(q, q->a, q->b)) return say(q, "streams do not follow each other");
    for (int i = 0; i < 8; i++) {
        cu_stream s = i % 2 ? q->a : q->b, t = i % 2 ? q->b : q->a;
        if (add(q, q->y, q->x, s)) return say(q, "no launch");
        if (join(q, s, t)) return say(q, "streams do not follow each other");
    }
    if (!holds(q, q->y, 8, q->b)) return false;
    CALL(event_create, &event, CU_EVENT_DISABLE_TIMING);
    CALL(event_query, event); /* it was never recorded, so there is nothing to wait for */
    CALL(stream_wait_event, q->b, event, 0);
    CALL(event_record, event, q->a);
    CALL(stream_wait_event, q->b, event, 0);
    CALL(event_destroy, event); /* allowed, although a stream waits for it */
    CALL(stream_wait, q->b);
    CALL(stream_query, q->b);
    return true;
}

static bool times(asked *q) {
    cu_event timed[2] = {NULL}, untimed = NULL;
    float ms = -1;
    if (!q->g->cuda->call.event_elapsed) return say(q, "there is no cuEventElapsedTime");
    for (int i = 0; i < 2; i++) CALL(event_create, &timed[i], 0);
    CALL(event_create, &untimed, CU_EVENT_DISABLE_TIMING);
    CALL(event_record, timed[0], q->a);
    if (fill(q, q->x, 1, q->a)) return say(q, "no fill");
    CALL(event_record, timed[1], q->a);
    CALL(event_record, untimed, q->a);
    CALL(stream_wait, q->a);
    cu_result told = q->g->cuda->call.event_elapsed(&ms, timed[0], timed[1]),
              refused = q->g->cuda->call.event_elapsed(&ms, timed[0], untimed);
    CALL(event_destroy, timed[0]);
    CALL(event_destroy, timed[1]);
    CALL(event_destroy, untimed);
    if (told || ms < 0) return say(q, "between two events: %d, %g ms", told, (double)ms);
    return refused == INVALID_HANDLE ? true : say(q, "an event without a time gave %d", refused);
}

/* --- kernels ------------------------------------------------------------------------------------------------------ */

static bool functions(asked *q) {
    cu_function none = NULL;
    int value = -1, blocks = 0;
    EXPECT(NOT_FOUND, module_function, &none, q->module, "no_such_kernel");
    CALL(function_attribute, &value, CU_FUNC_REGISTERS, q->add);
    if (value < 1) return say(q, "%d registers", value);
    CALL(function_attribute, &value, CU_FUNC_LOCAL, q->add);
    if (value) return say(q, "%d bytes of local memory", value);
    CALL(function_set, q->add, CU_FUNC_MAX_DYNAMIC_SHARED, q->g->machine.shared);
    EXPECT(CU_ERROR_INVALID_VALUE, function_set, q->add, CU_FUNC_MAX_DYNAMIC_SHARED, q->g->machine.shared + 1024);
    CALL(occupancy, &blocks, q->add, FK_SUPPORT_THREADS, 0);
    return blocks > 0 && blocks <= 32 ? true : say(q, "%d blocks a multiprocessor", blocks);
}

static bool launches(asked *q) {
    fk_support p = {.to = q->y, .from = q->x, .count = NUMBERS};
    void *parameters[] = {&p};
    if (fill(q, q->x, 0.5f, q->a) || fill(q, q->y, 1, q->a) || add(q, q->y, q->x, q->a)) return say(q, "no launch");
    EXPECT(CU_ERROR_INVALID_VALUE, launch, q->add, 0, 1, 1, FK_SUPPORT_THREADS, 1, 1, 0, q->a, parameters, NULL);
    EXPECT(CU_ERROR_INVALID_VALUE, launch, q->add, 1, 1, 1, 2048, 1, 1, 0, q->a, parameters, NULL);
    EXPECT(CU_ERROR_INVALID_VALUE, launch, q->round, 1, 1, 1, FK_SUPPORT_THREADS, 1, 1,
           (unsigned)q->g->machine.shared + 4096, q->a, parameters, NULL);
    return holds(q, q->y, 1.5f, q->a); /* what was refused was not done, and has broken nothing */
}

/* --- graphs ------------------------------------------------------------------------------------------------------- */

/* Begins a capture in a; b joins it. */
static bool begin(asked *q) {
    CALL(capture_begin, q->a, CU_CAPTURE_THREAD_LOCAL);
    cu_result joined = join(q, q->a, q->b);
    return joined ? say(q, "a stream does not join a capture: %d", joined) : true;
}
/* Ends a capture that has gone wrong. */
static void abandon(asked *q) {
    cu_graph graph = NULL;
    q->call->capture_end(q->a, &graph);
    if (graph) q->call->graph_destroy(graph);
}

static bool graphs(asked *q) {
    cu_graph graph = NULL;
    cu_graph_exec ready = NULL;
    if (fill(q, q->x, 1, q->a) || fill(q, q->y, 0, q->a) || !holds(q, q->y, 0, q->a)) return say(q, "no fill");
    if (!begin(q)) return false;
    if (add(q, q->y, q->x, q->b) || join(q, q->b, q->a) || q->call->copy(q->x, q->y, BYTES / 2, q->a) ||
        add(q, q->y, q->x, q->a)) {
        abandon(q);
        return say(q, "a capture does not take launches, copies and events");
    }
    CALL(capture_end, q->a, &graph);
    if (!graph) return say(q, "no graph");
    if (!holds(q, q->y, 0, q->a)) return false; /* nothing was done yet */
    CALL(graph_instantiate, &ready, graph, 0);
    CALL(graph_destroy, graph);
    CALL(graph_launch, ready, q->b); /* in whatever stream; twice, the second after the first */
    CALL(graph_launch, ready, q->b);
    bool good = true;
    /* of the first half y comes to x between the two additions */
    cu_result copied = q->call->copy_out(q->host, q->y, BYTES, q->b), waited = q->call->stream_wait(q->b);
    float x1 = 1, y1 = 0, y2 = 0;
    for (int i = 0; i < 2; i++) y1 += x1, x1 = y1, y1 += x1, y2 += 2;
    for (int i = 0; i < NUMBERS; i++) good = good && q->host[i] == (i < NUMBERS / 2 ? y1 : y2);
    cu_result destroyed = q->call->graph_exec_destroy(ready);
    if (copied || waited || destroyed) return say(q, "the graph's run gave %d, %d, %d", copied, waited, destroyed);
    return good ? true : say(q, "a graph launched twice gives %g and %g, not %g and %g", (double)q->host[0],
                             (double)q->host[NUMBERS - 1], (double)y1, (double)y2);
}

/* A node of a graph records an event in every launch, and a stream outside the graph goes on from there. */
static bool recorded(asked *q, cu_event event) {
    cu_graph graph = NULL;
    cu_graph_exec ready = NULL;
    if (fill(q, q->x, 1, q->a) || fill(q, q->y, 0, q->a) || !holds(q, q->y, 0, q->a)) return say(q, "no fill");
    if (!q->call->event_record_flags(event, q->a, CU_EVENT_RECORD_EXTERNAL))
        return say(q, "it is recorded outside a capture");
    if (!begin(q)) return false;
    if (add(q, q->y, q->x, q->b) || q->call->event_record_flags(event, q->b, CU_EVENT_RECORD_EXTERNAL) ||
        join(q, q->b, q->a) || add(q, q->x, q->x, q->a)) {
        abandon(q);
        return say(q, "a capture takes no event that is recorded for outside");
    }
    CALL(capture_end, q->a, &graph);
    CALL(graph_instantiate, &ready, graph, 0);
    CALL(graph_destroy, graph);
    bool good = true;
    for (int i = 0; good && i < 3; i++) { /* y grows by x, which then doubles */
        cu_result launched = q->call->graph_launch(ready, q->a), waited = q->call->stream_wait_event(q->b, event, 0);
        good = launched || waited ? say(q, "launching gave %d, waiting %d", launched, waited)
                                  : holds(q, q->y, (float)((2 << i) - 1), q->b);
        if (good && q->call->event_query(event)) good = say(q, "what has been waited for is not done");
    }
    q->call->stream_wait(q->a);
    CALL(graph_exec_destroy, ready);
    return good;
}
static bool records(asked *q) {
    cu_event event = NULL;
    CALL(event_create, &event, CU_EVENT_DISABLE_TIMING);
    bool good = recorded(q, event);
    q->call->stream_wait(q->b);
    CALL(event_destroy, event);
    return good;
}

/* Which calls a capture refuses, and what becomes of the capture. */
static bool ends_invalid(asked *q) {
    cu_graph graph = NULL;
    cu_result ended = q->call->capture_end(q->a, &graph);
    if (graph) q->call->graph_destroy(graph);
    if (ended != CAPTURE_INVALIDATED || graph) return say(q, "ending gave %d, not 901", ended);
    CALL(stream_query, q->a); /* the streams can be used again */
    CALL(stream_query, q->b);
    return true;
}
static bool no_waiting(asked *q) {
    if (!begin(q)) return false;
    cu_result got = q->call->stream_wait(q->a);
    if (got != CAPTURE_UNSUPPORTED) abandon(q);
    return got == CAPTURE_UNSUPPORTED ? ends_invalid(q) : say(q, "waiting gave %d, not 900", got);
}
static bool no_asking(asked *q) {
    if (!begin(q)) return false;
    cu_result got = q->call->stream_query(q->b);
    if (got != CAPTURE_UNSUPPORTED) abandon(q);
    return got == CAPTURE_UNSUPPORTED ? ends_invalid(q) : say(q, "asking gave %d, not 900", got);
}
static bool no_allocating(asked *q) {
    cu_ptr p = 0;
    if (!begin(q)) return false;
    cu_result got = q->call->allocate(&p, 4096);
    if (got != CAPTURE_UNSUPPORTED) abandon(q);
    if (!got) q->call->release(p);
    return got == CAPTURE_UNSUPPORTED ? ends_invalid(q) : say(q, "allocating gave %d, not 900", got);
}
static bool unjoined(asked *q) {
    cu_graph graph = NULL;
    if (!begin(q)) return false;
    cu_result filled = fill(q, q->x, 1, q->b), ended = q->call->capture_end(q->a, &graph);
    if (graph) q->call->graph_destroy(graph);
    if (filled || ended != CAPTURE_UNJOINED || graph)
        return say(q, "a stream that did not come back gave %d, not 904", ended);
    CALL(stream_query, q->b);
    return true;
}
/* An event that was recorded in a capture belongs to the graph. It cannot be queried outside. */
static bool captured_event(asked *q) {
    cu_event event = NULL;
    cu_graph graph = NULL;
    CALL(event_create, &event, CU_EVENT_DISABLE_TIMING);
    CALL(capture_begin, q->a, CU_CAPTURE_THREAD_LOCAL);
    cu_result filled = fill(q, q->x, 1, q->a), recorded = q->call->event_record(event, q->a),
              ended = q->call->capture_end(q->a, &graph);
    if (graph) q->call->graph_destroy(graph);
    cu_result asked_for = q->call->event_query(event), again = q->call->event_record(event, q->a),
              then = q->call->stream_wait(q->a);
    if (!then) then = q->call->event_query(event);
    CALL(event_destroy, event);
    if (filled || recorded || ended) return say(q, "a capture gave %d, %d, %d", filled, recorded, ended);
    if (asked_for != CAPTURED_EVENT) return say(q, "asking for an event of a capture gave %d, not 907", asked_for);
    return !again && !then ? true : say(q, "recorded again it gives %d, %d", again, then);
}
static bool isolated(asked *q) {
    cu_event event = NULL;
    CALL(event_create, &event, CU_EVENT_DISABLE_TIMING);
    if (fill(q, q->x, 1, q->b)) return say(q, "no fill");
    CALL(event_record, event, q->b);
    CALL(capture_begin, q->a, CU_CAPTURE_THREAD_LOCAL);
    cu_result got = q->call->stream_wait_event(q->a, event, 0);
    abandon(q);
    CALL(event_destroy, event);
    CALL(stream_wait, q->b);
    return got == CAPTURE_ISOLATION ? true : say(q, "waiting for an event from outside gave %d, not 905", got);
}

/* --- tensor maps -------------------------------------------------------------------------------------------------- */

/* A map as the runtime makes it (runtime/cuda/maps.c): of 2 heads of 64 numbers and 8 rows, in boxes of 64 by 64. */
static cu_result make_map(asked *q, cu_ptr base, uint64_t row_bytes, unsigned box_numbers, fk_map *map) {
    const uint64_t dims[4] = {64, 2, 8, 1}, strides[3] = {128, row_bytes, 8 * row_bytes};
    const unsigned box[4] = {box_numbers, 1, FK_BOX, 1}, steps[4] = {1, 1, 1, 1};
    return q->call->tensor_map(map, CU_TENSOR_BF16, 4, (void *)(uintptr_t)base, dims, strides, box, steps, 0,
                               CU_TENSOR_SWIZZLE_128, CU_TENSOR_L2_256, 0);
}
static bool tensor_maps(asked *q) {
    fk_map map = {{0}}, again = {{0}};
    if (q->g->machine.major < 9 && !q->g->control) return say(q, "skipped: the device has no TMA");
    if (q->g->control) q->g->control->major = 9; /* a stand-in for older devices can be asked, too */
    const cu_result made = make_map(q, q->x, 256, FK_BOX, &map), same = make_map(q, q->x, 256, FK_BOX, &again),
                    base = make_map(q, q->x + 8, 256, FK_BOX, &again), row = make_map(q, q->x, 264, FK_BOX, &again),
                    wide = make_map(q, q->x, 256, 2 * FK_BOX, &again);
    if (q->g->control) q->g->control->major = q->g->machine.major;
    if (made || same) return say(q, "a map is not made: %d, %d", made, same);
    if (base != CU_ERROR_INVALID_VALUE) return say(q, "a tensor at a multiple of 8 gave %d, not 1", base);
    if (row != CU_ERROR_INVALID_VALUE) return say(q, "rows of 264 bytes gave %d, not 1", row);
    return wide == CU_ERROR_INVALID_VALUE ? true : say(q, "a box of 256 bytes, swizzled by 128, gave %d, not 1", wide);
}

/* --- words written by a stream ------------------------------------------------------------------------------------ */

/* A word comes behind the copies before it, and not before. */
static bool words(asked *q) {
    for (int i = 0; i < NUMBERS; i++) q->host[i] = 3;
    CALL(copy_in, q->x, q->host, BYTES, q->a);
    if (fill(q, q->y, 4, q->a)) return say(q, "no fill");
    CALL(write_word, q->a, q->y, 0x40400000, 0); /* 3 */
    CALL(copy, q->y + 4, q->x, BYTES - 4, q->a);
    EXPECT(CU_ERROR_INVALID_VALUE, write_word, q->a, q->y + 2, 1, 0);
    return holds(q, q->y, 3, q->a);
}

/* A kernel that waits for a word, at most two seconds, and then copies a number. */
static const char spinning[] =
    "#define GPU_CHECK 1\n"
    "extern \"C\" __global__ void spin(volatile unsigned *flag, volatile unsigned *from, unsigned *to) {\n"
    "    unsigned long long begun, now;\n"
    "    asm volatile(\"mov.u64 %0, %%globaltimer;\" : \"=l\"(begun));\n"
    "    do asm volatile(\"mov.u64 %0, %%globaltimer;\" : \"=l\"(now));\n"
    "    while (!*flag && now - begun < 2000000000ull);\n"
    "    __threadfence_system();\n"
    "    to[0] = *flag ? 1 : 2;\n"
    "    to[1] = *from;\n"
    "}\n";

/* Another stream copies and then writes the word, while the kernel waits: so it is with passes that are fused. */
static bool raised(asked *q, cu_function spin) {
    unsigned told[2] = {0, 0};
    cu_ptr flag = q->x, from = q->x + 256, to = q->y;
    void *parameters[] = {&flag, &from, &to};
    CALL(fill, q->x, 0, NUMBERS, q->a);
    CALL(fill, q->y, 0, NUMBERS - 2, q->a);
    CALL(fill, q->y + BYTES - 8, 77, 2, q->a);
    CALL(stream_wait, q->a);
    CALL(launch, spin, 1, 1, 1, 1, 1, 1, 0, q->a, parameters, NULL);
    CALL(copy, from, q->y + BYTES - 8, 4, q->b);
    CALL(write_word, q->b, flag, 1, 0);
    CALL(copy_out, told, to, sizeof told, q->a);
    CALL(stream_wait, q->a);
    CALL(stream_wait, q->b);
    if (q->g->machine.standin || q->g->control) return say(q, "skipped: kernels of its own do nothing on a stand-in");
    if (told[0] != 1) return say(q, "a stream does not write a word while a kernel waits for it");
    return told[1] == 77 ? true : say(q, "what was copied before the word is %u behind it, not 77", told[1]);
}
static bool words_under_a_kernel(asked *q) {
    char arch[32];
    fcp_error err = {.message = ""};
    fcp_jit *jit = NULL;
    fcp_cubin cubin = {0};
    cu_module module = NULL;
    cu_function spin = NULL;
    bool cached;
    snprintf(arch, sizeof arch, "sm_%d%d", q->g->machine.major, q->g->machine.minor);
    fcp_code code = fcp_jit_open(NULL, &jit, &err);
    if (!code) code = fcp_jit_compile(jit, "gpu-check.cu", spinning, arch, NULL, &cubin, &cached, &err);
    fcp_jit_close(jit);
    if (code) return say(q, "%.280s", err.message);
    const cu_result loaded = q->call->module_load(&module, cubin.bytes);
    fcp_cubin_free(&cubin);
    if (loaded) return say(q, "the kernel is refused: %d", loaded);
    const cu_result found = q->call->module_function(&spin, module, "spin");
    bool good = found ? say(q, "the kernel is not there: %d", found) : raised(q, spin);
    CALL(module_unload, module);
    return good;
}

/* --- green contexts ----------------------------------------------------------------------------------------------- */

/* Work of a green context's stream, between two events of the primary context, at once and in a graph. */
static bool green_order(asked *q, cu_stream green) {
    cu_graph graph = NULL;
    cu_graph_exec ready = NULL;
    if (fill(q, q->x, 1, q->a) || fill(q, q->y, 0, q->a)) return say(q, "no fill");
    if (join(q, q->a, green) || add(q, q->y, q->x, green) || join(q, green, q->a))
        return say(q, "its stream does not follow one of the primary context, or is not followed");
    if (!holds(q, q->y, 1, q->a)) return false;
    CALL(capture_begin, q->a, CU_CAPTURE_THREAD_LOCAL);
    if (join(q, q->a, green) || add(q, q->y, q->x, green) || join(q, green, q->a)) {
        abandon(q);
        return say(q, "a capture does not take its stream");
    }
    CALL(capture_end, q->a, &graph);
    CALL(graph_instantiate, &ready, graph, 0);
    CALL(graph_destroy, graph);
    cu_result first = q->call->graph_launch(ready, q->a), second = q->call->graph_launch(ready, q->a);
    bool good = first || second ? say(q, "the graph's runs gave %d, %d", first, second) : holds(q, q->y, 3, q->a);
    CALL(graph_exec_destroy, ready);
    return good;
}
/* The runtime probes this and does without where it fails; so what is refused is skipped, and a wrong sum is wrong. */
static bool green(asked *q) {
    const fcp_cuda_table *call = q->call;
    cu_resource all = {0}, part = {0};
    cu_resource_text text = NULL;
    cu_green context = NULL;
    cu_stream stream = NULL;
    unsigned parts = 1;
    if (!call->device_resource || !call->resource_split || !call->resource_text || !call->green_create ||
        !call->green_destroy || !call->green_stream)
        return say(q, "skipped: the driver has none");
    cu_result got = call->device_resource(0, &all, CU_RESOURCE_SM);
    if (!got) got = call->resource_split(&part, &parts, &all, NULL, 0, all.count > 1 ? all.count - 1 : 1);
    if (got || parts != 1)
        return say(q, "skipped: all but one of %u multiprocessors cannot be set apart: %d", all.count, (int)got);
    if (!got) got = call->resource_text(&text, &part, 1);
    if (!got) got = call->green_create(&context, text, 0, CU_GREEN_DEFAULT_STREAM);
    if (got) return say(q, "skipped: none is made: %d", (int)got);
    got = call->green_stream(&stream, context, CU_STREAM_NON_BLOCKING, 0);
    bool good = got ? say(q, "skipped: it makes no stream: %d", (int)got) : green_order(q, stream);
    if (stream) q->call->stream_wait(stream);
    if (stream) q->call->stream_destroy(stream);
    call->green_destroy(context);
    return good;
}

/* --- several devices ---------------------------------------------------------------------------------------------- */

/* A copy from another device becomes part of a graph. */
static bool peer_by_graph(asked *q, cu_context other, cu_ptr p) {
    cu_graph graph = NULL;
    cu_graph_exec ready = NULL;
    if (fill(q, q->y, 0, q->a)) return say(q, "no fill");
    CALL(capture_begin, q->a, CU_CAPTURE_THREAD_LOCAL);
    cu_result copied = q->call->copy_peer(q->y, q->g->context, p, other, BYTES, q->a),
              ended = q->call->capture_end(q->a, &graph);
    cu_result made = graph ? q->call->graph_instantiate(&ready, graph, 0) : CU_ERROR_INVALID_VALUE;
    cu_result run = made ? made : q->call->graph_launch(ready, q->a);
    bool good = !copied && !ended && !run
                    ? holds(q, q->y, 3, q->a)
                    : say(q, "a copy between devices in a capture: %d, %d, %d, %d", copied, ended, made, run);
    if (ready) q->call->graph_exec_destroy(ready);
    if (graph) q->call->graph_destroy(graph);
    return good;
}
static bool peers_with(asked *q, cu_context other, cu_stream s, cu_ptr *p) {
    int can = 0;
    cu_event event = NULL;
    CALL(can_peer, &can, 0, 1);
    CALL(context_set, other);
    CALL(stream_create, &s, CU_STREAM_NON_BLOCKING, 0);
    CALL(allocate, p, BYTES);
    CALL(event_create, &event, CU_EVENT_DISABLE_TIMING);
    EXPECT(INVALID_HANDLE, event_record, event, q->a); /* of another context */
    if (can) {
        CALL(enable_peer, q->g->context, 0);
        EXPECT(CU_ERROR_PEER_ACCESS_ALREADY_ENABLED, enable_peer, q->g->context, 0);
    }
    CALL(context_set, q->g->context);
    if (fill(q, q->x, 3, q->a) || join(q, q->a, s)) return say(q, "a stream of another device does not follow");
    CALL(copy_peer, *p, other, q->x, q->g->context, BYTES, s);
    CALL(event_record, event, s);
    CALL(stream_wait_event, q->a, event, 0);
    CALL(copy_peer, q->y, q->g->context, *p, other, BYTES, q->a);
    bool good = holds(q, q->y, 3, q->a) && peer_by_graph(q, other, *p);
    CALL(event_destroy, event);
    CALL(stream_destroy, s);
    return good;
}
static bool peers(asked *q) {
    cu_context other = NULL;
    cu_ptr p = 0;
    int can = 1;
    CALL(can_peer, &can, 0, 0);
    if (can) return say(q, "a device is its own peer");
    CALL(copy_peer, q->y, q->g->context, q->x, q->g->context, BYTES, q->a); /* both sides may be the same device */
    CALL(stream_wait, q->a);
    if (q->g->cuda->devices < 2) return say(q, "skipped: there is one device");
    CALL(context_retain, &other, 1);
    bool good = peers_with(q, other, NULL, &p);
    if (p) q->call->release(p);
    q->call->context_set(q->g->context);
    CALL(context_release, 1);
    return good;
}

/* --- asking ------------------------------------------------------------------------------------------------------- */

static const char program[] =
    "model { heads = 2; kv_heads = 1; head_dim = 64; dtype = bf16 }\ncluster { nodes = 1; gpus = 1 }\n"
    "batch { lengths = [256] }\nplan { mask = causal; block = 128 }\n";

static bool open_asked(asked *q) {
    char arch[32], *source = NULL, why[GPU_WHY];
    fcp_error err = {.message = ""};
    fcp_jit *jit = NULL;
    fcp_cubin cubin = {0};
    bool cached;
    q->plan = gpu_plan_of("conformance.fcp", program, NULL, 0, why);
    if (!q->plan) return say(q, "%.280s", why);
    if (q->g->control) {
        q->g->control->plan = q->plan;
        q->g->control->idle = false;
    }
    snprintf(arch, sizeof arch, "sm_%d%d", q->g->machine.major, q->g->machine.minor);
    fcp_code code = fcp_kernel_source(q->plan, EMIT_SUPPORT, false, &source, &err);
    if (!code) code = fcp_jit_open(NULL, &jit, &err);
    if (!code) code = fcp_jit_compile(jit, "fcpc.cu", source, arch, NULL, &cubin, &cached, &err);
    fcp_jit_close(jit);
    free(source);
    if (code) return say(q, "%.280s", err.message);
    cu_result loaded = q->call->module_load(&q->module, cubin.bytes);
    fcp_cubin_free(&cubin);
    if (loaded) return say(q, "kernels are refused: %d", loaded);
    CALL(module_function, &q->add, q->module, "fk_add");
    CALL(module_function, &q->round, q->module, "fk_round");
    CALL(stream_create, &q->a, CU_STREAM_NON_BLOCKING, 0);
    CALL(stream_create, &q->b, CU_STREAM_NON_BLOCKING, 0);
    CALL(allocate, &q->x, BYTES);
    CALL(allocate, &q->y, BYTES);
    return true;
}

static void close_asked(asked *q) {
    if (q->a) q->call->stream_wait(q->a);
    if (q->b) q->call->stream_wait(q->b);
    if (q->x) q->call->release(q->x);
    if (q->y) q->call->release(q->y);
    if (q->a) q->call->stream_destroy(q->a);
    if (q->b) q->call->stream_destroy(q->b);
    if (q->module) q->call->module_unload(q->module);
    if (q->g->control) q->g->control->plan = NULL;
    fcp_plan_free(q->plan);
}

bool gpu_say(char answer[GPU_ANSWER], const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(answer, GPU_ANSWER, format, args);
    va_end(args);
    return false;
}

unsigned conformance(gpu *g, void (*tell)(void *context, const char *question, const char *answer), void *context) {
    static const struct {
        const char *text;
        bool (*ask)(asked *q);
    } questions[] = {
        {"errors have the names and numbers that are expected", error_numbers},
        {"contexts: a primary one a device, current where set, needed for memory", contexts},
        {"devices say what they have", devices},
        {"allocation: none of 0 bytes, none of too many, aligned", allocation},
        {"copies in, inside and out, of any bytes", copies},
        {"fills of words, at multiples of 4", fills},
        {"pointers say where they lie; the host's are not known", pointers},
        {"host memory that the device sees, in a graph as well", mapped},
        {"streams: priorities, contexts, an end", streams},
        {"default streams are the current context's", defaults},
        {"streams are done in order, and follow each other by events", order},
        {"events tell the time between them", times},
        {"functions: registers, shared memory up to what there is, occupancy", functions},
        {"launches copy their parameters; what is out of bounds is refused and breaks nothing", launches},
        {"graphs: a capture of two streams, done when launched, again and again", graphs},
        {"graphs record events that streams outside wait for, in every launch", records},
        {"capture refuses to wait for its stream", no_waiting},
        {"capture refuses to be asked how far its stream is", no_asking},
        {"capture refuses allocation", no_allocating},
        {"capture refuses to end with a stream that did not come back", unjoined},
        {"capture refuses an event from outside", isolated},
        {"an event of a capture cannot be asked for", captured_event},
        {"tensor maps as the runtime makes them; what is not aligned is refused", tensor_maps},
        {"a stream writes a word behind its copies", words},
        {"a stream writes a word while a kernel waits for it, and the copies before it are seen", words_under_a_kernel},
        {"green contexts: events of the primary one order their streams, in a graph as well", green},
        {"copies between devices, and inside one", peers}};
    asked *q = calloc(1, sizeof *q);
    unsigned wrong = 0;
    if (!q) {
        tell(context, "opening", "out of memory");
        return 1;
    }
    q->g = g;
    q->call = &g->cuda->call;
    bool open = open_asked(q);
    tell(context, "kernels load, streams and memory are there", open ? NULL : q->answer);
    wrong += !open;
    for (size_t i = 0; open && i < sizeof questions / sizeof *questions; i++) {
        q->answer[0] = 0;
        bool good = questions[i].ask(q), skipped = !good && strncmp(q->answer, "skipped", 7) == 0;
        tell(context, questions[i].text, good ? NULL : q->answer);
        wrong += !good && !skipped;
    }
    close_asked(q);
    free(q);
    return wrong;
}
