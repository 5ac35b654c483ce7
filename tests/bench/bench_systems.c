/* bench_systems.c: compares published speedups with what the simulator predicts of them: how much faster DCP, DistCA,
 * HKUST's groups and MagiAttention were than other schemes on their clusters. Nothing is fitted. Their lists of lengths
 * are not public, and ours are used instead. A published figure therefore counts as a range. A prediction outside of it
 * is not reproduced.
 *
 * DCP (32 A100, attention alone, forward and backward together, over the best static scheme):
 *   assumed  4 nodes of 8 with 400 Gb/s each; 8 query and 2 KV heads; batches of 131,072 tokens; blocks of 512 to 4K,
 *            the best of them; 10 % of imbalance; static: ring, zigzag, and heads inside a node with a ring around
 *
 * DistCA (512 H200, a step, over WLB-LLM):
 *   assumed  64 groups of 8 GPUs that share heads, 128K tokens each, because that is their shortest limit of a document,
 *            and a group holds whole documents; documents of at most 512K; an 8B model, its linear layers at half of the
 *            peak; WLB-LLM: the better of zigzag over all groups and a packing that moves nothing
 *            and whose busiest group has 1.61 of the mean; a single stream: the same plan, nothing overlaps
 *
 * Groups (64 Ascend 910C, a step, over the better of two static schemes):
 *   assumed  4 nodes of 16, 25 GB/s between them and 150 inside for each; 32 query and 8 KV heads; an 8B model, its
 *            linear layers at half of the peak; static: zigzag over all, and heads inside a node with a ring around
 *
 * MagiAttention (documents, 8K tokens a GPU, forward): the order of three schemes at 8 to 64 H100.
 *   assumed  blocks are not split, and every GPU has as many tokens
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/fcpc.h"
#include "compiler/simulate/simulate.h"
#include "runtime/plan/layout.h"
#include "runtime/plan/plan.h"
#include "tests/bench/bench.h"
#include "tests/bench/published.h"
#include "tests/bench/workload.h"

typedef struct setting { /* what does not change from strategy to strategy */
    const char *model, *cluster, *passes;
    const uint64_t *lengths;
    size_t count;
    sim_profile profile;
} setting;

/* Seconds of all passes of a plan under a strategy; `rest`: more of the plan section. 0: it cannot be planned. */
static double time_of(const setting *s, const char *mask, const char *strategy, const char *rest) {
    char source[700];
    snprintf(source, sizeof source,
             "model { %s }\ncluster { %s }\nplan { mask = %s; strategy = %s; %s; passes = %s }\n", s->model,
             s->cluster, mask, strategy, rest, s->passes);
    fcp_plan *plan = bench_plan_of(source, s->lengths, s->count);
    double forward = published_seconds(plan, FCP_FORWARD, &s->profile, NULL, NULL, NULL), backward = 0;
    if (forward > 0 && strchr(s->passes, ','))
        backward = published_seconds(plan, FCP_BACKWARD, &s->profile, NULL, NULL, NULL);
    fcp_plan_free(plan);
    return forward + backward;
}

static double least(double a, double b) { return !a || (b && b < a) ? b : a; }

static void ratio_row(const char *name, double ratio, double from, double to, const char *note) {
    char goal[40], text[200];
    const bool met = ratio >= from && ratio <= to;
    snprintf(goal, sizeof goal, "%.2f to %.2f", from, to);
    snprintf(text, sizeof text, "predicted%s; %s", met ? "" : ", not reproduced", note);
    bench_row(name, ratio, "times", goal, met, text);
}

/* --- DCP ---------------------------------------------------------------------------------------------------------- */

static void published_dcp(void) {
    static const struct { const char *name, *mask; double from, to; } masks[] = {
        {"causal", "causal", 1.19, 2.45},
        {"lambda", "lambda(sink = 64, window = 4096)", 2.15, 3.77},
        {"causal_blockwise", "causal_blockwise(b = 256, w = 2)", 2.15, 3.77},
        {"shared_question", "shared_question(p = 20, answers = 4)", 2.15, 3.77}};
    static const char *const blocks[] = {"512", "1024", "2048", "4096"},
                      *const fixed[] = {"ring", "zigzag", "ulysses(inside = node) + ring"};
    if (!bench_may_want("DCP")) return;
    size_t count = 0;
    bool drawn;
    uint64_t *lengths = workload_lengths("wlbllm-8x32k", 262144, &count, &drawn), tokens = 0;
    if (!lengths) return;
    for (size_t i = 0; i < count; i++) { /* half of the list: 131,072 tokens */
        if (tokens + lengths[i] > 131072) lengths[i] = 131072 - tokens;
        if (!lengths[i]) count = i;
        else tokens += lengths[i];
    }
    const setting s = {"heads = 8; kv_heads = 2; head_dim = 128", "nodes = 4; gpus = 8; gpu = a100; inter = 6.25 GB/s",
                       "forward, backward", lengths, count, published_scaled("a100", 1)};
    for (size_t m = 0; m < sizeof masks / sizeof *masks; m++) {
        double best = 0, over = 0;
        char rest[60], name[80], note[80];
        for (int b = 0; b < 4; b++) {
            snprintf(rest, sizeof rest, "block = %s", blocks[b]);
            best = least(best, time_of(&s, masks[m].mask, "dcp(epsilon_compute = 0.1, divisions = 4)", rest));
        }
        for (int f = 0; f < 3; f++) over = least(over, time_of(&s, masks[m].mask, fixed[f], "block = 2K"));
        snprintf(name, sizeof name, "DCP, 32 GPUs, %s, over the best static scheme", masks[m].name);
        snprintf(note, sizeof note, "dcp %.2f ms, static %.2f", 1e3 * best, 1e3 * over);
        ratio_row(name, best > 0 ? over / best : 0, masks[m].from, masks[m].to, note);
    }
    free(lengths);
}

/* --- DistCA ------------------------------------------------------------------------------------------------------- */

/* Linear layers of an 8B model, 218 M parameters each, forward and backward, for a rank's tokens. */
static double linear_layer(double tokens, double flops) { return tokens * 6 * 218e6 / flops; }

/* The lengths of a list of `pieces` times 32K tokens; the caller frees them. NULL: there is no memory. */
static uint64_t *list_of(const char *list, unsigned pieces, size_t *count) {
    char name[80];
    bool drawn;
    snprintf(name, sizeof name, "%s-%ux32k", list, pieces);
    return workload_lengths(name, (uint64_t)pieces * 32768, count, &drawn);
}

/* Seconds of a layer, forward and backward: its linear layers and its attention. serial: linear layers, moving and
 * attention follow each other. *out_mean: what attention computes at the mean rank. */
static double layer_of(const fcp_plan *plan, const setting *s, const uint64_t linear[FCP_PASSES], bool serial,
                       double *out_mean) {
    const sim_options options = {.linear = {serial ? 0 : linear[0], serial ? 0 : linear[1]},
                                 .without = serial ? SIM_WITHOUT_OVERLAP : 0};
    arena memory = {0};
    sim_result r = {0};
    fcp_error err = {0};
    uint64_t all = 0, most = 0, mean = 0;
    if (!plan || simulate(plan, &s->profile, &options, &memory, &r, &err)) return 0;
    for (uint32_t rank = 0; rank < plan->problem->ranks; rank++)
        if (fcp_side_tokens(plan, FCP_QUERIES, rank) > most) most = fcp_side_tokens(plan, FCP_QUERIES, rank);
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        all += serial ? r.pass[pass].makespan + most * linear[pass] : r.pass[pass].layer;
        mean += r.pass[pass].bound[SIM_BOUND_MEAN];
    }
    arena_free(&memory);
    if (out_mean) *out_mean = (double)mean / (double)SIM_SECOND;
    return (double)all / (double)SIM_SECOND;
}

static fcp_plan *distca_plan(const setting *s, const char *strategy) {
    char source[400];
    snprintf(source, sizeof source,
             "model { %s }\ncluster { %s }\nplan { mask = causal; layout = contiguous; strategy = %s; passes = %s }\n",
             s->model, s->cluster, strategy, s->passes);
    return bench_plan_of(source, s->lengths, s->count);
}

static void published_distca(void) {
    enum { TOKENS = 131072 }; /* of a group */
    static const char *const lists[] = {"wlbllm", "prolong"};
    if (!bench_may_want("DistCA")) return;
    for (int l = 0; l < 2; l++) {
        char name[80], note[160];
        size_t count = 0;
        uint64_t *lengths = list_of(lists[l], 256, &count);
        if (!lengths) return;
        for (size_t i = 0; i < count; i++)
            if (lengths[i] > 524288) lengths[i] = 524288; /* their longest */
        /* a group's 8 GPUs share heads: each has 4 of 32 and one of K and V, and a port of its own */
        const setting s = {"heads = 4; kv_heads = 1; head_dim = 128", "nodes = 64; gpus = 1; gpu = h200",
                           "forward, backward", lengths, count, published_scaled("h200", 1)};
        const double token = linear_layer(1, 8 * 0.5 * 989e12); /* both passes, of which forward is a third */
        const uint64_t linear[FCP_PASSES] = {(uint64_t)(token / 3 * (double)SIM_SECOND),
                                             (uint64_t)(token / 3 * 2 * (double)SIM_SECOND)};
        fcp_plan *stages = distca_plan(&s, "cad(tolerance = 0.1)"),
                 *halves = distca_plan(&s, "cad(tolerance = 0.1, pingpong = true)"),
                 *zigzag = distca_plan(&s, "zigzag");
        double mean = 0;
        const double ours = layer_of(stages, &s, linear, false, &mean), two = layer_of(halves, &s, linear, false, NULL),
                     single = layer_of(stages, &s, linear, true, NULL),
                     even = layer_of(zigzag, &s, linear, false, NULL), packed = 1.61 * mean + token * TOKENS,
                     theirs = least(even, packed), best = least(ours, two);
        fcp_plan_free(stages), fcp_plan_free(halves), fcp_plan_free(zigzag);
        snprintf(name, sizeof name, "DistCA, 512 GPUs, %s, a layer, over WLB-LLM", lists[l]);
        snprintf(note, sizeof note,
                 "cad %.1f ms, with halves %.1f, zigzag %.1f, packed %.1f; of these linear layers %.1f", 1e3 * ours,
                 1e3 * two, 1e3 * even, 1e3 * packed, 1e3 * token * TOKENS);
        ratio_row(name, best > 0 ? theirs / best : 0, 1.05, 1.35, note);
        snprintf(name, sizeof name, "DistCA, 512 GPUs, %s, single stream over ping-pong", lists[l]);
        snprintf(note, sizeof note, "single stream %.1f ms, two halves %.1f", 1e3 * single, 1e3 * two);
        ratio_row(name, two > 0 ? single / two : 0, 1.10, 1.17, note);
        free(lengths);
    }
}

/* --- groups ------------------------------------------------------------------------------------------------------- */

static void published_groups(void) {
    static const char *const lists[] = {"wlbllm", "wikipedia"};
    if (!bench_may_want("Groups of ranks")) return;
    for (int l = 0; l < 2; l++) {
        char name[80], note[120];
        size_t count = 0;
        uint64_t *lengths = list_of(lists[l], 64, &count);
        if (!lengths) return;
        for (size_t i = 0; i < count; i++)
            if (lengths[i] > 131072) lengths[i] = 131072; /* their longest */
        const setting s = {"heads = 32; kv_heads = 8; head_dim = 128",
                           "nodes = 4; gpus = 16; gpu = h200; intra = 150 GB/s; inter = 25 GB/s", "forward, backward",
                           lengths, count, published_scaled("910c", 1)};
        const double ours = time_of(&s, "causal", "groups(tokens = 64K)", "block = 2K; tokens = equal"),
                     zigzag = time_of(&s, "causal", "zigzag", "block = 2K"),
                     heads = time_of(&s, "causal", "ulysses(inside = node) + ring", "block = 2K; layout = zigzag"),
                     linear = linear_layer(32768, 0.5 * 752e12), theirs = least(zigzag, heads);
        snprintf(name, sizeof name, "Groups of ranks, 64 NPUs, %s, a step, over the best static", lists[l]);
        snprintf(note, sizeof note, "groups %.1f ms, zigzag %.1f, heads and ring %.1f, linear layers %.1f", 1e3 * ours,
                 1e3 * zigzag, 1e3 * heads, 1e3 * linear);
        ratio_row(name, ours > 0 ? (linear + theirs) / (linear + ours) : 0, 1.05, 2.24, note);
        free(lengths);
    }
}

/* --- MagiAttention, documents ------------------------------------------------------------------------------------- */

static void published_magi_documents(void) {
    static const struct { unsigned gpus; const char *paper; } at[] = {
        {8, "457, 276, 89"}, {16, "424, 197, 69"}, {32, "313, 184, 47"}, {64, "235, 161, 28"}};
    if (!bench_may_want("MagiAttention")) return;
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        char name[100], cluster[80], note[120];
        size_t count = 0;
        bool drawn;
        uint64_t *all = workload_lengths("wlbllm-64x32k", at[i].gpus * 8192, &count, &drawn), tokens = 0;
        if (!all) return;
        for (size_t k = 0; k < count; k++) { /* as many documents as there is room for */
            if (tokens + all[k] > at[i].gpus * 8192) all[k] = at[i].gpus * 8192 - tokens;
            if (!all[k]) count = k;
            else tokens += all[k];
        }
        snprintf(cluster, sizeof cluster, "nodes = %u; gpus = 8; gpu = h100; inter = 50 GB/s", at[i].gpus / 8);
        const setting s = {"heads = 64; kv_heads = 8; head_dim = 128", cluster, "forward", all, count,
                           published_scaled("h100", 1)};
        const double ours = time_of(&s, "causal", "fcp(split = off)", "block = 2K; tokens = equal"),
                     heads = time_of(&s, "causal", "ulysses", "block = 2K; layout = contiguous"),
                     ring = time_of(&s, "causal", "ring", "block = 2K");
        const bool met = ours > 0 && ours < heads && heads < ring;
        snprintf(name, sizeof name, "MagiAttention, %u GPUs, forward, documents: blocks, Ulysses, ring", at[i].gpus);
        snprintf(note, sizeof note,
                 "their order%s; ring and Ulysses take %.2f and %.2f times as long (TFLOP/s there: %s)",
                 met ? "" : " is not reproduced", ring / ours, heads / ours, at[i].paper);
        bench_row(name, 1e3 * ours, "ms", "their order", met, note);
        free(all);
    }
}

void published_systems(void) {
    published_magi_documents();
    published_dcp();
    published_distca();
    published_groups();
}
