/* transport.c: checks the arguments of calls to a transport, and does the right thing where its table has no function.
 *
 * Cost: linear in a group's wires.
 */
#include "runtime/exec/transport.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/exec/host_reshuffle.h"
#include "runtime/exec/session.h"

size_t fcp_wire_bytes(const fcp_wire *w) {
    size_t bytes = 0;
    for (uint32_t i = 0; i < w->segments; i++) bytes += w->segment[i].bytes;
    return bytes;
}

void fcp_wire_pack(const fcp_wire *w, char *to) {
    for (uint32_t i = 0; i < w->segments; to += w->segment[i++].bytes)
        if (w->segment[i].bytes) memcpy(to, w->segment[i].data, w->segment[i].bytes);
}

void fcp_wire_unpack(const fcp_wire *w, const char *from) {
    for (uint32_t i = 0; i < w->segments; from += w->segment[i++].bytes)
        if (w->segment[i].bytes) memcpy(w->segment[i].data, from, w->segment[i].bytes);
}

fcp_code fcp_net_open(const fcp_transport *transport, uint32_t ranks, uint32_t gpus, const fcp_start *start,
                      fcp_net **out_net, fcp_error *err) {
    if (!transport || !out_net || ranks == 0) return fcp_fail(err, FCP_E_ARGUMENT, "a net needs a transport and ranks");
    return transport->open(ranks, gpus, start, out_net, err);
}

fcp_code fcp_net_connect(fcp_net *net, fcp_session *session, const fcp_start *start, fcp_error *err) {
    net->interrupt = &session->interrupt;
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

uint64_t fcp_net_progress(const fcp_net *net) {
    return net->transport->progress ? net->transport->progress(net) : 0;
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

/* Returns whether what a transfer moves is packed before it and unpacked after it. Others move slots. */
static bool has_message(const fcp_arena *arena, const fcp_transfer *t) {
    return t->cls == FCP_IN || t->cls == FCP_OUT || fcp_is_rounded(arena->plan, t);
}

/* Bytes that a transfer's message takes; 0: it has none. */
static size_t message_room(const fcp_arena *arena, const fcp_transfer *t) {
    if (!has_message(arena, t)) return 0;
    size_t bytes = fcp_message_bytes(arena->plan, arena->pass, t);
    return (bytes + FCP_MESSAGE_ALIGN - 1) / FCP_MESSAGE_ALIGN * FCP_MESSAGE_ALIGN;
}

/* The memory that a transfer moves; `message`: that of its message, if it has one. */
static void fill_wire(const fcp_arena *arena, const fcp_transfer *t, void *message, fcp_wire *w) {
    *w = (fcp_wire){.peer = t->peer, .dir = t->dir, .fabric = t->fabric};
    if (t->cls == FCP_KV && arena->keys_kept) return; /* no bytes: the round goes on as in any run */
    if (fcp_is_rounded(arena->plan, t)) {
        w->segments = (uint16_t)fcp_segments_rounded(arena, t, message, w->segment);
    } else if (has_message(arena, t)) {
        w->segments = 1;
        w->segment[0] = (fcp_segment){message, fcp_message_bytes(arena->plan, arena->pass, t)};
    } else {
        w->segments = (uint16_t)fcp_segments_block(arena, t, w->segment);
    }
}

fcp_code fcp_wires_make(fcp_wires *wires, const fcp_arena *arena, void *messages, size_t room,
                        const fcp_instr *launch, fcp_error *err) {
    if (launch->b > wires->capacity) {
        fcp_wire *bigger = realloc(wires->list, launch->b * sizeof *bigger);
        if (!bigger) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for a group of %u", launch->b);
        wires->list = bigger;
        wires->capacity = launch->b;
    }
    size_t need = 0;
    for (uint32_t i = 0; i < launch->b; i++) need += message_room(arena, &arena->plan->transfers[launch->a + i]);
    if (!messages && need > wires->messages_held) {
        free(wires->messages);
        wires->messages_held = 0;
        if (!(wires->messages = malloc(need)))
            return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory: %zu bytes of messages", need);
        wires->messages_held = need;
    }
    size_t used = 0; /* of the wires' own memory */
    for (uint32_t i = 0; i < launch->b; i++) {
        const fcp_transfer *t = &arena->plan->transfers[launch->a + i];
        const size_t part = room / ((size_t)FCP_FABRICS * FCP_DIRECTION_COUNT), takes = message_room(arena, t);
        const size_t place = part * (t->fabric * FCP_DIRECTION_COUNT + t->dir);
        char *message = !takes ? NULL : messages ? (char *)messages + place : wires->messages + used;
        fill_wire(arena, t, message, &wires->list[i]);
        used += takes;
    }
    return FCP_OK;
}

void fcp_wires_free(fcp_wires *wires) {
    free(wires->list);
    free(wires->messages);
    *wires = (fcp_wires){0};
}
