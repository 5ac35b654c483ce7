/* test_cells_fields.c: tests how masks that read arrays become cells and tiles. Random masks, masks of fields and trees
 * of rollouts are compared with every element of the mask; a mask that reads a number of each sequence is compared with
 * the mask that states it. */
#include <criterion/criterion.h>

#include "compiler/cells/cells.h"
#include "tests/support/amount.h"
#include "tests/support/cells_check.h"
#include "tests/support/mask_samples.h"

Test(cells_fields, random_fields) {
    static exprs e;
    static array_set arrays;
    unsigned faults = 0, index = 0, count = amount(250, 1500);
    for (int seed = 20001; seed <= 20000 + (int)count; seed++) {
        e.seed = (uint64_t)seed;
        mc_env env = draw_env(&e, seed % 100 == 0 ? N_MAX : seed % 10 == 0 ? 400 : 150, seed % 4 == 0, &arrays);
        int root = random_mask(&e, (uint64_t)seed, seed % 4, seed % 3 == 0);
        for (int i = 0; i < e.count; i++)
            if (e.node[i].op == MC_LOAD || e.node[i].op == MC_LOAD2) {
                index++;
                break;
            }
        faults += check_env(&e, root, &env, 1 + (uint32_t)draw(&e, HEADS_MAX), seed, NULL);
    }
    cr_assert(faults > count * 2 / 25 && faults < count * 12 / 25 && index > count * 3 / 5, "%u of %u fault, %u read",
              faults, count, index);
}

/* The parts of masks of fields: array 2, which has both positions; and arrays 0 and 1 where they are equal. */
static int field_at(exprs *e, int index, bool itself) {
    return ex(e, MC_LOAD, index, -1, -1, itself ? (int)draw(e, 3) : 2);
}

static int draw_part(exprs *e, bool itself) {
    int q = ex0(e, MC_Q), k = ex0(e, MC_K), c = num(e, (int64_t)draw(e, 200) - 20), ahead = ex2(e, MC_SUB, q, k);
    int f = field_at(e, draw(e, 2) ? q : k, itself), compare = draw(e, 2) ? MC_LT : MC_LE;
    int other = draw(e, 2) ? f : ex2(e, draw(e, 2) ? MC_ADD : MC_SUB, f, draw(e, 2) ? k : c);
    switch (draw(e, 11)) {
    case 0:
    case 1: return ex2(e, MC_LE, draw(e, 2) ? k : ex2(e, MC_SUB, k, c), q);
    case 2:
    case 3: return ex2(e, MC_EQ, field_at(e, q, itself), field_at(e, k, itself));
    case 4: return ex2(e, compare, draw(e, 2) ? q : k, other);
    case 5: return ex2(e, compare, other, draw(e, 2) ? q : k);
    case 6: return ex2(e, compare, ahead, other);
    case 7: return ex2(e, draw(e, 2) ? MC_NE : MC_EQ, f, num(e, (int64_t)draw(e, 3)));
    case 8: {
        int apart = ex2(e, MC_SUB, field_at(e, q, itself), field_at(e, k, itself));
        return ex2(e, compare, draw(e, 2) ? c : other, ex1(e, MC_ABS, apart));
    }
    case 9: {
        int w = num(e, 1 + (int64_t)draw(e, 50));
        mc_op op = draw(e, 2) ? MC_DIV : MC_MOD;
        int apart = ex2(e, MC_SUB, ex2(e, op, q, w), ex2(e, op, k, w));
        return ex2(e, compare, ex1(e, MC_ABS, apart), num(e, (int64_t)draw(e, 6)));
    }
    default: return ex2(e, compare, field_at(e, q, itself), field_at(e, k, itself));
    }
}

Test(cells_fields, masks_of_fields) {
    static exprs e;
    static array_set arrays;
    unsigned faults = 0;
    for (int seed = 40001; seed <= 40000 + (int)amount(90, 600); seed++) {
        e.seed = (uint64_t)seed;
        e.count = 0;
        bool apart = seed % 5 == 0;
        mc_env env = draw_env(&e, seed % 40 == 0 ? N_MAX : seed % 4 == 0 ? 600 : 300, apart, &arrays);
        int root = draw_part(&e, !apart);
        for (uint64_t more = draw(&e, 3); more > 0; more--)
            root = ex2(&e, draw(&e, 3) ? MC_AND : MC_OR, root, draw_part(&e, !apart));
        if (draw(&e, 10) == 0) root = ex1(&e, MC_NOT, root);
        faults += check_env(&e, root, &env, 1, seed, NULL);
    }
    cr_assert_lt(faults, 20);
}

/* Trees of rollouts in depth-first order, over positions [first, end). last: the last position of a token's subtree;
 * at: how many tokens its rollouts have before it. A stretch of tokens without a branch has at most `own` of them, and
 * a subtree at most `size` tokens. Many subtrees end about where a cell does: there an error by one is seen. */
static void draw_trees(exprs *e, int32_t *last, int32_t *at, int64_t first, int64_t end, int32_t depth, uint64_t own,
                       uint64_t size) {
    while (first < end) {
        int64_t tokens = 1 + (int64_t)draw(e, least((uint64_t)(end - first), size));
        const int64_t near = (first + tokens + 127) / 128 * 128 + (int64_t)draw(e, 4) - 2;
        if (draw(e, 2) && near > first && near <= end) tokens = near - first;
        const int64_t plain = 1 + (int64_t)draw(e, least((uint64_t)tokens, own));
        for (int64_t i = 0; i < plain; i++) last[first + i] = (int32_t)(first + tokens - 1), at[first + i] = depth++;
        draw_trees(e, last, at, first + plain, first + tokens, depth, own, size);
        depth -= (int32_t)plain;
        first += tokens;
    }
}

/* A query sees what is before it in its rollout: written in several ways, and with a window. */
static int tree_mask(exprs *e, bool window, int64_t w) {
    const int q = ex0(e, MC_Q), k = ex0(e, MC_K), last = ex(e, MC_LOAD, k, -1, -1, 0);
    int inside;
    switch (draw(e, 3)) {
    case 0: inside = ex2(e, MC_LE, q, last); break;
    case 1: inside = ex2(e, MC_LT, q, ex2(e, MC_ADD, last, num(e, 1))); break;
    default: inside = ex1(e, MC_NOT, ex2(e, MC_LT, last, q)); break;
    }
    int mask = draw(e, 2) ? ex2(e, MC_AND, ex2(e, MC_LE, k, q), inside) : ex2(e, MC_AND, inside, ex2(e, MC_LE, k, q));
    if (!window) return mask;
    const int apart = ex2(e, MC_SUB, ex(e, MC_LOAD, q, -1, -1, 1), ex(e, MC_LOAD, k, -1, -1, 1));
    return ex2(e, MC_AND, mask, ex2(e, MC_LT, apart, num(e, w)));
}

Test(cells_fields, trees_of_rollouts) {
    static exprs e;
    static int32_t last[N_MAX], at[N_MAX];
    const uint64_t own[] = {3, 40, 200, 700}, size[] = {20, 90, 300, N_MAX};
    for (int seed = 60001; seed <= 60000 + (int)amount(36, 300); seed++) {
        e.seed = (uint64_t)seed;
        e.count = 0;
        const int64_t n = seed % 6 == 0 ? N_MAX : 300 + (int64_t)draw(&e, 500), prompt = (int64_t)draw(&e, 200);
        /* a prompt that all have, and answers that branch on */
        for (int64_t i = 0; i < prompt; i++) last[i] = (int32_t)n - 1, at[i] = (int32_t)i;
        draw_trees(&e, last, at, prompt, n, (int32_t)prompt, own[seed % 4], size[seed / 4 % 4]);
        const mc_array arrays[] = {{last, 0, n, 0, MC_I32, 0, 0}, {at, 0, n, 0, MC_I32, 0, 0}};
        const int64_t queries = seed % 5 == 0 ? 1 + (int64_t)draw(&e, (uint64_t)n) : n;
        const mc_env env = {.n = n, .queries = queries, .q_first = n - queries, .arrays = arrays};
        e.arrays = arrays;
        int root = tree_mask(&e, seed % 3 == 0, 1 + (int64_t)draw(&e, 300));
        if (seed % 7 == 0) { /* the other way round: a key sees its rollout's later queries */
            const int q = ex0(&e, MC_Q), k = ex0(&e, MC_K), end = ex(&e, MC_LOAD, q, -1, -1, 0);
            root = ex2(&e, MC_AND, ex2(&e, MC_LE, k, end), ex2(&e, MC_LE, q, k));
        }
        cr_assert(!check_env(&e, root, &env, 1, seed, NULL));
    }
    e.arrays = NULL;
}

/* One object for several sequences with different data, some of which comes again. */
Test(cells_fields, random_fields_many_sequences) {
    static exprs e;
    static array_set arrays, tables;
    for (int seed = 30001; seed <= 30000 + (int)amount(20, 200); seed++) {
        e.seed = (uint64_t)seed;
        mc_env env = draw_env(&e, 100, false, &tables);
        int root = random_mask(&e, (uint64_t)seed, 1 + seed % 3, seed % 3 == 0);
        mc_node *nodes;
        mc_code code = lower_mask(&e, root, &nodes);
        cells *c = cells_new(code, 2);
        for (int i = 0; i < 6; i++) {
            env = draw_env(&e, i < 5 ? 120 : 350, i == 3, &arrays);
            for (int a = 3; a < 5 && i % 3; a++) arrays.array[a] = tables.array[a];
            check_env(&e, root, &env, 2, seed, c);
        }
        cells_free(c);
        free(nodes);
    }
}

/* A number of each sequence, which is the only element of its array, costs what a number of the program costs; and
 * sequences with equal numbers share their answers. */
Test(cells_fields, numbers_of_sequences) {
    static exprs e;
    enum { LENGTH = 5000, SEQUENCES = 6 };
    static const int64_t numbers[SEQUENCES] = {700, 700, 1300, 700, 1300, 0};
    uint64_t cuts[CUTS_MAX], before = 0;
    const uint32_t pieces = even_cuts(LENGTH, 512, cuts);
    cells *all = NULL;
    mc_node *of_all = NULL;
    for (int s = 0; s < SEQUENCES; s++) {
        const mc_array array = {.data = &numbers[s], .count = 1, .width = MC_I64};
        const mc_env env = {.n = LENGTH, .queries = LENGTH, .arrays = &array};
        cells_counts counts[2];
        cells_stats stats[2], spent;
        for (int plain = 0; plain < 2; plain++) { /* k <= q or k < number */
            e.count = 0;
            const int number = plain ? num(&e, numbers[s]) : ex(&e, MC_LOAD, num(&e, 0), -1, -1, 0);
            const int early = ex2(&e, MC_LT, ex0(&e, MC_K), number);
            mc_node *nodes;
            const int causal = ex2(&e, MC_LE, ex0(&e, MC_K), ex0(&e, MC_Q));
            const mc_code code = lower_mask(&e, ex2(&e, MC_OR, causal, early), &nodes);
            cells *c = cells_new(code, 1);
            cr_assert_eq(cells_count(c, &env, &counts[plain], NULL), FCP_OK);
            cells_get_stats(c, &stats[plain]);
            cells_free(c);
            if (!plain && !all) {
                all = cells_new(code, 1);
                cells_keep_grids(all);
                of_all = nodes;
            } else {
                free(nodes);
            }
        }
        cr_expect_eq(counts[0].pairs, counts[1].pairs);
        cr_expect_eq(counts[0].pairs, LENGTH * (LENGTH + 1) / 2 + (uint64_t)(numbers[s] * (numbers[s] - 1) / 2));
        cr_expect(stats[0].boxes == stats[1].boxes && stats[0].work < stats[1].work + 100, "sequence %d", s);
        const cell_entry *entries;
        size_t count;
        cr_assert_eq(cells_grid(all, &env, cuts, pieces, cuts, pieces, &entries, &count, NULL), FCP_OK);
        cells_get_stats(all, &spent);
        const bool again = s == 1 || s == 3 || s == 4;
        cr_expect_eq(spent.work == before, again, "sequence %d", s);
        before = spent.work;
    }
    cells_free(all);
    free(of_all);
}
