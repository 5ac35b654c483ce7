/* test_near.c: tests that tiles whose keys come from the same node do not wait for the network. Their keys come over
 * the fabric `local`, so they run first, while other keys are still on their way over `net`. Predicted times are
 * compared with a closed form, and with those of the same plans if each tile waits for both fabrics. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "compiler/simulate/simulate.h"
#include "runtime/plan/enum_names.h"
#include "tests/support/plan_of.h"
#include "tests/support/plan_tables.h"

/* A FULL cell takes 1 us, a row item 3 us, a launch 10 us; memory costs next to nothing. */
static const char figures[] = "gpu test\nsms 100 \"t\"\nsmall 0 us \"t\"\n"
                              "forward.64.full 1 us \"t\"\nforward.64.partial 2 us \"t\"\n"
                              "forward.64.row 3 us \"t\"\nforward.64.launch 10 us \"t\"\n"
                              "backward.64.full 2 us \"t\"\nbackward.64.partial 5 us \"t\"\n"
                              "backward.64.row 4 us \"t\"\nbackward.64.launch 20 us \"t\"\n";
enum { US = 1000000, TOKENS = 2048 }; /* US: picoseconds */

static uint64_t time_of(const fcp_plan *plan, fcp_pass pass, sim_network network) {
    sim_profile profile;
    arena memory = {0};
    sim_result r;
    fcp_error err = {0};
    const sim_options options = {.network = network};
    cr_assert_eq(sim_profile_read("test", figures, strlen(figures), &profile, &err), FCP_OK, "%s", err.message);
    cr_assert_eq(simulate(plan, &profile, &options, &memory, &r, &err), FCP_OK, "%s", err.message);
    const uint64_t time = r.pass[pass].makespan;
    cr_assert(network != SIM_NETWORK_ROUNDS || time >= sim_largest_bound(&r.pass[pass]));
    arena_free(&memory);
    return time;
}

static uint64_t takes(uint64_t bytes, uint64_t rate) {
    return (uint64_t)(((unsigned __int128)bytes * SIM_SECOND + rate - 1) / rate);
}

static fcp_plan *plan_on(uint32_t nodes, uint32_t gpus, const char *inter, const char *mask, const char *strategy) {
    char source[600];
    snprintf(source, sizeof source,
             "model { heads = 16; kv_heads = 16; head_dim = 64 }\n"
             "cluster { nodes = %u; gpus = %u; latency = 1 us; inter = %s }\nbatch { lengths = [%u] }\n"
             "plan { mask = %s; block = %u; strategy = %s; margin = 0; layout = planned; passes = forward, backward }\n",
             nodes, gpus, inter, nodes * gpus * TOKENS, mask, TOKENS, strategy);
    return plan_of(source);
}

/* Two nodes of two ranks; each rank needs all four blocks. In one stage it gets its neighbour's block over `local` and
 * one block over `net`. It passes that one on to its neighbour, so each rank has the fourth block in the next stage.
 * The tile of the neighbour's block runs while the network moves; the last two tiles run after that. */
Test(near, a_ring_over_two_nodes_computes_what_is_near_while_the_network_moves) {
    fcp_plan *plan = plan_on(2, 2, "0.25 GB/s", "full", "ring(send = direct, coalesce = 1, buffers = 2)");
    const uint64_t token = 16 * 64 * 2, hbm = plan->cluster->memory_bandwidth;
    const uint64_t step = (16 * 16 * 16 + 16 * 16 * 3) * (uint64_t)US * 300 / 256 + 10 * US;
    const uint64_t net = US + takes(TOKENS * 2 * token, plan->cluster->inter);
    cr_assert(net > 3 * step);
    cr_assert_eq(time_of(plan, FCP_FORWARD, SIM_NETWORK_ROUNDS),
                 takes(2 * TOKENS * 3 * token, hbm) + net + 2 * step + takes(2 * TOKENS * (token + 16 * 8), hbm));
    fcp_plan_free(plan);
}

/* How many stages ranks have divided, in which they ATTEND twice. */
static uint32_t divided(const fcp_plan *plan) {
    uint32_t count = 0;
    for (uint32_t r = 0; r < plan->problem->ranks; r++) {
        const fcp_stream *s = fcp_stream_of(plan, FCP_FORWARD, r, FCP_COMPUTE);
        uint32_t last = 0; /* the stage of the last ATTEND; stage 0 is divided by the reshuffle alone */
        for (const fcp_instr *x = plan->instrs + s->first, *end = x + s->count; x < end; x++) {
            if (x->op != FCP_OP_ATTEND) continue;
            count += x->stage && x->stage == last;
            last = x->stage;
        }
    }
    return count;
}

Test(near, only_ranks_that_wait_for_the_network_divide_their_stages) {
    static const struct { uint32_t nodes, gpus; const char *inter; bool divides; } cases[] = {
        {2, 4, "0.25 GB/s", true}, {2, 4, "450 GB/s", false}, {1, 8, "0.25 GB/s", false}, {8, 1, "0.25 GB/s", false}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        fcp_plan *plan = plan_on(cases[c].nodes, cases[c].gpus, cases[c].inter, "full", "ring(send = direct)");
        cr_assert_eq(divided(plan) > 0, cases[c].divides, "case %zu: %u stages", c, divided(plan));
        fcp_plan_free(plan);
    }
}

/* Does a launch receive over a fabric, or send a result over it? */
static bool concerns(const fcp_plan *plan, const fcp_instr *launch, fcp_fabric fabric) {
    for (uint32_t i = launch->a; launch->op == FCP_OP_LAUNCH && i < launch->a + launch->b; i++) {
        const fcp_transfer *t = &plan->transfers[i];
        if (t->fabric == fabric && (t->dir == FCP_RECV || (t->cls != FCP_KV && t->cls != FCP_Q))) return true;
    }
    return false;
}

/* A WAIT names no more than it has to: each of its numbers is that of an instruction that concerns computing over that
 * fabric; and one of them is larger than before. */
Test(near, waits_name_what_concerns_computing) {
    static const char *const strategies[] = {"ring", "zigzag", "fcp(coalesce = 2)", "cad", "dcp", "ulysses + ring"};
    uint32_t waits = 0;
    for (size_t s = 0; s < sizeof strategies / sizeof *strategies; s++) {
        fcp_plan *plan = plan_on(2, 4, "1 GB/s", "causal", strategies[s]);
        for (uint32_t i = 0; i < FCP_PASSES * plan->problem->ranks; i++) {
            const fcp_stream *stream = &plan->streams[(uint64_t)i * FCP_QUEUES + FCP_COMPUTE];
            uint32_t before[FCP_FABRICS] = {0};
            for (const fcp_instr *x = plan->instrs + stream->first, *end = x + stream->count; x < end; x++) {
                bool more = false;
                for (int f = 0; x->op == FCP_OP_WAIT && f < FCP_FABRICS; f++) {
                    const uint32_t n = fcp_waits_over(x, FCP_COMPUTE, (fcp_fabric)f);
                    cr_assert(n >= before[f]);
                    cr_assert(n == before[f] || concerns(plan, &plan->instrs[stream[1].first + n - 1], (fcp_fabric)f));
                    more |= n > before[f];
                    before[f] = n;
                }
                cr_assert(more || x->op != FCP_OP_WAIT);
                waits += more;
            }
        }
        fcp_plan_free(plan);
    }
    cr_assert(waits > 100, "%u", waits);
}

/* The same plan, whose waits are for whole instructions. */
static void join(tables *t) {
    for (uint64_t s = 0; s < t->streams_count; s++)
        for (uint32_t i = t->streams[s].first; i < t->streams[s].first + t->streams[s].count; i++) {
            fcp_instr *x = &t->instrs[i];
            if (x->op == FCP_OP_WAIT && s % FCP_QUEUES == FCP_COMPUTE) x->a = x->b = fcp_waits_whole(x);
        }
}

Test(near, a_wait_for_both_fabrics_takes_longer) {
    static const char *const strategies[] = {"ring(send = direct)", "zigzag(send = direct)", "fcp(coalesce = 2)"};
    for (size_t s = 0; s < sizeof strategies / sizeof *strategies; s++) {
        fcp_plan *plan = plan_on(2, 4, "0.25 GB/s", "full", strategies[s]);
        tables t;
        fcp_error err = {0};
        tables_copy(&t, plan);
        join(&t);
        cr_assert_eq(judge(&t, &err), FCP_OK, "%s", err.message);
        for (int pass = 0; pass < FCP_PASSES; pass++)
            for (sim_network n = SIM_NETWORK_ROUNDS; n <= SIM_NETWORK_SHARED; n++) {
                const uint64_t apart = time_of(plan, (fcp_pass)pass, n), joined = time_of(&t.plan, (fcp_pass)pass, n);
                cr_assert(apart < joined - joined / 10, "%s, %s, %s: %.3f of the time", strategies[s],
                          fcp_pass_names[pass], sim_network_names[n], (double)apart / (double)joined);
            }
        tables_free(&t);
        fcp_plan_free(plan);
    }
}
