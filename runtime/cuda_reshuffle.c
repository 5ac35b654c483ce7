/* cuda_reshuffle.c: between the caller's tensors and home blocks.
 *
 * Requires: tensors that session.c found to be there. Gives: cuda_parts.h.
 * Cost:     a question to the driver for each tensor of each rank, and for each run of tokens that is moved.
 * Order:    all of IN comes before the pass and all of OUT after it, each run in its home's communication stream. With nccl
 *           runs between ranks are groups of the communicator's, a round each.
 */
#include <string.h>

#include "cuda_parts.h"
#include "segments.h"

enum { ROW_ALIGN = 16 };

/* The device in whose memory a pointer is; *out NULL: host memory, as far as the driver knows. */
static fcp_code place_of(fcp_cuda_session *s, const void *pointer, const char *name, uint32_t rank, cuda_device **out,
                         fcp_error *err) {
    unsigned type = 0;
    int ordinal = -1;
    *out = NULL;
    cu_result result = s->cuda->call.pointer_attribute(&type, CU_POINTER_MEMORY_TYPE, (uintptr_t)pointer);
    if (result == CU_ERROR_INVALID_VALUE || (!result && type == CU_MEMORY_HOST)) return FCP_OK;
    fcp_code code = fcp_cuda_check(s->cuda, result, err, "rank %u: the driver does not say where tensor %s lies", rank, name);
    if (code) return code;
    if (type != CU_MEMORY_DEVICE)
        return fcp_fail(err, FCP_E_TENSOR, "rank %u: tensor %s is in memory of an unknown kind (%u)", rank, name, type);
    result = s->cuda->call.pointer_attribute(&ordinal, CU_POINTER_DEVICE, (uintptr_t)pointer);
    code = fcp_cuda_check(s->cuda, result, err, "rank %u: the driver does not say which device tensor %s is on", rank, name);
    if (code) return code;
    for (uint32_t i = 0; i < s->device_count; i++)
        if (s->devices[i].handle == ordinal) *out = &s->devices[i];
    if (!*out)
        return fcp_fail(err, FCP_E_TENSOR, "rank %u: tensor %s is on device %d, and the session uses devices %u to %u",
                        rank, name, ordinal, s->first_device, s->first_device + s->device_count - 1);
    if ((uintptr_t)pointer % ROW_ALIGN)
        return fcp_fail(err, FCP_E_TENSOR, "rank %u: tensor %s begins at an address that is no multiple of %d", rank, name,
                        ROW_ALIGN);
    return FCP_OK;
}

struct named {
    const char *name;
    const void *tensor;
    bool needed;
};

fcp_code fcp_cuda_tensors_check(fcp_cuda_session *s, fcp_pass pass, const fcp_tensors *tensors, bool *out_host,
                                fcp_error *err) {
    fcp_code code = FCP_OK;
    *out_host = false;
    for (uint32_t r = s->base.first_rank; !code && r < fcp_cuda_end(s); r++) {
        const fcp_tensors *t = &tensors[r - s->base.first_rank];
        bool q = fcp_plan_layout(s->plan, r, NULL, NULL), kv = fcp_plan_layout_keys(s->plan, r, NULL, NULL);
        bool back = pass == FCP_BACKWARD;
        const struct named all[] = {{"q", t->q, q}, {"k", t->k, kv}, {"v", t->v, kv}, {"o", t->o, q}, {"lse", t->lse, q},
                                    {"d_o", t->d_o, q && back}, {"dq", t->dq, q && back}, {"dk", t->dk, kv && back},
                                    {"dv", t->dv, kv && back}};
        for (size_t i = 0; !code && i < sizeof all / sizeof *all; i++) {
            cuda_device *device;
            if (!all[i].needed) continue;
            code = place_of(s, all[i].tensor, all[i].name, r, &device, err);
            *out_host |= !device;
        }
    }
    return code;
}

/* One run of one tensor. */
static fcp_code move(fcp_cuda_session *s, uint32_t caller, uint32_t home, bool in, const fcp_segment *outside,
                     const fcp_segment *inside, fcp_error *err) {
    const fcp_cuda_table *call = &s->cuda->call;
    cuda_rank *r = &s->ranks[home];
    cu_stream stream = r->streams[FCP_COMM];
    cuda_device *device;
    cu_ptr at = (uintptr_t)inside->data, theirs = (uintptr_t)outside->data;
    if (!inside->bytes) return FCP_OK;
    if (inside->bytes != outside->bytes) return fcp_fail(err, FCP_E_INTERNAL, "a run and its copy differ in size");
    unsigned type = 0;
    int ordinal = -1;
    if (call->pointer_attribute(&type, CU_POINTER_MEMORY_TYPE, theirs) || type != CU_MEMORY_DEVICE) {
        cu_result result = in ? call->copy_in(at, outside->data, inside->bytes, stream)
                              : call->copy_out(outside->data, at, inside->bytes, stream);
        return fcp_cuda_check(s->cuda, result, err, "rank %u: cannot copy %zu bytes between host and device %d", caller,
                              inside->bytes, r->device->handle);
    }
    fcp_code code = fcp_cuda_check(s->cuda, call->pointer_attribute(&ordinal, CU_POINTER_DEVICE, theirs), err,
                                   "rank %u: the driver does not say which device a tensor is on", caller);
    if (code) return code;
    device = &s->devices[(uint32_t)ordinal - s->first_device]; /* checked before */
    return in ? fcp_cuda_copy(s, r->device, at, device, theirs, inside->bytes, stream, err)
              : fcp_cuda_copy(s, device, theirs, r->device, at, inside->bytes, stream, err);
}

static fcp_round_kind round_of(const fcp_plan *plan, fcp_pass pass, const fcp_instr *launch) {
    return (fcp_round_kind)plan->rounds[plan->round_starts[pass] + launch->c].kind;
}

fcp_code fcp_cuda_reshuffle(fcp_cuda_session *s, fcp_pass pass, fcp_class cls, const fcp_tensors *tensors, fcp_error *err) {
    const fcp_plan *plan = s->plan;
    fcp_code code = FCP_OK;
    for (uint32_t r = s->base.first_rank; r < fcp_cuda_end(s); r++)
        for (int q = 0; q < FCP_QUEUES; q++) {
            const fcp_stream *stream = fcp_stream_of(plan, pass, r, (fcp_queue)q);
            for (uint32_t i = 0; i < stream->count; i++) {
                const fcp_instr *x = &plan->instrs[stream->first + i];
                if (x->op != FCP_OP_LAUNCH && x->op != FCP_OP_COPY) continue;
                if (x->op == FCP_OP_LAUNCH && s->nccl) {
                    code = fcp_cuda_use(s, s->ranks[r].device, err);
                    if (!code && round_of(plan, pass, x) == (cls == FCP_IN ? FCP_ROUND_IN : FCP_ROUND_OUT))
                        code = fcp_cuda_nccl_group(s, &s->ranks[r], pass, x, &tensors[r - s->base.first_rank], err);
                    if (code) return code;
                    continue;
                }
                for (uint32_t j = x->a; !code && j < x->a + x->b; j++) {
                    const fcp_transfer *t = &plan->transfers[j];
                    if (t->cls != cls || !fcp_at_caller(t)) continue;
                    uint32_t home = x->op == FCP_OP_COPY ? r : t->peer;
                    fcp_segment outside[FCP_SEGMENTS], inside[FCP_SEGMENTS];
                    uint32_t count = fcp_segments_caller(&s->ranks[r].arena[pass], &tensors[r - s->base.first_rank], t, outside);
                    fcp_segments_block(&s->ranks[home].arena[pass], t, inside);
                    code = fcp_cuda_use(s, s->ranks[home].device, err);
                    for (uint32_t k = 0; !code && k < count; k++)
                        code = move(s, r, home, cls == FCP_IN, &outside[k], &inside[k], err);
                }
                if (code) return code;
            }
        }
    return code;
}
