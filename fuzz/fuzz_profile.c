/* fuzz_profile.c: reads the bytes as a profile of the simulator.
 *
 * Oracle: A profile is refused with a message and a line, or no predicted time of a plan is below its lower bounds,
 *         whether transfers go as planned or in random order.
 * Input:  the text of a profile. The corpus has the profiles that are shipped, and broken ones.
 */
#include <stdlib.h>
#include <string.h>

#include "compiler/fcpc.h"
#include "compiler/simulate/simulate.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char program[] =
    "model { heads = 4; kv_heads = 2; head_dim = 64 }\ncluster { nodes = 2; gpus = 2 }\n"
    "batch { lengths = [700, 300, 128] }\nplan { mask = causal; block = 128; layout = contiguous }";

static fcp_plan *make_plan(void) {
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *p = NULL;
    fcp_plan *plan = NULL;
    if (!d || fcpc_parse_text("program", program, strlen(program), NULL, d, &p) ||
        fcpc_plan(p, NULL, 0, NULL, d, NULL, &plan))
        abort();
    fcpc_program_free(p);
    fcpc_diagnostics_free(d);
    return plan;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static fcp_plan *plan; /* reachable for as long as the process runs */
    sim_profile profile;
    fcp_error err = {0};
    if (!plan) plan = make_plan();
    fcp_code code = sim_profile_read("profile", (const char *)data, size, &profile, &err);
    if (code) {
        if (code != FCP_E_PROFILE || !*err.message || !err.line) abort();
        return 0;
    }
    for (int network = SIM_NETWORK_ROUNDS; network <= SIM_NETWORK_PULLS; network += SIM_NETWORK_PULLS) {
        const sim_options options = {.network = (sim_network)network, .noise = 100, .seed = 1};
        arena memory = {0};
        sim_result r;
        code = simulate(plan, &profile, &options, &memory, &r, &err);
        if (code && (code != FCP_E_PROFILE || !*err.message)) abort();
        for (int pass = 0; pass < FCP_PASSES && !code; pass++)
            if (sim_largest_bound(&r.pass[pass]) > r.pass[pass].makespan) abort();
        arena_free(&memory);
    }
    return 0;
}
