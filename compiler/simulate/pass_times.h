/* pass_times.h: finds when each instruction of a pass begins and ends. There are two ways: round by round
 * (round_walk.c), which is fast, and event by event (events.c), for networks that rounds cannot express.
 */
#ifndef FCPC_SIMULATE_PASS_TIMES_H
#define FCPC_SIMULATE_PASS_TIMES_H
#include "compiler/simulate/cost_model.h"

/* The launches and sends of a pass, sorted by round: launches of round r are at[start[r]] to at[start[r + 1] - 1], and
 * its sends are likewise in `sends`. */
typedef struct sim_launch {
    uint32_t rank, instr, after[FCP_FABRICS]; /* after: from fcp_fabric_waits; zeros if there is one queue */
} sim_launch;
typedef struct sim_send {
    uint32_t from, to, transfer, fabric; /* transfer: the sender's record */
    uint64_t bytes, takes;               /* takes: its time at the full rate of its link */
} sim_send;
typedef struct sim_rounds {
    uint32_t count;
    uint32_t *start, *send_start;
    sim_launch *at;
    sim_send *sends;
    unsigned __int128 total; /* four times the time of all transfers one after the other: an upper bound, because each
                              * transfer uses up to four ports and uplinks, of which one is full while it lasts */
} sim_rounds;
fcp_code sim_rounds_new(const sim_model *m, arena *memory, sim_rounds *out);
/* Computes the times of transfers again, after the speed of links has changed. */
void sim_rounds_price(const sim_model *m, sim_rounds *rounds);

/* When a rank can begin, if the pass does not stand alone but between linear layers (layer.c). */
typedef struct sim_begin {
    uint64_t compute;       /* its compute queue */
    uint64_t moves[2];      /* what it sends and receives: rounds of the first half, and of the second */
    uint32_t last_of_first; /* the last launch of its communication queue that the results of the first half need, an
                              * index of plan->instrs; FCP_NONE: none */
    uint64_t first, all;    /* is set: when the results of the first half are there; and all */
} sim_begin;

/* Walks over the pass, round by round. With `free_ports` a launch waits for what its queue says, but never for a port
 * that is busy; the makespan is then the critical path. Fills ranks[] (one for each rank, zeroed by the caller) and
 * sets *out to the makespan. The watcher of `options`, which may be NULL, gets the timeline. begin: one for each rank;
 * NULL: all begin at 0. FCP_E_INTERNAL: the plan deadlocks. */
fcp_code sim_walk(const sim_model *m, const sim_rounds *rounds, bool free_ports, const sim_options *options,
                  sim_begin *begin, sim_rank *ranks, uint64_t *out, arena *scratch);

/* layer.c. Sets out->linear and out->layer from options->linear. FCP_E_PROFILE: times would overflow. Cost: three
 * walks. */
fcp_code sim_layer(const sim_model *m, const sim_rounds *rounds, const sim_options *options, sim_pass *out,
                   arena *scratch, arena *walks);
/* --- events (events.c) -------------------------------------------------------------------------------------------- */

/* Simulates the pass event by event: see sim_network for what this is needed for. Fills ranks[] (one for each rank,
 * zeroed by the caller) and sets *out to the makespan. FCP_E_NO_MEMORY; FCP_E_INTERNAL: the plan deadlocks. Cost: the
 * logarithm of the number of events for each of them, and the cost of fair sharing (fair_sharing.c). */
fcp_code sim_events(const sim_model *m, const sim_rounds *rounds, const sim_options *options, sim_rank *ranks,
                    uint64_t *out, arena *scratch);

/* --- tasks of events (tasks.c) ------------------------------------------------------------------------------------ */

enum { SIM_PHASES = 6, SIM_BOTH_FABRICS = (1 << FCP_FABRICS) - 1 };

/* A task is an instruction of a queue, or a part of one: a LAUNCH has a task for each phase in which it moves
 * something, and if net and local transfers have a queue each, one for each fabric. Tasks of one fabric run one after
 * the other. A task that belongs to both fabrics waits for all tasks before it. */
typedef struct sim_task {
    uint32_t instr;
    uint32_t fabrics; /* the fabrics of what it moves, a bit each; both bits: it waits for all tasks before it */
    /* It begins after the first needs[f] tasks of the rank's other queue, as far as they move something over fabric f.
     * Tasks of a compute queue belong to both fabrics, so there both numbers are equal. */
    uint32_t needs[FCP_FABRICS];
    uint32_t after; /* it begins after the first `after` tasks of its own queue that move over the other fabric */
    uint32_t wait;  /* the WAIT to which `needs` belongs; the instruction itself if there is none */
    uint32_t group; /* of a launch: launches of one group may trade places. See sim_tasks_new */
    uint32_t phase;
    uint32_t origin; /* its place in the stream */
} sim_task;

typedef struct sim_tasks {
    sim_task *at; /* of each rank its compute queue, then its communication queue */
    uint32_t (*start)[FCP_QUEUES + 1]; /* per rank: where its queues begin in `at`; the last is where they end */
    uint32_t *phases;                  /* per class: the phase in which it moves */
} sim_tasks;

/* Makes the tasks of all ranks for a pass. `without` changes their order and what they wait for, if less is to overlap
 * than in the plan (SIM_WITHOUT_OVERLAP, SIM_WITHOUT_HIDING). Launches get their groups. Those of all INDEPENDENT
 * rounds, which depend on no earlier arrival, are group 0. Launches of other rounds are in one group if their rounds
 * follow each other and have the same kind and stage. Requires a verified plan. FCP_E_NO_MEMORY. Cost: linear in the
 * pass's instructions. */
fcp_code sim_tasks_new(const sim_model *m, uint32_t without, arena *memory, sim_tasks *out);

/* --- the timeline (intervals.c) ----------------------------------------------------------------------------------- */

/* Call the watcher of `options` with an interval. They do nothing if there is no watcher, or if the interval is empty.
 * Indices are of plan->instrs and plan->transfers. */
void sim_show_work(const sim_model *m, const sim_options *options, uint32_t rank, uint32_t instr, uint64_t start,
                   uint64_t end);
/* `cause`: the last launch that the queue waited for. */
void sim_show_wait(const sim_model *m, const sim_options *options, uint32_t rank, uint32_t instr, uint64_t start,
                   uint64_t end, uint32_t cause);
/* Shows the two intervals of a transfer, that of its sender and that of its receiver. transfer: the sender's record.
 * launch[i] and ready[i], for the sender (0) and the receiver (1): the launch, and when the rank had reached it. */
void sim_show_transfer(const sim_model *m, const sim_options *options, uint32_t transfer, uint32_t from,
                       const uint32_t launch[2], const uint64_t ready[2], uint64_t start, uint64_t end);
#endif
