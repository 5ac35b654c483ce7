/* clock.h: how long the phases took. No decision of the compiler looks at a clock. */
#ifndef FCPC_BASE_CLOCK_H
#define FCPC_BASE_CLOCK_H
#include <time.h>

/* Seconds, monotonic. */
static inline double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
#endif
