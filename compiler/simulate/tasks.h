/* tasks.h: the instructions of a pass as tasks that wait for each other, with some of the plan's order taken away. */
#ifndef FCPC_SIMULATE_TASKS_H
#define FCPC_SIMULATE_TASKS_H
#include "compiler/simulate/engine.h"

enum { SIM_PHASES = 6, SIM_BOTH_FABRICS = (1 << FCP_FABRICS) - 1 };

/* An instruction of a queue, or the part of a LAUNCH that belongs to one phase, and to one fabric where transfers over
 * net and over local are two queues. Tasks of one fabric follow each other; one of both follows all before it. */
typedef struct sim_task {
    uint32_t instr;
    uint32_t fabrics; /* of what it moves, a bit each; all bits: all other tasks too */
    uint32_t needs[FCP_FABRICS]; /* of the first so many tasks of the rank's other queue, those over each fabric end
                                  * before it begins; tasks of a compute queue are of both, and the two are equal */
    uint32_t after; /* of the first so many tasks of its own queue, those over the other fabric end before it begins */
    uint32_t wait;  /* the WAIT that says so; the instruction itself where none does */
    uint32_t group; /* of a launch: launches of one group may trade places. See sim_tasks_new */
    uint32_t phase;
    uint32_t origin; /* its place in the stream */
} sim_task;

typedef struct sim_tasks {
    sim_task *at; /* of each rank its compute queue, then its communication queue */
    uint32_t (*start)[FCP_QUEUES + 1]; /* per rank: where its queues begin in `at`; the last is where they end */
    uint32_t *phases;                  /* per class: the phase in which it moves */
} sim_tasks;

/* Of the orders that the plan gives, `without` leaves out some (SIM_WITHOUT_OVERLAP, SIM_WITHOUT_HIDING). Groups: all
 * INDEPENDENT rounds are group 0. Of the others, rounds that follow each other with the same kind and stage are one
 * group. Requires a verified plan. FCP_E_NO_MEMORY. Cost: linear in the pass's instructions. */
fcp_code sim_tasks_new(const sim_model *m, uint32_t without, arena *memory, sim_tasks *out);
#endif
