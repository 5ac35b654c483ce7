/* interrupt.h: lets the caller of a session end a function that computes or waits for long.
 *
 * The caller may give a function that says whether to stop. It may be called only in the thread in which the caller has
 * called the session: a Python program, for example, handles its signals in that thread. So code that runs for more
 * than some milliseconds calls fcp_interrupted in whichever thread it runs. In the caller's thread, and often enough,
 * this asks the caller; in other threads it does nothing.
 */
#ifndef FCP_BASE_INTERRUPT_H
#define FCP_BASE_INTERRUPT_H
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Milliseconds between two calls of the caller's function. The caller is promised less than 50: the rest is for the
 * work between two calls of fcp_interrupted. */
enum { FCP_INTERRUPT_MS = 30 };

typedef struct fcp_interrupt {
    int (*asked)(void *context); /* the caller's; NULL: he is never asked */
    void *context;
    pthread_t caller;            /* the thread in a function of the session */
    uint64_t last;               /* when that function began, or he was asked last: fcp_clock_ns */
    bool over;                   /* he has said that he wants no more: he is not asked again */
} fcp_interrupt;

/* The calling thread begins a function of the session. */
void fcp_interrupt_begin(fcp_interrupt *x);
/* Returns whether the caller wants the function to end. True only in the caller's thread; then the function returns
 * FCP_E_INTERRUPTED. If x is NULL, nobody is asked. */
bool fcp_interrupted(fcp_interrupt *x);
#endif
