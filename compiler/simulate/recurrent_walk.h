/* recurrent_walk.h: predicts what layers that recur take of other ranks: their halos, and their scans. */
#ifndef FCPC_SIMULATE_RECURRENT_WALK_H
#define FCPC_SIMULATE_RECURRENT_WALK_H
#include "compiler/base/arena.h"
#include "compiler/simulate/cost_model.h"
#include "runtime/plan/recurrent.h"

/* One layer in one pass. Times are picoseconds. */
typedef struct sim_recurrent {
    uint64_t makespan; /* from when all ranks have their summaries, or rows, until the last one has what it needs */
    uint64_t bytes[FCP_FABRICS]; /* sent by all ranks */
    uint64_t messages;
} sim_recurrent;

/* The links and the device of a plan, as simulate has them: sim_model_device. */
void sim_recurrent_model(const fcp_plan *plan, const sim_profile *profile, fcp_pass pass, sim_model *out);
/* A message of so many bytes; and a step inside a rank that reads or writes so many. */
uint64_t sim_recurrent_message(const sim_model *m, fcp_fabric fabric, uint64_t bytes);
uint64_t sim_recurrent_step(const sim_model *m, uint64_t bytes);

/* Predicts layer `number` of a verified plan. A halo takes as long in both passes. Cost: linear in the steps and ranks.
 * FCP_E_NO_MEMORY; FCP_E_PROFILE: times too long to count. */
fcp_code sim_recurrent_walk(const fcp_plan *plan, uint32_t number, const sim_model *m, arena *scratch,
                            sim_recurrent *out);
#endif
