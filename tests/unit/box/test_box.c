/* test_box.c: tests the abstract evaluator, which evaluates mask code for a whole box of pairs at once, and solve_rows,
 * which finds the keys that each row of a box sees. Both are compared with every element of random boxes. */
#include "compiler/box/box.h"
#include "compiler/base/memo.h"
#include "compiler/box/solve_rows.h"
#include "tests/support/mask_samples.h"

#include <criterion/criterion.h>
#include <string.h>

typedef struct bench {
    mc_code code;
    mc_node *nodes;
    box_program *base, *special;
    box_value *values;
    uint32_t *numbers;
    int64_t *offsets, *key, *scratch;
    rows *rows;
    box_arrays arrays;
} bench;

static bench bench_env(const exprs *e, int root, const mc_env *env) {
    bench t;
    t.code = lower_mask(e, root, &t.nodes);
    t.base = malloc(box_program_size(t.code.count));
    t.special = malloc(box_program_size(t.code.count));
    t.values = malloc(t.code.count * sizeof *t.values);
    t.numbers = malloc(t.code.count * sizeof *t.numbers);
    t.offsets = malloc(t.code.count * sizeof *t.offsets);
    t.key = malloc(box_key_room(t.code.count) * sizeof *t.key);
    t.scratch = malloc(t.code.count * sizeof *t.scratch);
    t.rows = rows_new();
    cr_assert(box_arrays_new(&t.arrays, t.code) && box_arrays_bind(&t.arrays, env, NULL) == FCP_OK);
    box_program_make(t.code, env, &t.arrays, t.base);
    return t;
}

static bench bench_new(const exprs *e, int root, int64_t n) { return bench_env(e, root, MC_LENGTH(n)); }

static void bench_free(bench *t) {
    free(t->nodes);
    free(t->base);
    free(t->special);
    free(t->values);
    free(t->numbers);
    free(t->offsets);
    free(t->key);
    free(t->scratch);
    rows_free(t->rows);
    box_arrays_free(&t->arrays);
}

/* At most `side` positions a side, with corners up to n. */
static box random_box(exprs *e, int64_t n, uint64_t longest) {
    box b;
    for (int d = 0; d < 2; d++) {
        int64_t length = 1 + (int64_t)draw(e, 1 + draw(e, longest));
        if (length > n) length = n;
        b.lo[d] = (int64_t)draw(e, (uint64_t)(n - length + 1));
        b.hi[d] = b.lo[d] + length;
    }
    b.lo[BOX_H] = (int64_t)draw(e, 3);
    b.hi[BOX_H] = b.lo[BOX_H] + 1 + (int64_t)draw(e, 2);
    return b;
}

/* Half the box, at random. */
static box smaller(exprs *e, box b) {
    int d = (int)draw(e, 3);
    if (b.hi[d] - b.lo[d] > 1) {
        int64_t middle = b.lo[d] + 1 + (int64_t)draw(e, (uint64_t)(b.hi[d] - b.lo[d] - 1));
        if (draw(e, 2)) b.lo[d] = middle;
        else b.hi[d] = middle;
    }
    return b;
}

typedef struct truth_table {
    uint64_t pairs, elements;
    bool faults;
} truth_table;

static truth_table brute(const exprs *e, int root, const box *b, int64_t n) {
    truth_table t = {0};
    for (int64_t q = b->lo[0]; q < b->hi[0]; q++)
        for (int64_t k = b->lo[1]; k < b->hi[1]; k++)
            for (int64_t h = b->lo[2]; h < b->hi[2]; h++) {
                mc_fault fault = MC_OK;
                t.pairs += expr_value(e, root, q, k, n, h, &fault) != 0;
                t.faults |= fault != MC_OK;
                t.elements++;
            }
    return t;
}

/* A chain of ever smaller boxes, each evaluated with the program that is left of the one before. All answers are
 * proofs, and rows are exact. */
Test(box, random_chains) {
    static exprs e;
    unsigned none = 0, full = 0, mixed = 0, faulting = 0;
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        int root = random_mask(&e, seed, 1 + seed % 4, true);
        int64_t n = seed % 5 == 0 ? ((int64_t)1 << 40) - (int64_t)draw(&e, 1000) : 1 + (int64_t)draw(&e, 500);
        bench t = bench_new(&e, root, n);
        box_program *program = malloc(box_program_size(t.code.count));
        memcpy(program, t.base, box_program_size(t.code.count));
        box b = random_box(&e, n, seed % 7 == 0 ? 128 : 40);
        for (int step = 0; step < 6; step++) {
            truth_table want = brute(&e, root, &b, n);
            bool simpler;
            box_class cls = box_evaluate(program, &b, t.values, &simpler);
            if (cls == BOX_NONE) cr_assert(want.pairs == 0 && !want.faults, "seed %d", (int)seed);
            if (cls == BOX_FULL) cr_assert(want.pairs == want.elements && !want.faults, "seed %d", (int)seed);
            none += cls == BOX_NONE;
            full += cls == BOX_FULL;
            mixed += cls == BOX_MIXED;
            box_specialise(program, t.values, t.numbers, t.special);
            cr_assert_leq(t.special->count, program->count);
            memcpy(program, t.special, box_program_size(t.special->count));
            rows_result r;
            cr_assert(rows_solve(t.rows, program, &b, &r));
            cr_assert_eq(r.fault, want.faults, "seed %d step %d", (int)seed, step);
            if (r.fault) {
                mc_fault fault = MC_OK;
                expr_value(&e, root, r.q, r.k, n, r.h, &fault);
                cr_assert_neq(fault, MC_OK, "seed %d: a witness that does not fault", (int)seed);
                cr_assert(b.lo[0] <= r.q && r.q < b.hi[0] && b.lo[1] <= r.k && r.k < b.hi[1] && b.lo[2] <= r.h &&
                          r.h < b.hi[2]);
                faulting++;
            } else {
                cr_assert_eq(r.pairs, want.pairs, "seed %d step %d: %d, not %d", (int)seed, step, (int)r.pairs,
                             (int)want.pairs);
            }
            b = smaller(&e, b);
        }
        free(program);
        bench_free(&t);
    }
    cr_assert(none > 300 && full > 300 && mixed > 1000 && faulting > 100, "%u %u %u %u", none, full, mixed, faulting);
}

/* Facts are known of the part of a table that the mask can read, here the rows of head 5; of the rest nothing is
 * claimed. */
Test(box, learns_what_can_be_read) {
    static exprs e;
    enum { SIDE = 16, OF = 10, HEADS = 64, HEAD = 5 };
    static int8_t blocks[HEADS * SIDE * SIDE];
    for (size_t i = 0; i < sizeof blocks; i++) blocks[i] = (int8_t)(i / (SIDE * SIDE));
    const mc_array table = {.data = blocks, .count = HEADS * SIDE, .columns = SIDE, .width = MC_I8};
    const mc_env env = {.n = SIDE * OF, .queries = SIDE * OF, .arrays = &table};
    e.count = 0;
    const int row = ex2(&e, MC_ADD, num(&e, HEAD * SIDE), ex2(&e, MC_DIV, ex0(&e, MC_Q), num(&e, OF)));
    const int column = ex2(&e, MC_DIV, ex0(&e, MC_K), num(&e, OF));
    bench t = bench_env(&e, ex2(&e, MC_EQ, ex(&e, MC_LOAD2, row, column, -1, 0), ex0(&e, MC_Q)), &env);
    const box_array *a = &t.arrays.at[0];
    cr_assert(a->from == HEAD * SIDE * SIDE && a->to == (HEAD + 1) * SIDE * SIDE, "%d..%d", (int)a->from, (int)a->to);
    const array_facts own = box_array_facts(a, a->from + 3, a->to - 7), more = box_array_facts(a, a->from - 1, a->to);
    cr_expect(own.lo == HEAD && own.hi == HEAD && own.set == (uint64_t)1 << HEAD);
    cr_expect(more.lo == INT64_MIN && more.hi == INT64_MAX && more.set == UINT64_MAX);
    uint64_t end;
    cr_expect_null(box_array_run(a, a->to, &end));
    cr_expect_not_null(box_array_run(a, a->to - 1, &end));
    bench_free(&t);
}

/* What is learnt of an array, against its elements: ranges, sets of values, runs. */
Test(box, learns_exactly) {
    enum { COUNT = 700, ASKED = 60 };
    static exprs e;
    static int64_t f[COUNT];
    unsigned in_runs = 0;
    for (int seed = 1; seed <= 150; seed++) {
        e.seed = (uint64_t)seed;
        e.count = 0;
        const int64_t count = COUNT - (int64_t)draw(&e, 300);
        draw_field(&e, f, count, 0);
        for (int64_t i = 0; i < count && seed % 5 == 0; i++) f[i] += i % 64 ? INT64_MAX / 2 : INT64_MIN / 2; /* far */
        const mc_array array = {.data = f, .count = count, .width = MC_I64};
        const mc_env env = {.n = count, .queries = count, .arrays = &array};
        bench t = bench_env(&e, ex2(&e, MC_LE, ex0(&e, MC_Q), ex(&e, MC_LOAD, ex0(&e, MC_K), -1, -1, 0)), &env);
        const box_array *a = &t.arrays.at[0];
        for (int i = 0; i < ASKED; i++) {
            uint64_t from = draw(&e, (uint64_t)count), to = from + 1 + draw(&e, (uint64_t)count - from), end;
            int64_t lo = INT64_MAX, hi = INT64_MIN;
            uint64_t set = 0;
            for (uint64_t j = from; j < to; j++) {
                lo = f[j] < lo ? f[j] : lo;
                hi = f[j] > hi ? f[j] : hi;
                set |= (uint64_t)1 << (f[j] & 63);
            }
            const array_facts got = box_array_facts(a, from, to);
            cr_assert(got.lo == lo && got.hi == hi && got.set == set, "seed %d: elements %d..%d", seed, (int)from,
                      (int)to);
            const array_run *r = box_array_run(a, from, &end);
            for (uint64_t j = from; r && j < end; j++)
                cr_assert_eq(run_at(r, j), f[j], "seed %d: element %d", seed, (int)j);
            in_runs += r != NULL;
        }
        bench_free(&t);
    }
    cr_assert_gt(in_runs, 1000u);
}

/* Whether all queries of a box, or all keys, have the same answer: exactly, for a comparison with a field of runs. */
Test(box, alike) {
    enum { COUNT = 90 };
    static exprs e;
    static int64_t f[COUNT];
    unsigned yes = 0, no = 0;
    for (int seed = 1; seed <= 3000; seed++) {
        e.seed = (uint64_t)seed;
        e.count = 0;
        for (int64_t i = 0, v = 0, s = 0, left = 0; i < COUNT; i++, left--, v += s) {
            if (!left) v = (int64_t)draw(&e, COUNT), s = draw(&e, 3) ? 0 : (int64_t)draw(&e, 3) - 1;
            if (!left) left = 1 + (int64_t)draw(&e, 30);
            f[i] = v;
        }
        const mc_array array = {.data = f, .count = COUNT, .width = MC_I64};
        const mc_env env = {.n = COUNT, .queries = COUNT, .arrays = &array};
        const int dim = (int)draw(&e, 2), along = BOX_K - dim;
        const int x = ex0(&e, dim == BOX_Q ? MC_Q : MC_K), y = ex0(&e, dim == BOX_Q ? MC_K : MC_Q);
        const int load = ex(&e, MC_LOAD, y, -1, -1, 0), compare = draw(&e, 2) ? MC_LT : MC_LE;
        const int root = draw(&e, 2) ? ex2(&e, (mc_op)compare, x, load) : ex2(&e, (mc_op)compare, load, x);
        bench t = bench_env(&e, root, &env);
        for (int i = 0; i < 20; i++) {
            const box b = random_box(&e, COUNT, 40);
            bool simpler, same = true;
            if (box_evaluate(t.base, &b, t.values, &simpler) != BOX_MIXED) continue;
            box_specialise(t.base, t.values, t.numbers, t.special);
            for (int64_t j = b.lo[along]; j < b.hi[along]; j++)
                for (int64_t p = b.lo[dim]; p < b.hi[dim]; p++) {
                    const int64_t q = dim == BOX_Q ? p : j, k = dim == BOX_Q ? j : p;
                    const int64_t q0 = dim == BOX_Q ? b.lo[dim] : j, k0 = dim == BOX_Q ? j : b.lo[dim];
                    same &= mc_eval(t.code, &env, q, k, 0, t.scratch) == mc_eval(t.code, &env, q0, k0, 0, t.scratch);
                }
            if (t.special->count == 1) { /* it is a form, so that the load is gone */
                cr_assert(!box_alike(t.special, &b, dim) || same);
                continue;
            }
            cr_assert_eq(box_alike(t.special, &b, dim), same, "seed %d, box %d", seed, i);
            yes += same;
            no += !same;
        }
        bench_free(&t);
    }
    cr_assert(yes > 300 && no > 3000, "%u alike, %u not", yes, no);
}

/* Integers stay in the ranges, forms and strides that the evaluator claims, unless something faults. */
Test(box, claims_about_integers) {
    static exprs e;
    unsigned linear = 0, strides = 0;
    for (uint64_t seed = 1; seed <= 2000; seed++) {
        random_mask(&e, seed, 0, true);
        e.count = 0;
        int value = draw_int(&e, 1 + (int)(seed % 4));
        if (seed % 3 == 0) { /* (a x + b) % m */
            int scaled = ex2(&e, MC_MUL, draw_int(&e, 0), num(&e, 2 + (int64_t)draw(&e, 8)));
            value = ex2(&e, MC_MOD, ex2(&e, MC_ADD, scaled, num(&e, 3)), num(&e, (int64_t)draw(&e, 40) - 20));
        }
        int root = ex2(&e, MC_LT, value, ex2(&e, MC_ADD, num(&e, 9), value)); /* keeps it as an operand */
        int64_t n = 1 + (int64_t)draw(&e, 300);
        bench t = bench_new(&e, root, n);
        box b = random_box(&e, n, 12);
        bool simpler;
        box_evaluate(t.base, &b, t.values, &simpler);
        for (int64_t q = b.lo[0]; q < b.hi[0]; q++)
            for (int64_t k = b.lo[1]; k < b.hi[1]; k++)
                for (int64_t h = b.lo[2]; h < b.hi[2]; h++) {
                    mc_eval(t.code, MC_LENGTH(n), q, k, h, t.scratch);
                    for (uint32_t i = 0; i < t.code.count; i++) {
                        const box_value *v = &t.values[i];
                        int64_t x = t.scratch[i];
                        cr_assert(v->lo <= x && x <= v->hi, "seed %d node %u", (int)seed, i);
                        if (t.code.nodes[i].op >= MC_EQ || t.code.nodes[i].op == MC_CONST_B) continue;
                        if (v->linear) cr_assert_eq(form_at(&v->f, q, k, h), x, "seed %d node %u", (int)seed, i);
                        else cr_assert_eq(((__int128)x - v->lo) % v->stride, 0, "seed %d node %u", (int)seed, i);
                        linear += v->linear;
                        strides += !v->linear && v->stride > 1;
                    }
                }
        bench_free(&t);
    }
    cr_assert(linear > 1000 && strides > 100, "%u %u", linear, strides);
}

/* The same where they are elements of arrays. */
Test(box, claims_about_elements) {
    static exprs e;
    static array_set arrays;
    unsigned linear = 0, sets = 0, decided = 0;
    for (uint64_t seed = 1; seed <= 2500; seed++) {
        e.seed = seed;
        mc_env env = {.n = 1 + (int64_t)draw(&e, 600), .arrays = arrays.array};
        env.queries = env.n;
        draw_arrays(&e, &arrays, &env);
        random_mask(&e, seed, 0, true);
        e.count = 0;
        int value = draw_element(&e, 1), other = draw(&e, 2) ? draw_element(&e, 1) : draw_int(&e, (int)(seed % 3));
        int root = ex2(&e, seed % 2 ? MC_LT : MC_EQ, value, other);
        bench t = bench_env(&e, root, &env);
        for (int i = 0; i < 4; i++) {
            box b = random_box(&e, env.n, i % 2 ? 8 : 400);
            bool simpler;
            decided += box_evaluate(t.base, &b, t.values, &simpler) != BOX_MIXED;
            for (int j = 0; j < 300; j++) {
                int64_t at[3];
                for (int d = 0; d < 3; d++) at[d] = b.lo[d] + (int64_t)draw(&e, (uint64_t)(b.hi[d] - b.lo[d]));
                mc_eval(t.code, &env, at[0], at[1], at[2], t.scratch);
                for (uint32_t x = 0; x < t.code.count; x++) {
                    const box_value *v = &t.values[x];
                    int64_t is = t.scratch[x];
                    cr_assert(v->lo <= is && is <= v->hi, "seed %d node %u", (int)seed, x);
                    if (mc_op_type(t.code.nodes[x].op) == 'b') continue;
                    if (v->linear)
                        cr_assert_eq(form_at(&v->f, at[0], at[1], at[2]), is, "seed %d node %u", (int)seed, x);
                    else if (t.base->nodes[x].op != BOX_LINEAR)
                        cr_assert(v->set >> (is & 63) & 1, "seed %d node %u", (int)seed, x);
                    linear += v->linear && t.code.nodes[x].op == MC_LOAD;
                    sets += !v->linear && v->set != UINT64_MAX;
                }
            }
        }
        bench_free(&t);
    }
    cr_assert(linear > 10000 && sets > 10000 && decided > 1000, "%u %u %u", linear, sets, decided);
}

/* Boxes that must be decided at once. Without these the masks of the prelude would cost their area. */
Test(box, decides_at_corners_and_by_congruence) {
    exprs e = {.count = 0};
    int q = ex0(&e, MC_Q), k = ex0(&e, MC_K), ahead = ex2(&e, MC_SUB, q, k), zero = num(&e, 0);
    struct sure { int mask; box b; box_class want; } sure[] = {
        {ex2(&e, MC_LE, k, q), {{128, 0, 0}, {256, 129, 1}}, BOX_FULL},
        {ex2(&e, MC_LE, k, q), {{0, 256, 0}, {256, 512, 1}}, BOX_NONE},
        {ex2(&e, MC_LT, ex2(&e, MC_ADD, ahead, k), ex2(&e, MC_ADD, q, num(&e, 1))), {{0, 0, 0}, {99, 99, 1}}, BOX_FULL},
        {ex2(&e, MC_LE, ex2(&e, MC_DIV, k, num(&e, 100)), ex2(&e, MC_DIV, q, num(&e, 100))),
         {{150, 0, 0}, {900, 200, 1}}, BOX_FULL},
        {ex2(&e, MC_EQ, ex2(&e, MC_MOD, ex2(&e, MC_MUL, q, num(&e, 6)), num(&e, 4)), num(&e, 1)),
         {{0, 0, 0}, {512, 512, 1}}, BOX_NONE},
        {ex2(&e, MC_EQ, ex2(&e, MC_MUL, q, num(&e, 4)), ex2(&e, MC_ADD, ex2(&e, MC_MUL, k, num(&e, 2)), num(&e, 1))),
         {{0, 0, 0}, {512, 512, 1}}, BOX_NONE},
        {ex2(&e, MC_EQ, ex2(&e, MC_DIV, ex2(&e, MC_ADD, ex2(&e, MC_MUL, q, num(&e, 4)), num(&e, 3)), num(&e, 4)), q),
         {{0, 0, 0}, {512, 512, 1}}, BOX_FULL},
        {ex2(&e, MC_EQ, ex2(&e, MC_MAX, ahead, zero), ahead), {{512, 0, 0}, {640, 128, 1}}, BOX_FULL},
        {ex2(&e, MC_EQ, ex1(&e, MC_ABS, ahead), ex1(&e, MC_NEG, ahead)), {{0, 512, 0}, {128, 640, 1}}, BOX_FULL},
        {ex2(&e, MC_LE, zero, ex2(&e, MC_MUL, ahead, ahead)), {{0, 0, 0}, {512, 512, 1}}, BOX_FULL},
    };
    for (size_t i = 0; i < sizeof sure / sizeof *sure; i++) {
        bench t = bench_new(&e, sure[i].mask, 1000);
        bool simpler;
        cr_assert_eq(box_evaluate(t.base, &sure[i].b, t.values, &simpler), sure[i].want, "mask %zu", i);
        bench_free(&t);
    }
}

/* A quotient that has two values on a box changes at one place. So comparing it with a constant leaves one bound there:
 * of min(q / 100, 9) == k / 100 in the box of q in [130, 180) and k in [150, 250), only k < 200 is left. */
Test(box, one_bound_is_left_of_a_quotient) {
    exprs e = {.count = 0};
    const int q = ex2(&e, MC_DIV, ex0(&e, MC_Q), num(&e, 100)), k = ex2(&e, MC_DIV, ex0(&e, MC_K), num(&e, 100));
    const int part = ex2(&e, MC_MIN, q, num(&e, 9));
    const struct left { int mask; int64_t c, x; } left[] = {
        {ex2(&e, MC_EQ, part, k), 199, -1}, {ex2(&e, MC_NE, part, k), -200, 1}, {ex2(&e, MC_LT, part, k), -200, 1},
        {ex2(&e, MC_LE, k, part), 199, -1}};
    const box b = {{130, 150, 0}, {180, 250, 1}};
    for (size_t i = 0; i < sizeof left / sizeof *left; i++) {
        bench t = bench_new(&e, left[i].mask, 1000);
        bool simpler;
        cr_assert_eq(box_evaluate(t.base, &b, t.values, &simpler), BOX_MIXED, "mask %zu", i);
        cr_assert(simpler);
        uint32_t *numbers = malloc(t.base->count * sizeof *numbers);
        box_program *p = malloc(box_program_size(t.base->count));
        box_specialise(t.base, t.values, numbers, p);
        cr_assert_eq(p->count, 1, "mask %zu: %u nodes", i, p->count);
        cr_expect(p->nodes[0].op == BOX_GE && p->nodes[0].f.c == left[i].c && p->nodes[0].f.x[BOX_K] == left[i].x &&
                  !p->nodes[0].f.x[BOX_Q], "mask %zu", i);
        free(numbers);
        free(p);
        bench_free(&t);
    }
}

/* Equal keys mean equal cells. A shift along a direction that the mask does not depend on gives an equal key. */
Test(box, keys) {
    static exprs e;
    unsigned met = 0;
    for (uint64_t seed = 1; seed <= 600; seed++) {
        int root = random_mask(&e, seed, 1 + seed % 4, true);
        int64_t n = 200;
        bench t = bench_new(&e, root, n);
        arena keys = {0};
        memo known = {0};
        for (int i = 0; i < 60; i++) {
            box b = {{(int64_t)draw(&e, 190), (int64_t)draw(&e, 190), (int64_t)draw(&e, 3)}};
            for (int d = 0; d < 3; d++) b.hi[d] = b.lo[d] + (d == 2 ? 1 : 5);
            bool simpler;
            if (box_evaluate(t.base, &b, t.values, &simpler) != BOX_MIXED) continue;
            box_specialise(t.base, t.values, t.numbers, t.special);
            size_t words = box_key(t.special, &b, t.offsets, t.key);
            cr_assert_leq(words, box_key_room(t.special->count));
            uint64_t hash = memo_hash(t.key, words), pattern[3] = {0};
            for (int64_t q = b.lo[0]; q < b.hi[0]; q++)
                for (int64_t k = b.lo[1]; k < b.hi[1]; k++) {
                    mc_fault fault = MC_OK;
                    bool allowed = expr_value(&e, root, q, k, n, b.lo[2], &fault) != 0;
                    pattern[0] = pattern[0] << 2 | (fault ? 2 : allowed);
                }
            const memo_entry *found = memo_find(&known, t.key, words, hash);
            if (found) cr_assert_eq(found->answer[0], pattern[0], "seed %d", (int)seed);
            else cr_assert(memo_add(&known, &keys, t.key, words, hash, pattern));
            met += found != NULL;
        }
        memo_free(&known);
        arena_free(&keys);
        bench_free(&t);
    }
    cr_assert_gt(met, 500);
    e.count = 0;
    int mask = sample_mask(&e, SAMPLE_LAMBDA, 64, 4096);
    bench t = bench_new(&e, mask, 1 << 20);
    size_t first = 0;
    int64_t saved[64];
    for (int i = 0; i < 20; i++) {
        box b = {{i * 5000, i * 5000, 0}, {i * 5000 + 128, i * 5000 + 128, 1}};
        if (i == 0) b.lo[0] += 128, b.hi[0] += 128, b.lo[1] += 128, b.hi[1] += 128;
        bool simpler;
        cr_assert_eq(box_evaluate(t.base, &b, t.values, &simpler), BOX_MIXED);
        box_specialise(t.base, t.values, t.numbers, t.special);
        cr_assert(t.special->diagonal);
        size_t words = box_key(t.special, &b, t.offsets, t.key);
        cr_assert_leq(words, 64);
        if (i == 0) memcpy(saved, t.key, words * sizeof *saved), first = words;
        cr_assert(words == first && memcmp(saved, t.key, words * sizeof *saved) == 0, "cell %d", i);
    }
    bench_free(&t);
}

/* Integers near the ends of int64. */
Test(box, far_values) {
    exprs e = {.count = 0};
    int q = ex0(&e, MC_Q), k = ex0(&e, MC_K), most = num(&e, INT64_MAX), least = num(&e, INT64_MIN);
    int masks[] = {
        ex2(&e, MC_LT, ex2(&e, MC_SUB, most, q), ex2(&e, MC_ADD, least, k)),
        ex2(&e, MC_LE, ex2(&e, MC_ADD, least, q), ex2(&e, MC_SUB, most, k)),
        ex2(&e, MC_EQ, ex2(&e, MC_SUB, ex2(&e, MC_SUB, most, q), ex2(&e, MC_SUB, most, k)), num(&e, 3)),
        ex2(&e, MC_LT, ex2(&e, MC_MOD, ex2(&e, MC_ADD, least, q), num(&e, 7)), num(&e, 3)),
        ex2(&e, MC_LT, ex2(&e, MC_MOD, ex2(&e, MC_SUB, most, k), num(&e, -7)), num(&e, -3)),
        ex2(&e, MC_EQ, ex2(&e, MC_DIV, ex2(&e, MC_ADD, least, q), least), num(&e, 1)),
        ex2(&e, MC_LT, ex2(&e, MC_DIV, ex2(&e, MC_ADD, least, k), num(&e, -1)), most), /* faults at k = 0 */
        ex2(&e, MC_LT, ex1(&e, MC_ABS, ex2(&e, MC_ADD, least, q)), most),              /* faults at q = 0 */
        ex2(&e, MC_LT, ex2(&e, MC_MAX, ex2(&e, MC_ADD, least, q), ex2(&e, MC_SUB, most, k)), most),
        ex2(&e, MC_LT, ex2(&e, MC_MUL, ex2(&e, MC_SUB, q, k), num(&e, (int64_t)1 << 60)), num(&e, 5)),
        ex2(&e, MC_NE, ex2(&e, MC_SUB, ex2(&e, MC_ADD, least, q), num(&e, 4)), num(&e, 5)), /* faults below q = 4 */
    };
    unsigned faulting = 0;
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        bench t = bench_new(&e, masks[i], 40);
        for (int j = 0; j < 200; j++) {
            box b = random_box(&e, 40, 20);
            bool simpler;
            truth_table want = brute(&e, masks[i], &b, 40);
            box_class cls = box_evaluate(t.base, &b, t.values, &simpler);
            if (cls != BOX_MIXED) {
                cr_assert(!want.faults && want.pairs == (cls == BOX_FULL ? want.elements : 0), "mask %zu", i);
                continue;
            }
            box_specialise(t.base, t.values, t.numbers, t.special);
            rows_result r;
            cr_assert(rows_solve(t.rows, t.special, &b, &r));
            cr_assert_eq(r.fault, want.faults, "mask %zu", i);
            if (!r.fault) cr_assert_eq(r.pairs, want.pairs, "mask %zu", i);
            faulting += r.fault;
        }
        bench_free(&t);
    }
    cr_assert_gt(faulting, 50);
}
