/* clock.h: the monotonic clock, for measuring and for time limits of waits. Nothing else is decided by a clock. */
#ifndef FCP_BASE_CLOCK_H
#define FCP_BASE_CLOCK_H
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* Seconds, monotonic. */
static inline double fcp_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The same in nanoseconds. */
static inline uint64_t fcp_clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* A time limit for something that is polled. Between two polls at most `step` seconds count: if more time has
 * passed, this process was stopped or had no processor, and the other side is not to blame for that. */
typedef struct fcp_patience {
    double last, left, step;
} fcp_patience;

/* Starts the limit. `step` is in seconds, and longer than the time between two polls if all is well. */
static inline fcp_patience fcp_patience_of(double seconds, double step) {
    return (fcp_patience){fcp_clock(), seconds, step};
}

/* To be called after each poll that found nothing: returns whether the time has run out. */
static inline bool fcp_patience_ends(fcp_patience *p) {
    double now = fcp_clock(), step = now - p->last;
    p->last = now;
    p->left -= step < p->step ? step : p->step;
    return p->left < 0;
}

/* The time in `milliseconds` from now, for pthread_cond_timedwait with a condition of fcp_condition_init. */
static inline struct timespec fcp_deadline(uint32_t milliseconds) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += milliseconds / 1000;
    t.tv_nsec += (long)(milliseconds % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    return t;
}

static inline bool fcp_earlier(const struct timespec *a, const struct timespec *b) {
    return a->tv_sec < b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec < b->tv_nsec);
}

/* Sleeps between two polls: *next nanoseconds, which doubles from call to call, up to `most`. */
static inline void fcp_pause(long *next, long most) {
    nanosleep(&(struct timespec){.tv_nsec = *next}, NULL);
    *next = *next < most / 2 ? 2 * *next : most;
}

/* A condition whose timed waits use the monotonic clock. */
static inline bool fcp_condition_init(pthread_cond_t *condition) {
    pthread_condattr_t attr;
    if (pthread_condattr_init(&attr)) return false;
    bool ok = !pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) && !pthread_cond_init(condition, &attr);
    pthread_condattr_destroy(&attr);
    return ok;
}
#endif
