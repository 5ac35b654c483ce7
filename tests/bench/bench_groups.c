/* bench_groups.c: measures how long strategy groups takes to pack sequences into groups and to divide the ranks among
 * these.
 *
 * Causal masks, 32,768 tokens a rank in the mean and at most 64K, nodes of 8 H200, 64 heads and 8 of K and V, both
 * passes. Cells are counted beforehand, in closed form. The paper reports 20 to 86 ms at 16 to 64 ranks.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/place/groups/groups.h"
#include "tests/bench/bench.h"
#include "tests/bench/workload.h"

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

void bench_groups(void) {
    static const char *const kinds[] = {"wlbllm", "prolong", "wikipedia"};
    for (unsigned k = 0; k < 3; k++) {
        row(kinds[k], 64, 1);
        row(kinds[k], 256, 4);
        row(kinds[k], 1024, 50);
    }
}
