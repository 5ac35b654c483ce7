/* clock.h: time limits of waits, by the monotonic clock. Nothing else in the library looks at a clock but to
 * measure. */
#ifndef FCP_CLOCK_H
#define FCP_CLOCK_H
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

static inline double fcp_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The time `milliseconds` from now, for a condition made by fcp_condition_init. */
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

/* Asking again and again for what nobody announces, at intervals that double. */
typedef struct fcp_patience {
    double end;       /* fcp_clock's: then it has lasted long enough */
    long pause, most; /* nanoseconds: the next interval, the longest */
} fcp_patience;
static inline fcp_patience fcp_patience_of(uint32_t timeout_s, long pause, long most) {
    return (fcp_patience){fcp_clock() + timeout_s, pause, most};
}
static inline bool fcp_patience_over(const fcp_patience *x) { return fcp_clock() > x->end; }
static inline void fcp_pause(fcp_patience *x) {
    nanosleep(&(struct timespec){.tv_nsec = x->pause}, NULL);
    x->pause = x->pause < x->most / 2 ? 2 * x->pause : x->most;
}

static inline bool fcp_condition_init(pthread_cond_t *condition) {
    pthread_condattr_t attr;
    if (pthread_condattr_init(&attr)) return false;
    bool ok = !pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) && !pthread_cond_init(condition, &attr);
    pthread_condattr_destroy(&attr);
    return ok;
}
#endif
