/* test_simulate.c: compares predicted times with closed forms, and with bounds that no plan can beat. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/fcpc.h"
#include "compiler/simulate/cost_model.h"
#include "compiler/simulate/simulate.h"
#include "runtime/plan/enum_names.h"
#include "runtime/plan/plan_summary.h"
#include "tests/support/plan_of.h"

/* Round figures: a FULL cell takes 1 us, a PARTIAL one 2 us, a row item 3 us, a launch 10 us; memory costs next to
 * nothing. */
static const char round_figures[] = "gpu test\nsms 100 \"t\"\nsmall 0 us \"t\"\n"
                                    "forward.64.full 1 us \"t\"\nforward.64.partial 2 us \"t\"\n"
                                    "forward.64.row 3 us \"t\"\nforward.64.launch 10 us \"t\"\n"
                                    "backward.64.full 2 us \"t\"\nbackward.64.partial 5 us \"t\"\n"
                                    "backward.64.row 4 us \"t\"\nbackward.64.launch 20 us \"t\"\n";
enum { US = 1000000 }; /* picoseconds */

static sim_profile profile_of(const char *text) {
    sim_profile p;
    fcp_error err = {0};
    cr_assert_eq(sim_profile_read("test", text, strlen(text), &p, &err), FCP_OK, "%s", err.message);
    return p;
}

/* A plan for `ranks` GPUs of one node, 16 heads of 64, `tokens` tokens each in one sequence of all, in chunks of one
 * unit. */
static fcp_plan *ring_of(uint32_t ranks, uint32_t tokens, const char *strategy, const char *mask, const char *cluster) {
    char source[1024];
    snprintf(source, sizeof source,
             "model { heads = 16; kv_heads = 16; head_dim = 64 }\ncluster { gpus = %u; latency = 1 us; %s }\n"
             "batch { lengths = [%u] }\nplan { mask = %s; block = %u; strategy = %s; margin = 0; layout = planned }\n",
             ranks, cluster, ranks * tokens, mask, tokens, strategy);
    return plan_of(source);
}

static uint64_t makespan(const fcp_plan *plan, fcp_pass pass, sim_pass *out_pass) {
    sim_profile profile = profile_of(round_figures);
    arena memory = {0};
    sim_result r;
    fcp_error err = {0};
    cr_assert_eq(simulate(plan, &profile, NULL, &memory, &r, &err), FCP_OK, "%s", err.message);
    uint64_t time = r.pass[pass].makespan;
    if (out_pass) *out_pass = r.pass[pass];
    arena_free(&memory);
    return time;
}

static uint64_t takes(uint64_t bytes, uint64_t rate) {
    return (uint64_t)(((unsigned __int128)bytes * SIM_SECOND + rate - 1) / rate);
}

/* COPY of a rank's tokens in and out: read and written once, at the profile's memory bandwidth, without a launch. */
static uint64_t copies(const fcp_plan *plan, uint32_t tokens, bool in) {
    uint64_t token = 16 * 64 * 2, bytes = 2 * (uint64_t)tokens * (in ? 3 * token : token + 16 * 8);
    return takes(bytes, plan->cluster->memory_bandwidth);
}

Test(simulate, one_rank_takes_its_kernel_and_its_copies) {
    /* 16 rows of cells, 16 heads: 256 items of 100 multiprocessors, which is 3 waves where 2.56 would do */
    fcp_plan *plan = ring_of(1, 2048, "fcp", "full", "");
    uint64_t cells = 16 * 16 * 16, rows = 16 * 16;
    uint64_t attend = (cells * 1 + rows * 3) * US * 300 / 256 + 10 * US;
    sim_pass pass;
    cr_assert_eq(makespan(plan, FCP_FORWARD, &pass), copies(plan, 2048, true) + attend + copies(plan, 2048, false));
    cr_assert_eq(pass.makespan, pass.bound[SIM_BOUND_COMPUTE]);
    cr_assert_eq(pass.makespan, pass.bound[SIM_BOUND_PATH]);
    cr_assert_eq(pass.bytes[FCP_NET] + pass.bytes[FCP_LOCAL], 0);
    fcp_plan_free(plan);
}

Test(simulate, a_ring_takes_a_step_and_then_the_slower_of_step_and_transfer) {
    static const char *const clusters[] = {"intra = 450 GB/s", "intra = 40 GB/s", "intra = 1 GB/s"};
    bool bound_by[2] = {false, false};
    for (size_t c = 0; c < sizeof clusters / sizeof *clusters; c++) {
        enum { RANKS = 4, TOKENS = 2048 };
        fcp_plan *plan = ring_of(RANKS, TOKENS, "ring(coalesce = 1, buffers = 2)", "full", clusters[c]);
        uint64_t step = (16 * 16 * 16 + 16 * 16 * 3) * (uint64_t)US * 300 / 256 + 10 * US;
        uint64_t bytes = TOKENS * 2 * 16 * 64 * 2, rate = plan->cluster->intra;
        uint64_t unit = US + takes(bytes, rate);
        uint64_t slower = step > unit ? step : unit;
        bound_by[unit > step] = true;
        cr_assert_eq(makespan(plan, FCP_FORWARD, NULL),
                     copies(plan, TOKENS, true) + step + (RANKS - 1) * slower + copies(plan, TOKENS, false), "%s",
                     clusters[c]);
        fcp_plan_free(plan);
    }
    cr_assert(bound_by[0] && bound_by[1], "both cases were met");
}

/* Heads whose keys and values differ in width: 96 numbers of K and 32 of V. A pair is compared with one of 64 and 64.
 *   forward   as many FLOPs (96 + 32 = 64 + 64), so the same time
 *   backward  1.1 times as many: three products have the width of K and two that of V, 3 * 96 + 2 * 32 = 1.1 * 5 * 64
 * The copies of a rank's tensors, and DELTA, are counted apart. DELTA reads O, dO and, if the plan has one, the
 * gradient of LSE. */
Test(simulate, heads_of_two_widths_take_what_their_products_take) {
    enum { TOKENS = 2048, HEADS = 16, HEAD = 96, VALUE = 32 };
    for (int c = 0; c < 4; c++) {
        const bool in_keys = c & 1, gradient = c & 2;
        char source[512];
        snprintf(source, sizeof source,
                 "model { heads = %d; head_dim = %d; value_dim = %d; values = %s }\nbatch { lengths = [%d] }\n"
                 "plan { mask = full; block = %d; margin = 0; lse_gradient = %s }\n", HEADS, HEAD, VALUE,
                 in_keys ? "keys" : "own", TOKENS, TOKENS, gradient ? "true" : "false");
        fcp_plan *plan = plan_of(source);
        const uint64_t memory = plan->cluster->memory_bandwidth, row = TOKENS * HEADS;
        const uint64_t q = row * HEAD * 2, o = row * VALUE * 2, kv = in_keys ? q : q + o;
        const uint64_t cells = 16 * 16 * 16, items = 16 * 16;
        const uint64_t forward = (cells * 10 + items * 30) * (US / 10) * 300 / 256 + 10 * US;
        const uint64_t backward = (cells * 22 + items * 44) * (US / 10) * 300 / 256 + 20 * US;
        cr_expect_eq(makespan(plan, FCP_FORWARD, NULL),
                     takes(2 * (q + kv), memory) + forward + takes(2 * (o + row * 8), memory));
        cr_expect_eq(makespan(plan, FCP_BACKWARD, NULL),
                     takes(2 * (q + 2 * o + kv + row * (gradient ? 12 : 8)), memory) +
                         takes(2 * o + row * (gradient ? 8 : 4), memory) + backward + takes(2 * (q + kv), memory));
        fcp_plan_free(plan);
    }
}

/* With wire = bf16 partial results are half the bytes, and are rounded before they travel and widened after it. */
Test(simulate, a_rounded_partial_takes_half_the_bytes_and_two_small_launches) {
    uint32_t seen = 0;
    sim_profile profile = profile_of(round_figures);
    profile.small = 3 * US;
    fcp_plan *plan = ring_of(2, 256, "ring", "full; wire = bf16", "intra = 40 GB/s");
    arena memory = {0};
    sim_model m;
    cr_assert_eq(sim_model_new(plan, FCP_BACKWARD, &profile, &(sim_options){0}, &memory, &m), FCP_OK);
    for (uint32_t i = 0; i < plan->transfers_count; i++) {
        const fcp_transfer *t = &plan->transfers[i];
        if (t->cls != FCP_DKV) continue;
        const uint64_t numbers = (uint64_t)t->tokens * 2 * 16 * 64;
        cr_assert_eq(sim_model_transfer(&m, 0, i, plan->cluster->intra),
                     US + takes(numbers * 2, plan->cluster->intra) +
                         2 * (3 * US + takes(numbers * 6, plan->cluster->memory_bandwidth)));
        seen++;
    }
    cr_assert(seen > 0);
    arena_free(&memory);
    fcp_plan_free(plan);
}

/* Four ranks with four heads each: Q, K and V of the other three, all cells, O of the other three. In phases of one
 * head each, with one buffer, exchanges and kernels follow each other four times. */
Test(simulate, ulysses_takes_two_exchanges_and_its_kernel) {
    static const char *const clusters[] = {"intra = 450 GB/s", "intra = 40 GB/s", "intra = 1 GB/s"};
    for (size_t c = 0; c < 2 * sizeof clusters / sizeof *clusters; c++) {
        enum { RANKS = 4, TOKENS = 2048, ROWS = RANKS * TOKENS / 128 };
        const uint64_t phases = c % 2 ? 4 : 1, heads = 4 / phases;
        fcp_plan *plan = ring_of(RANKS, TOKENS, phases > 1 ? "upipe" : "ulysses", "full", clusters[c / 2]);
        const uint64_t rate = plan->cluster->intra, head = TOKENS * 64 * 2;
        const uint64_t items = ROWS * heads, waves = (items + 99) / 100;
        uint64_t attend = (ROWS * ROWS * heads + ROWS * heads * 3) * (uint64_t)US;
        if (waves < 4) attend = attend * waves * 100 / items;
        attend += 10 * US;
        const uint64_t kv = US + takes(2 * head * heads, rate), q = US + takes(head * heads, rate);
        const uint64_t o = US + takes((head + TOKENS * 8) * heads, rate);
        const uint64_t time = makespan(plan, FCP_FORWARD, NULL);
        const uint64_t closed = copies(plan, TOKENS, true) + copies(plan, TOKENS, false) +
                                phases * ((RANKS - 1) * (kv + q) + attend + (RANKS - 1) * o);
        cr_expect_eq(time, closed, "%s, %llu phases: %llu, and not %llu", clusters[c / 2], (unsigned long long)phases,
                     (unsigned long long)time, (unsigned long long)closed);
        fcp_plan_free(plan);
    }
}

Test(simulate, one_buffer_never_overlaps) {
    enum { RANKS = 4, TOKENS = 2048 };
    fcp_plan *plan = ring_of(RANKS, TOKENS, "ring(coalesce = 1, buffers = 1)", "full", "intra = 40 GB/s");
    uint64_t step = (16 * 16 * 16 + 16 * 16 * 3) * (uint64_t)US * 300 / 256 + 10 * US;
    uint64_t bytes = TOKENS * 2 * 16 * 64 * 2, rate = plan->cluster->intra;
    uint64_t unit = US + takes(bytes, rate);
    cr_assert_eq(makespan(plan, FCP_FORWARD, NULL),
                 copies(plan, TOKENS, true) + RANKS * step + (RANKS - 1) * unit + copies(plan, TOKENS, false));
    fcp_plan_free(plan);
}

/* No time of a rank is left out: it computes, or waits for something that has a column. What the table shows is of a
 * rank that ends last. */
static void all_time_is_told(const fcp_plan *plan, const sim_pass *x, const char *source) {
    uint64_t shown = 0, last = 0;
    bool found = false;
    for (int i = 0; i < SIM_REASONS; i++) shown += x->exposed[i];
    for (uint32_t rank = 0; rank < plan->problem->ranks; rank++) {
        uint64_t sum = x->ranks[rank].compute;
        for (int i = 0; i < SIM_REASONS; i++) sum += x->ranks[rank].wait[i];
        cr_assert_eq(sum, x->ranks[rank].end, "rank %u: %llu of %llu ps in\n%s", rank, (unsigned long long)sum,
                     (unsigned long long)x->ranks[rank].end, source);
        if (x->ranks[rank].end > last) last = x->ranks[rank].end;
        found |= sum == x->makespan && x->ranks[rank].compute + shown == sum;
    }
    cr_assert(last == x->makespan && found, "%s", source);
}

/* Every mask of the prelude, on two clusters: no bound is beaten, and a better wire or a shorter latency never costs
 * time. */
Test(simulate, bounds_hold_and_better_wires_never_hurt) {
    static const char *const clusters[] = {
        "latency = 4 us; inter = 50 GB/s; intra = 450 GB/s", "latency = 2 us; inter = 50 GB/s; intra = 450 GB/s",
        "latency = 4 us; inter = 100 GB/s; intra = 450 GB/s", "latency = 4 us; inter = 50 GB/s; intra = 900 GB/s",
        "latency = 4 us; inter = 50 GB/s; intra = 450 GB/s; oversubscription = 4"};
    static const char *const strategies[] = {"fcp", "fcp(coalesce = 1, buffers = 1)", "ring", "zigzag",
                                             "ulysses", "upipe(heads = 4, inside = 4) + ring"};
    static const char *const masks[] = {"causal", "full", "window(w = 700)", "lambda(sink = 64, window = 500)",
                                        "shared_question"};
    static const char *const layouts[] = {"planned", "contiguous"};
    sim_profile profile;
    fcp_error err = {0};
    cr_assert_eq(sim_profile_find("h200", &profile, &err), FCP_OK, "%s", err.message);
    for (size_t m = 0; m < sizeof masks / sizeof *masks; m++)
        for (size_t s = 0; s < sizeof strategies / sizeof *strategies; s++)
            for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++) {
                uint64_t first[FCP_PASSES] = {0};
                for (size_t c = 0; c < sizeof clusters / sizeof *clusters; c++) {
                    char source[1024];
                    snprintf(
                        source, sizeof source,
                        "model { heads = 8; kv_heads = 2; head_dim = 128 }\ncluster { nodes = 2; gpus = 4; %s }\n"
                        "batch { lengths = [9000, 5000, 3000 x 3, 700 x 20] }\n"
                        "plan { mask = %s; block = 512; strategy = %s; layout = %s; passes = forward, backward;\n"
                        "margin = 16 }\n",
                        clusters[c], masks[m], strategies[s], layouts[l]);
                    fcp_plan *plan = plan_of(source);
                    arena memory = {0};
                    sim_result r;
                    cr_assert_eq(simulate(plan, &profile, NULL, &memory, &r, &err), FCP_OK, "%s", err.message);
                    for (int pass = 0; pass < FCP_PASSES; pass++) {
                        for (int b = 0; b < SIM_BOUNDS; b++)
                            cr_assert(r.pass[pass].makespan >= r.pass[pass].bound[b],
                                      "%s bound %llu, makespan %llu of\n%s", sim_bound_names[b],
                                      (unsigned long long)r.pass[pass].bound[b],
                                      (unsigned long long)r.pass[pass].makespan, source);
                        if (!c) first[pass] = r.pass[pass].makespan;
                        else if (c + 1 == sizeof clusters / sizeof *clusters)
                            cr_assert(r.pass[pass].makespan >= first[pass], "%s", source);
                        else cr_assert(r.pass[pass].makespan <= first[pass], "%s", source);
                        all_time_is_told(plan, &r.pass[pass], source);
                    }
                    arena_free(&memory);
                    fcp_plan_free(plan);
                }
            }
}

Test(simulate, a_port_is_busy_for_its_latencies_and_its_bytes) {
    fcp_plan *slow = ring_of(4, 4096, "ring", "full", "intra = 1 GB/s");
    fcp_plan *fast = ring_of(4, 4096, "ring", "full", "intra = 2 GB/s");
    sim_pass a, b;
    makespan(slow, FCP_FORWARD, &a);
    makespan(fast, FCP_FORWARD, &b);
    uint64_t rounds = 3, latency = rounds * US; /* of 1 us, in both */
    cr_assert_eq(a.bound[SIM_BOUND_LOCAL] - latency, 2 * (b.bound[SIM_BOUND_LOCAL] - latency));
    fcp_plan_free(slow);
    fcp_plan_free(fast);
}

/* A plan of 8 ranks that have little to compute, so that its transfers take the time. */
static uint64_t queued(const char *cluster, unsigned queues, fcp_pass pass) {
    char text[1024], source[600];
    snprintf(text, sizeof text, "%squeues %u \"t\"\n", round_figures, queues);
    snprintf(source, sizeof source,
             "model { heads = 16; kv_heads = 16; head_dim = 64 }\ncluster { %s; intra = 0.2 GB/s; inter = 0.1 GB/s }\n"
             "batch { lengths = [8192] }\nplan { mask = full; block = 512; strategy = zigzag; layout = zigzag;\n"
             "passes = forward, backward }\n", cluster);
    fcp_plan *plan = plan_of(source);
    const sim_profile profile = profile_of(text);
    arena memory = {0};
    sim_result r;
    fcp_error err = {0};
    cr_assert_eq(simulate(plan, &profile, NULL, &memory, &r, &err), FCP_OK, "%s", err.message);
    const sim_pass *x = &r.pass[pass];
    cr_assert(x->makespan >= sim_largest_bound(x));
    const uint64_t time = x->makespan;
    arena_free(&memory);
    fcp_plan_free(plan);
    return time;
}

Test(simulate, fabrics_in_two_queues_do_not_wait_for_each_other) {
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        const uint64_t one = queued("nodes = 2; gpus = 4", 1, (fcp_pass)pass),
                       two = queued("nodes = 2; gpus = 4", 2, (fcp_pass)pass);
        cr_assert(two < one - one / 32, "%s: %llu in two queues, %llu in one", fcp_pass_names[pass],
                  (unsigned long long)two, (unsigned long long)one);
        cr_assert_eq(queued("nodes = 1; gpus = 8", 1, (fcp_pass)pass),
                     queued("nodes = 1; gpus = 8", 2, (fcp_pass)pass));
        cr_assert_eq(queued("nodes = 8; gpus = 1", 1, (fcp_pass)pass),
                     queued("nodes = 8; gpus = 1", 2, (fcp_pass)pass));
    }
}

/* What the caller holds may have to leave its rail: then it goes inside the node first, to the GPU on the receiver's
 * rail, and by that GPU's port. Two nodes of two; rank 0 to rank 3 goes by rank 1's port. */
Test(simulate, what_leaves_its_rail_takes_a_hop_and_the_port_of_another) {
    static const char *const layouts[] = {"contiguous", "planned"};
    for (int l = 0; l < 2; l++) {
        char text[512];
        uint32_t off = 0, on = 0;
        snprintf(text, sizeof text,
                 "model { heads = 16; kv_heads = 16; head_dim = 64 }\n"
                 "cluster { nodes = 2; gpus = 2; latency = 1 us; fabric = rail; intra = 40 GB/s; inter = 1 GB/s }\n"
                 "batch { lengths = [4096, 2048, 1024 x 4] }\n"
                 "plan { mask = causal; block = 512; margin = 0; layout = %s }\n", layouts[l]);
        fcp_plan *plan = plan_of(text);
        const fcp_problem *p = plan->problem;
        const sim_profile profile = profile_of(round_figures);
        arena memory = {0};
        sim_model m;
        cr_assert_eq(sim_model_new(plan, FCP_FORWARD, &profile, &(sim_options){0}, &memory, &m), FCP_OK);
        for (uint32_t r = 0; r < p->ranks; r++) {
            const fcp_stream *s = fcp_stream_of(plan, FCP_FORWARD, r, FCP_COMM);
            for (const fcp_instr *x = plan->instrs + s->first; x < plan->instrs + s->first + s->count; x++)
                for (uint32_t i = x->a; x->op == FCP_OP_LAUNCH && i < x->a + x->b; i++) {
                    const fcp_transfer *t = &plan->transfers[i];
                    const uint64_t bytes = sim_model_bytes(&m, t), direct = US + takes(bytes, plan->cluster->inter);
                    if (t->fabric != FCP_NET || t->dir != FCP_SEND) continue;
                    const bool leaves = t->peer % 2 != r % 2;
                    const uint64_t time = sim_model_transfer(&m, r, i, plan->cluster->inter);
                    cr_assert_eq(time, direct + (leaves ? US + takes(bytes, plan->cluster->intra) : 0));
                    cr_assert_eq(sim_model_port(&m, r, t->peer), leaves ? r ^ 1 : r);
                    off += leaves, on += !leaves;
                }
        }
        arena_free(&memory);
        cr_assert(on && (off > 0) == !l, "%s: %u off their rails", layouts[l], off);
        cr_assert_eq(fcp_bytes_off_rails(plan, FCP_FORWARD) > 0, !l);
        fcp_problem flat = *p; /* the same plan, if the network were a fat tree */
        const uint64_t rails = makespan(plan, FCP_FORWARD, NULL);
        flat.topology = FCP_FAT_TREE;
        plan->problem = &flat;
        const uint64_t tree = makespan(plan, FCP_FORWARD, NULL);
        cr_assert(l ? rails == tree : rails > tree, "%s", layouts[l]);
        plan->problem = p;
        fcp_plan_free(plan);
    }
}

Test(simulate, a_profile_has_one_queue_or_two) {
    char text[1024];
    fcp_error err = {0};
    sim_profile p = profile_of(round_figures);
    cr_assert_eq(p.queues, 2);
    snprintf(text, sizeof text, "%squeues 3 \"t\"\n", round_figures);
    cr_assert_eq(sim_profile_read("test", text, strlen(text), &p, &err), FCP_E_PROFILE);
    cr_assert(strstr(err.message, "queues is 1 or 2"), "%s", err.message);
    cr_assert_eq(sim_profile_find("cpu", &p, &err), FCP_OK);
    cr_assert_eq(p.queues, 1);
}

/* What a watcher adds up of a timeline. */
typedef struct seen {
    const fcp_plan *plan;
    uint64_t work[FCP_PASSES][8], wait[FCP_PASSES][8][SIM_REASONS], bytes[FCP_PASSES][FCP_FABRICS];
    uint64_t until[FCP_PASSES][8][SIM_LANES][2]; /* ends of lanes; the ports of a fabric are two */
    uint64_t last[FCP_PASSES];
    sim_interval sent;
} seen;

static void see(void *context, const sim_interval *x) {
    seen *s = context;
    uint64_t *until = &s->until[x->pass][x->rank][x->lane][x->doing == SIM_RECV];
    cr_assert(x->ready <= x->start && x->start < x->end && *until <= x->start);
    *until = x->end;
    if (x->end > s->last[x->pass]) s->last[x->pass] = x->end;
    cr_assert_eq(x->stage, s->plan->instrs[x->instr].stage);
    if (x->lane == SIM_LANE_COMPUTE) {
        cr_assert((x->doing == SIM_WAIT) == (s->plan->instrs[x->instr].op == FCP_OP_WAIT) &&
                  (x->doing == SIM_WAIT) == (x->cause != FCP_NONE));
        *(x->doing == SIM_WORK ? &s->work[x->pass][x->rank] : &s->wait[x->pass][x->rank][x->reason]) +=
            x->end - x->start;
        return;
    }
    const fcp_transfer *t = &s->plan->transfers[x->transfer];
    cr_assert(t->dir == FCP_SEND && t->block == x->block && s->plan->instrs[x->instr].c == x->round);
    if (x->doing == SIM_SEND) {
        s->bytes[x->pass][t->fabric] += x->bytes;
        s->sent = *x;
        return;
    }
    cr_assert(s->sent.transfer == x->transfer && s->sent.rank == x->peer && s->sent.peer == x->rank);
    cr_assert(s->sent.start == x->start && s->sent.end == x->end && s->sent.bytes == x->bytes);
}

Test(simulate, the_timeline_adds_up_to_the_result) {
    fcp_plan *plan = plan_of(
        "model { heads = 8; kv_heads = 2; head_dim = 128 }\ncluster { nodes = 2; gpus = 4; latency = 4 us }\n"
        "batch { lengths = [9000, 5000, 3000 x 3, 700 x 20] }\n"
        "plan { mask = causal; block = 512; strategy = fcp; layout = contiguous; passes = forward, backward }\n");
    sim_profile profile;
    fcp_error err = {0};
    sim_result r;
    arena memory = {0};
    seen s = {.plan = plan};
    sim_options options = {.watch = see, .context = &s};
    cr_assert_eq(sim_profile_find("h200", &profile, &err), FCP_OK);
    cr_assert_eq(simulate(plan, &profile, &options, &memory, &r, &err), FCP_OK);
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        cr_assert_eq(s.last[pass], r.pass[pass].makespan);
        cr_assert_arr_eq(s.bytes[pass], r.pass[pass].bytes, sizeof s.bytes[pass]);
        for (int rank = 0; rank < 8; rank++) { /* the rest of the waiting follows the last interval of computing */
            const sim_rank *x = &r.pass[pass].ranks[rank];
            uint64_t *waits = s.wait[pass][rank], all = s.work[pass][rank];
            cr_assert_eq(all, x->compute);
            for (int i = 0; i < SIM_REASONS; i++) all += waits[i];
            waits[SIM_RESHUFFLE] += x->end - all; /* what is moved last goes back to the caller's layout */
            cr_assert_arr_eq(waits, x->wait, sizeof x->wait);
        }
    }
    arena_free(&memory);
    fcp_plan_free(plan);
}

/* A call that asks for less, and one that reuses the memory of a call for another plan, give the same times. */
Test(simulate, brief_predictions_in_kept_memory_are_the_same) {
    fcp_plan *plans[] = {ring_of(8, 4096, "ring", "causal", "intra = 40 GB/s"),
                         ring_of(4, 2048, "zigzag", "causal", "intra = 20 GB/s")};
    sim_profile profile = profile_of(round_figures);
    sim_room room = {.scratch = {0}};
    const sim_options brief = {.brief = true, .room = &room};
    for (int i = 0; i < 4; i++) {
        const fcp_plan *plan = plans[i % 2];
        const uint32_t ranks = plan->problem->ranks;
        arena memory = {0};
        sim_result whole, less;
        fcp_error err = {0};
        cr_assert_eq(simulate(plan, &profile, NULL, &memory, &whole, &err), FCP_OK);
        cr_assert_eq(simulate(plan, &profile, &brief, &memory, &less, &err), FCP_OK);
        for (int pass = 0; pass < FCP_PASSES; pass++) {
            const sim_pass *a = &whole.pass[pass], *b = &less.pass[pass];
            cr_expect_eq(a->makespan, b->makespan);
            cr_expect_eq(a->bound[SIM_BOUND_COMPUTE], b->bound[SIM_BOUND_COMPUTE]);
            cr_expect(a->bound[SIM_BOUND_PATH] > 0 && b->bound[SIM_BOUND_PATH] == 0);
            cr_expect_arr_eq(a->ranks, b->ranks, ranks * sizeof *a->ranks);
        }
        arena_free(&memory);
    }
    sim_room_free(&room);
    for (int i = 0; i < 2; i++) fcp_plan_free(plans[i]);
}

Test(simulate, noise_only_adds_is_bounded_and_follows_the_seed) {
    fcp_plan *plan = ring_of(4, 2048, "ring", "causal", "intra = 40 GB/s");
    sim_profile profile = profile_of(round_figures);
    uint64_t times[4];
    static const sim_options options[] = {{.noise = 0},
                                          {.noise = 200, .seed = 1},
                                          {.noise = 200, .seed = 2},
                                          {.noise = 200, .seed = 1}};
    for (int i = 0; i < 4; i++) {
        arena memory = {0};
        sim_result r;
        fcp_error err = {0};
        cr_assert_eq(simulate(plan, &profile, &options[i], &memory, &r, &err), FCP_OK);
        times[i] = r.pass[FCP_FORWARD].makespan;
        arena_free(&memory);
    }
    cr_assert(times[1] > times[0] && times[1] < times[0] + times[0] / 5 + 1);
    cr_assert_neq(times[1], times[2]);
    cr_assert_eq(times[1], times[3]);
    fcp_plan_free(plan);
}

Test(simulate, shipped_profiles_are_read_and_others_are_named) {
    static const char *const names[] = {"a100", "h100", "h200", "b200", "910c", "cpu"};
    sim_profile p;
    fcp_error err = {0};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        cr_assert_eq(sim_profile_find(names[i], &p, &err), FCP_OK, "%s", err.message);
        cr_assert_str_eq(p.name, names[i]);
        sim_profile device; /* the same, but for the kernels */
        cr_assert(sim_profile_device(names[i], &device));
        memset(p.head_dims, 0, sizeof p.head_dims);
        memset(p.kernels, 0, sizeof p.kernels);
        cr_assert_eq(memcmp(&p, &device, sizeof p), 0, "%s", names[i]);
    }
    cr_assert_eq(sim_profile_find("h300", &p, &err), FCP_E_PROFILE);
    cr_assert_not(sim_profile_device("h300", &p));
    cr_assert(strstr(err.message, "h200"));
}

Test(simulate, profiles_refuse_what_they_do_not_know) {
    /* a line more, or in the place of the figure that begins with `instead` */
    static const struct { const char *instead, *line, *says; } wrong[] = {
        {NULL, "speed 3 us \"x\"", "no figure"}, {NULL, "forward.64.ful 1 us \"x\"", "mean forward.64.full"},
        {NULL, "smal 1 us \"x\"", "mean small"},
        {"forward.64.full", "forward.64.full 1 \"x\"", "needs a time"},
        {"forward.64.full", "forward.64.full one us \"x\"", "number"},
        {"forward.64.full", "forward.64.full 1 us", "source"},
        {"forward.64.full", "forward.64.full 1 us \"\"", "source"},
        {"forward.64.full", "forward.64.full 1 us \"x\" y", "follows"},
        {NULL, "forward.0.full 1 us \"x\"", "no figure"},
        {"forward.64.full", "forward.64.full 99999999999999999999 us \"x\"", "number"},
        {"forward.64.full", "forward.64.full -1 us \"x\"", "negative"},
        {"gpu", "gpu", "name"}, {"forward.64.full", "forward.64.full 0 us \"x\"", "above 0"},
        {"sms", "sms 0 \"x\"", "above 0"},
        {"sms", "", "no sms"}, {"small", "", "no small"}, {"gpu", "", "which gpu"},
        {"backward.64.row", "", "no backward.64.row"},
        {NULL, "latency.local 0 us \"x\"", "above 0"}, {NULL, "forward.64.full 1 us \"x\"", "twice"},
        {NULL, "gpu again", "twice"},
        {NULL, "forward.128.full 1 us \"x\"", "no forward.128.partial"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[2048] = "", *end = text;
        for (const char *at = round_figures; *at; at = strchr(at, '\n') + 1) {
            bool replaced = wrong[i].instead && !strncmp(at, wrong[i].instead, strlen(wrong[i].instead));
            if (!replaced)
                end += snprintf(end, (size_t)(text + sizeof text - end), "%.*s", (int)(strchr(at, '\n') + 1 - at), at);
        }
        snprintf(end, (size_t)(text + sizeof text - end), "%s\n", wrong[i].line);
        sim_profile p;
        fcp_error err = {0};
        cr_assert_eq(sim_profile_read("p", text, strlen(text), &p, &err), FCP_E_PROFILE, "%s", wrong[i].line);
        cr_assert(strstr(err.message, wrong[i].says), "%s: %s", wrong[i].line, err.message);
        cr_assert(err.line >= 1 && !strcmp(err.file, "p"));
    }
}

Test(simulate, messages_inside_a_node_may_be_faster) {
    char text[2048];
    snprintf(text, sizeof text, "%slatency.local 250 ns \"t\"\n", round_figures);
    fcp_plan *plan = ring_of(4, 2048, "ring(coalesce = 1, buffers = 1)", "full", "intra = 40 GB/s"); /* latency: 1 us */
    sim_profile slow = profile_of(round_figures), fast = profile_of(text);
    fcp_error err = {0};
    arena memory = {0};
    sim_result a, b;
    cr_assert_eq(simulate(plan, &slow, NULL, &memory, &a, &err), FCP_OK);
    cr_assert_eq(simulate(plan, &fast, NULL, &memory, &b, &err), FCP_OK);
    cr_assert_eq(a.pass[FCP_FORWARD].makespan - b.pass[FCP_FORWARD].makespan, 3 * 750 * (uint64_t)1000,
                 "three units, 750 ns less each");
    arena_free(&memory);
    fcp_plan_free(plan);
}

/* Whatever the network, the noise and the order: also transfers after the last computation are somebody's waiting. */
Test(simulate, no_time_is_left_out) {
    static const char *const strategies[] = {"fcp", "cad", "ring", "ulysses", "dcp", "groups(tokens = 9000)"};
    static const char *const layouts[] = {"contiguous", "planned"};
    sim_profile profile;
    fcp_error err = {0};
    cr_assert_eq(sim_profile_find("h200", &profile, &err), FCP_OK);
    for (size_t s = 0; s < sizeof strategies / sizeof *strategies; s++)
        for (int l = 0; l < 2; l++) {
            char source[512];
            snprintf(source, sizeof source,
                     "model { heads = 8; kv_heads = 2; head_dim = 128 }\n"
                     "cluster { nodes = 2; gpus = 4; gpu = h200; inter = 10 GB/s }\n"
                     "batch { lengths = [9000, 5000, 3000 x 3, 700 x 20] }\n"
                     "plan { mask = causal; block = 512; strategy = %s; layout = %s; passes = forward, backward }\n",
                     strategies[s], layouts[l]);
            fcp_plan *plan = plan_of(source);
            for (uint32_t network = 0; network < SIM_NETWORKS; network++)
                for (uint32_t without = 0; without < 1u << SIM_WITHOUT_COUNT; without++)
                    for (uint32_t noise = 0; noise <= 200; noise += 200) {
                        const sim_options options = {.network = network, .without = without, .noise = noise, .seed = 1};
                        arena memory = {0};
                        sim_result r;
                        cr_assert_eq(simulate(plan, &profile, &options, &memory, &r, &err), FCP_OK, "%s", err.message);
                        for (int pass = 0; pass < FCP_PASSES; pass++) all_time_is_told(plan, &r.pass[pass], source);
                        arena_free(&memory);
                    }
            fcp_plan_free(plan);
        }
}
