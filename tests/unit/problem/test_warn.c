/* test_warn.c: tests warnings about a mask over a batch: which queries see no key, against brute force, and the
 * text and place of the warning. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/cells/masked_rows.h"
#include "compiler/sema/program.h"
#include "tests/support/mask_samples.h"
#include "tests/support/plan_of.h"

/* --- queries that see nothing ------------------------------------------------------------------------------------- */

/* Rows without a key, the first of them, and where that stretch ends. */
static uint64_t brute(mc_code mask, int64_t n, uint32_t heads, int64_t *first, int64_t *end, int64_t *head) {
    int64_t *values = malloc(mask.count * sizeof *values);
    uint64_t rows = 0;
    *first = *end = *head = -1;
    for (int64_t h = 0; h < heads; h++)
        for (int64_t q = 0; q < n; q++) {
            bool any = false;
            for (int64_t k = 0; k < n && !any; k++) any = mc_eval(mask, MC_LENGTH(n), q, k, h, values);
            if (any) continue;
            if (!rows++) *first = q, *end = q + 1, *head = h;
            else if (*end == q && *head == h) *end = q + 1;
        }
    free(values);
    return rows;
}

static uint64_t agrees(mc_code mask, uint32_t heads, const int64_t *lengths, int count) {
    row_search *search = row_search_new(mask, heads);
    uint64_t sum = 0;
    bool never = false;
    uint32_t used = mc_uses(mask) & MC_USES_H ? heads : 1;
    for (int i = 0; i < count; i++) {
        masked_rows r;
        int64_t first, end, head;
        cr_assert_eq(masked_rows_find(search, MC_LENGTH(lengths[i]), &r), FCP_OK);
        uint64_t rows = brute(mask, lengths[i], used, &first, &end, &head);
        cr_assert_eq(r.rows, rows, "%d tokens: %d rows, not %d", (int)lengths[i], (int)r.rows, (int)rows);
        cr_assert(!never || !rows, "it said that there would be none");
        if (r.rows) cr_assert(r.first == (uint64_t)first && r.end == (uint64_t)end && r.head == (uint64_t)head);
        if (i == 0) never = masked_rows_never(search);
        sum += r.rows;
    }
    row_search_free(search);
    return sum;
}

Test(masked_rows, sample_masks) {
    for (int s = 0; s < SAMPLES; s++) {
        exprs e = {0};
        mc_node *nodes;
        int root = sample_mask(&e, (enum sample)s, 7, 30);
        mc_code mask = lower_mask(&e, root, &nodes);
        agrees(mask, 3, (const int64_t[]){300, 200, 129, 128, 64, 17, 2, 1}, 8);
        free(nodes);
    }
}

Test(masked_rows, random_masks) {
    uint64_t found = 0;
    int asked = 0;
    for (uint64_t seed = 1; seed <= 1500; seed++) {
        exprs e = {0};
        mc_node *nodes;
        int root = random_mask(&e, seed, 2 + seed % 3, seed % 4 == 0);
        mc_code mask = lower_mask(&e, root, &nodes);
        cells *c = cells_new(mask, 2);
        cells_counts counts;
        static const int64_t lengths[] = {150, 97, 20};
        bool faults = false;
        for (int i = 0; i < 3; i++)
            faults |= cells_count(c, MC_LENGTH((int64_t)((uint64_t)lengths[i])), &counts, NULL) != FCP_OK;
        if (!faults) asked++, found += agrees(mask, 2, lengths, 3);
        cells_free(c);
        free(nodes);
    }
    cr_expect_gt(asked, 500);
    cr_expect_gt(found, 1000);
}

/* The code of a condition. */
static fcpc_program *parse_mask(const char *condition) {
    char text[512];
    snprintf(text, sizeof text, "model { heads = 3 }\nmask m = %s\nplan { mask = m }\n", condition);
    return program_named("m.fcp", text);
}

Test(masked_rows, conditions) {
    static const char *const conditions[] = {"true",
                                             "false",
                                             "k <= q",
                                             "k < q",
                                             "k > q",
                                             "k <= q and q - k < 30",
                                             "k < q and q - k < 30",
                                             "q != k",
                                             "k <= q and k >= 5",
                                             "k >= 5 and k < 9",
                                             "k == n - q",
                                             "k < n - 40",
                                             "q % 3 != 0 and k <= q",
                                             "q % 64 < 60 or k > n",
                                             "q / 7 == k / 7",
                                             "(q + k) % 2 == 1 and k <= q",
                                             "k <= q and h != 1",
                                             "k <= q and q - k < 9 * h",
                                             "k * k == q",
                                             "q < 100 or q >= 150 and k < 3",
                                             "q < 40 * (h + 1) and k <= q",
                                             "abs(q - k) == 20",
                                             "q * q + k == n",
                                             "k == 2 * q"};
    for (size_t i = 0; i < sizeof conditions / sizeof *conditions; i++) {
        fcpc_program *program = parse_mask(conditions[i]);
        agrees(program->mask, 3, (const int64_t[]){199, 150, 64, 7, 2, 1}, 6);
        fcpc_program_free(program);
    }
}

Test(masked_rows, long_sequences) {
    static const struct { const char *condition; uint64_t n, first, end; } cases[] = {
        {"k <= q", UINT64_C(1) << 40, 0, 0},
        {"k > q", UINT64_C(1) << 40, (UINT64_C(1) << 40) - 1, UINT64_C(1) << 40},
        {"k <= q and 1000000 <= q - k", UINT64_C(1) << 40, 0, 1000000},
        {"k <= q and k >= 1000000", UINT64_C(1) << 40, 0, 1000000},
        {"k <= q and q != 123456789", 1000000000, 123456789, 123456790}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fcpc_program *program = parse_mask(cases[i].condition);
        row_search *search = row_search_new(program->mask, 3);
        masked_rows r;
        cr_assert_eq(masked_rows_find(search, MC_LENGTH((int64_t)(cases[i].n)), &r), FCP_OK);
        cr_expect_not(r.at_least);
        cr_expect(r.rows == cases[i].end - cases[i].first && r.first == cases[i].first && r.end == cases[i].end,
                  "%s: %lu to %lu", cases[i].condition, (unsigned long)r.first, (unsigned long)r.end);
        row_search_free(search);
        fcpc_program_free(program);
    }
}

/* However many sequences there are, a mask without structure does not cost more than the limit, and one of q - k stays
 * exact. */
Test(masked_rows, many_sequences) {
    fcpc_program *dear = parse_mask("(q * q) % 1009 < k % 13 and q != k"), *cheap = parse_mask("k < q");
    row_search *search = row_search_new(dear->mask, 3), *exact = row_search_new(cheap->mask, 3);
    masked_rows r = {0};
    int64_t asked = 0;
    for (; !r.at_least && asked < 600; asked++)
        cr_assert_eq(masked_rows_find(search, MC_LENGTH(700 + asked), &r), FCP_OK);
    cr_expect(r.at_least && asked > 1, "%d sequences", (int)asked);
    for (int64_t n = 1; n <= 20000; n++) {
        cr_assert_eq(masked_rows_find(exact, MC_LENGTH(n), &r), FCP_OK);
        cr_assert(!r.at_least && r.rows == 1 && r.first == 0, "%d tokens: %d rows", (int)n, (int)r.rows);
    }
    row_search_free(search);
    row_search_free(exact);
    fcpc_program_free(dear);
    fcpc_program_free(cheap);
}

/* --- what is said ------------------------------------------------------------------------------------------------- */

static char *says(const char *program) {
    fcp_plan *plan;
    char *said;
    cr_assert_eq(plan_try("a.fcp", program, NULL, 0, &plan, &said), FCP_OK, "%s", said);
    fcp_plan_free(plan);
    return said;
}

static void expect(const char *program, const char *warnings) {
    char *said = says(program);
    cr_expect_str_eq(said, warnings);
    free(said);
}

#define BATCH "batch { lengths = [700, 300 x 2, 1] }\n"

Test(warn, silent) {
    expect(BATCH "plan { mask = causal }", "");
    expect(BATCH "plan { mask = full }", "");
    expect(BATCH "plan { mask = window(w = 700) }", "");
    expect(BATCH "plan { mask = window_both(l = 3, r = 3) }", "");
    expect(BATCH "mask m(w) = causal and q - k < w\nplan { mask = m(w = 3) }", "");
    expect(BATCH "mask m = causal and near where { half = n / 2; near = q - k < half or q == k }\nplan { mask = m }",
           "");
    expect("batch { lengths = [1 x 3] }\nplan { mask = causal }", "");
}

Test(warn, queries_that_see_nothing) {
    expect(
        BATCH "mask m = k < q\nplan { mask = m }",
        "a.fcp:3:15: warning: m: 4 queries of 4 sequences see no key: for instance q = 0 of sequence 0 (700 tokens)\n"
        "    3 | plan { mask = m }\n"
        "      |               ^\n"
        "      = hint: their output is 0, their log-sum-exp -inf, and no gradient passes; `or q == k` lets a query see "
        "itself\n");
    expect(
        BATCH "mask m = causal and (k < n - 400 or q % 3 == 1 and q == k)\nplan { mask = m }",
        "a.fcp:3:15: warning: m: 401 queries of 3 sequences see no key: for instance q = 0 of sequence 1 (300 tokens)\n"
        "    3 | plan { mask = m }\n"
        "      |               ^\n"
        "      = hint: their output is 0, their log-sum-exp -inf, and no gradient passes; `or q == k` lets a query see "
        "itself\n");
    expect(
        "batch { lengths = [700] }\nmodel { heads = 4 }\nmask m = if h == 2 then k > q + 650 else causal\n"
        "plan { mask = m }",
        "a.fcp:4:15: warning: m: 651 rows (query and head) of 1 sequence see no key: q = 49 to 699, h = 2 of sequence "
        "0 "
        "(700 tokens)\n"
        "    4 | plan { mask = m }\n"
        "      |               ^\n"
        "      = hint: their output is 0, their log-sum-exp -inf, and no gradient passes; `or q == k` lets a query see "
        "itself\n");
}

/* The number of queries that the warning names; 0 without a warning. */
static unsigned said_queries(const char *said) {
    const char *at = strstr(said, "warning: m: ");
    unsigned rows = 0;
    if (at) sscanf(at, "warning: m: %u", &rows);
    return rows;
}

/* No sequence hides another one, whatever their order and whichever has more queries than keys. */
Test(warn, queries_of_every_sequence) {
    static const struct { uint64_t queries, keys; } batches[][3] = {
        {{10, 5}, {300, 300}, {0, 0}},   {{300, 300}, {10, 5}, {0, 0}}, {{300, 300}, {5, 10}, {0, 0}},
        {{300, 300}, {20, 20}, {1, 1}},  {{1, 1}, {20, 20}, {300, 300}}, {{1, 300}, {40, 20}, {7, 7}},
        {{400, 300}, {300, 400}, {2, 1}}};
    static const char *const conditions[] = {
        "causal", "k < q", "causal and q != k", "causal and not (k == q)", "q - q <= k and causal", "q >= 0",
        "q >= 5", "k >= 6", "n > 100", "n > 100 or k < q", "n > 100 or k <= q", "abs(q - k) >= 9",
        "q - k < 3 and k <= q",
        "k == 0", "k == n - 1", "k <= q and k >= 12", "q % 3 == 0", "k == q", "k <= q and (q < 15 or q - k < 4)",
        "causal and n * k < 3500", "(q * k) % 7 == 3", "causal and k % 5 == 4", "k <= q + 3 and k > q"};
    for (size_t i = 0; i < sizeof conditions / sizeof *conditions; i++)
        for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
            char text[512], lengths[128] = "";
            fcpc_program *program = parse_mask(conditions[i]);
            int64_t values[64];
            uint64_t want = 0, pairs = 0;
            cr_assert_leq(program->mask.count, 64);
            for (int s = 0; s < 3 && batches[b][s].keys; s++) {
                const int64_t n = (int64_t)batches[b][s].keys, queries = (int64_t)batches[b][s].queries;
                const mc_env env = {.n = n, .q_first = n - queries, .queries = queries};
                size_t at = strlen(lengths);
                snprintf(lengths + at, sizeof lengths - at, "%s%d:%d", s ? ", " : "", (int)queries, (int)n);
                for (int64_t q = n - queries; q < n; q++) {
                    uint64_t before = pairs;
                    for (int64_t k = 0; k < n; k++) pairs += mc_eval(program->mask, &env, q, k, 0, values);
                    want += pairs == before;
                }
            }
            fcpc_program_free(program);
            snprintf(text, sizeof text, "batch { lengths = [%s] }\nmask m = %s\nplan { mask = m }", lengths,
                     conditions[i]);
            char *said = says(text);
            if (pairs)
                cr_expect_eq(said_queries(said), want, "%s\n%u, not %d:\n%s", text, said_queries(said), (int)want,
                             said);
            free(said);
        }
}

Test(warn, nothing_and_everything) {
    expect(BATCH "mask m = k < q and q < k\nplan { mask = m }",
           "a.fcp:3:15: warning: m allows no pair in the whole batch\n"
           "    3 | plan { mask = m }\n"
           "      |               ^\n"
           "      = hint: every output is 0 and every gradient too; nothing is computed\n");
    expect(
        BATCH "plan { mask = window_both(l = 699, r = 699) }",
        "a.fcp:2:15: warning: window_both(l = 699, r = 699) allows every pair of the whole batch (the longest sequence "
        "has "
        "700 tokens)\n"
        "    2 | plan { mask = window_both(l = 699, r = 699) }\n"
        "      |               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
        "      = hint: over these lengths it masks nothing: `full` is the same\n");
}

/* --- constants of scores ------------------------------------------------------------------------------------------ */

/* A score of `source` is judged for a batch of 4, 300 and 7 tokens and four heads. */
static char *says_of_score(const char *mask, const char *score, const char *plan) {
    char text[1024];
    snprintf(text, sizeof text,
             "model { heads = 4; table t = [1, 0, 1, 0]; table u = [0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0] }\n"
             "batch { lengths = [4, 300, 7] }\nmask m = %s\nscore far = %s\n"
             "plan { mask = m; score = far; block = 64%s }\n", mask, score, plan);
    return says(text);
}

Test(warn, constants_without_room_for_log_n) {
    static const struct { const char *mask, *score; uint64_t rows; } cases[] = {
        {"causal", "s - 2.4e38", 311}, {"causal", "s - 1000000000", 311}, {"causal", "s + 1048576.0", 311},
        {"causal", "s - 1048575.0", 0}, {"causal", "-(1.0e9 - s)", 311}, {"causal", "s - (1.0e9 - 1.0)", 311},
        /* a condition: of queries that see nothing else */
        {"causal", "if k <= q - 3 then s else s - 1.0e9", 9}, {"causal", "if k < 3 then s - 1.0e9 else s", 9},
        {"causal", "s - (if q < 5 or h == 2 then 1.0e9 else 0.0)", 353},
        {"causal", "if t[k % 4] == 1 then s - 1.0e9 else s", 3}, {"causal", "if q == k then s else s - 3.0e38", 0},
        {"causal", "if q < k then s + 1.0e9 else s", 0},
        /* queries without keys have no logits */
        {"k < q", "s - 1.0e9", 308}, {"causal and q > 1", "s - 1.0e9", 305}, {"causal and q > 1", "if k < 2 then s - 1.0e9 else s", 0},
        {"k < q", "if u[10 / (q - k)] == 1 then s - 1.0e9 else s", 0},
        {"k < q and q - k < 6 and 3 < q - k", "if u[10 / (q - k)] == 1 then s - 1.0e9 else s", 299},
        {"full", "s + 1.0e9", 311},
        /* what cancels, and what nobody knows */
        {"causal", "s - 1.0e9 + 1.0e9", 0}, {"causal", "(s - 1.0e9) + (if k == 0 then 1.0e9 else 0.0)", 0},
        {"causal", "max(s, s - 1.0e9)", 0}, {"causal", "min(s, s - 1.0e9)", 311}, {"causal", "tanh(s - 1.0e9)", 0},
        {"causal", "s + t[k % 4] * 1.0e9 - 1.0e9", 0}, {"causal", "if s > 0.0 then s - 1.0e9 else s", 0},
        {"causal", "if s > 0.0 then s - 1.0e9 else s - 2.0e9", 311}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *said = says_of_score(cases[i].mask, cases[i].score, "");
        const char *at = strstr(said, "moves all logits of ");
        const uint64_t rows = at ? strtoull(at + strlen("moves all logits of "), NULL, 10) : 0;
        cr_expect_eq(rows, cases[i].rows, "%s, %s: %d rows, not %d:\n%s", cases[i].mask, cases[i].score, (int)rows,
                     (int)cases[i].rows, said);
        free(said);
        said = says_of_score(cases[i].mask, cases[i].score, "; passes = forward");
        cr_expect_null(strstr(said, "moves all logits"), "nothing reads LSE:\n%s", said);
        free(said);
        said = says_of_score(cases[i].mask, cases[i].score, "; sink = 0.5");
        cr_expect(!strstr(said, "moves all logits") == (!cases[i].rows || strchr(cases[i].score, '+') == NULL),
                  "with a sink only what is added matters:\n%s", said);
        free(said);
    }
    expect("batch { lengths = [4] }\nscore far = s - 2.4e38\nplan { mask = causal; score = far }",
           "a.fcp:2:17: warning: a constant of 2.4e+38 moves all logits of 4 queries: float32 has no room beside it for "
           "the logarithm of how many keys they see\n"
           "    2 | score far = s - 2.4e38\n"
           "      |                 ^^^^^^\n"
           "      = hint: O and LSE alone give wrong gradients there: keep lse_low with them for the backward pass\n");
}

/* --- a gradient of LSE -------------------------------------------------------------------------------------------- */

Test(warn, gradient_that_nothing_reads) {
    expect("batch { lengths = [4] }\nplan { mask = causal; passes = forward; lse_gradient = true }",
           "a.fcp:2:56: warning: lse_gradient changes nothing: the plan has no backward pass\n"
           "    2 | plan { mask = causal; passes = forward; lse_gradient = true }\n"
           "      |                                                        ^^^^\n"
           "      = hint: the forward pass gives LSE anyway; its gradient is read by the backward pass\n");
    expect("batch { lengths = [4] }\nplan { mask = causal; lse_gradient = true }", "");
}

Test(warn, large_parameters) {
    expect(BATCH "plan { mask = lambda(sink = 701) }",
           "a.fcp:2:29: warning: sink = 701 is larger than every sequence of the batch: the longest has 700 tokens\n"
           "    2 | plan { mask = lambda(sink = 701) }\n"
           "      |                             ^^^\n"
           "      = hint: no distance and no position reaches it: what compares with it always comes out the same\n"
           "a.fcp:2:15: warning: window = 4096 is larger than every sequence of the batch: the longest has 700 tokens\n"
           "    2 | plan { mask = lambda(sink = 701) }\n"
           "      |               ^^^^^^^^^^^^^^^^^^\n"
           "      = hint: no distance and no position reaches it: what compares with it always comes out the same\n");
    /* queries reach further than keys */
    expect("batch { lengths = [400:70] }\nplan { mask = window_both(l = 10, r = 400) }", "");
    expect("batch { lengths = [400:70] }\nplan { mask = window_both(l = 10, r = 401) }",
           "a.fcp:2:39: warning: r = 401 is larger than every sequence of the batch: the longest has 400 queries\n"
           "    2 | plan { mask = window_both(l = 10, r = 401) }\n"
           "      |                                       ^^^\n"
           "      = hint: no distance and no position reaches it: what compares with it always comes out the same\n");
}

/* What planning a program says, and what it counts meanwhile. The caller frees the text. */
static char *says_and_counts(const char *program, fcpc_progress *progress) {
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *p = NULL;
    fcp_plan *plan = NULL;
    const fcpc_batch batch = {.size = sizeof batch, .progress = progress};
    cr_assert_eq(fcpc_parse_text("a.fcp", program, strlen(program), NULL, d, &p), FCP_OK);
    cr_assert_eq(fcpc_plan_batch(p, &batch, NULL, d, NULL, &plan), FCP_OK);
    char *said = fcpc_diagnostics_render(d, false);
    fcp_plan_free(plan);
    fcpc_program_free(p);
    fcpc_diagnostics_free(d);
    return said;
}

/* A mask whose pairs are looked at one by one gets a warning, and whoever watches the progress learns how many there
 * will be. */
Test(warn, no_structure) {
    static const struct { const char *mask; bool slow; } cases[] = {
        {"(q * k) % 1009 < (q + k) % 13", true}, {"k <= q and (k / 100) % 3 < 2", false}};
    for (int i = 0; i < 2; i++) {
        char text[200];
        snprintf(text, sizeof text, "batch { lengths = [20K] }\nmask m = %s\nplan { mask = m }", cases[i].mask);
        fcpc_progress progress = {0};
        char *said = says_and_counts(text, &progress), *at = strstr(said, "m makes planning slow: ");
        cr_assert_eq(at != NULL, cases[i].slow, "%s", said);
        unsigned long long pairs = 0;
        const uint64_t all = 20480 * 20480;
        if (at)
            cr_assert_eq(sscanf(at, "m makes planning slow: %llu of its pairs had to be looked at one by one", &pairs),
                         1);
        if (at) cr_expect(pairs > all * 95 / 100 && pairs <= all * 101 / 100, "%llu", pairs);
        cr_expect(progress.done <= pairs && progress.done >= pairs / 100 * 98, "%llu of %llu",
                  (unsigned long long)progress.done, pairs);
        cr_expect(progress.expected >= pairs / 100 * 90 && progress.expected <= all);
        cr_expect(cases[i].slow || progress.expected == 0);
        free(said);
    }
}

/* A block that is too heavy is told; but no size that would do is looked for, as each would take as long again. */
Test(warn, heavy_without_structure) {
    static const char text[] = "cluster { gpus = 4 }\nbatch { lengths = [24K] }\n"
                               "mask m = k <= q and (q * k) % 1009 < 13\nplan { mask = m; block = 4K }";
    fcpc_progress progress = {0};
    char *said = says_and_counts(text, &progress);
    cr_expect(strstr(said, "no placement can balance it") && !strstr(said, "would do"), "%s", said);
    const uint64_t half = UINT64_C(24576) * 24576 / 2;
    cr_expect(progress.done > half && progress.done < half * 11 / 10, "%llu", (unsigned long long)progress.done);
    free(said);
}

/* A batch whose mask takes longer than the caller allows is refused, and others are not. A limit must be a number. */
Test(warn, too_long) {
    static const struct { const char *mask; double limit; fcp_code code; } cases[] = {
        {"(q * k) % 1009 < (q + k) % 13", 60, FCP_E_TOO_LONG}, {"h < 3 and (q * k) % 1009 < 13", 60, FCP_E_TOO_LONG},
        {"k <= q and (k / 100) % 3 < 2", 60, FCP_OK}, {"causal", 1e-3, FCP_OK}, {"causal", -1, FCP_E_ARGUMENT},
        {"causal", (double)NAN, FCP_E_ARGUMENT}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[200];
        snprintf(text, sizeof text, "batch { lengths = [1M] }\nmask m = %s\nplan { mask = m }", cases[i].mask);
        fcpc_diagnostics *d = fcpc_diagnostics_new();
        fcpc_program *p = NULL;
        fcp_plan *plan = NULL;
        const fcpc_batch batch = {.size = sizeof batch, .max_seconds = cases[i].limit};
        cr_assert_eq(fcpc_parse_text("a.fcp", text, strlen(text), NULL, d, &p), FCP_OK);
        cr_expect_eq(fcpc_plan_batch(p, &batch, NULL, d, NULL, &plan), cases[i].code, "%s", cases[i].mask);
        char *said = fcpc_diagnostics_render(d, false);
        if (cases[i].code == FCP_E_TOO_LONG)
            cr_expect(strstr(said, "a.fcp:3:15: error[E405]: m takes about ") &&
                          strstr(said, "the limit is 60 s: about "),
                      "%s", said);
        free(said);
        fcp_plan_free(plan);
        fcpc_program_free(p);
        fcpc_diagnostics_free(d);
    }
}

Test(warn, symmetric) {
    expect(
        BATCH "mask m = q / 64 == k / 64\nplan { mask = m }",
        "a.fcp:3:15: warning: m is symmetric: where q sees k, k sees q, so queries see what comes after them\n"
        "    3 | plan { mask = m }\n"
        "      |               ^\n"
        "      = hint: in a model that predicts the next token that leaks it; "
        "if that is not meant: `causal and ...`\n");
    expect(BATCH "mask m = abs(q - k) < n / 2 and k != 699 or k == q\nplan { mask = m }", ""); /* but for one column */
}

Test(warn, unused) {
    expect(
        "batch { lengths = [700] }\nmask m(w = 3, v = 4) = causal where { a = w; b(t) = a + t; c = 3 }\n"
        "plan { mask = m }",
        "a.fcp:2:39: warning: 'a' is defined and never used\n"
        "    2 | mask m(w = 3, v = 4) = causal where { a = w; b(t) = a + t; c = 3 }\n"
        "      |                                       ^\n"
        "      = hint: the mask 'm' means the same without it\n"
        "a.fcp:2:46: warning: 'b' is defined and never used\n"
        "    2 | mask m(w = 3, v = 4) = causal where { a = w; b(t) = a + t; c = 3 }\n"
        "      |                                              ^\n"
        "      = hint: the mask 'm' means the same without it\n"
        "a.fcp:2:60: warning: 'c' is defined and never used\n"
        "    2 | mask m(w = 3, v = 4) = causal where { a = w; b(t) = a + t; c = 3 }\n"
        "      |                                                            ^\n"
        "      = hint: the mask 'm' means the same without it\n"
        "a.fcp:2:8: warning: parameter 'w' is never used\n"
        "    2 | mask m(w = 3, v = 4) = causal where { a = w; b(t) = a + t; c = 3 }\n"
        "      |        ^\n"
        "      = hint: setting it does not change the mask 'm'\n"
        "a.fcp:2:15: warning: parameter 'v' is never used\n"
        "    2 | mask m(w = 3, v = 4) = causal where { a = w; b(t) = a + t; c = 3 }\n"
        "      |               ^\n"
        "      = hint: setting it does not change the mask 'm'\n");
}

/* --- indices of fields
 * ---------------------------------------------------------------------------------------------- */

#define FIELDS                                                                                                         \
    "model { heads = 4; kv_heads = 2 }\nbatch { lengths = [3]; field keep = [1 x 4] over queries / 2, keys / 2\n"      \
    "field part = [1 x 24] over heads, queries, keys / 2; field edge = [1 x 9] over queries, keys\n"                   \
    "field w = [9 x 4] over heads; field start = [0 x 12] over heads, keys; field group = [9, 9] over kv_heads\n"      \
    "field doc = [1 x 3]; field side = [1 x 3] over queries; field bias = [0.5 x 9] over queries, keys }\n"
#define CAUSAL_AND(condition) FIELDS "mask m = causal and " condition "\nplan { mask = m }"

/* Warned of, with the place of the reading and the right one. */
static void expect_reading(const char *condition, const char *said, const char *hint) {
    char text[2000], expected[2000];
    const int at = 21;
    snprintf(text, sizeof text, FIELDS "mask m = causal and %s\nplan { mask = m }", condition);
    const size_t wide = strcspn(condition, "]") + 1;
    snprintf(expected, sizeof expected,
             "a.fcp:6:%d: warning: %s\n    6 | mask m = causal and %s\n      | %*s%.*s\n      = hint: %s\n", at, said,
             condition, at - 1, "", (int)wide, "^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^", hint);
    expect(text, expected);
}

Test(warn, fields_read_with_keys_first) {
    expect_reading("keep[k / 2, q / 2] == 1", "field 'keep' is over queries / 2, keys / 2, and is read with keys first",
                   "read it as keep[q / 2, k / 2]");
    expect_reading("keep[b, a] == 1 where { a = q / 2; b = k / 2 }",
                   "field 'keep' is over queries / 2, keys / 2, and is read with keys first",
                   "read it as keep[q / 2, k / 2]");
    expect_reading("part[h, k, q / 2] == 1",
                   "field 'part' is over heads, queries, keys / 2, and is read with keys first",
                   "read it as part[h, q, k / 2]");
    expect_reading("edge[k, q] == 1", "field 'edge' is over queries, keys, and is read with keys first",
                   "read it as edge[q, k]");
    expect(FIELDS "score x = s + bias[k, q]\nplan { mask = causal; score = x }",
           "a.fcp:6:15: warning: field 'bias' is over queries, keys, and is read with keys first\n"
           "    6 | score x = s + bias[k, q]\n"
           "      |               ^^^^^^^^^^\n"
           "      = hint: read it as bias[q, k]\n");
    expect(CAUSAL_AND("keep[q / 2, k / 2] == 1"), "");
    expect(CAUSAL_AND("part[h, q, k / 2] == 1"), "");
    expect(CAUSAL_AND("(edge[q, k] == 1 or edge[k, q] == 1)"), ""); /* a graph, both ways */
    expect(CAUSAL_AND("edge[q, q] == 1 and edge[k, k] == 1"), "");
    expect(CAUSAL_AND("edge[k, min(q, k)] == 1"), "");
    expect(CAUSAL_AND("edge[0, k] == edge[q, 0]"), "");
    expect(CAUSAL_AND("doc[q] == doc[k] and side[q] == 1"), "");
    expect(CAUSAL_AND("start[h, q] == start[h, k]"), "");
}

Test(warn, fields_over_heads_read_as_if_over_kv_heads) {
    static const char group[] = "; over kv_heads it would have a value for each group of heads";
    char hint[200];
    snprintf(hint, sizeof hint, "read it as w[h]%s", group);
    expect_reading("w[h / 2] > q - k", "field 'w' is over heads, and is read at h / 2", hint);
    expect_reading("w[h / (heads / kv_heads)] > q - k", "field 'w' is over heads, and is read at h / 2", hint);
    snprintf(hint, sizeof hint, "read it as start[h, ...]%s", group);
    expect_reading("start[h / 4, k] <= q", "field 'start' is over heads, and is read at h / 4", hint);
    expect(CAUSAL_AND("q - k < w[h]"), "");
    expect(CAUSAL_AND("q - k < w[h] + w[h / 2]"), "");
    expect(CAUSAL_AND("q - k < w[h / 1]"), "");
    expect(CAUSAL_AND("q - k < group[h / (heads / kv_heads)]"), "");
}

Test(warn, computed_numbers_that_are_negative) {
    static const char hint[] = "      = hint: counts and sizes are at least 0: max(..., 0) never is negative\n";
    char said[1000];
    snprintf(said, sizeof said,
             "a.fcp:2:31: warning: w of 'window' is -10 for sequence 1 (50 tokens), and negative for 1 other\n"
             "    2 | mask m = k == 0 or window(w = n - 60)\n"
             "      |                               ^^^^^^\n%s",
             hint);
    expect("batch { lengths = [100, 50, 60, 59, 1] }\nmask m = k == 0 or window(w = n - 60)\nplan { mask = m }", said);
    snprintf(said, sizeof said,
             "a.fcp:2:43: warning: r of 'window_both' is -3 for sequence 1 (50 tokens)\n"
             "    2 | mask m = k == 0 or window_both(l = t, r = p - 5) where { t = abs(n / 2) }\n"
             "      |                                           ^^^^^\n%s",
             hint);
    expect("batch { lengths = [100, 50, 7]; field p = [7, 2, 5] over sequences }\n"
           "mask m = k == 0 or window_both(l = t, r = p - 5) where { t = abs(n / 2) }\nplan { mask = m }",
           said);
    static const char *const quiet[] = {"k == 0 or window(w = n - 49)", "k == 0 or window(w = max(n - 60, 0))",
                                        "k == 0 or n > 60 and window(w = n - 60)", /* a condition stands before it */
                                        "k == 0 or (if n > 60 then window(w = n - 60) else causal)",
                                        "k == 0 or causal and q - k < n - 60"}; /* no mask of the prelude */
    for (size_t i = 0; i < sizeof quiet / sizeof *quiet; i++) {
        char text[300];
        snprintf(text, sizeof text, "batch { lengths = [100, 50] }\nmask m = %s\nplan { mask = m }", quiet[i]);
        expect(text, "");
    }
}
