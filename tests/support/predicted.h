/* predicted.h: returns the time that the simulator predicts for a plan, by the profile of the plan's GPU. */
#ifndef PREDICTED_H
#define PREDICTED_H
#include "compiler/simulate/simulate.h"
#include "runtime/plan/plan.h"
#include "tests/support/plain.h"

/* The makespan of each pass, in picoseconds. */
static inline void predict_passes(const fcp_plan *plan, uint64_t out[FCP_PASSES]) {
    sim_profile profile;
    sim_result result;
    arena memory = {0};
    fcp_error err = {0};
    fcp_code code = sim_profile_of(plan->cluster, &profile, &err);
    if (!code) code = simulate(plan, &profile, &(sim_options){.brief = true}, &memory, &result, &err);
    cr_assert(code == FCP_OK, "%s", err.message);
    for (int pass = 0; pass < FCP_PASSES; pass++) out[pass] = result.pass[pass].makespan;
    arena_free(&memory);
}

/* Of both passes together. */
static inline uint64_t predicted(const fcp_plan *plan) {
    uint64_t passes[FCP_PASSES];
    predict_passes(plan, passes);
    return passes[FCP_FORWARD] + passes[FCP_BACKWARD];
}
#endif
