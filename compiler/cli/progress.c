/* progress.c: progress on a terminal, and what an interruption does.
 *
 * Requires: cmd_progress_init once, from the main thread.
 * Gives:    a line on stderr, rewritten every quarter of a second while something long is under way, erased when it ends.
 * Cost:     one thread, made when the first long step begins on a terminal.
 *
 * An interruption ends the process at once, in whatever pass it is: nothing has to look for it, so it is as fast at 32,768
 * ranks as at one. All that must not stay behind are temporary files, whose paths are kept here for the handler to remove.
 *
 * A signal handler has no argument, so its state is this file's: it belongs to the process, as the terminal does.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "compiler/cli/cmd.h"

enum { GUARDED = 16 }; /* more than a command has outputs */
static const char *_Atomic guarded[GUARDED];
static atomic_int held, interrupted;
static atomic_flag ending = ATOMIC_FLAG_INIT;
static volatile sig_atomic_t tell_json, line_shown;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool enabled, started;
    const char *what;
    double since;
} progress = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static const char erase_line[] = "\r\033[K";

static void say(int fd, const char *bytes, size_t size) {
    while (size > 0) {
        ssize_t n = write(fd, bytes, size);
        if (n <= 0) return;
        bytes += n;
        size -= (size_t)n;
    }
}

/* Ends the process. It may be called by a handler and by the main thread at a time: the first does it. Only functions
 * that a handler may call are used. */
static void end_interrupted(void) {
    static const char message[] = "fcpc: error[E013]: interrupted\n";
#define INTERRUPTED                                                                                                    \
    "{\"severity\": \"error\", \"code\": \"E013\", \"message\": \"interrupted\", \"file\": \"\", \"line\": 0, \"column\": 0}"
    static const char object[] = "{\"error\": " INTERRUPTED ", \"diagnostics\": [" INTERRUPTED "], \"warnings\": []}\n";
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL); /* no handler on top of this */
    if (atomic_flag_test_and_set(&ending))
        for (;;) pause();
    for (int i = 0; i < GUARDED; i++) {
        const char *path = atomic_load(&guarded[i]);
        if (path) unlink(path);
    }
    if (line_shown) say(STDERR_FILENO, erase_line, sizeof erase_line - 1);
    say(STDERR_FILENO, message, sizeof message - 1);
    if (tell_json) say(STDOUT_FILENO, object, sizeof object - 1);
    _exit(fcp_code_exit(FCP_E_INTERRUPTED));
}

/* The handler may run on any thread. Either it sees that the main thread holds, or the main thread sees, when it begins
 * to hold or releases, that there was an interruption. */
static void on_signal(int number) {
    (void)number;
    atomic_store(&interrupted, 1);
    if (!atomic_load(&held)) end_interrupted();
}

void cmd_hold(void) {
    atomic_fetch_add(&held, 1);
    if (atomic_load(&interrupted)) end_interrupted();
}

void cmd_release(void) {
    if (atomic_fetch_sub(&held, 1) == 1 && atomic_load(&interrupted)) end_interrupted();
}

void cmd_guard(const char *path) {
    for (int i = 0; i < GUARDED; i++)
        if (!atomic_load(&guarded[i])) {
            atomic_store(&guarded[i], path);
            return;
        }
}

void cmd_unguard(const char *path) {
    for (int i = 0; i < GUARDED; i++)
        if (atomic_load(&guarded[i]) == path) atomic_store(&guarded[i], NULL);
}

double cmd_now(void) { return fcp_clock(); }

static void *ticker(void *unused) {
    (void)unused;
    pthread_mutex_lock(&progress.lock);
    for (;;) {
        while (!progress.what) pthread_cond_wait(&progress.changed, &progress.lock);
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 250000000;
        if (until.tv_nsec >= 1000000000) {
            until.tv_nsec -= 1000000000;
            until.tv_sec++;
        }
        pthread_cond_timedwait(&progress.changed, &progress.lock, &until);
        double seconds = cmd_now() - progress.since;
        if (progress.what && seconds >= 1) {
            line_shown = 1;
            fprintf(stderr, "%s%s ... %.0f s", erase_line, progress.what, seconds);
            fflush(stderr);
        }
    }
    return NULL;
}

void cmd_progress_init(bool as_json, bool quiet) {
    tell_json = as_json;
    progress.enabled = !quiet && isatty(STDERR_FILENO);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    struct sigaction before;
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, NULL);
    action.sa_handler = SIG_IGN;
    sigaction(SIGXFSZ, &action, NULL); /* writing beyond the limit of a file's size is then an error like others */
}

void cmd_doing(const char *what) {
    if (!progress.enabled) return;
    pthread_mutex_lock(&progress.lock);
    if (!progress.started) {
        pthread_t thread;
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, &before); /* signals are the main thread's */
        progress.started = pthread_create(&thread, NULL, ticker, NULL) == 0;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (progress.started) pthread_detach(thread);
    }
    progress.what = what;
    progress.since = cmd_now();
    pthread_cond_signal(&progress.changed);
    pthread_mutex_unlock(&progress.lock);
}

void cmd_done(void) {
    if (!progress.started) return;
    pthread_mutex_lock(&progress.lock);
    progress.what = NULL;
    if (line_shown) {
        fputs(erase_line, stderr);
        fflush(stderr);
        line_shown = 0;
    }
    pthread_mutex_unlock(&progress.lock);
}
