/* cmd_lsp.c: `fcpc lsp`: lets an editor talk to the language server of compiler/lsp.
 *
 * Threads: one thread reads what the editor sends and answers it at once. Each step of a job runs on a thread of its
 *          own, so planning never delays an answer; a step that takes too long is told to stop.
 * End:     status 0 if the editor said `shutdown` and `exit`; else an error. If the editor dies, the input ends.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "compiler/cli/cmd.h"
#include "compiler/lsp/lsp.h"
#include "runtime/base/threads.h"

enum { CHUNK = 1 << 16 };

typedef struct talk {
    lsp_server *server;
    lsp_job *job; /* that runs; NULL: none */
    pthread_t thread;
    int bell;     /* an eventfd: the step of the job has ended */
    double begun; /* when the step began */
} talk;

static void *run_step(void *given) {
    talk *t = given;
    lsp_job_run(t->job);
    eventfd_write(t->bell, 1);
    return NULL;
}

/* Begins the next step, unless one runs. If no thread can be started, it runs here. */
static void begin_step(talk *t) {
    while (!t->job && (t->job = lsp_next_job(t->server))) {
        t->begun = cmd_now();
        if (fcp_thread_start(&t->thread, 0, run_step, t)) return;
        lsp_job_run(t->job);
        lsp_job_done(t->server, t->job);
        t->job = NULL;
    }
}

static void end_step(talk *t) {
    eventfd_t rings;
    pthread_join(t->thread, NULL);
    eventfd_read(t->bell, &rings);
    lsp_job_done(t->server, t->job);
    t->job = NULL;
}

/* Sends what the server has said. Returns 0, or an errno value. */
static int send_output(talk *t) {
    text *out = lsp_output(t->server);
    const int why = out->size ? fcp_write_all(STDOUT_FILENO, out->at, out->size) : 0;
    text_free(out);
    return why;
}

/* Waits for the editor or the job, and serves them. *ended: the input has ended. Returns 0, or an errno value. */
static int talk_once(talk *t, bool *ended) {
    struct pollfd polled[] = {{STDIN_FILENO, POLLIN, 0}, {t->bell, POLLIN, 0}};
    char chunk[CHUNK];
    int wait = -1;
    if (t->job) {
        const double left = LSP_PLAN_SECONDS - (cmd_now() - t->begun);
        wait = left > 0 ? (int)(left * 1000) + 1 : 1000;
        if (left <= 0) lsp_job_late(t->job);
    }
    if (poll(polled, 2, wait) < 0) return errno == EINTR ? 0 : errno;
    if (polled[0].revents) {
        const ssize_t got = read(STDIN_FILENO, chunk, sizeof chunk);
        if (got < 0 && errno != EINTR && errno != EAGAIN) return errno;
        *ended = got == 0;
        if (got > 0) lsp_feed(t->server, chunk, (size_t)got);
    }
    if (polled[1].revents) end_step(t);
    /* While more is there to be read, it may change the text once more: then no check of this one is begun. */
    polled[0].revents = 0;
    if (!*ended && poll(polled, 1, 0) <= 0) begin_step(t);
    return send_output(t);
}

fcp_code cmd_lsp(const cmd_line *line, cmd_input *input, fcp_error *err) {
    (void)input;
    if (line->json)
        return fcp_fail(err, FCP_E_USAGE, "lsp speaks its protocol on standard output, so it takes no --json");
    talk t = {.server = lsp_server_new(), .bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    fcp_code code = t.server && t.bell >= 0 ? FCP_OK : fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    bool ended = false;
    int why = 0;
    while (!code && !why && !ended && lsp_server_state(t.server) == LSP_RUNNING) why = talk_once(&t, &ended);
    if (t.server) lsp_stop(t.server);
    if (t.job) end_step(&t);
    const lsp_state state = code ? LSP_ENDED : lsp_server_state(t.server);
    if (why) code = fcp_fail(err, FCP_E_READ, "the editor cannot be talked to: %s", strerror(why));
    else if (state == LSP_BROKEN)
        code = fcp_fail(err, FCP_E_READ, "what the editor sends: %s", lsp_server_why(t.server));
    else if (state != LSP_ENDED) code = fcp_fail(err, FCP_E_READ, "the editor has left without saying shutdown");
    lsp_server_free(t.server);
    if (t.bell >= 0) close(t.bell);
    return code;
}
