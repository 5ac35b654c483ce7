/* sim_json.c: writes what the simulator predicts as JSON: for `fcpc sim --json`, and for callers of fcpc_simulate_json.
 * */
#include <stdio.h>
#include <string.h>

#include "compiler/base/json.h"
#include "compiler/fcpc.h"
#include "compiler/simulate/simulate.h"
#include "runtime/plan/extract.h"
#include "runtime/plan/enum_names.h"
#include "runtime/plan/plan.h"

static double seconds(uint64_t picoseconds) { return (double)picoseconds / (double)SIM_SECOND; }

void sim_pass_json(json *j, const sim_pass *x, uint64_t largest, double mfu) {
    json_double(j, "makespan_s", seconds(x->makespan));
    json_double(j, "makespan_lower_bound_s", seconds(largest));
    if (x->layer) {
        json_double(j, "layer_s", seconds(x->layer));
        json_double(j, "linear_s", seconds(x->linear));
    }
    json_double(j, "mfu", mfu);
    json_object(j, "bounds");
    for (int b = 0; b < SIM_BOUNDS; b++) json_double(j, sim_bound_names[b], seconds(x->bound[b]));
    json_end(j);
    json_object(j, "exposed");
    for (int i = 0; i < SIM_REASONS; i++) json_double(j, sim_reason_names[i], seconds(x->exposed[i]));
    json_end(j);
    json_object(j, "bytes");
    json_u64(j, "net", x->bytes[FCP_NET]);
    json_u64(j, "local", x->bytes[FCP_LOCAL]);
    json_end(j);
}

void sim_ranks_json(json *j, const sim_pass *x, uint32_t ranks) {
    json_array(j, "per_rank");
    for (uint32_t r = 0; r < ranks; r++) {
        json_object(j, NULL);
        json_double(j, "compute_s", seconds(x->ranks[r].compute));
        for (int i = 0; i < SIM_REASONS; i++) {
            char key[32];
            snprintf(key, sizeof key, "wait_%s_s", sim_reason_names[i]);
            json_double(j, key, seconds(x->ranks[r].wait[i]));
        }
        json_double(j, "end_s", seconds(x->ranks[r].end));
        json_end(j);
    }
    json_end(j);
}

fcp_code fcpc_simulate_json(const fcp_plan *plan, const char *profile, char **out_text, fcp_error *err) {
    sim_profile how = {.name = ""};
    sim_result result;
    arena memory = {0};
    fcp_code code = fcp_plan_whole(plan, "a simulation", err);
    if (code) return code;
    code = profile ? sim_profile_open(profile, false, &how, err) : sim_profile_of(plan->cluster, &how, err);
    if (!code) code = simulate(plan, &how, &(sim_options){.seed = 1}, &memory, &result, err);
    json j = {0};
    json_object(&j, NULL);
    json_string(&j, "profile", how.name);
    for (int pass = 0; pass < FCP_PASSES && !code; pass++) {
        const sim_pass *x = &result.pass[pass];
        if (!(plan->problem->passes >> pass & 1)) continue;
        json_object(&j, fcp_pass_names[pass]);
        sim_pass_json(&j, x, sim_largest_bound(x), sim_mfu(plan, x));
        sim_ranks_json(&j, x, plan->problem->ranks);
        json_end(&j);
    }
    json_end(&j);
    arena_free(&memory);
    return json_hand_over(&j, code, out_text, err);
}
