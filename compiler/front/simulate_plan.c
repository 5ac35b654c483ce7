/* simulate_plan.c: the simulator as a call of the library: predicts a plan, with the linear layers of which its text
 * speaks, and writes that as JSON. */
#include "compiler/base/json.h"
#include "compiler/fcpc.h"
#include "compiler/front/front.h"
#include "compiler/simulate/simulate.h"
#include "runtime/plan/enum_names.h"
#include "runtime/plan/extract.h"
#include "runtime/plan/plan.h"

fcp_code fcpc_simulate_json(const fcp_plan *plan, const char *profile, char **out_text, fcp_error *err) {
    sim_profile how = {.name = ""};
    sim_result result;
    arena memory = {0};
    fcp_code code = fcp_plan_whole(plan, "a simulation", err);
    if (code) return code;
    code = profile ? sim_profile_open(profile, false, &how, err) : sim_profile_of(plan->cluster, &how, err);
    sim_options options = {.seed = 1};
    if (!code && (code = front_linear(plan, options.linear))) fcp_fail(err, code, "%s", fcp_code_text(code));
    if (!code) code = simulate(plan, &how, &options, &memory, &result, err);
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
