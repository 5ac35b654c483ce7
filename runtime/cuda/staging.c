/* staging.c: copies between pageable host memory and devices, through pinned buffers.
 *
 * The driver can copy pageable memory itself, but such a call may block until all earlier work of its stream has ended,
 * and no time limit of ours could end that. So each device has two pinned buffers: while the device copies one, the
 * host fills the other.
 *
 * Requires: open devices.
 * Gives:    copies of which every wait ends within the session's time limit.
 * Order:    a device has one staging stream. Its copies happen in the order in which they were asked for, after what
 *           the stream was told to follow. A buffer is filled again when the event after its copies has come.
 * Method:   copies to or from neighbouring device memory are joined. A copy is put into the stream only if the next one
 *           does not continue it, if its buffer is full, or if somebody asks for it.
 * Cost:     for each device two buffers of staging_bytes, as much device memory, and a stream; a memcpy of every byte.
 */
#include "runtime/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_BYTES = 4 << 20, ALIGN = 16 };

fcp_code fcp_cuda_staging_open(fcp_cuda_session *s, cuda_device *d, fcp_error *err) {
    const fcp_cuda_table *call = &s->cuda->call;
    cuda_staging *x = &d->staging;
    x->bytes = s->staging_bytes ? (s->staging_bytes + ALIGN - 1) / ALIGN * ALIGN : DEFAULT_BYTES;
    fcp_code code = fcp_cuda_stream_make(s, d, &x->stream, err);
    for (int i = 0; !code && i < 2; i++) {
        void *memory = NULL;
        code = fcp_cuda_check(s->cuda, call->allocate_host(&memory, x->bytes, CU_HOST_PORTABLE | CU_HOST_DEVICEMAP),
                              err, "no %zu bytes of pinned memory for copies to device %d", x->bytes, d->handle);
        x->buffers[i].memory = memory;
        if (!code) code = fcp_cuda_event_take(s, d, &x->buffers[i].event, err);
    }
    return code;
}

size_t fcp_cuda_staging_pinned(const cuda_device *d) { return 2 * d->staging.bytes; }

void fcp_cuda_staging_close(fcp_cuda_session *s, cuda_device *d) {
    const fcp_cuda_table *call = &s->cuda->call;
    cuda_staging *x = &d->staging;
    if (x->stream) call->stream_destroy(x->stream);
    for (int i = 0; i < 2; i++)
        if (x->buffers[i].memory) call->release_host(x->buffers[i].memory);
}

void fcp_cuda_staging_drop(cuda_device *d) {
    for (int i = 0; i < 2; i++) d->staging.buffers[i].out_count = 0;
    d->staging.pending.bytes = 0;
}

/* Returns the code. After an error nothing more is written to host memory. */
static fcp_code done(cuda_device *d, fcp_code code) {
    if (code) fcp_cuda_staging_drop(d);
    return code;
}

/* Waits for the copies of a buffer, and copies what came from the device to its place in host memory. The buffer is
 * then empty. */
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

fcp_code fcp_cuda_staging_push(fcp_cuda_session *s, cuda_device *d, fcp_error *err) {
    const fcp_cuda_table *call = &s->cuda->call;
    cuda_staging *x = &d->staging;
    const cuda_pending p = x->pending;
    char *at = x->buffers[x->now].memory + p.at;
    if (!p.bytes) return FCP_OK;
    x->pending.bytes = 0;
    return fcp_cuda_check(s->cuda, p.in ? call->copy_in(p.device, at, p.bytes, x->stream)
                                        : call->copy_out(at, p.device, p.bytes, x->stream),
                          err, "cannot copy %zu bytes %s device %d", p.bytes, p.in ? "to" : "from", d->handle);
}

/* Records the event after the copies of the buffer in use: it gets no more of them. */
static fcp_code seal(fcp_cuda_session *s, cuda_device *d, fcp_error *err) {
    cuda_buffer *b = &d->staging.buffers[d->staging.now];
    fcp_code code = fcp_cuda_staging_push(s, d, err);
    if (code || !b->used || b->busy) return code;
    code =
        fcp_cuda_check(s->cuda, s->cuda->call.event_record(b->event, d->staging.stream), err, "cannot record an event");
    b->busy = !code;
    return code;
}

/* Finds room in a buffer for a copy to or from `device`, and makes it part of the pending copy: of the one that there
 * is, if the new copy continues it, or of a new one. *out: the room. *out_part: how many of `bytes` fit; at least 1. */
static fcp_code next_part(fcp_cuda_session *s, cuda_device *d, bool in, cu_ptr device, size_t bytes, char **out,
                          size_t *out_part, fcp_error *err) {
    cuda_staging *x = &d->staging;
    cuda_pending *p = &x->pending;
    bool goes_on = p->bytes && p->in == in && p->device + p->bytes == device && p->at + p->bytes < x->bytes;
    fcp_code code = goes_on ? FCP_OK : fcp_cuda_staging_push(s, d, err);
    if (!code && !goes_on && (x->buffers[x->now].busy || x->buffers[x->now].used >= x->bytes)) {
        code = seal(s, d, err);
        if (code) return code;
        x->now = 1 - x->now;
        code = settle(s, d, &x->buffers[x->now], err);
    }
    if (code) return code;
    cuda_buffer *b = &x->buffers[x->now];
    if (!goes_on) *p = (cuda_pending){device, b->used, 0, in};
    size_t end = p->at + p->bytes, room = x->bytes - end;
    *out = b->memory + end;
    *out_part = bytes < room ? bytes : room;
    p->bytes += *out_part;
    b->used = (p->at + p->bytes + ALIGN - 1) / ALIGN * ALIGN;
    return FCP_OK;
}

fcp_code fcp_cuda_staging_in(fcp_cuda_session *s, cuda_device *d, cu_ptr to, const void *from, size_t bytes,
                             fcp_error *err) {
    fcp_code code = fcp_cuda_use(s, d, err);
    size_t part = 0;
    for (size_t at = 0; !code && at < bytes; at += part) {
        char *room;
        code = next_part(s, d, true, to + at, bytes - at, &room, &part, err);
        if (!code) memcpy(room, (const char *)from + at, part);
    }
    return done(d, code);
}

fcp_code fcp_cuda_staging_out(fcp_cuda_session *s, cuda_device *d, void *to, cu_ptr from, size_t bytes,
                              fcp_error *err) {
    fcp_code code = fcp_cuda_use(s, d, err);
    size_t part = 0;
    for (size_t at = 0; !code && at < bytes; at += part) {
        char *room;
        code = next_part(s, d, false, from + at, bytes - at, &room, &part, err);
        if (code) break;
        cuda_buffer *b = &d->staging.buffers[d->staging.now];
        if (b->out_count == b->out_capacity) {
            uint32_t capacity = b->out_capacity ? 2 * b->out_capacity : 64;
            cuda_out *bigger = realloc(b->out, capacity * sizeof *bigger);
            if (!bigger) return done(d, fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %u copies", capacity));
            b->out = bigger;
            b->out_capacity = capacity;
        }
        b->out[b->out_count++] = (cuda_out){(char *)to + at, (size_t)(room - b->memory), part};
    }
    return done(d, code);
}

fcp_code fcp_cuda_staging_flush(fcp_cuda_session *s, cuda_device *d, fcp_error *err) {
    cuda_staging *x = &d->staging;
    fcp_code code = fcp_cuda_use(s, d, err);
    if (!code) code = seal(s, d, err);
    if (!code) code = settle(s, d, &x->buffers[1 - x->now], err);
    return done(d, code ? code : settle(s, d, &x->buffers[x->now], err));
}

fcp_code fcp_cuda_upload(fcp_cuda_session *s, cuda_device *d, cu_ptr to, const void *from, size_t bytes,
                         fcp_error *err) {
    fcp_code code = fcp_cuda_staging_in(s, d, to, from, bytes, err);
    return code ? code : fcp_cuda_staging_flush(s, d, err);
}

fcp_code fcp_cuda_download(fcp_cuda_session *s, cuda_device *d, void *to, cu_ptr from, size_t bytes, fcp_error *err) {
    fcp_code code = fcp_cuda_staging_out(s, d, to, from, bytes, err);
    return code ? code : fcp_cuda_staging_flush(s, d, err);
}

fcp_code fcp_cuda_stagings_follow(fcp_cuda_session *s, cuda_device *d, cu_stream origin, fcp_error *err) {
    fcp_code code = FCP_OK;
    for (uint32_t i = 0; !code && i < s->device_count; i++)
        code = fcp_cuda_follow(s, d, origin, s->devices[i].staging.stream, err);
    return code;
}

fcp_code fcp_cuda_stagings_join(fcp_cuda_session *s, cu_stream origin, fcp_error *err) {
    fcp_code code = FCP_OK;
    for (uint32_t i = 0; !code && i < s->device_count; i++) {
        cuda_device *d = &s->devices[i];
        code = fcp_cuda_use(s, d, err);
        if (!code) code = seal(s, d, err);
        if (!code) code = fcp_cuda_follow(s, d, d->staging.stream, origin, err);
    }
    return code;
}
