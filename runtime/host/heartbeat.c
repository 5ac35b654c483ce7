/* heartbeat.c: the thread that sends heartbeats, and what is known of the ranks of other processes.
 *
 * Requires: a transport that brings heartbeats from each process to every other.
 * Gives:    heartbeat.h.
 * Method:   progress is measured as processor time, which the system counts. So no code has to report that it is busy,
 *           and none can forget to. The time that a thread spends polling is subtracted.
 * Limits:   a process that sleeps, or waits for a disk or for another program, makes no progress. One that computes for
 *           ever does: no time limit ends that.
 * Cost:     a thread that runs 1 to 8 times a second, and a small message from each process to every other.
 */
#include "runtime/host/heartbeat.h"

#include <stdlib.h>

#include "runtime/base/threads.h"
#include "runtime/exec/error_place.h"

enum { STACK = 128 << 10, BEATS = 8, LONGEST = 1000, SHARE = 10 }; /* SHARE: a process has got on if it used 1/SHARE */

/* Milliseconds between two beats. */
static uint32_t interval(const fcp_heartbeat *h) {
    return h->timeout_s < LONGEST * BEATS / 1000 ? h->timeout_s * 1000 / BEATS : LONGEST;
}

/* How long a rank may be silent. Its heartbeats are looked for once in an interval; if this process had no processor
 * for longer than that, the others are not to blame. */
static fcp_patience silence(const fcp_heartbeat *h) { return fcp_patience_of(h->timeout_s, 2e-3 * interval(h)); }

static uint64_t used_ns(clockid_t clock) {
    struct timespec t = {0};
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void find_silent(fcp_heartbeat *h) {
    uint32_t silent = FCP_NONE;
    for (uint32_t r = h->ranks; r-- > 0;)
        if (h->beats[r] && fcp_patience_ends(&h->left[r])) silent = r;
    h->silent = silent;
}

static void *beat(void *argument) {
    fcp_heartbeat *h = argument;
    uint64_t time = fcp_clock_ns(), used = used_ns(CLOCK_PROCESS_CPUTIME_ID);
    pthread_mutex_lock(&h->lock);
    while (!h->stop) {
        struct timespec until = fcp_deadline(interval(h));
        while (!h->stop && !pthread_cond_timedwait(&h->changed, &h->lock, &until)) continue;
        if (h->stop) break;
        pthread_mutex_unlock(&h->lock);
        uint64_t time_now = fcp_clock_ns(), used_now = used_ns(CLOCK_PROCESS_CPUTIME_ID);
        uint64_t idle = atomic_exchange(&h->idle_ns, 0), busy = used_now - used;
        bool moved = atomic_exchange(&h->moved, false);
        bool worked = busy > idle && (busy - idle) * SHARE >= time_now - time;
        time = time_now;
        used = used_now;
        if (moved) h->progress++;
        h->call(h->context, moved || worked);
        find_silent(h);
        pthread_mutex_lock(&h->lock);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

fcp_code fcp_heartbeat_begin(fcp_heartbeat *h, uint32_t ranks, uint32_t timeout_s, fcp_heartbeat_call *call,
                             void *context, fcp_error *err) {
    h->ranks = ranks;
    h->timeout_s = timeout_s;
    h->call = call;
    h->context = context;
    h->stop = false;
    h->silent = FCP_NONE;
    h->left = calloc(ranks, sizeof *h->left);
    h->beats = calloc(ranks, sizeof *h->beats);
    if (h->left && h->beats && !pthread_mutex_init(&h->lock, NULL)) {
        if (fcp_condition_init(&h->changed)) {
            h->begun = fcp_thread_start(&h->thread, STACK, beat, h);
            if (h->begun) return FCP_OK;
            pthread_cond_destroy(&h->changed);
        }
        pthread_mutex_destroy(&h->lock);
    }
    free(h->left);
    free(h->beats);
    return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory: no thread could be started that tells others of this rank");
}

void fcp_heartbeat_end(fcp_heartbeat *h) {
    if (!h->begun) return;
    pthread_mutex_lock(&h->lock);
    h->stop = true;
    pthread_cond_signal(&h->changed);
    pthread_mutex_unlock(&h->lock);
    pthread_join(h->thread, NULL);
    pthread_cond_destroy(&h->changed);
    pthread_mutex_destroy(&h->lock);
    free(h->left);
    free(h->beats);
    h->begun = false;
}

void fcp_heartbeat_heard(fcp_heartbeat *h, uint32_t rank, bool got_on) {
    h->left[rank] = silence(h);
    h->beats[rank] = true;
    if (got_on) h->progress++;
}

void fcp_heartbeat_ended(fcp_heartbeat *h, uint32_t rank) { h->beats[rank] = false; }

void fcp_heartbeat_moved(fcp_heartbeat *h) { h->moved = true; }

void fcp_heartbeat_idle(fcp_heartbeat *h, uint64_t *mark) {
    const uint64_t now = used_ns(CLOCK_THREAD_CPUTIME_ID);
    if (*mark) h->idle_ns += now - *mark;
    *mark = now;
}

fcp_code fcp_heartbeat_check(const fcp_heartbeat *h, fcp_error *err) {
    const uint32_t rank = h->begun ? h->silent : FCP_NONE;
    if (rank == FCP_NONE) return FCP_OK;
    return fcp_fail_at(err, FCP_E_RUN, fcp_where_rank(rank),
                       "rank %u has not been heard of for %u s: its process is stopped, or its machine is not reached",
                       rank, h->timeout_s);
}

fcp_heartbeat_wait fcp_heartbeat_wait_begin(const fcp_heartbeat *h) {
    return (fcp_heartbeat_wait){fcp_patience_of(h->timeout_s, 0.1), h->progress};
}

bool fcp_heartbeat_wait_ends(const fcp_heartbeat *h, fcp_heartbeat_wait *wait) {
    if (h->progress != wait->progress) *wait = fcp_heartbeat_wait_begin(h);
    return fcp_patience_ends(&wait->left);
}
