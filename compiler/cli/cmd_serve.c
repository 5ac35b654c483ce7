/* cmd_serve.c: `fcpc serve SOCKET`: plans batches for other programs, which send a JSON object on each line. So callers
 * in any language can plan without a binding to the library.
 *
 * Threads: one thread reads from and writes to all clients without blocking, so a client that sends or reads slowly
 *          delays nobody. It hands each complete line to a pool of threads, which plan in parallel. A client has at
 *          most one line in the pool. So its answers come in the order of its requests, and no client can occupy all
 *          threads.
 * Access:  whoever connects can make this process write files, so only its own user can connect (mode 600).
 * Limits:  - Clients: as many as there are file descriptors for, beside those that planning needs at the same time.
 *          - Bytes of all incomplete requests together: HELD_MOST. Beyond that the longest request is refused, because
 *            its client may never send the rest.
 *          - Bytes of all complete requests together: HELD_MOST. Beyond that no further bytes of long incomplete
 *            requests are read until enough of the complete ones have been answered.
 * End:     an interruption ends the server at once and removes the socket. If somebody else removes the socket, the
 *          clients that are connected are served until they leave, and then the server ends with status 0.
 */
#define _GNU_SOURCE /* accept4 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "compiler/cli/cmd.h"
#include "compiler/cli/serve.h"
#include "runtime/base/threads.h"

enum { CLIENTS = CMD_POOL_MOST, WAIT_MS = 500, CHUNK = 1 << 16 };
/* Descriptors that are needed: by the server its socket, the eventfd of the pool and one to look at a path; by each
 * thread a file that is read, or a plan's temporary file, its lock and a file that is compared with it. */
enum { OWN_FILES = 3, THREAD_FILES = 4 };
#define LINE_MOST ((size_t)64 << 20)  /* a field has a number for each token of the batch */
#define HELD_MOST ((size_t)256 << 20) /* the most bytes of all incomplete lines together, and of all complete ones */
#define SHORT_MOST (HELD_MOST / CLIENTS) /* a line up to this size is always read */

/* A place for a client. It is free if fd is -1 and busy is false. */
typedef struct client {
    int fd;
    text in, out;
    size_t begin, looked; /* where the next line of `in` begins; from there to `looked` it has no end */
    size_t sent;          /* how many bytes of `out` have been sent */
    bool last;            /* nothing more is read */
    bool busy;            /* `job` is with the pool, and names the next line of `in` */
    cmd_job job;
} client;

typedef struct server {
    const char *path;
    int fd; /* -1: the server accepts no more clients */
    dev_t device;
    ino_t inode;
    cmd_pool pool;
    client clients[CLIENTS];
    size_t places, count; /* for clients: how many there are, and how many are taken */
    size_t whole;         /* bytes of the requests that are with the pool */
    bool full;            /* there was no descriptor for a client: none is accepted before the next event */
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

static fcp_code open_socket(server *s, fcp_error *err) {
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

/* Ends a connection. If a request of it is being planned, that is stopped, and the client's place is freed when the
 * pool returns the job. */
static void drop(server *s, client *c) {
    close(c->fd);
    c->fd = -1;
    if (c->busy) cmd_pool_stop(&c->job);
    else free_place(s, c);
}

static void admit(server *s) {
    const int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    /* Without a descriptor the client stays in the backlog, so poll would report the socket again and again. */
    s->full = fd < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED;
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

/* Refuses the line that a client is sending and ends the connection, because the end of the line cannot be found
 * without reading on. */
static void refuse(server *s, client *c, const fcp_error *err) {
    text_free(&c->in);
    c->begin = c->looked = 0;
    cmd_refuse(err, &c->out);
    count_answer(s, false);
    c->last = true;
}

static void refuse_too_long(server *s, client *c) {
    fcp_error err = {0};
    fcp_fail(&err, FCP_E_TOO_LARGE, "a request may have %zu MiB; the connection ends here", LINE_MOST >> 20);
    refuse(s, c, &err);
}

static void refuse_no_memory(server *s, client *c) {
    fcp_error err = {0};
    fcp_fail(&err, FCP_E_NO_MEMORY, "there is no memory for this request; the connection ends here");
    refuse(s, c, &err);
}

/* Refuses the longest of the incomplete requests, until the rest is at most HELD_MOST bytes. So short requests get
 * through, however many long ones are stuck. */
static void make_room(server *s) {
    for (;;) {
        client *longest = NULL;
        size_t held = 0;
        for (size_t i = 0; i < CLIENTS; i++) {
            client *c = &s->clients[i];
            if (c->fd < 0 || c->busy) continue;
            held += c->in.room;
            if (!longest || c->in.room > longest->in.room) longest = c;
        }
        if (held <= HELD_MOST) return;
        fcp_error err = {0};
        fcp_fail(&err, FCP_E_NO_MEMORY, "the server holds %zu MiB of requests that are not whole yet, and this is the "
                 "longest; the connection ends here", HELD_MOST >> 20);
        refuse(s, longest, &err);
    }
}

/* Hands the next complete line to the pool. If there is none, moves the incomplete one to the beginning of the buffer.
 */
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
    if (c->in.size > LINE_MOST) refuse_too_long(s, c);
    if (!c->in.size) text_free(&c->in); /* a large request keeps no memory */
}

/* Reads what is there. False: the connection has failed. */
static bool receive_some(server *s, client *c) {
    char chunk[CHUNK];
    const ssize_t got = recv(c->fd, chunk, sizeof chunk, 0);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    c->last |= got == 0;
    text_add(&c->in, chunk, (size_t)got);
    if (c->last && c->in.size) text_puts(&c->in, "\n"); /* the end of the stream also ends its last line */
    if (c->in.failed) refuse_no_memory(s, c);
    else make_room(s);
    return true;
}

/* Sends what the client takes. False: the connection has failed. */
static bool send_some(client *c) {
    const ssize_t sent = send(c->fd, c->out.at + c->sent, c->out.size - c->sent, MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    c->sent += (size_t)sent;
    if (c->sent < c->out.size) return true;
    text_free(&c->out);
    c->sent = 0;
    return true;
}

/* The poll events of a client. While its request is planned, only a hang-up is noticed. While it has an answer to take,
 * nothing is read from it, so that neither requests nor answers pile up. */
static short awaited(const server *s, const client *c) {
    if (c->busy) return 0;
    if (c->out.size) return POLLOUT;
    return s->whole > HELD_MOST && c->in.room > SHORT_MOST ? 0 : POLLIN;
}

/* Serves a client that is not busy: it has sent something, can take more of its answer, or has gone. */
static void serve_client(server *s, client *c) {
    bool good = c->out.size ? send_some(c) : receive_some(s, c);
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
        if (c->begin == c->in.size) { /* a client that is slow to take its answer holds no request meanwhile */
            text_free(&c->in);
            c->begin = c->looked = 0;
        }
        text_free(&c->out);
        c->out = job->answer;
        count_answer(s, job->good);
        if (c->fd < 0) {
            free_place(s, c);
            continue;
        }
        if (c->out.failed) {
            text_free(&c->out);
            refuse_no_memory(s, c);
        }
        if (c->out.failed) drop(s, c);
    }
}

/* Waits for an event and handles it. Returns 0, or an errno value. */
static int serve_once(server *s) {
    struct pollfd polled[CLIENTS + 2]; /* only open ones: poll refuses more entries than a process may have files */
    client *of[CLIENTS];
    nfds_t count = 0;
    s->whole = 0;
    for (size_t i = 0; i < CLIENTS; i++) s->whole += s->clients[i].busy ? s->clients[i].in.room : 0;
    for (size_t i = 0; i < CLIENTS; i++) {
        client *c = &s->clients[i];
        if (c->fd < 0) continue;
        of[count] = c;
        polled[count++] = (struct pollfd){c->fd, awaited(s, c), 0};
    }
    const nfds_t clients = count;
    polled[count++] = (struct pollfd){s->pool.bell, POLLIN, 0};
    const bool admits = s->fd >= 0 && s->count < s->places && !s->full;
    if (admits) polled[count++] = (struct pollfd){s->fd, POLLIN, 0};
    s->full = false;
    if (poll(polled, count, WAIT_MS) < 0) return errno == EINTR ? 0 : errno;
    for (nfds_t i = 0; i < clients; i++) {
        if (!polled[i].revents || of[i]->fd < 0) continue;
        if (of[i]->busy) drop(s, of[i]); /* the client has gone */
        else serve_client(s, of[i]);
    }
    if (admits && polled[clients + 1].revents) admit(s);
    if (polled[clients].revents) collect(s);
    look_at_path(s);
    return 0;
}

/* Frees all that is left, which is nothing unless poll has failed. */
static void close_server(server *s) {
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

/* How many descriptors are open below `most`. */
static uint64_t open_files(uint64_t most) {
    uint64_t open = 0;
    for (uint64_t fd = 0; fd < most; fd++) open += fcntl((int)fd, F_GETFD) >= 0;
    return open;
}

/* Divides the descriptors that this process may open among clients and threads: each thread has a client at least. */
static fcp_code divide_files(server *s, uint64_t *threads, fcp_error *err) {
    enum { ENOUGH = OWN_FILES + CLIENTS + CMD_POOL_MOST * THREAD_FILES, FEW = 4 * ENOUGH };
    struct rlimit limit;
    s->places = CLIENTS;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur > FEW) return FCP_OK;
    const uint64_t open = open_files(limit.rlim_cur), least = OWN_FILES + THREAD_FILES + 1;
    if (limit.rlim_cur < open + least)
        return fcp_fail(err, FCP_E_WRITE, "this process may have %llu open files, of which %llu are open; to serve, it "
                        "needs %llu more (ulimit -n)", (unsigned long long)limit.rlim_cur, (unsigned long long)open,
                        (unsigned long long)least);
    const uint64_t left = limit.rlim_cur - open - OWN_FILES;
    if (*threads > left / (THREAD_FILES + 1)) *threads = left / (THREAD_FILES + 1);
    if (left - *threads * THREAD_FILES < CLIENTS) s->places = left - *threads * THREAD_FILES;
    return FCP_OK;
}

/* Prints that the server listens, and for how many clients, if that is fewer than usual. */
static void print_start(const server *s) {
    fprintf(stderr, "fcpc: listening at %s", s->path);
    if (s->places < CLIENTS)
        fprintf(stderr, ", for %zu client%s at once: this process may open few files (ulimit -n)", s->places,
                text_plural(s->places));
    fputc('\n', stderr);
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
    return cmd_json_finish(&j, NULL, FCP_OK, err);
}

fcp_code cmd_serve(const cmd_line *line, cmd_input *input, fcp_error *err) {
    (void)input;
    server *s = calloc(1, sizeof *s);
    if (!s) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    uint64_t threads = 0;
    double max_seconds = 0;
    s->path = line->file;
    s->fd = s->pool.bell = -1;
    for (size_t i = 0; i < CLIENTS; i++) s->clients[i].fd = -1;
    fcp_code code = cmd_number(line, OPT_THREADS, 1, CMD_POOL_MOST, fcp_processors(CMD_POOL_MOST), &threads, err);
    if (!code) code = divide_files(s, &threads, err);
    if (!code) code = cmd_max_seconds(line, &max_seconds, err);
    if (!code) code = cmd_pool_start(&s->pool, (unsigned)threads, max_seconds, err);
    if (!code) code = open_socket(s, err);
    if (!code && !line->quiet) print_start(s);
    int why = 0;
    while (!code && !why && (s->fd >= 0 || s->count)) why = serve_once(s);
    if (why) {
        unlink(s->path);
        code = fcp_fail_in(err, FCP_E_READ, s->path, 0, 0, "cannot be served: %s", strerror(why));
    }
    close_server(s);
    if (!code) code = print_end(line, s, err);
    free(s);
    return code;
}
