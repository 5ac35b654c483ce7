/* engine.h: the walk over a pass that gives each instruction its time. */
#ifndef FCPC_SIMULATE_ENGINE_H
#define FCPC_SIMULATE_ENGINE_H
#include "compiler/simulate/cost_model.h"

/* The launches of a pass, round by round: those of round r are at[start[r]] to at[start[r + 1]]. Likewise what is sent
 * in it. */
typedef struct sim_launch {
    uint32_t rank, instr, after[FCP_FABRICS]; /* after: as fcp_fabric_waits; zeros where transfers are in one queue */
} sim_launch;
typedef struct sim_send {
    uint32_t from, to, transfer, fabric; /* transfer: the sender's record */
    uint64_t bytes, takes;               /* takes: at the rate of its wire */
} sim_send;
typedef struct sim_rounds {
    uint32_t count;
    uint32_t *start, *send_start;
    sim_launch *at;
    sim_send *sends;
    unsigned __int128
        total; /* all transfers one after the other, over shared uplinks, four times: each uses four ports and uplinks,
                              * and one of them is full while it lasts */
} sim_rounds;
fcp_code sim_rounds_new(const sim_model *m, arena *memory, sim_rounds *out);
/* Times its transfers again, by wires that have changed. */
void sim_rounds_price(const sim_model *m, sim_rounds *rounds);

/* Walks the pass. `free_ports`: a launch waits for what its queue says and for nobody else's traffic; the result is
 * then the longest chain of waits. Fills ranks[] (one a rank, zeroed by the caller) and returns the makespan in *out.
 * The watcher of `options`, which may be NULL, gets the timeline. FCP_E_INTERNAL: the plan cannot proceed. */
fcp_code sim_walk(const sim_model *m, const sim_rounds *rounds, bool free_ports, const sim_options *options,
                  sim_rank *ranks, uint64_t *out, arena *scratch);
#endif
