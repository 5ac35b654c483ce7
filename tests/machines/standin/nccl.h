/* nccl.h: a library that stands in for NCCL in tests, beside the driver that stands in (standin.h). Processes of one
 * machine, each with devices of its own, send to each other through a shared file (mailbox.h).
 *
 * A group is one node of a stream or of a graph. It progresses when somebody asks the driver for something, and is
 * complete when all its sends and receives are. Between two ranks the n-th send meets the n-th receive. Whether a send
 * waits for its receive depends on the seed, so that an order of groups that can deadlock does deadlock. A call that
 * the real NCCL refuses is refused. What would hang there, or destroy something, is `trouble` of the driver, which also
 * counts the objects that exist. A test chooses this library with FCP_NCCL; the runtime never falls back to it.
 *
 * In four ways it is stricter than the real NCCL: two ranks are connected by a group outside of any capture, for which
 * both wait in the host; registered memory may not be released; only memory of ncclMemAlloc may be registered; a group
 * lies in one stream.
 */
#ifndef STANDIN_NCCL_H
#define STANDIN_NCCL_H
#include "runtime/libraries/nccl.h"

/* In the place of a result of NCCL: the process dies, stops, or no longer gets on. */
enum { STANDIN_DIES = 1000, STANDIN_STOPS, STANDIN_STALLS };

typedef struct standin_nccl {
    int version;          /* 22809; STANDIN_NCCL_VERSION changes it if no test can */
    uint64_t seed;        /* draws which sends wait for their receives; if it is odd, finalizing waits for all ranks */
    bool silent;          /* a rank that dies or does not answer is waited for without end; otherwise it is an error */
    unsigned patience_s;  /* a call that blocks longer is taken to block for ever, which is trouble; 0: 200 */
    volatile int *stops;  /* becomes 1 when the process stops itself; NULL: nobody is told */
    /* Faults that a test asks for; 0: none. fail_at: the call with this number (as `calls` counts, which leaves out
     * questions for errors) returns fail_with, or does STANDIN_DIES or STANDIN_STOPS. group_at: the same when the group
     * with this number (as `begun` counts) begins on the device. async_at: there is an asynchronous error from the
     * question for one with this number on (as `asked` counts). */
    long fail_at;
    int fail_with;
    long group_at;
    int group_fault;
    long async_at;
    int async_with;
    /* what happened */
    long calls, begun, asked;
    unsigned long groups, empty_groups, operations, captured, registrations;
    int cga_cluster_size, min_ctas, max_ctas; /* of the last communicator */
} standin_nccl;
standin_nccl *standin_nccl_control(void);
#endif
