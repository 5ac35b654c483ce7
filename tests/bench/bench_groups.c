/* bench_groups.c: measures how long strategy groups takes to pack sequences into groups and to divide the ranks among
 * these, and how much of its choice stays if the profile that it reads is wrong.
 *
 * Causal masks, 32,768 tokens a rank in the mean and at most 64K, nodes of 8 H200, 64 heads and 8 of K and V, both
 * passes. Cells are counted beforehand, in closed form. The paper reports 20 to 86 ms at 16 to 64 ranks.
 *
 * Noise (the paper's section 6.4.1, Tables 4 and 5): each coefficient is multiplied by 1 + x, x normal with a standard
 * deviation of 5 to 50 % (tests/support/groups_noise.h); three lists, caps of 40K, 64K and 96K tokens a rank, 40 draws
 * each. A row has the part of all groups whose degree stays. A step takes longer by the makespan of the noisy choice,
 * with times that are right, over that of the choice without noise.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/place/groups/groups.h"
#include "tests/bench/bench.h"
#include "tests/bench/workload.h"
#include "tests/support/groups_noise.h"

enum { TOKENS = 32768, MOST = 65536, RUNS = 15 };

/* A sequence's cells under a causal mask. */
static void add_cells(groups_group *g, uint64_t n) {
    uint64_t rows = (n + FCP_CELL - 1) / FCP_CELL;
    g->queries += n;
    g->keys += n;
    g->full += rows * (rows - 1) / 2;
    g->partial += rows;
    g->cells += rows * rows;
}

static const groups_model usual = {
    .pass = {{64 * 11980, 13500000, 4096}, {64 * 35010, 73900000, 12288}}, .gpus = 8,
    .latency = {4000000, 2000000}, .rate = {50000000000, 450000000000},
};

static void row(const char *kind, uint32_t ranks, double goal_ms) {
    char name[64], what[128], goal[32], note[128];
    size_t count;
    bool drawn;
    snprintf(name, sizeof name, "%s-%ux32k", kind, ranks);
    uint64_t *lengths = workload_lengths(name, (uint64_t)ranks * TOKENS, &count, &drawn);
    groups_group *groups = lengths ? malloc(count * sizeof *groups) : NULL;
    uint32_t *of = groups ? malloc(count * sizeof *of) : NULL, made = 0;
    double times[RUNS];
    fcp_code code = of ? FCP_OK : FCP_E_NO_MEMORY;
    for (int i = 0; i < RUNS && !code; i++) {
        arena scratch = {0};
        double start = bench_processor();
        code = groups_pack(lengths, (uint32_t)count, MOST, ranks, &scratch, of, groups, &made);
        for (size_t s = 0; s < count && !code; s++) add_cells(&groups[of[s]], lengths[s]);
        if (!code) code = groups_choose(&usual, groups, made, ranks, &scratch);
        times[i] = bench_processor() - start;
        arena_free(&scratch);
    }
    uint64_t longest = 0;
    for (uint32_t g = 0; g < made && !code; g++) {
        uint64_t time = groups_time(&usual, &groups[g], groups[g].degree);
        if (time > longest) longest = time;
    }
    double took = code ? 1e9 : 1e3 * bench_median(times, RUNS);
    snprintf(what, sizeof what, "groups: pack and divide, %u ranks (%s)", ranks, name);
    snprintf(goal, sizeof goal, "<= %g ms", goal_ms);
    snprintf(note, sizeof note, "processor time; %zu sequences%s, %u groups; the longest takes %.1f ms", count,
             drawn ? " (drawn)" : "", made, 1e-9 * (double)longest);
    bench_row(what, took, "ms", goal, took <= goal_ms, note);
    free(lengths);
    free(groups);
    free(of);
}

/* --- noise -------------------------------------------------------------------------------------------------------- */

/* What a noisy model changes: groups in all, and those whose degree stays; times of a step, summed. */
typedef struct noise_sums {
    uint64_t groups, stay, choices, same;
    double exact, taken;
} noise_sums;

static uint64_t step_time(const groups_model *m, const groups_group *groups, const groups_group *degrees,
                          uint32_t count) {
    uint64_t longest = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t time = groups_time(m, &groups[i], degrees[i].degree);
        if (time > longest) longest = time;
    }
    return longest;
}

/* Which coefficients are drawn. NOISE_FOUR: as if the model used all four figures of a kernel: the cells of each kind,
 * and the rows, have a factor each. */
typedef enum noise_kind { NOISE_ATTENTION, NOISE_LINEAR, NOISE_FOUR, NOISE_KINDS } noise_kind;
enum { DRAWS = 40, NOISE_TOKENS = 3 };
static const uint64_t noise_linear[NOISE_KINDS][FCP_PASSES] = {[NOISE_LINEAR] = {330000, 660000}}; /* picoseconds */

static fcp_code draw_noise(struct fcpc_program *g, const sim_profile *profile, const groups_group *groups,
                           uint32_t count, uint32_t ranks, noise_kind kind, double deviation, uint64_t seed,
                           noise_sums *sums) {
    groups_group *exact = malloc(count * sizeof *exact), *again = malloc(count * sizeof *again);
    groups_model right, m;
    arena scratch = {0};
    for (int pass = 0; pass < FCP_PASSES; pass++) g->linear[pass] = noise_linear[kind][pass];
    fcp_code code = exact && again ? noise_model(g, profile, &seed, 0, &right) : FCP_E_NO_MEMORY;
    if (!code) {
        memcpy(exact, groups, count * sizeof *exact);
        code = groups_choose(&right, exact, count, ranks, &scratch);
    }
    for (int i = 0; i < DRAWS && !code; i++) {
        uint64_t same = 0;
        memcpy(again, groups, count * sizeof *again);
        code = noise_model(g, profile, &seed, deviation, &m);
        if (kind == NOISE_FOUR) {
            const double full = noise_factor(&seed, deviation), partial = noise_factor(&seed, deviation),
                         row = noise_factor(&seed, deviation);
            for (int pass = 0; pass < FCP_PASSES; pass++) m.pass[pass].cell = right.pass[pass].cell;
            for (uint32_t k = 0; k < count; k++) {
                again[k].full = (uint64_t)((double)again[k].full * full);
                again[k].partial = (uint64_t)((double)again[k].partial * partial);
                again[k].queries = (uint64_t)((double)again[k].queries * row);
            }
        }
        if (!code) code = groups_choose(&m, again, count, ranks, &scratch);
        for (uint32_t k = 0; k < count && !code; k++) same += again[k].degree == exact[k].degree;
        sums->groups += count;
        sums->stay += same;
        sums->choices++;
        sums->same += same == count;
        sums->exact += (double)step_time(&right, groups, exact, count);
        sums->taken += (double)step_time(&right, groups, again, count);
        arena_reset(&scratch);
    }
    arena_free(&scratch);
    free(exact);
    free(again);
    return code;
}

static const char *const kinds[] = {"wlbllm", "prolong", "wikipedia"};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* The noise of one level on all lists and caps for so many ranks. */
static fcp_code sum_noise(uint32_t ranks, double deviation, noise_sums sums[NOISE_KINDS]) {
    static const uint32_t caps[NOISE_TOKENS] = {40960, 65536, 98304};
    char source[256], name[64];
    fcpc_program *g = NULL;
    sim_profile profile;
    fcp_error err;
    snprintf(source, sizeof source,
             "model { heads = 64; kv_heads = 8 }; cluster { nodes = %u; gpus = 8; gpu = h200 }\n"
             "plan { mask = causal; strategy = groups }",
             ranks / 8);
    fcp_code code = fcpc_parse_text("noise", source, strlen(source), NULL, NULL, &g);
    if (!code) code = sim_profile_of(&g->cluster, &profile, &err);
    for (unsigned i = 0; i < KINDS * NOISE_TOKENS && !code; i++) {
        size_t count;
        bool drawn;
        snprintf(name, sizeof name, "%s-64x32k", kinds[i % KINDS]);
        uint64_t *list = workload_lengths(name, UINT64_C(64) * TOKENS, &count, &drawn), *lengths = NULL;
        if (list) lengths = workload_sample(list, count, (uint64_t)ranks * TOKENS, 1 + i, &count);
        groups_group *groups = lengths ? malloc(count * sizeof *groups) : NULL;
        uint32_t *of = groups ? malloc(count * sizeof *of) : NULL, made = 0, least = 0;
        arena scratch = {0};
        code = of ? groups_pack(lengths, (uint32_t)count, caps[i / KINDS], ranks, &scratch, of, groups, &made)
                  : FCP_E_NO_MEMORY;
        for (size_t s = 0; s < count && !code; s++) add_cells(&groups[of[s]], lengths[s]);
        for (uint32_t k = 0; k < made; k++) least += groups[k].least;
        for (int kind = 0; kind < NOISE_KINDS && !code && least <= ranks; kind++)
            code = draw_noise(g, &profile, groups, made, ranks, (noise_kind)kind, deviation, 1 + i, &sums[kind]);
        arena_free(&scratch);
        free(list);
        free(lengths);
        free(groups);
        free(of);
    }
    fcpc_program_free(g);
    return code;
}

static double stay(const noise_sums *x) { return 100 * (double)x->stay / (double)x->groups; }

/* A row for each level and number of ranks: attention and linear layers together; in the note, the rest. */
static void noise_rows(uint32_t ranks, const double published[5]) {
    static const int percents[] = {5, 10, 20, 30, 50};
    for (int l = 0; l < 5; l++) {
        char what[128], goal[32], note[192];
        noise_sums sums[NOISE_KINDS] = {{0}};
        snprintf(what, sizeof what, "groups: degrees that stay with noise of %d %%, %u ranks", percents[l], ranks);
        if (!bench_wants(what)) continue;
        const fcp_code code = sum_noise(ranks, percents[l] / 100.0, sums);
        const noise_sums *x = &sums[NOISE_LINEAR], *alone = &sums[NOISE_ATTENTION];
        snprintf(goal, sizeof goal, ">= %g %%", published[l]);
        snprintf(
            note, sizeof note,
            "step +%.2f %%, the whole choice in %.0f %%; attention alone %.1f %%, step +%.2f %%; with four figures "
            "of a kernel %.1f %%",
            100 * (x->taken / x->exact - 1), 100 * (double)x->same / (double)x->choices, stay(alone),
            100 * (alone->taken / alone->exact - 1), stay(&sums[NOISE_FOUR]));
        bench_row(what, code ? 0 : stay(x), "%", goal, !code && stay(x) >= published[l], note);
    }
}

void bench_groups(void) {
    for (unsigned k = 0; k < KINDS; k++) {
        row(kinds[k], 64, 1);
        row(kinds[k], 256, 4);
        row(kinds[k], 1024, 50);
    }
    noise_rows(32, (const double[]){100, 100, 100, 92.7, 91.3});
    noise_rows(64, (const double[]){100, 100, 100, 90.4, 88.8});
}
