/* serve.c: `fcpc serve SOCKET`: plans batches for other programs, which send a JSON object on each line.
 *
 * Callers that are neither C nor Python need no binding for it. All clients are served by one thread: a request is
 * planned to its end before the next, and who sends slowly or reads slowly holds nobody up. Whoever may connect may
 * also write files as this user, so the socket is the user's alone (mode 600).
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
#include "compiler/cli/request.h"

enum { CLIENTS = 16, WAIT_MS = 500, CHUNK = 1 << 16 };
#define LINE_MOST ((size_t)64 << 20) /* a field has a number for each token of the batch */

typedef struct client {
    int fd;
    text in, out;
    size_t looked, sent; /* so much of `in` has no end of line; so much of `out` is gone */
    bool last;           /* nothing more is read */
} client;

typedef struct server {
    const char *path;
    int fd; /* -1: takes no more clients */
    dev_t device;
    ino_t inode;
    client clients[CLIENTS];
    size_t count;
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

static void drop(server *s, size_t i) {
    client *c = &s->clients[i];
    close(c->fd);
    text_free(&c->in);
    text_free(&c->out);
    *c = s->clients[--s->count];
}

static void admit(server *s) {
    const int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) s->clients[s->count++] = (client){.fd = fd};
}

/* Answers the whole lines that have come. */
static void answer_lines(server *s, client *c) {
    size_t begin = 0;
    const char *end;
    while ((end = memchr(c->in.at + c->looked, '\n', c->in.size - c->looked))) {
        const size_t size = (size_t)(end - c->in.at) - begin;
        s->errors += !cmd_answer(c->in.at + begin, size, &c->out);
        s->requests++;
        c->looked = begin += size + 1;
    }
    c->in.size -= begin;
    memmove(c->in.at, c->in.at + begin, c->in.size);
    c->looked = c->in.size;
    if (c->in.size <= LINE_MOST) return;
    cmd_answer_too_long(LINE_MOST, &c->out);
    s->requests++;
    s->errors++;
    c->last = true;
}

/* Reads what is there. False: the connection has failed. */
static bool receive(server *s, client *c) {
    char chunk[CHUNK];
    const ssize_t got = recv(c->fd, chunk, sizeof chunk, 0);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    c->last |= got == 0;
    text_add(&c->in, chunk, (size_t)got);
    if (c->in.failed) return false;
    if (got) answer_lines(s, c);
    return true;
}

/* Sends what the client takes. False: the connection has failed. */
static bool give(client *c) {
    const ssize_t sent = send(c->fd, c->out.at + c->sent, c->out.size - c->sent, MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    c->sent += (size_t)sent;
    if (c->sent == c->out.size) c->sent = c->out.size = 0;
    return true;
}

/* Nothing is read from a client that has answers to take: so they do not pile up. */
static bool serve_client(server *s, client *c, short events) {
    bool good = true;
    if (!c->out.size && events) good = receive(s, c);
    if (good && c->out.size) good = give(c);
    return good && !c->out.failed && (c->out.size || !c->last);
}

/* Waits until something happens, and does it. 0, or an errno value. */
static int serve_once(server *s) {
    struct pollfd polled[CLIENTS + 1];
    const size_t count = s->count;
    for (size_t i = 0; i < count; i++)
        polled[i] = (struct pollfd){s->clients[i].fd, s->clients[i].out.size ? POLLOUT : POLLIN, 0};
    polled[count] = (struct pollfd){count < CLIENTS ? s->fd : -1, POLLIN, 0};
    if (poll(polled, count + 1, WAIT_MS) < 0 && errno != EINTR) return errno;
    for (size_t i = count; i-- > 0;) /* from the last, because drop moves the last into the gap */
        if (polled[i].revents && !serve_client(s, &s->clients[i], polled[i].revents)) drop(s, i);
    if (polled[count].revents && s->count < CLIENTS) admit(s);
    look_at_path(s);
    return 0;
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
    s->path = line->file;
    fcp_code code = start(s, err);
    if (!code && !line->quiet) fprintf(stderr, "fcpc: listening at %s\n", s->path);
    int why = 0;
    while (!code && !why && (s->fd >= 0 || s->count)) why = serve_once(s);
    if (why) {
        unlink(s->path);
        code = fcp_fail_in(err, FCP_E_READ, s->path, 0, 0, "cannot be served: %s", strerror(why));
    }
    while (s->count) drop(s, s->count - 1);
    if (s->fd >= 0) close(s->fd);
    if (!code) code = print_end(line, s, err);
    free(s);
    return code;
}
