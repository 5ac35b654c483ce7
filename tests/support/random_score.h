/* random_score.h: random score expressions, as text and as trees with an evaluator of their own. */
#ifndef RANDOM_SCORE_H
#define RANDOM_SCORE_H
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { NODES = 400, TEXT = 1 << 14 };

typedef enum kind {
    /* whole numbers */
    W_CONST, W_Q, W_K, W_N, W_H, W_HEADS, W_ADD, W_SUB, W_MUL, W_NEG, W_ABS, W_MIN, W_MAX, W_IF, W_EXACT,
    /* conditions */
    B_LT, B_LE, B_EQ, B_AND, B_OR, B_NOT, B_REAL_LT, B_REAL_GE, B_WINDOW,
    /* reals */
    R_CONST, R_S, R_WHOLE, R_ADD, R_SUB, R_MUL, R_DIV, R_NEG, R_ABS, R_MIN, R_MAX, R_IF, R_EXP, R_EXP2, R_LOG, R_LOG2,
    R_TANH, R_TANH_APPROX, R_SQRT, R_FLOOR, R_SOFTCAP
} kind;

typedef struct tree {
    kind kind;
    const struct tree *a, *b, *c;
    int64_t whole;
    double real;
} tree;

typedef struct maker {
    uint64_t state;
    tree pool[NODES];
    unsigned used;
    bool smooth; /* nothing with a kink, and tame arguments of every function */
    bool risky;  /* whole numbers that may fault */
} maker;

typedef struct point {
    int64_t q, k, n, h, heads;
    double s;
    bool fault;
} point;

static uint64_t roll(maker *m, uint64_t below) {
    m->state ^= m->state << 13;
    m->state ^= m->state >> 7;
    m->state ^= m->state << 17;
    return (m->state * UINT64_C(0x2545f4914f6cdd1d) >> 33) % below;
}

static const tree *make(maker *m, kind of, const tree *a, const tree *b, const tree *c) {
    tree *t = &m->pool[m->used++];
    *t = (tree){.kind = of, .a = a, .b = b, .c = c};
    return t;
}

static const tree *real_constant(maker *m, double x) {
    tree *t = (tree *)make(m, R_CONST, NULL, NULL, NULL);
    t->real = x;
    return t;
}

static const tree *make_condition(maker *m, unsigned depth);

static const tree *make_whole(maker *m, unsigned depth) {
    if (!depth || m->used > NODES - 60) {
        kind leaf = (kind)(W_CONST + roll(m, 6));
        tree *t = (tree *)make(m, leaf, NULL, NULL, NULL);
        t->whole = m->risky && roll(m, 4) == 0 ? INT64_C(1) << (40 + roll(m, 23)) : (int64_t)roll(m, 9);
        return t;
    }
    kind k = (kind)(W_ADD + roll(m, 9));
    if (!m->risky && (k == W_EXACT || k == W_MUL)) k = W_SUB;
    const tree *a = make_whole(m, depth - 1);
    if (k == W_NEG || k == W_ABS) return make(m, k, a, NULL, NULL);
    const tree *b = make_whole(m, depth - 1);
    if (k == W_IF) return make(m, k, make_condition(m, depth - 1), a, b);
    return make(m, k, a, b, NULL);
}

static const tree *make_real(maker *m, unsigned depth);

/* Conditions on whole numbers; on reals too, but not where something may fault. */
static const tree *make_condition(maker *m, unsigned depth) {
    if (depth && roll(m, 3) == 0) {
        kind k = (kind)(B_AND + roll(m, 3));
        const tree *a = make_condition(m, depth - 1);
        return make(m, k, a, k == B_NOT ? NULL : make_condition(m, depth - 1), NULL);
    }
    if (roll(m, 6) == 0) {
        tree *t = (tree *)make(m, B_WINDOW, NULL, NULL, NULL);
        t->whole = (int64_t)roll(m, 20);
        return t;
    }
    if (depth && !m->risky && !m->smooth && roll(m, 3) == 0) {
        const tree *a = make_real(m, depth - 1);
        return make(m, roll(m, 2) ? B_REAL_LT : B_REAL_GE, a, make_real(m, depth - 1), NULL);
    }
    const tree *a = make_whole(m, depth ? depth - 1 : 0);
    return make(m, (kind)(B_LT + roll(m, 3)), a, make_whole(m, depth ? depth - 1 : 0), NULL);
}

/* 1.5 + x x */
static const tree *positive(maker *m, const tree *x) {
    return make(m, R_ADD, real_constant(m, 1.5), make(m, R_MUL, x, x, NULL), NULL);
}

static const tree *make_real(maker *m, unsigned depth) {
    static const double constants[] = {0.0, 1.0, 0.5, 2.0, 30.0, 0.1, 3.25, 1.0e-3, 7.0};
    if (!depth || m->used > NODES - 60) {
        switch (roll(m, 4)) {
        case 0: return real_constant(m, constants[roll(m, 9)]);
        case 1: return make(m, R_WHOLE, make_whole(m, m->risky ? 2 : 1), NULL, NULL);
        default: return make(m, R_S, NULL, NULL, NULL);
        }
    }
    kind k = (kind)(R_ADD + roll(m, R_SOFTCAP - R_ADD + 1));
    if (m->smooth && (k == R_ABS || k == R_MIN || k == R_MAX || k == R_FLOOR)) k = R_MUL;
    const tree *a = make_real(m, depth - 1);
    if (m->smooth && (k == R_EXP || k == R_EXP2)) a = make(m, R_TANH, a, NULL, NULL);
    if (m->smooth && (k == R_LOG || k == R_LOG2 || k == R_SQRT)) a = positive(m, a);
    if (k >= R_EXP || k == R_NEG || k == R_ABS) return make(m, k, a, NULL, NULL);
    const tree *b = make_real(m, depth - 1);
    if (m->smooth && k == R_DIV) b = positive(m, b);
    if (k == R_IF) return make(m, k, make_condition(m, depth - 1), a, b);
    return make(m, k, a, b, NULL);
}

/* --- text --------------------------------------------------------------------------------------------------------- */

typedef struct page {
    char text[TEXT];
    size_t size;
} page;

static void put(page *p, const char *words) {
    size_t size = strlen(words);
    if (p->size + size < TEXT) memcpy(p->text + p->size, words, size + 1), p->size += size;
}

static void write_tree(page *p, const tree *t) {
    static const struct { const char *before, *between, *after; } shape[] = {
        [W_ADD] = {"(", " + ", ")"},      [W_SUB] = {"(", " - ", ")"},      [W_MUL] = {"(", " * ", ")"},
        [W_NEG] = {"(-", "", ")"},        [W_ABS] = {"abs(", "", ")"},      [W_MIN] = {"min(", ", ", ")"},
        [W_MAX] = {"max(", ", ", ")"},    [W_EXACT] = {"exact(", ", ", ")"}, [B_LT] = {"(", " < ", ")"},
        [B_LE] = {"(", " <= ", ")"},      [B_EQ] = {"(", " == ", ")"},      [B_AND] = {"(", " and ", ")"},
        [B_OR] = {"(", " or ", ")"},      [B_NOT] = {"(not ", "", ")"},     [B_REAL_LT] = {"(", " < ", ")"},
        [B_REAL_GE] = {"(", " >= ", ")"}, [R_WHOLE] = {"(1.0 * ", "", ")"},  [R_ADD] = {"(", " + ", ")"},
        [R_SUB] = {"(", " - ", ")"},      [R_MUL] = {"(", " * ", ")"},      [R_DIV] = {"(", " / ", ")"},
        [R_NEG] = {"(-", "", ")"},        [R_ABS] = {"abs(", "", ")"},      [R_MIN] = {"min(", ", ", ")"},
        [R_MAX] = {"max(", ", ", ")"},    [R_EXP] = {"exp(", "", ")"},      [R_EXP2] = {"exp2(", "", ")"},
        [R_LOG] = {"log(", "", ")"},      [R_LOG2] = {"log2(", "", ")"},    [R_TANH] = {"tanh(", "", ")"},
        [R_TANH_APPROX] = {"tanh_approx(", "", ")"},
        [R_SQRT] = {"sqrt(", "", ")"},    [R_FLOOR] = {"floor(", "", ")"},
        [R_SOFTCAP] = {"softcap(c = 3, s = ", "", ")"}};
    static const char *const names[] = {[W_Q] = "q", [W_K] = "k", [W_N] = "n", [W_H] = "h", [W_HEADS] = "heads"};
    char number[64];
    switch (t->kind) {
    case W_CONST: snprintf(number, sizeof number, "%" PRId64, t->whole); put(p, number); return;
    case W_Q: case W_K: case W_N: case W_H: case W_HEADS: put(p, names[t->kind]); return;
    case R_S: put(p, "s"); return;
    case B_WINDOW: snprintf(number, sizeof number, "window(w = %" PRId64 ")", t->whole); put(p, number); return;
    case R_CONST:
        snprintf(number, sizeof number, "%.6f", t->real);
        put(p, number);
        return;
    case W_IF: case R_IF:
        put(p, "(if ");
        write_tree(p, t->a);
        put(p, " then ");
        write_tree(p, t->b);
        put(p, " else ");
        write_tree(p, t->c);
        put(p, ")");
        return;
    default: break;
    }
    put(p, shape[t->kind].before);
    write_tree(p, t->a);
    put(p, shape[t->kind].between);
    if (t->b) write_tree(p, t->b);
    put(p, shape[t->kind].after);
}

/* --- meaning ------------------------------------------------------------------------------------------------------ */

static bool condition_of(const tree *t, point *p);
static double real_of(const tree *t, point *p);

static int64_t whole_of(const tree *t, point *p) {
    int64_t a, b, v = 0;
    switch (t->kind) {
    case W_CONST: return t->whole;
    case W_Q: return p->q;
    case W_K: return p->k;
    case W_N: return p->n;
    case W_H: return p->h;
    case W_HEADS: return p->heads;
    case W_IF: return condition_of(t->a, p) ? whole_of(t->b, p) : whole_of(t->c, p);
    default: break;
    }
    a = whole_of(t->a, p);
    b = t->b ? whole_of(t->b, p) : 0;
    switch (t->kind) {
    case W_ADD: p->fault |= __builtin_add_overflow(a, b, &v); return v;
    case W_SUB: p->fault |= __builtin_sub_overflow(a, b, &v); return v;
    case W_MUL: p->fault |= __builtin_mul_overflow(a, b, &v); return v;
    case W_NEG: p->fault |= __builtin_sub_overflow((int64_t)0, a, &v); return v;
    case W_ABS:
        if (a >= 0) return a;
        p->fault |= __builtin_sub_overflow((int64_t)0, a, &v);
        return v;
    case W_MIN: return a < b ? a : b;
    case W_MAX: return a > b ? a : b;
    default: /* W_EXACT */
        if (b == 0 || (a == INT64_MIN && b == -1) || (b != -1 && a % b)) {
            p->fault = true;
            return 0;
        }
        return b == -1 ? -a : a / b;
    }
}

static bool condition_of(const tree *t, point *p) {
    switch (t->kind) {
    case B_LT: { int64_t a = whole_of(t->a, p); return a < whole_of(t->b, p); }
    case B_LE: { int64_t a = whole_of(t->a, p); return a <= whole_of(t->b, p); }
    case B_EQ: { int64_t a = whole_of(t->a, p); return a == whole_of(t->b, p); }
    case B_AND: return condition_of(t->a, p) && condition_of(t->b, p);
    case B_OR: return condition_of(t->a, p) || condition_of(t->b, p);
    case B_NOT: return !condition_of(t->a, p);
    case B_REAL_LT: { double a = real_of(t->a, p); return a < real_of(t->b, p); }
    case B_REAL_GE: { double a = real_of(t->a, p); return a >= real_of(t->b, p); }
    default: return 0 <= p->q - p->k && p->q - p->k < t->whole; /* B_WINDOW */
    }
}

static double real_of(const tree *t, point *p) {
    switch (t->kind) {
    case R_CONST: return t->real;
    case R_S: return p->s;
    case R_WHOLE: return (double)whole_of(t->a, p);
    case R_IF: return condition_of(t->a, p) ? real_of(t->b, p) : real_of(t->c, p);
    default: break;
    }
    double a = real_of(t->a, p), b = t->b ? real_of(t->b, p) : 0;
    switch (t->kind) {
    case R_ADD: return a + b;
    case R_SUB: return a - b;
    case R_MUL: return a * b;
    case R_DIV: return a / b;
    case R_NEG: return -a;
    case R_ABS: return fabs(a);
    case R_MIN: return b < a ? b : a;
    case R_MAX: return b > a ? b : a;
    case R_EXP: return exp(a);
    case R_EXP2: return exp2(a);
    case R_LOG: return log(a);
    case R_LOG2: return log2(a);
    case R_TANH: case R_TANH_APPROX: return tanh(a);
    case R_SQRT: return sqrt(a);
    case R_FLOOR: return floor(a);
    default: return 3 * tanh(a / 3); /* R_SOFTCAP */
    }
}
#endif
