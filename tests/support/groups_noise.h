/* groups_noise.h: the costs by which `groups` divides ranks, with normal noise on every coefficient, as a profile would
 * have them that was measured badly. The paper on these groups draws such noise (section 6.4.1).
 *
 * The coefficients are all figures of a kernel in the profile (full, partial, row and launch of each pass), the latency
 * inside a node, the cluster's rates and latency, and the time of linear layers. */
#ifndef GROUPS_NOISE_H
#define GROUPS_NOISE_H
#include "compiler/place/groups/groups.h"
#include "compiler/sema/program.h"
#include "compiler/simulate/profile.h"

/* A factor 1 + x, x of mean 0 and this standard deviation: the sum of twelve draws. It is never below a tenth. */
static inline double noise_factor(uint64_t *state, double deviation) {
    double sum = -6;
    for (int i = 0; i < 12; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        sum += (double)(*state >> 34) / (1 << 30);
    }
    const double f = 1 + sum * deviation;
    return f > 0.1 ? f : 0.1;
}

static inline void noise_on(uint64_t *figure, uint64_t *state, double deviation) {
    *figure = (uint64_t)((double)*figure * noise_factor(state, deviation));
}

/* The model of a program by this profile. */
static inline fcp_code noise_model(struct fcpc_program *g, const sim_profile *exact, uint64_t *state, double deviation,
                                   groups_model *out) {
    const fcp_cluster cluster = g->cluster;
    const uint64_t linear[FCP_PASSES] = {g->linear[FCP_FORWARD], g->linear[FCP_BACKWARD]};
    const sim_profile *before = g->profile;
    sim_profile drawn = *exact;
    fcp_error err;
    for (int pass = 0; pass < FCP_PASSES; pass++)
        for (int d = 0; d < SIM_HEAD_DIMS; d++)
            for (int c = 0; c < SIM_CONSTANT_COUNT; c++) noise_on(&drawn.kernels[pass][d].at[c], state, deviation);
    noise_on(&drawn.local, state, deviation);
    noise_on(&g->cluster.inter, state, deviation);
    noise_on(&g->cluster.intra, state, deviation);
    noise_on(&g->cluster.latency_ns, state, deviation);
    for (int pass = 0; pass < FCP_PASSES; pass++) noise_on(&g->linear[pass], state, deviation);
    g->profile = &drawn;
    const fcp_code code = groups_model_of(g, out, &err);
    for (int pass = 0; pass < FCP_PASSES; pass++) g->linear[pass] = linear[pass];
    g->profile = before;
    g->cluster = cluster;
    return code;
}
#endif
