/* choose_margin.c: how many multiprocessors attention leaves to communication, where the program does not say.
 *
 * Requires: a program with its cluster and its profile; for the pass a plan that was verified.
 * Gives:    program.margins, and the margin of each plan: with it the plan is fastest, by the simulator.
 * Cost:     of the pass: two walks of the simulator or three. On wlbllm-64 a planning then takes a quarter more.
 *
 * Example: a causal plan of wlbllm-64 computes most of the time. Over ports of 50 GB/s it gets 12 of an H200's 132
 * multiprocessors, which is all that such a port needs. Over ports of 200 GB/s it gets 12, too. The port could use 52,
 * but then attention would have so few that the plan would take 44 % longer.
 */
#include "compiler/choose_margin.h"

#include <string.h>

#include "compiler/simulate/simulate.h"

fcp_code margin_list(struct fcpc_program *p) {
    sim_profile profile = {.part = 1}; /* of a GPU without one nothing is known */
    char gpu[sizeof p->cluster.gpu + 1] = "";
    if (p->margin != MARGIN_AUTO) return FCP_OK;
    sim_margins *list = ARENA_NEW(&p->arena, sim_margins, 1);
    if (!list) return FCP_E_NO_MEMORY;
    memcpy(gpu, p->cluster.gpu, sizeof p->cluster.gpu);
    if (p->profile) profile = *p->profile;
    else sim_profile_device(gpu, &profile);
    sim_margins_list(p->nodes, p->gpus, &p->cluster, &profile, list);
    p->margin = list->at[0];
    if (list->count > 1) p->margins = list;
    return FCP_OK;
}

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
