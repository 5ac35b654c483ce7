/* clock.h: time limits of waits, by the monotonic clock. Nothing else in the library looks at a clock but to
 * measure. */
#ifndef FCP_BASE_CLOCK_H
#define FCP_BASE_CLOCK_H
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

static inline double fcp_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* How long something is still waited for that is asked after again and again. Time in which this process was stopped, or
 * had no processor, is nobody's fault who is waited for: of the time between two questions no more counts than `step`. */
typedef struct fcp_patience {
    double last, left, step;
} fcp_patience;

/* `step`: seconds, more than questions are apart where all is well. */
static inline fcp_patience fcp_patience_of(double seconds, double step) { return (fcp_patience){fcp_clock(), seconds, step}; }

/* After each question that had no answer: whether there are to be no more. */
static inline bool fcp_patience_ends(fcp_patience *p) {
    double now = fcp_clock(), step = now - p->last;
    p->last = now;
    p->left -= step < p->step ? step : p->step;
    return p->left < 0;
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

/* Between two questions: intervals, in nanoseconds, that double up to the longest. */
static inline void fcp_pause(long *next, long most) {
    nanosleep(&(struct timespec){.tv_nsec = *next}, NULL);
    *next = *next < most / 2 ? 2 * *next : most;
}

static inline bool fcp_condition_init(pthread_cond_t *condition) {
    pthread_condattr_t attr;
    if (pthread_condattr_init(&attr)) return false;
    bool ok = !pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) && !pthread_cond_init(condition, &attr);
    pthread_condattr_destroy(&attr);
    return ok;
}
#endif
