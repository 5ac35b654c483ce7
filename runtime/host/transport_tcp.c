/* transport_tcp.c: the transport "tcp": every rank of a plan is a process, and each pair of them has connections.
 * Unlike MPI it needs no launcher of its own, so it works under torchrun and where no MPI is installed.
 *
 * Requires: as many processes as ranks, whose machines reach each other by IPv4; an id by which they find each other
 *           (HOST:PORT:SECRET, the text that rank 0 prints or a caller passes).
 * Gives:    fcp_transport_tcp.
 * Method:   tcp_join.c connects all ranks. A wire is a frame: a header, then its segments end to end. Two ranks launch
 *           their rounds in the same order. So a frame is for the round that its receiver is in, or for a later one. A
 *           frame for a later round stays in the socket. The header says which round a frame is for, and the receiver
 *           checks it. Heartbeats (heartbeat.h) have connections of their own; a heartbeat is one byte.
 * Failure:  a rank whose session fails closes its connections. Every rank that needs something from it sees that, fails
 *           too, and closes its own connections, until all ranks know. A process that dies is noticed in the same way.
 *           One that is stopped sends no heartbeats, so all that wait give up after the time limit. The limit also ends
 *           a wait in which no rank makes progress.
 * Cost:     two connections for each pair of ranks: this is meant for tens of ranks, not for thousands. One copy of the
 *           data on each side, beside the kernel's. Nothing is encrypted: an id's secret keeps strangers from
 *           connecting, but not from reading what travels.
 */
#include "runtime/host/executor.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/exec/session.h"
#include "runtime/exec/error_place.h"
#include "runtime/exec/recurrent_steps.h"
#include "runtime/host/message_group.h"
#include "runtime/host/heartbeat.h"
#include "runtime/host/tcp_join.h"

enum { SLICE = 20 }; /* milliseconds between two looks at the clock and at `aborted` */
enum { FRAME_WIRE = 0x66637001, FRAME_TOLD };

/* What a frame begins with. */
typedef struct frame {
    uint32_t kind, pass, round, fabric;
    uint64_t bytes; /* behind it */
} frame;

/* The header of the frame that comes next from a rank. */
typedef struct coming {
    frame next;
    size_t read; /* bytes of `next` that have come */
} coming;

typedef struct tcp_net {
    fcp_net base;
    fcp_place place;
    uint32_t timeout_s;
    bool nodes;            /* the plan has several */
    char host[FCP_TCP_HOST]; /* of rank 0, as the id has it */
    fcp_tcp_pair *pairs;
    coming *coming;        /* from each rank */
    struct pollfd *polled; /* room for all ranks */
    uint32_t *polled_peer;
    fcp_heartbeat heartbeat;
    _Atomic bool aborted;
    fcp_group group;       /* under way */
    size_t *done;          /* bytes of each message that have been moved */
    uint32_t done_held, pass, round;
} tcp_net;

static int data_of(const tcp_net *n, uint32_t rank) { return n->pairs[rank][FCP_TCP_DATA]; }

static fcp_code gone(uint32_t rank, fcp_error *err) {
    return fcp_fail_at(err, FCP_E_RUN, fcp_where_rank(rank), "rank %u has failed, or its process has ended", rank);
}

static bool try_again(void) { return errno == EAGAIN || errno == EINTR; }

/* Tells all others that this process lives, and reads what has come of them. */
static void beat(void *context, bool got_on) {
    tcp_net *n = context;
    const char byte = got_on;
    char come[64];
    for (uint32_t r = 0; r < n->base.ranks; r++) {
        const int s = n->pairs[r][FCP_TCP_BEATS];
        if (s < 0) continue;
        ssize_t got;
        send(s, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT); /* if there is no room, it is stopped, and misses nothing */
        while ((got = recv(s, come, sizeof come, MSG_DONTWAIT)) > 0)
            fcp_heartbeat_heard(&n->heartbeat, r, memchr(come, true, (size_t)got) != NULL);
        if (!got || errno == ECONNRESET) fcp_heartbeat_ended(&n->heartbeat, r);
    }
}

/* --- opening and closing ------------------------------------------------------------------------------------------ */

static void close_all(tcp_net *n) {
    fcp_heartbeat_end(&n->heartbeat);
    for (uint32_t r = 0; n->pairs && r < n->base.ranks; r++)
        for (int line = 0; line < FCP_TCP_LINES; line++)
            if (n->pairs[r][line] >= 0) close(n->pairs[r][line]);
    free(n->pairs);
    free(n->coming);
    free(n->polled);
    free(n->polled_peer);
    fcp_group_free(&n->group);
    free(n->done);
    free(n);
}

static void tcp_close(fcp_net *base) { close_all((tcp_net *)base); }

static fcp_code tcp_open(uint32_t ranks, uint32_t gpus, const fcp_start *start, fcp_net **out_net, fcp_error *err) {
    tcp_net *n = calloc(1, sizeof *n);
    if (!n) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for a net");
    n->base = (fcp_net){.transport = &fcp_transport_tcp, .ranks = ranks, .rank_count = 1};
    n->nodes = ranks > gpus;
    n->pairs = calloc(ranks, sizeof *n->pairs);
    n->coming = calloc(ranks, sizeof *n->coming);
    n->polled = calloc(ranks, sizeof *n->polled);
    n->polled_peer = calloc(ranks, sizeof *n->polled_peer);
    fcp_code code = n->pairs && n->coming && n->polled && n->polled_peer
                        ? FCP_OK : fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %u connections", ranks);
    for (uint32_t r = 0; n->pairs && r < ranks; r++)
        for (int line = 0; line < FCP_TCP_LINES; line++) n->pairs[r][line] = -1;
    if (!code) code = fcp_place_find(start, ranks, gpus, &n->place, err);
    if (code) {
        close_all(n);
        return code;
    }
    /* Where all ranks are on one node, this machine is that node. */
    const char *master = getenv("MASTER_ADDR"); /* torchrun's: the machine of rank 0 */
    if (master && *master) snprintf(n->host, sizeof n->host, "%s", master);
    else if (!n->nodes || gethostname(n->host, sizeof n->host - 1)) snprintf(n->host, sizeof n->host, "127.0.0.1");
    n->base.first_rank = n->place.rank;
    n->base.local = n->place.local;
    *out_net = &n->base;
    return FCP_OK;
}

static fcp_code tcp_connect(fcp_net *base, fcp_session *session, const fcp_start *start, fcp_error *err) {
    tcp_net *n = (tcp_net *)base;
    const bool given = start && start->id, first = n->place.rank == 0;
    char id[FCP_ID_BYTES] = {0};
    fcp_tcp_id parts = {0};
    uint16_t port = 0;
    int listens = -1;
    n->timeout_s = session->timeout_s;
    n->place.interrupt = base->interrupt;
    if (base->ranks == 1) return FCP_OK;
    if (given) memcpy(id, start->id, FCP_ID_BYTES);
    fcp_code code = given ? fcp_tcp_id_read(id, &parts, err) : FCP_OK;
    if (!code && first) code = fcp_tcp_listen(given ? parts.host : n->host, n->nodes, parts.port, &listens, &port, err);
    if (!code && first && !given) code = fcp_tcp_id_write(n->host, port, id, err);
    if (!code) code = fcp_id_share(&n->place, start, n->timeout_s, (uint8_t *)id, err);
    if (!code) code = fcp_tcp_id_read(id, &parts, err);
    if (!code) memcpy(n->host, parts.host, sizeof n->host);
    if (!code) code = fcp_tcp_join(&n->place, &parts, listens, n->timeout_s, n->pairs, err);
    if (listens >= 0) close(listens);
    return code ? code : fcp_heartbeat_begin(&n->heartbeat, base->ranks, n->timeout_s, beat, n, err);
}

static uint64_t tcp_progress(const fcp_net *base) {
    return fcp_heartbeat_progress(&((const tcp_net *)base)->heartbeat);
}

/* An id for one net more: a port that is free now, on rank 0's machine. */
static fcp_code tcp_make_id(const fcp_net *base, void *out_id, fcp_error *err) {
    const tcp_net *n = (const tcp_net *)base;
    int s;
    uint16_t port;
    fcp_code code = fcp_tcp_listen(n->host, n->nodes, 0, &s, &port, err);
    if (code) return code;
    close(s);
    return fcp_tcp_id_write(n->host, port, out_id, err);
}

/* From any thread. Sockets are shut and not closed: another thread may be using them. */
static void tcp_abort(fcp_net *base) {
    tcp_net *n = (tcp_net *)base;
    n->aborted = true;
    for (uint32_t r = 0; r < base->ranks; r++)
        if (data_of(n, r) >= 0) shutdown(data_of(n, r), SHUT_RDWR);
}

/* --- transfers ---------------------------------------------------------------------------------------------------- */

static fcp_code tcp_launch(fcp_net *base, uint32_t rank, fcp_pass pass, uint32_t round, const fcp_wire *wires,
                           uint32_t count, fcp_error *err) {
    tcp_net *n = (tcp_net *)base;
    (void)rank; /* this process's */
    fcp_code code = fcp_group_begin(&n->group, wires, count, sizeof(frame), err);
    if (code) return code;
    if (count > n->done_held) {
        free(n->done);
        n->done = calloc(count, sizeof *n->done);
        n->done_held = n->done ? count : 0;
        if (!n->done) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %u messages", count);
    }
    n->pass = pass;
    n->round = round;
    for (uint32_t i = 0; i < count; i++) {
        const frame f = {FRAME_WIRE, pass, round, wires[i].fabric, fcp_wire_bytes(&wires[i])};
        const bool sends = wires[i].dir == FCP_SEND;
        if (sends) memcpy(n->group.message[i], &f, sizeof f);
        n->done[i] = sends ? 0 : sizeof f; /* a header that comes is read into the peer's record */
    }
    return FCP_OK;
}

/* The first wire to or from a rank that is not complete; FCP_NONE: there is none. */
static uint32_t first_open(const tcp_net *n, uint32_t rank, fcp_direction dir) {
    const fcp_group *g = &n->group;
    for (uint32_t i = 0; i < g->count; i++)
        if (g->wires[i].peer == rank && g->wires[i].dir == dir && !g->complete[i]) return i;
    return FCP_NONE;
}

/* The receive that a frame is for. */
static fcp_code match(const tcp_net *n, uint32_t rank, uint32_t *out_wire, fcp_error *err) {
    const frame *f = &n->coming[rank].next;
    for (uint32_t i = 0; i < n->group.count; i++) {
        const fcp_wire *w = &n->group.wires[i];
        if (w->peer != rank || w->dir != FCP_RECV || w->fabric != f->fabric || n->group.complete[i]) continue;
        *out_wire = i;
        if (f->kind == FRAME_WIRE && f->pass == n->pass && f->round == n->round && f->bytes == fcp_wire_bytes(w))
            return FCP_OK;
    }
    char came[FCP_ROUND_TEXT], own[FCP_ROUND_TEXT];
    return fcp_fail(err, FCP_E_RUN, "rank %u sent %llu bytes of pass %u, %s, fabric %u, which is not what %s waits for",
                    rank, (unsigned long long)f->bytes, f->pass, fcp_round_text(f->round, came), f->fabric,
                    fcp_round_text(n->round, own));
}

/* Reads what has come from a rank, as far as the group waits for it. False: the connection is closed. */
static bool receive_from(tcp_net *n, uint32_t rank, uint32_t *out_wire, fcp_error *err) {
    coming *p = &n->coming[rank];
    while (first_open(n, rank, FCP_RECV) != FCP_NONE) {
        void *to = (char *)&p->next + p->read;
        size_t bytes = sizeof p->next - p->read;
        if (!bytes) {
            if (match(n, rank, out_wire, err)) return false;
            to = n->group.message[*out_wire] + n->done[*out_wire];
            bytes = fcp_group_bytes(&n->group, *out_wire) - n->done[*out_wire];
        }
        ssize_t got = bytes ? recv(data_of(n, rank), to, bytes, 0) : 0;
        if (got < 0 && try_again()) return true;
        if (got < 0 || (!got && bytes)) {
            gone(rank, err);
            return false;
        }
        if (got) fcp_heartbeat_moved(&n->heartbeat);
        if (p->read < sizeof p->next) p->read += (size_t)got;
        else n->done[*out_wire] += (size_t)got;
        if (p->read == sizeof p->next && !match(n, rank, out_wire, err) &&
            n->done[*out_wire] == fcp_group_bytes(&n->group, *out_wire)) {
            p->read = 0;
            fcp_group_complete(&n->group, *out_wire);
        }
    }
    return true;
}

/* Sends what the connection takes, one message after the other. False: it is closed. */
static bool send_to(tcp_net *n, uint32_t rank, fcp_error *err) {
    for (uint32_t i; (i = first_open(n, rank, FCP_SEND)) != FCP_NONE;) {
        const size_t bytes = fcp_group_bytes(&n->group, i);
        ssize_t sent = send(data_of(n, rank), n->group.message[i] + n->done[i], bytes - n->done[i], MSG_NOSIGNAL);
        if (sent < 0 && try_again()) return true;
        if (sent < 0) {
            gone(rank, err);
            return false;
        }
        fcp_heartbeat_moved(&n->heartbeat);
        n->done[i] += (size_t)sent;
        if (n->done[i] == bytes) fcp_group_complete(&n->group, i);
    }
    return true;
}

/* Waits at most so long for any connection of the group, and moves what it can. */
static bool go_on(tcp_net *n, int milliseconds, uint32_t *out_wire, fcp_error *err) {
    nfds_t count = 0;
    for (uint32_t i = 0; i < n->group.count; i++) {
        const fcp_wire *w = &n->group.wires[i];
        short event = w->dir == FCP_SEND ? POLLOUT : POLLIN;
        nfds_t at = 0;
        if (n->group.complete[i]) continue;
        *out_wire = i;
        while (at < count && n->polled_peer[at] != w->peer) at++;
        if (at == count) {
            n->polled_peer[count] = w->peer;
            n->polled[count++] = (struct pollfd){.fd = data_of(n, w->peer)};
        }
        n->polled[at].events |= event;
    }
    if (poll(n->polled, count, milliseconds) <= 0) return true;
    for (nfds_t i = 0; i < count; i++) {
        if (!n->polled[i].revents) continue;
        if (!receive_from(n, n->polled_peer[i], out_wire, err) || !send_to(n, n->polled_peer[i], err)) return false;
    }
    return true;
}

static fcp_wait tcp_wait(fcp_net *base, uint32_t rank, uint32_t milliseconds, uint32_t *out_wire, fcp_error *err) {
    tcp_net *n = (tcp_net *)base;
    const uint64_t until = fcp_clock_ns() + milliseconds * UINT64_C(1000000);
    (void)rank; /* this process's */
    for (;;) {
        if (!n->group.left) return FCP_WAIT_DONE;
        bool good = !n->aborted && go_on(n, SLICE, out_wire, err) &&
                    (!n->group.left || !fcp_heartbeat_check(&n->heartbeat, err));
        if (n->aborted) return FCP_WAIT_ABORTED; /* also if that is why it failed */
        if (!good) return FCP_WAIT_FAILED;
        if (n->group.left && fcp_clock_ns() >= until) break;
    }
    *out_wire = fcp_group_late(&n->group);
    return FCP_WAIT_PENDING;
}

/* --- between processes -------------------------------------------------------------------------------------------- */

/* Moves all bytes to or from a rank. The time limit starts anew whenever some rank gets on. */
static fcp_code move_all(tcp_net *n, uint32_t rank, void *data, size_t bytes, bool sends, fcp_error *err) {
    fcp_heartbeat_wait wait = fcp_heartbeat_wait_begin(&n->heartbeat);
    for (size_t at = 0; at < bytes;) {
        ssize_t moved = fcp_tcp_move(data_of(n, rank), (char *)data + at, bytes - at, sends);
        if (moved < 0) return gone(rank, err);
        at += (size_t)moved;
        if (moved) {
            fcp_heartbeat_moved(&n->heartbeat);
            continue;
        }
        if (fcp_interrupted(n->base.interrupt)) return fcp_fail(err, FCP_E_INTERRUPTED, "interrupted");
        fcp_code code = fcp_heartbeat_check(&n->heartbeat, err);
        if (code) return code;
        if (fcp_heartbeat_wait_ends(&n->heartbeat, &wait))
            return fcp_fail_at(err, FCP_E_RUN, fcp_where_rank(rank),
                               "telling all ranks did not end within %u s: rank %u has not come so far", n->timeout_s,
                               rank);
    }
    return FCP_OK;
}

/* Sends bytes to a rank, or receives as many from it, outside of any group. */
static fcp_code tell(tcp_net *n, uint32_t rank, void *data, size_t bytes, bool sends, fcp_error *err) {
    frame f = {.kind = FRAME_TOLD, .bytes = bytes};
    fcp_code code = move_all(n, rank, &f, sizeof f, sends, err);
    if (!code && (f.kind != FRAME_TOLD || f.bytes != bytes)) code = gone(rank, err);
    return code ? code : move_all(n, rank, data, bytes, sends, err);
}

static fcp_code tcp_gather(fcp_net *base, const void *mine, size_t bytes, void *all, fcp_error *err) {
    tcp_net *n = (tcp_net *)base;
    char *to = all;
    fcp_code code = FCP_OK;
    memcpy(to + n->place.rank * bytes, mine, bytes);
    if (n->place.rank) {
        code = tell(n, 0, to + n->place.rank * bytes, bytes, true, err);
        return code ? code : tell(n, 0, all, bytes * base->ranks, false, err);
    }
    for (uint32_t r = 1; r < base->ranks && !code; r++) code = tell(n, r, to + r * bytes, bytes, false, err);
    for (uint32_t r = 1; r < base->ranks && !code; r++) code = tell(n, r, all, bytes * base->ranks, true, err);
    return code;
}

static fcp_code tcp_collect(fcp_net *base, uint32_t from, void *memory, size_t bytes, fcp_error *err) {
    tcp_net *n = (tcp_net *)base;
    if (!from || (n->place.rank && n->place.rank != from)) return FCP_OK;
    return tell(n, n->place.rank ? 0 : from, memory, bytes, n->place.rank != 0, err);
}

const fcp_transport fcp_transport_tcp = {
    .name = "tcp",
    .processes = true,
    .make_id = tcp_make_id,
    .open = tcp_open,
    .connect = tcp_connect,
    .close = tcp_close,
    .launch = tcp_launch,
    .wait = tcp_wait,
    .abort = tcp_abort,
    .progress = tcp_progress,
    .gather = tcp_gather,
    .collect = tcp_collect,
};
