/* margin.c: how many multiprocessors attention leaves to communication, where the program does not say.
 *
 * A margin costs whoever computes: attention takes sms / (sms - margin) times as long. One that is too small costs
 * whoever waits for the network: a transfer takes inter / moved times as long, where `moved` is what the margin's
 * multiprocessors move. Which of the two a plan does depends on its batch, and a session has one margin for all its
 * batches. So the margin is the one with which the greater of the two costs is least.
 *
 * Example: an H200 has 132 multiprocessors, and its green contexts grow by 8, so attention may have 128, 120, 112, ...
 * Over a port of 50 GB/s one multiprocessor moves 8.4 GB/s, and in a plan with two fabrics half of the margin is for
 * net. With a margin of 4 the network takes 50 / 16.8 = 2.98 times as long, with 12 attention takes 1.1 times as long,
 * with 20 it is 1.18 times. So it is 12.
 *
 * Inside a node no limit is known, so ranks of a single node get what the network would need.
 *
 * Requires: a cluster and a profile that were checked. Gives: margin.h.
 * Cost:     a step for each size that a green context can have.
 */
#include "compiler/simulate/margin.h"

#include "runtime/plan/fabrics.h"

enum { UNKNOWN = 16 }; /* where the profile does not say what a multiprocessor moves */

uint64_t sim_margin_moves(uint64_t margin, bool two_fabrics, const sim_profile *profile) {
    /* as the runtime divides it between two communicators; without a margin one multiprocessor does it */
    const uint64_t share = two_fabrics ? (margin + 1) / 2 : margin;
    if (!profile->channel) return UINT64_MAX;
    const uint64_t most = UINT64_MAX / profile->channel;
    return profile->channel * (!share ? 1 : share < most ? share : most);
}

uint32_t sim_margin(uint32_t nodes, uint32_t gpus, const fcp_cluster *cluster, const sim_profile *profile) {
    const fcp_problem p = {.ranks = nodes * gpus, .nodes = nodes, .gpus = gpus};
    const uint64_t sms = profile->sms, part = profile->part;
    if (p.ranks < 2) return 0;
    if (!profile->channel) return UNKNOWN;
    uint64_t best = 0, least = UINT64_MAX;
    for (uint64_t share = part; share < sms; share += part) { /* from large margins to small ones */
        const uint64_t moved = sim_margin_moves(sms - share, fcp_two_fabrics(&p), profile);
        const uint64_t computing = sms * 1000000 / share;
        const uint64_t moving = (uint64_t)((unsigned __int128)cluster->inter * 1000000 / moved);
        const uint64_t cost = computing > moving ? computing : moving;
        if (cost > least) continue;
        least = cost;
        best = sms - share;
    }
    return (uint32_t)best;
}
