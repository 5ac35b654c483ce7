/* phases.h: how much memory a plan that divides heads holds in each of its phases, and what the paper of UPipe counts.
 *
 * Example: 64 heads, 64 of K and V, on 8 ranks, 8 heads at a time. In each of 8 phases a rank holds Q, K, V and O of
 * one head for the tokens of the 7 others: an eighth of what it would hold of all its heads at once.
 */
#ifndef FCPC_SIMULATE_PHASES_H
#define FCPC_SIMULATE_PHASES_H
#include "compiler/base/arena.h"
#include "runtime/plan/enums.h"

/* What a rank holds in a phase of a pass: transient slots that the phase's visits name. A rank's phases are the
 * ranges of query heads that it computes, in that order. */
typedef struct sim_phase {
    uint32_t first_stage, last_stage; /* in which some rank computes it, and needs slots for that */
    uint64_t bytes, of_class[FCP_CLASSES]; /* of the rank that holds most */
} sim_phase;

typedef struct sim_phases {
    sim_phase *phase;
    uint32_t count;
    uint64_t peak; /* bytes of all slots of the rank that has most: those of phases that are under way together */
} sim_phases;

/* Cost: linear in visits and tiles. What is found lies in `memory`. */
fcp_code sim_phases_of(const fcp_plan *plan, fcp_pass pass, arena *memory, sim_phases *out);

/* --- what the paper counts ---------------------------------------------------------------------------------------- */

/* Tables 2 and 6 of "Untied Ulysses": memory at four moments of a pass, in units of one rank's tokens times all query
 * heads, as fractions. Forward: before, while inputs are exchanged, in the kernel, while outputs are; backward: before,
 * while dO is exchanged, in the kernel, while gradients are. */
enum { SIM_MOMENTS = 4 };
typedef struct sim_fractions {
    uint64_t over[SIM_MOMENTS], under; /* over[i] / under */
} sim_fractions;
/* Of `group` query heads to a KV head in `phases` phases; 1: all heads at once, which is Ulysses with what it keeps of
 * other layers moved away. The paper counts K and V of a phase as 2 / (group * phases), though a rank needs a whole KV
 * head for any of its query heads. What a plan holds follows if `group` is how many query heads of a KV head a rank
 * computes in one phase. */
sim_fractions sim_phase_fractions(fcp_pass pass, uint32_t group, uint32_t phases);
/* Of `group` and `phases`, over all heads at once with `group_of_all`: what the intermediate tensors of a phase take,
 * as a part of what they take of all. Forward: Q, K, V and O. key: K and V of a KV head, as a part of Q and O of a query
 * head; 1 where heads have one width. */
double sim_phase_part(uint32_t group, uint32_t phases, uint32_t group_of_all, double key);
#endif
