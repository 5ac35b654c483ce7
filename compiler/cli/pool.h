/* pool.h: the threads of `fcpc serve`, which answer requests side by side.
 *
 *     cmd_pool_give(&pool, &job);                    job.line is a request
 *     poll on pool.bell, which can be read when a job is done
 *     cmd_job *done = cmd_pool_take(&pool);          done->answer is its answer
 *
 * One thread gives and takes. A job belongs to the pool from the one to the other, and so does the line that it names.
 */
#ifndef FCPC_CLI_POOL_H
#define FCPC_CLI_POOL_H
#include <pthread.h>

#include "compiler/base/text.h"
#include "runtime/fcp.h"

enum { CMD_POOL_MOST = 64 };

typedef struct cmd_job {
    const char *line;
    size_t size;
    void *of;     /* the giver's own */
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

/* Starts as many threads as can be had, up to `threads`, which is at most CMD_POOL_MOST. They get no signals.
 * They refuse masks that take longer than max_seconds; 0: none. */
fcp_code cmd_pool_start(cmd_pool *p, unsigned threads, double max_seconds, fcp_error *err);
void cmd_pool_give(cmd_pool *p, cmd_job *job);
/* Nobody wants the answer any more: the job will be done soon. */
void cmd_pool_stop(cmd_job *job);
/* A job that is done, or NULL. */
cmd_job *cmd_pool_take(cmd_pool *p);
/* Waits for the threads, which end the jobs that they have begun. The others are left as they are. */
void cmd_pool_end(cmd_pool *p);
#endif
