/* threads.c: what all threads that this project starts have in common. */
#include "runtime/base/threads.h"

#include <signal.h>
#include <stddef.h>
#include <unistd.h>

bool fcp_thread_start(pthread_t *out, void *(*body)(void *), void *given) {
    sigset_t all, before; /* a new thread inherits the mask of signals */
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before)) return false;
    const bool good = !pthread_create(out, NULL, body, given);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return good;
}

unsigned fcp_processors(unsigned most) {
    const long there = sysconf(_SC_NPROCESSORS_ONLN);
    return there < 1 ? 1 : there < (long)most ? (unsigned)there : most;
}
