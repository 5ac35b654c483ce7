/* phases.h: computes how much memory a plan needs that computes some heads at a time, as UPipe does.
 *
 * Example: 64 heads on 8 ranks, 8 heads at a time, so each rank computes one head in each of 8 phases. In a phase it
 * holds Q, K, V and O of that head for the tokens of the 7 other ranks. That is an eighth of what Ulysses holds, which
 * computes all 8 heads of a rank at once.
 */
#ifndef FCPC_SIMULATE_PHASES_H
#define FCPC_SIMULATE_PHASES_H
#include "compiler/base/arena.h"
#include "runtime/plan/enums.h"

/* One phase of a pass: a range of query heads. Its memory is that of all slots that its visits name, except the slots
 * of blocks that are at home on the rank. A rank's phases are counted in the order in which it computes them. */
typedef struct sim_phase {
    uint32_t first_stage, last_stage; /* in which some rank computes it, and needs slots for that */
    uint64_t bytes, of_class[FCP_CLASSES]; /* of the rank that holds most */
} sim_phase;

typedef struct sim_phases {
    sim_phase *phase;
    uint32_t count;
    uint64_t peak; /* bytes of the slots of all phases together, of the rank that has most; phases share slots */
} sim_phases;

/* Cost: linear in visits and tiles. What is found lies in `memory`. */
fcp_code sim_phases_of(const fcp_plan *plan, fcp_pass pass, arena *memory, sim_phases *out);

/* Returns the memory of Q, K, V and O in one of `phases` equal phases, as a part of what they take if all heads are
 * computed at once.
 *   group         the query heads that share a KV head in a phase
 *   group_of_all  the same if all heads are computed at once
 *   key           the size of K and V of a KV head over that of Q and O of a query head: 1 if all have one width
 * Q and O count once for each query head, K and V once for each KV head. Examples for 8 phases: 64:64 heads
 * (1, 8, 1, 1) give 1 / 8; 64:8 heads (1, 8, 8, 1) give 4 / 18, because a rank needs one KV head either way. */
double sim_phase_part(uint32_t group, uint32_t phases, uint32_t group_of_all, double key);
#endif
