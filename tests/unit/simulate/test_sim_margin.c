/* test_sim_margin.c: tests the margin, the SMs that a plan leaves to communication, for programs that state none: which
 * margins are tried, that the chosen one is the fastest of them, and that a faster link never makes a plan slower. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "compiler/simulate/simulate.h"
#include "tests/support/amount.h"
#include "tests/support/plan_of.h"
#include "tests/support/predicted.h"

/* The margins among which a plan gets one are sizes of green contexts, and the last one moves all of a port. */
Test(margin, are_sizes_that_green_contexts_have) {
    static const char *const gpus[] = {"a100", "h100", "h200", "b200"};
    static const struct { uint32_t nodes, gpus; } clusters[] = {{8, 8}, {64, 1}, {1, 8}};
    fcp_error err = {0};
    for (size_t g = 0; g < sizeof gpus / sizeof *gpus; g++)
        for (size_t c = 0; c < sizeof clusters / sizeof *clusters; c++)
            for (uint64_t port = 5; port <= 800; port *= 2) {
                sim_profile p;
                sim_margins list;
                cr_assert_eq(sim_profile_find(gpus[g], &p, &err), FCP_OK, "%s", err.message);
                const fcp_cluster cluster = {.inter = port * 1000000000};
                const bool both = clusters[c].nodes > 1 && clusters[c].gpus > 1, one = clusters[c].nodes == 1;
                sim_margins_list(clusters[c].nodes, clusters[c].gpus, &cluster, &p, &list);
                cr_assert(list.count && (!one || list.count == 1));
                for (uint32_t i = 0; i < list.count; i++) {
                    const uint64_t moved = sim_margin_moves(list.at[i], both, &p);
                    cr_assert(list.at[i] < p.sms && (p.sms - list.at[i]) % p.part == 0, "%s: %u", gpus[g], list.at[i]);
                    cr_assert(i ? list.at[i] > list.at[i - 1] : list.at[i] <= p.part);
                    cr_assert(one || i + 1 == list.count || moved < cluster.inter, "more would gain nothing");
                    cr_assert(one || i + 1 < list.count || moved >= cluster.inter || p.sms - list.at[i] <= 2 * p.part,
                              "%s, port of %llu: %llu", gpus[g], (unsigned long long)port, (unsigned long long)moved);
                }
            }
}

static sim_margins list_of(uint64_t sms, uint64_t part, uint64_t channel, uint32_t nodes, uint32_t gpus) {
    const sim_profile p = {.sms = sms, .part = part, .channel = channel};
    sim_margins list;
    sim_margins_list(nodes, gpus, &(fcp_cluster){.inter = 50000000000}, &p, &list);
    return list;
}

Test(margin, lists_of_odd_devices) {
    sim_margins list = list_of(132, 8, 8400000000, 8, 8);
    cr_assert(list.count == 2 && list.at[0] == 4 && list.at[1] == 12, "the example of margin.c");
    list = list_of(132, 8, 0, 8, 8);
    cr_assert(list.count == 1 && list.at[0] == 16, "nothing is known");
    list = list_of(132, 8, 8400000000, 1, 1);
    cr_assert(list.count == 1 && list.at[0] == 0, "nobody to talk to");
    list = list_of(1, 1, 8400000000, 8, 8);
    cr_assert(list.count == 1, "it cannot be divided");
    list = list_of(UINT64_C(1) << 40, UINT64_C(1) << 39, 1, 8, 8);
    cr_assert(list.count == 1 && list.at[0] == 16, "no program may state so many");
    list = list_of(1000000, 1, 1, 8, 8);
    cr_assert(list.count == SIM_MARGINS && list.at[SIM_MARGINS - 1] <= SIM_MARGIN_MOST, "%u", list.count);
}

/* The margin that is chosen is the least of those with which the plan is fastest, however they are looked for. */
Test(margin, chosen_is_the_fastest) {
    static const char *const links[] = {"1 GB/s", "25 GB/s", "50 GB/s", "150 GB/s", "400 GB/s"};
    static const char *const masks[] = {"causal", "window(w = 600)", "full"};
    static const char *const strategies[] = {"ring", "fcp", "cad", "dcp"};
    sim_profile p;
    fcp_error err = {0};
    unsigned sizes = 0;
    cr_assert_eq(sim_profile_find("h200", &p, &err), FCP_OK, "%s", err.message);
    for (size_t n = 0; n < 5 * 3 * 4; n++) {
        char source[600];
        snprintf(source, sizeof source,
                 "model { heads = 64; kv_heads = 8; head_dim = 128 }\n"
                 "cluster { nodes = 2; gpus = 4; gpu = h200; inter = %s }\n"
                 "batch { lengths = [24000, 9000, 3000 x 3, 700 x 20] }\n"
                 "plan { mask = %s; block = 512; strategy = %s; layout = contiguous; passes = forward, backward }\n",
                 links[n % 5], masks[n / 5 % 3], strategies[n / 15]);
        fcp_plan *plan = plan_of(source);
        sim_margins list;
        arena memory = {0};
        sim_result best;
        uint32_t chosen;
        const sim_options brief = {.brief = true};
        sim_margins_list(2, 4, plan->cluster, &p, &list);
        cr_assert_eq(sim_choose_margin(plan, &list, &p, &brief, &memory, &best, &chosen, &err), FCP_OK);
        cr_assert(list.count == 1 || chosen == plan->problem->margin, "the plan has %u", plan->problem->margin);
        fcp_problem facts = *plan->problem;
        fcp_plan other = *plan;
        other.problem = &facts;
        uint64_t least = UINT64_MAX;
        for (uint32_t i = 0; i < list.count; i++) {
            sim_result r;
            facts.margin = list.at[i];
            cr_assert_eq(simulate(&other, &p, &brief, &memory, &r, &err), FCP_OK);
            const uint64_t time = r.pass[FCP_FORWARD].makespan + r.pass[FCP_BACKWARD].makespan;
            if (time < least) least = time;
            if (list.at[i] != chosen) continue;
            cr_assert_eq(r.pass[FCP_FORWARD].makespan, best.pass[FCP_FORWARD].makespan);
            cr_assert_eq(r.pass[FCP_BACKWARD].makespan, best.pass[FCP_BACKWARD].makespan);
            sizes |= 1u << i;
        }
        cr_assert_eq(best.pass[FCP_FORWARD].makespan + best.pass[FCP_BACKWARD].makespan, least, "%u of\n%s", chosen,
                     source);
        arena_free(&memory);
        fcp_plan_free(plan);
    }
    cr_assert(__builtin_popcount(sizes) > 2, "margins of several sizes have been chosen: %x", sizes);
}

/* Both passes of the program at this rate of a link, as predicted with the margin of its plan. */
static uint64_t time_at(const char *program, const char *link, uint64_t megabytes, uint32_t *out_margin) {
    char source[700];
    snprintf(source, sizeof source,
             "model { heads = 64; kv_heads = 8; head_dim = 128 }\n"
             "cluster { nodes = 4; gpus = 4; gpu = h200; %s = %llu MB/s }\n%s\n",
             link, (unsigned long long)megabytes, program);
    fcp_plan *plan = plan_of(source);
    const uint64_t time = predicted(plan);
    *out_margin = plan->problem->margin;
    fcp_plan_free(plan);
    return time;
}

/* 70 steps from a slow link to a fast one, with everything else equal. Placements that look at links change between
 * steps; those of fcp change by less than a percent here. So does the choice of relays, by an estimate. */
Test(margin, faster_links_are_never_slower) {
    static const struct { const char *program; unsigned percent; } rows[] = {
        {"batch { lengths = [64K, 9000, 3000 x 9] }\nplan { mask = causal; strategy = zigzag; "
         "passes = forward, backward }", 100},
        {"batch { lengths = [64K, 64K] }\nplan { mask = window(w = 4096); block = 1K; strategy = ring }", 100},
        {"batch { lengths = [64K, 9000, 3000 x 9] }\nplan { mask = causal; block = 1K; layout = contiguous; "
         "strategy = cad; relay = off; passes = forward, backward }", 100},
        {"batch { lengths = [64K, 9000, 3000 x 9] }\nplan { mask = causal; block = 1K; layout = contiguous; "
         "strategy = cad; passes = forward, backward }", 103},
        {"batch { lengths = [64K, 9000, 3000 x 9] }\nplan { mask = causal; block = 1K; strategy = fcp; "
         "passes = forward, backward }", 101},
        {"batch { lengths = [32K, 9000 x 3, 3000 x 9] }\nplan { mask = full; block = 1K; layout = contiguous; "
         "strategy = fcp }", 101}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int link = 0; link < 2; link++) {
            uint64_t rate = link ? 20000000 : 10000000, least = UINT64_MAX / 2; /* kB/s; picoseconds */
            for (unsigned step = 0; step < 70; step++, rate += rate * 6557 / 100000) { /* 80 times as much in all */
                if (step % amount(3, 1)) continue;
                uint32_t margin;
                const uint64_t time = time_at(rows[i].program, link ? "intra" : "inter", rate / 1000, &margin);
                cr_assert(time <= least / 100 * rows[i].percent + 100, "%s: %s = %llu MB/s, margin %u: %llu after %llu",
                          rows[i].program, link ? "intra" : "inter", (unsigned long long)rate / 1000, margin,
                          (unsigned long long)time, (unsigned long long)least);
                if (time < least) least = time;
            }
        }
}
