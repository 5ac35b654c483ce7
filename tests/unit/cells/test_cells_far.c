/* test_cells_far.c: tests cells of sequences that are too long to look at every element: a million tokens and more, up
 * to the longest that there may be. Pairs are compared with sums over rows, and one faulty element is found. */
#include <criterion/criterion.h>

#include "compiler/cells/cells.h"
#include "tests/support/cells_check.h"
#include "tests/support/mask_samples.h"

/* A million tokens and more: closed forms, little memory, few boxes, no elements. */
Test(cells_far, long_sequences) {
    static const struct {
        enum sample s;
        int64_t x, y;
    } masks[] = {{SAMPLE_FULL, 0, 0},
                 {SAMPLE_CAUSAL, 0, 0},
                 {SAMPLE_WINDOW, 4096, 0},
                 {SAMPLE_WINDOW_BOTH, 4096, 100},
                 {SAMPLE_PREFIX, 1000, 0},
                 {SAMPLE_LAMBDA, 64, 4096},
                 {SAMPLE_SHARED_QUESTION, 20, 4},
                 {SAMPLE_CAUSAL_BLOCKWISE, 256, 2},
                 {SAMPLE_BLOCK_CAUSAL, 1000, 0},
                 {SAMPLE_BLOCK_CAUSAL, 4096, 0},
                 {SAMPLE_GLOBAL_WINDOW, 64, 4096},
                 {SAMPLE_DILATED, 4096, 4}};
    static exprs e;
    const uint64_t n = 1 << 20, side = n / FCP_CELL;
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        e.count = 0;
        mc_node *nodes;
        mc_code code = lower_mask(&e, sample_mask(&e, masks[i].s, masks[i].x, masks[i].y), &nodes);
        cells *c = cells_new(code, 1);
        cells_counts got;
        cells_stats stats;
        cr_assert_eq(cells_count(c, MC_LENGTH((int64_t)n), &got, NULL), FCP_OK);
        cells_get_stats(c, &stats);
        uint64_t pairs = 0; /* row by row */
        for (uint64_t q = 0; q < n; q++) {
            uint64_t w = (uint64_t)masks[i].x, v = (uint64_t)masks[i].y, up = n - 1 - q;
            switch (masks[i].s) {
            case SAMPLE_FULL: pairs += n; break;
            case SAMPLE_CAUSAL: pairs += q + 1; break;
            case SAMPLE_WINDOW: pairs += least(q + 1, w); break;
            case SAMPLE_WINDOW_BOTH: pairs += least(q, w) + 1 + least(up, v); break;
            case SAMPLE_PREFIX: pairs += q + 1 > w ? q + 1 : w; break;
            case SAMPLE_LAMBDA: pairs += least(q + 1, w + v); break;
            case SAMPLE_SHARED_QUESTION: {
                uint64_t question = n * w / 100, each = (n - question) / v;
                if (q < question) pairs += q + 1;
                else pairs += question + q + 1 - (question + least((q - question) / each, v - 1) * each);
                break;
            }
            case SAMPLE_CAUSAL_BLOCKWISE:
                if (q / w == 0 || q / w == (n - 1) / w) pairs += q + 1;
                else pairs += w + (q + 1 - (q - v * w > w && q > v * w ? q - v * w : w));
                break;
            case SAMPLE_BLOCK_CAUSAL: pairs += least(n, (q / w + 1) * w); break;
            case SAMPLE_GLOBAL_WINDOW: {
                uint64_t from = q > v ? q - v : 0, row = least(q, v) + 1 + least(up, v);
                pairs += q < w ? n : row + (from < w ? from : w);
                break;
            }
            default: pairs += least(q, w) / v + 1 + least(up, w) / v; break;
            }
        }
        cr_assert_eq(got.pairs, pairs, "%s: %llu, not %llu", SAMPLE_NAMES[masks[i].s], (unsigned long long)got.pairs,
                     (unsigned long long)pairs);
        cr_assert_eq(got.full + got.partial + got.none, side * side);
        cr_assert_eq(stats.elements, 0);
        cr_assert_lt(stats.boxes, 20000, "%s: %d boxes", SAMPLE_NAMES[masks[i].s], (int)stats.boxes);
        cr_assert_lt(stats.bytes, 4 << 20, "%s: %d bytes", SAMPLE_NAMES[masks[i].s], (int)stats.bytes);
        /* the same cells, as a list */
        const uint64_t some = 1 << 15;
        uint64_t cuts[17], listed = 0, full = 0, partial = 0;
        for (uint32_t j = 0; j <= 16; j++) cuts[j] = j * (some / 16);
        const cell_entry *entries;
        size_t count;
        cr_assert_eq(cells_count(c, MC_LENGTH((int64_t)some), &got, NULL), FCP_OK);
        cr_assert_eq(cells_grid(c, MC_LENGTH((int64_t)some), cuts, 16, cuts, 16, &entries, &count, NULL), FCP_OK);
        uint32_t shape_count, run_count;
        const fcp_run *runs;
        const fcp_shape_rec *shapes = cells_shapes(c, &shape_count, &runs, &run_count);
        for (size_t j = 0; j < count; j++) {
            const fcp_shape_rec *s = &shapes[entries[j].shape];
            listed += s->pairs;
            for (uint32_t r = s->first_run; r < s->first_run + s->runs; r++)
                *(runs[r].cls == FCP_CELL_FULL ? &full : &partial) += runs[r].count;
        }
        cr_assert(listed == got.pairs && full == got.full && partial == got.partial, "%s", SAMPLE_NAMES[masks[i].s]);
        cells_free(c);
        free(nodes);
    }
}

Test(cells_far, lengths_at_the_limit) {
    static exprs e;
    e.count = 0;
    mc_node *nodes;
    cells_counts got;
    mc_code code = lower_mask(&e, sample_mask(&e, SAMPLE_WINDOW, 4096, 0), &nodes);
    cells *c = cells_new(code, 1);
    const uint64_t n = (uint64_t)1 << 38;
    cr_assert_eq(cells_count(c, MC_LENGTH((int64_t)n), &got, NULL), FCP_OK);
    cr_assert_eq(got.pairs, 4096 * (n - 4096) + 4096 * 4097 / 2);
    cr_assert_eq(cells_count(c, MC_LENGTH((int64_t)((uint64_t)1 << 40)), &got, NULL), FCP_E_PLAN_SIZE,
                 "cells do not fit 64 bits");
    /* pieces far out */
    const uint64_t far = ((uint64_t)1 << 40) - 4096, cuts[3] = {far, far + 2048, far + 4096};
    const cell_entry *entries;
    size_t count;
    cr_assert_eq(cells_grid(c, MC_LENGTH((int64_t)((uint64_t)1 << 40)), cuts, 2, cuts, 2, &entries, &count, NULL),
                 FCP_OK);
    cr_assert_eq(count, 3);
    const uint64_t wide[2] = {0, (uint64_t)1 << 33};
    cr_assert_eq(cells_grid(c, MC_LENGTH((int64_t)((uint64_t)1 << 40)), wide, 1, wide, 1, &entries, &count, NULL),
                 FCP_E_PLAN_SIZE);
    cells_free(c);
    free(nodes);
    e.count = 0;
    code = lower_mask(&e, truth(&e, true), &nodes);
    c = cells_new(code, 1);
    cr_assert_eq(cells_count(c, MC_LENGTH((int64_t)((uint64_t)1 << 31)), &got, NULL), FCP_OK);
    cr_assert_eq(got.pairs, (uint64_t)1 << 62);
    cr_assert_eq(cells_count(c, MC_LENGTH((int64_t)((uint64_t)1 << 33)), &got, NULL), FCP_E_PLAN_SIZE,
                 "pairs do not fit 64 bits");
    cells_free(c);
    free(nodes);
}

Test(cells_far, faults_far_away) {
    static exprs e;
    e.count = 0;
    int q = ex0(&e, MC_Q), k = ex0(&e, MC_K), n = ex0(&e, MC_N);
    /* one element in 2^40: q = 777777, k = 123456 */
    int zero = ex2(&e, MC_ADD, ex1(&e, MC_ABS, ex2(&e, MC_SUB, q, num(&e, 777777))),
                   ex1(&e, MC_ABS, ex2(&e, MC_SUB, k, num(&e, 123456))));
    int one = ex2(&e, MC_LT, ex2(&e, MC_DIV, n, zero), k);
    int never = ex2(&e, MC_AND, ex2(&e, MC_LT, num(&e, 0), zero), one);        /* guarded */
    int beyond = ex2(&e, MC_LT, ex2(&e, MC_MOD, q, ex2(&e, MC_SUB, q, n)), k); /* zero only at q = n */
    int square = ex2(&e, MC_LT, ex2(&e, MC_MUL, ex2(&e, MC_MUL, q, q), ex2(&e, MC_MUL, q, q)), k); /* q >= 55109 */
    struct {
        int mask;
        fcp_code want;
    } cases[] = {{one, FCP_E_MASK_DIV_ZERO}, {never, FCP_OK}, {beyond, FCP_OK}, {square, FCP_E_MASK_OVERFLOW}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mc_node *nodes;
        mc_code code = lower_mask(&e, cases[i].mask, &nodes);
        cells *c = cells_new(code, 1);
        const uint64_t tokens = 1 << 20, cuts[3] = {0, tokens / 2, tokens};
        cells_counts got;
        cells_fault fault = {0};
        const cell_entry *entries;
        size_t count;
        if (i != 1 && i != 2) { /* these two have a boundary everywhere: the list would be too long for a test */
            cr_assert_eq(cells_count(c, MC_LENGTH((int64_t)tokens), &got, &fault), cases[i].want, "case %zu", i);
            if (i == 0) cr_assert(fault.q == 777777 && fault.k == 123456 && fault.n == (int64_t)tokens);
            if (i == 3) cr_assert_geq(fault.q, 55109);
            cr_assert_eq(cells_grid(c, MC_LENGTH((int64_t)tokens), cuts, 2, cuts, 2, &entries, &count, &fault),
                         cases[i].want);
            if (i == 0) cr_assert(fault.q == 777777 && fault.k == 123456);
        } else {
            cr_assert_eq(cells_count(c, MC_LENGTH((int64_t)3000), &got, &fault), FCP_OK, "case %zu", i);
        }
        cells_free(c);
        free(nodes);
    }
}
