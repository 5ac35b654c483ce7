/* cells_check.h: compares what `cells` says of a mask with every element of that mask: counts, classes, entries, shapes
 * and faults. The mask is an expression of mask_samples.h, which evaluates itself. */
#ifndef CELLS_CHECK_H
#define CELLS_CHECK_H
#include <criterion/criterion.h>
#include <string.h>

#include "compiler/cells/cells.h"
#include "tests/support/mask_samples.h"

enum { N_MAX = 1200, HEADS_MAX = 3, CUTS_MAX = 80 };

static inline fcp_code fault_code(mc_fault f) {
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

static inline uint8_t element(const table *t, uint64_t q, uint64_t k, uint32_t h) {
    return t->at[(q * (uint64_t)t->n + k) * t->heads + h];
}

static inline void fill(table *t, const exprs *e, int root, const mc_env *env, uint32_t heads) {
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

static inline sums sum(const table *t, uint64_t q0, uint64_t q1, uint64_t k0, uint64_t k1) {
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

static inline uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

static inline void check_witness(const table *t, fcp_code code, const cells_fault *f, uint64_t q0, uint64_t q1,
                                 uint64_t k0, uint64_t k1, int seed) {
    const uint64_t q = (uint64_t)(f->q - t->env.q_first);
    cr_assert(code == FCP_E_MASK_DIV_ZERO || code == FCP_E_MASK_OVERFLOW || code == FCP_E_MASK_INDEX,
              "seed %d: a fault missed (%s)", seed, fcp_code_name(code));
    cr_assert_eq(code, fault_code(f->kind), "seed %d", seed);
    cr_assert(f->n == t->n && q >= q0 && q < q1 && (uint64_t)f->k >= k0 && (uint64_t)f->k < k1 && f->h >= 0 &&
                  f->h < t->heads,
              "seed %d: a witness outside", seed);
    cr_assert_eq(element(t, q, (uint64_t)f->k, (uint32_t)f->h), 2, "seed %d: no fault there", seed);
}

static inline void check_count(cells *c, const table *t, int seed) {
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

static inline void check_shape(const table *t, const fcp_shape_rec *s, const fcp_run *runs, uint64_t q0, uint64_t k0,
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

static inline void check_grid(cells *c, const table *t, const uint64_t *q_cuts, uint32_t q_pieces,
                              const uint64_t *k_cuts, uint32_t k_pieces, int seed) {
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
            cr_assert(s->q_length == q_cuts[i + 1] - q_cuts[i] && s->k_length == k_cuts[j + 1] - k_cuts[j], "seed %d",
                      seed);
            cr_assert_eq(s->pairs, pairs, "seed %d: (%u, %u) has %d pairs, not %d", seed, i, j, (int)s->pairs,
                         (int)pairs);
            check_shape(t, s, runs, q_cuts[i], k_cuts[j], seed);
        }
    cr_assert_eq(at, count, "seed %d: entries to spare", seed);
    for (uint32_t i = 0; i < shape_count; i++) /* one number per shape */
        for (uint32_t j = i + 1; j < shape_count && shape_count < 40; j++)
            cr_assert(
                shapes[i].q_length != shapes[j].q_length || shapes[i].k_length != shapes[j].k_length ||
                    shapes[i].pairs != shapes[j].pairs || shapes[i].runs != shapes[j].runs ||
                    memcmp(runs + shapes[i].first_run, runs + shapes[j].first_run, shapes[i].runs * sizeof *runs) != 0,
                "seed %d: shape twice", seed);
}

/* The pairs alone. */
static inline void check_pairs(cells *c, const table *t, const uint64_t *q_cuts, uint32_t q_pieces,
                               const uint64_t *k_cuts, uint32_t k_pieces, int seed) {
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

static inline uint32_t random_cuts(exprs *e, uint64_t n, uint64_t cuts[CUTS_MAX]) {
    uint32_t count = 0;
    cuts[0] = draw(e, 3) ? 0 : draw(e, n);
    uint64_t longest = 1 + draw(e, 300);
    while (cuts[count] < n && count < CUTS_MAX - 1) {
        cuts[count + 1] = least(n, cuts[count] + 1 + draw(e, longest));
        count++;
    }
    return count;
}

static inline uint32_t even_cuts(uint64_t n, uint64_t block, uint64_t cuts[CUTS_MAX]) {
    uint32_t count = 0;
    for (uint64_t at = 0; at < n; at += block) cuts[count++] = at;
    cuts[count] = n;
    return count;
}

/* Returns whether some element faults. */
static inline bool check_env(const exprs *e, int root, const mc_env *env, uint32_t heads, int seed, cells *shared) {
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

static inline void check_all(const exprs *e, int root, int64_t n, uint32_t heads, int seed, cells *shared) {
    check_env(e, root, MC_LENGTH(n), heads, seed, shared);
}

/* An environment for a random mask: queries and keys the same, or queries at any offset. */
static inline mc_env draw_env(exprs *e, uint64_t longest, bool apart, array_set *arrays) {
    mc_env env = {.n = 1 + (int64_t)draw(e, longest)};
    env.queries = apart ? 1 + (int64_t)draw(e, longest) : env.n;
    if (apart) env.q_first = draw(e, 2) ? env.n - env.queries : (int64_t)draw(e, 2 * longest) - (int64_t)longest;
    if (arrays) draw_arrays(e, arrays, &env), env.arrays = arrays->array;
    return env;
}
#endif
