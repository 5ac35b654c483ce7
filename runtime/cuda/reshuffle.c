/* reshuffle.c: moves tokens between the caller's tensors and home blocks.
 *
 * A run is tokens that lie next to each other both in a tensor and in a home block.
 *
 * Requires: no tensor that the pass needs is NULL.
 * Gives:    reshuffle.h.
 * Order:    IN comes before the pass. OUT comes after it, except for what leaves early (early.c). A run is copied in
 *           its home's communication stream; if the tensor lies in pageable memory, in the stage of the home's
 *           device. Runs from one rank to another go as the transport moves them.
 * Cost:     a few questions to the driver for each tensor of each rank, and for each run.
 */
#include "runtime/cuda/reshuffle.h"

#include <stdlib.h>

#include "runtime/cuda/device.h"
#include "runtime/cuda/memory.h"
#include "runtime/cuda/rounds.h"
#include "runtime/cuda/stage.h"
#include "runtime/exec/segments.h"
#include "runtime/exec/where.h"

enum { ROW_ALIGN = 16 };

struct named {
    const char *name;
    const void *tensor;
    uint64_t tokens;
    size_t row;      /* bytes of a token */
};

/* For an error whose message begins with a rank: sets the rank in the error's numbers, too. */
static fcp_code at_rank(fcp_code code, uint32_t rank, fcp_error *err) {
    if (code && err) err->where = fcp_where_rank(rank);
    return code;
}

/* Asks the driver of which kind memory is, and on which device. Kind 0: the driver does not know the memory, so it is
 * ordinary host memory. */
static fcp_code memory_of(fcp_cuda_session *s, cu_ptr at, const char *name, uint32_t rank, unsigned *out_type, int *out_device,
                          fcp_error *err) {
    const fcp_cuda_table *call = &s->cuda->call;
    *out_type = 0;
    *out_device = -1;
    cu_result result = call->pointer_attribute(out_type, CU_POINTER_MEMORY_TYPE, at);
    if (result == CU_ERROR_INVALID_VALUE) *out_type = 0;
    if (result == CU_ERROR_INVALID_VALUE) return FCP_OK;
    fcp_code code = fcp_cuda_check(s->cuda, result, err, "rank %u: the driver does not say where tensor %s lies", rank, name);
    if (code || *out_type != CU_MEMORY_DEVICE) return at_rank(code, rank, err);
    code = fcp_cuda_check(s->cuda, call->pointer_attribute(out_device, CU_POINTER_DEVICE, at), err,
                          "rank %u: the driver does not say which device tensor %s is on", rank, name);
    return at_rank(code, rank, err);
}

/* Checks that all of the tensor lies in memory of that device. That memory may be several allocations next to each
 * other, if the caller has mapped it so. */
static fcp_code fits(fcp_cuda_session *s, const struct named *x, uint32_t rank, int device, fcp_error *err) {
    cu_ptr at = (uintptr_t)x->tensor, end = at + x->tokens * x->row;
    while (at < end) {
        cu_ptr base = 0;
        size_t size = 0;
        unsigned type = CU_MEMORY_DEVICE;
        int on = device;
        fcp_code code = at == (uintptr_t)x->tensor ? FCP_OK : memory_of(s, at, x->name, rank, &type, &on, err);
        if (code) return code;
        bool there = type == CU_MEMORY_DEVICE && on == device;
        if (there)
            code = fcp_cuda_check(s->cuda, s->cuda->call.address_range(&base, &size, at), err,
                                  "rank %u: the driver does not say how much memory tensor %s has", rank, x->name);
        if (code) return at_rank(code, rank, err);
        if (!there || base + size <= at)
            return fcp_fail_at(err, FCP_E_TENSOR, fcp_where_rank(rank), "rank %u: tensor %s of %llu tokens is %llu bytes, and its memory on device %d ends after %llu",
                            rank, x->name, (unsigned long long)x->tokens, (unsigned long long)(x->tokens * x->row), device,
                            (unsigned long long)(at - (uintptr_t)x->tensor));
        at = base + size;
    }
    return FCP_OK;
}

/* Checks that a tensor lies where the session can use it. */
static fcp_code check_tensor(fcp_cuda_session *s, const struct named *x, uint32_t rank, bool *out_host, fcp_error *err) {
    unsigned type;
    int ordinal;
    const cuda_device *device = NULL;
    cu_context context = NULL;
    fcp_code code = memory_of(s, (uintptr_t)x->tensor, x->name, rank, &type, &ordinal, err);
    if (code) return code;
    *out_host |= type != CU_MEMORY_DEVICE;
    if (!type || type == CU_MEMORY_HOST) return FCP_OK;
    if (type != CU_MEMORY_DEVICE)
        return fcp_fail_at(err, FCP_E_TENSOR, fcp_where_rank(rank), "rank %u: tensor %s is in memory of an unknown kind (%u)", rank, x->name, type);
    for (uint32_t i = 0; i < s->device_count; i++)
        if (s->devices[i].handle == ordinal) device = &s->devices[i];
    if (!device)
        return fcp_fail_at(err, FCP_E_TENSOR, fcp_where_rank(rank), "rank %u: tensor %s is on device %d, and the session uses devices %u to %u", rank,
                        x->name, ordinal, s->first_device, s->first_device + s->device_count - 1);
    /* memory that was mapped rather than allocated belongs to no context */
    cu_result result = s->cuda->call.pointer_attribute(&context, CU_POINTER_CONTEXT, (uintptr_t)x->tensor);
    if (!result && context && context != device->context)
        return fcp_fail_at(err, FCP_E_TENSOR, fcp_where_rank(rank), "rank %u: tensor %s is of another context of device %d than its primary one, which the "
                        "session uses", rank, x->name, ordinal);
    if ((uintptr_t)x->tensor % ROW_ALIGN)
        return fcp_fail_at(err, FCP_E_TENSOR, fcp_where_rank(rank), "rank %u: tensor %s begins at an address that is no multiple of %d", rank, x->name,
                        ROW_ALIGN);
    return fits(s, x, rank, ordinal, err);
}

fcp_code fcp_cuda_tensors_check(fcp_cuda_session *s, fcp_pass pass, const fcp_tensors *tensors, bool *out_host,
                                fcp_error *err) {
    unsigned needed = fcp_pass_inputs(pass) | fcp_pass_outputs(pass);
    fcp_shape shape;
    fcp_plan_shape(s->plan, &shape);
    fcp_code code = FCP_OK;
    *out_host = false;
    for (uint32_t r = s->base.first_rank; !code && r < fcp_cuda_end(s); r++) {
        for (int t = 0; !code && t < FCP_TENSORS; t++) {
            const struct named x = {fcp_tensors_name((fcp_tensor)t), fcp_tensors_get(&tensors[r - s->base.first_rank], (fcp_tensor)t),
                                    fcp_tensors_tokens(s->plan, r, (fcp_tensor)t), fcp_tensor_token_bytes(&shape, (fcp_tensor)t)};
            if (needed >> t & 1 && x.tokens) code = check_tensor(s, &x, r, out_host, err);
        }
    }
    return code;
}

/* Is it pinned, so that the driver can copy it by itself? Its two ends are asked about. If they lie in two pinned allocations
 * with a gap between them, the driver refuses the copy (cuMemcpy: a range that is registered in part is
 * CUDA_ERROR_INVALID_VALUE), so that nothing wrong is copied. */
static bool is_pinned(fcp_cuda_session *s, const void *from, size_t bytes) {
    const fcp_cuda_table *call = &s->cuda->call;
    unsigned first = 0, last = 0;
    return !call->pointer_attribute(&first, CU_POINTER_MEMORY_TYPE, (uintptr_t)from) && first == CU_MEMORY_HOST &&
           !call->pointer_attribute(&last, CU_POINTER_MEMORY_TYPE, (uintptr_t)from + bytes - 1) && last == CU_MEMORY_HOST;
}

/* Copies one run: `outside` is in a tensor of rank `caller`, `inside` in a block of rank `home`. */
static fcp_code move(fcp_cuda_session *s, uint32_t caller, uint32_t home, bool in, const fcp_strided *outside,
                     const fcp_segment *inside, fcp_error *err) {
    const fcp_cuda_table *call = &s->cuda->call;
    cuda_rank *r = &s->ranks[home];
    cu_stream stream = r->streams[FCP_COMM];
    cu_ptr at = (uintptr_t)inside->data, theirs = (uintptr_t)outside->data;
    unsigned type;
    int ordinal;
    if (!inside->bytes) return FCP_OK;
    if (inside->bytes != outside->bytes) return fcp_fail(err, FCP_E_INTERNAL, "a run and its copy differ in size");
    fcp_code code = memory_of(s, theirs, "data", caller, &type, &ordinal, err);
    if (code) return code;
    if (type == CU_MEMORY_DEVICE) {
        cuda_device *device = &s->devices[(uint32_t)ordinal - s->first_device]; /* checked before */
        return in ? fcp_cuda_copy(s, r->device, at, device, theirs, inside->bytes, stream, err)
                  : fcp_cuda_copy(s, device, theirs, r->device, at, inside->bytes, stream, err);
    }
    if (is_pinned(s, outside->data, outside->bytes)) {
        code = fcp_cuda_check(s->cuda, in ? call->copy_in(at, outside->data, inside->bytes, stream)
                                          : call->copy_out(outside->data, at, inside->bytes, stream),
                              err, "rank %u: cannot copy %zu bytes between host and device %d", caller, inside->bytes,
                              r->device->handle);
        return at_rank(code, caller, err);
    }
    return in ? fcp_cuda_stage_in(s, r->device, at, outside->data, inside->bytes, err)
              : fcp_cuda_stage_out(s, r->device, outside->data, at, inside->bytes, err);
}

fcp_code fcp_cuda_move_runs(fcp_cuda_session *s, uint32_t rank, fcp_pass pass, fcp_class cls, const fcp_instr *x,
                            const fcp_tensors *tensors, fcp_error *err) {
    fcp_code code = FCP_OK;
    for (uint32_t i = x->a; !code && i < x->a + x->b; i++) {
        const fcp_transfer *t = &s->plan->transfers[i];
        if (t->cls != cls || !fcp_at_caller(t)) continue;
        uint32_t home = x->op == FCP_OP_COPY ? rank : t->peer;
        fcp_strided outside[FCP_SEGMENTS]; /* blocks are of all heads: a run each */
        fcp_segment inside[FCP_SEGMENTS];
        uint32_t count = fcp_segments_caller(&s->ranks[rank].arena[pass], tensors, t, outside);
        fcp_segments_block(&s->ranks[home].arena[pass], t, inside);
        code = fcp_cuda_use(s, s->ranks[home].device, err);
        if (!code) code = fcp_net_pace(s->base.net, count, err);
        for (uint32_t k = 0; !code && k < count; k++)
            code = move(s, rank, home, cls == FCP_IN, &outside[k], &inside[k], err);
    }
    return code;
}

/* Lets the transport do a LAUNCH of inputs or outputs. */
static fcp_code move_launch(fcp_cuda_session *s, uint32_t rank, fcp_pass pass, const fcp_instr *x, const fcp_tensors *tensors,
                            fcp_wires *wires, fcp_error *err) {
    const fcp_transport *transport = s->base.net->transport;
    if (transport->reshuffle) return transport->reshuffle(s->base.net, rank, pass, x, tensors, err);
    fcp_code code = fcp_cuda_use(s, s->ranks[rank].device, err);
    if (!code) code = fcp_net_pace(s->base.net, 1, err);
    if (!code) code = fcp_wires_make(wires, &s->ranks[rank].arena[pass], tensors, x, err);
    if (!code) code = fcp_net_launch(s->base.net, rank, pass, x->c, wires->list, x->b, err);
    if (!code && fcp_net_wait(s->base.net, rank, 0, NULL, err) != FCP_WAIT_DONE)
        code = fcp_fail(err, FCP_E_INTERNAL, "a launch of inputs or outputs waits for another");
    return code;
}

fcp_code fcp_cuda_reshuffle(fcp_cuda_session *s, fcp_pass pass, fcp_class cls, bool early, const fcp_tensors *tensors,
                            fcp_error *err) {
    const fcp_plan *plan = s->plan;
    const cuda_early_rounds rounds = fcp_cuda_early_rounds(plan, pass);
    fcp_wires wires = {0};
    fcp_code code = FCP_OK;
    for (uint32_t r = s->base.first_rank; !code && r < fcp_cuda_end(s); r++)
        for (int q = 0; !code && q < FCP_QUEUES; q++) {
            const fcp_stream *stream = fcp_stream_of(plan, pass, r, (fcp_queue)q);
            const fcp_tensors *own = &tensors[r - s->base.first_rank];
            for (uint32_t i = 0; !code && i < stream->count; i++) {
                const fcp_instr *x = &plan->instrs[stream->first + i];
                bool launch = x->op == FCP_OP_LAUNCH;
                if ((!launch && x->op != FCP_OP_COPY) || early != (launch && fcp_cuda_is_early(&rounds, x))) continue;
                if (!launch) code = fcp_cuda_move_runs(s, r, pass, cls, x, own, err);
                else if (fcp_cuda_moved_by(plan, pass, x) == cls) code = move_launch(s, r, pass, x, own, &wires, err);
            }
        }
    fcp_wires_free(&wires);
    return code;
}
