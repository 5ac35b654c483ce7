/* device.c: the current device, its events, streams that follow each other, waiting with a time limit.
 *
 * Requires: an open device.
 * Cost:     an event is made once and used again and again. Waiting asks the driver every 5 microseconds to 1
 *           millisecond.
 */
#include "runtime/cuda/cuda.h"

#include <stdio.h>

#include "runtime/base/clock.h"
#include "runtime/base/grow.h"

fcp_code fcp_cuda_use(const fcp_cuda_session *s, const cuda_device *d, fcp_error *err) {
    return fcp_cuda_check(s->cuda, s->cuda->call.context_set(d->context), err, "cannot use device %d", d->handle);
}

bool fcp_cuda_is_sm_90a(const cuda_device *d) { return d->major == 9 && d->minor == 0; }

void fcp_cuda_arch(const cuda_device *d, char out[32]) {
    snprintf(out, 32, "sm_%d%d%s", d->major, d->minor, fcp_cuda_is_sm_90a(d) ? "a" : "");
}

fcp_code fcp_cuda_stream_make(const fcp_cuda_session *s, const cuda_device *d, cu_stream *out, fcp_error *err) {
    fcp_code code = fcp_cuda_use(s, d, err);
    return code ? code : fcp_cuda_check(s->cuda, s->cuda->call.stream_create(out, CU_STREAM_NON_BLOCKING, 0), err,
                                        "device %d makes no stream", d->handle);
}

/* --- order -------------------------------------------------------------------------------------------------------- */

fcp_code fcp_cuda_event_take(fcp_cuda_session *s, cuda_device *d, cu_event *out, fcp_error *err) {
    if (d->event_free == 0) {
        if (!FCP_GROW(d->events, d->event_capacity, d->event_count + 1))
            return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for events");
        const fcp_cuda_table *call = &s->cuda->call;
        cu_event made = NULL;
        cu_context before = NULL;
        fcp_code code = fcp_cuda_check(s->cuda, call->context_get(&before), err, "no current context");
        if (!code) code = fcp_cuda_use(s, d, err);
        if (!code)
            code = fcp_cuda_check(s->cuda, call->event_create(&made, CU_EVENT_DISABLE_TIMING), err,
                                  "device %d makes no event", d->handle);
        if (!code && before != d->context) { /* the caller is working on another device */
            code =
                fcp_cuda_check(s->cuda, call->context_set(before), err, "cannot go back to the device that was in use");
            if (code) call->event_destroy(made);
        }
        if (code) return code;
        if (d->event_count) d->events[d->event_count] = d->events[0];
        d->events[0] = made;
        d->event_count++;
        d->event_free = 1;
    }
    *out = d->events[--d->event_free];
    return FCP_OK;
}

void fcp_cuda_event_give(cuda_device *d, cu_event event) {
    for (uint32_t i = d->event_free; i < d->event_count; i++)
        if (d->events[i] == event) {
            d->events[i] = d->events[d->event_free];
            d->events[d->event_free++] = event;
            return;
        }
}

fcp_code fcp_cuda_event_record(fcp_cuda_session *s, cuda_device *d, cu_stream stream, cu_event *out, fcp_error *err) {
    fcp_code code = fcp_cuda_event_take(s, d, out, err);
    if (code) return code;
    code = fcp_cuda_check(s->cuda, s->cuda->call.event_record(*out, stream), err, "cannot record an event");
    if (code) {
        fcp_cuda_event_give(d, *out);
        *out = NULL;
    }
    return code;
}

fcp_code fcp_cuda_event_await(fcp_cuda_session *s, cu_stream stream, cu_event event, fcp_error *err) {
    return fcp_cuda_check(s->cuda, s->cuda->call.stream_wait_event(stream, event, 0), err, "cannot wait for an event");
}

fcp_code fcp_cuda_follow(fcp_cuda_session *s, cuda_device *d, cu_stream from, cu_stream to, fcp_error *err) {
    cu_event event = NULL;
    fcp_code code = fcp_cuda_event_record(s, d, from, &event, err);
    if (code) return code;
    code = fcp_cuda_event_await(s, to, event, err);
    fcp_cuda_event_give(d, event);
    return code;
}

fcp_code fcp_cuda_fork(fcp_cuda_session *s, unsigned which, cuda_device *d, cu_stream origin, fcp_error *err) {
    cu_event event = NULL;
    fcp_code code = fcp_cuda_event_record(s, d, origin, &event, err);
    if (code) return code;
    for (uint32_t r = s->base.first_rank; !code && r < fcp_cuda_end(s); r++)
        for (int q = 0; !code && q < CUDA_STREAMS; q++)
            if (which >> q & 1 && s->ranks[r].streams[q])
                code = fcp_cuda_event_await(s, s->ranks[r].streams[q], event, err);
    fcp_cuda_event_give(d, event);
    return code;
}

fcp_code fcp_cuda_join(fcp_cuda_session *s, unsigned which, cu_stream origin, fcp_error *err) {
    fcp_code code = FCP_OK;
    for (uint32_t r = s->base.first_rank; !code && r < fcp_cuda_end(s); r++)
        for (int q = 0; !code && q < CUDA_STREAMS; q++)
            if (which >> q & 1 && s->ranks[r].streams[q])
                code = fcp_cuda_follow(s, s->ranks[r].device, s->ranks[r].streams[q], origin, err);
    return code;
}

fcp_code fcp_cuda_wait_event(fcp_cuda_session *s, cu_event event, const char *what, fcp_error *err) {
    fcp_patience patience = fcp_patience_of(s->base.timeout_s, 0.1);
    long pause = 5000;
    for (;; fcp_pause(&pause, 200000)) {
        cu_result result = s->cuda->call.event_query(event);
        if (result != CU_ERROR_NOT_READY) return fcp_cuda_check(s->cuda, result, err, "%s failed", what);
        fcp_code code = fcp_net_watch(s->base.net, what, err);
        if (code) return code;
        if (fcp_patience_ends(&patience))
            return fcp_fail(err, FCP_E_RUN, "%s did not end within %u s", what, s->base.timeout_s);
    }
}

fcp_code fcp_cuda_wait(fcp_cuda_session *s, cu_stream stream, const char *what, fcp_error *err) {
    fcp_patience patience = fcp_patience_of(s->base.timeout_s, 0.1);
    long pause = 10000;
    fcp_code code = FCP_OK;
    for (;; fcp_pause(&pause, 1000000)) {
        cu_result result = s->cuda->call.stream_query(stream);
        if (result == CU_SUCCESS || (code && result != CU_ERROR_NOT_READY)) return code;
        /* After an error other work in the stream may still be running and use memory. So this returns only when the
         * stream is empty, or has reported an error twice. */
        if (result != CU_ERROR_NOT_READY) code = fcp_cuda_check(s->cuda, result, err, "%s failed", what);
        else if (fcp_patience_ends(&patience))
            return code ? code : fcp_fail(err, FCP_E_RUN, "%s did not end within %u s", what, s->base.timeout_s);
        if (!code && (code = fcp_net_watch(s->base.net, what, err)))
            return code; /* the caller aborts the net, and that ends what waits */
    }
}
