/* task.h: a judgement under way, and its tasks. Private to runtime/judge. */
#ifndef FCP_JUDGE_TASK_H
#define FCP_JUDGE_TASK_H
#include <pthread.h>
#include <stdatomic.h>

#include "codegen/mask/code.h"
#include "runtime/judge/judge_parts.h"
#include "runtime/judge/sample.h"

typedef struct check_run {
    const fcp_plan *plan;
    fcp_shape shape;
    const fcp_packed *in;
    const fcp_packed *judged; /* NULL: nothing is judged */
    const uint8_t *rows[FCP_SIDES]; /* a bit per packed token: whether its rows are judged; NULL: all are */
    fcp_reference *out;       /* where to put the reference itself; NULL: nowhere */
    const check_sample *sample; /* NULL: all rows */
    mc_code slope;            /* of the score, derived by the judge */
    mc_code rough;            /* see check_rough */
    bool backward;
    const volatile int *stop;
    uint32_t *order;          /* sequences, longest first */
    _Atomic uint64_t next;    /* task */
    pthread_mutex_t lock;
    double wire[FCP_TENSORS]; /* RULE.md: flat */
    measure measures[FCP_TENSORS]; /* under lock */
    fcp_code code;                        /* under lock */
} check_run;

/* Computes task `index`: all rows of a KV head of a sequence; or, in a sample, some rows of queries for one head
 * (against all keys), or some keys of one KV head (against all queries). Any number of threads may compute tasks of
 * a run. `measures` gets the errors of its numbers. False: out of memory. */
bool check_task(check_run *run, uint64_t index, measure measures[FCP_TENSORS]);
#endif
