/* simulate.c: both passes of a plan: their times, and the bounds beside them.
 *
 * Gives:  for each pass the makespan and six bounds, none of which a plan with these tables can beat.
 * Cost:   two walks over the pass (engine.c), one with the real ports and one with free ones.
 */
#include "compiler/simulate/simulate.h"

#include <string.h>

#include "compiler/simulate/engine.h"

const char *const sim_reason_names[SIM_REASONS] = {"kv", "return", "reshuffle"};
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

/* What each node sends and receives over net, against its share of the network. */
static fcp_code bound_uplink(const sim_model *m, const sim_rounds *rounds, sim_pass *out, arena *scratch) {
    const fcp_plan *plan = m->plan;
    uint64_t *bytes[2] = {ARENA_ZNEW(scratch, uint64_t, plan->problem->nodes), ARENA_ZNEW(scratch, uint64_t, plan->problem->nodes)};
    if (!bytes[0] || !bytes[1]) return FCP_E_NO_MEMORY;
    for (uint32_t i = 0; i < rounds->start[rounds->count]; i++) {
        const fcp_instr *x = &plan->instrs[rounds->at[i].instr];
        for (uint32_t n = x->a; n < x->a + x->b; n++) {
            const fcp_transfer *t = &plan->transfers[n];
            if (t->dir != FCP_SEND) continue;
            uint64_t size = sim_model_bytes(m, t);
            out->bytes[t->fabric] += size;
            if (t->fabric != FCP_NET) continue;
            bytes[FCP_SEND][fcp_node_of(plan->problem, rounds->at[i].rank)] += size;
            bytes[FCP_RECV][fcp_node_of(plan->problem, t->peer)] += size;
        }
    }
    for (uint32_t n = 0; n < plan->problem->nodes; n++)
        for (int way = 0; way < 2; way++) raise(&out->bound[SIM_BOUND_UPLINK], sim_model_time(bytes[way][n], m->uplink));
    return FCP_OK;
}

static fcp_code simulate_pass(const sim_model *m, const sim_options *options, sim_pass *out, arena *memory, arena *scratch) {
    const fcp_problem *p = m->plan->problem;
    sim_rounds rounds;
    sim_rank *unhindered = ARENA_ZNEW(scratch, sim_rank, p->ranks);
    out->ranks = ARENA_ZNEW(memory, sim_rank, p->ranks);
    out->compute_end = ARENA_ZNEW(memory, uint64_t, m->plan->instrs_count);
    fcp_code code = unhindered && out->ranks && out->compute_end ? sim_rounds_new(m->plan, m->pass, scratch, &rounds) : FCP_E_NO_MEMORY;
    if (!code)
        code = sim_walk(m, &rounds, false, out->ranks, out->compute_end, &out->makespan, options ? options->watch : NULL,
                        options ? options->context : NULL, scratch);
    if (!code) code = sim_walk(m, &rounds, true, unhindered, NULL, &out->bound[SIM_BOUND_PATH], NULL, NULL, scratch);
    if (!code) code = bound_uplink(m, &rounds, out, scratch);
    if (code) return code;
    uint64_t longest = 0;
    for (uint32_t r = 0; r < p->ranks; r++) {
        const sim_rank *x = &out->ranks[r];
        uint64_t waits = 0;
        out->compute += x->compute;
        raise(&out->bound[SIM_BOUND_COMPUTE], x->compute);
        for (int way = 0; way < 2; way++) { /* of the unhindered walk: no wire was shared in it */
            raise(&out->bound[SIM_BOUND_NET], unhindered[r].busy[FCP_NET][way]);
            raise(&out->bound[SIM_BOUND_LOCAL], unhindered[r].busy[FCP_LOCAL][way]);
        }
        for (int i = 0; i < SIM_REASONS; i++) waits += x->wait[i];
        if (waits >= longest) {
            longest = waits;
            memcpy(out->exposed, x->wait, sizeof out->exposed);
        }
    }
    out->bound[SIM_BOUND_MEAN] = out->compute / p->ranks;
    double products = (double)m->plan->summary->pairs * p->head_dim * (p->mask_uses & MC_USES_H ? 1 : p->heads);
    out->flops = (m->pass == FCP_FORWARD ? 4 : 10) * products;
    return FCP_OK;
}

fcp_code simulate(const fcp_plan *plan, const sim_profile *profile, const sim_options *options, arena *memory,
                  sim_result *out, fcp_error *err) {
    arena scratch = {0};
    fcp_code code = FCP_OK;
    memset(out, 0, sizeof *out);
    for (int pass = 0; pass < FCP_PASSES && !code; pass++) {
        sim_model m;
        if (!(plan->problem->passes >> pass & 1)) continue;
        code = sim_model_new(plan, (fcp_pass)pass, profile, options, &scratch, &m);
        if (!code) code = simulate_pass(&m, options, &out->pass[pass], memory, &scratch);
        arena_reset(&scratch);
    }
    arena_free(&scratch);
    if (code) fcp_fail(err, code, code == FCP_E_NO_MEMORY ? "out of memory" : "the plan cannot proceed: it was not verified");
    return code;
}
