/* stage.c: copies between pageable host memory and devices, through pinned buffers.
 *
 * If the driver copied pageable memory itself, it could block for as long as the stream before the copy does, and no
 * time limit of ours would end that. So each device has two pinned buffers: while one is copied, the other is filled.
 *
 * Requires: open devices.
 * Gives:    copies of which every wait ends within the session's time limit.
 * Order:    a stage's stream makes its copies in the order in which they were asked for, after what it was told to
 *           follow. A buffer is filled again when the event after its copies has come.
 * Cost:     two buffers of stage_bytes and a stream for each device; a memcpy of every byte.
 */
#include "runtime/cuda/stage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cuda/device.h"

enum { DEFAULT_BYTES = 4 << 20, ALIGN = 16 };

fcp_code fcp_cuda_stage_open(fcp_cuda_session *s, cuda_device *d, fcp_error *err) {
    const fcp_cuda_table *call = &s->cuda->call;
    cuda_stage *x = &d->stage;
    x->bytes = s->stage_bytes ? (s->stage_bytes + ALIGN - 1) / ALIGN * ALIGN : DEFAULT_BYTES;
    fcp_code code = fcp_cuda_use(s, d, err);
    if (!code)
        code = fcp_cuda_check(s->cuda, call->stream_create(&x->stream, CU_STREAM_NON_BLOCKING, 0), err,
                              "device %d makes no stream", d->handle);
    for (int i = 0; !code && i < 2; i++) {
        void *memory = NULL;
        code = fcp_cuda_check(s->cuda, call->allocate_host(&memory, x->bytes, CU_HOST_PORTABLE | CU_HOST_DEVICEMAP),
                              err, "no %zu bytes of pinned memory for copies to device %d", x->bytes, d->handle);
        x->buffers[i].memory = memory;
        if (!code) code = fcp_cuda_event_take(s, d, &x->buffers[i].event, err);
    }
    return code;
}

size_t fcp_cuda_stage_pinned(const cuda_device *d) { return 2 * d->stage.bytes; }

void fcp_cuda_stage_close(fcp_cuda_session *s, cuda_device *d) {
    const fcp_cuda_table *call = &s->cuda->call;
    cuda_stage *x = &d->stage;
    if (x->stream) call->stream_destroy(x->stream);
    for (int i = 0; i < 2; i++)
        if (x->buffers[i].memory) call->release_host(x->buffers[i].memory);
}

void fcp_cuda_stage_drop(cuda_device *d) {
    for (int i = 0; i < 2; i++) d->stage.buffers[i].out_count = 0;
}

/* Returns the code. After an error nothing more is written to host memory. */
static fcp_code done(cuda_device *d, fcp_code code) {
    if (code) fcp_cuda_stage_drop(d);
    return code;
}

/* Waits for the copies of a buffer, and puts what came from the device where it belongs. The buffer is then empty. */
static fcp_code settle(fcp_cuda_session *s, cuda_device *d, cuda_buffer *b, fcp_error *err) {
    char what[80];
    snprintf(what, sizeof what, "copies between host and device %d, or what is before them,", d->handle);
    fcp_code code = b->busy ? fcp_cuda_wait_event(s, b->event, what, err) : FCP_OK;
    if (code) return code;
    for (uint32_t i = 0; i < b->out_count; i++) memcpy(b->out[i].to, b->memory + b->out[i].at, b->out[i].bytes);
    b->busy = false;
    b->out_count = 0;
    b->used = 0;
    return FCP_OK;
}

/* Records the event after the copies of the buffer in use: it gets no more of them. */
static fcp_code seal(fcp_cuda_session *s, cuda_device *d, fcp_error *err) {
    cuda_buffer *b = &d->stage.buffers[d->stage.now];
    if (!b->used || b->busy) return FCP_OK;
    fcp_code code =
        fcp_cuda_check(s->cuda, s->cuda->call.event_record(b->event, d->stage.stream), err, "cannot record an event");
    b->busy = !code;
    return code;
}

/* Finds a buffer with room, and says how many of `bytes` go into it now: at least one. */
static fcp_code next_part(fcp_cuda_session *s, cuda_device *d, size_t bytes, cuda_buffer **out, size_t *out_part,
                          fcp_error *err) {
    cuda_stage *x = &d->stage;
    fcp_code code = FCP_OK;
    if (x->buffers[x->now].busy || x->buffers[x->now].used >= x->bytes) {
        code = seal(s, d, err);
        if (code) return code;
        x->now = 1 - x->now;
        code = settle(s, d, &x->buffers[x->now], err);
    }
    *out = &x->buffers[x->now];
    size_t room = x->bytes - (*out)->used;
    *out_part = bytes < room ? bytes : room;
    return code;
}
/* A part has been put into the buffer. */
static void use_part(cuda_buffer *b, size_t part) { b->used += (part + ALIGN - 1) / ALIGN * ALIGN; }

fcp_code fcp_cuda_stage_in(fcp_cuda_session *s, cuda_device *d, cu_ptr to, const void *from, size_t bytes,
                           fcp_error *err) {
    fcp_code code = fcp_cuda_use(s, d, err);
    size_t part = 0;
    for (size_t at = 0; !code && at < bytes; at += part) {
        cuda_buffer *b;
        code = next_part(s, d, bytes - at, &b, &part, err);
        if (code) break;
        memcpy(b->memory + b->used, (const char *)from + at, part);
        code = fcp_cuda_check(s->cuda, s->cuda->call.copy_in(to + at, b->memory + b->used, part, d->stage.stream), err,
                              "cannot copy %zu bytes to device %d", part, d->handle);
        use_part(b, part);
    }
    return done(d, code);
}

fcp_code fcp_cuda_stage_out(fcp_cuda_session *s, cuda_device *d, void *to, cu_ptr from, size_t bytes, fcp_error *err) {
    fcp_code code = fcp_cuda_use(s, d, err);
    size_t part = 0;
    for (size_t at = 0; !code && at < bytes; at += part) {
        cuda_buffer *b;
        code = next_part(s, d, bytes - at, &b, &part, err);
        if (code) break;
        if (b->out_count == b->out_capacity) {
            uint32_t capacity = b->out_capacity ? 2 * b->out_capacity : 64;
            cuda_out *bigger = realloc(b->out, capacity * sizeof *bigger);
            if (!bigger) return done(d, fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %u copies", capacity));
            b->out = bigger;
            b->out_capacity = capacity;
        }
        code = fcp_cuda_check(s->cuda, s->cuda->call.copy_out(b->memory + b->used, from + at, part, d->stage.stream),
                              err, "cannot copy %zu bytes from device %d", part, d->handle);
        if (!code) b->out[b->out_count++] = (cuda_out){(char *)to + at, b->used, part};
        use_part(b, part);
    }
    return done(d, code);
}

fcp_code fcp_cuda_stage_flush(fcp_cuda_session *s, cuda_device *d, fcp_error *err) {
    cuda_stage *x = &d->stage;
    fcp_code code = fcp_cuda_use(s, d, err);
    if (!code) code = seal(s, d, err);
    if (!code) code = settle(s, d, &x->buffers[1 - x->now], err);
    return done(d, code ? code : settle(s, d, &x->buffers[x->now], err));
}

fcp_code fcp_cuda_stages_follow(fcp_cuda_session *s, cuda_device *d, cu_stream origin, fcp_error *err) {
    fcp_code code = FCP_OK;
    for (uint32_t i = 0; !code && i < s->device_count; i++)
        code = fcp_cuda_follow(s, d, origin, s->devices[i].stage.stream, err);
    return code;
}

fcp_code fcp_cuda_stages_join(fcp_cuda_session *s, cu_stream origin, fcp_error *err) {
    fcp_code code = FCP_OK;
    for (uint32_t i = 0; !code && i < s->device_count; i++) {
        cuda_device *d = &s->devices[i];
        code = fcp_cuda_use(s, d, err);
        if (!code) code = seal(s, d, err);
        if (!code) code = fcp_cuda_follow(s, d, d->stage.stream, origin, err);
    }
    return code;
}
