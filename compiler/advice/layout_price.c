/* layout_price.c: warns if the layout in which the caller holds its tokens costs more than computing.
 *
 * Requires: traffic and reshuffle. Gives: warnings.
 * Units: bytes and seconds of the forward pass. Transfers run at the cluster's bandwidths, and computing at the GPU's
 *     peak, which is the least time that it can take.
 *
 * Example: one causal sequence in contiguous layout over 4 ranks. The last rank holds the last quarter of the queries,
 * which see most keys: 7/16 of the work. Its fair share is 4/16. So it sends nearly half of its queries away and gets
 * their results back. If that takes longer than it computes, nothing hides the transfers.
 */
#include <inttypes.h>

#include "compiler/advice/advise.h"
#include "compiler/passes/strategy_table.h"
#include "compiler/problem/problem.h"
#include "compiler/schedule/reshuffle.h"
#include "compiler/schedule/traffic.h"
#include "runtime/plan/bytes.h"
#include "runtime/plan/enum_names.h"

static const double LEAST = 1e-3; /* what takes less is not worth a warning */
enum { MANY_PEERS = 1000 };       /* with fewer the reshuffle is a small part of a large plan */

/* Bytes that a rank sends and receives. */
typedef struct load {
    uint64_t sent[FCP_FABRICS], received[FCP_FABRICS];
} load;

/* Adds what the homes send and receive because queries are computed elsewhere: queries leave, and results come back.
 * What other ranks pass on for each other does not count: the strategy has chosen that. */
static void add_queries(const planning *x, const fcp_problem *facts, load *loads) {
    const traffic *t = x->traffic;
    for (uint32_t f = t->keys; f < t->count; f++) {
        const hop *of = &t->hops[f];
        if (of->src != x->placement->home[of->block]) continue;
        const uint64_t tokens = x->problem->blocks[of->block].tokens;
        load *home = &loads[of->src];
        home->sent[of->fabric] += tokens * fcp_class_bytes(facts, FCP_Q, FCP_FORWARD);
        home->received[of->fabric] += tokens * fcp_class_bytes(facts, traffic_return(of, FCP_FORWARD), FCP_FORWARD);
    }
}

static void add_reshuffle(const planning *x, const fcp_problem *facts, load *loads) {
    for (uint32_t i = 0; i < x->reshuffle->count; i++) {
        const bundle *b = &x->reshuffle->bundles[i];
        if (b->caller == b->home) continue;
        const uint32_t holds = x->problem->split ? 1u << b->side : FCP_HOLDS_BOTH, gpus = x->program->gpus;
        const fcp_fabric fabric = b->caller / gpus == b->home / gpus ? FCP_LOCAL : FCP_NET;
        const uint64_t in = b->tokens * fcp_held_bytes(facts, holds, FCP_IN, FCP_FORWARD);
        const uint64_t out = b->tokens * fcp_held_bytes(facts, holds, FCP_OUT, FCP_FORWARD);
        loads[b->caller].sent[fabric] += in, loads[b->home].received[fabric] += in;
        loads[b->home].sent[fabric] += out, loads[b->caller].received[fabric] += out;
    }
}

static double mean_compute(const planning *x, const fcp_problem *facts) {
    const struct fcpc_program *g = x->program;
    /* that pairs count for */
    const double heads = facts->mask_uses & MC_USES_H ? 1 : facts->range_kv * facts->range_sub;
    const double flops = fcp_pair_flops(g->head_dim, g->value_dim, FCP_FORWARD);
    return (double)x->problem->pairs * heads * flops / x->problem->ranks / (double)g->cluster.flops;
}

/* Finds the rank whose load takes longest on one fabric in one direction, and warns of it if that is too long. */
static void warn_of(planning *x, const fcp_problem *facts, const load *loads, const char *name, const char *what,
                    const char *then, const char *hint) {
    const struct fcpc_program *g = x->program;
    static const char *const fabrics[FCP_FABRICS] = {[FCP_LOCAL] = "local", [FCP_NET] = "net"};
    uint32_t rank = 0;
    int on = 0;
    double longest = 0;
    const double compute = mean_compute(x, facts);
    for (uint32_t r = 0; r < x->problem->ranks; r++)
        for (int fabric = 0; fabric < FCP_FABRICS; fabric++) {
            const uint64_t sent = loads[r].sent[fabric], received = loads[r].received[fabric];
            const double rate = (double)(fabric == FCP_NET ? g->cluster.inter : g->cluster.intra);
            const double seconds = (double)(sent > received ? sent : received) / rate;
            if (seconds > longest) longest = seconds, rank = r, on = fabric;
        }
    if (longest < LEAST || longest <= compute) return;
    uint64_t bytes = 0;
    for (int fabric = 0; fabric < FCP_FABRICS; fabric++)
        bytes += loads[rank].sent[fabric] + loads[rank].received[fabric];
    diag_warning(x->d, planning_span(x, g->at[AT_STRATEGY]),
                 "%s: rank %u sends and receives %.3g GB of %s, at least %.3g ms on %s; "
                 "the mean rank computes for %.3g ms%s",
                 name, rank, 1e-9 * (double)bytes, what, 1e3 * longest, fabrics[on], 1e3 * compute, then);
    diag_hint(x->d, "%s", hint);
}

/* Warns if the mean rank exchanges tokens with very many others: the plan then grows with the square of the ranks. */
static void warn_of_peers(planning *x, const char *layout) {
    uint64_t moved = 0;
    for (uint32_t i = 0; i < x->reshuffle->count; i++)
        moved += x->reshuffle->bundles[i].caller != x->reshuffle->bundles[i].home;
    const uint64_t peers = moved / x->problem->ranks;
    if (peers <= MANY_PEERS) return;
    diag_warning(x->d, planning_span(x, x->program->at[AT_LAYOUT]),
                 "%s over %u ranks: the mean rank brings tokens home from %" PRIu64
                 " others, so plans grow with the square of the ranks",
                 layout, x->problem->rule.group, peers);
    reshuffle_hint_group(x);
}

fcp_code advise_layout(planning *x) {
    const struct fcpc_program *g = x->program;
    const bool queries = (x->division || x->block_home) && x->placement->exec;
    const bool tokens = g->layout != FCP_LAYOUT_PLANNED;
    if (!g->passes[FCP_FORWARD] || (!queries && !tokens)) return FCP_OK;
    fcp_problem facts;
    problem_facts(x, &facts);
    load *loads = ARENA_ZNEW(&x->scratch, load, 2 * (size_t)x->problem->ranks);
    if (!loads) return FCP_E_NO_MEMORY;
    const char *layout = fcp_layout_names[tokens ? g->layout : FCP_LAYOUT_CONTIGUOUS];
    if (queries) {
        add_queries(x, &facts, loads);
        warn_of(x, &facts, loads, layout, "Q and O", "",
                "with layout = planned and strategy = fcp queries are where they are computed, "
                "but for blocks too heavy for one rank");
    }
    if (tokens) {
        warn_of_peers(x, layout);
        add_reshuffle(x, &facts, loads + x->problem->ranks);
        warn_of(x, &facts, loads + x->problem->ranks, layout, "tokens on their way from its layout and back",
                "; with layout = planned 0 bytes",
                strategy_of(x)->in_place
                    ? "layout = zigzag(group = N), over fewer ranks, leaves more sequences in place"
                    : "strategy = cad leaves tokens where they are, and moves work");
    }
    return FCP_OK;
}
