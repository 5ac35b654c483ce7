/* test_blind.c: tests the search for queries that see no key against every element, with queries that have an
 * offset and masks that read arrays. */
#include "compiler/cells/blind.h"
#include "tests/support/mask_samples.h"

#include <criterion/criterion.h>

enum { EFFORT = 1 << 20 };

/* Compares with all elements; returns how many rows see nothing, or -1 where some element faults. */
static int64_t agrees(blind *shared, const exprs *e, int root, const mc_env *env, uint32_t heads, int seed) {
    mc_node *nodes;
    mc_code code = lower_mask(e, root, &nodes);
    if (!(mc_uses(code) & MC_USES_H)) heads = 1;
    blind_rows want = {0}, got;
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
        blind *b = shared ? shared : blind_new(code, heads, EFFORT);
        cr_assert_eq(blind_find(b, env, &got), FCP_OK);
        cr_assert(!got.at_least && got.rows == want.rows, "seed %d: %d rows, not %d", seed, (int)got.rows,
                  (int)want.rows);
        if (want.rows)
            cr_assert(got.first == want.first && got.end == want.end && got.head == want.head,
                      "seed %d: %d..%d, not %d..%d", seed, (int)got.first, (int)got.end, (int)want.first,
                      (int)want.end);
        cr_assert(!blind_never(b) || !want.rows, "seed %d", seed);
        if (!shared) blind_free(b);
    }
    free(nodes);
    return faults ? -1 : (int64_t)want.rows;
}

Test(blind, random_offsets_and_fields) {
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

/* One object and one mask of q - k: what was learnt from one sequence must not be used for queries at another
 * offset. */
Test(blind, distances_at_offsets) {
    static exprs e;
    e.count = e.array_count = 0;
    int ahead = ex2(&e, MC_SUB, ex0(&e, MC_Q), ex0(&e, MC_K));
    int root = ex2(&e, MC_AND, ex2(&e, MC_LE, num(&e, 10), ahead), ex2(&e, MC_LT, ahead, num(&e, 20)));
    mc_node *nodes;
    mc_code code = lower_mask(&e, root, &nodes);
    blind *b = blind_new(code, 1, EFFORT);
    cr_assert_eq(agrees(b, &e, root, MC_LENGTH(100), 1, 0), 10);
    for (int64_t first = -50; first < 150; first += 7)
        for (int64_t queries = 0; queries < 90; queries += 11) {
            const mc_env env = {.n = 60, .q_first = first, .queries = queries};
            agrees(b, &e, root, &env, 1, (int)first);
        }
    cr_assert_eq(agrees(b, &e, root, &(mc_env){.n = 0, .queries = 5}, 1, 0), 5);
    blind_free(b);
    free(nodes);
}
