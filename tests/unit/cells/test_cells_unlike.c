/* test_cells_unlike.c: tests masks in which no two cells are alike, so that pairs are looked at one by one: by any
 * number of threads, once for sequences that are alike, and about as many as cells_look_ahead says. */
#define _GNU_SOURCE /* sched_setaffinity */
#include <criterion/criterion.h>
#include <sched.h>
#include <string.h>

#include "compiler/cells/cells.h"
#include "tests/support/amount.h"
#include "tests/support/cells_check.h"
#include "tests/support/mask_samples.h"

/* Masks in which no two cells are alike. Their pairs are looked at one by one, by any number of threads; the answer
 * stays the same. */
Test(cells_unlike, masks_without_structure) {
    static exprs e;
    static array_set arrays;
    e.seed = 1;
    mc_env env = {.n = 500, .queries = 500};
    draw_arrays(&e, &arrays, &env);
    env.arrays = arrays.array;
    e.count = 0;
    int q = ex0(&e, MC_Q), k = ex0(&e, MC_K), n = ex0(&e, MC_N);
    int product = ex2(&e, MC_MOD, ex2(&e, MC_MUL, q, k), num(&e, 101)), sum = ex2(&e, MC_ADD, q, k);
    int mix = ex2(&e, MC_LT, product, ex2(&e, MC_MOD, sum, num(&e, 90)));
    int field_q = ex(&e, MC_LOAD, q, -1, -1, (int)draw(&e, 3)), field_k = ex(&e, MC_LOAD, k, -1, -1, (int)draw(&e, 3));
    int noise =
        ex2(&e, MC_LT, ex2(&e, MC_MUL, field_q, field_k), ex2(&e, MC_MOD, ex2(&e, MC_MUL, sum, sum), num(&e, 701)));
    int by_length = ex2(&e, MC_EQ, ex2(&e, MC_MOD, ex2(&e, MC_MUL, sum, sum), n), ex2(&e, MC_MOD, product, num(&e, 7)));
    int heads = ex2(&e, MC_LT, product, ex2(&e, MC_MUL, ex0(&e, MC_H), num(&e, 30)));
    int causal = ex2(&e, MC_AND, ex2(&e, MC_LE, k, q), mix), periodic = ex2(&e, MC_EQ, product, num(&e, 0));
    const int masks[] = {mix, noise, by_length, heads, causal, periodic};
    cpu_set_t all, one;
    cr_assert_eq(sched_getaffinity(0, sizeof all, &all), 0);
    int first = 0;
    while (!CPU_ISSET(first, &all)) first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        mc_node *nodes;
        mc_code code = lower_mask(&e, masks[i], &nodes);
        uint64_t cuts[] = {0, 400, 500};
        cells *c[2]; /* counting on all processors, and on one */
        const cell_entry *entries[2];
        size_t count[2];
        uint64_t looked_at = 0;
        for (unsigned t = 0; t < 2; t++) {
            sched_setaffinity(0, sizeof one, t ? &one : &all);
            c[t] = cells_new(code, 2);
            cells_set_done(c[t], t ? NULL : &looked_at);
            check_env(&e, masks[i], &env, 2, (int)i, c[t]);
            cr_assert_eq(cells_grid(c[t], &env, cuts, 2, cuts, 2, &entries[t], &count[t], NULL), FCP_OK);
            cr_assert_eq(count[t], count[0]);
            cr_assert_eq(memcmp(entries[t], entries[0], count[0] * sizeof **entries), 0);
        }
        cells_stats stats;
        cells_get_stats(c[0], &stats);
        cr_assert(looked_at > 1000 && looked_at <= stats.elements, "mask %zu: %d of %d", i, (int)looked_at,
                  (int)stats.elements);
        for (int t = 0; t < 2; t++) cells_free(c[t]);
        free(nodes);
    }
}

/* Of sequences that are alike only the first has its pairs looked at. */
Test(cells_unlike, alike_sequences) {
    static exprs e;
    e.count = 0;
    mc_node *nodes;
    const int product = ex2(&e, MC_MUL, ex0(&e, MC_Q), ex0(&e, MC_K));
    const int mask = ex2(&e, MC_LT, ex2(&e, MC_MOD, product, num(&e, 1009)), num(&e, 500));
    cells *c = cells_new(lower_mask(&e, mask, &nodes), 1);
    cells_stats spent[2];
    for (int i = 0; i < 2; i++) {
        const cell_entry *entries;
        size_t count;
        uint64_t cuts[CUTS_MAX];
        const uint32_t pieces = even_cuts(5000, 512, cuts);
        cr_assert_eq(cells_grid(c, MC_LENGTH(5000), cuts, pieces, cuts, pieces, &entries, &count, NULL), FCP_OK);
        cells_get_stats(c, &spent[i]);
    }
    cr_assert(spent[0].elements > 1000000 && spent[1].work == spent[0].work);
    cells_free(c);
    free(nodes);
}

static mc_env same_env(const void *env, uint32_t sequence) {
    (void)sequence;
    return *(const mc_env *)env;
}

/* What cells_look_ahead says of one sequence; checks that it says so twice, and at little cost. */
static cells_outlook look_ahead(mc_code mask, const mc_env *env, uint64_t piece) {
    const cells_batch batch = {1, piece / FCP_CELL, same_env, env};
    cells_outlook said[2];
    for (int i = 0; i < 2; i++) {
        cells_stats spent;
        cells *c = cells_new(mask, 1);
        cr_assert_eq(cells_look_ahead(c, &batch, &said[i]), FCP_OK);
        cells_get_stats(c, &spent);
        cr_expect(spent.work < 600000000, "looking ahead costs %.3g s", 1e-9 * (double)spent.work);
        cells_free(c);
    }
    cr_expect(said[0].pairs == said[1].pairs && said[0].work == said[1].work, "the same once more");
    return said[0];
}

/* What it comes to. */
static cells_stats cost_of_grid(mc_code mask, const mc_env *env, uint64_t piece) {
    uint64_t cuts[CUTS_MAX];
    const cell_entry *entries;
    size_t count;
    cells_stats spent;
    cells *c = cells_new(mask, 1);
    const uint32_t pieces = even_cuts((uint64_t)env->n, piece, cuts);
    cr_assert_eq(cells_grid(c, env, cuts, pieces, cuts, pieces, &entries, &count, NULL), FCP_OK);
    cells_get_stats(c, &spent);
    cells_free(c);
    return spent;
}

/* A mask whose cells are unlike: a product, or a rest of a rest, with numbers that are drawn. */
static int draw_unstructured(exprs *e, uint64_t *seed, int kind) {
    const int q = ex0(e, MC_Q), k = ex0(e, MC_K), causal = ex2(e, MC_LE, k, q);
    const int prime = 1009 + (int)(splitmix(seed) % 5000), few = num(e, 1 + (int)(splitmix(seed) % (uint64_t)prime));
    int mix = ex2(e, MC_MUL, q, k);
    if (kind % 3 == 1) mix = ex2(e, MC_ADD, ex2(e, MC_MUL, q, q), ex2(e, MC_MUL, k, num(e, 31)));
    if (kind % 3 == 2)
        mix = ex2(e, MC_ADD, ex2(e, MC_MOD, ex2(e, MC_MUL, q, num(e, 7919)), num(e, 100003)),
                  ex2(e, MC_MOD, ex2(e, MC_MUL, k, num(e, 104729)), num(e, 70001)));
    const int hash = ex2(e, MC_LT, ex2(e, MC_MOD, mix, num(e, prime)), few);
    if (kind / 3 == 1) return ex2(e, MC_AND, causal, hash);
    if (kind / 3 == 2) /* a band along the diagonal */
        return ex2(e, MC_AND, ex2(e, MC_AND, causal, ex2(e, MC_LT, ex2(e, MC_SUB, q, k), num(e, 2000))), hash);
    return hash;
}

/* Of masks without structure cells_look_ahead is right within a third. */
Test(cells_unlike, look_ahead) {
    enum { KINDS = 9, TOKENS = 17000 };
    static exprs e;
    uint64_t seed = 1;
    const int kinds = amount(1, 4) * KINDS;
    for (int i = 0; i < kinds; i++) {
        e.count = 0;
        mc_node *nodes;
        const mc_code mask = lower_mask(&e, draw_unstructured(&e, &seed, i % KINDS), &nodes);
        const mc_env env = {.n = TOKENS, .queries = TOKENS};
        const cells_outlook said = look_ahead(mask, &env, 1024);
        const cells_stats spent = cost_of_grid(mask, &env, 1024);
        const double pairs = (double)said.pairs / (double)spent.elements, work = (double)said.work / (double)spent.work;
        const bool good = spent.elements ? pairs > 0.75 && pairs < 1.34 : !said.pairs; /* else rows are solved */
        cr_expect(good && work > 0.75 && work < 1.34, "mask %d: %.3g of %.3g pairs, %.3g of %.3g s", i,
                  (double)said.pairs, (double)spent.elements, 1e-9 * (double)said.work, 1e-9 * (double)spent.work);
        free(nodes);
    }
}

/* Structure is not taken for a lack of it: what memory answers, or a closed form, costs little however large it is. */
Test(cells_unlike, look_ahead_structure) {
    static exprs e;
    e.count = 0;
    const int q = ex0(&e, MC_Q), k = ex0(&e, MC_K), causal = ex2(&e, MC_LE, k, q);
    const int blocks = ex2(&e, MC_EQ, ex2(&e, MC_DIV, q, num(&e, 1000)), ex2(&e, MC_DIV, k, num(&e, 1000)));
    const int sum = ex2(&e, MC_ADD, ex2(&e, MC_MUL, q, num(&e, 7919)), ex2(&e, MC_MUL, k, num(&e, 104729)));
    const int thousand = ex2(&e, MC_LT, ex2(&e, MC_MOD, sum, num(&e, 1009)), num(&e, 100)); /* 1009 unlike cells */
    const struct {
        int mask;
        double most;
    } cases[] = {{causal, 0}, {blocks, 0.1}, {thousand, 10}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mc_node *nodes;
        const mc_code mask = lower_mask(&e, cases[i].mask, &nodes);
        const mc_env large = {.n = 1 << 20, .queries = 1 << 20}, small = {.n = 1000, .queries = 1000};
        const cells_outlook said = look_ahead(mask, &large, 1024);
        cr_expect(1e-9 * (double)said.work <= cases[i].most, "mask %zu: %.3g s", i, 1e-9 * (double)said.work);
        cr_expect_eq(look_ahead(mask, &small, 1024).work, 0, "a short one takes no time");
        free(nodes);
    }
}
