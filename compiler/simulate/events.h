/* events.h: the second way to give times: event by event. For what rounds cannot express; see sim_network. */
#ifndef FCPC_SIMULATE_EVENTS_H
#define FCPC_SIMULATE_EVENTS_H
#include "compiler/simulate/engine.h"

/* Fills ranks[] (one a rank, zeroed by the caller) and returns the makespan in *out. FCP_E_NO_MEMORY; FCP_E_INTERNAL:
 * the plan cannot proceed. Cost: the logarithm of the events for each, and what sharing costs (flows.c). */
fcp_code sim_events(const sim_model *m, const sim_rounds *rounds, const sim_options *options, sim_rank *ranks,
                    uint64_t *out, arena *scratch);
#endif
