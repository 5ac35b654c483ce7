/* blas.c: the guard of OpenBLAS's process-wide settings.
 *
 * Requires: calls in pairs; enter only between open and close. Cost: a lock each.
 */
#include "runtime/host/blas.h"

#include <cblas.h>
#include <pthread.h>

static struct {
    pthread_mutex_t lock;
    pthread_cond_t turn;
    unsigned passes, callers;
    int threads_before;
} guard = {.lock = PTHREAD_MUTEX_INITIALIZER, .turn = PTHREAD_COND_INITIALIZER};

void fcp_blas_open(void) {
    pthread_mutex_lock(&guard.lock);
    if (guard.passes++ == 0) {
        guard.threads_before = openblas_get_num_threads();
        if (guard.threads_before != 1) openblas_set_num_threads(1);
    }
    pthread_mutex_unlock(&guard.lock);
}

void fcp_blas_close(void) {
    pthread_mutex_lock(&guard.lock);
    if (--guard.passes == 0 && guard.threads_before != 1) openblas_set_num_threads(guard.threads_before);
    pthread_mutex_unlock(&guard.lock);
}

void fcp_blas_enter(void) {
    pthread_mutex_lock(&guard.lock);
    while (guard.callers >= FCP_BLAS_CALLERS) pthread_cond_wait(&guard.turn, &guard.lock);
    guard.callers++;
    pthread_mutex_unlock(&guard.lock);
}

void fcp_blas_leave(void) {
    pthread_mutex_lock(&guard.lock);
    if (guard.callers-- == FCP_BLAS_CALLERS) pthread_cond_signal(&guard.turn);
    pthread_mutex_unlock(&guard.lock);
}
