/* test_cells.c: tests how masks become cells and tiles. Counts, classes, entries, shapes and faults are compared
 * with every element of the mask. */
#define _GNU_SOURCE /* sched_setaffinity */
#include "compiler/cells/cells.h"
#include "tests/support/amount.h"
#include "tests/support/mask_samples.h"

#include <criterion/criterion.h>
#include <sched.h>
#include <string.h>

enum { N_MAX = 1200, HEADS_MAX = 3, CUTS_MAX = 80 };

static fcp_code fault_code(mc_fault f) {
    return f == MC_DIV_ZERO ? FCP_E_MASK_DIV_ZERO : f == MC_INDEX ? FCP_E_MASK_INDEX : FCP_E_MASK_OVERFLOW;
}


/* Every element of a mask: 0, 1 or 2 for a fault. Queries are counted from the first. */
typedef struct table {
    mc_env env;
    int64_t n, queries;
    uint32_t heads; /* 1 if the mask does not name h */
    bool faults;
    uint8_t at[N_MAX * N_MAX * HEADS_MAX];
} table;

static uint8_t element(const table *t, uint64_t q, uint64_t k, uint32_t h) {
    return t->at[(q * (uint64_t)t->n + k) * t->heads + h];
}

static void fill(table *t, const exprs *e, int root, const mc_env *env, uint32_t heads) {
    t->env = *env;
    t->queries = env->queries;
    const int64_t n = t->n = env->n;
    t->heads = heads;
    t->faults = false;
    uint8_t *to = t->at;
    for (int64_t q = env->q_first; q < env->q_first + env->queries; q++)
        for (int64_t k = 0; k < n; k++)
            for (uint32_t h = 0; h < heads; h++) {
                mc_fault fault = MC_OK;
                int64_t value = expr_value(e, root, q, k, n, h, &fault);
                t->faults |= fault != MC_OK;
                *to++ = fault ? 2 : (uint8_t)value;
            }
}

typedef struct sums {
    uint64_t pairs, area;
    bool faults;
} sums;

static sums sum(const table *t, uint64_t q0, uint64_t q1, uint64_t k0, uint64_t k1) {
    sums s = {0};
    for (uint64_t q = q0; q < q1; q++)
        for (uint64_t k = k0; k < k1; k++)
            for (uint32_t h = 0; h < t->heads; h++) {
                uint8_t x = element(t, q, k, h);
                s.pairs += x == 1;
                s.faults |= x == 2;
                s.area++;
            }
    return s;
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

static void check_witness(const table *t, fcp_code code, const cells_fault *f, uint64_t q0, uint64_t q1, uint64_t k0,
                          uint64_t k1, int seed) {
    const uint64_t q = (uint64_t)(f->q - t->env.q_first);
    cr_assert(code == FCP_E_MASK_DIV_ZERO || code == FCP_E_MASK_OVERFLOW || code == FCP_E_MASK_INDEX,
              "seed %d: a fault missed (%s)", seed, fcp_code_name(code));
    cr_assert_eq(code, fault_code(f->kind), "seed %d", seed);
    cr_assert(f->n == t->n && q >= q0 && q < q1 && (uint64_t)f->k >= k0 &&
              (uint64_t)f->k < k1 && f->h >= 0 && f->h < t->heads, "seed %d: a witness outside", seed);
    cr_assert_eq(element(t, q, (uint64_t)f->k, (uint32_t)f->h), 2, "seed %d: no fault there", seed);
}

static void check_count(cells *c, const table *t, int seed) {
    cells_counts got, want = {0};
    cells_fault fault = {0};
    uint64_t n = (uint64_t)t->n, queries = (uint64_t)t->queries;
    fcp_code code = cells_count(c, &t->env, &got, &fault);
    if (t->faults) {
        check_witness(t, code, &fault, 0, queries, 0, n, seed);
        return;
    }
    cr_assert_eq(code, FCP_OK, "seed %d: %s", seed, fcp_code_name(code));
    for (uint64_t q = 0; q < queries; q += FCP_CELL)
        for (uint64_t k = 0; k < n; k += FCP_CELL) {
            sums s = sum(t, q, least(queries, q + FCP_CELL), k, least(n, k + FCP_CELL));
            want.pairs += s.pairs;
            if (s.pairs == s.area) want.full++;
            else if (s.pairs == 0) want.none++;
            else want.partial++;
        }
    cr_assert(got.pairs == want.pairs && got.full == want.full && got.none == want.none && got.partial == want.partial,
              "seed %d n %d: pairs %d %d, full %d %d, none %d %d, partial %d %d", seed, (int)n, (int)got.pairs,
              (int)want.pairs, (int)got.full, (int)want.full, (int)got.none, (int)want.none, (int)got.partial,
              (int)want.partial);
}

static void check_shape(const table *t, const fcp_shape_rec *s, const fcp_run *runs, uint64_t q0, uint64_t k0,
                        int seed) {
    uint8_t cls[(N_MAX + 127) / 128][(N_MAX + 127) / 128] = {{0}};
    uint32_t row = 0, col = 0, last = 0;
    for (uint32_t i = 0; i < s->runs; i++) {
        const fcp_run *r = &runs[s->first_run + i];
        cr_assert(r->count > 0 && (r->cls == FCP_CELL_FULL || r->cls == FCP_CELL_PARTIAL), "seed %d", seed);
        cr_assert(i == 0 || r->row > row || (r->row == row && r->col >= col), "seed %d: runs out of order", seed);
        cr_assert(i == 0 || r->row != row || r->col != col || r->cls != last, "seed %d: runs not merged", seed);
        for (uint32_t j = 0; j < r->count; j++) cls[r->row][r->col + j] = (uint8_t)r->cls;
        row = r->row;
        col = r->col + r->count;
        last = r->cls;
    }
    for (uint32_t r = 0; r * 128 < s->q_length; r++)
        for (uint32_t c = 0; c * 128 < s->k_length; c++) {
            sums x = sum(t, q0 + r * 128, q0 + least(s->q_length, r * 128 + 128), k0 + c * 128,
                         k0 + least(s->k_length, c * 128 + 128));
            unsigned want = x.pairs == 0 ? 0 : x.pairs == x.area ? FCP_CELL_FULL : FCP_CELL_PARTIAL;
            cr_assert_eq(cls[r][c], want, "seed %d: cell (%u, %u) is %u, not %u", seed, r, c, cls[r][c], want);
        }
}

static void check_grid(cells *c, const table *t, const uint64_t *q_cuts, uint32_t q_pieces, const uint64_t *k_cuts,
                       uint32_t k_pieces, int seed) {
    const cell_entry *entries;
    size_t count, at = 0;
    cells_fault fault = {0};
    fcp_code code = cells_grid(c, &t->env, q_cuts, q_pieces, k_cuts, k_pieces, &entries, &count, &fault);
    if (sum(t, q_cuts[0], q_cuts[q_pieces], k_cuts[0], k_cuts[k_pieces]).faults) {
        check_witness(t, code, &fault, q_cuts[0], q_cuts[q_pieces], k_cuts[0], k_cuts[k_pieces], seed);
        return;
    }
    cr_assert_eq(code, FCP_OK, "seed %d: %s", seed, fcp_code_name(code));
    uint32_t shape_count, run_count;
    const fcp_run *runs;
    const fcp_shape_rec *shapes = cells_shapes(c, &shape_count, &runs, &run_count);
    for (uint32_t i = 0; i < q_pieces; i++)
        for (uint32_t j = 0; j < k_pieces; j++) {
            uint64_t pairs = sum(t, q_cuts[i], q_cuts[i + 1], k_cuts[j], k_cuts[j + 1]).pairs;
            bool here = at < count && entries[at].q_piece == i && entries[at].k_piece == j;
            cr_assert_eq(here, pairs > 0, "seed %d: entry (%u, %u)", seed, i, j);
            if (!here) continue;
            cr_assert_lt(entries[at].shape, shape_count);
            const fcp_shape_rec *s = &shapes[entries[at++].shape];
            cr_assert(s->first_run + s->runs <= run_count);
            cr_assert(s->q_length == q_cuts[i + 1] - q_cuts[i] && s->k_length == k_cuts[j + 1] - k_cuts[j],
                      "seed %d", seed);
            cr_assert_eq(s->pairs, pairs, "seed %d: (%u, %u) has %d pairs, not %d", seed, i, j, (int)s->pairs,
                         (int)pairs);
            check_shape(t, s, runs, q_cuts[i], k_cuts[j], seed);
        }
    cr_assert_eq(at, count, "seed %d: entries to spare", seed);
    for (uint32_t i = 0; i < shape_count; i++) /* one number per shape */
        for (uint32_t j = i + 1; j < shape_count && shape_count < 40; j++)
            cr_assert(shapes[i].q_length != shapes[j].q_length || shapes[i].k_length != shapes[j].k_length ||
                      shapes[i].pairs != shapes[j].pairs || shapes[i].runs != shapes[j].runs ||
                      memcmp(runs + shapes[i].first_run, runs + shapes[j].first_run,
                             shapes[i].runs * sizeof *runs) != 0,
                      "seed %d: shape twice", seed);
}

/* The pairs alone. */
static void check_pairs(cells *c, const table *t, const uint64_t *q_cuts, uint32_t q_pieces, const uint64_t *k_cuts,
                        uint32_t k_pieces, int seed) {
    const cell_entry *entries;
    const uint64_t *pairs;
    size_t count, at = 0;
    cells_fault fault = {0};
    fcp_code code = cells_pairs(c, &t->env, q_cuts, q_pieces, k_cuts, k_pieces, &entries, &pairs, &count, &fault);
    if (sum(t, q_cuts[0], q_cuts[q_pieces], k_cuts[0], k_cuts[k_pieces]).faults) {
        check_witness(t, code, &fault, q_cuts[0], q_cuts[q_pieces], k_cuts[0], k_cuts[k_pieces], seed);
        return;
    }
    cr_assert_eq(code, FCP_OK, "seed %d: %s", seed, fcp_code_name(code));
    for (uint32_t i = 0; i < q_pieces; i++)
        for (uint32_t j = 0; j < k_pieces; j++) {
            const uint64_t want = sum(t, q_cuts[i], q_cuts[i + 1], k_cuts[j], k_cuts[j + 1]).pairs;
            const bool here = at < count && entries[at].q_piece == i && entries[at].k_piece == j;
            cr_assert_eq(here, want > 0, "seed %d: entry (%u, %u)", seed, i, j);
            if (here) cr_assert_eq(pairs[at++], want, "seed %d: pairs of (%u, %u)", seed, i, j);
        }
    cr_assert_eq(at, count, "seed %d: entries to spare", seed);
}

static uint32_t random_cuts(exprs *e, uint64_t n, uint64_t cuts[CUTS_MAX]) {
    uint32_t count = 0;
    cuts[0] = draw(e, 3) ? 0 : draw(e, n);
    uint64_t longest = 1 + draw(e, 300);
    while (cuts[count] < n && count < CUTS_MAX - 1) {
        cuts[count + 1] = least(n, cuts[count] + 1 + draw(e, longest));
        count++;
    }
    return count;
}

static uint32_t even_cuts(uint64_t n, uint64_t block, uint64_t cuts[CUTS_MAX]) {
    uint32_t count = 0;
    for (uint64_t at = 0; at < n; at += block) cuts[count++] = at;
    cuts[count] = n;
    return count;
}

/* Returns whether some element faults. */
static bool check_env(const exprs *e, int root, const mc_env *env, uint32_t heads, int seed, cells *shared) {
    static table t;
    static exprs dice;
    mc_node *nodes;
    mc_code code = lower_mask(e, root, &nodes);
    cells *c = shared ? shared : cells_new(code, heads);
    cr_assert_not_null(c);
    const uint64_t n = (uint64_t)env->n, queries = (uint64_t)env->queries;
    fill(&t, e, root, env, mc_uses(code) & MC_USES_H ? heads : 1);
    dice.seed = (uint64_t)seed * 7919 + n;
    check_count(c, &t, seed);
    for (int i = 0; i < 4; i++) {
        uint64_t q_cuts[CUTS_MAX], k_cuts[CUTS_MAX];
        static const uint64_t blocks[] = {128, 256, 384, 100, 512, 61};
        uint64_t block = blocks[draw(&dice, 6)];
        while (block * (CUTS_MAX - 2) < n || block * (CUTS_MAX - 2) < queries) block *= 2;
        bool itself = queries == n && i != 2;
        uint32_t q_pieces = i == 0 ? even_cuts(queries, block, q_cuts) : random_cuts(&dice, queries, q_cuts), k_pieces;
        if (itself) memcpy(k_cuts, q_cuts, sizeof q_cuts), k_pieces = q_pieces;
        else k_pieces = i == 0 ? even_cuts(n, block, k_cuts) : random_cuts(&dice, n, k_cuts);
        if (i < 2) check_pairs(c, &t, q_cuts, q_pieces, k_cuts, k_pieces, seed);
        check_grid(c, &t, q_cuts, q_pieces, k_cuts, k_pieces, seed);
        if (i == 2) check_pairs(c, &t, q_cuts, q_pieces, k_cuts, k_pieces, seed);
        if (i % 2) check_grid(c, &t, q_cuts, q_pieces, k_cuts, k_pieces, seed); /* now from memory */
    }
    if (!shared) cells_free(c);
    free(nodes);
    return t.faults;
}

static void check_all(const exprs *e, int root, int64_t n, uint32_t heads, int seed, cells *shared) {
    check_env(e, root, MC_LENGTH(n), heads, seed, shared);
}

Test(cells, random_masks) {
    static exprs e;
    for (int seed = 1; seed <= (int)amount(150, 900); seed++) {
        int root = random_mask(&e, (uint64_t)seed, 1 + seed % 4, seed % 3 == 0);
        uint64_t longest = seed % 100 == 0 ? N_MAX : seed % 10 == 0 ? 400 : 150;
        check_all(&e, root, 1 + (int64_t)draw(&e, longest), 1 + (uint32_t)draw(&e, HEADS_MAX), seed, NULL);
    }
}

/* Of sequences that are alike only the first has its pairs looked at. */
Test(cells, alike_sequences) {
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

/* A number of each sequence, which is the only element of its array, costs what a number of the program costs; and
 * sequences with equal numbers share their answers. */
Test(cells, numbers_of_sequences) {
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

/* An environment for a random mask: queries and keys the same, or queries at any offset. */
static mc_env draw_env(exprs *e, uint64_t longest, bool apart, array_set *arrays) {
    mc_env env = {.n = 1 + (int64_t)draw(e, longest)};
    env.queries = apart ? 1 + (int64_t)draw(e, longest) : env.n;
    if (apart) env.q_first = draw(e, 2) ? env.n - env.queries : (int64_t)draw(e, 2 * longest) - (int64_t)longest;
    if (arrays) draw_arrays(e, arrays, &env), env.arrays = arrays->array;
    return env;
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

Test(cells, random_fields) {
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
    case 0: case 1: return ex2(e, MC_LE, draw(e, 2) ? k : ex2(e, MC_SUB, k, c), q);
    case 2: case 3: return ex2(e, MC_EQ, field_at(e, q, itself), field_at(e, k, itself));
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

Test(cells, masks_of_fields) {
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

Test(cells, trees_of_rollouts) {
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
Test(cells, random_fields_many_sequences) {
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

/* A million tokens and more: closed forms, little memory, few boxes, no elements. */
Test(cells, long_sequences) {
    static const struct { enum sample s; int64_t x, y; } masks[] = {
        {SAMPLE_FULL, 0, 0}, {SAMPLE_CAUSAL, 0, 0}, {SAMPLE_WINDOW, 4096, 0}, {SAMPLE_WINDOW_BOTH, 4096, 100},
        {SAMPLE_PREFIX, 1000, 0}, {SAMPLE_LAMBDA, 64, 4096}, {SAMPLE_SHARED_QUESTION, 20, 4},
        {SAMPLE_CAUSAL_BLOCKWISE, 256, 2}, {SAMPLE_BLOCK_CAUSAL, 1000, 0}, {SAMPLE_BLOCK_CAUSAL, 4096, 0},
        {SAMPLE_GLOBAL_WINDOW, 64, 4096}, {SAMPLE_DILATED, 4096, 4}};
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

Test(cells, lengths_at_the_limit) {
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

Test(cells, faults_far_away) {
    static exprs e;
    e.count = 0;
    int q = ex0(&e, MC_Q), k = ex0(&e, MC_K), n = ex0(&e, MC_N);
    /* one element in 2^40: q = 777777, k = 123456 */
    int zero = ex2(&e, MC_ADD, ex1(&e, MC_ABS, ex2(&e, MC_SUB, q, num(&e, 777777))),
                   ex1(&e, MC_ABS, ex2(&e, MC_SUB, k, num(&e, 123456))));
    int one = ex2(&e, MC_LT, ex2(&e, MC_DIV, n, zero), k);
    int never = ex2(&e, MC_AND, ex2(&e, MC_LT, num(&e, 0), zero), one); /* guarded */
    int beyond = ex2(&e, MC_LT, ex2(&e, MC_MOD, q, ex2(&e, MC_SUB, q, n)), k); /* zero only at q = n */
    int square = ex2(&e, MC_LT, ex2(&e, MC_MUL, ex2(&e, MC_MUL, q, q), ex2(&e, MC_MUL, q, q)), k); /* q >= 55109 */
    struct { int mask; fcp_code want; } cases[] = {
        {one, FCP_E_MASK_DIV_ZERO}, {never, FCP_OK}, {beyond, FCP_OK}, {square, FCP_E_MASK_OVERFLOW}};
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

/* Masks in which no two cells are alike. Their pairs are looked at one by one, by any number of threads; the answer
 * stays the same. */
Test(cells, masks_without_structure) {
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
    int noise = ex2(&e, MC_LT, ex2(&e, MC_MUL, field_at(&e, q, true), field_at(&e, k, true)),
                    ex2(&e, MC_MOD, ex2(&e, MC_MUL, sum, sum), num(&e, 701)));
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
Test(cells, look_ahead) {
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
        cr_expect(good && work > 0.75 && work < 1.34,
                  "mask %d: %.3g of %.3g pairs, %.3g of %.3g s", i, (double)said.pairs, (double)spent.elements,
                  1e-9 * (double)said.work, 1e-9 * (double)spent.work);
        free(nodes);
    }
}

/* Structure is not taken for a lack of it: what memory answers, or a closed form, costs little however large it is. */
Test(cells, look_ahead_structure) {
    static exprs e;
    e.count = 0;
    const int q = ex0(&e, MC_Q), k = ex0(&e, MC_K), causal = ex2(&e, MC_LE, k, q);
    const int blocks = ex2(&e, MC_EQ, ex2(&e, MC_DIV, q, num(&e, 1000)), ex2(&e, MC_DIV, k, num(&e, 1000)));
    const int sum = ex2(&e, MC_ADD, ex2(&e, MC_MUL, q, num(&e, 7919)), ex2(&e, MC_MUL, k, num(&e, 104729)));
    const int thousand = ex2(&e, MC_LT, ex2(&e, MC_MOD, sum, num(&e, 1009)), num(&e, 100)); /* 1009 unlike cells */
    const struct { int mask; double most; } cases[] = {{causal, 0}, {blocks, 0.1}, {thousand, 10}};
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
