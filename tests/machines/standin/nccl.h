/* nccl.h: a stand-in for the NCCL library in tests. It works with the stand-in driver (standin.h). Processes of one
 * machine, each with devices of its own, send to each other through a shared file (mailbox.h).
 *
 * A group is one node of a stream or of a graph. It progresses when somebody asks the driver for something, and is
 * complete when all its sends and receives are. Between two ranks the n-th send meets the n-th receive. Whether a send
 * waits for its receive depends on the seed, so that an order of groups that can deadlock does deadlock. A call that
 * the real NCCL refuses is refused. A call that would hang the real NCCL, or destroy something, is reported as
 * `trouble` of the stand-in driver (standin.h), which also counts the objects that exist. A test chooses this library
 * with FCP_NCCL; the runtime never falls back to it.
 *
 * It is stricter than the real NCCL in four ways:
 *   - Two ranks are connected by a group outside of any capture, for which both wait on the host.
 *   - Registered memory may not be released.
 *   - Only memory of ncclMemAlloc may be registered.
 *   - All calls of a group use one stream.
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
    /* Faults that a test asks for. 0 means none. Calls are numbered by `calls`, groups by `begun`, questions for errors
     * by `asked`; `calls` leaves these questions out.
     *   fail_at    the number of a call that returns fail_with. With STANDIN_DIES or STANDIN_STOPS as fail_with, the
     *              process dies or stops there instead
     *   group_at   the number of a group: group_fault, one of these values, happens when it begins on the device
     *   async_at   the number of a question for errors: from there on the asynchronous error is async_with */
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
