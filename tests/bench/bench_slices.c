/* bench_slices.c: measures what slices cost: reading a file of them, making their union, and classifying and counting
 * what they allow over a million tokens. Brute force counts the first queries too, and both must count the same.
 *
 * Documents are of random lengths around the mean, cut into chunks; seeds are fixed. Brute force marks the keys of each
 * slice row by row. */
#include "compiler/cells/cells.h"
#include "compiler/sema/program.h"
#include "compiler/expr/slice_bands.h"
#include "tests/bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RUNS = 7, TOKENS = 1 << 20, MIB = 1 << 20, BRUTE_ROWS = 2048 };

typedef struct workload_kind {
    const char *name;
    int64_t chunk;      /* chunks of a document; 0: it is one slice */
    slice_kind kind;
    bool scattered;     /* squares anywhere, not documents */
} workload_kind;

static const workload_kind KINDS[] = {
    {"block-causal documents", 1, SLICE_FULL, false},
    {"causal documents", 0, SLICE_CAUSAL, false},
    {"full documents", 0, SLICE_FULL, false},
    {"banded documents", 0, SLICE_BOTH, false},
    {"squares anywhere, all kinds", 0, SLICE_FULL, true},
};

static uint64_t next(uint64_t *state) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

/* About `count` slices of TOKENS tokens; returns how many. */
static size_t draw(const workload_kind *w, size_t count, slice *out) {
    uint64_t state = count * 31 + (uint64_t)w->kind;
    size_t made = 0;
    int64_t mean = TOKENS / (int64_t)count, at = 0;
    if (w->scattered) {
        for (; made < count; made++) {
            int64_t side = 1 + (int64_t)(next(&state) % (uint64_t)(2 * mean));
            int64_t q = (int64_t)next(&state) % (TOKENS - side), k = (int64_t)next(&state) % (TOKENS - side);
            out[made] = (slice){q, q + side, k, k + side, (uint32_t)next(&state) % SLICE_KINDS, 1};
        }
        return made;
    }
    while (at < TOKENS && made < count) {
        int64_t length = 1 + (int64_t)(next(&state) % (uint64_t)(2 * mean)), chunks = 1;
        if (w->chunk) chunks = 1 + (int64_t)(next(&state) % 15), length *= chunks;
        if (at + length > TOKENS) length = TOKENS - at;
        int64_t back = w->kind == SLICE_BOTH && at > 64 ? 64 : 0; /* a band as wide */
        for (int64_t i = 0; i < chunks && made < count; i++) {
            int64_t q0 = at + length * i / chunks, q1 = at + length * (i + 1) / chunks;
            if (q0 < q1) out[made++] = (slice){q0, q1, at - back, q1, w->kind, 1};
        }
        at += length;
    }
    return made;
}

/* Pairs of the first rows. */
static uint64_t brute_force(const slice *s, size_t count, uint8_t *row) {
    uint64_t pairs = 0;
    for (int64_t q = 0; q < BRUTE_ROWS; q++) {
        memset(row, 0, TOKENS);
        for (size_t i = 0; i < count; i++)
            for (int64_t k = s[i].k0; q >= s[i].q0 && q < s[i].q1 && k < s[i].k1; k++)
                row[k] |= slice_allows(&s[i], q, k);
        for (int64_t k = 0; k < TOKENS; k++) pairs += row[k];
    }
    return pairs;
}

/* Text of the slices in a file, read as a program reads it. */
static double read_seconds(const slice *s, size_t count) {
    char path[] = "/tmp/fcpc-bench.XXXXXX", source[256];
    int file = mkstemp(path);
    FILE *f = file >= 0 ? fdopen(file, "w") : NULL;
    double times[RUNS] = {0};
    for (size_t i = 0; f && i < count; i++)
        fprintf(f, "%lld %lld %lld %lld %s\n", (long long)s[i].q0, (long long)s[i].q1, (long long)s[i].k0,
                (long long)s[i].k1, bands_kinds[s[i].kind]);
    if (f) fclose(f);
    int size =
        snprintf(source, sizeof source, "batch { lengths = [%d] }\nplan { mask = slices(file(\"%s\")) }", TOKENS, path);
    bool ok = f != NULL;
    for (int i = 0; i < RUNS && ok; i++) {
        fcpc_diagnostics *d = fcpc_diagnostics_new();
        fcpc_program *p = NULL;
        double start = bench_now();
        ok = d && fcpc_parse_text("bench.fcp", source, (size_t)size, NULL, d, &p) == FCP_OK;
        times[i] = bench_now() - start;
        fcpc_program_free(p);
        fcpc_diagnostics_free(d);
    }
    unlink(path);
    return ok ? bench_median(times, RUNS) : -1;
}

static uint64_t pairs_of_rows(cells *c, const mc_env *env) {
    const uint64_t q_cuts[] = {0, BRUTE_ROWS}, k_cuts[] = {0, TOKENS};
    const cell_entry *entry;
    const fcp_run *runs;
    size_t count;
    uint32_t shapes;
    if (cells_grid(c, env, q_cuts, 1, k_cuts, 1, &entry, &count, NULL) != FCP_OK || !count) return 0;
    return cells_shapes(c, &shapes, &runs, &shapes)[entry->shape].pairs;
}

static void bench_kind(const workload_kind *w, size_t wanted) {
    static const mc_node nodes[3] = {{MC_Q, MC_NONE, MC_NONE, MC_NONE, MC_NONE, 0, 0},
                                     {MC_K, MC_NONE, MC_NONE, MC_NONE, MC_NONE, 0, 0},
                                     {MC_BANDS, 0, 1, MC_NONE, MC_NONE, 0, 0}};
    slice *slices = malloc(wanted * sizeof *slices);
    uint8_t *row = malloc(TOKENS);
    double count_s[RUNS], union_s[RUNS], grid_s[RUNS];
    size_t made = slices ? draw(w, wanted, slices) : 0, tiles = 0;
    uint64_t *cuts = malloc((TOKENS / 4096 + 1) * sizeof *cuts), bytes = 0, pairs = 0;
    bool ok = slices && row && cuts;
    mc_bands bands = {0};
    cells_counts counts = {0};
    cells_stats stats = {0};
    slices_overlap overlap = {0};
    for (int i = 0; i <= TOKENS / 4096 && ok; i++) cuts[i] = (uint64_t)i * 4096;
    for (int i = 0; i < RUNS && ok; i++) {
        arena memory = {0};
        double start = bench_now();
        ok = bands_of_slices(slices, made, NULL, &memory, &bands, &overlap) == FCP_OK;
        union_s[i] = bench_now() - start;
        const mc_env env = {.n = TOKENS, .queries = TOKENS, .bands = &bands};
        start = bench_now();
        cells *c = cells_new((mc_code){nodes, 3}, 1);
        ok = ok && c && cells_count(c, &env, &counts, NULL) == FCP_OK;
        count_s[i] = bench_now() - start;
        if (c) cells_get_stats(c, &stats);
        bytes = stats.bytes + memory.total;
        start = bench_now();
        const cell_entry *entries;
        ok = ok && cells_grid(c, &env, cuts, TOKENS / 4096, cuts, TOKENS / 4096, &entries, &tiles, NULL) == FCP_OK;
        grid_s[i] = bench_now() - start;
        if (ok && i == 0) pairs = pairs_of_rows(c, &env);
        cells_free(c);
        arena_free(&memory);
    }
    double start = bench_now();
    bool same = ok && brute_force(slices, made, row) == pairs;
    double brute = bench_now() - start, ms = ok ? (bench_median(count_s, RUNS) + bench_median(union_s, RUNS)) * 1e3 : 0;
    char name[96], note[320];
    snprintf(name, sizeof name, "count 1M, %zu slices: %s", made, w->name);
    snprintf(note, sizeof note,
             "%.1f MiB (<= 64); union %.2f ms, %u stretches, %u bands, %llu overlaps; %llu full, %llu partial cells; "
             "reading %.2f "
             "ms; 4096 blocks %.2f ms, %zu tiles;%s brute force %.0f ms for %d queries",
             (double)bytes / MIB, ok ? bench_median(union_s, RUNS) * 1e3 : 0, bands.row_count, bands.band_count,
             (unsigned long long)overlap.pairs, (unsigned long long)counts.full, (unsigned long long)counts.partial,
             read_seconds(slices, made) * 1e3, ok ? bench_median(grid_s, RUNS) * 1e3 : 0, tiles,
             same ? "" : " NOT THE SAME AS", brute * 1e3, BRUTE_ROWS);
    bool goal = !w->scattered || wanted < 10000; /* which lie alone: most of a million tokens is between them */
    bench_row(name, ms, "ms", goal ? "<= 50 ms" : "", ok && same && ms <= 50 && bytes <= 64 * (uint64_t)MIB, note);
    free(slices);
    free(row);
    free(cuts);
}

void bench_slices(void) {
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++) {
        bench_kind(&KINDS[i], 1000);
        bench_kind(&KINDS[i], 10000);
    }
}
