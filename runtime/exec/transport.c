/* transport.c: the checks before a transport's functions, and what happens where it has none.
 *
 * Cost: linear in a group's wires.
 */
#include "runtime/exec/transport.h"

#include <stdlib.h>
#include <string.h>

fcp_code fcp_net_open(const fcp_transport *transport, uint32_t ranks, uint32_t gpus, const fcp_start *start,
                      fcp_net **out_net, fcp_error *err) {
    if (!transport || !out_net || ranks == 0) return fcp_fail(err, FCP_E_ARGUMENT, "a net needs a transport and ranks");
    return transport->open(ranks, gpus, start, out_net, err);
}

fcp_code fcp_net_connect(fcp_net *net, fcp_session *session, const fcp_start *start, fcp_error *err) {
    return net->transport->connect ? net->transport->connect(net, session, start, err) : FCP_OK;
}

void fcp_net_close(fcp_net *net) {
    if (net) net->transport->close(net);
}

void fcp_net_reset(fcp_net *net) {
    if (net->transport->reset) net->transport->reset(net);
}

void fcp_net_abort(fcp_net *net) {
    if (net->transport->abort) net->transport->abort(net);
}

fcp_code fcp_net_watch(fcp_net *net, const char *what, fcp_error *err) {
    return net->transport->watch ? net->transport->watch(net, what, err) : FCP_OK;
}

fcp_code fcp_net_pace(fcp_net *net, uint32_t instructions, fcp_error *err) {
    return net->transport->pace ? net->transport->pace(net, instructions, err) : FCP_OK;
}

void fcp_net_need(const fcp_net *net, size_t *out_bytes, size_t *out_held) {
    *out_bytes = *out_held = 0;
    if (net->transport->need) net->transport->need(net, out_bytes, out_held);
}

fcp_code fcp_net_reserve(fcp_net *net, fcp_error *err) {
    return net->transport->reserve ? net->transport->reserve(net, err) : FCP_OK;
}

fcp_code fcp_net_launch(fcp_net *net, uint32_t rank, fcp_pass pass, uint32_t round, const fcp_wire *wires,
                        uint32_t count, fcp_error *err) {
    if (rank - net->first_rank >= net->rank_count)
        return fcp_fail(err, FCP_E_ARGUMENT, "rank %u is not among the %u from %u on", rank, net->rank_count,
                        net->first_rank);
    for (uint32_t i = 0; i < count; i++) {
        const fcp_wire *w = &wires[i];
        if (w->peer >= net->ranks || w->peer == rank || w->dir > FCP_RECV || w->fabric >= FCP_FABRICS ||
            w->segments > FCP_SEGMENTS)
            return fcp_fail(err, FCP_E_ARGUMENT, "rank %u, round %u: wire %u to rank %u is malformed", rank, round, i,
                            w->peer);
    }
    return net->transport->launch(net, rank, pass, round, wires, count, err);
}

fcp_wait fcp_net_wait(fcp_net *net, uint32_t rank, uint32_t milliseconds, uint32_t *out_wire, fcp_error *err) {
    uint32_t ignored;
    if (rank - net->first_rank >= net->rank_count) {
        fcp_fail(err, FCP_E_ARGUMENT, "rank %u is not among the %u from %u on", rank, net->rank_count, net->first_rank);
        return FCP_WAIT_FAILED;
    }
    return net->transport->wait(net, rank, milliseconds, out_wire ? out_wire : &ignored, err);
}

fcp_code fcp_net_stage_in(fcp_net *net, fcp_pass pass, const fcp_tensors *tensors, const fcp_tensors **out_inside,
                          fcp_error *err) {
    *out_inside = tensors;
    return net->transport->stage_in ? net->transport->stage_in(net, pass, tensors, out_inside, err) : FCP_OK;
}

fcp_code fcp_net_stage_out(fcp_net *net, fcp_pass pass, const fcp_tensors *tensors, const fcp_tensors *inside,
                           fcp_error *err) {
    return net->transport->stage_out ? net->transport->stage_out(net, pass, tensors, inside, err) : FCP_OK;
}

fcp_code fcp_net_gather(fcp_net *net, const void *mine, size_t bytes, void *out_all, fcp_error *err) {
    if (net->transport->gather) return net->transport->gather(net, mine, bytes, out_all, err);
    memcpy(out_all, mine, bytes);
    return FCP_OK;
}

fcp_code fcp_net_collect(fcp_net *net, uint32_t from, void *memory, size_t bytes, fcp_error *err) {
    return net->transport->collect ? net->transport->collect(net, from, memory, bytes, err) : FCP_OK;
}

/* Room for the bytes at the caller's side that do not lie together. */
static fcp_code make_room(fcp_wires *wires, const fcp_arena *arena, const fcp_tensors *tensors, const fcp_instr *launch,
                          fcp_error *err) {
    size_t need = 0;
    if (launch->b > wires->capacity) {
        fcp_wire *bigger = realloc(wires->list, launch->b * sizeof *bigger);
        if (!bigger) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for a group of %u", launch->b);
        wires->list = bigger;
        wires->capacity = launch->b;
    }
    if (arena->heads == arena->plan->problem->heads) return FCP_OK;
    for (uint32_t i = 0; i < launch->b; i++) {
        const fcp_transfer *t = &arena->plan->transfers[launch->a + i];
        fcp_strided s[FCP_SEGMENTS];
        uint32_t count = fcp_at_caller(t) ? fcp_segments_caller(arena, tensors, t, s) : 0;
        for (uint32_t j = 0; j < count; j++)
            if (!fcp_strided_is_one(&s[j])) need += fcp_strided_bytes(&s[j]);
    }
    if (need <= wires->packed_capacity) return FCP_OK;
    char *bigger = malloc(need);
    if (!bigger) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory: %zu bytes to pack", need);
    free(wires->packed);
    wires->packed = bigger;
    wires->packed_capacity = need;
    return FCP_OK;
}

fcp_code fcp_wires_make(fcp_wires *wires, const fcp_arena *arena, const fcp_tensors *tensors, const fcp_instr *launch,
                        fcp_error *err) {
    fcp_code code = make_room(wires, arena, tensors, launch, err);
    if (code) return code;
    char *packed = wires->packed;
    for (uint32_t i = 0; i < launch->b; i++) {
        const fcp_transfer *t = &arena->plan->transfers[launch->a + i];
        fcp_wire *w = &wires->list[i];
        *w = (fcp_wire){.peer = t->peer, .dir = t->dir, .fabric = t->fabric};
        if (!fcp_at_caller(t)) {
            w->segments = (uint16_t)fcp_segments_block(arena, t, w->segment);
            continue;
        }
        fcp_strided s[FCP_SEGMENTS];
        w->segments = (uint16_t)fcp_segments_caller(arena, tensors, t, s);
        for (uint32_t j = 0; j < w->segments; j++) {
            w->segment[j] = (fcp_segment){s[j].data, fcp_strided_bytes(&s[j])};
            if (fcp_strided_is_one(&s[j])) continue;
            w->segment[j].data = packed;
            packed += w->segment[j].bytes;
            if (w->dir == FCP_SEND) fcp_strided_copy(&s[j], w->segment[j].data, false);
        }
    }
    return FCP_OK;
}

void fcp_wires_unpack(const fcp_wires *wires, const fcp_arena *arena, const fcp_tensors *tensors,
                      const fcp_instr *launch) {
    if (arena->heads == arena->plan->problem->heads) return;
    for (uint32_t i = 0; i < launch->b; i++) {
        const fcp_transfer *t = &arena->plan->transfers[launch->a + i];
        fcp_strided s[FCP_SEGMENTS];
        if (!fcp_at_caller(t) || t->dir != FCP_RECV) continue;
        uint32_t count = fcp_segments_caller(arena, tensors, t, s);
        for (uint32_t j = 0; j < count; j++)
            if (!fcp_strided_is_one(&s[j])) fcp_strided_copy(&s[j], wires->list[i].segment[j].data, true);
    }
}

void fcp_wires_free(fcp_wires *wires) {
    free(wires->list);
    free(wires->packed);
    *wires = (fcp_wires){0};
}
