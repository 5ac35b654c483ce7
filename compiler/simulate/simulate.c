/* simulate.c: predicts both passes of a plan and computes their lower bounds, and finds the margin with which a plan is
 * fastest.
 *
 * Gives: for each pass the makespan and six lower bounds. No plan with these tables is faster than any of them.
 * Cost:  two walks over a pass (round_walk.c): one with the real ports, and one with ports that are always free, which
 *        gives the critical path. The choice of a margin takes two or three walks with real ports, and everything else
 *        once.
 *
 * How a margin is chosen. The margin is the number of multiprocessors (SMs) of a device that attention leaves to
 * communication. A plan's makespan is the longest of many chains of computing and transfers. If the margin grows,
 * computing takes longer, at a growing rate, and transfers take less time, at a falling rate. So the length of each
 * chain is a convex function of the margin, and so is their maximum. Therefore descending from any margin ends at the
 * best one. It also follows that with everything else equal a faster link never gives a slower plan, because it makes
 * the plan slower with none of the margins.
 *
 * Example: wlbllm-64, causal, over ports of 200 GB/s takes 98 ms with a margin of 4, 80 with 12, 84 with 20, and 115
 * with 52, which is the first that moves 200 GB/s. The search begins at 12, where the busiest port takes no longer than
 * the busiest rank, tries 4 and 20, and stays.
 */
#include "compiler/simulate/simulate.h"
#include "runtime/plan/bytes.h"
#include "runtime/plan/plan_summary.h"

#include <string.h>

#include "compiler/simulate/pass_times.h"
#include "compiler/simulate/recurrent_walk.h"
#include "runtime/base/saturate.h"

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

/* Adds up what passes through each port and each node's uplink. Each of them is a lower bound on the makespan. */
static fcp_code bound_wires(const sim_model *m, const sim_rounds *rounds, bool matched, sim_pass *out, arena *scratch) {
    const fcp_problem *p = m->plan->problem;
    uint64_t(*nodes)[2] = arena_zalloc(scratch, p->nodes, sizeof *nodes, _Alignof(uint64_t));
    uint64_t(*ports)[FCP_FABRICS][2] = arena_zalloc(scratch, p->ranks, sizeof *ports, _Alignof(uint64_t));
    uint64_t *shared = ARENA_ZNEW(scratch, uint64_t, p->ranks); /* per port: its time, for any rank */
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

/* Adds to each rank's waiting what it still sends and receives after its last computation, for example results on their
 * way to the caller. That time counts as waiting for what the rank's last launch moves. So computing and waiting add up
 * to the whole time of a rank. */
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

/* Copies the waiting times of the rank that ends last; of several, of the one that waits longest. */
static void find_exposed(uint32_t ranks, sim_pass *out) {
    const sim_rank *last = out->ranks;
    for (const sim_rank *x = out->ranks; x < out->ranks + ranks; x++)
        if (x->end > last->end || (x->end == last->end && x->compute < last->compute)) last = x;
    memcpy(out->exposed, last->wait, sizeof out->exposed);
}

/* A pass that is ready for a walk. */
typedef struct opened {
    sim_model m;
    sim_rounds rounds;
} opened;

/* Makes sure that no sum of times overflows, in whatever order they are added. */
static fcp_code check_sums(const opened *x) {
    return (x->m.total + x->rounds.total) >> 62 ? FCP_E_PROFILE : FCP_OK;
}

static fcp_code open_pass(const fcp_plan *plan, fcp_pass pass, const sim_profile *profile, const sim_options *options,
                          arena *scratch, opened *out) {
    fcp_code code = sim_model_new(plan, pass, profile, options, scratch, &out->m);
    if (!code) code = sim_rounds_new(&out->m, scratch, &out->rounds);
    return code ? code : check_sums(out);
}

static fcp_code walk_pass(const opened *x, const sim_options *options, sim_pass *out, arena *memory, arena *scratch,
                          arena *walks) {
    const sim_model *m = &x->m;
    const fcp_problem *p = m->plan->problem;
    const sim_network network = options ? options->network : SIM_NETWORK_ROUNDS;
    const bool matched = network == SIM_NETWORK_ROUNDS || network == SIM_NETWORK_SHARED;
    const bool ordered = !(options && options->without & (SIM_WITHOUT_OVERLAP | SIM_WITHOUT_HIDING));
    const sim_options unwatched = {.stop = options ? options->stop : NULL};
    sim_rank *unhindered = ARENA_ZNEW(scratch, sim_rank, p->ranks);
    out->ranks = ARENA_ZNEW(memory, sim_rank, p->ranks);
    fcp_code code = unhindered && out->ranks ? FCP_OK : FCP_E_NO_MEMORY;
    if (!code && network == SIM_NETWORK_ROUNDS && ordered)
        code = sim_walk(m, &x->rounds, false, options, NULL, out->ranks, &out->makespan, walks);
    else if (!code) code = sim_events(m, &x->rounds, options, out->ranks, &out->makespan, scratch);
    arena_reset(walks); /* the second walk takes the first one's memory */
    const bool brief = options && options->brief;
    if (!code && matched && ordered && !brief)
        code = sim_walk(m, &x->rounds, true, &unwatched, NULL, unhindered, &out->bound[SIM_BOUND_PATH], walks);
    if (!code && !brief) code = bound_wires(m, &x->rounds, matched, out, scratch);
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

/* How long a layer takes, if the options say what its linear layers take, and the plan runs as planned. */
static fcp_code layer_pass(const opened *x, const sim_options *options, sim_pass *out, arena *scratch, arena *walks) {
    if (!options || !options->linear[x->m.pass] || options->network != SIM_NETWORK_ROUNDS ||
        options->without & (SIM_WITHOUT_OVERLAP | SIM_WITHOUT_HIDING))
        return FCP_OK;
    return sim_layer(&x->m, &x->rounds, options, out, scratch, walks);
}

/* What the layers that recur take, with the links of this pass. */
static fcp_code recurrent_pass(const opened *x, const sim_options *options, sim_pass *out, arena *walks) {
    const fcp_plan *plan = x->m.plan;
    if (options && options->network != SIM_NETWORK_ROUNDS) return FCP_OK;
    for (uint32_t i = 0; i < plan->recurrent_count; i++) {
        sim_recurrent one;
        fcp_code code = sim_recurrent_walk(plan, i, &x->m, walks, &one);
        arena_reset(walks);
        if (code) return code;
        const uint64_t times = plan->recurrent[i].times;
        out->recurrent = fcp_plus(out->recurrent, fcp_times(times, one.makespan));
        for (int f = 0; f < FCP_FABRICS; f++)
            out->recurrent_bytes[f] = fcp_plus(out->recurrent_bytes[f], fcp_times(times, one.bytes[f]));
    }
    return out->recurrent >> 62 ? FCP_E_PROFILE : FCP_OK;
}

void sim_room_free(sim_room *room) {
    arena_free(&room->scratch);
    arena_free(&room->walks);
}

/* Makes the error that belongs to a code. */
static fcp_code explain(fcp_code code, const sim_profile *profile, fcp_error *err) {
    if (code == FCP_E_PROFILE)
        fcp_fail(err, code,
                 "by the figures of profile %s and of the cluster, the plan takes longer than can be counted",
                 profile->name);
    else if (code == FCP_E_INTERRUPTED) fcp_fail(err, code, "%s", fcp_code_text(code));
    else if (code)
        fcp_fail(err, code, code == FCP_E_NO_MEMORY ? "out of memory" : "the plan cannot proceed: it was not verified");
    return code;
}

fcp_code simulate(const fcp_plan *plan, const sim_profile *profile, const sim_options *options, arena *memory,
                  sim_result *out, fcp_error *err) {
    sim_room own = {.scratch = {0}}, *room = options && options->room ? options->room : &own;
    fcp_code code = FCP_OK;
    memset(out, 0, sizeof *out);
    for (int pass = 0; pass < FCP_PASSES && !code; pass++) {
        opened x;
        if (!(plan->problem->passes >> pass & 1)) continue;
        code = open_pass(plan, (fcp_pass)pass, profile, options, &room->scratch, &x);
        if (!code) code = walk_pass(&x, options, &out->pass[pass], memory, &room->scratch, &room->walks);
        if (!code) code = layer_pass(&x, options, &out->pass[pass], &room->scratch, &room->walks);
        if (!code) code = recurrent_pass(&x, options, &out->pass[pass], &room->walks);
        arena_reset(&room->scratch);
        arena_reset(&room->walks);
    }
    sim_room_free(&own);
    return explain(code, profile, err);
}

/* --- the margin --------------------------------------------------------------------------------------------------- */

/* A plan for which a margin is chosen. */
typedef struct choice {
    const fcp_plan *plan;
    const sim_profile *profile;
    const sim_options *options;
    const sim_margins *margins;
    arena *memory; /* of results */
    sim_room *room;
    opened pass[FCP_PASSES];
} choice;

static uint64_t time_of(const sim_result *r) {
    return r->pass[FCP_FORWARD].makespan + r->pass[FCP_BACKWARD].makespan;
}

static fcp_code set_margin(const choice *c, uint32_t i, opened *x) {
    sim_model_share(&x->m, c->plan->problem, c->plan->cluster, c->profile, c->margins->at[i]);
    sim_model_price(&x->m);
    sim_rounds_price(&x->m, &x->rounds);
    return check_sums(x);
}

/* Predicts both passes with margin number i. */
static fcp_code walk_with(choice *c, uint32_t i, sim_result *out) {
    fcp_code code = FCP_OK;
    memset(out, 0, sizeof *out);
    for (int pass = 0; pass < FCP_PASSES && !code; pass++) {
        opened *x = &c->pass[pass];
        if (!x->m.plan) continue;
        code = set_margin(c, i, x);
        if (!code) code = walk_pass(x, c->options, &out->pass[pass], c->memory, &c->room->scratch, &c->room->walks);
        arena_reset(&c->room->walks);
    }
    return code;
}

/* Bytes of the busiest net port, in one direction. */
static fcp_code busiest_port(const opened *x, arena *scratch, uint64_t *out) {
    uint64_t(*ports)[2] = arena_zalloc(scratch, x->m.plan->problem->ranks, sizeof *ports, _Alignof(uint64_t));
    *out = 0;
    if (!ports) return FCP_E_NO_MEMORY;
    for (const sim_send *t = x->rounds.sends; t < &x->rounds.sends[x->rounds.send_start[x->rounds.count]]; t++) {
        if (t->fabric != FCP_NET) continue;
        raise(out, ports[sim_model_port(&x->m, t->from, t->to)][FCP_SEND] += t->bytes);
        raise(out, ports[t->to][FCP_RECV] += t->bytes);
    }
    return FCP_OK;
}

/* The computing time of the busiest rank, with the model's margin. */
static uint64_t busiest_rank(const opened *x) {
    uint64_t most = 0;
    for (uint32_t r = 0; r < x->m.plan->problem->ranks; r++) {
        const fcp_stream *s = fcp_stream_of(x->m.plan, x->m.pass, r, FCP_COMPUTE);
        uint64_t sum = 0;
        for (uint32_t i = s->first; i < s->first + s->count; i++) sum += x->m.computes[i];
        raise(&most, sum);
    }
    return most;
}

/* The margin at which the search begins: the best one if each pass took as long as its busiest rank or its busiest
 * port. */
static fcp_code find_start(choice *c, uint32_t *out) {
    unsigned __int128 times[SIM_MARGINS] = {0};
    fcp_code code = FCP_OK;
    *out = 0;
    for (int pass = 0; pass < FCP_PASSES && !code; pass++) {
        const opened *x = &c->pass[pass];
        uint64_t bytes;
        if (!x->m.plan) continue;
        code = busiest_port(x, &c->room->scratch, &bytes);
        const unsigned __int128 work = (unsigned __int128)busiest_rank(x) * (x->m.sms - x->m.margin);
        for (uint32_t i = 0; i < c->margins->count && !code; i++) {
            sim_model m = x->m;
            sim_model_share(&m, c->plan->problem, c->plan->cluster, c->profile, c->margins->at[i]);
            const unsigned __int128 computing = work / (m.sms - m.margin);
            const uint64_t moving = sim_model_time(bytes, m.rate[FCP_NET]);
            times[i] += computing > moving ? computing : moving;
        }
    }
    for (uint32_t i = 1; i < c->margins->count; i++)
        if (times[i] < times[*out]) *out = i;
    return code;
}

/* Descends from margin number *best, first to smaller margins, then to larger ones. Of margins that are equal the
 * smaller is taken. */
static fcp_code go_down(choice *c, uint32_t *best, sim_result *out) {
    fcp_code code = walk_with(c, *best, out);
    for (int step = -1; step <= 1; step += 2) {
        const uint32_t start = *best;
        while (!code && (step > 0 ? *best + 1 < c->margins->count : *best > 0)) {
            const uint32_t next = *best + (uint32_t)step;
            sim_result there;
            code = walk_with(c, next, &there);
            if (code || (step > 0 ? time_of(&there) >= time_of(out) : time_of(&there) > time_of(out))) break;
            *out = there;
            *best = next;
        }
        if (*best != start) break; /* the margins on the other side are known to be worse */
    }
    return code;
}

fcp_code sim_choose_margin(const fcp_plan *plan, const sim_margins *margins, const sim_profile *profile,
                           const sim_options *options, arena *memory, sim_result *out, uint32_t *out_margin,
                           fcp_error *err) {
    sim_room own = {.scratch = {0}};
    choice c = {plan, profile, options, margins, memory, options && options->room ? options->room : &own, {{{0}}}};
    uint32_t best = 0;
    fcp_code code = FCP_OK;
    for (int pass = 0; pass < FCP_PASSES && !code; pass++)
        if (plan->problem->passes >> pass & 1)
            code = open_pass(plan, (fcp_pass)pass, profile, options, &c.room->scratch, &c.pass[pass]);
    if (!code && margins->count > 1) code = find_start(&c, &best);
    if (!code) code = go_down(&c, &best, out);
    for (int pass = 0; pass < FCP_PASSES && !code; pass++) {
        if (!c.pass[pass].m.plan || !options || (!options->recurrent && !options->linear[pass])) continue;
        code = set_margin(&c, best, &c.pass[pass]);
        if (!code && options->recurrent)
            code = recurrent_pass(&c.pass[pass], options, &out->pass[pass], &c.room->walks);
        if (!code) code = layer_pass(&c.pass[pass], options, &out->pass[pass], &c.room->scratch, &c.room->walks);
        arena_reset(&c.room->walks);
    }
    *out_margin = margins->at[best];
    arena_reset(&c.room->scratch);
    sim_room_free(&own);
    return explain(code, profile, err);
}
