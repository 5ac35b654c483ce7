/* memory.c: device memory, from the caller's allocator or from the driver, and copies between devices.
 *
 * All device memory of a session is taken and given back here, except arenas that NCCL must allocate itself.
 *
 * Requires: open devices.
 */
#include "runtime/cuda/cuda.h"

#include "runtime/base/grow.h"

enum { LEAST = 64 }; /* bytes that are allocated for a size of 0, because an address is needed */

size_t fcp_cuda_allocated(size_t bytes) { return bytes ? bytes : LEAST; }

/* The number of a device, as the caller's allocator is told it. */
static uint32_t number_of(const fcp_cuda_session *s, const cuda_device *d) {
    return s->first_device + (uint32_t)(d - s->devices);
}

/* Asks the caller's allocator. The caller may make another device current meanwhile. */
static fcp_code ask_allocator(fcp_cuda_session *s, cuda_device *d, size_t bytes, const char *what, cu_ptr *out,
                              fcp_error *err) {
    const fcp_allocator *from = &s->allocator;
    const uint32_t number = number_of(s, d);
    void *memory = from->allocate(from->context, number, bytes);
    const unsigned beyond = (unsigned)((uintptr_t)memory % FCP_ALLOCATOR_ALIGN);
    fcp_code code = fcp_cuda_use(s, d, err);
    if (!code && !memory)
        code = fcp_fail(err, FCP_E_NO_MEMORY, "the allocator has no %zu bytes on device %u for %s", bytes, number,
                        what);
    if (!code && beyond)
        code = fcp_fail(err, FCP_E_ARGUMENT,
                        "the allocator's memory on device %u for %s begins %u bytes behind a multiple of %d", number,
                        what, beyond, FCP_ALLOCATOR_ALIGN);
    if (!code) *out = (uintptr_t)memory;
    else if (memory) from->release(from->context, number, memory);
    return code;
}

fcp_code fcp_cuda_memory(fcp_cuda_session *s, cuda_device *d, size_t bytes, const void *from, const char *what,
                         cu_ptr *out, fcp_error *err) {
    const fcp_cuda_table *call = &s->cuda->call;
    fcp_code code = fcp_cuda_use(s, d, err);
    if (!code && s->allocator.allocate) code = ask_allocator(s, d, fcp_cuda_allocated(bytes), what, out, err);
    else if (!code)
        code = fcp_cuda_check(s->cuda, call->allocate(out, fcp_cuda_allocated(bytes)), err,
                              "device %d has no %zu bytes for %s", d->handle, bytes, what);
    if (code || !from || !bytes) return code;
    return fcp_cuda_upload(s, d, *out, from, bytes, err);
}

fcp_code fcp_cuda_release(fcp_cuda_session *s, cuda_device *d, cu_ptr memory, fcp_error *err) {
    const fcp_allocator *to = &s->allocator;
    if (!memory) return FCP_OK;
    if (!to->allocate)
        return fcp_cuda_check(s->cuda, s->cuda->call.release(memory), err, "device %d does not give memory up",
                              d->handle);
    to->release(to->context, number_of(s, d), (void *)(uintptr_t)memory);
    return fcp_cuda_use(s, d, err);
}

fcp_code fcp_cuda_keep(fcp_cuda_session *s, cuda_device *d, size_t bytes, const void *from, const char *what,
                       cuda_memory *m, fcp_error *err) {
    if (!bytes) return FCP_OK;
    if (m->at && bytes <= m->held) return from ? fcp_cuda_upload(s, d, m->at, from, bytes, err) : FCP_OK;
    fcp_code code = fcp_cuda_use(s, d, err);
    if (code) return code;
    code = fcp_cuda_release(s, d, m->at, err);
    *m = (cuda_memory){0};
    if (!code) code = fcp_cuda_memory(s, d, bytes, from, what, &m->at, err);
    if (!code) m->held = fcp_cuda_allocated(bytes);
    return code;
}

fcp_code fcp_cuda_set_aside(fcp_cuda_session *s, cuda_device *d, cuda_memory *m, fcp_error *err) {
    if (!m->at) return FCP_OK;
    if (!FCP_GROW(s->aside, s->aside_capacity, s->aside_count + UINT64_C(1)))
        return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for what graphs use");
    s->aside[s->aside_count++] = (cuda_aside){d, *m};
    *m = (cuda_memory){0};
    return FCP_OK;
}

fcp_code fcp_cuda_aside_release(fcp_cuda_session *s, fcp_error *err) {
    fcp_code code = FCP_OK;
    while (!code && s->aside_count) {
        const cuda_aside x = s->aside[--s->aside_count];
        code = fcp_cuda_use(s, x.device, err);
        if (!code) code = fcp_cuda_release(s, x.device, x.memory.at, err);
    }
    return code;
}

fcp_code fcp_cuda_copy(fcp_cuda_session *s, cuda_device *to_device, cu_ptr to, cuda_device *from_device, cu_ptr from,
                       size_t bytes, cu_stream stream, fcp_error *err) {
    const fcp_cuda_table *call = &s->cuda->call;
    if (!bytes) return FCP_OK;
    cu_result result = to_device == from_device
                           ? call->copy(to, from, bytes, stream)
                           : call->copy_peer(to, to_device->context, from, from_device->context, bytes, stream);
    return fcp_cuda_check(s->cuda, result, err, "cannot copy %zu bytes from device %d to device %d", bytes,
                          from_device->handle, to_device->handle);
}

fcp_code fcp_cuda_fill(const fcp_cuda_session *s, cu_ptr to, unsigned word, size_t bytes, cu_stream stream,
                       fcp_error *err) {
    if (!bytes) return FCP_OK;
    return fcp_cuda_check(s->cuda, s->cuda->call.fill(to, word, bytes / 4, stream), err,
                          word ? "cannot fill %zu bytes" : "cannot clear %zu bytes", bytes);
}
