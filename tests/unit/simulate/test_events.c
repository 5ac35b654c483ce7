/* test_events.c: tests the simulator. Its two ways to compute times, by recursion and by events, are compared on plans
 * of all kinds. Also tested are rules that hold for any rate or latency, and the network when transfers are not ordered
 * by rounds. */
#include <criterion/criterion.h>
#include <glob.h>

#include "compiler/simulate/fair_sharing.h"
#include "compiler/simulate/simulate.h"
#include "tests/oracle/random_program.h"
#include "tests/support/amount.h"
#include "tests/support/plan_of.h"
#include "tests/support/planned.h"
#include "tests/support/scatter.h"

static sim_profile profile_named(const char *name) {
    sim_profile p;
    fcp_error err = {0};
    cr_assert_eq(sim_profile_find(name, &p, &err), FCP_OK, "%s", err.message);
    return p;
}

static sim_result simulated(const fcp_plan *plan, const sim_options *options, arena *memory) {
    sim_profile profile = profile_named("h200");
    sim_result r;
    fcp_error err = {0};
    cr_assert_eq(simulate(plan, &profile, options, memory, &r, &err), FCP_OK, "%s", err.message);
    return r;
}

/* Calls `each` with plans that differ in all that a simulator looks at: the samples of the planner's tests, those
 * again with all that a plan may choose drawn at random, the examples and golden programs, and random programs. */
static void with_plans(void (*each)(fcp_plan *plan, const char *name)) {
    static const char *const patterns[] = {"examples/*.fcp", "tests/golden/dump/*.fcp", "tests/golden/passes/*.fcp"};
    char text[2048], name[64];
    const unsigned samples = amount(SAMPLES / 2, SAMPLES);
    unsigned scattered = 0;
    for (unsigned i = 0; i < samples; i++) {
        fcp_plan *plan = plan_of(sample_program(i, text, sizeof text));
        snprintf(name, sizeof name, "sample %u", i);
        each(plan, name);
        fcp_plan_free(plan);
        const scatter s = scatter_new(i + 1);
        char *picture = NULL;
        if (!scatter_try(text, &s, &plan, &picture)) {
            scattered++;
            snprintf(name, sizeof name, "sample %u, scattered", i);
            each(plan, name);
            fcp_plan_free(plan);
        }
        free(picture);
    }
    cr_assert(scattered > samples / 2);
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        glob_t files;
        cr_assert_eq(glob(patterns[i], 0, NULL, &files), 0, "%s", patterns[i]);
        for (size_t f = amount(1, 0); f < files.gl_pathc; f += amount(6, 1)) { /* quickly: not auto.fcp, a large one */
            fcp_plan *plan = plan_with(files.gl_pathv[f], NULL, NULL, 0);
            each(plan, files.gl_pathv[f]);
            fcp_plan_free(plan);
        }
        globfree(&files);
    }
    random_program *p = malloc(sizeof *p);
    unsigned good = 0;
    for (unsigned seed = 1; good < amount(3, 60); seed++) {
        dice d = {.state = seed * UINT64_C(0x9e3779b97f4a7c15) + 88172645463325252u};
        memset(p, 0, sizeof *p);
        draw_program(p, &d, 1 << 18);
        fcp_plan *plan;
        char *said;
        fcp_code code = plan_try("drawn.fcp", p->text, NULL, 0, &plan, &said);
        free(said);
        if (code) continue; /* a mask with a fault */
        good++;
        snprintf(name, sizeof name, "random program %u", seed);
        each(plan, name);
        fcp_plan_free(plan);
    }
    free(p);
}

/* --- events and recursion ----------------------------------------------------------------------------------------- */

/* The sum of a number for each interval that depends on everything in it, so that it does not depend on the order in
 * which intervals are shown. */
static void add_up(void *context, const sim_interval *x) {
    const uint64_t parts[] = {x->start, x->end, x->ready, x->bytes, x->rank, x->pass, x->lane, x->doing, x->reason,
                              x->cause,
                              x->doing == SIM_WAIT ? 0 : x->instr, x->transfer, x->peer, x->round, x->block};
    uint64_t hash = 1469598103934665603u;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) hash = (hash ^ parts[i]) * UINT64_C(0x9e3779b97f4a7c15);
    *(uint64_t *)context += hash ^ hash >> 29;
}

/* Does something leave its rail? Then ports send for several ranks, which recursion and events do not share alike. */
static bool leaves_rails(const fcp_plan *plan) {
    return fcp_bytes_off_rails(plan, FCP_FORWARD) || fcp_bytes_off_rails(plan, FCP_BACKWARD);
}

static void same_by_events(fcp_plan *plan, const char *name) {
    if (leaves_rails(plan)) return;
    for (uint32_t noise = 0; noise <= 300; noise += 300) {
        arena memory = {0};
        uint64_t sums[2] = {0};
        const sim_options options[2] = {
            {.noise = noise, .seed = 3, .watch = add_up, .context = &sums[0]},
            {.noise = noise, .seed = 3, .watch = add_up, .context = &sums[1], .network = SIM_NETWORK_SHARED}};
        sim_result a = simulated(plan, &options[0], &memory), b = simulated(plan, &options[1], &memory);
        for (int pass = 0; pass < FCP_PASSES; pass++) {
            cr_assert_eq(a.pass[pass].makespan, b.pass[pass].makespan, "%s: %llu by the recursion, %llu by events",
                         name, (unsigned long long)a.pass[pass].makespan, (unsigned long long)b.pass[pass].makespan);
            if (!a.pass[pass].makespan) continue;
            cr_assert_arr_eq(a.pass[pass].ranks, b.pass[pass].ranks, plan->problem->ranks * sizeof *a.pass[pass].ranks,
                             "%s", name);
        }
        cr_assert_eq(sums[0], sums[1], "%s: the timelines differ", name);
        arena_free(&memory);
    }
}

Test(events, equal_the_recursion_where_rounds_are_matched) { with_plans(same_by_events); }

/* Behind an oversubscribed uplink, or a port that sends for several ranks, the recursion shares rates within a round
 * and serves rounds in order. This measures how far that is from max-min fair sharing of everything in flight. */
static void near_by_events(fcp_plan *plan, const char *name) {
    const fcp_cluster *own = plan->cluster;
    for (uint32_t times = leaves_rails(plan) ? 1 : 2; times <= 8 && plan->problem->nodes > 1; times *= 2) {
        fcp_cluster narrow = *own;
        narrow.oversubscription_milli = 1000 * times;
        plan->cluster = &narrow;
        arena memory = {0};
        sim_result a = simulated(plan, NULL, &memory),
                   b = simulated(plan, &(sim_options){.network = SIM_NETWORK_SHARED}, &memory);
        for (int pass = 0; pass < FCP_PASSES; pass++) {
            if (!a.pass[pass].makespan) continue;
            double ratio = (double)a.pass[pass].makespan / (double)b.pass[pass].makespan;
            cr_assert(ratio > 0.8 && ratio < 1.5, "%s, %u times: %.3f", name, times, ratio);
        }
        arena_free(&memory);
    }
    plan->cluster = own;
}

Test(events, are_near_the_recursion_behind_narrow_uplinks) { with_plans(near_by_events); }

/* --- bounds ------------------------------------------------------------------------------------------------------- */

/* No way through the network beats a bound, or waits for ever. */
static void bounds_hold(fcp_plan *plan, const char *name) {
    static const uint32_t cases[] = {0, 1, 2, 4, 7}; /* nothing, each thing alone, and everything */
    const fcp_cluster *own = plan->cluster;
    for (uint32_t times = 1; times <= 4; times += 3)
        for (int network = 0; network < SIM_NETWORKS; network++)
            for (size_t c = 0; c < sizeof cases / sizeof *cases; c += amount(4, 1)) {
                const uint32_t without = cases[c];
                fcp_cluster narrow = *own;
                narrow.oversubscription_milli = 1000 * times;
                plan->cluster = &narrow;
                arena memory = {0};
                sim_result r =
                    simulated(plan, &(sim_options){.network = (sim_network)network, .without = without, .seed = 1},
                              &memory);
                for (int pass = 0; pass < FCP_PASSES; pass++)
                    for (int b = 0; b < SIM_BOUNDS; b++)
                        cr_assert(r.pass[pass].bound[b] <= r.pass[pass].makespan,
                                  "%s, %s, without %u: the bound %s is %llu, the makespan %llu", name,
                                  sim_network_names[network], without, sim_bound_names[b],
                                  (unsigned long long)r.pass[pass].bound[b], (unsigned long long)r.pass[pass].makespan);
                arena_free(&memory);
            }
    plan->cluster = own;
}

Test(events, no_bound_is_beaten) { with_plans(bounds_hold); }

/* How a better figure of the cluster may change a plan's time: `change` makes the cluster better. */
static void better_never_hurts(fcp_plan *plan, const char *name) {
    const fcp_cluster *own = plan->cluster;
    enum { FIGURES = 6 };
    for (uint32_t times = 1; times <= 4; times += 3) {
        uint64_t base[FCP_PASSES] = {0};
        for (int figure = 0; figure <= FIGURES; figure++) {
            fcp_cluster c = *own;
            c.oversubscription_milli = 1000 * times;
            if (figure == 1) c.inter = c.inter * 5 / 4;
            if (figure == 2) c.intra = c.intra * 3 / 2;
            if (figure == 3) c.latency_ns = c.latency_ns * 2 / 3;
            if (figure == 4) c.memory_bandwidth *= 2;
            if (figure == 5) c.oversubscription_milli = 1000 + (c.oversubscription_milli - 1000) / 2;
            if (figure == 6) c.inter *= 3, c.intra *= 2, c.latency_ns /= 7;
            plan->cluster = &c;
            arena memory = {0};
            sim_result r = simulated(plan, NULL, &memory);
            for (int pass = 0; pass < FCP_PASSES; pass++) {
                if (!figure) base[pass] = r.pass[pass].makespan;
                cr_assert(r.pass[pass].makespan <= base[pass], "%s: figure %d, oversubscription %u", name, figure,
                          times);
            }
            arena_free(&memory);
        }
    }
    plan->cluster = own;
}

Test(events, better_wires_never_hurt_a_plan) { with_plans(better_never_hurts); }

/* A plan whose computing costs nothing takes half as long on wires of twice the rates and half the latency: exactly,
 * but for the picosecond to which each transfer is rounded up. */
static void communication_halves(fcp_plan *plan, const char *name) {
    static const char next_to_nothing[] = "gpu test\nsms 1 \"t\"\nsmall 0 us \"t\"\nforward.64.full 1 ps \"t\"\n"
                                          "forward.64.partial 1 ps \"t\"\nforward.64.row 0 ps \"t\"\n"
                                          "forward.64.launch 0 ps \"t\"\n"
                                          "backward.64.full 1 ps \"t\"\nbackward.64.partial 1 ps \"t\"\n"
                                          "backward.64.row 0 ps \"t\"\nbackward.64.launch 0 ps \"t\"\n";
    const fcp_cluster *own = plan->cluster;
    sim_profile profile;
    fcp_error err = {0};
    cr_assert_eq(sim_profile_read("test", next_to_nothing, sizeof next_to_nothing - 1, &profile, &err), FCP_OK, "%s",
                 err.message);
    uint64_t times[FCP_PASSES][2] = {{0}}, transfers = 0;
    for (int twice = 0; twice < 2; twice++) {
        fcp_cluster c = *own;
        c.memory_bandwidth = UINT64_C(1) << 62;
        c.inter = UINT64_C(1) << (20 + twice); /* so that the memory and the kernels are nothing beside it */
        c.intra = UINT64_C(1) << (21 + twice);
        c.latency_ns = twice ? 1000 : 2000;
        plan->cluster = &c;
        arena memory = {0};
        sim_result r;
        cr_assert_eq(simulate(plan, &profile, NULL, &memory, &r, &err), FCP_OK);
        transfers = plan->transfers_count;
        for (int pass = 0; pass < FCP_PASSES; pass++)
            times[pass][twice] = r.pass[pass].makespan - r.pass[pass].bound[SIM_BOUND_COMPUTE];
        for (int pass = 0; pass < FCP_PASSES; pass++)
            if (r.pass[pass].bytes[FCP_NET] + r.pass[pass].bytes[FCP_LOCAL] == 0) times[pass][twice] = 0;
        arena_free(&memory);
    }
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        uint64_t a = times[pass][0], b = 2 * times[pass][1], slack = 2 * transfers + 4 * plan->summary->pairs;
        cr_assert(a <= b + slack && b <= a + slack, "%s: %llu, then twice %llu", name, (unsigned long long)a,
                  (unsigned long long)(b / 2));
        cr_assert(a == 0 || slack < a / 100, "%s: %llu of %llu is no test", name, (unsigned long long)slack,
                  (unsigned long long)a);
    }
    plan->cluster = own;
}

Test(events, twice_the_rates_and_half_the_latency_halve_communication) { with_plans(communication_halves); }

/* --- closed forms ------------------------------------------------------------------------------------------------- */

/* A cell of 64 takes 1 us, a PARTIAL one 2 us, a row item 3 us, a launch 10 us. */
static const char round_figures[] = "gpu test\nsms 100 \"t\"\nsmall 0 us \"t\"\n"
                                    "forward.64.full 1 us \"t\"\nforward.64.partial 2 us \"t\"\n"
                                    "forward.64.row 3 us \"t\"\nforward.64.launch 10 us \"t\"\n"
                                    "backward.64.full 2 us \"t\"\nbackward.64.partial 5 us \"t\"\n"
                                    "backward.64.row 4 us \"t\"\nbackward.64.launch 20 us \"t\"\n";
enum { US = 1000000 };

/* A ring of `ranks` nodes of one GPU, one sequence, 2048 tokens each, all pairs allowed. Every rank needs every other's
 * block: Delta is ranks - 1. */
static fcp_plan *ring_plan(uint32_t ranks, const char *way, const char *wires) {
    char text[600];
    snprintf(text, sizeof text,
             "model { heads = 16; kv_heads = 16; head_dim = 64 }\n"
             "cluster { nodes = %u; gpus = 1; %s; memory_bandwidth = 1000000 GB/s }\n"
             "batch { lengths = [%u] }\n"
             "plan { mask = full; block = 2048; strategy = %s; margin = 0; layout = planned }\n",
             ranks, wires, ranks * 2048, way);
    return plan_of(text);
}

static uint64_t takes(const fcp_plan *plan, const sim_options *options) {
    sim_profile profile;
    fcp_error err = {0};
    sim_result r;
    arena memory = {0};
    cr_assert_eq(sim_profile_read("test", round_figures, sizeof round_figures - 1, &profile, &err), FCP_OK, "%s",
                 err.message);
    cr_assert_eq(simulate(plan, &profile, options, &memory, &r, &err), FCP_OK, "%s", err.message);
    arena_free(&memory);
    return r.pass[FCP_FORWARD].makespan;
}

static uint64_t unit_time(const fcp_plan *plan) {
    uint64_t bytes = UINT64_C(2048) * 2 * 16 * 64 * 2;
    return plan->cluster->latency_ns * 1000 + (bytes * SIM_SECOND + plan->cluster->inter - 1) / plan->cluster->inter;
}

Test(events, without_overlap_everything_adds_up) {
    enum { RANKS = 6 };
    fcp_plan *plan = ring_plan(RANKS, "ring(coalesce = 1, buffers = 4)", "inter = 40 GB/s; latency = 1 us");
    uint64_t step = (16 * 16 * 16 + 16 * 16 * 3) * (uint64_t)US * 300 / 256 + 10 * US, unit = unit_time(plan);
    uint64_t serial = takes(plan, &(sim_options){.without = SIM_WITHOUT_OVERLAP}), planned_time = takes(plan, NULL);
    uint64_t copies = planned_time - step - (RANKS - 1) * (unit > step ? unit : step);
    cr_assert(copies < step / 100);
    cr_assert_eq(serial, copies + RANKS * step + (RANKS - 1) * unit);
    fcp_plan_free(plan);
}

Test(events, fluid_transfers_of_a_stage_share_their_ports) {
    enum { RANKS = 9 }; /* so that 1 GB/s divides by what shares it */
    fcp_plan *plan = ring_plan(RANKS, "ring(send = direct, coalesce = 8)", "inter = 1 GB/s; latency = 1 us");
    uint64_t bytes = UINT64_C(2048) * 2 * 16 * 64 * 2,
             step = (16 * 16 * 16 + 16 * 16 * 3) * (uint64_t)US * 300 / 256 + 10 * US;
    uint64_t fluid = takes(plan, &(sim_options){.network = SIM_NETWORK_FLUID}), rounds = takes(plan, NULL);
    uint64_t wire = (RANKS - 1) * bytes * (SIM_SECOND / UINT64_C(1000000000));
    cr_assert(bytes * (SIM_SECOND / UINT64_C(1000000000)) > step, "the first step is hidden");
    cr_assert_eq(rounds - fluid, (RANKS - 2) * (uint64_t)US, "rounds pay a latency each, and are as fast otherwise");
    cr_assert_eq(fluid - US - wire, rounds - (RANKS - 1) * (uint64_t)US - wire);
    fcp_plan_free(plan);
}

/* Eight transfers meet at each port, which then loses 7 / 8 of 40 %, so it carries 0.65 of its rate. */
Test(events, ports_lose_where_transfers_meet) {
    enum { RANKS = 9 };
    fcp_plan *plan = ring_plan(RANKS, "ring(send = direct, coalesce = 8)", "inter = 1 GB/s; latency = 1 us");
    const uint64_t bytes = UINT64_C(2048) * 2 * 16 * 64 * 2, each = bytes * (SIM_SECOND / UINT64_C(125000000));
    const uint64_t fluid = takes(plan, &(sim_options){.network = SIM_NETWORK_FLUID}),
                   lossy = takes(plan, &(sim_options){.network = SIM_NETWORK_FLUID, .incast = 40});
    cr_assert_eq(lossy - fluid, (bytes * SIM_SECOND + 81249999) / 81250000 - each);
    uint64_t before = takes(plan, &(sim_options){.network = SIM_NETWORK_PULLS, .seed = 1, .incast = 1});
    for (uint32_t incast = 33; incast < 100; incast += 33) {
        const uint64_t now = takes(plan, &(sim_options){.network = SIM_NETWORK_PULLS, .seed = 1, .incast = incast});
        cr_assert_gt(now, before, "%u %%", incast);
        before = now;
    }
    fcp_plan_free(plan);
    plan = ring_plan(2, "ring", "inter = 1 GB/s; latency = 1 us"); /* where nothing meets nothing is lost */
    for (sim_network n = SIM_NETWORK_FLUID; n <= SIM_NETWORK_PULLS; n++)
        cr_assert_eq(takes(plan, &(sim_options){.network = n, .seed = 1, .incast = 99}),
                     takes(plan, &(sim_options){.network = n, .seed = 1}));
    fcp_plan_free(plan);
}

Test(events, pulls_in_random_order_take_up_to_twice_the_rounds) {
    static const uint32_t ranks[] = {32, 64, 128};
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        fcp_plan *plan =
            ring_plan(ranks[i], "ring(send = direct, coalesce = 1, buffers = 8)", "inter = 0.001 GB/s; latency = 1 us");
        uint64_t delta = (ranks[i] - 1) * unit_time(plan), rounds = takes(plan, NULL), times[4];
        cr_assert(rounds < delta + delta / 100);
        for (uint64_t seed = 1; seed <= 3; seed++) {
            times[seed] = takes(plan, &(sim_options){.network = SIM_NETWORK_PULLS, .seed = seed});
            double ratio = (double)times[seed] / (double)delta;
            cr_assert(ratio > 1.58 && ratio < 2.0, "%u ranks, seed %d: %.3f x Delta", ranks[i], (int)seed, ratio);
        }
        cr_assert(times[1] != times[2] &&
                  takes(plan, &(sim_options){.network = SIM_NETWORK_PULLS, .seed = 1}) == times[1]);
        fcp_plan_free(plan);
    }
}

Test(events, without_fusion_each_tile_is_a_launch) {
    fcp_plan *plan =
        plan_of("model { heads = 400; kv_heads = 4; head_dim = 64 }\ncluster { memory_bandwidth = 1000000 GB/s }\n"
                "batch { lengths = [4096] }\nplan { mask = full; block = 1024; margin = 0; layout = planned }\n");
    cr_assert_eq(plan->tiles_count, 16);
    uint64_t fused = takes(plan, NULL), single = takes(plan, &(sim_options){.without = SIM_WITHOUT_FUSION});
    /* 15 launches more, and each row item is begun by four tiles instead of one visit: 32 rows of 400 heads, thrice
     * more */
    cr_assert_eq(single - fused, (uint64_t)US * (15 * 10 + 3 * 32 * 400 * 3));
    fcp_plan_free(plan);
}

/* --- fair shares -------------------------------------------------------------------------------------------------- */

static void note_rate(void *context, uint32_t f, uint64_t through) {
    (void)f;
    *(uint64_t *)context = through;
}

Test(flows, the_narrowest_is_shared_first) { /* the example of fair_sharing.c */
    static const uint64_t capacity[] = {10, 10, 6};
    arena memory = {0};
    flows x;
    uint64_t last = 0;
    cr_assert_eq(flows_new(3, capacity, 3, &memory, &x), FCP_OK);
    static const struct { uint32_t count, uses[3]; } on[] = {{1, {0}}, {3, {0, 1, 2}}, {2, {1, 2}}};
    for (uint32_t f = 0; f < 3; f++) {
        x.at[f].count = on[f].count;
        memcpy(x.at[f].uses, on[f].uses, sizeof on[f].uses);
        flows_join(&x, f, 70, 0);
    }
    flows_settle(&x, 0, note_rate, &last);
    cr_assert(x.at[0].rate == 7 && x.at[1].rate == 3 && x.at[2].rate == 3);
    flows_leave(&x, 0); /* after 10 seconds it is through; the others have 40 left, and still 3 each */
    flows_settle(&x, 10 * SIM_SECOND, note_rate, &last);
    cr_assert(x.at[1].rate == 3 && x.at[2].rate == 3);
    flows_leave(&x, 2);
    flows_settle(&x, 10 * SIM_SECOND, note_rate, &last);
    cr_assert_eq(x.at[1].rate, 6);
    cr_assert_eq(last, 10 * SIM_SECOND + (40 * SIM_SECOND + 5) / 6);
    arena_free(&memory);
}

/* Of random flows: no resource is overfull, and each flow has one that is full and in which no flow gets more. Full:
 * nothing is left but what a division leaves. */
Test(flows, rates_are_max_min_fair) {
    enum { RESOURCES = 12, FLOWS = 40 };
    dice d = {.state = 88172645463325252u};
    for (int round = 0; round < 200; round++) {
        uint64_t capacity[RESOURCES], used[RESOURCES] = {0}, last;
        bool there[FLOWS] = {false};
        arena memory = {0};
        flows x;
        for (int r = 0; r < RESOURCES; r++) capacity[r] = 1000 + roll(&d, 100000);
        cr_assert_eq(flows_new(RESOURCES, capacity, FLOWS, &memory, &x), FCP_OK);
        for (uint32_t f = 0; f < FLOWS; f++) {
            x.at[f].count = 1 + roll(&d, 4);
            for (uint32_t u = 0; u < x.at[f].count; u++) x.at[f].uses[u] = (roll(&d, 3) + 3 * u);
            flows_join(&x, f, 1 + roll(&d, 1000), (uint64_t)f);
            there[f] = true;
            if (roll(&d, 3)) continue;
            flows_settle(&x, (uint64_t)f, note_rate, &last);
            uint32_t gone = roll(&d, f + 1);
            if (there[gone]) flows_leave(&x, gone);
            there[gone] = false;
        }
        flows_settle(&x, FLOWS, note_rate, &last);
        for (int f = 0; f < FLOWS; f++)
            for (uint32_t u = 0; there[f] && u < x.at[f].count; u++) used[x.at[f].uses[u]] += x.at[f].rate;
        for (int f = 0; f < FLOWS; f++) {
            bool held = !there[f];
            for (uint32_t u = 0; !held && u < x.at[f].count; u++) {
                uint32_t r = x.at[f].uses[u], most = 0;
                cr_assert(used[r] <= capacity[r]);
                for (int g = 0; g < FLOWS; g++)
                    for (uint32_t v = 0; there[g] && v < x.at[g].count; v++)
                        if (x.at[g].uses[v] == r && x.at[g].rate > most) most = (uint32_t)x.at[g].rate;
                held = capacity[r] - used[r] < FLOWS && x.at[f].rate + FLOWS > most;
            }
            cr_assert(held, "round %d: flow %d could have more than %llu", round, f, (unsigned long long)x.at[f].rate);
        }
        arena_free(&memory);
    }
}
