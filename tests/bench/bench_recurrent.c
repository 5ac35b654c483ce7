/* bench_recurrent.c: what one placement for attention and for layers that recur is worth.
 *
 * Gives: for each list a row for each of three ways to run a model of one attention layer to three scans (gated delta
 *     nets with a convolution of four tokens):
 *       one placement      fcpc's: homes that attention has chosen, rows and states that travel between stretches
 *       reshuffled         attention on the same plan; before the scans every token goes to its place in a contiguous
 *                          layout, and behind them back
 *       contiguous         all layers on the contiguous layout: tokens stay, and so does the imbalance of attention
 *     and the part of planning's instructions that the tables of halos and scans take.
 * Cost: seconds, and minutes where valgrind must count instructions.
 *
 * The figure is the predicted time of the four layers, forward and backward, without what ranks compute by themselves
 * in the scans, which is the same for every way. The note has the bytes that the scans add, forward: halos and states,
 * or tokens and states. A token has a row of `hidden` numbers in bf16. Moving tokens is priced at the busiest port,
 * with a latency for each rank that it talks to, which no real exchange undercuts. On the contiguous layout scans are
 * planned by us as well.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compiler/place/place.h"
#include "compiler/problem/problem.h"
#include "compiler/sema/program.h"
#include "compiler/simulate/recurrent_walk.h"
#include "runtime/plan/layout.h"
#include "tests/bench/bench.h"
#include "tests/bench/workload.h"
#include "tests/support/recurrent_plan.h"

enum { HIDDEN = 4096 };

/* --- the contiguous way: blocks where the caller holds them, every tile at the home of its queries ------------------
 * */

static fcp_code cut_held(planning *x) { return problem_cut_held(x, &x->block_home); }
static fcp_code stay(planning *x, const place_input *in, uint32_t *home) {
    (void)in;
    memcpy(home, x->block_home, x->problem->block_count * sizeof *home);
    return FCP_OK;
}
static const strategy held = {.by_block = true, .in_place = true, .cut = cut_held, .place = stay};

/* --- predictions ----------------------------------------------------------------------------------------------------
 * */

typedef struct way {
    double seconds; /* of the four layers, both passes */
    double bytes;   /* that the layers which recur add, forward */
    bool ran;
} way;

static sim_model links_of(const fcp_plan *plan, const sim_profile *profile) {
    sim_model m;
    sim_recurrent_model(plan, profile, FCP_FORWARD, &m);
    return m;
}

/* Attention, and the layers that recur as the plan has them. */
static way predict(const fcp_plan *plan, bool attention, bool recurrent) {
    way w = {.ran = plan != NULL};
    sim_profile profile;
    sim_result result;
    arena memory = {0};
    fcp_error err;
    const sim_options options = {.seed = 1};
    if (!plan || sim_profile_of(plan->cluster, &profile, &err) ||
        simulate(plan, &profile, &options, &memory, &result, &err)) {
        w.ran = false;
        return w;
    }
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        const sim_pass *x = &result.pass[pass];
        w.seconds += (double)((attention ? x->makespan : 0) + (recurrent ? x->recurrent : 0)) / (double)SIM_SECOND;
        if (pass == FCP_FORWARD && recurrent) w.bytes += (double)(x->recurrent_bytes[0] + x->recurrent_bytes[1]);
    }
    arena_free(&memory);
    return w;
}

/* Which rank holds a row of the packed batch in the contiguous layout: part i of R begins with row floor(i T / R). */
static uint32_t owner(uint64_t row, uint64_t tokens, uint32_t ranks) {
    return (uint32_t)((((unsigned __int128)row + 1) * ranks - 1) / tokens);
}

/* Moving every token's row from where the plan has it to the contiguous layout, once. */
static way reshuffle(const fcp_plan *plan) {
    const uint32_t ranks = plan->problem->ranks;
    const uint64_t tokens = plan->problem->tokens;
    way w = {.ran = false};
    sim_profile profile;
    fcp_error err;
    uint64_t *pairs = calloc((size_t)ranks * ranks, sizeof *pairs), most = 0;
    if (!pairs || sim_profile_of(plan->cluster, &profile, &err)) return w;
    const sim_model m = links_of(plan, &profile);
    for (uint32_t r = 0; r < ranks; r++) {
        const uint32_t count = fcp_stretches_of(plan, r, NULL);
        fcp_stretch *own = calloc(count + (size_t)1, sizeof *own);
        fcp_stretches_of(plan, r, own);
        for (uint32_t i = 0; own && i < count; i++)
            for (uint64_t at = own[i].start; at < own[i].start + own[i].length;) {
                const uint32_t to = owner(at, tokens, ranks);
                uint64_t end = (uint64_t)((unsigned __int128)tokens * (to + 1) / ranks);
                if (end > own[i].start + own[i].length) end = own[i].start + own[i].length;
                pairs[(size_t)r * ranks + to] += (end - at) * HIDDEN * 2;
                at = end;
            }
        free(own);
    }
    for (uint32_t r = 0; r < ranks; r++) {
        uint64_t port[FCP_FABRICS][2] = {{0}};
        for (uint32_t s = 0; s < ranks; s++) {
            const fcp_fabric f = r / plan->problem->gpus == s / plan->problem->gpus ? FCP_LOCAL : FCP_NET;
            const uint64_t out = pairs[(size_t)r * ranks + s], in = pairs[(size_t)s * ranks + r];
            if (r == s) continue;
            if (out) port[f][0] += sim_recurrent_message(&m, f, out);
            if (in) port[f][1] += sim_recurrent_message(&m, f, in);
            w.bytes += (double)out;
        }
        for (int f = 0; f < FCP_FABRICS; f++)
            for (int d = 0; d < 2; d++)
                if (port[f][d] > most) most = port[f][d];
    }
    free(pairs);
    w.seconds = (double)most / (double)SIM_SECOND;
    w.ran = true;
    return w;
}

/* --- rows
 * ------------------------------------------------------------------------------------------------------------- */

static void source_of(char out[1024], uint32_t ranks, const char *recurrent, const char *plan) {
    snprintf(out, 1024,
             "model { heads = 32; kv_heads = 8; head_dim = 128; dtype = bf16 }\n"
             "cluster { nodes = %u; gpus = %u; gpu = h200 }\n"
             "plan { layers = [causal%s]; passes = forward, backward; %s }\n",
             ranks / BENCH_GPUS, BENCH_GPUS, recurrent, plan);
}

static const char layers[] = ", scan(heads = 32, head_dim = 128, value_dim = 128, decay = matrix) x 3, "
                             "halo(before = 3, channels = 8192) x 3";

static void print_row(const char *list, const char *name, const way *w, const way *best, const char *more) {
    char text[200], note[300];
    snprintf(text, sizeof text, "recurrent, %s: %s", list, name);
    snprintf(note, sizeof note, "%.2f GB beside attention, forward%s", 1e-9 * w->bytes, more);
    if (w->ran)
        bench_row(text, 1e3 * w->seconds, "ms", best ? "the fastest" : "", !best || w->seconds <= best->seconds, note);
    else bench_row(text, 0, "ms", "", false, "there is no plan");
}

static void one_list(const char *list, uint32_t ranks, const char *divided_by) {
    char name[64], text[1024], more[120], label[120];
    bool drawn;
    size_t count;
    snprintf(name, sizeof name, "%s-%ux32k", list, ranks);
    snprintf(label, sizeof label, "%s-%u, %s", list, ranks, divided_by);
    uint64_t *lengths = workload_lengths(name, (uint64_t)ranks * BENCH_TOKENS, &count, &drawn);
    if (!lengths) return;
    const compile_watch watch = {.strategy = &held};
    char own[200];
    snprintf(own, sizeof own, "strategy = %s", divided_by);
    source_of(text, ranks, layers, own);
    fcp_plan *one = bench_plan_of(text, lengths, count);
    source_of(text, ranks, layers, "strategy = cad; layout = contiguous; block = 2K");
    fcp_plan *contiguous = bench_plan_watched(text, lengths, count, &watch);
    const way a = predict(one, true, true), attention = predict(one, true, false),
              scans = predict(contiguous, false, true), c = predict(contiguous, true, true);
    way move = {.ran = false};
    if (one) move = reshuffle(one);
    const way b = {.ran = move.ran && scans.ran,
                   .seconds = attention.seconds + scans.seconds + 4 * move.seconds, /* there and back, in both passes */
                   .bytes = 2 * move.bytes + scans.bytes};
    const way *least = b.seconds < c.seconds ? &b : &c;
    snprintf(more, sizeof more, ": %.3f of what reshuffling moves%s", b.bytes > 0 ? a.bytes / b.bytes : 0,
             drawn ? "; a drawn batch" : "");
    print_row(label, "one placement", &a, least, more);
    print_row(label, "reshuffled", &b, NULL, "");
    print_row(label, "contiguous", &c, NULL, "");
    fcp_plan_free(one);
    fcp_plan_free(contiguous);
    free(lengths);
}

/* One scan by each shape, and in parts of the heads: what it takes forward, and what it moves. */
static void shapes(const char *list, uint32_t ranks) {
    static const char *const names[] =
        {[FCP_SCAN_CHAIN] = "chain", [FCP_SCAN_TREE] = "tree", [FCP_SCAN_NODES] = "nodes"};
    const fcp_recurrent scan =
        {.kind = FCP_SCAN, .times = 1, .heads = 32, .rows = 128, .columns = 128, .decay = FCP_DECAY_MATRIX};
    fcp_recurrent all[16];
    char text[1024], name[200], note[200];
    uint32_t count = 0;
    bool drawn;
    size_t sequences;
    sim_profile profile;
    snprintf(name, sizeof name, "recurrent, %s-%u, fcp; block = 2K, one scan", list, ranks);
    if (!bench_may_want(name)) return;
    all[count++] = scan;
    for (uint32_t shape = FCP_SCAN_CHAIN; shape <= FCP_SCAN_NODES; shape++)
        for (uint32_t parts = 1; parts <= 16; parts *= 4) {
            all[count] = scan;
            all[count].shape = shape;
            all[count++].parts = parts;
        }
    snprintf(name, sizeof name, "%s-%ux32k", list, ranks);
    uint64_t *lengths = workload_lengths(name, (uint64_t)ranks * BENCH_TOKENS, &sequences, &drawn);
    source_of(text, ranks, "", "strategy = fcp; block = 2K");
    fcp_plan *plan = lengths ? bench_plan_of(text, lengths, sequences) : NULL;
    if (plan && !sim_profile_of(plan->cluster, &profile, NULL)) {
        const sim_model m = links_of(plan, &profile);
        recurrent_give(plan, all, count);
        for (uint32_t i = 0; i < count; i++) {
            arena scratch = {0};
            sim_recurrent one;
            if (sim_recurrent_walk(plan, i, &m, &scratch, &one)) break;
            if (i) snprintf(text, sizeof text, "%s, parts %u", names[all[i].shape], all[i].parts);
            else snprintf(text, sizeof text, "chosen");
            snprintf(name, sizeof name, "recurrent, %s-%u, fcp; block = 2K, one scan: %.100s", list, ranks, text);
            snprintf(note, sizeof note, "%.2f GB, %llu messages, %u rounds (bound %u)",
                     1e-9 * (double)(one.bytes[FCP_NET] + one.bytes[FCP_LOCAL]), (unsigned long long)one.messages,
                     plan->recurrent[i].rounds[FCP_FORWARD], plan->recurrent[i].bound[FCP_FORWARD]);
            bench_row(name, 1e-6 * (double)one.makespan, "us", "", true, note);
            arena_free(&scratch);
        }
    }
    fcp_plan_free(plan);
    free(lengths);
}

/* Planning with layers that recur over planning without: instructions of a call from the command line. */
static void planning_row(const char *list, uint32_t ranks, const char *divided_by) {
    char fcpc[PATH_MAX], program[512], lengths[512], text[1024], name[200], own[200], note[120];
    double count[2] = {0, 0};
    bool drawn;
    size_t sequences;
    snprintf(name, sizeof name, "recurrent, %s-%u, %s: planning, instructions", list, ranks, divided_by);
    if (!bench_may_want(name) || !bench_find_fcpc(fcpc)) return;
    snprintf(own, sizeof own, "%s-%ux32k", list, ranks);
    uint64_t *batch = workload_lengths(own, (uint64_t)ranks * BENCH_TOKENS, &sequences, &drawn);
    bench_temporary(program, "fcp");
    bench_temporary(lengths, "lengths");
    FILE *l = fopen(lengths, "w");
    for (size_t i = 0; batch && l && i < sequences; i++) fprintf(l, "%llu\n", (unsigned long long)batch[i]);
    if (l) fclose(l);
    snprintf(own, sizeof own, "strategy = %s", divided_by);
    for (int with = 0; with < 2; with++) {
        FILE *f = fopen(program, "w");
        source_of(text, ranks, with ? layers : "", own);
        if (f) fputs(text, f);
        if (f) fclose(f);
        char *const argv[] = {fcpc, "-q", "--lengths", lengths, program, NULL};
        count[with] = bench_instructions(argv);
    }
    unlink(program);
    unlink(lengths);
    free(batch);
    snprintf(note, sizeof note, "%.1f M over %.1f M without such layers", 1e-6 * count[1], 1e-6 * count[0]);
    const double ratio = count[0] > 0 ? count[1] / count[0] : 0;
    bench_row(name, ratio, "x", "<= 1.20 x", ratio > 0 && ratio <= 1.2, note);
}

void bench_recurrent(void) {
    static const char *const lists[] = {"wlbllm", "prolong", "wikipedia"};
    static const char *const strategies[] = {"auto", "fcp; block = 4K"};
    if (!bench_may_want("recurrent, ")) return;
    for (uint32_t ranks = 64; ranks <= 256; ranks *= 4)
        for (size_t s = 0; s < sizeof strategies / sizeof *strategies; s++)
            for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) one_list(lists[i], ranks, strategies[s]);
    shapes("prolong", 64);
    for (uint32_t ranks = 64; ranks <= 256; ranks *= 4)
        for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
            planning_row(lists[i], ranks, "fcp; block = 4K");
            planning_row(lists[i], ranks, "fcp; block = 2K");
            planning_row(lists[i], ranks, "dcp; block = 4K");
        }
}
