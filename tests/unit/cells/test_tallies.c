/* test_tallies.c: tests cells that are counted by classes of positions (compiler/box/tally.h): masks of blocks, of
 * random values, and of spans, with other conditions beside them. Counts, cells, pieces and pairs are compared with
 * every element. */
#include "compiler/cells/cells.h"
#include "tests/support/amount.h"
#include "tests/support/mask_samples.h"

#include <criterion/criterion.h>
#include <string.h>

enum { N_MOST = 900, HEADS_MOST = 3, PIECES_MOST = 40, SPARE = 8 };

/* The arrays of a mask, by number. */
enum { BLOCKS, PLAIN_BLOCKS, FLAT_BLOCKS, VALUES, SPANS, OF_HEADS, NUMBER, ARRAYS };

typedef struct fixture {
    exprs e;
    int root;
    uint32_t heads;
    int64_t cell; /* positions on a side of a block */
    mc_env env;
    mc_array array[ARRAYS];
    int64_t data[ARRAYS][HEADS_MOST * (N_MOST + SPARE) * 30];
    uint8_t at[N_MOST][N_MOST][HEADS_MOST]; /* 0, 1, or 2 for a fault; queries from the first one on */
    bool faults;
} fixture;

static int load(exprs *e, int array, int i, int j, int l) {
    return ex(e, l >= 0 ? MC_LOAD3 : j >= 0 ? MC_LOAD2 : MC_LOAD, i, j, l, array);
}

/* Draws the arrays of one sequence. */
static void draw_data(fixture *f) {
    exprs *e = &f->e;
    const int64_t c = f->cell, first = f->env.q_first, end = first + f->env.queries, n = f->env.n;
    const int64_t row = mc_div(first, c), rows = mc_div(end - 1, c) - row + 1, columns = (n + c - 1) / c;
    const int64_t low = first < 0 ? first : 0, span = (end > n ? end : n) - low;
    f->array[BLOCKS] = (mc_array){.first = row, .count = rows, .columns = columns, .planes = f->heads};
    f->array[PLAIN_BLOCKS] = (mc_array){.first = row, .count = rows, .columns = columns};
    f->array[FLAT_BLOCKS] = (mc_array){.count = f->heads * rows, .columns = columns};
    f->array[VALUES] = f->array[SPANS] = (mc_array){.first = low, .count = span};
    f->array[OF_HEADS] = (mc_array){.count = f->heads};
    f->array[NUMBER] = (mc_array){.count = 1};
    for (int a = 0; a < ARRAYS; a++) {
        const uint64_t total = mc_array_total(&f->array[a]), values = 1 + draw(e, 1 + draw(e, 40));
        cr_assert_leq(total, sizeof f->data[a] / sizeof f->data[a][0]);
        for (uint64_t i = 0; i < total; i++)
            f->data[a][i] = (int64_t)draw(e, a < VALUES ? 2 : a == NUMBER || a == OF_HEADS ? 200 : values);
        f->array[a].data = f->data[a];
        f->array[a].width = MC_I64;
    }
    for (int64_t i = 0, id = 0; i < span; id++) { /* text, an image, text, ... */
        const int64_t image = 1 + (int64_t)draw(e, 60), text = (int64_t)draw(e, 20);
        for (int64_t j = 0; j < text && i < span; j++) f->data[SPANS][i++] = draw(e, 8) ? 0 : -1;
        for (int64_t j = 0; j < image && i < span; j++) f->data[SPANS][i++] = id + 1;
    }
    f->env.arrays = f->array;
    e->arrays = f->array;
}

/* One condition. `rows`: of blocks, of all heads. */
static int draw_condition(fixture *f, bool may_fault) {
    exprs *e = &f->e;
    const int q = ex0(e, MC_Q), k = ex0(e, MC_K), h = ex0(e, MC_H), one = num(e, 1), ahead = ex2(e, MC_SUB, q, k);
    const int c = num(e, f->cell), row = ex2(e, MC_DIV, q, c), column = ex2(e, MC_DIV, k, c);
    const int u = load(e, VALUES, q, -1, -1), v = load(e, VALUES, k, -1, -1);
    const int r = load(e, SPANS, q, -1, -1), s = load(e, SPANS, k, -1, -1);
    const int few = num(e, (int64_t)draw(e, 8)), many = num(e, (int64_t)draw(e, 300));
    switch (draw(e, may_fault ? 18 : 16)) {
    case 0:
    case 1: return ex2(e, draw(e, 2) ? MC_EQ : MC_NE, load(e, BLOCKS, h, row, column), one);
    case 2: return ex2(e, MC_LT, num(e, 0), load(e, PLAIN_BLOCKS, row, column, -1));
    case 3: {
        const mc_array *b = &f->array[BLOCKS];
        const int from = ex2(e, MC_SUB, ex2(e, MC_MUL, h, num(e, b->count)), num(e, b->first));
        return ex2(e, MC_EQ, load(e, FLAT_BLOCKS, ex2(e, MC_ADD, from, row), column, -1), one);
    }
    case 4:
    case 5: return ex2(e, draw(e, 3) ? MC_EQ : MC_NE, u, v);
    case 6: return ex2(e, MC_LE, ex2(e, MC_ADD, u, v), few);
    case 7: return ex2(e, MC_LT, ex1(e, MC_ABS, ex2(e, MC_SUB, u, v)), few);
    case 8: return ex2(e, MC_EQ, ex2(e, MC_MOD, ex2(e, MC_MUL, u, v), num(e, 3)), one);
    case 9: return ex2(e, MC_AND, ex2(e, MC_EQ, r, s), ex2(e, MC_LT, num(e, 0), r));
    case 10: return ex2(e, MC_LE, k, q);
    case 11: return ex2(e, MC_LT, ex1(e, MC_ABS, ahead), draw(e, 2) ? many : load(e, OF_HEADS, h, -1, -1));
    case 12: return ex2(e, MC_LT, draw(e, 2) ? k : q, load(e, NUMBER, num(e, 0), -1, -1));
    case 13: {
        const int chosen = ex(e, MC_IF_I, ex2(e, MC_EQ, u, one), load(e, BLOCKS, h, row, column), v, 0);
        return ex2(e, MC_EQ, chosen, one);
    }
    case 14: return ex2(e, MC_LT, ex2(e, MC_MOD, ex2(e, MC_MUL, q, k), num(e, 7)), few); /* it and the next: too many */
    case 15: return ex2(e, MC_LT, ex2(e, MC_MOD, q, num(e, 128)), ex2(e, MC_MOD, k, num(e, 128)));
    case 16: return ex2(e, MC_LT, few, ex2(e, MC_DIV, many, ex2(e, MC_SUB, u, v)));           /* 0 somewhere */
    default: return ex2(e, MC_EQ, load(e, BLOCKS, h, ex2(e, MC_ADD, row, one), column), one); /* beyond the end */
    }
}

static void evaluate(fixture *f, bool on_h) {
    f->faults = false;
    for (int64_t q = 0; q < f->env.queries; q++)
        for (int64_t k = 0; k < f->env.n; k++)
            for (uint32_t h = 0; h < (on_h ? f->heads : 1); h++) {
                mc_fault fault = MC_OK;
                const int64_t value = expr_value(&f->e, f->root, f->env.q_first + q, k, f->env.n, h, &fault);
                f->at[q][k][h] = fault ? 2 : (uint8_t)value;
                f->faults |= fault != MC_OK;
            }
}

typedef struct area {
    uint64_t pairs, all;
} area;

static area count_area(const fixture *f, uint32_t heads, uint64_t q0, uint64_t q1, uint64_t k0, uint64_t k1) {
    area a = {0};
    for (uint64_t q = q0; q < q1; q++)
        for (uint64_t k = k0; k < k1; k++)
            for (uint32_t h = 0; h < heads; h++) a.pairs += f->at[q][k][h] == 1, a.all++;
    return a;
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

static void check_counts(cells *c, const fixture *f, uint32_t heads, int seed) {
    const uint64_t queries = (uint64_t)f->env.queries, n = (uint64_t)f->env.n;
    cells_counts got, want = {0};
    cells_fault fault;
    const fcp_code code = cells_count(c, &f->env, &got, &fault);
    if (f->faults) {
        cr_assert(code == FCP_E_MASK_DIV_ZERO || code == FCP_E_MASK_INDEX, "seed %d: %s", seed, fcp_code_name(code));
        cr_assert_eq(f->at[fault.q - f->env.q_first][fault.k][fault.h], 2, "seed %d: no fault there", seed);
        return;
    }
    cr_assert_eq(code, FCP_OK, "seed %d: %s", seed, fcp_code_name(code));
    for (uint64_t q = 0; q < queries; q += FCP_CELL)
        for (uint64_t k = 0; k < n; k += FCP_CELL) {
            const area a = count_area(f, heads, q, least(q + FCP_CELL, queries), k, least(k + FCP_CELL, n));
            want.pairs += a.pairs;
            if (a.pairs == a.all) want.full++;
            else if (a.pairs) want.partial++;
            else want.none++;
        }
    cr_assert(got.pairs == want.pairs && got.full == want.full && got.partial == want.partial && got.none == want.none,
              "seed %d: pairs %d, not %d; full %d, not %d; partial %d, not %d", seed, (int)got.pairs, (int)want.pairs,
              (int)got.full, (int)want.full, (int)got.partial, (int)want.partial);
}

/* Cuts of one side, of pieces of at most `longest`. */
static uint32_t draw_cuts(exprs *e, uint64_t end, uint64_t longest, bool even, uint64_t cuts[PIECES_MOST + 1]) {
    uint32_t count = 0;
    cuts[0] = 0;
    while (cuts[count] < end && count < PIECES_MOST) {
        const uint64_t next = cuts[count] + (even ? longest : 1 + draw(e, longest));
        cuts[++count] = least(next, end);
    }
    return count;
}

static void check_pieces(cells *c, fixture *f, uint32_t heads, int seed) {
    static const uint64_t lengths[] = {128, 256, 100, 300, 900};
    const uint64_t longest = lengths[draw(&f->e, 5)];
    const bool even = draw(&f->e, 2);
    uint64_t q[PIECES_MOST + 1], k[PIECES_MOST + 1];
    const uint32_t rows = draw_cuts(&f->e, (uint64_t)f->env.queries, longest, even, q);
    const uint32_t columns = draw_cuts(&f->e, (uint64_t)f->env.n, longest, even, k);
    const cell_entry *entries;
    const uint64_t *pairs;
    size_t count, at = 0;
    cr_assert_eq(cells_pairs(c, &f->env, q, rows, k, columns, &entries, &pairs, &count, NULL), FCP_OK);
    for (uint32_t i = 0; i < rows; i++)
        for (uint32_t j = 0; j < columns; j++) {
            const area a = count_area(f, heads, q[i], q[i + 1], k[j], k[j + 1]);
            if (!a.pairs) continue;
            cr_assert(at < count && entries[at].q_piece == i && entries[at].k_piece == j && pairs[at] == a.pairs,
                      "seed %d: pairs of (%u, %u)", seed, i, j);
            at++;
        }
    cr_assert_eq(at, count, "seed %d", seed);
    at = 0;
    cr_assert_eq(cells_grid(c, &f->env, q, rows, k, columns, &entries, &count, NULL), FCP_OK);
    uint32_t shape_count, run_count;
    const fcp_run *runs;
    const fcp_shape_rec *shapes = cells_shapes(c, &shape_count, &runs, &run_count);
    for (uint32_t i = 0; i < rows; i++)
        for (uint32_t j = 0; j < columns; j++) {
            const area a = count_area(f, heads, q[i], q[i + 1], k[j], k[j + 1]);
            if (!a.pairs) continue;
            cr_assert(at < count && entries[at].q_piece == i && entries[at].k_piece == j, "seed %d", seed);
            const fcp_shape_rec *s = &shapes[entries[at++].shape];
            cr_assert(s->pairs == a.pairs && s->q_length == q[i + 1] - q[i] && s->k_length == k[j + 1] - k[j],
                      "seed %d: shape of (%u, %u)", seed, i, j);
            const fcp_run *r = runs + s->first_run, *r_end = r + s->runs;
            for (uint64_t x = q[i]; x < q[i + 1]; x += FCP_CELL)
                for (uint64_t y = k[j]; y < k[j + 1]; y += FCP_CELL) {
                    const area cell =
                        count_area(f, heads, x, least(x + FCP_CELL, q[i + 1]), y, least(y + FCP_CELL, k[j + 1]));
                    const uint32_t row = (uint32_t)(x - q[i]) / FCP_CELL, col = (uint32_t)(y - k[j]) / FCP_CELL;
                    while (r < r_end && (r->row < row || (r->row == row && r->col + r->count <= col))) r++;
                    const bool in_run = r < r_end && r->row == row && r->col <= col;
                    cr_assert_eq(in_run, cell.pairs > 0, "seed %d: cell (%u, %u)", seed, row, col);
                    if (in_run) cr_assert_eq(r->cls == FCP_CELL_FULL, cell.pairs == cell.all, "seed %d", seed);
                }
        }
    cr_assert_eq(at, count, "seed %d", seed);
}

Test(tallies, random_masks) {
    static fixture f;
    static const int64_t sizes[] = {128, 64, 96, 256, 37, 200};
    unsigned faulty = 0;
    for (int seed = 1; seed <= (int)amount(120, 600); seed++) {
        exprs *e = &f.e;
        e->seed = (uint64_t)seed * 1000003;
        e->count = 0;
        f.cell = sizes[draw(e, 6)];
        f.heads = 1 + (uint32_t)draw(e, HEADS_MOST);
        const uint64_t longest = seed % 8 == 0 ? N_MOST : 400;
        f.env = (mc_env){.n = 1 + (int64_t)draw(e, longest)};
        f.env.queries = seed % 3 ? f.env.n : 1 + (int64_t)draw(e, longest);
        f.env.q_first = seed % 3 ? 0 : draw(e, 2) ? f.env.n - f.env.queries : (int64_t)draw(e, 100) - 50;
        draw_data(&f);
        f.root = draw_condition(&f, seed % 4 == 0);
        for (uint64_t more = draw(e, 3); more > 0; more--) {
            const int other = draw_condition(&f, seed % 4 == 0);
            const bool first = draw(e, 2); /* a guard, where the other one may fault */
            f.root = ex2(e, draw(e, 2) ? MC_AND : MC_OR, first ? other : f.root, first ? f.root : other);
        }
        if (draw(e, 6) == 0) f.root = ex1(e, MC_NOT, f.root);
        mc_node *nodes;
        const mc_code code = lower_mask(e, f.root, &nodes);
        const bool on_h = mc_uses(code) & MC_USES_H;
        const uint32_t heads = on_h ? f.heads : 1;
        cells *c = cells_new(code, f.heads);
        for (int round = 0; round < 2; round++) { /* another sequence of the same length: other data, the same object */
            if (round) draw_data(&f);
            evaluate(&f, on_h);
            check_counts(c, &f, heads, seed);
            if (!f.faults) check_pieces(c, &f, heads, seed);
            faulty += f.faults;
        }
        cells_free(c);
        free(nodes);
    }
    cr_assert_gt(faulty, 5);
}

/* A mask of blocks takes a number of steps that follows the blocks, not the pairs. */
Test(tallies, blocks_in_few_steps) {
    static exprs e;
    enum { SIDE = 128, OF = 32, HEADS = 8 };
    static int8_t keep[HEADS * SIDE * SIDE];
    const mc_array array = {.data = keep, .count = SIDE, .columns = SIDE, .planes = HEADS, .width = MC_I8};
    const mc_env env = {.n = SIDE * OF, .queries = SIDE * OF, .arrays = &array};
    uint64_t kept = 0;
    e.seed = 5;
    for (size_t i = 0; i < sizeof keep; i++) kept += (uint64_t)(keep[i] = (int8_t)draw(&e, 2));
    const int row = ex2(&e, MC_DIV, ex0(&e, MC_Q), num(&e, OF)), column = ex2(&e, MC_DIV, ex0(&e, MC_K), num(&e, OF));
    const int mask = ex2(&e, MC_EQ, load(&e, 0, ex0(&e, MC_H), row, column), num(&e, 1));
    mc_node *nodes;
    cells *c = cells_new(lower_mask(&e, mask, &nodes), HEADS);
    cells_counts counts;
    cells_stats stats;
    cr_assert_eq(cells_count(c, &env, &counts, NULL), FCP_OK);
    cr_expect_eq(counts.pairs, kept * OF * OF);
    cells_get_stats(c, &stats);
    cr_expect(stats.boxes < 10 && stats.rows == 0 && stats.elements == 0, "%d boxes", (int)stats.boxes);
    cr_expect_lt(stats.work, sizeof keep * 20, "work %d", (int)stats.work);
    cells_free(c);
    free(nodes);
}
