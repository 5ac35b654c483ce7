/* bench_move.c: work that moves: bytes, balance and time of cad, in place, over a contiguous layout.
 *
 * Causal masks, head_dim 128, bf16, forward, 32,768 tokens a rank, nodes of 8. A goal of bytes has two parts: 1.03 x what
 * the prototype of the design found, and 1.4 x (64 heads, 8 of K and V) or 1.6 x (32 heads) the bound. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/bench/bench.h"
#include "tests/bench/workload.h"
#include "tests/support/cad_cost.h"

enum { GPUS = 8, TOKENS = 32768, RUNS = 15 };

typedef struct figures {
    const char *list;
    uint32_t ranks, heads;
    double found[2]; /* GB, at 1.005 and 1.02 */
    double today;    /* GB of today's fcp with blocks of 2K, and its reshuffle; 0: not compared */
    double today_part;
} figures;

static const figures table[] = {
    {"wlbllm", 64, 64, {24.6, 23.6}, 0, 0},        {"prolong", 64, 64, {56.8, 55.7}, 0, 0},
    {"wikipedia", 64, 64, {17.9, 16.7}, 0, 0},     {"wlbllm", 256, 64, {111.8, 104.9}, 384.2, 0.30},
    {"prolong", 256, 64, {44.1, 41.3}, 318.7, 0.15}, {"wikipedia", 256, 64, {95.7, 92.8}, 357.5, 0.28},
    {"wlbllm", 64, 32, {20.2, 19.3}, 0, 0},        {"prolong", 64, 32, {43.5, 42.3}, 0, 0},
    {"wikipedia", 64, 32, {14.1, 13.3}, 0, 0},     {"wlbllm", 256, 32, {90.2, 85.1}, 0, 0},
    {"prolong", 256, 32, {33.9, 31.5}, 0, 0},      {"wikipedia", 256, 32, {75.0, 71.2}, 0, 0},
};

static cad_price price_of(uint64_t heads, uint64_t kv_heads) {
    const uint64_t d = 128, e = 2;
    return (cad_price){2 * kv_heads * d * e, heads * (2 * d * e + 4), heads * (d * e + (d + 2) * 4)};
}

static void bytes_row(const figures *f, uint64_t *lengths, size_t count, int which) {
    static const uint32_t tolerances[2] = {5000, 20000};
    cad_input in = {.ranks = f->ranks, .gpus = GPUS, .tolerance = tolerances[which], .price = price_of(f->heads, 8)};
    in.pairs = (cad_pairs){.sequences = (uint32_t)count, .weight = 1, .queries = lengths, .keys = lengths, .shard = 128};
    problem_run *held = cad_contiguous(lengths, (uint32_t)count, f->ranks, &in.row_count);
    in.rows = in.keys = held;
    in.key_count = in.row_count;
    cad_shares shares;
    cad_cost_sum c;
    double times[RUNS];
    fcp_code code = FCP_OK;
    arena keep = {0};
    for (int i = 0; i < RUNS && !code; i++) {
        arena a = {0};
        arena_reset(&keep);
        double start = bench_now();
        code = cad_divide(&in, &keep, &a, &shares);
        times[i] = bench_now() - start;
        arena_free(&a);
    }
    arena a = {0};
    uint64_t bound = 0;
    if (!code) code = cad_bound(&in, &a, &bound);
    if (!code) {
        cad_cost_of(&in, &shares, &c);
        char row[128], note[240], goal[48];
        double bytes = (double)(c.kv + c.rows) / 1e9, least = (double)bound / 1e9, most = f->found[which] * 1.03;
        double times_bound = f->heads == 64 ? 1.4 : 1.6, over = (double)c.work_max * f->ranks / (double)c.work;
        if (times_bound * least < most) most = times_bound * least;
        snprintf(row, sizeof row, "move: GB %s-%u, %u:8 at 1.0%02d", f->list, f->ranks, f->heads, which ? 20 : 5);
        snprintf(goal, sizeof goal, "<= %.1f", most);
        snprintf(note, sizeof note, "prototype %.1f; bound %.1f: %.2f x; net %.1f; KV %.1f; balance %.4f; %llu shares",
                 f->found[which], least, bytes / least, (double)c.net / 1e9, (double)c.kv / 1e9, over,
                 (unsigned long long)c.shares);
        bench_row(row, bytes, "GB", goal, bytes <= most, note);
        snprintf(row, sizeof row, "move: place %s-%u, %u:8 at 1.0%02d", f->list, f->ranks, f->heads, which ? 20 : 5);
        double ms = 1e3 * bench_median(times, RUNS), most_ms = 2;
        bench_row(row, ms, "ms", "<= 2 ms", ms <= most_ms, "");
    }
    arena_free(&a);
    arena_free(&keep);
    free(held);
}

void bench_move(void) {
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char name[64];
        size_t count;
        bool drawn;
        snprintf(name, sizeof name, "%s-%ux32k", table[i].list, table[i].ranks);
        uint64_t *lengths = workload_lengths(name, (uint64_t)table[i].ranks * TOKENS, &count, &drawn);
        for (int which = 0; which < 2 && lengths; which++) bytes_row(&table[i], lengths, count, which);
        free(lengths);
    }
}
