/* threads.c: starts threads, and counts processors. */
#include "runtime/base/threads.h"

#include <signal.h>
#include <unistd.h>

bool fcp_thread_start(pthread_t *out, size_t stack, void *(*body)(void *), void *given) {
    sigset_t all, before; /* a new thread inherits the mask of signals */
    pthread_attr_t attr;
    sigfillset(&all);
    if (pthread_attr_init(&attr)) return false;
    bool good = (!stack || !pthread_attr_setstacksize(&attr, stack)) && !pthread_sigmask(SIG_SETMASK, &all, &before);
    if (good) {
        good = !pthread_create(out, &attr, body, given);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    pthread_attr_destroy(&attr);
    return good;
}

unsigned fcp_processors(unsigned most) {
    const long there = sysconf(_SC_NPROCESSORS_ONLN);
    return there < 1 ? 1 : there < (long)most ? (unsigned)there : most;
}
