/* bench_order.c: predicts how long the work lists of kernels take, by models that count in whole numbers and need no
 * GPU.
 *
 * Backward pass, by the model of runtime/worklists/turns.h: CTAs that add to the same sum take turns. Rows compare
 *   - an ordered list, in which CTAs wait for their turns, with a list without turns;
 *   - the time in which the multiprocessors work with all of their time. This is low where sequences are short and
 *     heads are few, so these are measured; also head_dim 256, where dK and dV have a kernel of their own, and heads
 *     that see different pairs.
 *
 * Forward pass, by the model of tests/support/order_model.h: if the keys of a row are cut into parts, the parts'
 * results are written and read again, and the model counts time for that.
 *
 * Notes say how much processor time it took to make a list and to predict its time.
 */
#include <stdio.h>
#include <string.h>

#include "compiler/fcpc.h"
#include "tests/support/order_model.h"
#include "tests/bench/bench.h"

enum { ALL = 132, BLOCKS = 116 }; /* multiprocessors of a device, and without the sixteen kept for communication */

static const struct {
    const char *what, *cluster, *lengths, *mask, *block;
} all[] = {
    {"causal, 8K", "gpus = 1", "8K", "causal", "1K"},
    {"full, 8K", "gpus = 1", "8K", "full", "1K"},
    {"window of 1K, 8K", "gpus = 1", "8K", "window(w = 1K)", "1K"},
    {"causal documents, 32K", "gpus = 1", "13K, 7K, 5K, 3K, 1K x 3, 500 x 2", "causal", "1K"},
    {"one long document and many short ones", "gpus = 1", "26K, 100 x 500", "causal", "1K"},
    {"shared question, 8K", "gpus = 1", "8K", "shared_question(p = 2K, answers = 4)", "1K"},
    {"lambda, 16K", "gpus = 1", "16K", "lambda", "1K"},
    {"causal, 64K, 8 ranks", "gpus = 8", "64K", "causal", "4K"},
};

static fcp_plan *plan_of(size_t i) {
    char text[500];
    snprintf(text, sizeof text,
             "model { heads = 64; kv_heads = 8; head_dim = 128; dtype = bf16 }\ncluster { %s }\n"
             "batch { lengths = [%s] }\nplan { mask = %s; block = %s; strategy = fcp(coalesce = 16) }\n",
             all[i].cluster, all[i].lengths, all[i].mask, all[i].block);
    return bench_plan_of(text, NULL, 0);
}

/* How much of the multiprocessors' time steps use, on one rank. Masks that name h differ by head. */
static void bench_used(uint32_t heads, uint32_t kv_heads, uint32_t head_dim, const char *mask, const char *length) {
    char name[140], note[120], text[500], of[40] = "";
    fcp_worklists_time with, without;
    if (head_dim != 128) snprintf(of, sizeof of, " of %u, dK and dV", head_dim);
    snprintf(name, sizeof name, "backward lists, (%u, %u) heads%s, %s, %s: model, time used", heads, kv_heads, of, mask,
             length);
    if (!bench_wants(name)) return;
    snprintf(text, sizeof text,
             "model { heads = %u; kv_heads = %u; head_dim = %u; dtype = bf16 }\nbatch { lengths = [%s] }\n"
             "mask m = %s\nplan { mask = m; block = 2K; strategy = fcp(coalesce = 64) }\n",
             heads, kv_heads, head_dim, length, mask);
    fcp_plan *plan = bench_plan_of(text, NULL, 0);
    const fcp_key_order order = head_dim > 128 ? FCP_KEYS_ALONE : FCP_KEYS_ORDERED;
    const double begin = bench_processor();
    if (plan && order_model_of_rank(plan, 0, ALL, order, &with, &without)) {
        const double spent = bench_processor() - begin;
        const double used = (double)with.work / (double)with.end / ALL;
        snprintf(note, sizeof note, "%d blocks; without turns %.2f; %.1f ms", ALL,
                 (double)without.work / (double)without.end / ALL, 1e3 * spent);
        bench_row(name, used, "", fcp_plan_by_head(plan) ? "" : ">= 0.9", used >= 0.9, note);
    }
    fcp_plan_free(plan);
}

static void bench_all_used(void) {
    static const uint32_t heads[][2] = {{64, 8}, {8, 1}, {16, 16}};
    static const char *const masks[] = {"causal", "full"}, *const lengths[] = {"2K", "8K", "32K"};
    /* heads of two classes, of four, and of as many as a group has heads */
    static const char *const by_head[] = {"causal and (h % 4 == 0 or q - k < 512)",
                                          "causal and (h % 4 == 0 or q - k < 256 * (h % 4))",
                                          "causal and q - k < 256 * (1 + h % 8)"};
    for (size_t h = 0; h < sizeof heads / sizeof *heads; h++)
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
            for (size_t m = 0; m < sizeof masks / sizeof *masks; m++) {
                bench_used(heads[h][0], heads[h][1], 128, masks[m], lengths[l]);
                bench_used(heads[h][0], heads[h][1], 256, masks[m], lengths[l]);
            }
            for (size_t m = 0; m < sizeof by_head / sizeof *by_head; m++)
                bench_used(heads[h][0], heads[h][1], 128, by_head[m], lengths[l]);
        }
}

/* The forward pass. `ends`: what beginning and ending a piece takes, where a step takes two. */
static void bench_forward(uint32_t heads, uint32_t kv_heads, const char *mask, const char *lengths, uint32_t ends,
                          double goal) {
    char name[100], wanted[20], note[120], text[400];
    fcp_worklists_time model;
    snprintf(name, sizeof name, "forward lists, (%u, %u) heads, %s, %s: model, time used", heads, kv_heads, mask, lengths);
    if (!bench_wants(name)) return;
    snprintf(text, sizeof text,
             "model { heads = %u; kv_heads = %u; head_dim = 128; dtype = bf16 }\nbatch { lengths = [%s] }\n"
             "plan { mask = %s; block = 4K; strategy = fcp(coalesce = 64); passes = forward }\n",
             heads, kv_heads, lengths, mask);
    fcp_plan *plan = bench_plan_of(text, NULL, 0);
    if (plan && order_model_forward(plan, ALL, ends, true, &model)) {
        const double used = (double)model.work / (double)model.end / ALL;
        snprintf(note, sizeof note, "%d blocks%s", ALL, ends ? "" : "; steps, and what parts of cut rows cost");
        snprintf(wanted, sizeof wanted, ">= %g", goal);
        bench_row(name, used, "", wanted, used >= goal, note);
    }
    fcp_plan_free(plan);
}

/* Long sequences, by steps alone; then decoding and chunked prefill: few queries and many keys. */
static void bench_all_forward(void) {
    static const struct { uint32_t heads, kv_heads; const char *lengths; } few[] = {
        {64, 8, "1:128K"}, {8, 1, "1:128K"}, {32, 32, "1:128K"}, {64, 8, "64:128K"}, {64, 8, "1:32K x 16"},
        {64, 8, "1:32K x 4, 1:1K x 100"}};
    static const uint32_t heads[][2] = {{64, 8}, {8, 1}, {16, 16}};
    static const char *const masks[] = {"causal", "full"}, *const lengths[] = {"2K", "4K", "8K", "32K"};
    for (size_t h = 0; h < sizeof heads / sizeof *heads; h++)
        for (size_t m = 0; m < sizeof masks / sizeof *masks; m++)
            for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
                bench_forward(heads[h][0], heads[h][1], masks[m], lengths[i], 0, 0.98);
    for (size_t i = 0; i < sizeof few / sizeof *few; i++)
        bench_forward(few[i].heads, few[i].kv_heads, "causal", few[i].lengths, 1, 0.9);
}

void bench_order(void) {
    bench_all_used();
    bench_all_forward();
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char name[100], note[120];
        uint64_t with = 0, without = 0, work = 0;
        snprintf(name, sizeof name, "backward lists, %s: model, no turns / turns", all[i].what);
        if (!bench_wants(name)) continue;
        fcp_plan *plan = plan_of(i);
        double start = bench_now();
        for (uint32_t rank = 0; plan && rank < plan->problem->ranks; rank++) {
            fcp_worklists_time a, b;
            if (!order_model_of_rank(plan, rank, BLOCKS, FCP_KEYS_ORDERED, &a, &b)) printf("out of memory\n");
            else with += a.end, without += b.end, work += a.work;
        }
        double seconds = bench_now() - start;
        if (!with) continue;
        snprintf(note, sizeof note, "%d blocks, 8 x 8 heads; without turns %.2f of what they could do; %.0f ms", BLOCKS,
                 (double)work / (double)without / BLOCKS, 1e3 * seconds);
        bench_row(name, (double)without / (double)with, "", ">= 0.95", (double)without >= 0.95 * (double)with, note);
        fcp_plan_free(plan);
    }
}
