/* both.c: two pieces of work, in two threads or one after the other. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "runtime/base/both.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>

typedef struct task {
    void (*work)(void *);
    void *on;
} task;

static void *run(void *given) {
    const task *t = given;
    t->work(t->on);
    return NULL;
}

/* A new thread inherits the mask of signals. The caller's handlers must run in the caller's threads. */
static bool start(pthread_t *out, task *t) {
    sigset_t all, before;
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before)) return false;
    bool good = !pthread_create(out, NULL, run, t);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return good;
}

bool fcp_both_at_once(void) {
    cpu_set_t mine;
    return sched_getaffinity(0, sizeof mine, &mine) || CPU_COUNT(&mine) > 1; /* too many to ask about are several */
}

void fcp_both(void (*work)(void *), void *first, void *second) {
    pthread_t thread;
    task other = {work, second};
    bool started = fcp_both_at_once() && start(&thread, &other);
    work(first);
    if (started) pthread_join(thread, NULL);
    else work(second);
}
