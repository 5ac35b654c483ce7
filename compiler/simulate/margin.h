/* margin.h: how many multiprocessors attention leaves to communication, where the program does not say. */
#ifndef FCPC_SIMULATE_MARGIN_H
#define FCPC_SIMULATE_MARGIN_H
#include "compiler/simulate/profile.h"
#include "runtime/plan/plan.h"

/* The margin for ranks of `nodes` x `gpus` on this cluster; 0 for one rank. It depends on no batch, so all plans of a
 * program have the same, and a session can run one after the other. */
uint32_t sim_margin(uint32_t nodes, uint32_t gpus, const fcp_cluster *cluster, const sim_profile *profile);
/* Bytes per second that `margin` multiprocessors move over net for a rank; UINT64_MAX: the profile does not say. */
uint64_t sim_margin_moves(uint64_t margin, bool two_fabrics, const sim_profile *profile);
#endif
