/* bench_move.c: measures plans of the strategy cad in a contiguous layout: tokens stay where the caller has them, and
 * work moves. The rows have bytes, balance, wires, rounds and time.
 *
 * Batches: causal masks, head_dim 128, bf16, forward, blocks of 2K, 32,768 tokens a rank, nodes of 8.
 *
 * What is counted from what:
 *   bytes            from the blocks and tiles of the placement; those over net from the routes
 *   rounds and time  from the plan of the forward pass, the time by the simulator
 *
 * Words in the rows and notes:
 *   prototype     the bytes that the first prototype of cad found
 *   bound         a lower bound of the bytes
 *   today         the bytes of fcp with blocks of 2K, attention and reshuffle together, before work could move
 *   busiest node  what the node that sends most must send, divided by its ranks: one copy of all that other nodes read,
 *                 and one merged result of each row that it computes for another node. No routes send less. If this
 *                 figure is above the goal of the wires, only a placement that moves less from that node could meet the
 *                 goal.
 *
 * The goal of bytes is the smaller of two figures: 1.03 x the prototype's, and 1.4 x (64 heads, 8 of K and V) or 1.6 x
 * (32 heads) the bound.
 *
 * Rounds and time stay above their goals. The reason is ranks that have much more work than others:
 * 1. Such a rank sends rows to other ranks.
 * 2. They compute these rows only when the last of the keys has come.
 * 3. Then the rank receives the results.
 * A wire of such a rank is therefore idle in one direction at a time. The notes say how long the busiest wire sends and
 * how long it receives.
 *
 * Rounds and time are printed as quotients over a lower bound. A quotient can fall while the time grows, so look at the
 * milliseconds in the note, too. Example: stages_away.c allows each direction of a wire five units in a stage. With
 * two, prolong-256 would have quotients of 1.11 and 1.18; but it would have more launches and more running state, and
 * the bound would grow, forward from 14.9 to 17.4 ms and backward from 42 to 53.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/compile.h"
#include "compiler/simulate/simulate.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/plan_summary.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_move.h"
#include "tests/bench/workload.h"

enum { RUNS = 15 };

typedef struct figures {
    const char *list;
    uint32_t ranks, heads;
    double found[3];          /* GB, at 1.005, 1.02 and 1.1; 0: no goal */
    double today, part, net;  /* GB today; the parts of it that are aimed at, in all and on net; 0: not compared */
} figures;

static const figures table[] = {
    {"wlbllm", 64, 64, {24.6, 23.6}, 0, 0, 0},          {"prolong", 64, 64, {56.8, 55.7}, 0, 0, 0},
    {"wikipedia", 64, 64, {17.9, 16.7}, 0, 0, 0},       {"wlbllm", 256, 64, {111.8, 104.9}, 384.2, 0.30, 0.1},
    {"prolong", 256, 64, {44.1, 41.3}, 318.7, 0.15, 0.1}, {"wikipedia", 256, 64, {95.7, 92.8}, 357.5, 0.28, 0.1},
    {"wlbllm", 1024, 64, {0, 0}, 0, 0, 0},              {"prolong", 1024, 64, {0, 0}, 0, 0, 0},
    {"wikipedia", 1024, 64, {0, 0}, 0, 0, 0},           {"wlbllm", 64, 32, {20.2, 19.3}, 0, 0, 0},
    {"prolong", 64, 32, {43.5, 42.3}, 0, 0, 0},         {"wikipedia", 64, 32, {14.1, 13.3}, 0, 0, 0},
    {"wlbllm", 256, 32, {90.2, 85.1}, 0, 0, 0},         {"prolong", 256, 32, {33.9, 31.5}, 0, 0, 0},
    {"wikipedia", 256, 32, {75.0, 71.2}, 0, 0, 0},
};
static const char *const tolerances[3] = {"0.005", "0.02", "0.1"}; /* the last: as DistCA is run */

/* How long placing takes: the median of some times. */
static fcp_code time_placing(const cad_input *in, double *out) {
    double times[RUNS];
    arena keep = {0};
    fcp_code code = FCP_OK;
    for (int i = 0; i < RUNS && !code; i++) {
        arena scratch = {0};
        cad_shares shares;
        arena_reset(&keep);
        double start = bench_processor();
        code = cad_divide(in, &keep, &scratch, &shares);
        times[i] = bench_processor() - start;
        arena_free(&scratch);
    }
    arena_free(&keep);
    *out = bench_median(times, RUNS);
    return code;
}

/* Looks at what the passes made; what they make of it later does not matter here. */
static void look(void *context, const planning *x) {
    bench_moved *s = context;
    if (!x->placement || !x->division) return;
    arena scratch = {0};
    cad_input in = x->division->in;
    in.price = cad_price_of(x->program, false);
    fcp_code code = cad_bound(&in, &scratch, &s->bound);
    arena_free(&scratch);
    if (!code && s->all) code = time_placing(&x->division->in, &s->place);
    s->good = !code && moved_of(x, &s->relayed);
}

fcp_plan *bench_cad(const uint64_t *lengths, size_t count, uint32_t ranks, uint32_t heads, const char *tolerance,
                    bool all, bench_moved *out) {
    char source[512];
    snprintf(source, sizeof source,
             "model { heads = %u; kv_heads = 8; head_dim = 128 }\n"
             "cluster { nodes = %u; gpus = %d; gpu = h200; memory = 100 TB }\n"
             "plan { mask = causal; block = 2K; layout = contiguous; passes = forward; strategy = cad(tolerance = %s) "
             "}\n",
             heads, ranks / BENCH_GPUS, BENCH_GPUS, tolerance);
    *out = (bench_moved){.all = all};
    fcp_plan *plan = bench_plan_watched(source, lengths, count, &(compile_watch){look, out});
    if (out->good || !plan) return plan;
    fputs("out of memory\n", stderr);
    fcp_plan_free(plan);
    return NULL;
}

double bench_sent(const bench_moved *s, uint32_t ranks, uint32_t heads, double *out_compute) {
    /* 4 head_dim flops a pair and head at 600 TFLOP/s; 50 GB/s */
    *out_compute = (double)s->relayed.work / ranks * 4 * 128 * heads / 600e12;
    return (double)s->relayed.net_sent / 50e9 / *out_compute;
}

double bench_kv_sent(const moved *m) {
    uint64_t wire = m->kv_received > m->kv_copy ? m->kv_received : m->kv_copy;
    return (double)m->kv_sent / (double)wire;
}

fcp_code bench_forward(const fcp_plan *plan, sim_pass *out, fcp_error *err) {
    sim_profile profile;
    sim_result r;
    arena memory = {0};
    fcp_code code = sim_profile_find("h200", &profile, err);
    if (!code) code = simulate(plan, &profile, NULL, &memory, &r, err);
    if (!code) *out = r.pass[FCP_FORWARD];
    arena_free(&memory);
    return code;
}

static void print_rows(const figures *f, int which, const bench_moved *s) {
    const moved *m = &s->relayed;
    char row[128], note[240], goal[48], of[64];
    double bytes = (m->kv + m->rows) / 1e9, least = (double)s->bound / 1e9, found = f->found[which],
           most = found * 1.03;
    double times_bound = f->heads == 64 ? 1.4 : 1.6, over = (double)m->work_max * f->ranks / (double)m->work;
    if (times_bound * least < most) most = times_bound * least;
    snprintf(of, sizeof of, "%s-%u, %u:8 at 1%s", f->list, f->ranks, f->heads, tolerances[which] + 1);
    snprintf(row, sizeof row, "move: GB %s", of);
    if (found != 0) snprintf(goal, sizeof goal, "<= %.1f", most);
    else *goal = 0;
    snprintf(note, sizeof note, "prototype %.1f; bound %.1f: %.2f x; KV %.1f; %llu blocks, %llu tiles", found, least,
             bytes / least, m->kv / 1e9, (unsigned long long)m->blocks, (unsigned long long)m->tiles);
    bench_row(row, bytes, "GB", goal, bytes <= most, note);
    snprintf(row, sizeof row, "move: balance %s", of);
    snprintf(goal, sizeof goal, "<= 1%s", tolerances[which] + 1);
    bench_row(row, over, "x", goal, over <= 1 + atof(tolerances[which]) + 1e-6, "");
    snprintf(row, sizeof row, "move: place %s", of);
    double most_ms = f->ranks > 256 ? 8 : 3;
    snprintf(goal, sizeof goal, "<= %.0f ms", most_ms);
    bench_row(row, 1e3 * s->place, "ms", goal, 1e3 * s->place <= most_ms, "");
    if (f->today != 0 && which < 2) {
        snprintf(row, sizeof row, "move: GB / today's, %s", of);
        snprintf(goal, sizeof goal, "<= %.2f", f->part);
        bench_row(row, bytes / f->today, "x", goal, bytes / f->today <= f->part, "");
        snprintf(row, sizeof row, "move: GB on net / today's GB, %s", of);
        snprintf(goal, sizeof goal, "<= %.2f", f->net);
        bench_row(row, m->net / 1e9 / f->today, "x", goal, m->net / 1e9 / f->today <= f->net, "");
    }
    if (f->heads != 64 || f->ranks == 64) return;
    double compute, sent = bench_sent(s, f->ranks, f->heads, &compute), limit = f->ranks > 256 ? 0.9 : 0.6;
    snprintf(row, sizeof row, "move: busiest net sender / mean compute, %s", of);
    snprintf(goal, sizeof goal, "<= %.1f", limit);
    snprintf(note, sizeof note,
             "%.1f of %.1f ms, busiest node %.1f, receiver %.1f; without relays %.1f ms; depth %u; "
             "%.1f GB on all wires",
             (double)m->net_sent / 50e6, compute * 1e3, (double)m->net_node / 50e6, (double)m->net_received / 50e6,
             (double)m->direct_sent / 50e6, m->depth, m->sent / 1e9);
    bench_row(row, sent, "x", goal, sent <= limit, note);
    snprintf(row, sizeof row, "move: KV's busiest net sender / max(receiver, copy), %s", of);
    snprintf(note, sizeof note, "%.2f, %.2f, %.2f GB; without relays %.2f", (double)m->kv_sent / 1e9,
             (double)m->kv_received / 1e9, (double)m->kv_copy / 1e9, (double)m->direct_kv / 1e9);
    bench_row(row, bench_kv_sent(m), "x", "<= 1.3", bench_kv_sent(m) <= 1.3, note);
}

static void plan_rows(const figures *f, int which, const fcp_plan *plan, const moved *m) {
    char row[128], note[240], of[64];
    sim_pass pass = {0};
    fcp_error err = {0};
    const fcp_code code = bench_forward(plan, &pass, &err);
    snprintf(of, sizeof of, "%s-%u, %u:8 at 1%s", f->list, f->ranks, f->heads, tolerances[which] + 1);
    const fcp_summary *s = plan->summary;
    double rounds = (double)(s->rounds + s->rounds_dependent), bound = (double)s->rounds_bound;
    snprintf(row, sizeof row, "move: rounds / bound, %s", of);
    snprintf(note, sizeof note, "%.0f, bound %.0f, in %llu stages", rounds, bound, (unsigned long long)s->stages);
    bench_row(row, rounds / bound, "x", "<= 1.25", rounds <= 1.25 * bound, note);
    double time = 1e-9 * (double)pass.makespan, least = code ? 1 : 1e-9 * (double)sim_largest_bound(&pass);
    snprintf(row, sizeof row, "move: simulated time / largest bound, %s", of);
    if (code) snprintf(note, sizeof note, "%.200s", err.message);
    else
        snprintf(note, sizeof note,
                 "%.1f ms; compute %.1f, at most %.1f; path %.1f; busiest wire sends %.1f, receives %.1f ms", time,
                 1e-9 * (double)pass.bound[SIM_BOUND_MEAN], 1e-9 * (double)pass.bound[SIM_BOUND_COMPUTE],
                 1e-9 * (double)pass.bound[SIM_BOUND_PATH], (double)m->net_sent / 50e6,
                 (double)m->net_received / 50e6);
    bench_row(row, time / least, "x", "<= 1.3", !code && time <= 1.3 * least, note);
}

static void batch_rows(const figures *f, int which, const uint64_t *lengths, size_t count) {
    bench_moved s;
    fcp_plan *plan = bench_cad(lengths, count, f->ranks, f->heads, tolerances[which], true, &s);
    if (plan) print_rows(f, which, &s);
    if (plan && f->ranks == 256 && f->heads == 64 && !which) plan_rows(f, which, plan, &s.relayed);
    fcp_plan_free(plan);
}

static void look_at_split(void *context, const planning *x) {
    double *over = context;
    const problem *p = x->problem;
    uint64_t *load = x->placement ? calloc(p->ranks, sizeof *load) : NULL, most = 0;
    for (uint32_t t = 0; load && t < p->tile_count; t++) load[placement_exec(x->placement, t)] += p->tile_pairs[t];
    for (uint32_t r = 0; load && r < p->ranks; r++) most = load[r] > most ? load[r] : most;
    if (load) *over = (double)most * p->ranks / (double)p->pairs;
    free(load);
}

/* fcp, which splits blocks that are too heavy for one rank. */
static void split_row(const char *list) {
    char name[64], row[128];
    size_t count;
    bool drawn;
    snprintf(name, sizeof name, "%s-1024x32k", list);
    uint64_t *lengths = workload_lengths(name, 1024 * (uint64_t)BENCH_TOKENS, &count, &drawn);
    static const char source[] = "model { heads = 64; kv_heads = 8; head_dim = 128 }\n"
                                 "cluster { nodes = 128; gpus = 8; gpu = h200; memory = 100 TB }\n"
                                 "plan { mask = causal; block = 2K; passes = forward; strategy = fcp }\n";
    double over = 0;
    const compile_watch watch = {.see = look_at_split, .context = &over};
    fcp_plan_free(lengths ? bench_plan_watched(source, lengths, count, &watch) : NULL);
    snprintf(row, sizeof row, "move: balance %s-1024, fcp, blocks of 2K", list);
    bench_row(row, over, "x", "<= 1.005", over >= 1 && over <= 1.005 + 1e-6, "");
    free(lengths);
}

void bench_move(void) {
    split_row("prolong");
    split_row("wikipedia");
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char name[64];
        size_t count;
        bool drawn;
        snprintf(name, sizeof name, "%s-%ux32k", table[i].list, table[i].ranks);
        uint64_t *lengths = workload_lengths(name, (uint64_t)table[i].ranks * BENCH_TOKENS, &count, &drawn);
        int tried = table[i].today != 0 ? 3 : 2;
        for (int which = 0; which < tried && lengths; which++) batch_rows(&table[i], which, lengths, count);
        free(lengths);
    }
}
