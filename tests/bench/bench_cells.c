/* bench_cells.c: what it costs to classify masks: a million tokens counted, and the piece pairs of whole batches. */
#include "../../compiler/cells.h"
#include "../unit/mask_samples.h"
#include "bench.h"
#include "workload.h"

#include <stdio.h>

enum { RUNS = 7, TOKENS = 1 << 20 };

typedef struct bench_mask {
    enum sample sample;
    int64_t x, y;
    const char *name;
} bench_mask;

static const bench_mask MASKS[] = {
    {SAMPLE_FULL, 0, 0, "full"},
    {SAMPLE_CAUSAL, 0, 0, "causal"},
    {SAMPLE_WINDOW, 4096, 0, "window(4096)"},
    {SAMPLE_WINDOW_BOTH, 4096, 1024, "window_both(4096, 1024)"},
    {SAMPLE_PREFIX, 1000, 0, "prefix(1000)"},
    {SAMPLE_LAMBDA, 64, 4096, "lambda(64, 4096)"},
    {SAMPLE_SHARED_QUESTION, 20, 4, "shared_question(20, 4)"},
    {SAMPLE_CAUSAL_BLOCKWISE, 256, 2, "causal_blockwise(256, 2)"},
    {SAMPLE_BLOCK_CAUSAL, 1000, 0, "block_causal(1000)"},
    {SAMPLE_BLOCK_CAUSAL, 4096, 0, "block_causal(4096)"},
    {SAMPLE_GLOBAL_WINDOW, 64, 4096, "global_window(64, 4096)"},
    {SAMPLE_DILATED, 4096, 4, "dilated(4096, 4)"},
};
enum { MASK_COUNT = sizeof MASKS / sizeof *MASKS };

static double median(double *times, int count) {
    for (int i = 1; i < count; i++)
        for (int j = i; j > 0 && times[j] < times[j - 1]; j--) {
            double t = times[j];
            times[j] = times[j - 1];
            times[j - 1] = t;
        }
    return times[count / 2];
}

static mc_code make(const bench_mask *m, mc_node **nodes) {
    static exprs e;
    e.count = 0;
    return lower_mask(&e, sample_mask(&e, m->sample, m->x, m->y), nodes);
}

static void bench_count(const bench_mask *m) {
    mc_node *nodes;
    mc_code code = make(m, &nodes);
    double times[RUNS];
    cells_counts counts = {0};
    cells_stats stats = {0};
    bool ok = true;
    for (int i = 0; i < RUNS; i++) {
        double start = bench_now();
        cells *c = cells_new(code, 1);
        ok = c && cells_count(c, TOKENS, &counts, NULL) == FCP_OK && ok;
        times[i] = bench_now() - start;
        if (c) cells_get_stats(c, &stats);
        cells_free(c);
    }
    char name[96], note[160];
    double ms = median(times, RUNS) * 1e3;
    snprintf(name, sizeof name, "count 1M tokens, %s", m->name);
    snprintf(note, sizeof note, "%llu full, %llu partial cells; %llu boxes, %.0f KiB", (unsigned long long)counts.full,
             (unsigned long long)counts.partial, (unsigned long long)stats.boxes, (double)stats.bytes / 1024);
    bench_row(name, ms, "ms", "<= 50 ms", ok && ms <= 50, note);
    free(nodes);
}

/* Every sequence of a batch, cut at multiples of `block`. */
static void bench_grids(const bench_mask *m, const char *file, uint64_t tokens, uint64_t block) {
    size_t count, pairs = 0, pieces = 0, room = 2;
    bool drawn, ok = true;
    uint64_t *lengths = workload_lengths(file, tokens, &count, &drawn);
    for (size_t i = 0; lengths && i < count; i++)
        if (lengths[i] / block + 2 > room) room = lengths[i] / block + 2;
    uint64_t *cuts = malloc(room * sizeof *cuts);
    mc_node *nodes;
    mc_code code = make(m, &nodes);
    double times[RUNS];
    cells_stats stats = {0};
    for (int i = 0; i < RUNS && lengths && cuts; i++) {
        double start = bench_now();
        cells *c = cells_new(code, 1);
        pairs = pieces = 0;
        for (size_t s = 0; s < count && c; s++) {
            uint32_t n = 0;
            for (uint64_t at = 0; at < lengths[s]; at += block) cuts[n++] = at;
            cuts[n] = lengths[s];
            const cell_entry *entries;
            size_t made = 0;
            ok = cells_grid(c, lengths[s], cuts, n, cuts, n, &entries, &made, NULL) == FCP_OK && ok;
            pairs += made;
            pieces += n;
        }
        times[i] = bench_now() - start;
        ok = ok && c;
        if (c) cells_get_stats(c, &stats);
        cells_free(c);
    }
    char name[96], note[160];
    double ms = lengths && cuts ? median(times, RUNS) * 1e3 : 0;
    snprintf(name, sizeof name, "classify %s, %s, block %llu", file, m->name, (unsigned long long)block);
    snprintf(note, sizeof note, "%zu pieces, %zu pairs, %.0f ns a pair; %llu boxes, %llu rows, %.0f KiB%s", pieces,
             pairs,
             ms * 1e6 / (double)(pairs ? pairs : 1), (unsigned long long)stats.boxes,
             (unsigned long long)stats.rows, (double)stats.bytes / 1024, drawn ? "; drawn lengths" : "");
    bench_row(name, ms, "ms", "", ok && lengths && cuts, note);
    free(cuts);
    free(lengths);
    free(nodes);
}

void bench_cells(void) {
    static const enum sample batch[] = {SAMPLE_CAUSAL, SAMPLE_LAMBDA, SAMPLE_SHARED_QUESTION, SAMPLE_DILATED};
    for (int i = 0; i < MASK_COUNT; i++) bench_count(&MASKS[i]);
    for (size_t j = 0; j < sizeof batch / sizeof *batch; j++)
        for (int i = 0; i < MASK_COUNT; i++)
            if (MASKS[i].sample == batch[j]) bench_grids(&MASKS[i], "wlbllm-256x32k", 256u << 15, 2048);
}
