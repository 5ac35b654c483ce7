/* cuda_wire.c: rounds partial results before they are sent, and makes fp32 of those that were received.
 *
 * Requires: a launch whose wires have messages in the rank's memory.
 * Order:    a message is written, sent, received and read in the stream of its fabric, in which rounds come one after
 *           the other. So a rank needs only one message for each fabric and direction, and no event.
 * Cost:     a launch for each tensor of a partial, at each end. Numbers are read once and written once.
 */
#include "runtime/cuda/cuda.h"

/* One tensor of a partial, between its slot and its message. */
static fcp_code convert(fcp_cuda_session *s, const cuda_rank *r, const fcp_transfer *t, const fcp_segment *slot,
                        const fcp_segment *message, fcp_error *err) {
    const bool sends = t->dir == FCP_SEND;
    fk_support x = {.to = (uintptr_t)(sends ? message : slot)->data, .from = (uintptr_t)(sends ? slot : message)->data,
                    .count = slot->bytes / sizeof(float)};
    return fcp_cuda_launch(s, r->device, sends ? CUDA_NARROW : CUDA_WIDEN, (x.count + CUDA_PAIRS - 1) / CUDA_PAIRS,
                           (uint32_t)r->device->multiprocessors, fcp_cuda_fabric_stream(r, t->fabric), &x, err);
}

fcp_code fcp_cuda_wire(fcp_cuda_session *s, uint32_t rank, fcp_pass pass, const fcp_instr *launch,
                       const fcp_wires *wires, fcp_direction dir, fcp_error *err) {
    const cuda_rank *r = &s->ranks[rank];
    fcp_segment slot[FCP_SEGMENTS];
    fcp_code code = FCP_OK;
    for (uint32_t i = 0; !code && i < launch->b; i++) {
        const fcp_transfer *t = &s->plan->transfers[launch->a + i];
        if (t->dir != dir || !fcp_is_rounded(s->plan, t)) continue;
        const uint32_t count = fcp_segments_block(&r->arena[pass], t, slot);
        for (uint32_t j = 0; !code && j < count; j++)
            if (fcp_is_sum(t, j)) code = convert(s, r, t, &slot[j], &wires->list[i].segment[j], err);
    }
    return code;
}
