/* warn_tolerance.c: warns if work was moved for balance, and a rank still has more than the tolerance allows.
 *
 * Requires: a placement.
 * Gives: a warning; none where strategy = auto has moved the work, because it exceeds the tolerance on purpose.
 * Cost: O(tiles + ranks).
 *
 * Example: six ranks hold the batch, and the other two are servers. One of the six holds short sequences, and has half
 * of the mean's work. It may not take any from the other five. So the seven others have 15/14 of the mean at best,
 * which a tolerance of 0.05 does not allow.
 */
#include "compiler/place/place.h"
#include "compiler/problem/problem.h"

/* Warns if one of two halves has less than a third of the work of the other: then there is little to hide behind. */
static void warn_halves(planning *x) {
    const problem *p = x->problem;
    uint64_t first = 0;
    for (uint32_t t = 0; t < p->tile_count; t++) {
        const fcp_piece *rows = &p->pieces[p->parts[p->tile_part[t]].q_piece];
        if (rows->start < x->second_half[rows->sequence]) first += p->tile_pairs[t];
    }
    const unsigned percent = (unsigned)((unsigned __int128)first * 100 / p->pairs);
    if (percent >= 25 && percent <= 75) return;
    diag_warning(x->d, planning_span(x, x->program->at[AT_STRATEGY]),
                 "pingpong: the first half has %u %% of the work, so there is little to hide the other half behind",
                 percent);
    diag_hint(x->d, "a half is made of whole sequences, and a sequence is cut where the rows before the cut see no key "
                    "behind it");
}

fcp_code place_warn_tolerance(planning *x) {
    const problem *p = x->problem;
    const struct fcpc_program *g = x->program;
    if (!x->division || !p->pairs) return FCP_OK; /* nothing moves for balance (fcp: advice/block_sizes.c warns) */
    if (x->strategy) return FCP_OK; /* auto/ has given ranks more than that, because it saves time */
    if (x->second_half && !x->trial) warn_halves(x);
    uint64_t *work = ARENA_NEW(&x->scratch, uint64_t, p->ranks);
    if (!work) return FCP_E_NO_MEMORY;
    uint32_t busiest = 0, below = 0;
    place_loads(p, x->placement->home, x->placement->exec, work);
    for (uint32_t r = 0; r < p->ranks; r++) {
        if (work[r] > work[busiest]) busiest = r;
        below += r + g->servers < p->ranks && (unsigned __int128)work[r] * p->ranks < p->pairs;
    }
    const uint64_t mean = p->pairs / p->ranks + (p->pairs % p->ranks != 0);
    if ((unsigned __int128)(work[busiest] - mean) * 1000000 <= (unsigned __int128)mean * g->tolerance ||
        work[busiest] <= mean)
        return FCP_OK;
    diag_warning(x->d, planning_span(x, g->at[AT_STRATEGY]),
                 "tolerance = %.9g is not met: rank %u has %.4f times the mean rank's work", 1e-6 * g->tolerance,
                 busiest, (double)work[busiest] * p->ranks / (double)p->pairs);
    if (g->servers && below)
        diag_hint(x->d,
                  "%u rank%s with less than the mean may not take any from others, because only servers do: "
                  "servers = in_place lets all ranks", below, below == 1 ? "" : "s");
    else diag_hint(x->d, "work is moved in shards of %u rows and keys: smaller ones can be divided more evenly",
                   g->shard);
    return FCP_OK;
}
