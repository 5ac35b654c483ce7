/* simulate.c: both passes of a plan: their times, and the bounds beside them.
 *
 * Gives:  for each pass the makespan and six bounds, none of which a plan with these tables can beat.
 * Cost:   two walks over the pass (engine.c), one with the real ports and one with free ones.
 */
#include "compiler/simulate/simulate.h"

#include <string.h>

#include "compiler/simulate/engine.h"
#include "compiler/simulate/events.h"

const char *const sim_reason_names[SIM_REASONS] = {"kv", "q", "return", "reshuffle"};
const char *const sim_network_names[SIM_NETWORKS] = {"rounds", "shared", "fluid", "pulls"};
const char *const sim_without_names[] = {"overlap", "hiding", "fusion"};
const char *const sim_lane_names[SIM_LANES] = {"compute", "net", "local"};
const char *const sim_bound_names[SIM_BOUNDS] = {"mean", "compute", "net", "local", "uplink", "path"};

uint64_t sim_largest_bound(const sim_pass *pass) {
    uint64_t largest = 0;
    for (int b = 0; b < SIM_BOUNDS; b++)
        if (pass->bound[b] > largest) largest = pass->bound[b];
    return largest;
}

double sim_mfu(const fcp_plan *plan, const sim_pass *pass) {
    double peak = (double)plan->cluster->flops * plan->problem->ranks * ((double)pass->makespan / (double)SIM_SECOND);
    return peak > 0 ? pass->flops / peak : 0;
}

static void raise(uint64_t *bound, uint64_t to) {
    if (to > *bound) *bound = to;
}

/* What each node sends and receives over net, against its share of the network; and what ports are busy for at
 * least. */
static fcp_code bound_wires(const sim_model *m, const sim_rounds *rounds, bool matched, sim_pass *out, arena *scratch) {
    const fcp_problem *p = m->plan->problem;
    uint64_t(*nodes)[2] = arena_zalloc(scratch, p->nodes, sizeof *nodes, _Alignof(uint64_t));
    uint64_t(*ports)[FCP_FABRICS][2] = arena_zalloc(scratch, p->ranks, sizeof *ports, _Alignof(uint64_t));
    uint64_t *shared = ARENA_ZNEW(scratch, uint64_t, p->ranks); /* per port: what passes it of whichever ranks */
    if (!nodes || !ports || !shared) return FCP_E_NO_MEMORY;
    for (const sim_send *t = rounds->sends; t < &rounds->sends[rounds->send_start[rounds->count]]; t++) {
        uint64_t takes = matched ? t->takes : sim_model_time(t->bytes, m->rate[t->fabric]);
        out->bytes[t->fabric] += t->bytes;
        ports[t->to][t->fabric][FCP_RECV] += takes;
        if (matched || t->fabric != FCP_NET) ports[t->from][t->fabric][FCP_SEND] += takes;
        if (t->fabric != FCP_NET) continue;
        shared[sim_model_port(m, t->from, t->to)] += sim_model_time(t->bytes, m->rate[FCP_NET]);
        nodes[fcp_node_of(p, t->from)][FCP_SEND] += t->bytes;
        nodes[fcp_node_of(p, t->to)][FCP_RECV] += t->bytes;
    }
    for (uint32_t n = 0; n < p->nodes; n++)
        for (int way = 0; way < 2; way++)
            raise(&out->bound[SIM_BOUND_UPLINK], sim_model_time(nodes[n][way], m->uplink));
    for (uint32_t r = 0; r < p->ranks; r++) raise(&out->bound[SIM_BOUND_NET], shared[r]);
    for (uint32_t r = 0; r < p->ranks; r++)
        for (int way = 0; way < 2; way++) {
            raise(&out->bound[SIM_BOUND_NET], ports[r][FCP_NET][way]);
            raise(&out->bound[SIM_BOUND_LOCAL], ports[r][FCP_LOCAL][way]);
        }
    return FCP_OK;
}

/* A rank may still send and receive when it has computed all that it computes: results on their way to the caller, say.
 * That time counts as waiting for what its last launch moves. So computing and waiting add up to a rank's whole time. */
static void count_last_transfers(const sim_model *m, sim_rank *ranks) {
    for (uint32_t r = 0; r < m->plan->problem->ranks; r++) {
        const fcp_stream *s = fcp_stream_of(m->plan, m->pass, r, FCP_COMM);
        uint32_t last = s->first + s->count;
        uint64_t known = ranks[r].compute;
        for (int i = 0; i < SIM_REASONS; i++) known += ranks[r].wait[i];
        if (known >= ranks[r].end) continue;
        while (last > s->first && m->plan->instrs[--last].op != FCP_OP_LAUNCH) {}
        ranks[r].wait[sim_reason_of(m->plan, last)] += ranks[r].end - known;
    }
}

/* What keeps the rank that ends last: of several the one that waits longest. */
static void find_exposed(uint32_t ranks, sim_pass *out) {
    const sim_rank *last = out->ranks;
    for (const sim_rank *x = out->ranks; x < out->ranks + ranks; x++)
        if (x->end > last->end || (x->end == last->end && x->compute < last->compute)) last = x;
    memcpy(out->exposed, last->wait, sizeof out->exposed);
}

static fcp_code simulate_pass(const sim_model *m, const sim_options *options, sim_pass *out, arena *memory,
                              arena *scratch, arena *walks) {
    const fcp_problem *p = m->plan->problem;
    const sim_network network = options ? options->network : SIM_NETWORK_ROUNDS;
    const bool matched = network == SIM_NETWORK_ROUNDS || network == SIM_NETWORK_SHARED;
    const bool ordered = !(options && options->without & (SIM_WITHOUT_OVERLAP | SIM_WITHOUT_HIDING));
    const sim_options unwatched = {.stop = options ? options->stop : NULL};
    sim_rounds rounds;
    sim_rank *unhindered = ARENA_ZNEW(scratch, sim_rank, p->ranks);
    out->ranks = ARENA_ZNEW(memory, sim_rank, p->ranks);
    fcp_code code = unhindered && out->ranks ? sim_rounds_new(m, scratch, &rounds) : FCP_E_NO_MEMORY;
    /* so that no sum of times overflows, in whatever order */
    if (!code && (m->total + rounds.total) >> 62) return FCP_E_PROFILE;
    if (!code && network == SIM_NETWORK_ROUNDS && ordered)
        code = sim_walk(m, &rounds, false, options, out->ranks, &out->makespan, walks);
    else if (!code) code = sim_events(m, &rounds, options, out->ranks, &out->makespan, scratch);
    arena_reset(walks); /* the second walk takes the first one's memory */
    const bool brief = options && options->brief;
    if (!code && matched && ordered && !brief)
        code = sim_walk(m, &rounds, true, &unwatched, unhindered, &out->bound[SIM_BOUND_PATH], walks);
    if (!code && !brief) code = bound_wires(m, &rounds, matched, out, scratch);
    if (code) return code;
    count_last_transfers(m, out->ranks);
    find_exposed(p->ranks, out);
    for (uint32_t r = 0; r < p->ranks; r++) {
        out->compute += out->ranks[r].compute;
        raise(&out->bound[SIM_BOUND_COMPUTE], out->ranks[r].compute);
    }
    out->bound[SIM_BOUND_MEAN] = out->compute / p->ranks;
    double pairs = (double)m->plan->summary->pairs * (p->mask_uses & MC_USES_H ? 1 : p->range_kv * p->range_sub);
    out->flops = pairs * fcp_pair_flops(p->head_dim, p->value_dim, m->pass);
    return FCP_OK;
}

void sim_room_free(sim_room *room) {
    arena_free(&room->scratch);
    arena_free(&room->walks);
}

fcp_code simulate(const fcp_plan *plan, const sim_profile *profile, const sim_options *options, arena *memory,
                  sim_result *out, fcp_error *err) {
    sim_room own = {.scratch = {0}}, *room = options && options->room ? options->room : &own;
    fcp_code code = FCP_OK;
    memset(out, 0, sizeof *out);
    for (int pass = 0; pass < FCP_PASSES && !code; pass++) {
        sim_model m;
        if (!(plan->problem->passes >> pass & 1)) continue;
        code = sim_model_new(plan, (fcp_pass)pass, profile, options, &room->scratch, &m);
        if (!code) code = simulate_pass(&m, options, &out->pass[pass], memory, &room->scratch, &room->walks);
        arena_reset(&room->scratch);
        arena_reset(&room->walks);
    }
    sim_room_free(&own);
    if (code == FCP_E_PROFILE)
        fcp_fail(err, code,
                 "by the figures of profile %s and of the cluster, the plan takes longer than can be counted",
                 profile->name);
    else if (code == FCP_E_INTERRUPTED) fcp_fail(err, code, "%s", fcp_code_text(code));
    else if (code)
        fcp_fail(err, code, code == FCP_E_NO_MEMORY ? "out of memory" : "the plan cannot proceed: it was not verified");
    return code;
}
