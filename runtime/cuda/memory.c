/* memory.c: allocating device memory, and copying between devices. Requires: open devices. Gives: memory.h. */
#include "runtime/cuda/memory.h"

#include "runtime/cuda/device.h"
#include "runtime/cuda/stage.h"

enum { LEAST = 64 }; /* bytes that are allocated for a size of 0, because an address is needed */

size_t fcp_cuda_allocated(size_t bytes) { return bytes ? bytes : LEAST; }

fcp_code fcp_cuda_memory(fcp_cuda_session *s, cuda_device *d, size_t bytes, const void *from, const char *what,
                         cu_ptr *out, fcp_error *err) {
    const fcp_cuda_table *call = &s->cuda->call;
    fcp_code code = fcp_cuda_use(s, d, err);
    if (!code)
        code = fcp_cuda_check(s->cuda, call->allocate(out, fcp_cuda_allocated(bytes)), err,
                              "device %d has no %zu bytes for %s", d->handle, bytes, what);
    if (code || !from || !bytes) return code;
    code = fcp_cuda_stage_in(s, d, *out, from, bytes, err);
    return code ? code : fcp_cuda_stage_flush(s, d, err);
}

fcp_code fcp_cuda_memory_again(fcp_cuda_session *s, cuda_device *d, size_t bytes, const void *from, const char *what,
                               cu_ptr *memory, size_t *held, fcp_error *err) {
    const fcp_cuda_table *call = &s->cuda->call;
    if (*memory && bytes <= *held) {
        fcp_code code = from ? fcp_cuda_stage_in(s, d, *memory, from, bytes, err) : FCP_OK;
        return code || !from ? code : fcp_cuda_stage_flush(s, d, err);
    }
    fcp_code code = fcp_cuda_use(s, d, err);
    if (code) return code;
    if (*memory)
        code = fcp_cuda_check(s->cuda, call->release(*memory), err, "device %d does not give memory up", d->handle);
    *memory = 0;
    *held = 0;
    if (!code) code = fcp_cuda_memory(s, d, bytes, from, what, memory, err);
    if (!code) *held = fcp_cuda_allocated(bytes);
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
