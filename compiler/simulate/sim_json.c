/* sim_json.c: writes what the simulator predicts as JSON: for `fcpc sim --json`, and for callers of fcpc_simulate_json
 * (front/simulate_plan.c). */
#include <stdio.h>
#include <string.h>

#include "compiler/base/json.h"
#include "compiler/fcpc.h"
#include "compiler/simulate/simulate.h"
#include "runtime/plan/plan.h"

static double seconds(uint64_t picoseconds) { return (double)picoseconds / (double)SIM_SECOND; }

void sim_pass_json(json *j, const sim_pass *x, uint64_t largest, double mfu) {
    json_double(j, "makespan_s", seconds(x->makespan));
    json_double(j, "makespan_lower_bound_s", seconds(largest));
    if (x->layer) {
        json_double(j, "layer_s", seconds(x->layer));
        json_double(j, "linear_s", seconds(x->linear));
    }
    if (x->recurrent) { /* all layers that recur together */
        json_double(j, "recurrent_s", seconds(x->recurrent));
        json_object(j, "recurrent_bytes");
        json_u64(j, "net", x->recurrent_bytes[FCP_NET]);
        json_u64(j, "local", x->recurrent_bytes[FCP_LOCAL]);
        json_end(j);
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
