/* transport_tcp.c: the transport "tcp": every rank of a plan is a process, and each pair of them has a connection.
 *
 * MPI needs its own launcher. This one works under torchrun too, and where no MPI is installed.
 *
 * Requires: as many processes as ranks, whose machines reach each other by IPv4; an id for them to find each other
 *           (HOST:PORT:SECRET, the text that rank 0 prints or a caller hands in).
 * Gives:    fcp_transport_tcp.
 * Method:   every rank listens. All connect to rank 0, say the secret and where they listen, and get the list of all
 *           ranks; then each connects to those between 0 and itself. A wire is a frame: a header, then its segments end
 *           to end. Two ranks launch their rounds in the same order, so a frame is for the round that its receiver is
 *           in, or for a later one, and then it stays in the socket. The header proves it.
 * Failure:  a rank whose session fails closes its connections. Whoever needs something of it sees that, fails too, and
 *           closes its own, and so on, until all know. A process that dies is seen in the same way. A rank that stalls
 *           exceeds the time limit of those that wait for it.
 * Cost:     a connection for each pair of ranks: it is meant for tens of ranks, not for thousands. One copy of the data
 *           on each side, beside the kernel's. Nothing is encrypted: the secret keeps strangers' connections out, not
 *           their eyes.
 */
#define _GNU_SOURCE
#include "runtime/host/transport_tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/exec/session.h"
#include "runtime/exec/where.h"
#include "runtime/host/group.h"
#include "runtime/rendezvous/rendezvous.h"

enum { SLICE = 20, SECRET = 32, HOST = 64 }; /* SLICE: milliseconds between two looks at the clock and at `aborted` */
enum { FRAME_WIRE = 0x66637001, FRAME_TOLD };

/* What a frame begins with. */
typedef struct frame {
    uint32_t kind, pass, round, fabric;
    uint64_t bytes; /* behind it */
} frame;

/* What a process says first on a connection that it has made. */
typedef struct hello {
    char secret[SECRET];
    uint32_t rank, port; /* port: where it listens */
} hello;

/* Where a rank listens: both as the network has them. */
typedef struct address {
    uint32_t host;
    uint16_t port, unused;
} address;

/* A connection, and the header of the frame that comes next on it. */
typedef struct peer {
    int socket; /* -1: there is none */
    frame next;
    size_t read; /* bytes of `next` that have come */
} peer;

typedef struct tcp_net {
    fcp_net base;
    fcp_place place;
    uint32_t timeout_s;
    char host[HOST];       /* of rank 0, as the id has it */
    int listens;           /* the socket that others connect to; -1: there is none */
    peer *peers;
    struct pollfd *polled; /* room for all peers */
    uint32_t *polled_peer;
    _Atomic bool aborted;
    fcp_group group;       /* under way */
    size_t *done;          /* bytes of each message that have been moved */
    uint32_t done_held, pass, round;
} tcp_net;

/* --- ids ---------------------------------------------------------------------------------------------------------- */

typedef struct id_parts {
    char host[HOST], secret[SECRET + 1];
    uint16_t port;
} id_parts;

static fcp_code read_id(const uint8_t id[FCP_ID_BYTES], id_parts *out, fcp_error *err) {
    char text[FCP_ID_BYTES + 1] = "";
    unsigned port = 0;
    int end = 0;
    memcpy(text, id, FCP_ID_BYTES);
    if (sscanf(text, "%63[^:]:%5u:%32[0-9a-f]%n", out->host, &port, out->secret, &end) == 3 && port && port < 65536 &&
        strlen(out->secret) == SECRET && !text[end]) {
        out->port = (uint16_t)port;
        return FCP_OK;
    }
    return fcp_fail(err, FCP_E_START, "an id of tcp is HOST:PORT:SECRET, with a secret of %d hexadecimal digits",
                    SECRET);
}

static fcp_code write_id(const char *host, uint16_t port, char id[FCP_ID_BYTES], fcp_error *err) {
    uint8_t random[SECRET / 2];
    char secret[SECRET + 1];
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return fcp_fail(err, FCP_E_START, "the system gives no random bytes");
    for (size_t i = 0; i < sizeof random; i++) snprintf(secret + 2 * i, 3, "%02x", random[i]);
    memset(id, 0, FCP_ID_BYTES);
    snprintf(id, FCP_ID_BYTES, "%s:%u:%s", host, port, secret);
    return FCP_OK;
}

/* --- sockets ------------------------------------------------------------------------------------------------------ */

static fcp_code no_socket(const char *what, fcp_error *err) {
    return fcp_fail(err, FCP_E_START, "%s: %s", what, strerror(errno));
}

/* Listens at a port, 0 for any, and says at which. */
static fcp_code listen_at(uint16_t port, uint32_t ranks, int *out_socket, uint16_t *out_port, fcp_error *err) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_ANY)}};
    socklen_t size = sizeof at;
    int yes = 1, s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s < 0) return no_socket("no socket to listen at", err);
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(s, (struct sockaddr *)&at, sizeof at) || listen(s, ranks < 4096 ? (int)ranks : 4096) ||
        getsockname(s, (struct sockaddr *)&at, &size)) {
        fcp_code code = fcp_fail(err, FCP_E_START, "cannot listen at port %u: %s", port, strerror(errno));
        close(s);
        return code;
    }
    *out_socket = s;
    *out_port = ntohs(at.sin_port);
    return FCP_OK;
}

static fcp_code gone(fcp_code code, uint32_t rank, fcp_error *err) {
    return fcp_fail_at(err, code, fcp_where_rank(rank), "rank %u has failed, or its process has ended", rank);
}

/* Waits for a socket. False: the time is over. */
static bool wait_for(int socket, short events, fcp_patience *patience) {
    for (;;) {
        struct pollfd p = {.fd = socket, .events = events};
        if (poll(&p, 1, SLICE) > 0) return true;
        if (fcp_patience_ends(patience)) return false;
    }
}

/* Moves all bytes, within the time limit. False: the other side has closed, or the time is over. */
static bool move_all(int socket, void *data, size_t bytes, bool sends, fcp_patience *patience) {
    for (size_t at = 0; at < bytes;) {
        if (!wait_for(socket, sends ? POLLOUT : POLLIN, patience)) return false;
        ssize_t moved = sends ? send(socket, (char *)data + at, bytes - at, MSG_NOSIGNAL)
                              : recv(socket, (char *)data + at, bytes - at, 0);
        if (moved > 0) at += (size_t)moved;
        else if (!moved || (errno != EAGAIN && errno != EINTR)) return false;
    }
    return true;
}

static void tune(int socket) {
    int yes = 1;
    fcntl(socket, F_SETFL, O_NONBLOCK);
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

/* Connects to a rank, which may not listen yet. */
static fcp_code reach(const tcp_net *n, const struct sockaddr_in *at, uint32_t rank, int *out, fcp_patience *patience,
                      fcp_error *err) {
    char host[INET_ADDRSTRLEN] = "";
    inet_ntop(AF_INET, &at->sin_addr, host, sizeof host);
    for (long pause = 1000000;; fcp_pause(&pause, 50000000)) {
        int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), failed = 0;
        socklen_t size = sizeof failed;
        if (s < 0) return no_socket("no socket to connect", err);
        if (connect(s, (const struct sockaddr *)at, sizeof *at)) failed = errno;
        if (failed == EINPROGRESS && wait_for(s, POLLOUT, patience))
            getsockopt(s, SOL_SOCKET, SO_ERROR, &failed, &size);
        if (!failed) {
            tune(s);
            *out = s;
            return FCP_OK;
        }
        close(s);
        if (fcp_patience_ends(patience) || failed == EINPROGRESS)
            return fcp_fail_at(err, FCP_E_START, fcp_where_rank(rank),
                               "rank %u is not reached at %s:%u within %u s: %s", rank, host, ntohs(at->sin_port),
                               n->timeout_s, strerror(failed == EINPROGRESS ? ETIMEDOUT : failed));
    }
}

/* --- joining ------------------------------------------------------------------------------------------------------ */

/* Takes a connection of another rank that knows the secret; others are closed again. */
static fcp_code take(tcp_net *n, const char *secret, address *where, fcp_patience *patience, fcp_error *err) {
    for (;;) {
        struct sockaddr_in from;
        socklen_t size = sizeof from;
        hello h;
        if (!wait_for(n->listens, POLLIN, patience)) {
            uint32_t missing = 0;
            while (missing == n->place.rank || n->peers[missing].socket >= 0) missing++;
            return fcp_fail_at(err, FCP_E_START, fcp_where_rank(missing), "rank %u did not come within %u s", missing,
                               n->timeout_s);
        }
        int s = accept4(n->listens, (struct sockaddr *)&from, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (s < 0) continue;
        fcp_patience brief = fcp_patience_of(5, 0.1);
        if (!move_all(s, &h, sizeof h, false, &brief) || memcmp(h.secret, secret, SECRET) || h.rank >= n->base.ranks ||
            h.rank == n->place.rank || n->peers[h.rank].socket >= 0) {
            close(s);
            continue;
        }
        tune(s);
        n->peers[h.rank].socket = s;
        if (where) where[h.rank] = (address){from.sin_addr.s_addr, htons((uint16_t)h.port), 0};
        return FCP_OK;
    }
}

/* Connects to a rank and says who this is. */
static fcp_code greet(tcp_net *n, const struct sockaddr_in *at, uint32_t rank, const hello *own, fcp_patience *patience,
                      fcp_error *err) {
    fcp_code code = reach(n, at, rank, &n->peers[rank].socket, patience, err);
    if (code) return code;
    bool said = move_all(n->peers[rank].socket, (void *)(uintptr_t)own, sizeof *own, true, patience);
    return said ? FCP_OK : gone(FCP_E_START, rank, err);
}

static fcp_code find_host(const char *host, struct sockaddr_in *at, fcp_error *err) {
    const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int failed = getaddrinfo(host, NULL, &hints, &found);
    if (failed) return fcp_fail(err, FCP_E_START, "rank 0's host '%s' is not found: %s", host, gai_strerror(failed));
    at->sin_addr = ((struct sockaddr_in *)(void *)found->ai_addr)->sin_addr;
    at->sin_family = AF_INET;
    freeaddrinfo(found);
    return FCP_OK;
}

/* Rank 0: all others come, and get the list of all. */
static fcp_code join_all(tcp_net *n, const char *secret, address *where, fcp_patience *patience, fcp_error *err) {
    fcp_code code = FCP_OK;
    for (uint32_t r = 1; r < n->base.ranks && !code; r++) code = take(n, secret, where, patience, err);
    for (uint32_t r = 1; r < n->base.ranks && !code; r++)
        if (!move_all(n->peers[r].socket, where, n->base.ranks * sizeof *where, true, patience))
            code = gone(FCP_E_START, r, err);
    return code;
}

/* Another rank: connects to those before it, and takes the connections of those behind it. */
static fcp_code join_others(tcp_net *n, const id_parts *id, address *where, uint16_t port, fcp_patience *patience,
                            fcp_error *err) {
    struct sockaddr_in at = {.sin_port = htons(id->port)};
    hello own = {.rank = n->place.rank, .port = port};
    memcpy(own.secret, id->secret, SECRET);
    fcp_code code = find_host(id->host, &at, err);
    if (!code) code = greet(n, &at, 0, &own, patience, err);
    if (!code && !move_all(n->peers[0].socket, where, n->base.ranks * sizeof *where, false, patience))
        code = fcp_fail(err, FCP_E_START, "rank 0 did not say within %u s where all ranks are", n->timeout_s);
    for (uint32_t r = 1; r < n->place.rank && !code; r++) {
        at.sin_addr.s_addr = where[r].host;
        at.sin_port = where[r].port;
        code = greet(n, &at, r, &own, patience, err);
    }
    for (uint32_t r = n->place.rank + 1; r < n->base.ranks && !code; r++)
        code = take(n, id->secret, NULL, patience, err);
    return code;
}

/* --- opening and closing ------------------------------------------------------------------------------------------ */

static void close_all(tcp_net *n) {
    for (uint32_t r = 0; n->peers && r < n->base.ranks; r++)
        if (n->peers[r].socket >= 0) close(n->peers[r].socket);
    if (n->listens >= 0) close(n->listens);
    free(n->peers);
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
    n->listens = -1;
    n->peers = calloc(ranks, sizeof *n->peers);
    n->polled = calloc(ranks, sizeof *n->polled);
    n->polled_peer = calloc(ranks, sizeof *n->polled_peer);
    fcp_code code = n->peers && n->polled && n->polled_peer
                        ? FCP_OK : fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %u connections", ranks);
    for (uint32_t r = 0; n->peers && r < ranks; r++) n->peers[r].socket = -1;
    if (!code) code = fcp_place_find(start, ranks, gpus, &n->place, err);
    if (code) {
        close_all(n);
        return code;
    }
    /* Where all ranks are on one node, this machine is that node. */
    const char *master = getenv("MASTER_ADDR"); /* torchrun's: the machine of rank 0 */
    if (master && *master) snprintf(n->host, sizeof n->host, "%s", master);
    else if (ranks <= gpus || gethostname(n->host, sizeof n->host - 1)) snprintf(n->host, sizeof n->host, "127.0.0.1");
    n->base.first_rank = n->place.rank;
    n->base.local = n->place.local;
    *out_net = &n->base;
    return FCP_OK;
}

static fcp_code tcp_connect(fcp_net *base, fcp_session *session, const fcp_start *start, fcp_error *err) {
    tcp_net *n = (tcp_net *)base;
    const bool given = start && start->id, first = n->place.rank == 0;
    char id[FCP_ID_BYTES] = {0};
    id_parts parts = {0};
    uint16_t port = 0;
    n->timeout_s = session->timeout_s;
    if (base->ranks == 1) return FCP_OK;
    if (given) memcpy(id, start->id, FCP_ID_BYTES);
    fcp_code code = given ? read_id((uint8_t *)id, &parts, err) : FCP_OK;
    if (!code) code = listen_at(first ? parts.port : 0, base->ranks, &n->listens, &port, err);
    if (!code && first && !given) code = write_id(n->host, port, id, err);
    if (!code) code = fcp_id_share(&n->place, start, n->timeout_s, (uint8_t *)id, err);
    if (!code) code = read_id((uint8_t *)id, &parts, err);
    address *where = code ? NULL : calloc(base->ranks, sizeof *where);
    fcp_patience patience = fcp_patience_of(n->timeout_s, 0.1);
    if (!code && !where) code = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %u addresses", base->ranks);
    if (!code) memcpy(n->host, parts.host, sizeof n->host);
    if (!code)
        code = first ? join_all(n, parts.secret, where, &patience, err)
                     : join_others(n, &parts, where, port, &patience, err);
    free(where);
    if (n->listens >= 0) close(n->listens);
    n->listens = -1;
    return code;
}

/* An id for one net more: a port that is free now, on rank 0's machine. */
static fcp_code tcp_make_id(const fcp_net *base, void *out_id, fcp_error *err) {
    const tcp_net *n = (const tcp_net *)base;
    int s;
    uint16_t port;
    fcp_code code = listen_at(0, 1, &s, &port, err);
    if (code) return code;
    close(s);
    return write_id(n->host, port, out_id, err);
}

/* From any thread. Sockets are shut and not closed: another thread may be using them. */
static void tcp_abort(fcp_net *base) {
    tcp_net *n = (tcp_net *)base;
    n->aborted = true;
    for (uint32_t r = 0; r < base->ranks; r++)
        if (n->peers[r].socket >= 0) shutdown(n->peers[r].socket, SHUT_RDWR);
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
    const frame *f = &n->peers[rank].next;
    for (uint32_t i = 0; i < n->group.count; i++) {
        const fcp_wire *w = &n->group.wires[i];
        if (w->peer != rank || w->dir != FCP_RECV || w->fabric != f->fabric || n->group.complete[i]) continue;
        *out_wire = i;
        if (f->kind == FRAME_WIRE && f->pass == n->pass && f->round == n->round && f->bytes == fcp_wire_bytes(w))
            return FCP_OK;
    }
    return fcp_fail(err, FCP_E_RUN,
                    "rank %u sent %llu bytes of pass %u, round %u, fabric %u, which is not what round %u waits for",
                    rank, (unsigned long long)f->bytes, f->pass, f->round, f->fabric, n->round);
}

static bool try_again(void) { return errno == EAGAIN || errno == EINTR; }

/* Reads what has come from a rank, as far as the group waits for it. False: the connection is closed. */
static bool receive_from(tcp_net *n, uint32_t rank, uint32_t *out_wire, fcp_error *err) {
    peer *p = &n->peers[rank];
    while (first_open(n, rank, FCP_RECV) != FCP_NONE) {
        void *to = (char *)&p->next + p->read;
        size_t bytes = sizeof p->next - p->read;
        if (!bytes) {
            if (match(n, rank, out_wire, err)) return false;
            to = n->group.message[*out_wire] + n->done[*out_wire];
            bytes = fcp_group_bytes(&n->group, *out_wire) - n->done[*out_wire];
        }
        ssize_t got = bytes ? recv(p->socket, to, bytes, 0) : 0;
        if (got < 0 && try_again()) return true;
        if (got < 0 || (!got && bytes)) {
            gone(FCP_E_RUN, rank, err);
            return false;
        }
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
        ssize_t sent = send(n->peers[rank].socket, n->group.message[i] + n->done[i], bytes - n->done[i], MSG_NOSIGNAL);
        if (sent < 0 && try_again()) return true;
        if (sent < 0) {
            gone(FCP_E_RUN, rank, err);
            return false;
        }
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
            n->polled[count++] = (struct pollfd){.fd = n->peers[w->peer].socket};
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
        bool good = !n->aborted && go_on(n, SLICE, out_wire, err);
        if (n->aborted) return FCP_WAIT_ABORTED; /* also if that is why it failed */
        if (!good) return FCP_WAIT_FAILED;
        if (n->group.left && fcp_clock_ns() >= until) break;
    }
    *out_wire = fcp_group_late(&n->group);
    return FCP_WAIT_PENDING;
}

/* --- between processes -------------------------------------------------------------------------------------------- */

/* Sends bytes to a rank, or receives as many from it, outside of any group. */
static fcp_code tell(tcp_net *n, uint32_t rank, void *data, size_t bytes, bool sends, fcp_error *err) {
    fcp_patience patience = fcp_patience_of(n->timeout_s, 0.1);
    frame f = {.kind = FRAME_TOLD, .bytes = bytes};
    const int s = n->peers[rank].socket;
    bool good = move_all(s, &f, sizeof f, sends, &patience) && f.kind == FRAME_TOLD && f.bytes == bytes &&
                move_all(s, data, bytes, sends, &patience);
    if (good) return FCP_OK;
    if (patience.left >= 0) return gone(FCP_E_RUN, rank, err);
    return fcp_fail_at(err, FCP_E_RUN, fcp_where_rank(rank),
                       "telling all ranks did not end within %u s: rank %u has not come so far", n->timeout_s, rank);
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
    .gather = tcp_gather,
    .collect = tcp_collect,
};
