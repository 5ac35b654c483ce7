/* pool.c: the threads of `fcpc serve`, which answer requests in parallel.
 *
 * There are two queues: jobs that wait, and jobs that are done. A thread takes the first job that waits, answers it,
 * appends it to the jobs that are done, and signals that on the eventfd. Nothing else is shared, because planning keeps
 * no state outside of its arguments.
 */
#include <sys/eventfd.h>
#include <unistd.h>

#include "compiler/cli/serve.h"
#include "runtime/base/threads.h"

static void append_job(cmd_queue *q, cmd_job *job) {
    job->next = NULL;
    if (q->first) q->last->next = job;
    else q->first = job;
    q->last = job;
}

static cmd_job *remove_first(cmd_queue *q) {
    cmd_job *job = q->first;
    if (job) q->first = job->next;
    return job;
}

/* Waits for a job, and removes it from the queue. NULL: the thread must end. */
static cmd_job *wait_for_job(cmd_pool *p) {
    pthread_mutex_lock(&p->lock);
    while (!p->waiting.first && !p->leave) pthread_cond_wait(&p->given, &p->lock);
    cmd_job *job = p->leave ? NULL : remove_first(&p->waiting);
    pthread_mutex_unlock(&p->lock);
    return job;
}

static void *answer_jobs(void *given) {
    cmd_pool *p = given;
    cmd_job *job;
    while ((job = wait_for_job(p))) {
        job->good = cmd_answer(job->line, job->size, p->max_seconds, &job->stop, &job->answer);
        pthread_mutex_lock(&p->lock);
        append_job(&p->done, job);
        pthread_mutex_unlock(&p->lock);
        eventfd_write(p->bell, 1);
    }
    return NULL;
}

fcp_code cmd_pool_start(cmd_pool *p, unsigned threads, double max_seconds, fcp_error *err) {
    *p = (cmd_pool){.lock = PTHREAD_MUTEX_INITIALIZER, .given = PTHREAD_COND_INITIALIZER, .max_seconds = max_seconds};
    p->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    while (p->bell >= 0 && p->count < threads && fcp_thread_start(&p->threads[p->count], 0, answer_jobs, p)) p->count++;
    return p->count ? FCP_OK : fcp_fail(err, FCP_E_NO_MEMORY, "no thread can be started");
}

void cmd_pool_give(cmd_pool *p, cmd_job *job) {
    job->stop = 0;
    job->answer = (text){0};
    pthread_mutex_lock(&p->lock);
    append_job(&p->waiting, job);
    pthread_cond_signal(&p->given);
    pthread_mutex_unlock(&p->lock);
}

void cmd_pool_stop(cmd_job *job) { __atomic_store_n(&job->stop, 1, __ATOMIC_RELAXED); }

cmd_job *cmd_pool_take(cmd_pool *p) {
    eventfd_t rings;
    eventfd_read(p->bell, &rings); /* read first, so that a job that is done later makes the eventfd readable again */
    pthread_mutex_lock(&p->lock);
    cmd_job *job = remove_first(&p->done);
    pthread_mutex_unlock(&p->lock);
    return job;
}

void cmd_pool_end(cmd_pool *p) {
    pthread_mutex_lock(&p->lock);
    p->leave = true;
    pthread_cond_broadcast(&p->given);
    pthread_mutex_unlock(&p->lock);
    for (unsigned i = 0; i < p->count; i++) pthread_join(p->threads[i], NULL);
    if (p->bell >= 0) close(p->bell);
}
