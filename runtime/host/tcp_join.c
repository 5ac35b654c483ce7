/* tcp_join.c: connects the ranks of the transport "tcp".
 *
 * Requires:  as many processes as ranks, whose machines reach each other by IPv4, and the same id in all of them.
 * Gives:     tcp_join.h.
 * Method:    every rank listens. All connect to rank 0, tell it where they listen, and get the list of all ranks. Then
 *            each rank connects to those between 0 and itself.
 * Proofs:    both ends of a connection prove that they know the id's secret without sending it. Each end sends a random
 *            number, and the other answers with a hash of the secret, both numbers and the purpose of the connection.
 *            So a stranger who took the port before rank 0 came cannot pass for rank 0, and learns nothing from those
 *            that connect. Nothing after that is encrypted or signed: whoever can change what travels can do so.
 * Strangers: connections of unknown origin are read side by side, and none is waited for. One that sends what no rank
 *            sends is dropped at once. One that sends too little is dropped at the end of the start, or when there are
 *            too many.
 * Address:   rank 0 listens at the address of the id's host; any other rank listens at the address by which it reached
 *            rank 0. Rank 0's host may be no address of this machine (if others see it through address translation), or
 *            a name that on this machine means only itself. Then rank 0 listens at all addresses.
 * Cost:      two connections for each pair of ranks, made one after the other by the later rank.
 */
#define _GNU_SOURCE
#include "runtime/host/tcp_join.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/sha256.h"
#include "runtime/exec/error_place.h"

enum { SLICE = 20, NUMBER = 16, STRANGERS = 64 }; /* SLICE: milliseconds between two looks at the clock */

/* What a process says first on a connection that it has made. */
typedef struct hello {
    char magic[8];
    uint8_t number[NUMBER]; /* drawn */
    uint32_t rank, line, port; /* port: where it listens */
} hello;
/* The answer, and what the process says then: a hash. */
typedef struct welcome {
    uint8_t number[NUMBER], proof[FCP_SHA256_BYTES];
} welcome;
static const char hello_magic[8] = "fcptcp2";

/* A connection of somebody who has come and has not proven yet that he is a rank. */
typedef struct half {
    int socket;
    struct in_addr from;
    struct {
        hello hello;
        uint8_t proof[FCP_SHA256_BYTES];
    } said;
    size_t bytes;    /* of `said` that have come */
    uint8_t expected[FCP_SHA256_BYTES];
} half;

/* Where a rank listens: both as the network has them. */
typedef struct address {
    uint32_t host;
    uint16_t port, unused;
} address;

typedef struct joining {
    const fcp_place *place;
    const fcp_tcp_id *id;
    int listens; /* the socket that others connect to */
    uint16_t port;
    uint32_t timeout_s;
    fcp_tcp_pair *pairs;
    address *where;     /* each rank */
    half *halves;       /* in the order in which they came */
    struct pollfd *polled;
    uint32_t half_count, half_most;
    fcp_patience patience;
    bool interrupted;
} joining;

/* --- ids ---------------------------------------------------------------------------------------------------------- */

fcp_code fcp_tcp_id_read(const void *id, fcp_tcp_id *out, fcp_error *err) {
    char text[FCP_ID_BYTES + 1] = "";
    unsigned port = 0;
    int end = 0;
    memcpy(text, id, FCP_ID_BYTES);
    if (sscanf(text, "%63[^:]:%5u:%32[0-9a-f]%n", out->host, &port, out->secret, &end) == 3 && port && port < 65536 &&
        strlen(out->secret) == FCP_TCP_SECRET && !text[end]) {
        out->port = (uint16_t)port;
        return FCP_OK;
    }
    return fcp_fail(err, FCP_E_START, "an id of tcp is HOST:PORT:SECRET, with a secret of %d hexadecimal digits",
                    FCP_TCP_SECRET);
}

static fcp_code draw(void *out, size_t bytes, fcp_error *err) {
    return getrandom(out, bytes, 0) == (ssize_t)bytes ? FCP_OK
                                                      : fcp_fail(err, FCP_E_START, "the system gives no random bytes");
}

fcp_code fcp_tcp_id_write(const char *host, uint16_t port, void *id, fcp_error *err) {
    uint8_t random[FCP_TCP_SECRET / 2];
    char secret[FCP_TCP_SECRET + 1];
    fcp_code code = draw(random, sizeof random, err);
    if (code) return code;
    for (size_t i = 0; i < sizeof random; i++) snprintf(secret + 2 * i, 3, "%02x", random[i]);
    memset(id, 0, FCP_ID_BYTES);
    snprintf(id, FCP_ID_BYTES, "%s:%u:%s", host, port, secret);
    return FCP_OK;
}

/* What one side says to prove that it knows the secret. All that is hashed has a fixed length. */
static void prove(const fcp_tcp_id *id, bool listens, const hello *h, const uint8_t number[NUMBER],
                  uint8_t out[FCP_SHA256_BYTES]) {
    fcp_sha256 hash = fcp_sha256_begin();
    fcp_sha256_add(&hash, id->secret, FCP_TCP_SECRET);
    fcp_sha256_add(&hash, listens ? "listens" : "arrives", 7);
    fcp_sha256_add(&hash, h, sizeof *h);
    fcp_sha256_add(&hash, number, NUMBER);
    fcp_sha256_end(&hash, out);
}

/* --- sockets ------------------------------------------------------------------------------------------------------ */

static fcp_code no_socket(const char *what, fcp_error *err) {
    return fcp_fail(err, FCP_E_START, "%s: %s", what, strerror(errno));
}

static fcp_code listen_on(struct in_addr host, uint16_t port, int *out_socket, uint16_t *out_port, fcp_error *err) {
    enum { WAITING = 4096 }; /* the system makes it less if that is too many */
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = host};
    socklen_t size = sizeof at;
    char text[INET_ADDRSTRLEN] = "";
    int yes = 1, s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s < 0) return no_socket("no socket to listen at", err);
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    int failed = bind(s, (struct sockaddr *)&at, sizeof at) ? errno : 0;
    if (failed == EADDRNOTAVAIL) { /* others see this machine under an address that it does not have itself */
        at.sin_addr.s_addr = htonl(INADDR_ANY);
        failed = bind(s, (struct sockaddr *)&at, sizeof at) ? errno : 0;
    }
    if (!failed && (listen(s, WAITING) || getsockname(s, (struct sockaddr *)&at, &size))) failed = errno;
    if (failed) {
        close(s);
        inet_ntop(AF_INET, &host, text, sizeof text);
        return fcp_fail(err, FCP_E_START, "cannot listen at %s:%u: %s", text, port, strerror(failed));
    }
    *out_socket = s;
    *out_port = ntohs(at.sin_port);
    return FCP_OK;
}

static fcp_code find_host(const char *host, struct in_addr *out, fcp_error *err) {
    const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int failed = getaddrinfo(host, NULL, &hints, &found);
    if (failed) return fcp_fail(err, FCP_E_START, "rank 0's host '%s' is not found: %s", host, gai_strerror(failed));
    *out = ((struct sockaddr_in *)(void *)found->ai_addr)->sin_addr;
    freeaddrinfo(found);
    return FCP_OK;
}

fcp_code fcp_tcp_listen(const char *host, bool nodes, uint16_t port, int *out_socket, uint16_t *out_port,
                        fcp_error *err) {
    struct in_addr at;
    if (!inet_pton(AF_INET, host, &at)) {
        const bool found = !find_host(host, &at, NULL);
        const bool own = found && ntohl(at.s_addr) >> 24 == IN_LOOPBACKNET && strcmp(host, "localhost");
        if (!found || (own && nodes)) at.s_addr = htonl(INADDR_ANY); /* the name means something to others alone */
    }
    return listen_on(at, port, out_socket, out_port, err);
}

static fcp_code gone(uint32_t rank, fcp_error *err) {
    return fcp_fail_at(err, FCP_E_START, fcp_where_rank(rank), "rank %u has failed, or its process has ended", rank);
}

ssize_t fcp_tcp_move(int socket, void *data, size_t bytes, bool sends) {
    struct pollfd p = {.fd = socket, .events = sends ? POLLOUT : POLLIN};
    if (poll(&p, 1, SLICE) <= 0) return 0;
    ssize_t moved = sends ? send(socket, data, bytes, MSG_NOSIGNAL) : recv(socket, data, bytes, 0);
    if (moved > 0) return moved;
    return moved < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

/* To be called after each poll that found nothing: returns whether the time is over, or the caller wants to stop. */
static bool ends(joining *j) {
    j->interrupted = j->interrupted || fcp_interrupted(j->place->interrupt);
    return j->interrupted || fcp_patience_ends(&j->patience);
}

/* Moves all bytes, within the time limit. False: the other side has closed, or the time is over. */
static bool move_all(joining *j, int socket, void *data, size_t bytes, bool sends) {
    for (size_t at = 0; at < bytes;) {
        ssize_t moved = fcp_tcp_move(socket, (char *)data + at, bytes - at, sends);
        if (moved < 0 || (!moved && ends(j))) return false;
        at += (size_t)moved;
    }
    return true;
}

static void tune(int socket) {
    int yes = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

/* --- those who come ----------------------------------------------------------------------------------------------- */

static void drop(joining *j, uint32_t i, bool closes) {
    if (closes) close(j->halves[i].socket);
    memmove(&j->halves[i], &j->halves[i + 1], (--j->half_count - i) * sizeof *j->halves);
}

/* Accepts a connection. If there are too many, the oldest is dropped, first of all one that has sent nothing yet: a
 * rank sends at once. */
static void let_in(joining *j) {
    struct sockaddr_in from = {0};
    socklen_t size = sizeof from;
    int s = accept4(j->listens, (struct sockaddr *)&from, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (s < 0) return;
    if (j->half_count == j->half_most) {
        uint32_t oldest = 0;
        while (oldest < j->half_count && j->halves[oldest].bytes) oldest++;
        drop(j, oldest < j->half_count ? oldest : 0, true);
    }
    j->halves[j->half_count++] = (half){.socket = s, .from = from.sin_addr};
}

/* Returns whether it is what a rank says that has no such connection yet. */
static bool is_sensible(const joining *j, const hello *h) {
    return memcmp(h->magic, hello_magic, sizeof hello_magic) == 0 && h->rank < j->place->ranks &&
           h->rank > j->place->rank && h->line < FCP_TCP_LINES && h->port <= UINT16_MAX &&
           j->pairs[h->rank][h->line] < 0;
}

/* Answers what has been said first. False: it was not what a rank says. */
static bool answer(const joining *j, half *x) {
    welcome w;
    if (!is_sensible(j, &x->said.hello) || draw(w.number, sizeof w.number, NULL)) return false;
    prove(j->id, true, &x->said.hello, w.number, w.proof);
    prove(j->id, false, &x->said.hello, w.number, x->expected);
    return send(x->socket, &w, sizeof w, MSG_NOSIGNAL) == sizeof w; /* nothing else is on its way */
}

typedef enum heard { HEARD_PART, HEARD_ALL, HEARD_NONSENSE } heard;

/* Reads what somebody has to say. */
static heard hear(const joining *j, half *x) {
    const size_t first = sizeof x->said.hello, all = sizeof x->said;
    while (x->bytes < all) {
        const size_t until = x->bytes < first ? first : all;
        ssize_t got = recv(x->socket, (char *)&x->said + x->bytes, until - x->bytes, 0);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) return HEARD_PART;
        if (got <= 0) return HEARD_NONSENSE;
        x->bytes += (size_t)got;
        if (x->bytes == first && !answer(j, x)) return HEARD_NONSENSE;
    }
    /* another connection may have been taken meanwhile */
    bool good = is_sensible(j, &x->said.hello) && memcmp(x->said.proof, x->expected, sizeof x->expected) == 0;
    return good ? HEARD_ALL : HEARD_NONSENSE;
}

/* Listens to all that have come. *taken: connections that were made. */
static void hear_all(joining *j, uint32_t *taken) {
    for (uint32_t i = 0; i < j->half_count;) {
        half *x = &j->halves[i];
        heard h = hear(j, x);
        if (h == HEARD_ALL) {
            const hello *said = &x->said.hello;
            tune(x->socket);
            j->pairs[said->rank][said->line] = x->socket;
            if (said->line == FCP_TCP_DATA)
                j->where[said->rank] = (address){x->from.s_addr, htons((uint16_t)said->port), 0};
            ++*taken;
        }
        if (h == HEARD_PART) i++;
        else drop(j, i, h == HEARD_NONSENSE);
    }
}

/* Takes the connections of all ranks behind this one. */
static fcp_code take_all(joining *j, fcp_error *err) {
    const uint32_t wanted = (j->place->ranks - 1 - j->place->rank) * FCP_TCP_LINES;
    for (uint32_t taken = 0; taken < wanted;) {
        for (uint32_t i = 0; i < j->half_count; i++)
            j->polled[i] = (struct pollfd){.fd = j->halves[i].socket, .events = POLLIN};
        j->polled[j->half_count] = (struct pollfd){.fd = j->listens, .events = POLLIN};
        const int ready = poll(j->polled, j->half_count + 1, SLICE);
        if (ready > 0 && j->polled[j->half_count].revents) let_in(j);
        if (ready > 0) hear_all(j, &taken);
        if (taken == wanted || !ends(j)) continue;
        uint32_t missing = j->place->rank + 1;
        while (j->pairs[missing][FCP_TCP_DATA] >= 0 && j->pairs[missing][FCP_TCP_BEATS] >= 0) missing++;
        return fcp_fail_at(err, FCP_E_START, fcp_where_rank(missing), "rank %u did not come within %u s", missing,
                           j->timeout_s);
    }
    return FCP_OK;
}

/* --- going to others ---------------------------------------------------------------------------------------------- */

/* Where others reach this rank: the address by which it has reached rank 0. */
static fcp_code listen_beside(joining *j, int reached, fcp_error *err) {
    struct sockaddr_in own = {0};
    socklen_t size = sizeof own;
    if (j->listens >= 0) return FCP_OK;
    if (getsockname(reached, (struct sockaddr *)&own, &size)) return no_socket("no address to listen at", err);
    return listen_on(own.sin_addr, 0, &j->listens, &j->port, err);
}

/* Says who this is, and makes sure that the other side is a rank of this run. 0, or why it is not. */
static int greet(joining *j, int socket, uint32_t line) {
    hello h = {.rank = j->place->rank, .line = line, .port = j->port};
    uint8_t proof[FCP_SHA256_BYTES];
    welcome w;
    memcpy(h.magic, hello_magic, sizeof h.magic);
    if (draw(h.number, sizeof h.number, NULL)) return EAGAIN;
    if (!move_all(j, socket, &h, sizeof h, true) || !move_all(j, socket, &w, sizeof w, false))
        return j->patience.left < 0 ? ETIMEDOUT : ECONNRESET;
    prove(j->id, true, &h, w.number, proof);
    if (memcmp(proof, w.proof, sizeof proof)) return EPROTO;
    prove(j->id, false, &h, w.number, proof);
    return move_all(j, socket, proof, sizeof proof, true) ? 0 : ECONNRESET;
}

/* 0, or why the connection is not made: an error of the system. */
static int connect_to(joining *j, int socket, const struct sockaddr_in *at) {
    int failed = 0;
    socklen_t size = sizeof failed;
    if (connect(socket, (const struct sockaddr *)at, sizeof *at) == 0) return 0;
    if (errno != EINPROGRESS) return errno;
    struct pollfd p = {.fd = socket, .events = POLLOUT};
    while (poll(&p, 1, SLICE) <= 0)
        if (ends(j)) return ETIMEDOUT;
    return getsockopt(socket, SOL_SOCKET, SO_ERROR, &failed, &size) ? errno : failed;
}

/* Connects to a rank. The rank may not listen yet, or another program may listen in its place. So this tries again
 * until the time is over. */
static fcp_code reach(joining *j, uint32_t rank, uint32_t line, fcp_error *err) {
    const struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {j->where[rank].host},
                                   .sin_port = j->where[rank].port};
    char host[INET_ADDRSTRLEN] = "";
    inet_ntop(AF_INET, &at.sin_addr, host, sizeof host);
    for (long pause = 1000000;; fcp_pause(&pause, 20000000)) {
        int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (s < 0) return no_socket("no socket to connect", err);
        int failed = connect_to(j, s, &at);
        fcp_code code = failed ? FCP_OK : listen_beside(j, s, err);
        if (!failed && !code) failed = greet(j, s, line);
        if (!failed && !code) {
            tune(s);
            j->pairs[rank][line] = s;
            return FCP_OK;
        }
        close(s);
        if (code) return code;
        if (!ends(j)) continue;
        return fcp_fail_at(err, FCP_E_START, fcp_where_rank(rank), "rank %u is not reached at %s:%u within %u s: %s",
                           rank, host, ntohs(at.sin_port), j->timeout_s,
                           failed == EPROTO ? "who listens there does not know the id's secret" : strerror(failed));
    }
}

/* --- joining ------------------------------------------------------------------------------------------------------ */

/* Rank 0: all others come, and get the list of all. */
static fcp_code join_all(joining *j, fcp_error *err) {
    fcp_code code = take_all(j, err);
    for (uint32_t r = 1; r < j->place->ranks && !code; r++)
        if (!move_all(j, j->pairs[r][FCP_TCP_DATA], j->where, j->place->ranks * sizeof *j->where, true))
            code = gone(r, err);
    return code;
}

/* Another rank: connects to those before it, and takes the connections of those behind it. */
static fcp_code join_others(joining *j, fcp_error *err) {
    struct in_addr first = {0};
    fcp_code code = find_host(j->id->host, &first, err);
    if (code) return code;
    j->where[0] = (address){first.s_addr, htons(j->id->port), 0};
    for (uint32_t r = 0; r < j->place->rank && !code; r++) {
        for (uint32_t line = 0; line < FCP_TCP_LINES && !code; line++) code = reach(j, r, line, err);
        if (!code && !r &&
            !move_all(j, j->pairs[0][FCP_TCP_DATA], j->where, j->place->ranks * sizeof *j->where, false))
            code = j->patience.left < 0 ? fcp_fail(err, FCP_E_START, "rank 0 did not say within %u s where all ranks "
                                                   "are", j->timeout_s)
                                        : gone(0, err);
    }
    return code ? code : take_all(j, err);
}

fcp_code fcp_tcp_join(const fcp_place *place, const fcp_tcp_id *id, int listens, uint32_t timeout_s,
                      fcp_tcp_pair *pairs, fcp_error *err) {
    const uint32_t most = place->ranks * FCP_TCP_LINES + STRANGERS;
    joining j = {.place = place, .id = id, .listens = place->rank ? -1 : listens, .timeout_s = timeout_s,
                 .pairs = pairs, .half_most = most, .patience = fcp_patience_of(timeout_s, 0.1)};
    j.where = calloc(place->ranks, sizeof *j.where);
    j.halves = calloc(most + 1, sizeof *j.halves);
    j.polled = calloc(most + 1, sizeof *j.polled);
    fcp_code code = !j.where || !j.halves || !j.polled
                        ? fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %u addresses", place->ranks)
                    : place->rank ? join_others(&j, err) : join_all(&j, err);
    if (j.interrupted) code = fcp_fail(err, FCP_E_INTERRUPTED, "interrupted");
    while (j.half_count) drop(&j, 0, true);
    if (place->rank && j.listens >= 0) close(j.listens);
    free(j.where);
    free(j.halves);
    free(j.polled);
    return code;
}
