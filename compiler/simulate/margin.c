/* margin.c: lists the margins from which the simulator chooses, for a program that states none.
 *
 * The margin is the number of SMs that attention leaves to communication. A large margin makes computing slow:
 * attention takes sms / (sms - margin) times as long. A small margin makes the network slow, because its SMs move less
 * than a port could. Which of the two matters more depends on the plan. So the simulator chooses for each plan
 * (sim_choose_margin in simulate.c) among the margins that are listed here.
 *
 * Example: an H200 has 132 SMs, and the size of its green contexts is a multiple of 8. So attention may have 128, 120,
 * 112, ... SMs. One SM moves 8.4 GB/s over a port of 50 GB/s, and in a plan with two fabrics half of the margin serves
 * net. With a margin of 4 the network moves 16.8 GB/s, and with 12 all 50. More would gain nothing, so the choice is 4
 * or 12.
 *
 * Inside a node no limit is known, so ranks of a single node get the smallest margin. If the profile does not say what
 * an SM moves, nothing can be compared, and all plans get the same margin.
 *
 * Requires: a cluster and a profile that were checked.
 * Gives:    margin.h.
 * Cost:     constant time for each margin.
 */
#include "compiler/simulate/margin.h"

#include "runtime/plan/fabrics.h"

enum { UNKNOWN = 16 }; /* the margin, if the profile does not say what an SM moves */

uint64_t sim_margin_moves(uint64_t margin, bool two_fabrics, const sim_profile *profile) {
    /* as the runtime divides it between two NCCL communicators; without a margin one SM moves data */
    const uint64_t share = two_fabrics ? (margin + 1) / 2 : margin;
    if (!profile->channel) return UINT64_MAX;
    const uint64_t most = UINT64_MAX / profile->channel;
    return profile->channel * (!share ? 1 : share < most ? share : most);
}

void sim_margins_list(uint32_t nodes, uint32_t gpus, const fcp_cluster *cluster, const sim_profile *profile,
                      sim_margins *out) {
    const fcp_problem p = {.ranks = nodes * gpus, .nodes = nodes, .gpus = gpus};
    *out = (sim_margins){.count = 1};
    if (p.ranks < 2) return;
    out->at[0] = UNKNOWN;
    if (!profile->channel) return;
    const uint64_t part = profile->part, shares = (profile->sms - 1) / part, fit = SIM_MARGIN_MOST / part + 1;
    const uint64_t step = ((shares < fit ? shares : fit) + SIM_MARGINS - 1) / SIM_MARGINS * part;
    uint32_t count = 0;
    for (uint64_t share = shares * part; share && count < SIM_MARGINS; share = share > step ? share - step : 0) {
        const uint64_t margin = profile->sms - share;
        if (margin > SIM_MARGIN_MOST) break;
        out->at[count++] = (uint32_t)margin;
        if (nodes == 1 || sim_margin_moves(margin, fcp_two_fabrics(&p), profile) >= cluster->inter) break;
    }
    out->count = count ? count : 1; /* a device that cannot be divided like this gets the usual margin */
}
