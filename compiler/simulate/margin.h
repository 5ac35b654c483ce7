/* margin.h: how many multiprocessors attention may leave to communication, and what those move. */
#ifndef FCPC_SIMULATE_MARGIN_H
#define FCPC_SIMULATE_MARGIN_H
#include "compiler/simulate/profile.h"

enum { SIM_MARGINS = 32, SIM_MARGIN_MOST = 1024 /* as in programs */ };

/* The margins that a plan may get whose program states none, from the least to the largest. */
typedef struct sim_margins {
    uint32_t count, at[SIM_MARGINS];
} sim_margins;
/* For ranks of `nodes` x `gpus` on this cluster; of one rank only 0. */
void sim_margins_list(uint32_t nodes, uint32_t gpus, const fcp_cluster *cluster, const sim_profile *profile,
                      sim_margins *out);
/* Bytes per second that `margin` multiprocessors move over net for a rank; UINT64_MAX: the profile does not say. */
uint64_t sim_margin_moves(uint64_t margin, bool two_fabrics, const sim_profile *profile);
#endif
