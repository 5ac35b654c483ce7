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

/* One of several pieces of work that do not depend on each other, such as a head of an ATTEND. */
typedef fcp_code fcp_queue_item(fcp_rank *rank, uint32_t worker, uint32_t item, const void *context, fcp_error *err);

/* The helpers of one rank, which share out the items of one work at a time. */
struct fcp_team {
    fcp_rank *rank;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t call; /* number of the work under way */
    fcp_queue_item *work;
    const void *context;
    uint32_t items, next; /* how many there are; the next to give out */
    uint32_t busy;        /* how many members work */
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
    struct fcp_recurrent_room *recurrent; /* recurrent_host.c; NULL: no layer that recurs has run so far */
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

/* The functions that threads run. They take an fcp_rank, and execute the queue of that name to its end, or until the
 * pass fails. */
void *fcp_queue_compute(void *rank);
void *fcp_queue_comm(void *rank);
enum { FCP_QUEUE_STACK = 512 << 10 }; /* bytes of the stack of a thread that computes */

/* A pass, or another call in which all ranks take part, begins: nothing has failed, and nobody computes. */
void fcp_queue_begin(fcp_exec *s);
/* Starts the helpers of all ranks, if they have some, and returns how many were started; and ends them. */
uint32_t fcp_queue_help_begin(fcp_exec *s);
void fcp_queue_help_end(fcp_exec *s, uint32_t helping);
/* Waits for a thread, and asks the caller meanwhile. */
void fcp_queue_join(fcp_exec *s, pthread_t thread);

/* Waits for a worker to compute with. False: the pass has failed, and there is none to give back. */
bool fcp_queue_take_worker(fcp_rank *rank, uint32_t *out_worker);
void fcp_queue_give_worker(fcp_rank *rank, uint32_t worker);
/* Does all items of a work, together with the rank's helpers. The caller has `worker`. */
fcp_code fcp_queue_share(fcp_rank *rank, uint32_t worker, uint32_t items, fcp_queue_item *work, const void *context,
                         fcp_error *err);
/* Launches a rank's transfers of a round, and waits until they are complete. *out_late: FCP_NONE; or a wire that was
 * not complete when the time was over, and then nothing has failed so far. If the pass has failed meanwhile, this
 * returns FCP_OK and the transfers are not complete. Callers look at fcp_exec.failed. */
fcp_code fcp_queue_group(fcp_rank *rank, fcp_pass pass, uint32_t round, const fcp_wire *wires, uint32_t count,
                         uint32_t *out_late, fcp_error *err);
/* Returns whether the pass has failed. `session` is an fcp_exec. In the caller's thread, first asks the caller whether
 * to stop. */
bool fcp_queue_over(void *session);
/* Keeps the first error and ends the pass. */
void fcp_queue_fail(fcp_exec *s, fcp_code code, fcp_where where, const char *text);
#endif
