/* margin.h: computes the margin: how many multiprocessors (SMs) attention leaves to communication, and how many bytes
 * these move. */
#ifndef FCPC_SIMULATE_MARGIN_H
#define FCPC_SIMULATE_MARGIN_H
#include "compiler/simulate/profile.h"

enum { SIM_MARGINS = 32, SIM_MARGIN_MOST = 1024 /* the largest that a program may state */ };

/* The margins among which the simulator chooses if the program states none, in increasing order. */
typedef struct sim_margins {
    uint32_t count, at[SIM_MARGINS];
} sim_margins;
/* For ranks of `nodes` x `gpus` on this cluster. A single rank has only the margin 0. */
void sim_margins_list(uint32_t nodes, uint32_t gpus, const fcp_cluster *cluster, const sim_profile *profile,
                      sim_margins *out);
/* Bytes per second that `margin` SMs move over net for a rank; UINT64_MAX: the profile does not say. */
uint64_t sim_margin_moves(uint64_t margin, bool two_fabrics, const sim_profile *profile);
#endif
