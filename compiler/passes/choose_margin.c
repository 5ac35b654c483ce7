/* choose_margin.c: chooses how many SMs attention leaves to communication (the margin), if the program does not say.
 *
 * Requires: a verified plan, and program.margins, which lists what may be chosen (front/front.c).
 * Gives:    the margin with which the simulator finds the plan fastest.
 * Cost:     two or three runs of the simulator. On wlbllm-64 that makes planning a quarter longer.
 *
 * Example: a causal plan of wlbllm-64 computes most of the time. On ports of 50 GB/s it leaves 12 of an H200's 132 SMs,
 * which is all that such a port can use. A port of 200 GB/s could use 52 SMs, but with so few left to attention the
 * plan takes 44 % longer. So the margin is 12 there, too.
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
