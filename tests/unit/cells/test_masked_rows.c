/* test_masked_rows.c: tests the search for queries that see no key against every element, with queries that have an
 * offset and masks that read arrays. */
#include "compiler/cells/masked_rows.h"
#include "tests/support/mask_samples.h"

#include <criterion/criterion.h>

enum { FAULTS = -1 };

/* Compares with all elements; returns how many rows see nothing, or FAULTS where some element does. */
static int64_t agrees(row_search *shared, const exprs *e, int root, const mc_env *env, uint32_t heads, int seed) {
    mc_node *nodes;
    mc_code code = lower_mask(e, root, &nodes);
    if (!(mc_uses(code) & MC_USES_H)) heads = 1;
    masked_rows want = {0}, got = {0};
    bool faults = false;
    for (uint32_t h = 0; h < heads; h++)
        for (int64_t i = 0; i < env->queries; i++) {
            bool any = false;
            for (int64_t k = 0; k < env->n; k++) {
                mc_fault fault = MC_OK;
                any |= expr_value(e, root, env->q_first + i, k, env->n, h, &fault) != 0;
                faults |= fault != MC_OK;
            }
            if (any) continue;
            if (!want.rows++) want.first = (uint64_t)i, want.end = (uint64_t)i + 1, want.head = h;
            else if (want.end == (uint64_t)i && want.head == h) want.end++;
        }
    if (!faults) {
        row_search *s = shared ? shared : row_search_new(code, heads);
        cr_assert_eq(masked_rows_find(s, env, &got), FCP_OK);
        cr_assert(!got.at_least && got.rows == want.rows, "seed %d: %d rows, not %d", seed, (int)got.rows,
                  (int)want.rows);
        if (got.rows)
            cr_assert(got.first == want.first && got.end == want.end && got.head == want.head,
                      "seed %d: %d..%d, not %d..%d", seed, (int)got.first, (int)got.end, (int)want.first,
                      (int)want.end);
        cr_assert(!masked_rows_never(s) || !want.rows, "seed %d", seed);
        if (!shared) row_search_free(s);
    }
    free(nodes);
    return faults ? FAULTS : (int64_t)want.rows;
}

Test(masked_rows, random_offsets_and_fields) {
    static exprs e;
    static array_set arrays;
    unsigned some = 0, none = 0;
    for (int seed = 1; seed <= 3000; seed++) {
        e.seed = (uint64_t)seed;
        e.array_count = 0;
        mc_env env = {.n = 1 + (int64_t)draw(&e, 150)};
        env.queries = seed % 2 ? 1 + (int64_t)draw(&e, 150) : env.n;
        if (seed % 2) env.q_first = draw(&e, 2) ? env.n - env.queries : (int64_t)draw(&e, 300) - 150;
        if (seed % 3) draw_arrays(&e, &arrays, &env), env.arrays = arrays.array;
        int root = random_mask(&e, (uint64_t)seed, seed % 3, seed % 4 == 0);
        if (seed % 5 == 0) root = ex2(&e, MC_AND, root, ex2(&e, MC_LE, ex0(&e, MC_K), ex0(&e, MC_Q)));
        int64_t rows = agrees(NULL, &e, root, &env, 1 + (uint32_t)draw(&e, 2), seed);
        some += rows > 0;
        none += rows == 0;
    }
    cr_assert(some > 400 && none > 400, "%u %u", some, none);
}

/* One object and one mask of q - k, of some ranges of distances: what was learnt from
 * one sequence must not be used for queries at another offset. */
Test(masked_rows, distances_at_offsets) {
    static exprs e;
    int64_t some = 0;
    for (int seed = 1; seed <= 60; seed++) {
        e.seed = (uint64_t)seed;
        e.count = e.array_count = 0;
        int d = ex2(&e, MC_SUB, ex0(&e, MC_Q), ex0(&e, MC_K)), root = ex2(&e, MC_EQ, d, num(&e, 1000));
        for (int i = seed % 4; i >= 0; i--) {
            const int64_t from = (int64_t)draw(&e, 300) - 150, length = seed % 3 ? 1 + (int64_t)draw(&e, 30) : 400;
            int range = ex2(&e, MC_AND, ex2(&e, MC_LE, num(&e, from), d), ex2(&e, MC_LT, d, num(&e, from + length)));
            root = ex2(&e, MC_OR, root, range);
        }
        mc_node *nodes;
        mc_code code = lower_mask(&e, root, &nodes);
        row_search *s = row_search_new(code, 1);
        agrees(s, &e, root, MC_LENGTH(100), 1, seed);
        for (int64_t first = -200; first < 200; first += 37)
            for (int64_t queries = 0; queries < 200; queries += 61) {
                const int64_t rows = agrees(s, &e, root, &(mc_env){.n = 60, .q_first = first, .queries = queries}, 1, seed);
                cr_assert_geq(rows, 0, "seed %d", seed);
                some += rows;
            }
        cr_assert_eq(agrees(s, &e, root, &(mc_env){.n = 0, .queries = 5}, 1, seed), 5);
        row_search_free(s);
        free(nodes);
    }
    cr_assert_gt(some, 1000);
}
