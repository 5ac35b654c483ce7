/* bench_forest.c: what it is worth to compute once what rollouts share.
 *
 * Gives: for each set of rollouts the time of one layer of a model of 4 billion parameters (Qwen3-4B's shape) forward
 *     and backward, its linear layers included, predicted on 8 and 64 H100, by three ways to make the batch:
 *       forest     the trees of the rollouts. Stretches of fewer than 512 tokens are not shared (least)
 *       all shared every token that rollouts have in common is there once
 *       packed     each rollout for itself, end to end
 *       padded     each rollout filled up to the longest
 *     the note has tokens, FLOP of attention and bytes that ranks send. Then what cutting costs by the size that a tree
 *     may have, and what it takes to make a forest.
 * Cost: seconds; minutes where valgrind must count instructions.
 *
 * The rollouts are drawn from a fixed seed. Their shapes:
 *     math       a prompt of 100 to 300 tokens has 16 answers of 500 to 8,000 (made up)
 *     long       4 answers to a prompt, which is three quarters of contexts of 4,096 or 8,192 tokens. Of verl, pull
 *                request 4368: Qwen3-4B, 4 H800, 4 rollouts to a prompt, contexts of 4K and 8K. There the update of the
 *                actor becomes 1.26 and 1.70 times as fast by sharing prompts. The prompt's part is our assumption
 *     agent      a prompt of 4,096 to 12,288 tokens, then turns of 512 to 2,048 that branch 4, 2 and 2 ways (made up)
 *     deep       a prompt of 2,048, then 12 turns of 200 to 1,200. Each branches in two with 3 chances in 10, as long as
 *                there are fewer than 32 rollouts (made up)
 */
#include "compiler/fcpc.h"
#include "compiler/front/front.h"
#include "compiler/simulate/simulate.h"
#include "runtime/plan/plan.h"
#include "tests/bench/bench.h"
#include "tests/bench/workload.h"
#include "tests/support/splitmix.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORDS = 150000, MOST = 1 << 14, LEAST = 512, TURNS = 3 };

/* --- rollouts -----------------------------------------------------------------------------------------------------
 */

/* Rollouts, end to end. */
typedef struct drawn {
    int64_t *tokens;
    uint64_t *lengths, used, room, state;
    uint32_t count;
} drawn;

static uint64_t between(drawn *d, uint64_t least, uint64_t most) {
    return least + splitmix(&d->state) % (most - least + 1);
}

/* Makes room for a rollout that goes on with `tokens` new ones, or ends the program. */
static void reserve(drawn *d, uint64_t tokens) {
    if (d->used + tokens > d->room) {
        d->room = 2 * (d->used + tokens);
        d->tokens = realloc(d->tokens, d->room * sizeof *d->tokens);
    }
    if (!d->lengths) d->lengths = malloc(MOST * sizeof *d->lengths);
    if (!d->tokens || !d->lengths || d->count == MOST) abort();
}

/* Adds `new` tokens to those at `path`, of which there are `length`, in a new place; returns it. */
static int64_t *longer(drawn *d, const int64_t *path, uint64_t length, uint64_t new) {
    int64_t *made = malloc((length + new + 1) * sizeof *made);
    if (!made) abort();
    if (length) memcpy(made, path, length * sizeof *made);
    for (uint64_t i = 0; i < new; i++) made[length + i] = (int64_t)(splitmix(&d->state) % WORDS);
    return made;
}

static void keep(drawn *d, const int64_t *path, uint64_t length) {
    reserve(d, length);
    memcpy(d->tokens + d->used, path, length * sizeof *path);
    d->used += length;
    d->lengths[d->count++] = length;
}

/* A shape of rollouts: ways[i] branches at turn i, each with turns of least to most tokens. */
typedef struct shape {
    const char *name;
    uint32_t prompts, turns, ways[TURNS];
    uint64_t prompt_least, prompt_most, least, most;
} shape;
static const shape shapes[] = {
    {"math", 32, 1, {16}, 100, 300, 500, 8000},      {"long-4K", 32, 1, {4}, 3072, 3072, 1024, 1024},
    {"long-8K", 32, 1, {4}, 6144, 6144, 2048, 2048}, {"agent", 8, 3, {4, 2, 2}, 4096, 12288, 512, 2048},
    {"deep", 16, 0, {0}, 2048, 2048, 200, 1200},
};

static void branch(drawn *d, const shape *s, uint32_t turn, const int64_t *path, uint64_t length) {
    if (turn == s->turns) {
        keep(d, path, length);
        return;
    }
    for (uint32_t i = 0; i < s->ways[turn % TURNS]; i++) {
        const uint64_t new = between(d, s->least, s->most);
        int64_t *next = longer(d, path, length, new);
        branch(d, s, turn + 1, next, length + new);
        free(next);
    }
}

/* One tree of `deep`: chains that branch at random, so that leaves are at most 32. */
static void deep(drawn *d, const shape *s, uint32_t turn, uint32_t *leaves, const int64_t *path, uint64_t length) {
    enum { LONG = 12, LEAVES = 32 };
    if (turn == LONG) {
        keep(d, path, length);
        return;
    }
    const bool two = splitmix(&d->state) % 10 < 3 && *leaves < LEAVES;
    *leaves += two;
    for (int i = 0; i <= two; i++) {
        const uint64_t new = between(d, s->least, s->most);
        int64_t *next = longer(d, path, length, new);
        deep(d, s, turn + 1, leaves, next, length + new);
        free(next);
    }
}

static drawn draw(const shape *s) {
    drawn d = {.state = 7};
    for (uint32_t i = 0; i < s->prompts; i++) {
        const uint64_t prompt = between(&d, s->prompt_least, s->prompt_most);
        int64_t *path = longer(&d, NULL, 0, prompt);
        uint32_t leaves = 1;
        if (s->turns) branch(&d, s, 0, path, prompt);
        else deep(&d, s, 0, &leaves, path, prompt);
        free(path);
    }
    return d;
}

static void drawn_free(drawn *d) {
    free(d->tokens);
    free(d->lengths);
}

static fcpc_forest *forest_of(const drawn *d, uint64_t least) {
    fcpc_rollouts r = FCPC_ROLLOUTS_INIT;
    fcpc_forest *f = NULL;
    fcp_error err;
    r.count = d->count;
    r.lengths = d->lengths;
    r.tokens = d->tokens;
    r.least = least;
    if (fcpc_forest_make(&r, &f, &err)) fprintf(stderr, "%s\n", err.message);
    return f;
}

/* --- what a batch takes -------------------------------------------------------------------------------------------
 */

typedef struct taken {
    double seconds, flops, bytes; /* of a layer, both passes */
    uint64_t tokens;
    bool known;
} taken;

static const char source[] = "model { heads = 32; kv_heads = 8; head_dim = 128; dtype = bf16;\n"
                             "        linear = dense(hidden = 2560, ffn = 9728) }\n"
                             "cluster { nodes = %u; gpus = 8; gpu = h100 }\n%s"
                             "plan { mask = m; strategy = fcp; block = 1K; passes = forward, backward }\n";

static taken plan_of(uint32_t ranks, const fcpc_forest_view *v, const uint64_t *lengths, uint32_t count) {
    taken t = {.known = false};
    char program_text[1024];
    const fcpc_field last = {.name = "last", .values = v ? v->last : NULL, .count = v ? v->tokens : 0};
    fcpc_batch batch = FCPC_BATCH_INIT;
    batch.lengths = v ? v->lengths : lengths;
    batch.count = v ? v->trees : count;
    batch.fields = v ? &last : NULL;
    batch.field_count = v != NULL;
    snprintf(program_text, sizeof program_text, source, ranks / BENCH_GPUS,
             v ? "batch { field last = given }\nmask m = causal and q <= last[k]\n" : "mask m = causal\n");
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *program = NULL;
    fcp_plan *plan = NULL;
    sim_profile profile;
    sim_result result;
    arena memory = {0};
    fcp_error err;
    if (!fcpc_parse_text("forest.fcp", program_text, strlen(program_text), NULL, d, &program) &&
        !fcpc_plan_batch(program, &batch, NULL, d, NULL, &plan) && !sim_profile_of(plan->cluster, &profile, &err)) {
        sim_options options = {.seed = 1};
        if (front_linear(plan, options.linear)) fprintf(stderr, "linear layers are not known\n");
        t.known = !simulate(plan, &profile, &options, &memory, &result, &err);
    }
    char *said = t.known ? NULL : fcpc_diagnostics_render(d, false);
    if (said) fprintf(stderr, "%s", said);
    free(said);
    for (int pass = 0; t.known && pass < FCP_PASSES; pass++) {
        const sim_pass *x = &result.pass[pass];
        t.seconds += (double)x->layer / (double)SIM_SECOND;
        t.flops += x->flops;
        t.bytes += (double)x->bytes[FCP_NET] + (double)x->bytes[FCP_LOCAL];
    }
    if (plan) t.tokens = plan->problem->tokens;
    arena_free(&memory);
    fcp_plan_free(plan);
    fcpc_program_free(program);
    fcpc_diagnostics_free(d);
    return t;
}

static void print_way(const shape *s, uint32_t ranks, const char *way, const taken *t, const taken *best) {
    char name[120], note[160];
    snprintf(name, sizeof name, "forest, %s, %u GPUs: %s", s->name, ranks, way);
    snprintf(note, sizeof note, "%llu tokens, %.1f TFLOP of attention, %.2f GB sent", (unsigned long long)t->tokens,
             1e-12 * t->flops, 1e-9 * t->bytes);
    if (t->known)
        bench_row(name, 1e3 * t->seconds, "ms", best ? "the fastest" : "", !best || t->seconds <= best->seconds, note);
    else bench_row(name, 0, "ms", "", false, "there is no plan");
}

static taken of_forest(uint32_t ranks, const drawn *d, uint64_t least) {
    fcpc_forest_view v;
    fcpc_forest *f = forest_of(d, least);
    if (!f) abort();
    fcpc_forest_look(f, &v);
    const taken t = plan_of(ranks, &v, NULL, 0);
    fcpc_forest_free(f);
    return t;
}

static void one_shape(const shape *s, uint32_t ranks) {
    char name[120];
    snprintf(name, sizeof name, "forest, %s, %u GPUs", s->name, ranks);
    if (!bench_may_want(name)) return;
    drawn d = draw(s);
    uint64_t *filled = malloc(d.count * sizeof *filled), most = 0;
    if (!filled) abort();
    for (uint32_t i = 0; i < d.count; i++) most = d.lengths[i] > most ? d.lengths[i] : most;
    for (uint32_t i = 0; i < d.count; i++) filled[i] = most;
    const taken trees = of_forest(ranks, &d, LEAST), all = of_forest(ranks, &d, 1),
                packed = plan_of(ranks, NULL, d.lengths, d.count), padded = plan_of(ranks, NULL, filled, d.count);
    print_way(s, ranks, "forest", &trees, packed.seconds < padded.seconds ? &packed : &padded);
    if (all.tokens != trees.tokens) print_way(s, ranks, "all shared", &all, NULL);
    print_way(s, ranks, "packed", &packed, NULL);
    print_way(s, ranks, "padded", &padded, NULL);
    snprintf(name, sizeof name, "forest, %s, %u GPUs: packed over forest", s->name, ranks);
    bench_row(name, trees.seconds > 0 ? packed.seconds / trees.seconds : 0, "x", "", true, "predicted time of a layer");
    free(filled);
    drawn_free(&d);
}

/* What a tree may have at most, and how many tokens the cut forest has for each one of the whole. */
static void cutting(const shape *s) {
    char name[120], note[160];
    snprintf(name, sizeof name, "forest, %s, cut", s->name);
    if (!bench_may_want(name)) return;
    drawn d = draw(s);
    fcpc_forest *f = forest_of(&d, LEAST), *cut;
    fcpc_forest_view v, c;
    fcp_error err;
    if (!f) abort();
    fcpc_forest_look(f, &v);
    for (uint64_t most = 24 << 10; most <= 96 << 10; most *= 2) {
        if (fcpc_forest_cut(f, most, &cut, &err)) continue;
        fcpc_forest_look(cut, &c);
        snprintf(name, sizeof name, "forest, %s, cut at %lluK tokens", s->name, (unsigned long long)(most >> 10));
        snprintf(note, sizeof note, "%u trees of %u, %llu tokens of %llu; %llu in the rollouts", c.trees, v.trees,
                 (unsigned long long)c.tokens, (unsigned long long)v.tokens, (unsigned long long)v.rollout_tokens);
        bench_row(name, (double)c.tokens / (double)v.tokens, "x", "", true, note);
        fcpc_forest_free(cut);
    }
    fcpc_forest_free(f);
    drawn_free(&d);
}

/* 10,000 rollouts of 2,000 tokens, each 16 of which share their first 600. */
static void making(void) {
    enum { COUNT = 10000, LENGTH = 2000, GROUP = 16, SHARED = 600, RUNS = 5 };
    static const char *const names[] = {"forest, 10,000 rollouts of 2,000 tokens, by content",
                                        "forest, 10,000 rollouts of 2,000 tokens, in groups"};
    if (!bench_may_want("forest, 10,000 rollouts")) return;
    fcpc_rollouts r = FCPC_ROLLOUTS_INIT;
    int64_t *tokens = malloc(sizeof *tokens * COUNT * LENGTH), *groups = malloc(sizeof *groups * COUNT);
    uint64_t *lengths = malloc(sizeof *lengths * COUNT), state = 3;
    if (!tokens || !groups || !lengths) abort();
    for (size_t i = 0; i < COUNT; i++) {
        lengths[i] = LENGTH;
        groups[i] = (int64_t)(i / GROUP);
        for (size_t j = 0; j < LENGTH; j++)
            tokens[i * LENGTH + j] =
                j < SHARED && i % GROUP ? tokens[(i - i % GROUP) * LENGTH + j] : (int64_t)(splitmix(&state) % WORDS);
    }
    r.count = COUNT;
    r.lengths = lengths;
    r.tokens = tokens;
    for (int by = 0; by < 2; by++) {
        double times[RUNS];
        char note[160];
        fcpc_forest_view v = {0};
        r.groups = by ? groups : NULL;
        for (int i = 0; i < RUNS; i++) {
            fcpc_forest *f = NULL;
            fcp_error err;
            const double begin = bench_now();
            if (fcpc_forest_make(&r, &f, &err)) abort();
            times[i] = bench_now() - begin;
            fcpc_forest_look(f, &v);
            fcpc_forest_free(f);
        }
        const double median = bench_median(times, RUNS);
        snprintf(note, sizeof note, "%u trees of %llu tokens", v.trees, (unsigned long long)v.tokens);
        bench_row(names[by], 1e3 * median, "ms", "<= 200 ms", median <= 0.2, note);
    }
    free(tokens);
    free(groups);
    free(lengths);
}

void bench_forest(void) {
    if (!bench_may_want("forest, ")) return;
    for (uint32_t ranks = 8; ranks <= 64; ranks *= 8)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) one_shape(&shapes[i], ranks);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) cutting(&shapes[i]);
    making();
}
