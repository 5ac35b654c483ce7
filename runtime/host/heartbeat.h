/* heartbeat.h: tells the processes of a session that wait for each other from processes that are dead or stuck.
 *
 * Suppose rank 0 judges a result for an hour, and rank 1 waits for it. Rank 1 must not take rank 0 for dead. So a
 * thread of each process sends a heartbeat to all others, several times within a time limit, whatever else the process
 * does. The heartbeat also says whether the process has made progress since the last one: whether it used a tenth of a
 * processor's time or more, for whatever work, or moved bytes.
 *
 * A rank that waits learns two things from this. A rank without heartbeats is *silent*: it is stopped, or its machine
 * cannot be reached. And the time limit of a wait starts anew whenever some rank makes *progress*. A rank that waits
 * uses no processor time. So if all ranks wait for one another, or for one whose program sleeps, none makes progress,
 * and the limit ends the wait.
 */
#ifndef FCP_HOST_HEARTBEAT_H
#define FCP_HOST_HEARTBEAT_H
#include <pthread.h>
#include <stdatomic.h>

#include "runtime/base/clock.h"
#include "runtime/fcp.h"

typedef struct fcp_heartbeat fcp_heartbeat;
/* Called at each heartbeat: the transport tells all others whether this process has made progress, and reports
 * through the functions below what has come from them. It must not wait. */
typedef void fcp_heartbeat_call(void *context, bool got_on);

struct fcp_heartbeat {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool begun, stop;          /* stop: under lock */
    uint32_t ranks, timeout_s;
    fcp_heartbeat_call *call;
    void *context;
    fcp_patience *left;        /* of each rank: how long it may still be silent */
    bool *beats;               /* of each rank: beats are to come, because one has, and it has not ended */
    _Atomic bool moved;        /* this process has moved bytes since the last beat */
    _Atomic uint64_t progress;
    _Atomic uint64_t idle_ns;  /* what threads that wait have used of the processor */
    _Atomic uint32_t silent;   /* the first silent rank; FCP_NONE: there is none */
};

/* Starts the thread. Errors: FCP_E_NO_MEMORY. */
fcp_code fcp_heartbeat_begin(fcp_heartbeat *h, uint32_t ranks, uint32_t timeout_s, fcp_heartbeat_call *call,
                             void *context, fcp_error *err);
/* Ends it, if it was begun. */
void fcp_heartbeat_end(fcp_heartbeat *h);

/* Only within the call: a beat of a rank has come; a rank has ended, which is not silence. */
void fcp_heartbeat_heard(fcp_heartbeat *h, uint32_t rank, bool got_on);
void fcp_heartbeat_ended(fcp_heartbeat *h, uint32_t rank);

/* Both may be called from any thread. fcp_heartbeat_moved: this process has moved bytes. fcp_heartbeat_idle: since
 * *mark the calling thread has only polled, so its processor time does not count; *mark is 0 at first. */
void fcp_heartbeat_moved(fcp_heartbeat *h);
void fcp_heartbeat_idle(fcp_heartbeat *h, uint64_t *mark);

/* A number that grows whenever another rank has got on, or this one has moved bytes. */
static inline uint64_t fcp_heartbeat_progress(const fcp_heartbeat *h) { return h->progress; }
/* FCP_OK, or FCP_E_RUN with a rank that is silent. */
fcp_code fcp_heartbeat_check(const fcp_heartbeat *h, fcp_error *err);

/* The time limit of a wait outside of a pass. */
typedef struct fcp_heartbeat_wait {
    fcp_patience left;
    uint64_t progress;
} fcp_heartbeat_wait;
fcp_heartbeat_wait fcp_heartbeat_wait_begin(const fcp_heartbeat *h);
/* As fcp_patience_ends. */
bool fcp_heartbeat_wait_ends(const fcp_heartbeat *h, fcp_heartbeat_wait *wait);
#endif
