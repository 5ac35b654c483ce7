/* bench_colour.c: measures edge colouring: of a million transfers, in many small calls, and how well units of similar
 * size share rounds. */
#include <stdio.h>
#include <stdlib.h>

#include "compiler/schedule/colour.h"
#include "tests/bench/bench.h"

static uint32_t draw(uint64_t *state, uint32_t bound) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)((*state >> 32) * bound >> 32);
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Largest degree; and 0 unless the colouring is proper with that many colours. */
static uint32_t proper(uint32_t vertices, uint32_t edges, const uint32_t *src, const uint32_t *dst,
                       const uint32_t *colour, uint32_t colours) {
    uint32_t *degree = calloc(2 * (size_t)vertices, sizeof *degree), most = 0;
    uint8_t *seen = calloc((size_t)vertices * colours, 2);
    if (!degree || !seen) goto out;
    for (uint32_t e = 0; e < edges; e++) {
        uint32_t a = ++degree[src[e]], b = ++degree[vertices + dst[e]];
        most = a > most ? a : most;
        most = b > most ? b : most;
    }
    for (uint32_t e = 0; e < edges && most; e++) {
        if (colour[e] >= colours || seen[(size_t)src[e] * colours + colour[e]]++ ||
            seen[((size_t)vertices + dst[e]) * colours + colour[e]]++)
            most = 0;
    }
    if (most != colours) most = 0;
out:
    free(degree);
    free(seen);
    return most;
}

static void million(void) {
    enum { RANKS = 1024, EDGES = 1000000, RUNS = 5 };
    uint32_t *src = malloc(EDGES * sizeof *src), *dst = malloc(EDGES * sizeof *dst),
             *colour = malloc(EDGES * sizeof *colour);
    double seconds[RUNS];
    uint32_t colours = 0;
    uint64_t state = 1;
    size_t bytes = 0;
    fcp_code code = src && dst && colour ? FCP_OK : FCP_E_NO_MEMORY;
    for (uint32_t e = 0; e < EDGES && !code; e++) {
        src[e] = draw(&state, RANKS);
        dst[e] = draw(&state, RANKS);
    }
    for (int i = 0; i < RUNS && !code; i++) {
        arena a = {0};
        double start = bench_now();
        code = colour_edges(&a, NULL, RANKS, EDGES, src, dst, NULL, colour, &colours);
        seconds[i] = bench_now() - start;
        bytes = a.total;
        arena_free(&a);
    }
    if (!code) {
        char note[120];
        uint32_t delta = proper(RANKS, EDGES, src, dst, colour, colours);
        qsort(seconds, RUNS, sizeof *seconds, compare);
        snprintf(note, sizeof note, "%u rounds, Delta %u, proper: %s, %zu MB", colours, delta, delta ? "yes" : "NO",
                 bytes / 1000000);
        bench_row("colour 1,000,000 transfers, 1,024 ranks", seconds[RUNS / 2] * 1e3, "ms", "<= 300 ms, exactly Delta",
                  delta && seconds[RUNS / 2] <= 0.3, note);
    }
    free(src);
    free(dst);
    free(colour);
}

static void small_calls(void) {
    enum { CALLS = 1000 };
    uint32_t src[10], dst[10], colour[10], colours;
    uint64_t state = 2;
    arena a = {0};
    double start = bench_now();
    for (int i = 0; i < CALLS; i++) {
        for (int e = 0; e < 10; e++) src[e] = draw(&state, 16384), dst[e] = draw(&state, 16384);
        if (colour_edges(&a, NULL, 16384, 10, src, dst, NULL, colour, &colours)) break;
    }
    double each = (bench_now() - start) / CALLS;
    arena_free(&a);
    bench_row("colour 10 transfers among 16,384 ranks", each * 1e6, "us", "", true, "mean of 1,000 calls");
}

/* Most units full, `small` percent of a random size; kind 1: few senders do most of the sending. */
static void sizes(uint32_t ranks, uint32_t edges, uint32_t small, int kind) {
    uint32_t *src = malloc(edges * sizeof *src), *dst = malloc(edges * sizeof *dst),
             *size = malloc(edges * sizeof *size);
    uint32_t *colour = malloc(edges * sizeof *colour), *largest = NULL, colours = 0;
    uint64_t *total = calloc(2 * (size_t)ranks, sizeof *total), heaviest = 0, sum = 0, state = 3;
    arena a = {0};
    if (!src || !dst || !size || !colour || !total) goto out;
    for (uint32_t e = 0; e < edges; e++) {
        src[e] = draw(&state, ranks);
        if (kind == 1) src[e] = (uint32_t)((uint64_t)src[e] * draw(&state, ranks) / ranks);
        dst[e] = draw(&state, ranks);
        size[e] = draw(&state, 100) < small ? 1 + draw(&state, 4096) : 4096;
    }
    double start = bench_now();
    if (colour_edges(&a, NULL, ranks, edges, src, dst, size, colour, &colours)) goto out;
    double seconds = bench_now() - start;
    if (!(largest = calloc(colours, sizeof *largest))) goto out;
    for (uint32_t e = 0; e < edges; e++) {
        total[src[e]] += size[e];
        total[ranks + dst[e]] += size[e];
        if (size[e] > largest[colour[e]]) largest[colour[e]] = size[e];
    }
    for (uint32_t v = 0; v < 2 * ranks; v++) heaviest = total[v] > heaviest ? total[v] : heaviest;
    for (uint32_t c = 0; c < colours; c++) sum += largest[c];
    char name[120], note[120];
    double ratio = (double)sum / (double)heaviest;
    snprintf(name, sizeof name, "round maxima / heaviest rank: %u %s units, %u%% small, %u ranks", edges,
             kind ? "skewed" : "random", small, ranks);
    snprintf(note, sizeof note, "%u rounds, all at the largest: %.3f; %.1f ms", colours,
             colours * 4096.0 / (double)heaviest, seconds * 1e3);
    bench_row(name, ratio, "", "<= 1.1", ratio <= 1.1, note);
out:
    arena_free(&a);
    free(src);
    free(dst);
    free(size);
    free(colour);
    free(largest);
    free(total);
}

void bench_colour(void);
void bench_colour(void) {
    million();
    small_calls();
    sizes(256, 20000, 5, 0);
    sizes(256, 20000, 30, 0);
    sizes(1024, 200000, 20, 1);
}
