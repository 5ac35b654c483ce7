/* test_layer.c: how long a layer takes, its linear layers and its attention, against closed forms and bounds. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "compiler/sema/program.h"
#include "compiler/simulate/simulate.h"
#include "runtime/plan/layout.h"
#include "runtime/plan/plan.h"
#include "tests/support/plan_of.h"

typedef struct predicted {
    uint64_t makespan, linear, layer;
    uint64_t least; /* what the busiest rank computes, linear layers and attention */
} predicted;

static predicted predict(const char *source, fcp_pass pass, const uint64_t linear[FCP_PASSES], uint32_t without) {
    fcp_plan *plan = plan_of(source);
    sim_profile profile;
    fcp_error err = {0};
    arena memory = {0};
    sim_result r;
    const sim_options options = {.linear = {linear[0], linear[1]}, .without = without};
    cr_assert_eq(sim_profile_find("h200", &profile, &err), FCP_OK);
    cr_assert_eq(simulate(plan, &profile, &options, &memory, &r, &err), FCP_OK, "%s", err.message);
    const sim_pass *x = &r.pass[pass];
    predicted out = {x->makespan, x->linear, x->layer, 0};
    for (uint32_t k = 0; k < plan->problem->ranks; k++) {
        const uint64_t all = x->ranks[k].compute + linear[pass] * fcp_side_tokens(plan, FCP_QUERIES, k);
        if (all > out.least) out.least = all;
    }
    arena_free(&memory);
    fcp_plan_free(plan);
    return out;
}

static const uint64_t each[FCP_PASSES] = {330000, 660000}; /* 0.33 us and 0.66 us */
static const uint64_t none[FCP_PASSES] = {0};

/* One rank computes one after the other. */
Test(layer, one_rank) {
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        const predicted x =
            predict("batch { lengths = [1000, 500] }\nplan { mask = causal }\n", (fcp_pass)pass, each, 0);
        cr_expect_eq(x.linear, 1500 * each[pass]);
        cr_expect_eq(x.layer, x.linear + x.makespan);
    }
}

/* Ranks that need nothing of each other need not begin together. So the slowest one decides: here it has more tokens
 * than the other, and less work. */
Test(layer, ranks_on_their_own) {
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        const predicted x = predict("cluster { gpus = 2 }\nbatch { lengths = [6000] on 0..1, [100 x 80] on 1..2 }\n"
                                    "plan { mask = causal; block = 128; layout = contiguous\n"
                                    "strategy = cad(tolerance = 1.0) }\n",
                                    (fcp_pass)pass, each, 0);
        cr_expect_eq(x.linear, 8000 * each[pass]);
        cr_expect_eq(x.layer, x.least, "%lu, not %lu", x.layer, x.least);
    }
}

/* Whatever the plan: a layer takes no less than what its busiest rank computes, and no more than both parts one after
 * the other. Without linear layers there are no times of layers. */
Test(layer, between_its_bounds) {
    static const char *const strategies[] = {
        "fcp", "cad", "ring", "ulysses", "dcp", "groups(tokens = 9000)", "cad(pingpong = true)", "cad(servers = 1)"};
    static const char *const layouts[] = {"planned", "contiguous", "zigzag"};
    char source[600];
    for (unsigned i = 0; i < 24; i++) {
        snprintf(source, sizeof source,
                 "model { heads = 32; kv_heads = 8 }\ncluster { nodes = 2; gpus = 4; gpu = h200 }\n"
                 "batch { lengths = [16000, 5000 x 4, 700 x 9, 130 x 30] }\n"
                 "plan { mask = %s; layout = %s; strategy = %s }\n",
                 i % 4 == 1 ? "full" : "causal", layouts[i % 3], strategies[i % 8]);
        for (int pass = 0; pass < FCP_PASSES; pass++) {
            const predicted x = predict(source, (fcp_pass)pass, each, 0);
            cr_expect_geq(x.layer, x.least, "%s", source);
            cr_expect_leq(x.layer, x.linear + x.makespan, "%s", source);
            cr_expect_eq(predict(source, (fcp_pass)pass, none, 0).layer, 0);
            cr_expect_eq(predict(source, (fcp_pass)pass, none, 0).makespan, x.makespan);
        }
    }
}

/* With ping-pong what travels hides behind linear layers, and so a layer takes less than its parts together. It also
 * takes less than if linear layers, moving and attention followed each other, which DistCA calls a single stream. */
Test(layer, two_halves_hide_each_other) {
    static const char source[] = "model { heads = 32; kv_heads = 8 }\ncluster { nodes = 4; gpus = 4; gpu = h100 }\n"
                                 "batch { lengths = [65536 x 2, 8192 x 48] }\n"
                                 "plan { mask = causal; layout = contiguous; block = 2K\n"
                                 "strategy = cad(pingpong = true, buffers = 2) }\n";
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        const predicted x = predict(source, (fcp_pass)pass, each, 0),
                        serial = predict(source, (fcp_pass)pass, each, SIM_WITHOUT_OVERLAP);
        cr_expect_lt(x.layer, x.linear + x.makespan);
        cr_expect_lt(x.layer, x.linear + serial.makespan);
        cr_expect_eq(serial.layer, 0);
    }
}

/* linear = dense(...): weights are two operations each for a token, at half of the rate unless stated. */
Test(layer, dense) {
    static const struct {
        const char *model;
        uint64_t weights, rate_percent;
    } cases[] = {{"heads = 32; kv_heads = 8; linear = dense(hidden = 4096, ffn = 14336)",
                  4096 * (32 * 256 + 8 * 256 + 3 * UINT64_C(14336)), 50},
                 {"heads = 32; kv_heads = 32; head_dim = 64; linear = dense(hidden = 2048, ffn = 8192, gated = false)",
                  2048 * (32 * 128 + 32 * 128 + 2 * UINT64_C(8192)), 50},
                 {"heads = 128; kv_heads = 1; head_dim = 576; value_dim = 512; values = keys\n"
                  "linear = dense(hidden = 1000, ffn = 3000, efficiency = 1)",
                  1000 * (128 * 1088 + 576 + 3 * UINT64_C(3000)), 100},
                 {"heads = 8; linear = dense(hidden = 512, ffn = 512, efficiency = 0.25)",
                  512 * (8 * 512 + 3 * UINT64_C(512)), 25}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char source[400];
        snprintf(source, sizeof source,
                 "model { %s }\ncluster { flops = 1 PFLOP/s }\nbatch { lengths = [10] }\n"
                 "plan { mask = causal }\n",
                 cases[i].model);
        fcpc_diagnostics *d = fcpc_diagnostics_new();
        fcpc_program *p = NULL;
        cr_assert_eq(fcpc_parse_text("dense", source, strlen(source), NULL, d, &p), FCP_OK, "%s", source);
        const uint64_t time = 2 * cases[i].weights * 100 / cases[i].rate_percent / 1000; /* a PFLOP/s: 1000 in a ps */
        cr_expect_eq(p->linear[FCP_FORWARD], time, "%lu, not %lu", p->linear[FCP_FORWARD], time);
        cr_expect_eq(p->linear[FCP_BACKWARD], 2 * time);
        fcpc_program_free(p);
        fcpc_diagnostics_free(d);
    }
}
