/* choose_margin.c: how many multiprocessors attention leaves to communication, where the program does not say.
 *
 * Requires: a verified plan, and program.margins, from which one is taken (front/gpu_profile.c).
 * Gives:    the margin with which the plan is fastest, by the simulator.
 * Cost:     two walks of the simulator or three. On wlbllm-64 a planning then takes a quarter more.
 *
 * Example: a causal plan of wlbllm-64 computes most of the time. Over ports of 50 GB/s it gets 12 of an H200's 132
 * multiprocessors, which is all that such a port needs. Over ports of 200 GB/s it gets 12, too. The port could use 52,
 * but then attention would have so few that the plan would take 44 % longer.
 */
#include "compiler/passes/pass_list.h"
#include "compiler/simulate/simulate.h"

fcp_code margin_choose(planning *x) {
    const struct fcpc_program *g = x->program;
    const sim_options options = {.stop = x->stop, .brief = true};
    sim_profile profile;
    sim_result result;
    fcp_error err;
    uint32_t margin;
    if (!g->margins || (!g->profile && sim_profile_of(&g->cluster, &profile, NULL))) return FCP_OK;
    if (g->profile) profile = *g->profile;
    const fcp_code code =
        sim_choose_margin(x->plan, g->margins, &profile, &options, &x->scratch, &result, &margin, &err);
    if (code == FCP_E_PROFILE) return FCP_OK; /* it would take years: then no margin is better than the least */
    if (!code) x->facts->margin = margin;
    return code;
}
