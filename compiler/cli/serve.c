/* serve.c: `fcpc serve SOCKET`: plans batches for other programs, which send a JSON object on each line.
 *
 * Callers that are neither C nor Python need no binding for it. One thread reads and sends for all clients, so who
 * sends slowly or reads slowly holds nobody up. It gives each whole line to a pool of threads, which plan side by side.
 * A client has one line there at a time: so its answers come in its order, and nobody takes all threads alone. Whoever
 * may connect may also write files as this user, so the socket is the user's alone (mode 600).
 *
 * It ends in two ways. An interruption ends it at once and removes the socket. When somebody else removes the socket,
 * the clients that are connected are served to their end, and then it ends with status 0.
 */
#define _GNU_SOURCE /* accept4 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "compiler/cli/cmd.h"
#include "compiler/cli/pool.h"
#include "compiler/cli/request.h"
#include "runtime/base/threads.h"

enum { CLIENTS = CMD_POOL_MOST, WAIT_MS = 500, CHUNK = 1 << 16 };
#define LINE_MOST ((size_t)64 << 20) /* a field has a number for each token of the batch */

/* A place for a client. It is free if fd is -1 and it is not busy. */
typedef struct client {
    int fd;
    text in, out;
    size_t begin, looked; /* where the next line of `in` begins; from there to `looked` it has no end */
    size_t sent;          /* so much of `out` is gone */
    bool last;            /* nothing more is read */
    bool busy;            /* `job` is with the pool, and names the next line of `in` */
    cmd_job job;
} client;

typedef struct server {
    const char *path;
    int fd; /* -1: takes no more clients */
    dev_t device;
    ino_t inode;
    cmd_pool pool;
    client clients[CLIENTS];
    size_t count; /* places that are taken */
    uint64_t requests, errors;
} server;

static fcp_code cannot_listen(const char *path, const char *why, fcp_error *err) {
    return fcp_fail_in(err, FCP_E_WRITE, path, 0, 0, "no socket can be made here: %s", why);
}

/* Removes a socket at which nobody listens any more: the one of a server that was killed. */
static fcp_code remove_stale(const struct sockaddr_un *where, fcp_error *err) {
    struct stat st;
    if (lstat(where->sun_path, &st) != 0 || !S_ISSOCK(st.st_mode))
        return cannot_listen(where->sun_path, "there is a file that is none", err);
    const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const bool stale = probe >= 0 && connect(probe, (const struct sockaddr *)where, sizeof *where) != 0 &&
                       errno == ECONNREFUSED;
    if (probe >= 0) close(probe);
    if (!stale) return cannot_listen(where->sun_path, "another server listens at it", err);
    return unlink(where->sun_path) == 0 ? FCP_OK : cannot_listen(where->sun_path, strerror(errno), err);
}

/* Binds the socket, for this user alone. */
static int bind_private(int fd, const struct sockaddr_un *where) {
    const mode_t before = umask(0177);
    const int result = bind(fd, (const struct sockaddr *)where, sizeof *where);
    const int why = errno;
    umask(before);
    errno = why;
    return result;
}

static fcp_code start(server *s, fcp_error *err) {
    struct sockaddr_un where = {.sun_family = AF_UNIX};
    struct stat st;
    if (strlen(s->path) >= sizeof where.sun_path) return cannot_listen(s->path, "the path is too long", err);
    strcpy(where.sun_path, s->path);
    s->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s->fd < 0) return cannot_listen(s->path, strerror(errno), err);
    fcp_code code = FCP_OK;
    cmd_hold();
    int failed = bind_private(s->fd, &where);
    if (failed && errno == EADDRINUSE) {
        code = remove_stale(&where, err);
        failed = code ? 0 : bind_private(s->fd, &where);
    }
    if (!code && failed) code = cannot_listen(s->path, strerror(errno), err);
    if (!code) {
        cmd_guard(s->path);
        if (listen(s->fd, CLIENTS) != 0 || stat(s->path, &st) != 0) {
            code = cannot_listen(s->path, strerror(errno), err);
            unlink(s->path);
        } else s->device = st.st_dev, s->inode = st.st_ino;
    }
    cmd_release();
    return code;
}

/* Takes no more clients if the path does not lead to the socket any more. */
static void look_at_path(server *s) {
    struct stat st;
    if (s->fd < 0 || (stat(s->path, &st) == 0 && st.st_dev == s->device && st.st_ino == s->inode)) return;
    cmd_hold();
    cmd_unguard(s->path);
    cmd_release();
    close(s->fd);
    s->fd = -1;
}

static void free_place(server *s, client *c) {
    text_free(&c->in);
    text_free(&c->out);
    *c = (client){.fd = -1};
    s->count--;
}

/* Ends a connection. A request that is being planned is given up; its place is free when the pool gives it back. */
static void drop(server *s, client *c) {
    close(c->fd);
    c->fd = -1;
    if (c->busy) cmd_pool_stop(&c->job);
    else free_place(s, c);
}

static void admit(server *s) {
    const int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    client *c = s->clients;
    while (c->fd >= 0 || c->busy) c++; /* there is a free place: serve_once has looked */
    *c = (client){.fd = fd};
    s->count++;
}

static void count_answer(server *s, bool good) {
    s->requests++;
    s->errors += !good;
}

/* Gives the next whole line to the pool. Where there is none, moves what there is of it to the beginning. */
static void next_line(server *s, client *c) {
    const char *end = memchr(c->in.at + c->looked, '\n', c->in.size - c->looked);
    if (end) {
        c->job.line = c->in.at + c->begin;
        c->job.size = (size_t)(end - c->job.line);
        c->job.of = c;
        c->busy = true;
        cmd_pool_give(&s->pool, &c->job);
        return;
    }
    c->in.size -= c->begin;
    memmove(c->in.at, c->in.at + c->begin, c->in.size);
    c->begin = 0;
    c->looked = c->in.size;
    if (c->in.size > LINE_MOST) {
        cmd_answer_too_long(LINE_MOST, &c->out);
        count_answer(s, false);
        c->last = true;
        c->in.size = c->looked = 0;
    }
    if (!c->in.size) text_free(&c->in); /* a large request keeps no memory */
}

/* Reads what is there. False: the connection has failed. */
static bool receive(client *c) {
    char chunk[CHUNK];
    const ssize_t got = recv(c->fd, chunk, sizeof chunk, 0);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    c->last |= got == 0;
    text_add(&c->in, chunk, (size_t)got);
    if (c->last && c->in.size) text_puts(&c->in, "\n"); /* the end of what is sent ends its last line, too */
    return !c->in.failed;
}

/* Sends what the client takes. False: the connection has failed. */
static bool give(client *c) {
    const ssize_t sent = send(c->fd, c->out.at + c->sent, c->out.size - c->sent, MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    c->sent += (size_t)sent;
    if (c->sent < c->out.size) return true;
    text_free(&c->out);
    c->sent = 0;
    return true;
}

/* What a client waits for. While a request is planned, that is only heard of which ends the connection. While there is
 * an answer to take, nothing is read: so neither requests nor answers pile up. */
static short awaited(const client *c) { return c->busy ? 0 : c->out.size ? POLLOUT : POLLIN; }

/* A client that is not busy has sent something, or has room for an answer, or neither any more. */
static void serve_client(server *s, client *c) {
    bool good = c->out.size ? give(c) : receive(c);
    if (good && !c->out.size && c->in.size) next_line(s, c);
    if (!good || c->out.failed || (c->last && !c->busy && !c->out.size)) drop(s, c);
}

/* Hands answers that are done to their clients. */
static void collect(server *s) {
    cmd_job *job;
    while ((job = cmd_pool_take(&s->pool))) {
        client *c = job->of;
        c->busy = false;
        c->looked = c->begin += job->size + 1;
        text_free(&c->out);
        c->out = job->answer;
        count_answer(s, job->good);
        if (c->fd < 0) free_place(s, c);
        else if (c->out.failed) drop(s, c);
    }
}

/* Waits until something happens, and does it. 0, or an errno value. */
static int serve_once(server *s) {
    struct pollfd polled[CLIENTS + 2];
    for (size_t i = 0; i < CLIENTS; i++)
        polled[i] = (struct pollfd){s->clients[i].fd, awaited(&s->clients[i]), 0};
    polled[CLIENTS] = (struct pollfd){s->count < CLIENTS ? s->fd : -1, POLLIN, 0};
    polled[CLIENTS + 1] = (struct pollfd){s->pool.bell, POLLIN, 0};
    if (poll(polled, CLIENTS + 2, WAIT_MS) < 0) return errno == EINTR ? 0 : errno;
    for (size_t i = 0; i < CLIENTS; i++) {
        if (!polled[i].revents) continue;
        if (s->clients[i].busy) drop(s, &s->clients[i]); /* the client has gone */
        else serve_client(s, &s->clients[i]);
    }
    if (polled[CLIENTS].revents) admit(s);
    if (polled[CLIENTS + 1].revents) collect(s);
    look_at_path(s);
    return 0;
}

/* Gives up all that is left, which is nothing unless poll has failed. */
static void end(server *s) {
    for (size_t i = 0; i < CLIENTS; i++)
        if (s->clients[i].fd >= 0) drop(s, &s->clients[i]);
    cmd_pool_end(&s->pool);
    for (size_t i = 0; i < CLIENTS; i++) {
        if (!s->clients[i].busy) continue;
        text_free(&s->clients[i].job.answer);
        free_place(s, &s->clients[i]);
    }
    if (s->fd >= 0) close(s->fd);
}

static fcp_code print_end(const cmd_line *line, const server *s, fcp_error *err) {
    json j = {0};
    if (!line->quiet)
        fprintf(stderr, "fcpc: %s was removed; %llu requests were answered, %llu of them with an error\n", s->path,
                (unsigned long long)s->requests, (unsigned long long)s->errors);
    if (!line->json) return FCP_OK;
    json_object(&j, NULL);
    json_u64(&j, "requests", s->requests);
    json_u64(&j, "errors", s->errors);
    cmd_json_diagnostics(&j, NULL, NULL);
    json_end(&j);
    return cmd_json_print(&j, err);
}

fcp_code cmd_serve(const cmd_line *line, cmd_input *input, fcp_error *err) {
    (void)input;
    server *s = calloc(1, sizeof *s);
    if (!s) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    uint64_t threads = 0;
    s->path = line->file;
    s->fd = s->pool.bell = -1;
    for (size_t i = 0; i < CLIENTS; i++) s->clients[i].fd = -1;
    fcp_code code = cmd_number(line, OPT_THREADS, 1, CMD_POOL_MOST, fcp_processors(CMD_POOL_MOST), &threads, err);
    if (!code) code = cmd_pool_start(&s->pool, (unsigned)threads, err);
    if (!code) code = start(s, err);
    if (!code && !line->quiet) fprintf(stderr, "fcpc: listening at %s\n", s->path);
    int why = 0;
    while (!code && !why && (s->fd >= 0 || s->count)) why = serve_once(s);
    if (why) {
        unlink(s->path);
        code = fcp_fail_in(err, FCP_E_READ, s->path, 0, 0, "cannot be served: %s", strerror(why));
    }
    end(s);
    if (!code) code = print_end(line, s, err);
    free(s);
    return code;
}
