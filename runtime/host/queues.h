/* queues.h: the structures of a session on the host and its ranks. executor.c sets them up, and the threads of queues.c
 * use them.
 */
#ifndef FCP_HOST_QUEUES_H
#define FCP_HOST_QUEUES_H
#include <pthread.h>
#include <stdatomic.h>

#include "runtime/base/clock.h"
#include "runtime/exec/partials.h"
#include "runtime/exec/host_reshuffle.h"
#include "runtime/exec/session.h"
#include "runtime/exec/error_place.h"
#include "runtime/host/backend.h"

typedef struct fcp_exec fcp_exec;

/* One rank: its memory, and how far its two queues have come. */
typedef struct fcp_rank {
    struct fcp_exec *session;
    uint32_t index;
    fcp_slots slots[FCP_PASSES];
    void *memory;                    /* of the arena; large enough for every pass */
    size_t memory_held;              /* bytes of it */
    fcp_partials partials;
    fcp_arena arena;                 /* of the pass that runs */
    double *table;                   /* fcp_tensors.table of the run; NULL: no run has had one */
    struct fcp_sums *d_table;        /* likewise */
    const fcp_tensors *tensors;      /* the caller's */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool locks;                      /* lock and changed exist */
    bool prepared;                   /* outputs have their first values */
    uint32_t completed[FCP_QUEUES];  /* instructions */
    fcp_wires wires;                 /* of the group under way */
    _Atomic uint32_t waiting;        /* the round in which it waits for its group; FCP_NONE: it does not */
} fcp_rank;

/* The helpers of one rank, which share out the KV heads of one ATTEND at a time. */
struct fcp_team {
    fcp_rank *rank;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t call;            /* number of the ATTEND under way */
    uint32_t first, count;    /* its visits */
    uint32_t next_head, busy; /* the next head to give out; how many members work */
    bool stop, locks;
    fcp_code code;
    fcp_error err;
};

struct fcp_member {
    struct fcp_team *team;
    uint32_t worker;
    pthread_t thread;
};

struct fcp_exec {
    fcp_session base;
    const fcp_plan *plan;
    fcp_device *device;
    uint32_t workers, team_size; /* if team_size > 1, each rank has so many workers of its own; else all share them */
    fcp_rank *ranks;  /* those of this process, as in all that follow: of rank base.first_rank first */
    fcp_homes *homes; /* of every rank of the plan */
    fcp_bundles *bundles;
    struct fcp_team *teams;
    struct fcp_member *members; /* team_size - 1 for each rank */
    const char *broken; /* why it runs no more; NULL: it does */
    /* workers that nobody computes with, under lock */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool locks;
    uint32_t *free_workers, free_count;
    /* the pass under way */
    fcp_pass pass;
    _Atomic bool failed;
    _Atomic uint64_t progress;  /* instructions completed, by all ranks */
    _Atomic uint32_t computing; /* how many compute */
    fcp_error error; /* the first, under lock */
};

/* The functions that threads run. fcp_queue_compute and fcp_queue_comm take an fcp_rank: they execute the queue of
 * that name to its end, or until the pass fails. fcp_queue_help takes a struct fcp_member: it computes heads until
 * its team stops. */
void *fcp_queue_compute(void *rank);
void *fcp_queue_comm(void *rank);
void *fcp_queue_help(void *member);
/* Returns whether the pass has failed. `session` is an fcp_exec. In the caller's thread, first asks the caller whether
 * to stop. */
bool fcp_queue_over(void *session);
/* Keeps the first error and ends the pass. */
void fcp_queue_fail(fcp_exec *s, fcp_code code, fcp_where where, const char *text);
#endif
