/* nccl.h: a library that stands in for NCCL in tests, beside the driver that stands in: processes on one machine, each with
 * devices of its own, send through a shared file (mailbox.h).
 *
 * A group is one node of a stream or of a graph. It gets on when somebody asks the driver, and is complete when all of its
 * parts are; between two ranks the n-th send meets the n-th receive. A send may wait for its receive, by `seed`, so that an
 * order that can deadlock does. What the real one refuses is refused; what would hang there, or do damage, is `trouble` of
 * the driver's (standin.h), which also counts what is alive. It is chosen by FCP_NCCL, and never a fallback.
 *
 * What is stricter than the real one: a pair is connected by a group outside any capture, in which both its ends wait for
 * each other in the host; only registered memory may not be given back; memory of ncclMemAlloc alone is registered; a group
 * lies in one stream. */
#ifndef STANDIN_NCCL_H
#define STANDIN_NCCL_H
#include "runtime/libraries/nccl.h"

/* Beside NCCL's results: what becomes of the process instead. */
enum { STANDIN_DIES = 1000, STANDIN_STOPS, STANDIN_STALLS };

typedef struct standin_nccl {
    int version;          /* 22809, or as STANDIN_NCCL_VERSION says where no test can */
    uint64_t seed;        /* which sends wait for their receives; from an odd one on finalizing waits for all ranks */
    bool silent;          /* whoever dies or does not answer is waited for without end; else it is an error of NCCL's */
    unsigned patience_s;  /* a call that blocks so long would block for ever: trouble; 0: 200 */
    volatile int *stops;  /* is 1 once the process has stopped itself, as below; NULL: nobody is told */
    long fail_at;         /* this call, counted by `calls` (which questions for errors are not), returns fail_with, or
                             STANDIN_DIES, STANDIN_STOPS; 0: none */
    int fail_with;
    long group_at;        /* when this group is begun on the device, counted by `begun`: STANDIN_DIES, ...; 0: none */
    int group_fault;
    long async_at;        /* from this question for an asynchronous error on, counted by `asked`, there is one; 0: none */
    int async_with;
    /* what happened */
    long calls, begun, asked;
    unsigned long groups, empty_groups, operations, captured, registrations;
    int cga_cluster_size, min_ctas, max_ctas; /* of the last communicator */
} standin_nccl;
standin_nccl *standin_nccl_control(void);
#endif
