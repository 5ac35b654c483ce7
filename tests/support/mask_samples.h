/* mask_samples.h: masks for tests, as expression trees that evaluate themselves, with short circuits and faults. The
 * builder lowers them to mask code. There are the prelude's masks, built by hand, and random ones from a seed. */
#ifndef TESTS_MASK_SAMPLES_H
#define TESTS_MASK_SAMPLES_H
#include "codegen/mask/code.h"
#include "tests/support/splitmix.h"

#include <stdlib.h>

enum { EXPR_MAX = 512 };
typedef struct expr {
    mc_op op;
    int a, b, c;
    int64_t imm;
} expr;
typedef struct exprs {
    expr node[EXPR_MAX];
    int count;
    uint64_t seed;
    bool heads; /* may name h */
    const mc_array *arrays; /* read by number; random masks read them if there are some */
    int array_count;
    int64_t q_cell, k_cell; /* of arrays with a row for each cell of queries and a column for each cell of keys */
} exprs;

static inline int ex(exprs *e, mc_op op, int a, int b, int c, int64_t imm) {
    if (e->count == EXPR_MAX) abort();
    e->node[e->count] = (expr){op, a, b, c, imm};
    return e->count++;
}
static inline int ex2(exprs *e, mc_op op, int a, int b) { return ex(e, op, a, b, -1, 0); }
static inline int ex1(exprs *e, mc_op op, int a) { return ex(e, op, a, -1, -1, 0); }
static inline int ex0(exprs *e, mc_op op) { return ex(e, op, -1, -1, -1, 0); }
static inline int num(exprs *e, int64_t value) { return ex(e, MC_CONST_I, -1, -1, -1, value); }
static inline int truth(exprs *e, bool value) { return ex(e, MC_CONST_B, -1, -1, -1, value); }

/* The meaning: left to right, `and`, `or` and `if` evaluate only what they need. Sets *fault at the first fault. */
static inline int64_t expr_value(const exprs *e, int i, int64_t q, int64_t k, int64_t n, int64_t h, mc_fault *fault) {
    const expr *x = &e->node[i];
    int64_t u, v, w = 0, r = 0;
    switch (x->op) {
    case MC_CONST_I: case MC_CONST_B: return x->imm;
    case MC_Q: return q;
    case MC_K: return k;
    case MC_N: return n;
    case MC_H: return h;
    default: break;
    }
    u = expr_value(e, x->a, q, k, n, h, fault);
    if (*fault) return 0;
    if (x->op == MC_AND && !u) return 0;
    if (x->op == MC_OR && u) return 1;
    if (x->op == MC_IF_I || x->op == MC_IF_B) return expr_value(e, u ? x->b : x->c, q, k, n, h, fault);
    if (x->b < 0) v = 0;
    else v = expr_value(e, x->b, q, k, n, h, fault);
    if (*fault) return 0;
    if (x->op == MC_LOAD3) w = expr_value(e, x->c, q, k, n, h, fault);
    if (*fault) return 0;
    switch (x->op) {
    case MC_LOAD:
    case MC_LOAD2:
    case MC_LOAD3: {
        const mc_array *a = &e->arrays[x->imm];
        const int64_t plane = x->op == MC_LOAD3 ? u : 0, row = x->op == MC_LOAD3 ? v : u;
        const int64_t column = x->op == MC_LOAD3 ? w : x->op == MC_LOAD2 ? v : 0;
        const int64_t from = x->op == MC_LOAD ? 0 : a->column_first, columns = x->op == MC_LOAD ? 1 : a->columns;
        if (plane < 0 || (plane > 0 && plane >= a->planes) || row < a->first || row > a->first + a->count - 1 ||
            column < from || column > from + columns - 1)
            return *fault = MC_INDEX, 0;
        return mc_int_at(a, (uint64_t)((plane * a->count + row - a->first) * columns + column - from));
    }
    case MC_ADD: if (__builtin_add_overflow(u, v, &r)) *fault = MC_OVERFLOW; return r;
    case MC_SUB: if (__builtin_sub_overflow(u, v, &r)) *fault = MC_OVERFLOW; return r;
    case MC_MUL: if (__builtin_mul_overflow(u, v, &r)) *fault = MC_OVERFLOW; return r;
    case MC_DIV:
    case MC_MOD: {
        if (v == 0) return *fault = MC_DIV_ZERO, 0;
        if (u == INT64_MIN && v == -1) {
            if (x->op == MC_DIV) *fault = MC_OVERFLOW;
            return 0;
        }
        int64_t quotient = u / v, rest = u % v;
        bool round = rest != 0 && (rest < 0) != (v < 0);
        return x->op == MC_DIV ? quotient - round : rest + (round ? v : 0);
    }
    case MC_NEG: if (u == INT64_MIN) *fault = MC_OVERFLOW; else r = -u; return r;
    case MC_ABS: if (u == INT64_MIN) *fault = MC_OVERFLOW; else r = u < 0 ? -u : u; return r;
    case MC_MIN: return u < v ? u : v;
    case MC_MAX: return u < v ? v : u;
    case MC_EQ: case MC_IFF: return u == v;
    case MC_NE: return u != v;
    case MC_LT: return u < v;
    case MC_LE: return u <= v;
    case MC_NOT: return !u;
    case MC_AND: case MC_OR: return v;
    default: abort();
    }
}

static inline uint32_t guard_and(mc_builder *b, uint32_t guard, uint32_t p) {
    return guard == MC_NONE ? p : mc_emit(b, MC_AND, guard, p, MC_NONE, 0, MC_NONE, 0);
}

static inline uint32_t lower_expr(mc_builder *b, const exprs *e, int i, uint32_t guard) {
    const expr *x = &e->node[i];
    uint32_t u = MC_NONE, v = MC_NONE, w = MC_NONE;
    if (x->a >= 0) u = lower_expr(b, e, x->a, guard);
    switch (x->op) {
    case MC_AND: v = lower_expr(b, e, x->b, guard_and(b, guard, u)); break;
    case MC_OR:
        v = lower_expr(b, e, x->b, guard_and(b, guard, mc_emit(b, MC_NOT, u, MC_NONE, MC_NONE, 0, MC_NONE, 0)));
        break;
    case MC_IF_I: case MC_IF_B:
        v = lower_expr(b, e, x->b, guard_and(b, guard, u));
        w = lower_expr(b, e, x->c, guard_and(b, guard, mc_emit(b, MC_NOT, u, MC_NONE, MC_NONE, 0, MC_NONE, 0)));
        break;
    default:
        if (x->b >= 0) v = lower_expr(b, e, x->b, guard);
        if (x->c >= 0) w = lower_expr(b, e, x->c, guard);
        break;
    }
    return mc_emit(b, x->op, u, v, w, x->imm, guard, (uint32_t)i);
}

/* Lowers to code; the caller frees *nodes. */
static inline mc_code lower_mask(const exprs *e, int root, mc_node **nodes) {
    mc_builder *b = mc_builder_new();
    uint32_t *places, count;
    if (!b) abort();
    uint32_t r = lower_expr(b, e, root, MC_NONE);
    if (mc_builder_failed(b) || !mc_extract(b, r, nodes, &places, &count)) abort();
    free(places);
    mc_builder_free(b);
    return (mc_code){*nodes, count};
}

/* --- the prelude's masks ---------------------------------------------------------------------------------------- */

enum sample { SAMPLE_FULL, SAMPLE_CAUSAL, SAMPLE_WINDOW, SAMPLE_WINDOW_BOTH, SAMPLE_PREFIX, SAMPLE_LAMBDA,
              SAMPLE_SHARED_QUESTION, SAMPLE_CAUSAL_BLOCKWISE, SAMPLE_BLOCK_CAUSAL, SAMPLE_GLOBAL_WINDOW,
              SAMPLE_DILATED, SAMPLES };
static const char *const SAMPLE_NAMES[SAMPLES] = {"full", "causal", "window", "window_both", "prefix", "lambda",
                                                  "shared_question", "causal_blockwise", "block_causal",
                                                  "global_window", "dilated"};

/* x and y: the mask's parameters in the order of its name's list (unused ones are ignored). */
static inline int sample_mask(exprs *e, enum sample s, int64_t x, int64_t y) {
    int q = ex0(e, MC_Q), k = ex0(e, MC_K), n = ex0(e, MC_N);
    int causal = ex2(e, MC_LE, k, q), ahead = ex2(e, MC_SUB, q, k);
    int a = num(e, x), b = num(e, y);
    switch (s) {
    case SAMPLE_FULL: return truth(e, true);
    case SAMPLE_CAUSAL: return causal;
    case SAMPLE_WINDOW: /* 0 <= q - k < w */
        return ex2(e, MC_AND, ex2(e, MC_LE, num(e, 0), ahead), ex2(e, MC_LT, ahead, a));
    case SAMPLE_WINDOW_BOTH: /* -r <= q - k <= l */
        return ex2(e, MC_AND, ex2(e, MC_LE, ex1(e, MC_NEG, b), ahead), ex2(e, MC_LE, ahead, a));
    case SAMPLE_PREFIX: return ex2(e, MC_OR, ex2(e, MC_LT, k, a), causal);
    case SAMPLE_LAMBDA:
        return ex2(e, MC_AND, causal, ex2(e, MC_OR, ex2(e, MC_LT, k, a), ex2(e, MC_LT, ahead, b)));
    case SAMPLE_SHARED_QUESTION: {
        int question = ex2(e, MC_DIV, ex2(e, MC_MUL, n, a), num(e, 100));
        int each = ex2(e, MC_MAX, num(e, 1), ex2(e, MC_DIV, ex2(e, MC_SUB, n, question), b));
        int last = ex2(e, MC_SUB, b, num(e, 1));
        int part_q = ex2(e, MC_MIN, ex2(e, MC_DIV, ex2(e, MC_SUB, q, question), each), last);
        int part_k = ex2(e, MC_MIN, ex2(e, MC_DIV, ex2(e, MC_SUB, k, question), each), last);
        return ex2(e, MC_AND, causal, ex2(e, MC_OR, ex2(e, MC_LT, k, question), ex2(e, MC_EQ, part_q, part_k)));
    }
    case SAMPLE_CAUSAL_BLOCKWISE: {
        int t = ex2(e, MC_DIV, q, a), last = ex2(e, MC_DIV, ex2(e, MC_SUB, n, num(e, 1)), a);
        int outer = ex2(e, MC_OR, ex2(e, MC_EQ, t, num(e, 0)), ex2(e, MC_EQ, t, last));
        int from = ex2(e, MC_MAX, a, ex2(e, MC_SUB, q, ex2(e, MC_MUL, b, a)));
        int inner = ex2(e, MC_OR, ex2(e, MC_LT, k, a), ex2(e, MC_LE, from, k));
        return ex2(e, MC_AND, causal, ex2(e, MC_OR, outer, inner));
    }
    case SAMPLE_BLOCK_CAUSAL: return ex2(e, MC_LE, ex2(e, MC_DIV, k, a), ex2(e, MC_DIV, q, a));
    case SAMPLE_GLOBAL_WINDOW:
        return ex2(e, MC_OR, ex2(e, MC_LE, ex1(e, MC_ABS, ahead), b),
                   ex2(e, MC_OR, ex2(e, MC_LT, q, a), ex2(e, MC_LT, k, a)));
    case SAMPLE_DILATED:
        return ex2(e, MC_AND, ex2(e, MC_LE, ex1(e, MC_ABS, ahead), a),
                   ex2(e, MC_EQ, ex2(e, MC_MOD, ahead, b), num(e, 0)));
    case SAMPLES: break;
    }
    abort();
}

/* --- random masks ----------------------------------------------------------------------------------------------- */

static inline uint64_t draw(exprs *e, uint64_t below) { return splitmix(&e->seed) % below; }

static inline int64_t draw_number(exprs *e) {
    static const int64_t odd[] = {INT64_MIN, INT64_MAX, INT64_MAX / 2, INT64_MIN / 2, (int64_t)1 << 40, 3037000500};
    switch (draw(e, 40)) {
    case 0: return odd[draw(e, 6)];
    case 1: case 2: case 3: case 4: return (int64_t)draw(e, 400) - 50;
    case 5: case 6: case 7: return (int64_t)1 << draw(e, 9);
    case 8: case 9: case 10: case 11: return -(int64_t)draw(e, 8);
    default: return (int64_t)draw(e, 12);
    }
}

static inline int draw_int(exprs *e, int depth);
static inline int draw_bool(exprs *e, int depth) {
    static const mc_op compares[] = {MC_EQ, MC_NE, MC_LT, MC_LE, MC_LT, MC_LE};
    if (depth <= 0 || draw(e, 3) == 0)
        return ex2(e, compares[draw(e, 6)], draw_int(e, depth - 1), draw_int(e, depth - 1));
    switch (draw(e, 12)) {
    case 0: return ex1(e, MC_NOT, draw_bool(e, depth - 1));
    case 1: return ex2(e, MC_IFF, draw_bool(e, depth - 1), draw_bool(e, depth - 1));
    case 2: return ex(e, MC_IF_B, draw_bool(e, depth - 1), draw_bool(e, depth - 1), draw_bool(e, depth - 1), 0);
    case 3: return truth(e, draw(e, 2));
    case 4: { /* a guard that may be needed, as in y != 0 and x / y */
        int y = draw_int(e, depth - 1), x = draw_int(e, depth - 1);
        int p = ex2(e, MC_LT, ex2(e, draw(e, 2) ? MC_DIV : MC_MOD, x, y), draw_int(e, 0));
        int guard = ex2(e, draw(e, 3) ? MC_NE : MC_LT, num(e, 0), y);
        return ex2(e, MC_AND, guard, p);
    }
    case 5: case 6: case 7: case 8: return ex2(e, MC_AND, draw_bool(e, depth - 1), draw_bool(e, depth - 1));
    default: return ex2(e, MC_OR, draw_bool(e, depth - 1), draw_bool(e, depth - 1));
    }
}

/* Arrays of a sequence: one value for each key, for each query, for both; a small array, and a table of 5 columns; for
 * each of 3 heads and each cell of queries; for each of 3 heads, cell of queries and cell of keys; and one number. */
enum { ARRAY_TABLES_FROM = 3, ARRAY_TABLES_TO = 5 };
enum { ARRAY_ROWS = ARRAY_TABLES_TO, ARRAY_BLOCKS, ARRAY_ONE, ARRAYS_MAX, ARRAY_ROOM = 4096 };

/* The cell of a query, or of a key; mostly of the size that the arrays have. */
static inline int draw_cell(exprs *e, mc_op position) {
    int at = ex0(e, position);
    if (draw(e, 12) == 0) at = ex2(e, MC_ADD, at, num(e, (int64_t)draw(e, 5) - 2));
    const int64_t cell = position == MC_Q ? e->q_cell : e->k_cell;
    return ex2(e, MC_DIV, at, num(e, draw(e, 12) ? cell : 1 + (int64_t)draw(e, 64)));
}

/* An element of some array: mostly at q or k, or at their cells, or guarded, or anywhere. */
static inline int draw_element(exprs *e, int depth) {
    int i = (int)draw(e, (uint64_t)e->array_count);
    const mc_array *a = &e->arrays[i];
    mc_op op = a->planes ? MC_LOAD3 : a->columns ? MC_LOAD2 : MC_LOAD;
    int index = draw(e, 2) ? ex0(e, MC_Q) : ex0(e, MC_K), column = -1, last = -1, below, above;
    if (i == ARRAY_ROWS || i == ARRAY_BLOCKS) {
        index = e->heads && draw(e, 4) ? ex0(e, MC_H) : ex2(e, MC_MOD, index, num(e, 3));
        column = draw_cell(e, MC_Q);
        if (a->planes) last = draw_cell(e, MC_K);
        if (draw(e, 6)) return ex(e, op, index, column, last, i);
    } else if (a->columns) {
        index = draw(e, 2) && e->heads ? ex0(e, MC_H) : ex2(e, MC_MOD, index, num(e, 3));
        column = ex2(e, MC_MOD, draw_int(e, depth - 1), num(e, 5));
    } else if (i == ARRAY_ONE && draw(e, 4)) {
        return ex(e, op, num(e, a->first), -1, -1, i);
    }
    switch (draw(e, 8)) {
    case 0: index = ex1(e, MC_ABS, ex2(e, MC_SUB, ex0(e, MC_Q), ex0(e, MC_K))); break;
    case 1: index = ex2(e, draw(e, 2) ? MC_ADD : MC_SUB, index, num(e, (int64_t)draw(e, 3))); break;
    case 2: index = ex2(e, draw(e, 2) ? MC_DIV : MC_MOD, index, num(e, 1 + (int64_t)draw(e, 9))); break;
    case 3:
        index = draw_int(e, depth - 1);
        if (draw(e, 4) == 0) break;
        below = ex2(e, MC_LT, index, num(e, a->planes ? 0 : a->first));
        above = ex2(e, MC_LE, num(e, a->planes ? a->planes : a->first + a->count), index);
        index = ex(e, op, index, column, last, i);
        return ex(e, MC_IF_I, ex2(e, MC_OR, below, above), num(e, 1), index, 0);
    default: break;
    }
    return ex(e, op, index, column, last, i);
}

static inline int draw_int(exprs *e, int depth) {
    if (e->array_count && draw(e, 3) == 0) return draw_element(e, depth);
    if (depth <= 0 || draw(e, 4) == 0) {
        switch (draw(e, 10)) {
        case 0: case 1: case 2: return ex0(e, MC_Q);
        case 3: case 4: case 5: return ex0(e, MC_K);
        case 6: return draw(e, 2) ? ex0(e, MC_N) : num(e, draw_number(e));
        case 7: return e->heads ? ex0(e, MC_H) : ex2(e, MC_SUB, ex0(e, MC_Q), ex0(e, MC_K));
        default: return num(e, draw_number(e));
        }
    }
    int dice = (int)draw(e, 16);
    switch (dice) {
    case 0: case 1: case 2: return ex2(e, MC_ADD, draw_int(e, depth - 1), draw_int(e, depth - 1));
    case 3: case 4: case 5: return ex2(e, MC_SUB, draw_int(e, depth - 1), draw_int(e, depth - 1));
    case 6: return ex2(e, MC_MUL, draw_int(e, depth - 1), draw(e, 4) ? num(e, draw_number(e)) : draw_int(e, depth - 1));
    case 7: case 8: case 9: case 10: {
        int x = draw_int(e, depth - 1), y = draw(e, 8) ? num(e, draw_number(e)) : draw_int(e, depth - 1);
        return ex2(e, dice < 9 ? MC_DIV : MC_MOD, x, y);
    }
    case 11: return ex1(e, draw(e, 2) ? MC_NEG : MC_ABS, draw_int(e, depth - 1));
    case 12: return ex2(e, MC_MIN, draw_int(e, depth - 1), draw_int(e, depth - 1));
    case 13: return ex2(e, MC_MAX, draw_int(e, depth - 1), draw_int(e, depth - 1));
    case 14: return ex(e, MC_IF_I, draw_bool(e, depth - 1), draw_int(e, depth - 1), draw_int(e, depth - 1), 0);
    default: { /* guarded division */
        int y = draw_int(e, depth - 1), x = draw_int(e, depth - 1);
        return ex(e, MC_IF_I, ex2(e, MC_EQ, y, num(e, 0)), num(e, 1), ex2(e, draw(e, 2) ? MC_DIV : MC_MOD, x, y), 0);
    }
    }
}

typedef struct array_set {
    mc_array array[ARRAYS_MAX];
    int64_t wide_data[ARRAYS_MAX][ARRAY_ROOM];
    int8_t narrow_data[ARRAYS_MAX][ARRAY_ROOM];
} array_set;

static inline void draw_field(exprs *e, int64_t *out, int64_t count, int64_t first) {
    static const int64_t runs[] = {1, 2, 3, 20, 60, 300};
    uint64_t kind = draw(e, 9);
    int64_t longest = runs[draw(e, 6)], left = 0, value = (int64_t)draw(e, 5), few = 1 + (int64_t)draw(e, 6);
    for (int64_t i = 0; i < count; i++) {
        bool next = left-- <= 0;
        if (next) left = (int64_t)draw(e, (uint64_t)longest);
        switch (kind) {
        case 0: value += next; break;                                        /* documents */
        case 1: value = next ? (int64_t)draw(e, 100) * 37 % 101 : value; break; /* in any order */
        case 2: value = next ? (int64_t)draw(e, (uint64_t)few) : value; break;  /* few values */
        case 3: value = first + i; break;                                    /* positions */
        case 4: value = next ? first + i : value; break;                     /* where runs begin */
        case 5: value = first + i + (int64_t)draw(e, (uint64_t)longest); break; /* lifetimes */
        case 6: value = (int64_t)draw(e, 40) - 8; break;
        case 7: value = draw(e, 30) == 0; break;                             /* few marked */
        default: value = next ? (int64_t)draw(e, 9) : value + few - 3; break;   /* in progressions */
        }
        out[i] = value;
    }
}

/* Field 0 has the keys, field 1 the queries, the third both, if that is one range. */
static inline void draw_arrays(exprs *e, array_set *s, const mc_env *env) {
    enum { PLANES = 3, CELLS_MOST = 32 }; /* of a side, and two more where the ends cut one */
    int64_t end = env->q_first + env->queries;
    e->q_cell = 1 + env->queries / CELLS_MOST + (int64_t)draw(e, 150);
    e->k_cell = 1 + env->n / CELLS_MOST + (int64_t)draw(e, 150);
    const int64_t q_cell = mc_div(env->q_first, e->q_cell);
    const int64_t q_cells = env->queries ? mc_div(end - 1, e->q_cell) - q_cell + 1 : 0;
    const int64_t k_cells = (env->n + e->k_cell - 1) / e->k_cell;
    int64_t first[ARRAYS_MAX] = {0, env->q_first, env->q_first < 0 ? env->q_first : 0, 0, 0, 0, q_cell, 0};
    int64_t counts[ARRAYS_MAX] = {
        env->n, env->queries, (end > env->n ? end : env->n) - first[2], 12, 3, PLANES, q_cells, 1};
    const int64_t columns_of[ARRAYS_MAX] = {[4] = 5, [ARRAY_ROWS] = q_cells, [ARRAY_BLOCKS] = k_cells};
    e->array_count = ARRAYS_MAX;
    e->arrays = s->array;
    for (int i = 0; i < ARRAYS_MAX; i++) {
        const int64_t columns = columns_of[i];
        const uint32_t planes = i == ARRAY_BLOCKS ? PLANES : 0;
        int64_t all = counts[i] * (columns ? columns : 1) * (planes ? planes : 1);
        if (all > ARRAY_ROOM) abort();
        draw_field(e, s->wide_data[i], all, first[i]);
        s->array[i] =
            (mc_array){s->wide_data[i], first[i], counts[i], columns, MC_I64, planes, i == ARRAY_ROWS ? q_cell : 0};
        bool narrow = draw(e, 2);
        for (int64_t j = 0; j < all; j++) narrow = narrow && s->wide_data[i][j] == (int8_t)s->wide_data[i][j];
        for (int64_t j = 0; j < all && narrow; j++) s->narrow_data[i][j] = (int8_t)s->wide_data[i][j];
        if (narrow) s->array[i].data = s->narrow_data[i], s->array[i].width = MC_I8;
    }
}

/* A random mask of the given depth; at most EXPR_MAX nodes for depth <= 4. */
static inline int random_mask(exprs *e, uint64_t seed, int depth, bool heads) {
    e->count = 0;
    e->seed = seed;
    e->heads = heads;
    return draw_bool(e, depth);
}
#endif
