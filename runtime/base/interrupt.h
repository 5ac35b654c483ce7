/* interrupt.h: how the caller of a session ends a function that works or waits for long.
 *
 * The caller gives a function of his own, which says whether he wants no more. Only the thread that he has called from
 * may call it: a program of Python, say, handles its signals in it. So whoever works for more than some milliseconds
 * asks here, in whichever thread he is, and in that thread it is passed on to the caller, now and then.
 */
#ifndef FCP_BASE_INTERRUPT_H
#define FCP_BASE_INTERRUPT_H
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Milliseconds between two questions to the caller. He is promised less than 50: the rest is for what is done between
 * two calls of fcp_interrupted. */
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
/* Does the caller want no more? Only in his thread, and when it is time to ask him; else false. True: the function ends
 * with FCP_E_INTERRUPTED. x may be NULL: nobody is asked. */
bool fcp_interrupted(fcp_interrupt *x);
#endif
