/* threads.h: starts threads, and counts processors. */
#ifndef FCP_BASE_THREADS_H
#define FCP_BASE_THREADS_H
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/* Starts a thread that gets no signals: the caller's handlers must run in the caller's threads. stack: bytes, or 0 for
 * the system's default. */
bool fcp_thread_start(pthread_t *out, size_t stack, void *(*body)(void *), void *given);
/* How many processors this machine has, but at most `most`. */
unsigned fcp_processors(unsigned most);
#endif
