/* threads.h: what all threads that this project starts have in common. */
#ifndef FCP_BASE_THREADS_H
#define FCP_BASE_THREADS_H
#include <pthread.h>
#include <stdbool.h>

/* Starts a thread that gets no signals: the caller's handlers must run in the caller's threads. */
bool fcp_thread_start(pthread_t *out, void *(*body)(void *), void *given);
/* How many processors this machine has, but at most `most`. */
unsigned fcp_processors(unsigned most);
#endif
