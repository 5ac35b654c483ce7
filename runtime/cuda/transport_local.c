/* transport_local.c: the transport "local": all ranks are in this process, and a transfer is a copy from one arena to
 * another.
 *
 * When two ranks have launched the same round, the copies of their transfers are put into the receiver's stream for the
 * fabric. There they wait for the event that was recorded in the sender's stream when its launch began. A launch is
 * complete when the copies of all its transfers are in streams. The sender's stream then waits for the copies of what
 * it sent, so that nothing overwrites the block before it has been copied.
 *
 * Requires: the streams of all ranks; all calls come from one thread.
 * Cost:     an event for each launch and each send. Finding the other side of a transfer is linear in the transfers of
 *           a launch, which are one sent and one received on each fabric.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/cuda/cuda.h"

/* A transfer that was sent: when this event has come, the receiver has it. */
typedef struct sent {
    cuda_device *device;
    cu_event event;
    uint32_t fabric;
} sent;

/* A rank, and its launch if it has begun one. */
typedef struct endpoint {
    bool launched;
    fcp_pass pass;
    uint32_t round, count, left; /* left: wires whose copies are not in a stream yet */
    const fcp_wire *wires;
    cu_event arrived[FCP_FABRICS]; /* where the launch began in the rank's stream for that fabric; NULL: it has none */
    uint8_t *put;                /* for each wire: are its copies in a stream? */
    sent *sent;                  /* the transfers that it sent */
    uint32_t sent_count, capacity;
} endpoint;

typedef struct local_net {
    fcp_net base;
    fcp_cuda_session *session;
    bool aborted;
    endpoint ends[];
} local_net;

static fcp_code local_open(uint32_t ranks, uint32_t gpus, const fcp_start *start, fcp_net **out_net, fcp_error *err) {
    (void)gpus, (void)start; /* all ranks are in this process, whatever the nodes are */
    local_net *n = calloc(1, sizeof *n + ranks * sizeof *n->ends);
    if (!n) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %u ranks", ranks);
    n->base = (fcp_net){.transport = &fcp_transport_local, .ranks = ranks, .rank_count = ranks};
    *out_net = &n->base;
    return FCP_OK;
}

static fcp_code local_connect(fcp_net *base, fcp_session *session, const fcp_start *start, fcp_error *err) {
    (void)start, (void)err;
    ((local_net *)base)->session = (fcp_cuda_session *)session;
    return FCP_OK;
}

/* Gives the events of a launch back. */
static void forget(local_net *n, uint32_t rank) {
    endpoint *e = &n->ends[rank];
    for (uint32_t i = 0; i < e->sent_count; i++) fcp_cuda_event_give(e->sent[i].device, e->sent[i].event);
    for (int f = 0; f < FCP_FABRICS; f++) {
        if (e->arrived[f]) fcp_cuda_event_give(n->session->ranks[rank].device, e->arrived[f]);
        e->arrived[f] = NULL;
    }
    e->sent_count = 0;
    e->launched = false;
}

static void local_reset(fcp_net *base) {
    local_net *n = (local_net *)base;
    for (uint32_t r = 0; r < base->ranks; r++) forget(n, r);
    n->aborted = false;
}

static void local_abort(fcp_net *base) { ((local_net *)base)->aborted = true; }

static void local_close(fcp_net *base) {
    local_net *n = (local_net *)base;
    for (uint32_t r = 0; r < base->ranks; r++) {
        free(n->ends[r].put);
        free(n->ends[r].sent);
    }
    free(n);
}

/* --- transfers ---------------------------------------------------------------------------------------------------- */

/* Puts the copies of a transfer into the receiver's stream. Both sides have been launched. */
static fcp_code put_transfer(local_net *n, uint32_t from, const fcp_wire *send, uint32_t to, const fcp_wire *receive,
                             fcp_error *err) {
    fcp_cuda_session *s = n->session;
    cuda_rank *sender = &s->ranks[from], *receiver = &s->ranks[to];
    cu_stream stream = fcp_cuda_fabric_stream(receiver, send->fabric);
    endpoint *e = &n->ends[from];
    if (send->segments != receive->segments) return fcp_fail(err, FCP_E_INTERNAL, "a send and its receive differ");
    fcp_code code = fcp_cuda_event_await(n->session, stream, e->arrived[send->fabric], err);
    for (uint32_t i = 0; !code && i < send->segments; i++) {
        const fcp_segment *src = &send->segment[i], *dst = &receive->segment[i];
        if (src->bytes != dst->bytes) return fcp_fail(err, FCP_E_INTERNAL, "a send and its receive differ in size");
        code = fcp_cuda_copy(s, receiver->device, (uintptr_t)dst->data, sender->device, (uintptr_t)src->data,
                             src->bytes, stream, err);
    }
    sent done = {receiver->device, NULL, send->fabric};
    if (!code) code = fcp_cuda_event_record(n->session, receiver->device, stream, &done.event, err);
    if (!code) e->sent[e->sent_count++] = done;
    return code;
}

/* Finds the wire of a rank's launch that is the other side of w, a wire of rank `other`. Returns its index, or the
 * count of wires if there is none. */
static uint32_t partner(const endpoint *e, uint32_t other, const fcp_wire *w) {
    uint32_t i = 0;
    while (i < e->count && (e->wires[i].peer != other || e->wires[i].fabric != w->fabric || e->wires[i].dir == w->dir))
        i++;
    return i;
}

static fcp_code local_launch(fcp_net *base, uint32_t rank, fcp_pass pass, uint32_t round, const fcp_wire *wires,
                             uint32_t count, fcp_error *err) {
    local_net *n = (local_net *)base;
    endpoint *e = &n->ends[rank];
    cuda_rank *r = &n->session->ranks[rank];
    fcp_code code = FCP_OK;
    for (uint32_t i = 0; !code && i < count; i++)
        if (!e->arrived[wires[i].fabric])
            code = fcp_cuda_event_record(n->session, r->device, fcp_cuda_fabric_stream(r, wires[i].fabric),
                                         &e->arrived[wires[i].fabric], err);
    if (code) {
        forget(n, rank);
        return code;
    }
    if (count > e->capacity) {
        uint8_t *put = realloc(e->put, count);
        if (put) e->put = put;
        sent *more = realloc(e->sent, count * sizeof *more);
        if (more) e->sent = more;
        if (!put || !more) {
            forget(n, rank);
            return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for a group of %u", count);
        }
        e->capacity = count;
    }
    if (count) memset(e->put, 0, count);
    e->launched = true;
    e->pass = pass;
    e->round = round;
    e->wires = wires;
    e->count = e->left = count;
    e->sent_count = 0;
    for (uint32_t i = 0; !code && i < count; i++) {
        const fcp_wire *w = &wires[i];
        endpoint *peer = &n->ends[w->peer];
        if (!peer->launched || peer->pass != pass || peer->round != round) continue;
        uint32_t j = partner(peer, rank, w);
        if (j == peer->count || peer->put[j]) continue;
        code = w->dir == FCP_SEND ? put_transfer(n, rank, w, w->peer, &peer->wires[j], err)
                                  : put_transfer(n, w->peer, &peer->wires[j], rank, w, err);
        e->put[i] = peer->put[j] = 1;
        e->left--;
        peer->left--;
    }
    if (code) forget(n, rank);
    return code;
}

/* Waiting would not help: only another rank's launch, on this same thread, can complete this one. */
static fcp_wait local_wait(fcp_net *base, uint32_t rank, uint32_t milliseconds, uint32_t *out_wire, fcp_error *err) {
    local_net *n = (local_net *)base;
    endpoint *e = &n->ends[rank];
    fcp_code code = FCP_OK;
    (void)milliseconds;
    if (n->aborted) return FCP_WAIT_ABORTED;
    if (e->left) {
        *out_wire = 0;
        while (e->put[*out_wire]) ++*out_wire;
        return FCP_WAIT_PENDING;
    }
    for (uint32_t i = 0; !code && i < e->sent_count; i++)
        code = fcp_cuda_event_await(n->session, fcp_cuda_fabric_stream(&n->session->ranks[rank], e->sent[i].fabric),
                                    e->sent[i].event, err);
    forget(n, rank);
    return code ? FCP_WAIT_FAILED : FCP_WAIT_DONE;
}

/* Both sides are in this process. So the rank with the caller's tensors moves the bytes alone, and the home rank does
 * nothing. */
static fcp_code local_reshuffle(fcp_net *base, uint32_t rank, fcp_pass pass, const fcp_instr *launch,
                                const fcp_tensors *tensors, fcp_error *err) {
    fcp_cuda_session *s = ((local_net *)base)->session;
    return fcp_cuda_move_units(s, rank, pass, fcp_cuda_moved_by(s->plan, pass, launch), launch, tensors, err);
}

const fcp_transport fcp_transport_local = {.name = "local",
                                           .open = local_open,
                                           .connect = local_connect,
                                           .close = local_close,
                                           .launch = local_launch,
                                           .wait = local_wait,
                                           .reshuffle = local_reshuffle,
                                           .reset = local_reset,
                                           .abort = local_abort};
