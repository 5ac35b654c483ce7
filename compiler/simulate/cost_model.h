/* cost_model.h: computes how long one instruction or transfer of a plan takes if nothing else runs. */
#ifndef FCPC_SIMULATE_COST_MODEL_H
#define FCPC_SIMULATE_COST_MODEL_H
#include "compiler/simulate/simulate.h"
#include "runtime/plan/sides.h"

/* A visit of a plan, all heads together. */
typedef struct sim_visit {
    uint64_t time;  /* of its cells and rows on the whole device; without fusion, of its launches */
    uint64_t items; /* thread blocks: row items times query heads */
    uint64_t bytes; /* least number of bytes to and from the device's memory */
} sim_visit;

typedef struct sim_model {
    const fcp_plan *plan;
    fcp_pass pass;
    sim_kernel kernel;
    uint64_t sms, margin; /* SMs of the device, and how many of them are left to communication */
    uint64_t small, latency[FCP_FABRICS];
    uint64_t rate[FCP_FABRICS], hbm;
    uint64_t uplink;       /* what all ranks of a node send over net together, bytes per second */
    uint64_t bytes[FCP_HOLDS_BOTH + 1][FCP_CLASSES]; /* of a token on the wire: by what its block holds, and by class */
    uint64_t slot[FCP_CLASSES]; /* bytes of a token of each class in a slot */
    uint64_t delta; /* bytes of a token in a DELTA, which reads O, dO and perhaps dLSE, and writes delta */
    uint64_t *computes;    /* per instruction of the compute queues: its time */
    unsigned __int128 total; /* the sum of all these times */
    const struct sim_visit *visits;
    /* at [home_first[r] + n]: query tokens of rank r's home blocks, in the slots before slot n */
    const uint64_t *home_tokens;
    const uint32_t *home_first;
    /* GPUs of a node, if the network has rails and some transfer leaves its rail; else 0 */
    uint32_t rails;
    bool apart;                  /* transfers over net and over local are two queues (runtime/plan/fabrics.h) */
    bool single;                 /* each tile is a launch of its own */
    uint32_t noise;
    uint64_t seed;
} sim_model;

/* Fills the part of the model that needs no plan: kernels, links, and how the device is divided. */
void sim_model_device(const fcp_problem *p, const fcp_cluster *c, fcp_pass pass, const sim_profile *profile,
                      sim_model *out);
/* Requires a verified plan. FCP_E_NO_MEMORY. Cost: linear in parts, runs and instructions. */
fcp_code sim_model_new(const fcp_plan *plan, fcp_pass pass, const sim_profile *profile, const sim_options *options,
                       arena *memory, sim_model *out);
/* Divides the device between attention and the network by another margin than the plan's. A single rank has no margin.
 * Instructions keep their times until sim_model_price computes them again. That function requires a model that was made
 * without the option SIM_WITHOUT_FUSION. */
void sim_model_share(sim_model *m, const fcp_problem *p, const fcp_cluster *c, const sim_profile *profile,
                     uint32_t margin);
void sim_model_price(sim_model *m);
/* Transfer t, a record of its sender `from`, on a wire that gives it `rate` bytes per second. */
uint64_t sim_model_transfer(const sim_model *m, uint32_t from, uint32_t t, uint64_t rate);
/* Returns the rank whose port sends what `from` sends to `to` over net. It is `from`, except where no rail joins the
 * two. Then the GPU of the sender's node that is on the receiver's rail gets the data first and sends it, as NCCL does
 * (PXN). */
static inline uint32_t sim_model_port(const sim_model *m, uint32_t from, uint32_t to) {
    return m->rails ? from - from % m->rails + to % m->rails : from;
}
/* Bytes of a transfer on the wire. */
static inline uint64_t sim_model_bytes(const sim_model *m, const fcp_transfer *t) {
    return t->tokens * m->bytes[fcp_moved_holds(m->plan, t) & FCP_HOLDS_BOTH][t->cls];
}
/* Is a node's uplink narrower than the ports of its ranks together? */
static inline bool sim_model_shares_uplink(const sim_model *m) {
    return m->uplink < m->plan->problem->gpus * m->rate[FCP_NET];
}
/* Are a round's transfers over net and over local in different queues? Rounds of the caller's layout never are: they
 * come before and after the pass. */
static inline bool sim_model_apart(const sim_model *m, uint32_t round) {
    const uint32_t kind = m->plan->rounds[m->plan->round_starts[m->pass] + round].kind;
    return m->apart && kind != FCP_ROUND_IN && kind != FCP_ROUND_OUT;
}
/* A pseudo-random number below 2^32, the same for the same seed and number. */
uint32_t sim_model_drawn(uint64_t seed, uint64_t number);
/* Bytes that a COPY copies. */
uint64_t sim_model_copied(const sim_model *m, const fcp_instr *copy);
/* How many thread blocks a launch of `items` of them counts as, on `share` multiprocessors: whole waves, if there are
 * few waves. */
uint64_t sim_model_waves(uint64_t items, uint64_t share);
/* Counts what a rank attends to in a pass: cells, row items and launches, in the order of sim_constant.
 * FCP_E_NO_MEMORY. */
fcp_code sim_model_count(const fcp_plan *plan, fcp_pass pass, uint32_t rank, uint64_t out[SIM_CONSTANT_COUNT]);
/* bytes / rate in picoseconds, rounded up; saturates. */
uint64_t sim_model_time(uint64_t bytes, uint64_t rate);
#endif
