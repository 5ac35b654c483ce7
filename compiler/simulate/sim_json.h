/* sim_json.h: what the simulator predicts, as members of an open JSON object. */
#ifndef FCPC_SIMULATE_SIM_JSON_H
#define FCPC_SIMULATE_SIM_JSON_H
#include "compiler/base/json.h"
#include "compiler/simulate/simulate.h"

/* One pass: makespan, bounds, waiting, bytes. largest: of the bounds, or of several passes the sum of each one's
 * largest; mfu: of sim_mfu. Of x, ranks is not read. */
void sim_pass_json(json *j, const sim_pass *x, uint64_t largest, double mfu);
/* What each rank does in it, as the member `per_rank`. */
void sim_ranks_json(json *j, const sim_pass *x, uint32_t ranks);
#endif
