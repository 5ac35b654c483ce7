/* test_cells.c: tests how masks that read no arrays become cells and tiles. Counts, classes, entries, shapes and faults
 * are compared with every element of the mask. */
#include <criterion/criterion.h>
#include <string.h>

#include "compiler/cells/cells.h"
#include "tests/support/amount.h"
#include "tests/support/cells_check.h"
#include "tests/support/mask_samples.h"

Test(cells, random_masks) {
    static exprs e;
    for (int seed = 1; seed <= (int)amount(150, 900); seed++) {
        int root = random_mask(&e, (uint64_t)seed, 1 + seed % 4, seed % 3 == 0);
        uint64_t longest = seed % 100 == 0 ? N_MAX : seed % 10 == 0 ? 400 : 150;
        check_all(&e, root, 1 + (int64_t)draw(&e, longest), 1 + (uint32_t)draw(&e, HEADS_MAX), seed, NULL);
    }
}

Test(cells, random_offsets) {
    static exprs e;
    for (int seed = 10001; seed <= 10000 + (int)amount(75, 400); seed++) {
        e.seed = (uint64_t)seed;
        mc_env env = draw_env(&e, seed % 10 == 0 ? 400 : 150, true, NULL);
        int root = random_mask(&e, (uint64_t)seed, 1 + seed % 4, seed % 3 == 0);
        check_env(&e, root, &env, 1 + (uint32_t)draw(&e, HEADS_MAX), seed, NULL);
    }
}

/* One object for many lengths: what it remembers from one must be right for the next. */
Test(cells, random_masks_many_lengths) {
    static exprs e;
    for (int seed = 5001; seed <= 5000 + (int)amount(15, 150); seed++) {
        int root = random_mask(&e, (uint64_t)seed, 2 + seed % 3, seed % 3 == 0);
        mc_node *nodes;
        mc_code code = lower_mask(&e, root, &nodes);
        cells *c = cells_new(code, 2);
        for (int i = 0; i < 6; i++) check_all(&e, root, 1 + (int64_t)draw(&e, i < 5 ? 120 : 350), 2, seed, c);
        cells_free(c);
        free(nodes);
    }
}

Test(cells, prelude) {
    static const struct { enum sample s; int64_t x, y; } masks[] = {
        {SAMPLE_FULL, 0, 0}, {SAMPLE_CAUSAL, 0, 0}, {SAMPLE_WINDOW, 1, 0}, {SAMPLE_WINDOW, 130, 0},
        {SAMPLE_WINDOW_BOTH, 100, 30}, {SAMPLE_WINDOW_BOTH, 0, 200}, {SAMPLE_PREFIX, 0, 0}, {SAMPLE_PREFIX, 100, 0},
        {SAMPLE_LAMBDA, 64, 130}, {SAMPLE_LAMBDA, 4, 17}, {SAMPLE_SHARED_QUESTION, 20, 4},
        {SAMPLE_SHARED_QUESTION, 3, 9},
        {SAMPLE_CAUSAL_BLOCKWISE, 32, 2}, {SAMPLE_CAUSAL_BLOCKWISE, 50, 1}, {SAMPLE_BLOCK_CAUSAL, 100, 0},
        {SAMPLE_BLOCK_CAUSAL, 128, 0}, {SAMPLE_BLOCK_CAUSAL, 1, 0}, {SAMPLE_GLOBAL_WINDOW, 16, 60},
        {SAMPLE_GLOBAL_WINDOW, 0, 0}, {SAMPLE_DILATED, 100, 4}, {SAMPLE_DILATED, 300, 150}, {SAMPLE_DILATED, 77, 1}};
    static const int64_t lengths[] = {1, 2, 127, 128, 129, 255, 256, 257, 300, 384, 399, 513, 700};
    static exprs e;
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        e.count = 0;
        int root = sample_mask(&e, masks[i].s, masks[i].x, masks[i].y);
        mc_node *nodes;
        mc_code code = lower_mask(&e, root, &nodes);
        cells *c = cells_new(code, 1);
        if (i % 2) cells_keep_grids(c); /* then counts are made of grids of one piece */
        for (size_t j = i % amount(2, 1); j < sizeof lengths / sizeof *lengths; j += amount(2, 1)) {
            const uint64_t whole[2] = {0, (uint64_t)lengths[j]};
            const cell_entry *entries;
            size_t count;
            cr_assert_eq(cells_grid(c, MC_LENGTH(lengths[j]), whole, 1, whole, 1, &entries, &count, NULL), FCP_OK);
            check_all(&e, root, lengths[j], 1, (int)i, c);
        }
        cells_stats stats;
        cells_get_stats(c, &stats);
        cr_assert_eq(stats.elements, 0, "%s", SAMPLE_NAMES[masks[i].s]);
        cells_free(c);
        free(nodes);
    }
}

/* A question and its answers are few boxes, however long they are: their pairs need no cells. */
Test(cells, pairs_without_cells) {
    static exprs e;
    const int root = sample_mask(&e, SAMPLE_SHARED_QUESTION, 20, 4);
    const uint64_t n = 1000000, whole[2] = {0, n}, question = n / 5, answer = n / 5;
    mc_node *nodes;
    mc_code code = lower_mask(&e, root, &nodes);
    cells *c = cells_new(code, 1);
    const cell_entry *entries;
    const uint64_t *pairs;
    size_t count;
    uint32_t shapes, runs;
    const fcp_run *run;
    cr_assert_eq(cells_pairs(c, MC_LENGTH((int64_t)n), whole, 1, whole, 1, &entries, &pairs, &count, NULL), FCP_OK);
    cr_assert_eq(count, 1);
    cr_expect_eq(pairs[0], question * (question + 1) / 2 + 4 * (answer * question + answer * (answer + 1) / 2));
    cells_stats stats;
    cells_get_stats(c, &stats);
    cr_expect_lt(stats.boxes, 200, "%d boxes", (int)stats.boxes);
    cells_shapes(c, &shapes, &run, &runs);
    cr_expect_eq(shapes, 0);
    cells_free(c);
    free(nodes);
}

/* Heads with windows of their own, as ALiBi-like sparsity has them. */
Test(cells, masks_of_heads) {
    static exprs e;
    e.count = 0;
    int q = ex0(&e, MC_Q), k = ex0(&e, MC_K), h = ex0(&e, MC_H), ahead = ex2(&e, MC_SUB, q, k);
    int width = ex2(&e, MC_MUL, ex2(&e, MC_ADD, h, num(&e, 1)), num(&e, 100));
    int windows = ex2(&e, MC_AND, ex2(&e, MC_LE, k, q), ex2(&e, MC_LT, ahead, width));
    int strided = ex2(&e, MC_EQ, ex2(&e, MC_MOD, ahead, ex2(&e, MC_ADD, h, num(&e, 1))), num(&e, 0));
    int split = ex(&e, MC_IF_B, ex2(&e, MC_EQ, ex2(&e, MC_MOD, h, num(&e, 2)), num(&e, 0)), ex2(&e, MC_LE, k, q),
                   ex2(&e, MC_LE, q, k), 0);
    int fault = ex2(&e, MC_LT, ex2(&e, MC_DIV, q, ex2(&e, MC_SUB, h, num(&e, 2))), k); /* at head 2 */
    for (uint32_t heads = 1; heads <= 3; heads++) {
        check_all(&e, windows, 390, heads, 1, NULL);
        check_all(&e, strided, 200, heads, 2, NULL);
        check_all(&e, split, 300, heads, 3, NULL);
        check_all(&e, fault, 150, heads, 4, NULL);
    }
}

Test(cells, stops_when_asked) {
    static exprs e;
    e.count = 0;
    mc_node *nodes;
    mc_code code = lower_mask(&e, sample_mask(&e, SAMPLE_CAUSAL, 0, 0), &nodes);
    cells *c = cells_new(code, 1);
    volatile int stop = 1;
    cells_set_stop(c, &stop);
    cells_counts got;
    const uint64_t cuts[3] = {0, 1000, 2000};
    const cell_entry *entries;
    size_t count;
    cr_assert_eq(cells_count(c, MC_LENGTH((int64_t)(1 << 20)), &got, NULL), FCP_E_INTERRUPTED);
    cr_assert_eq(cells_grid(c, MC_LENGTH((int64_t)2000), cuts, 2, cuts, 2, &entries, &count, NULL), FCP_E_INTERRUPTED);
    stop = 0;
    cr_assert_eq(cells_grid(c, MC_LENGTH((int64_t)2000), cuts, 2, cuts, 2, &entries, &count, NULL), FCP_OK);
    cr_assert_eq(count, 3);
    cells_free(c);
    cells_free(NULL);
    free(nodes);
}

/* The same questions in the same order give the same numbers. */
Test(cells, deterministic) {
    static exprs e;
    e.count = 0;
    mc_node *nodes;
    mc_code code = lower_mask(&e, sample_mask(&e, SAMPLE_LAMBDA, 64, 1000), &nodes);
    cells *c[2] = {cells_new(code, 1), cells_new(code, 1)};
    for (uint64_t n = 100; n < 9000; n += 700) {
        const cell_entry *entries[2];
        size_t count[2];
        uint64_t cuts[CUTS_MAX];
        uint32_t pieces = even_cuts(n, 512, cuts);
        for (int i = 0; i < 2; i++)
            cr_assert_eq(cells_grid(c[i], MC_LENGTH((int64_t)n), cuts, pieces, cuts, pieces, &entries[i], &count[i],
                                    NULL),
                         FCP_OK);
        cr_assert(count[0] == count[1] && memcmp(entries[0], entries[1], count[0] * sizeof **entries) == 0);
    }
    uint32_t shapes[2], runs[2];
    const fcp_run *list[2];
    for (int i = 0; i < 2; i++) cells_shapes(c[i], &shapes[i], &list[i], &runs[i]);
    cr_assert(shapes[0] == shapes[1] && runs[0] == runs[1] && memcmp(list[0], list[1], runs[0] * sizeof **list) == 0);
    cells_free(c[0]);
    cells_free(c[1]);
    free(nodes);
}
