/* test_split.c: tests in which batches fcp lets several ranks compute one block: only where that balances the batch,
 * and where the simulator does not predict a slower plan. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "compiler/simulate/simulate.h"
#include "tests/support/planned.h"

typedef struct outcome {
    bool moved;         /* some queries travel */
    uint64_t time, most; /* predicted picoseconds of all passes; pairs of the busiest rank */
} outcome;

static outcome plan_with(const char *rest, const char *split) {
    char source[512];
    fcp_plan *plan = NULL;
    sim_profile profile;
    sim_result result;
    fcp_error err;
    arena memory = {0};
    snprintf(source, sizeof source,
             "model { heads = 64; kv_heads = 8; head_dim = 128 }\n%s; strategy = fcp(split = %s) }\n", rest, split);
    fcpc_program *program = parse_text(source, NULL);
    cr_assert_eq(fcpc_plan(program, NULL, 0, NULL, NULL, NULL, &plan), FCP_OK, "%s", source);
    cr_assert_eq(sim_profile_find("h100", &profile, &err), FCP_OK);
    cr_assert_eq(simulate(plan, &profile, NULL, &memory, &result, &err), FCP_OK);
    const outcome out = {plan->summary->bytes_moved > 0,
                         result.pass[FCP_FORWARD].makespan + result.pass[FCP_BACKWARD].makespan,
                         plan->summary->pairs_max_rank};
    arena_free(&memory);
    fcp_plan_free(plan);
    fcpc_program_free(program);
    return out;
}

/* In each batch some block is too heavy for one rank. Long sequences gain by splitting it; short ones would lose. */
Test(split, only_where_it_pays) {
    static const struct {
        const char *program;
        bool splits;
    } cases[] = {
        {"cluster { nodes = 2; gpus = 8; gpu = h100 }\nbatch { lengths = [2000, 200 x 34] }\n"
         "plan { mask = causal; block = 128; passes = forward", false},
        {"cluster { nodes = 2; gpus = 8; gpu = h100 }\nbatch { lengths = [2000, 200 x 34] }\n"
         "plan { mask = causal; block = 128", false},
        {"cluster { nodes = 2; gpus = 8; gpu = h100; memory = 1 TB }\nbatch { lengths = [30000, 1000 x 34] }\n"
         "plan { mask = causal; block = 1K; passes = forward", false},
        {"cluster { nodes = 32; gpus = 8; gpu = h100; memory = 1 TB }\nbatch { lengths = [600000, 2000 x 900] }\n"
         "plan { mask = causal; block = 2K; passes = forward", true},
        {"cluster { nodes = 32; gpus = 8; gpu = h100; memory = 1 TB }\nbatch { lengths = [600000, 2000 x 900] }\n"
         "plan { mask = causal; block = 2K", true},
        /* Weighing says that moving takes longer than what it saves; but most of what moves is hidden. */
        {"cluster { nodes = 8; gpus = 8; gpu = h100; memory = 1 TB }\nbatch { lengths = [100000, 8000 x 200] }\n"
         "plan { mask = causal; block = 2K; passes = forward", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const outcome whole = plan_with(cases[i].program, "off"), chosen = plan_with(cases[i].program, "auto");
        cr_expect_eq(whole.moved, false);
        cr_expect_eq(chosen.moved, cases[i].splits, "case %zu", i);
        cr_expect_leq(chosen.time, whole.time, "case %zu: %lu, whole %lu", i, chosen.time, whole.time);
        if (cases[i].splits) cr_expect_lt(chosen.most, whole.most, "case %zu", i);
        else cr_expect_eq(chosen.most, whole.most, "case %zu", i);
    }
}
