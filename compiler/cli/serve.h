/* serve.h: how `fcpc serve` answers one request (request.c), and the threads that answer requests in parallel (pool.c).
 *
 *     cmd_pool_give(&pool, &job);                    job.line is a request
 *     poll on pool.bell, which becomes readable when a job is done
 *     cmd_job *done = cmd_pool_take(&pool);          done->answer is its answer
 *
 * One thread gives and takes jobs. From cmd_pool_give to cmd_pool_take a job belongs to the pool, and so does its line.
 */
#ifndef FCPC_CLI_SERVE_H
#define FCPC_CLI_SERVE_H
#include <pthread.h>

#include "compiler/base/text.h"
#include "runtime/fcp.h"

/* --- one request (request.c) -------------------------------------------------------------------------------------- */

/* Plans what the line asks for, and appends the answer, which is a line too, to *out. If the request has an error, the
 * answer reports it. Returns whether the request was done. A mask that would take longer than max_seconds (0: no
 * limit), or than the request allows, is refused with E405. Another thread may set *stop: then planning ends with E013.
 */
bool cmd_answer(const char *line, size_t size, double max_seconds, const volatile int *stop, text *out);
/* Appends the answer to a line that was not read; *err says why it was not. */
void cmd_refuse(const fcp_error *err, text *out);

/* --- the threads (pool.c) ----------------------------------------------------------------------------------------- */

enum { CMD_POOL_MOST = 64 };

typedef struct cmd_job {
    const char *line;
    size_t size;
    void *of;     /* for the giver's use */
    int stop;     /* set by cmd_pool_stop */
    text answer;  /* of a job that is done: a line, which the taker frees */
    bool good;    /* the request was done */
    struct cmd_job *next;
} cmd_job;

typedef struct cmd_queue {
    cmd_job *first, *last;
} cmd_queue;

typedef struct cmd_pool {
    pthread_mutex_t lock; /* of the queues and of `leave` */
    pthread_cond_t given;
    cmd_queue waiting, done;
    bool leave;
    double max_seconds; /* of every request (fcpc_batch) */
    int bell; /* an eventfd */
    unsigned count;
    pthread_t threads[CMD_POOL_MOST];
} cmd_pool;

/* Starts `threads` threads, at most CMD_POOL_MOST, or as many of them as the system allows. They receive no signals.
 * They refuse masks that are estimated to take longer than max_seconds; 0: no limit. */
fcp_code cmd_pool_start(cmd_pool *p, unsigned threads, double max_seconds, fcp_error *err);
void cmd_pool_give(cmd_pool *p, cmd_job *job);
/* The answer is not wanted any more: planning stops, and the job will soon be done. */
void cmd_pool_stop(cmd_job *job);
/* A job that is done, or NULL. */
cmd_job *cmd_pool_take(cmd_pool *p);
/* Waits for the threads, which end the jobs that they have begun. The others are left as they are. */
void cmd_pool_end(cmd_pool *p);
#endif
