/* progress.c: shows progress on a terminal, and handles interruptions.
 *
 * Progress is a line on stderr. It is rewritten every quarter of a second while something takes long, and erased when
 * that ends. A thread does this; it is started when the first long step begins on a terminal.
 *
 * An interruption ends the process at once. No pass has to look for it, so Ctrl-C is as fast while planning for 32,768
 * ranks as for one. Only temporary files must not be left behind: their paths are kept here, and the handler removes
 * them. It does the same for other signals that end the process, such as SIGPIPE when nobody reads a pipe any more.
 *
 * A signal handler gets no argument, so what it needs is global state of this file. That is right for a program:
 * signals and the terminal belong to the whole process.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/threads.h"
#include "compiler/cli/cmd.h"

/* The most temporary files at a time. No command has as many outputs, except a server whose threads all write plans of
 * very many masks. A file that finds no place here is not removed by an interruption, but by the next process that
 * writes to the same path. */
enum { GUARDED = 1024 };
static const char *_Atomic guarded[GUARDED];
static atomic_int held, interrupted; /* interrupted: the signal that has come; 0: none */
static atomic_flag ending = ATOMIC_FLAG_INIT;
static volatile sig_atomic_t tell_json, line_shown;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool enabled, started;
    const char *what;
    const fcpc_progress *planning; /* NULL: unknown, or nothing is being planned */
    double since;
    size_t candidate, candidates; /* the number, from 1, of the one that is worked on, and of all; 0: no candidates */
    double begun;                 /* when the first candidate began */
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

/* Ends the process. A handler on another thread and the main thread may call it at the same time; only the first one
 * does the work. It calls only functions that a signal handler may call. */
static void end_interrupted(void) {
    static const char message[] = "fcpc: error[E013]: interrupted\n";
#define INTERRUPTED                                                                                                    \
    "{\"severity\": \"error\", \"code\": \"E013\", \"message\": \"interrupted\", "                                     \
    "\"file\": \"\", \"line\": 0, \"column\": 0}"
    static const char object[] = "{\"error\": " INTERRUPTED ", \"diagnostics\": [" INTERRUPTED "], \"warnings\": []}\n";
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL); /* so that no handler interrupts this */
    if (atomic_flag_test_and_set(&ending))
        for (;;) pause();
    for (int i = 0; i < GUARDED; i++) {
        const char *path = atomic_load(&guarded[i]);
        if (path) unlink(path);
    }
    if (line_shown) say(STDERR_FILENO, erase_line, sizeof erase_line - 1);
    const int number = atomic_load(&interrupted);
    if (number != SIGINT && number != SIGTERM && number != SIGHUP) { /* the parent should see which signal it was */
        sigset_t one;
        sigemptyset(&one);
        sigaddset(&one, number);
        signal(number, SIG_DFL);
        raise(number);
        pthread_sigmask(SIG_UNBLOCK, &one, NULL);
    }
    say(STDERR_FILENO, message, sizeof message - 1);
    if (tell_json) say(STDOUT_FILENO, object, sizeof object - 1);
    _exit(fcp_code_exit(FCP_E_INTERRUPTED));
}

/* The handler may run on any thread. If some thread is between cmd_hold and cmd_release, the process goes on until the
 * last of them releases. The handler stores `interrupted` and then reads `held`; a thread that holds or releases
 * changes `held` and then reads `interrupted`. So at least one of the two sees the other, and no interruption is lost.
 */
static void on_signal(int number) {
    atomic_store(&interrupted, number);
    if (!atomic_load(&held)) end_interrupted();
}

void cmd_hold(void) {
    if (atomic_fetch_add(&held, 1) == 0 && atomic_load(&interrupted)) end_interrupted();
}

void cmd_release(void) {
    if (atomic_fetch_sub(&held, 1) == 1 && atomic_load(&interrupted)) end_interrupted();
}

void cmd_guard(const char *path) {
    for (int i = 0; i < GUARDED; i++) {
        const char *none = NULL;
        if (atomic_compare_exchange_strong(&guarded[i], &none, path)) return;
    }
}

void cmd_unguard(const char *path) {
    for (int i = 0; i < GUARDED; i++)
        if (atomic_load(&guarded[i]) == path) atomic_store(&guarded[i], NULL);
}

double cmd_now(void) { return fcp_clock(); }

/* ": 14 % of 17.2 G pairs, about 17 s left", or nothing. Called with the lock held. */
static void say_how_far(double seconds) {
    const fcpc_progress *p = progress.planning;
    const double expected = p ? (double)__atomic_load_n(&p->expected, __ATOMIC_RELAXED) : 0;
    const double done = p ? (double)__atomic_load_n(&p->done, __ATOMIC_RELAXED) : 0;
    if (expected == 0 || done == 0) return;
    const double part = done < expected ? done / expected : 1;
    fprintf(stderr, ": %.0f %% of %.1f G pairs", 100 * part, expected / 1e9);
    const double left = seconds / part * (1 - part);
    if (left < 120) fprintf(stderr, ", about %.0f s left", left);
    else if (left < 7200) fprintf(stderr, ", about %.0f minutes left", left / 60);
    else fprintf(stderr, ", about %.0f hours left", left / 3600);
}

static void *ticker(void *unused) {
    (void)unused;
    pthread_mutex_lock(&progress.lock);
    for (;;) {
        while (!progress.what && !progress.candidates) pthread_cond_wait(&progress.changed, &progress.lock);
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 250000000;
        if (until.tv_nsec >= 1000000000) {
            until.tv_nsec -= 1000000000;
            until.tv_sec++;
        }
        pthread_cond_timedwait(&progress.changed, &progress.lock, &until);
        const bool several = progress.candidates;
        const double now = cmd_now(), seconds = now - (several ? progress.begun : progress.since);
        if ((progress.what || several) && seconds >= 1) {
            line_shown = 1;
            fputs(erase_line, stderr);
            if (several) fprintf(stderr, "candidate %zu of %zu: ", progress.candidate, progress.candidates);
            fprintf(stderr, "%s ... %.0f s", progress.what ? progress.what : "predicting", seconds);
            say_how_far(now - progress.since);
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
    static const int others[] = {SIGHUP,  SIGPIPE, SIGXCPU, SIGQUIT, SIGALRM, SIGUSR1,
                                 SIGUSR2, SIGVTALRM, SIGPROF, SIGPOLL, SIGPWR};
    struct sigaction before;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (sigaction(others[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(others[i], &action, NULL);
    action.sa_handler = SIG_IGN;
    sigaction(SIGXFSZ, &action, NULL); /* then writing more than `ulimit -f` allows is an error like any other */
}

/* Called with the lock held. */
static void start_ticker(void) {
    pthread_t thread;
    if (progress.started) return;
    progress.started = fcp_thread_start(&thread, 0, ticker, NULL);
    if (progress.started) pthread_detach(thread);
}

void cmd_candidate(size_t number, size_t of) {
    if (!progress.enabled) return;
    pthread_mutex_lock(&progress.lock);
    start_ticker();
    if (!progress.candidates) progress.begun = cmd_now();
    progress.candidate = number;
    progress.candidates = of;
    pthread_cond_signal(&progress.changed);
    pthread_mutex_unlock(&progress.lock);
}

void cmd_doing(const char *what) {
    if (!progress.enabled) return;
    pthread_mutex_lock(&progress.lock);
    start_ticker();
    progress.what = what;
    progress.planning = NULL;
    progress.since = cmd_now();
    pthread_cond_signal(&progress.changed);
    pthread_mutex_unlock(&progress.lock);
}

void cmd_watch(const fcpc_progress *planning) {
    pthread_mutex_lock(&progress.lock);
    progress.planning = planning;
    pthread_mutex_unlock(&progress.lock);
}

void cmd_done(void) {
    if (!progress.started) return;
    pthread_mutex_lock(&progress.lock);
    progress.what = NULL;
    progress.planning = NULL;
    if (line_shown) {
        fputs(erase_line, stderr);
        fflush(stderr);
        line_shown = 0;
    }
    pthread_mutex_unlock(&progress.lock);
}
