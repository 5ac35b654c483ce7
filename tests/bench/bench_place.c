/* bench_place.c: measures placement alone: balance on every batch, transfers and rounds against plain LPT, and time.
 *
 * Batches: causal masks, 32,768 tokens a rank, nodes of 8. Transfers are counted in tokens of K and V.
 *
 * Two lower bounds of the transfers are printed. Both are sums over KV blocks. If k ranks read block j, it is sent to k
 * - 1 of them at least. So each bound looks for the least k at a balance of 1.01, where a rank may have this much work:
 *
 *     limit = 1.01 x max(mean work, work of the heaviest block)
 *
 * floor: k = ceil(W / limit), where W is the work of the blocks that read j. Example: W = 3.2 limits need 4 ranks, and
 * so 3 transfers. This bound ignores that blocks are whole, and that a rank's tokens are capped.
 *
 * "no placement is below": printed where a goal is missed. It respects both. For k ranks that read j:
 * 1. The R - k other ranks hold at most their caps of tokens. The k ranks must hold all tokens beyond that.
 * 2. If the blocks that read j have fewer tokens than these, other blocks fill the rest; at least they have the work of
 *    the lightest ones.
 * 3. If W and that work exceed k x limit, k is too small.
 * Two blocks with more than half the limit are never on one rank, so k is at least the number of such blocks that read
 * j.
 */
#include <stdio.h>
#include <stdlib.h>

#include "compiler/place/fcp/place_fcp.h"
#include "tests/bench/bench.h"
#include "tests/bench/place_batch.h"
#include "tests/support/place_cost.h"
#include "tests/bench/workload.h"

enum { GPUS = 8, TOKENS = 32768, RUNS = 9 };

static bool load(place_batch *out, const char *name, uint32_t ranks, uint32_t copies, uint32_t block) {
    size_t count;
    bool drawn;
    uint64_t *one = workload_lengths(name, (uint64_t)ranks * TOKENS, &count, &drawn);
    uint64_t *all = one ? malloc(count * copies * sizeof *all) : NULL;
    for (uint32_t i = 0; all && i < copies; i++) memcpy(all + i * count, one, count * sizeof *all);
    bool ok = all && place_batch_causal(out, all, (uint32_t)(count * copies), ranks * copies, GPUS, block);
    free(one);
    free(all);
    return ok;
}

static double base_of(const place_input *in, const place_cost *c) { /* max(mean, heaviest) */
    double mean = (double)c->work_total / in->ranks;
    return mean > (double)c->work_heaviest ? mean : (double)c->work_heaviest;
}

/* --- rounds: per fabric, once per node ---------------------------------------------------------------------------- */

static uint64_t rounds(const place_input *in, const uint32_t *home) {
    uint32_t ranks = in->ranks, n = in->blocks, nodes = (ranks + GPUS - 1) / GPUS;
    uint32_t *start = calloc(n + (size_t)2, sizeof *start);
    uint32_t *reader = malloc((in->reads_start[n] + (size_t)1) * sizeof *reader);
    uint64_t *degree = calloc(4 * (size_t)ranks, sizeof *degree), *received = calloc(ranks, sizeof *received), most = 0;
    uint32_t *seen = calloc(ranks, sizeof *seen);
    if (start && reader && degree && received && seen) {
        for (uint32_t e = 0; e < in->reads_start[n]; e++) start[in->reads[e] + 1]++;
        for (uint32_t j = 0; j < n; j++) start[j + 1] += start[j];
        for (uint32_t b = n; b-- > 0;)
            for (uint32_t e = in->reads_start[b]; e < in->reads_start[b + 1]; e++)
                reader[--start[in->reads[e] + 1]] = home[b];
        for (uint32_t j = 0; j < n; j++) { /* now the readers of j are reader[start[j + 1] .. start[j + 2]) */
            uint32_t end = j + 1 < n ? start[j + 2] : in->reads_start[n];
            for (uint32_t i = start[j + 1]; i < end; i++) seen[reader[i]] = j + 1;
            for (uint32_t v = 0; v < nodes; v++) {
                uint32_t best = FCP_NONE;
                for (uint32_t r = v * GPUS; r < (v + 1) * GPUS && r < ranks; r++) {
                    if (seen[r] != j + 1 || r == home[j]) continue;
                    if (v == home[j] / GPUS) degree[home[j]]++, degree[ranks + r]++;
                    else if (best == FCP_NONE || received[r] < received[best]) best = r;
                }
                if (best == FCP_NONE) continue;
                received[best] += in->tokens[j];
                degree[2 * ranks + home[j]]++;
                degree[3 * ranks + best]++;
            }
        }
        for (uint32_t i = 0; i < 4 * ranks; i++)
            if (degree[i] > most) most = degree[i];
    }
    free(start), free(reader), free(degree), free(received), free(seen);
    return most;
}

/* --- floors, in tokens -------------------------------------------------------------------------------------------- */

static double floor_of(const place_input *in, double limit) {
    double *work = calloc(in->blocks, sizeof *work), sum = 0;
    for (uint32_t b = 0; work && b < in->blocks; b++)
        for (uint32_t e = in->reads_start[b]; e < in->reads_start[b + 1]; e++)
            work[in->reads[e]] += (double)in->work[b];
    for (uint32_t j = 0; work && j < in->blocks; j++) {
        uint64_t ranks = (uint64_t)(work[j] / limit);
        if ((double)ranks * limit < work[j]) ranks++;
        if (ranks > 1) sum += (double)(ranks - 1) * in->tokens[j];
    }
    free(work);
    return sum;
}

typedef struct dense {
    double density;
    uint32_t block;
} dense;

static int by_density(const void *a, const void *b) {
    const dense *x = a, *y = b;
    if (x->density != y->density) return x->density < y->density ? -1 : 1;
    return x->block < y->block ? -1 : x->block > y->block;
}

static double bound_of(const place_input *in, double limit) {
    uint32_t n = in->blocks;
    dense *light = malloc(n * sizeof *light);
    uint8_t *reads = calloc(n, 1);
    double sum = 0, all = 0, cap = (double)place_token_cap(in);
    for (uint32_t b = 0; light && b < n; b++) {
        light[b] = (dense){(double)in->work[b] / in->tokens[b], b};
        all += in->tokens[b];
    }
    if (light) qsort(light, n, sizeof *light, by_density);
    for (uint32_t j = 0; light && reads && j < n; j++) {
        double work = 0, tokens = 0;
        uint32_t big = 0, k;
        for (uint32_t b = 0; b < n; b++) {
            reads[b] = 0;
            for (uint32_t e = in->reads_start[b]; e < in->reads_start[b + 1] && in->reads[e] <= j; e++)
                reads[b] |= in->reads[e] == j;
            if (!reads[b]) continue;
            work += (double)in->work[b];
            tokens += in->tokens[b];
            big += 2 * (double)in->work[b] > limit;
        }
        for (k = big > 1 ? big : 1; k < in->ranks; k++) {
            double lack = all - cap * (in->ranks - k) - tokens, least = work;
            for (uint32_t i = 0; i < n && lack > 0; i++) {
                if (reads[light[i].block]) continue;
                double take = lack < in->tokens[light[i].block] ? lack : in->tokens[light[i].block];
                least += take * light[i].density;
                lack -= take;
            }
            if (least <= k * limit) break;
        }
        sum += (k - 1.0) * in->tokens[j];
    }
    free(light);
    free(reads);
    return sum;
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

static void balance_rows(const char *name, uint32_t ranks) {
    for (uint32_t block = 4096; block >= 1024; block /= 2) {
        place_batch batch = {0};
        char row[128], note[120];
        double goal = ranks == 8 && block == 4096 ? 1.01 : 1.005;
        if (!load(&batch, name, ranks, 1, block)) continue;
        arena a = {0};
        uint32_t *home = malloc(batch.in.blocks * sizeof *home);
        place_cost c, l;
        if (home && !place_lpt(&batch.in, &a, home) && !place_measure(&batch.in, &a, home, &l) &&
            !place_fcp(&batch.in, &a, home) && !place_measure(&batch.in, &a, home, &c)) {
            double base = base_of(&batch.in, &c), over = (double)c.work_max / base;
            double mean = (double)place_token_cap(&batch.in) - block;
            snprintf(row, sizeof row, "place: balance %s, block %uK", name, block / 1024);
            snprintf(note, sizeof note, "LPT %.4f; heaviest/mean %.2f; tokens mean %+.2f blocks",
                     (double)l.work_max / base, (double)c.work_heaviest * batch.in.ranks / (double)c.work_total,
                     ((double)c.tokens_max - mean) / block);
            bench_row(row, over, "x", goal > 1.005 ? "<= 1.01" : "<= 1.005",
                      over <= goal && c.tokens_max <= place_token_cap(&batch.in), note);
        }
        free(home);
        arena_free(&a);
        place_batch_free(&batch);
    }
}

static void transfer_rows(const char *name, uint32_t ranks) {
    place_batch batch = {0};
    if (!load(&batch, name, ranks, 1, 2048)) return;
    const place_input *in = &batch.in;
    arena a = {0};
    uint32_t *home = malloc(in->blocks * sizeof *home), *plain = malloc(in->blocks * sizeof *plain);
    place_cost c, l;
    if (home && plain && !place_lpt(in, &a, plain) && !place_measure(in, &a, plain, &l) && !place_fcp(in, &a, home) &&
        !place_measure(in, &a, home, &c)) {
        char row[128], note[200], goal[32];
        double base = base_of(in, &c), moved = (double)l.tokens_moved;
        double ratio = (double)c.tokens_moved / moved, floor = floor_of(in, 1.01 * base) / moved;
        double most = 1.1 * floor > 0.5 ? 1.1 * floor : 0.5, over = (double)c.work_max / base;
        bool met = ratio <= most && over <= 1.01;
        int used = snprintf(note, sizeof note, "floor %.3f; balance %.4f; between nodes %.3f", floor, over,
                            (double)c.tokens_moved_net / (double)(l.tokens_moved_net ? l.tokens_moved_net : 1));
        if (!met && in->blocks < 8192)
            snprintf(note + used, sizeof note - (size_t)used, "; no placement is below %.3f",
                     bound_of(in, 1.01 * base) / moved);
        snprintf(row, sizeof row, "place: moved / LPT's %s, block 2K", name);
        snprintf(goal, sizeof goal, "<= %.3f", most);
        bench_row(row, ratio, "x", goal, met, note);
        uint64_t ours = rounds(in, home), theirs = rounds(in, plain);
        snprintf(row, sizeof row, "place: rounds %s, block 2K", name);
        snprintf(goal, sizeof goal, "<= %llu (LPT)", (unsigned long long)theirs);
        snprintf(note, sizeof note, "without nodes: send %llu, receive %llu (LPT %llu, %llu)",
                 (unsigned long long)c.send_max, (unsigned long long)c.recv_max, (unsigned long long)l.send_max,
                 (unsigned long long)l.recv_max);
        bench_row(row, (double)ours, "", goal, ours <= theirs, note);
        const double mean = (double)c.tokens_moved_net / ranks, even = (double)l.tokens_moved_net / ranks;
        snprintf(row, sizeof row, "place: busiest home over net / LPT's mean %s, block 2K", name);
        snprintf(note, sizeof note, "over its own mean %.2f; LPT's busiest over LPT's mean %.2f",
                 (double)c.net_send_max / mean, (double)l.net_send_max / even);
        bench_row(row, (double)c.net_send_max / even, "x", "<= 1.05", (double)c.net_send_max / even <= 1.05, note);
    }
    free(home);
    free(plain);
    arena_free(&a);
    place_batch_free(&batch);
}

/* Processor time: one thread, no waiting. */
static void time_row(const char *name, uint32_t ranks, uint32_t copies, double goal_ms, const char *goal) {
    place_batch batch = {0};
    if (!load(&batch, name, ranks, copies, 2048)) return;
    double seconds[RUNS], wall[RUNS];
    uint32_t *home = malloc(batch.in.blocks * sizeof *home);
    size_t bytes = 0;
    int runs = copies > 1 ? 3 : RUNS;
    fcp_code code = home ? FCP_OK : FCP_E_NO_MEMORY;
    for (int i = 0; i < runs && !code; i++) {
        arena a = {0};
        double start = bench_now(), processor = bench_processor();
        code = place_fcp(&batch.in, &a, home);
        seconds[i] = bench_processor() - processor;
        wall[i] = bench_now() - start;
        bytes = a.total;
        arena_free(&a);
    }
    if (!code) {
        char row[128], note[120];
        const double took = bench_median(seconds, runs), passed = bench_median(wall, runs);
        snprintf(row, sizeof row, "place: time, %u ranks (%s), block 2K", ranks * copies, name);
        snprintf(note, sizeof note, "processor time; wall %.1f ms; %u blocks, %u reads, %.1f MiB", 1e3 * passed,
                 batch.in.blocks, batch.in.reads_start[batch.in.blocks], (double)bytes / 1048576);
        bench_row(row, 1e3 * took, "ms", goal, 1e3 * took <= goal_ms, note);
    }
    free(home);
    place_batch_free(&batch);
}

void bench_place(void) {
    static const char *const kinds[] = {"wlbllm", "prolong", "wikipedia"};
    static const uint32_t sizes[] = {8, 32, 64, 256, 1024};
    time_row("wlbllm-256x32k", 256, 1, 3, "<= 3 ms");
    time_row("wlbllm-1024x32k", 1024, 1, 15, "<= 15 ms");
    time_row("wlbllm-1024x32k", 1024, 16, 500, "<= 500 ms");
    for (unsigned s = 0; s < 5; s++)
        for (unsigned k = 0; k < 3; k++) {
            char name[64];
            snprintf(name, sizeof name, "%s-%ux32k", kinds[k], sizes[s]);
            if (sizes[s] == 64 || sizes[s] == 256) transfer_rows(name, sizes[s]);
            balance_rows(name, sizes[s]);
        }
}
