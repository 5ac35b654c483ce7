/* both.c: runs two pieces of work at once, with a helper thread or one after the other (both.h). */
#define _GNU_SOURCE /* sched_getaffinity */
#include "runtime/base/both.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stddef.h>

#include "runtime/base/threads.h"

typedef struct task {
    void (*work)(void *);
    void *on;
} task;

/* A thread that waits for tasks. */
typedef struct helper {
    unsigned begun; /* fcp_both_begin less fcp_both_end */
    bool started, busy;
    pthread_t thread;
    sem_t given, done;
    task now; /* work is NULL: the thread ends */
} helper;

static _Thread_local helper own; /* of the calling thread */

static void wait_for(sem_t *s) {
    while (sem_wait(s)) {} /* a signal's handler may have run */
}

static void *run_task(void *given) {
    const task *t = given;
    t->work(t->on);
    return NULL;
}

static void *serve(void *given) {
    helper *h = given;
    for (wait_for(&h->given); h->now.work; wait_for(&h->given)) {
        h->now.work(h->now.on);
        sem_post(&h->done);
    }
    return NULL;
}

static bool start_helper(helper *h) {
    if (h->started) return true;
    if (sem_init(&h->given, 0, 0) || sem_init(&h->done, 0, 0)) return false;
    return h->started = fcp_thread_start(&h->thread, 0, serve, h);
}

bool fcp_both_at_once(void) {
    cpu_set_t mine;
    return sched_getaffinity(0, sizeof mine, &mine) || CPU_COUNT(&mine) > 1; /* too many to ask about are several */
}

/* Starts a thread for this pair alone: for a pair inside another pair, whose helper is busy, and for callers outside
 * of fcp_both_begin and fcp_both_end. */
static void do_once(task first, task second) {
    pthread_t thread;
    bool started = fcp_thread_start(&thread, 0, run_task, &second);
    run_task(&first);
    if (started) pthread_join(thread, NULL);
    else run_task(&second);
}

void fcp_both(void (*work)(void *), void *first, void *second) {
    helper *h = &own;
    if (!fcp_both_at_once()) {
        work(first);
        work(second);
    } else if (!h->begun || h->busy || !start_helper(h)) {
        do_once((task){work, first}, (task){work, second});
    } else {
        h->now = (task){work, second};
        h->busy = true;
        sem_post(&h->given);
        work(first);
        wait_for(&h->done);
        h->busy = false;
    }
}

void fcp_both_begin(void) { own.begun++; }

void fcp_both_end(void) {
    helper *h = &own;
    if (--h->begun || !h->started) return;
    h->now = (task){NULL, NULL};
    sem_post(&h->given);
    pthread_join(h->thread, NULL);
    sem_destroy(&h->given);
    sem_destroy(&h->done);
    h->started = false;
}
