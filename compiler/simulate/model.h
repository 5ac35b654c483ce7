/* model.h: what one instruction or transfer of a plan takes, all by itself. */
#ifndef FCPC_SIMULATE_MODEL_H
#define FCPC_SIMULATE_MODEL_H
#include "compiler/simulate/simulate.h"

/* A visit of a plan, all heads together. */
typedef struct sim_visit {
    uint64_t time;  /* of its cells and rows on the whole device; of its launches, where each tile is one */
    uint64_t items; /* thread blocks: row items times query heads */
    uint64_t bytes; /* to and from the device's memory, at least */
} sim_visit;

typedef struct sim_model {
    const fcp_plan *plan;
    fcp_pass pass;
    sim_kernel kernel;
    uint64_t sms, margin; /* of the device; what attention leaves to communication */
    uint64_t small, latency[FCP_FABRICS];
    uint64_t rate[FCP_FABRICS], hbm;
    uint64_t uplink;       /* what all ranks of a node send over net together, bytes per second */
    const struct sim_visit *visits;
    const uint64_t *home_tokens; /* query tokens of home blocks: of all slots before slot n of rank r at [home_first[r] + n] */
    const uint32_t *home_first;
    bool single;                 /* each tile is a launch of its own */
    uint32_t noise;
    uint64_t seed;
} sim_model;

/* Requires a verified plan. FCP_E_NO_MEMORY. Cost: linear in parts and runs. */
fcp_code sim_model_new(const fcp_plan *plan, fcp_pass pass, const sim_profile *profile, const sim_options *options, arena *memory,
                       sim_model *out);
/* An instruction of the compute queue, in picoseconds; 0 for WAIT. */
uint64_t sim_model_compute(const sim_model *m, uint32_t rank, uint32_t instr);
/* Transfer t on a wire that gives it `rate` bytes per second. */
uint64_t sim_model_transfer(const sim_model *m, uint32_t t, uint64_t rate);
/* Bytes of a transfer on the wire. */
uint64_t sim_model_bytes(const sim_model *m, const fcp_transfer *t);
/* Do a node's ranks share an uplink that is narrower than their ports together? */
static inline bool sim_model_shares_uplink(const sim_model *m) { return m->uplink < m->plan->problem->gpus * m->rate[FCP_NET]; }
/* A number below 2^32 that looks drawn, the same for the same seed and number. */
uint32_t sim_model_drawn(uint64_t seed, uint64_t number);
/* Bytes that a COPY copies. */
uint64_t sim_model_copied(const sim_model *m, const fcp_instr *copy);
/* bytes / rate in picoseconds, rounded up; saturates. */
uint64_t sim_model_time(uint64_t bytes, uint64_t rate);
#endif
