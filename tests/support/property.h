/* property.h: random mask programs, for property tests.
 *
 * A program is a tree, which this file evaluates as the language says: from left to right, with short circuits and
 * faults. The compiler gets source text that is printed from the tree. So the two share no code. shrink.h makes a
 * failing program smaller. */
#ifndef TESTS_PROPERTY_H
#define TESTS_PROPERTY_H
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/splitmix.h"

/* --- programs ---------------------------------------------------------------------------------------------------- */

typedef enum p_kind {
    P_CONST, P_Q, P_K, P_N, P_H, P_T, /* P_T: the parameter of the function it stands in */
    P_ADD, P_SUB, P_MUL, P_DIV, P_MOD, P_MIN, P_MAX, P_ABS, P_NEG, P_IF, P_CALL, /* imm: which; a: argument, or -1 */
    P_LOAD, P_RUN, /* imm: which field; a: where */
    P_TABLE, /* imm: which table, a: where; of table P_GRID a: which row, b: which column */
    P_TRUE, P_FALSE, P_SLICES, /* imm: which union */
    P_RECT, /* imm: which rect's ends and kind; a, b: where its queries and its keys begin */
    P_EQ, P_NE, P_LT, P_LE, P_GT, P_GE, P_SAME, P_DIFFER, P_AND, P_OR, P_NOT, P_IFB, P_CALLB
} p_kind;

enum { P_NODES = 1024, P_DRAWN = 300, P_FUNCTIONS = 3, P_SEQUENCES = 3, P_CUTS = 6, P_LONGEST = 420, P_HEADS = 3,
       P_FIELDS = 2, P_GRID = 1, P_CELLS = 64, P_TABLES = 2, P_UNIONS = 3, P_SLICES_EACH = 6, P_TEXT = 1 << 16 };

typedef struct p_node {
    p_kind kind;
    int a, b, c;
    int64_t imm;
} p_node;

typedef struct p_function {
    int body;
    bool takes, is_bool; /* takes: has a parameter */
} p_function;

/* Of a rect q0 and k0 are not used, and an end of -1 is n. */
typedef struct p_slice {
    int64_t q0, q1, k0, k1;
    uint32_t kind; /* of P_KIND_WORDS */
} p_slice;
static const char *const P_KIND_WORDS[] = {"full", "causal", "inverse", "both"};

typedef struct p_union {
    int count;
    p_slice of[P_SLICES_EACH];
} p_union;

typedef struct p_table {
    uint32_t rows, columns; /* columns: 1 but of P_GRID */
    int64_t value[P_CELLS];
} p_table;

/* Queries are the last of n positions, or begin before them where there are more; at the top left they begin at 0. Cuts
 * are in order, the first and the last included; those of queries count from the first query. */
typedef struct p_sequence {
    uint64_t n, queries, q_cuts[P_CUTS], k_cuts[P_CUTS];
    uint32_t q_cut_count, k_cut_count;
    int64_t field[P_FIELDS][P_LONGEST]; /* what fields hold of it */
} p_sequence;

typedef struct property {
    p_node node[P_NODES];
    int count, root;
    p_function function[P_FUNCTIONS];
    int functions;
    p_sequence sequence[P_SEQUENCES];
    uint32_t sequences, heads;
    int fields;
    p_table table[P_TABLES];
    p_union pieces[P_UNIONS];
    int unions;
    bool top_left;
    uint64_t seed;
} property;

static inline bool p_is_bool(p_kind kind) { return kind >= P_TRUE; }
static inline bool p_is_call(p_kind kind) { return kind == P_CALL || kind == P_CALLB; }
static inline bool p_is_leaf(p_kind kind) { return kind <= P_T || (kind >= P_TRUE && kind <= P_SLICES); }
static inline int64_t p_first(const property *p, const p_sequence *s) {
    return p->top_left ? 0 : (int64_t)s->n - (int64_t)s->queries;
}

/* --- meaning ----------------------------------------------------------------------------------------------------- */

/* P_RIGHT is the language's; the others are mistakes, to try the test with. */
typedef enum p_meaning { P_RIGHT, P_LE_IS_LT, P_TRUNCATES, P_EAGER, P_H_IS_0, P_KINDS_ALIKE, P_TURNED } p_meaning;
typedef enum p_fault { P_OK, P_OVERFLOW, P_DIV_ZERO, P_INDEX } p_fault;
typedef struct p_place {
    int64_t q, k, n, h, t;
    const p_sequence *sequence;
    p_meaning meaning;
    p_fault fault; /* the first that evaluation reaches; what is computed after it is of no use */
} p_place;

static inline int64_t p_fail(p_place *at, p_fault fault) {
    if (!at->fault) at->fault = fault;
    return 0;
}

static inline bool p_in_slices(const p_union *u, const p_place *at) {
    for (int i = 0; i < u->count; i++) {
        const p_slice *s = &u->of[i];
        bool above = s->kind == 1 || s->kind == 3, below = s->kind == 2 || s->kind == 3;
        if (at->meaning == P_KINDS_ALIKE) above = below = false;
        if (at->q >= s->q0 && at->q < s->q1 && at->k >= s->k0 && at->k < s->k1 &&
            (!above || s->k1 - at->k >= s->q1 - at->q) && (!below || at->k - s->k0 >= at->q - s->q0))
            return true;
    }
    return false;
}

static inline int64_t p_value(const property *p, int i, p_place *at);
/* The comparisons in their order: a bound is reached where those before it hold. */
static inline int64_t p_in_rect(const property *p, const p_node *x, p_place *at) {
    const p_slice *s = &p->pieces[x->imm].of[0];
    const int64_t q1 = s->q1 < 0 ? at->n : s->q1, k1 = s->k1 < 0 ? at->n : s->k1, q0 = p_value(p, x->a, at);
    if (at->fault || at->q < q0 || at->q >= q1) return 0;
    const int64_t k0 = p_value(p, x->b, at);
    if (at->fault || at->k < k0 || at->k >= k1) return 0;
    if (at->meaning == P_KINDS_ALIKE) return 1;
    if (s->kind % 2 && at->k - k1 > at->q - q1) return 0;
    if (s->kind < 2) return 1;
    int64_t u, v;
    if (__builtin_sub_overflow(at->k, k0, &u) || __builtin_sub_overflow(at->q, q0, &v)) return p_fail(at, P_OVERFLOW);
    return u >= v;
}

static inline int64_t p_value(const property *p, int i, p_place *at) {
    const p_node *x = &p->node[i];
    int64_t u = 0, v = 0, r;
    bool down;
    switch (x->kind) {
    case P_CONST: return x->imm;
    case P_Q: return at->q;
    case P_K: return at->k;
    case P_N: return at->n;
    case P_H: return at->meaning == P_H_IS_0 ? 0 : at->h;
    case P_T: return at->t;
    case P_TRUE: return 1;
    case P_FALSE: return 0;
    case P_SLICES: return p_in_slices(&p->pieces[x->imm], at);
    case P_RECT: return p_in_rect(p, x, at);
    case P_CALL: case P_CALLB: {
        const p_function *f = &p->function[x->imm];
        int64_t outside = at->t;
        if (f->takes) at->t = p_value(p, x->a, at);
        u = at->fault ? 0 : p_value(p, f->body, at);
        at->t = outside;
        return u;
    }
    default: break;
    }
    u = p_value(p, x->a, at);
    if (at->fault) return 0;
    if (x->kind == P_IF || x->kind == P_IFB) return p_value(p, u ? x->b : x->c, at);
    if (at->meaning != P_EAGER && ((x->kind == P_AND && !u) || (x->kind == P_OR && u))) return u;
    if (x->b >= 0) v = p_value(p, x->b, at);
    if (at->fault) return 0;
    switch (x->kind) {
    case P_LOAD: case P_RUN: {
        const int64_t *values = at->sequence->field[x->imm];
        if (u < 0 || u >= at->n) return p_fail(at, P_INDEX);
        if (x->kind == P_LOAD) return values[u];
        while (u > 0 && values[u - 1] == values[u]) u--;
        return u;
    }
    case P_TABLE: {
        const p_table *t = &p->table[x->imm];
        if (u < 0 || u >= t->rows || v < 0 || v >= t->columns) return p_fail(at, P_INDEX);
        if (at->meaning == P_TURNED && v < t->rows && u < t->columns) return t->value[v * t->columns + u];
        return t->value[u * t->columns + v];
    }
    case P_ADD: return __builtin_add_overflow(u, v, &r) ? p_fail(at, P_OVERFLOW) : r;
    case P_SUB: return __builtin_sub_overflow(u, v, &r) ? p_fail(at, P_OVERFLOW) : r;
    case P_MUL: return __builtin_mul_overflow(u, v, &r) ? p_fail(at, P_OVERFLOW) : r;
    case P_DIV: case P_MOD:
        if (v == 0) return p_fail(at, P_DIV_ZERO);
        if (v == -1) return x->kind == P_MOD ? 0 : u == INT64_MIN ? p_fail(at, P_OVERFLOW) : -u;
        r = u % v;
        down = at->meaning != P_TRUNCATES && r && (r < 0) != (v < 0);
        return x->kind == P_MOD ? r + (down ? v : 0) : u / v - down;
    case P_MIN: return u < v ? u : v;
    case P_MAX: return u > v ? u : v;
    case P_ABS: return u == INT64_MIN ? p_fail(at, P_OVERFLOW) : u < 0 ? -u : u;
    case P_NEG: return u == INT64_MIN ? p_fail(at, P_OVERFLOW) : -u;
    case P_EQ: case P_SAME: return u == v;
    case P_NE: case P_DIFFER: return u != v;
    case P_LT: return u < v;
    case P_LE: return at->meaning == P_LE_IS_LT ? u < v : u <= v;
    case P_GT: return u > v;
    case P_GE: return u >= v;
    case P_AND: return u && v;
    case P_OR: return u || v;
    case P_NOT: return !u;
    default: abort();
    }
}

/* --- text -------------------------------------------------------------------------------------------------------- */

typedef struct p_text {
    char text[P_TEXT];
    size_t size;
} p_text;

__attribute__((format(printf, 2, 3))) static inline void p_put(p_text *t, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(t->text + t->size, sizeof t->text - t->size, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof t->text - t->size) abort();
    t->size += (size_t)n;
}

static inline void p_put_end(p_text *t, int64_t end) {
    if (end < 0) p_put(t, "n");
    else p_put(t, "%" PRId64, end);
}

static inline void p_print_slices(p_text *t, const p_union *u) {
    for (int i = 0; i < u->count; i++) {
        const p_slice *s = &u->of[i];
        p_put(t, i ? ", " : "slices(");
        p_put(t, "[%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64, s->q0, s->q1, s->k0, s->k1);
        p_put(t, s->kind ? ", %s]" : "]", P_KIND_WORDS[s->kind]);
    }
    p_put(t, ")");
}

/* In parentheses unless a leaf or a call. */
static inline void p_print(p_text *t, const property *p, int i, bool inside) {
    static const char *const words[] = {
        [P_Q] = "q", [P_K] = "k", [P_N] = "n", [P_H] = "h", [P_T] = "t", [P_ADD] = "+", [P_SUB] = "-", [P_MUL] = "*",
        [P_DIV] = "/", [P_MOD] = "%", [P_MIN] = "min", [P_MAX] = "max", [P_ABS] = "abs", [P_TRUE] = "true",
        [P_FALSE] = "false", [P_EQ] = "==", [P_NE] = "!=", [P_LT] = "<", [P_LE] = "<=", [P_GT] = ">", [P_GE] = ">=",
        [P_SAME] = "==", [P_DIFFER] = "!=", [P_AND] = "and", [P_OR] = "or"};
    const p_node *x = &p->node[i];
    switch (x->kind) {
    case P_CONST: p_put(t, x->imm < 0 && inside ? "(%" PRId64 ")" : "%" PRId64, x->imm); return;
    case P_Q: case P_K: case P_N: case P_H: case P_T: case P_TRUE: case P_FALSE: p_put(t, "%s", words[x->kind]); return;
    case P_CALL: case P_CALLB:
        p_put(t, "f%d", (int)x->imm);
        if (!p->function[x->imm].takes) return;
        p_put(t, "(");
        p_print(t, p, x->a, false);
        p_put(t, ")");
        return;
    case P_LOAD: case P_RUN:
        p_put(t, x->kind == P_LOAD ? "d%d[" : "run(d%d, ", (int)x->imm);
        p_print(t, p, x->a, false);
        p_put(t, x->kind == P_LOAD ? "]" : ")");
        return;
    case P_TABLE:
        p_put(t, "t%d[", (int)x->imm);
        p_print(t, p, x->a, false);
        if (x->b >= 0) p_put(t, ", "), p_print(t, p, x->b, false);
        p_put(t, "]");
        return;
    case P_SLICES: p_print_slices(t, &p->pieces[x->imm]); return;
    case P_RECT: {
        const p_slice *s = &p->pieces[x->imm].of[0];
        p_put(t, "rect("), p_print(t, p, x->a, true);
        p_put(t, ".."), p_put_end(t, s->q1);
        p_put(t, ", "), p_print(t, p, x->b, true);
        p_put(t, ".."), p_put_end(t, s->k1);
        p_put(t, s->kind ? ", %s)" : ")", P_KIND_WORDS[s->kind]);
        return;
    }
    case P_MIN: case P_MAX: case P_ABS:
        p_put(t, "%s(", words[x->kind]);
        p_print(t, p, x->a, false);
        if (x->b >= 0) p_put(t, ", "), p_print(t, p, x->b, false);
        p_put(t, ")");
        return;
    default: break;
    }
    if (inside) p_put(t, "(");
    if (x->kind == P_IF || x->kind == P_IFB) {
        p_put(t, "if "), p_print(t, p, x->a, true);
        p_put(t, " then "), p_print(t, p, x->b, true);
        p_put(t, " else "), p_print(t, p, x->c, true);
    } else if (x->kind == P_NOT || x->kind == P_NEG) {
        p_put(t, x->kind == P_NOT ? "not " : "-"), p_print(t, p, x->a, true);
    } else {
        p_print(t, p, x->a, true);
        p_put(t, " %s ", words[x->kind]);
        p_print(t, p, x->b, true);
    }
    if (inside) p_put(t, ")");
}

/* Which functions the tree under i calls, the called ones' calls included: a bit each. */
static inline unsigned p_calls(const property *p, int i) {
    if (i < 0) return 0;
    const p_node *x = &p->node[i];
    unsigned used = p_calls(p, x->a) | p_calls(p, x->b) | p_calls(p, x->c);
    if (p_is_call(x->kind)) used |= 1u << x->imm | p_calls(p, p->function[x->imm].body);
    return used;
}

/* Which fields are read, then which tables, which unions and rects: a bit each. */
enum { P_READS_TABLE = P_FIELDS, P_READS_PIECES = P_READS_TABLE + P_TABLES };
static inline unsigned p_reads(const property *p, int i) {
    if (i < 0) return 0;
    const p_node *x = &p->node[i];
    unsigned used = p_reads(p, x->a) | p_reads(p, x->b) | p_reads(p, x->c);
    if (x->kind == P_LOAD || x->kind == P_RUN) used |= 1u << x->imm;
    if (x->kind == P_TABLE) used |= 1u << (P_READS_TABLE + x->imm);
    if (x->kind == P_SLICES || x->kind == P_RECT) used |= 1u << (P_READS_PIECES + x->imm);
    if (p_is_call(x->kind)) used |= p_reads(p, p->function[x->imm].body);
    return used;
}

static inline void p_print_field(p_text *t, const property *p, int f) {
    p_put(t, "\n    field d%d = [", f);
    bool first = true;
    for (uint32_t i = 0; i < p->sequences; i++) {
        const int64_t *v = p->sequence[i].field[f];
        for (uint64_t at = 0, end; at < p->sequence[i].n; at = end, first = false) {
            for (end = at + 1; end < p->sequence[i].n && v[end] == v[at]; end++) {}
            p_put(t, end - at > 1 ? "%s%" PRId64 " x %" PRIu64 : "%s%" PRId64, first ? "" : ", ", v[at], end - at);
        }
    }
    p_put(t, "]");
}

static inline void p_print_table(p_text *t, const property *p, int number) {
    const p_table *x = &p->table[number];
    p_put(t, "; table t%d = [", number);
    for (uint32_t i = 0; i < x->rows; i++) {
        p_put(t, number == P_GRID ? "%s[" : "%s", i ? ", " : "");
        for (uint32_t j = 0; j < x->columns; j++) p_put(t, "%s%" PRId64, j ? ", " : "", x->value[i * x->columns + j]);
        if (number == P_GRID) p_put(t, "]");
    }
    p_put(t, "]");
}

/* The program as source. The cuts, which are not of the language, stand in comments. */
static inline void p_source(const property *p, p_text *t) {
    unsigned used = p_calls(p, p->root), reads = p_reads(p, p->root);
    t->size = 0;
    p_put(t, "model { heads = %u", p->heads);
    for (int i = 0; i < P_TABLES; i++)
        if (reads & 1u << (P_READS_TABLE + i)) p_print_table(t, p, i);
    p_put(t, " }\nbatch { lengths = [");
    for (uint32_t i = 0; i < p->sequences; i++) {
        const p_sequence *s = &p->sequence[i];
        p_put(t, "%s", i ? ", " : "");
        if (s->queries != s->n) p_put(t, "%" PRIu64 ":", s->queries);
        p_put(t, "%" PRIu64, s->n);
    }
    p_put(t, "]%s", p->top_left ? "; align = top_left" : "");
    reads &= (1u << P_FIELDS) - 1;
    for (int f = 0; f < p->fields; f++)
        if (reads & 1u << f) p_print_field(t, p, f);
    p_put(t, "%s}\nmask drawn = ", reads ? "\n" : " ");
    p_print(t, p, p->root, false);
    if (used) p_put(t, "\n    where {\n");
    for (int i = 0; i < p->functions; i++) {
        if (!(used & 1u << i)) continue;
        p_put(t, "        f%d%s = ", i, p->function[i].takes ? "(t)" : "");
        p_print(t, p, p->function[i].body, false);
        p_put(t, "\n");
    }
    if (used) p_put(t, "    }");
    p_put(t, "\nplan { mask = drawn }\n");
    for (uint32_t i = 0; i < p->sequences; i++) {
        const p_sequence *s = &p->sequence[i];
        p_put(t, "# sequence %u cut for queries at", i);
        for (uint32_t j = 0; j < s->q_cut_count; j++) p_put(t, " %" PRIu64, s->q_cuts[j]);
        p_put(t, ", for keys at");
        for (uint32_t j = 0; j < s->k_cut_count; j++) p_put(t, " %" PRIu64, s->k_cuts[j]);
        p_put(t, "\n");
    }
}

/* --- drawing ----------------------------------------------------------------------------------------------------- */

static inline uint64_t p_draw(property *p, uint64_t below) { return splitmix(&p->seed) % below; }

static inline int p_new(property *p, p_kind kind, int a, int b, int c, int64_t imm) {
    if (p->count == P_NODES) abort();
    p->node[p->count] = (p_node){kind, a, b, c, imm};
    return p->count++;
}
static inline int p2(property *p, p_kind kind, int a, int b) { return p_new(p, kind, a, b, -1, 0); }
static inline int p1(property *p, p_kind kind, int a) { return p_new(p, kind, a, -1, -1, 0); }
static inline int p0(property *p, p_kind kind) { return p_new(p, kind, -1, -1, -1, 0); }
static inline int p_num(property *p, int64_t value) { return p_new(p, P_CONST, -1, -1, -1, value); }

/* Where an expression stands: what it may name. */
typedef struct p_scope {
    bool t;        /* the parameter */
    bool pair;     /* q and k */
    int functions; /* those before this one */
} p_scope;
static const p_scope P_IN_MASK = {false, true, P_FUNCTIONS};

static inline int64_t p_draw_number(property *p) {
    static const int64_t edges[] = {63, 64, 100, 126, 127, 128, 129, 130, 200, 255, 256, 257, 300};
    static const int64_t odd[] = {INT64_MAX, -INT64_MAX, INT64_MAX / 2, (int64_t)1 << 40, 3037000500, 65536};
    switch (p_draw(p, 24)) {
    case 0: return odd[p_draw(p, 6)];
    case 1: case 2: case 3: case 4: return edges[p_draw(p, 13)];
    case 5: case 6: case 7: return (int64_t)p_draw(p, 300);
    case 8: return -(int64_t)p_draw(p, 200);
    case 9: case 10: return -(int64_t)p_draw(p, 6);
    default: return (int64_t)p_draw(p, 12);
    }
}

/* A stretch: small, or near the side of a cell. */
static inline int p_size(property *p) {
    return p_num(p, p_draw(p, 3) ? 1 + (int64_t)p_draw(p, 40) : 120 + (int64_t)p_draw(p, 20));
}

/* A position, a shifted one, or the parameter: what calls take. Adds nothing that can fault. */
static inline int p_position(property *p, p_scope s) {
    int x = s.t ? p0(p, P_T) : !s.pair ? p0(p, P_N) : p0(p, p_draw(p, 2) ? P_Q : P_K);
    switch (p_draw(p, 6)) {
    case 0: return p2(p, P_ADD, x, p_num(p, (int64_t)p_draw(p, 130)));
    case 1: return p2(p, P_SUB, x, p_num(p, (int64_t)p_draw(p, 130)));
    default: return x;
    }
}

/* An element of a field: mostly of a token that there is. */
static inline int p_element(property *p, p_scope s) {
    int64_t f = (int64_t)p_draw(p, (uint64_t)p->fields);
    p_kind kind = p_draw(p, 6) ? P_LOAD : P_RUN;
    int x = s.t ? p0(p, P_T) : !s.pair ? p_num(p, 0) : p0(p, p_draw(p, 2) ? P_Q : P_K);
    switch (p_draw(p, 10)) {
    case 0: { /* one to the side, where there is one */
        int next = p2(p, P_ADD, x, p_num(p, 1 + (int64_t)p_draw(p, 3)));
        return p_new(p, P_IF, p2(p, P_LT, next, p0(p, P_N)), p_new(p, kind, next, -1, -1, f), p_num(p, 0), 0);
    }
    case 1: return p_new(p, kind, p2(p, P_MOD, p2(p, P_ADD, x, p_num(p, 7)), p0(p, P_N)), -1, -1, f);
    case 2: return p_new(p, kind, p2(p, P_DIV, x, p_num(p, 2 + (int64_t)p_draw(p, 5))), -1, -1, f);
    case 3: return p_draw(p, 4) ? p_new(p, kind, x, -1, -1, f) : p_new(p, kind, p_position(p, s), -1, -1, f);
    default: return p_new(p, kind, x, -1, -1, f);
    }
}

/* An element of a table: mostly of one that there is. */
static inline int p_entry(property *p, p_scope s) {
    int number = (int)p_draw(p, P_TABLES), at[2] = {-1, -1};
    for (int d = 0; d <= (number == P_GRID); d++) {
        int64_t side = d ? p->table[number].columns : p->table[number].rows, step = 1 + (int64_t)p_draw(p, 70);
        int x = p_position(p, s), last = p_num(p, side - 1);
        switch (p_draw(p, 8)) {
        case 0: case 1: at[d] = p2(p, P_MIN, p2(p, P_MAX, x, p_num(p, 0)), last); break;
        case 2: at[d] = p2(p, P_MIN, p1(p, P_ABS, p2(p, P_DIV, x, p_num(p, step))), last); break;
        case 3: at[d] = p_draw(p, 3) ? p_num(p, (int64_t)p_draw(p, (uint64_t)side)) : x; break;
        case 4: at[d] = p2(p, P_MOD, s.pair ? p2(p, P_SUB, p0(p, P_Q), p0(p, P_K)) : x, p_num(p, side)); break;
        default: at[d] = p2(p, P_MOD, x, p_num(p, side)); break;
        }
    }
    return p_new(p, P_TABLE, at[0], at[1], -1, number);
}

static inline int p_draw_bool(property *p, p_scope s, int depth);
static inline int p_draw_int(property *p, p_scope s, int depth) {
    if (depth <= 0 || p->count > P_DRAWN || p_draw(p, 4) == 0) {
        if (p->table[0].rows && p->count < P_DRAWN && p_draw(p, 4) == 0) return p_entry(p, s);
        if (p->fields && p->count < P_DRAWN && p_draw(p, 3) == 0) return p_element(p, s);
        uint64_t pick = p_draw(p, 12);
        if (pick < 6) return s.t && pick < 4 ? p0(p, P_T) : !s.pair ? p0(p, P_N) : p0(p, pick % 2 ? P_Q : P_K);
        if (pick < 7) return p0(p, P_N);
        if (pick < 8 && p->heads > 1) return p0(p, P_H);
        if (pick < 9 && s.pair) return p2(p, P_SUB, p0(p, P_Q), p0(p, P_K));
        if (pick < 10 && s.functions) {
            int f = (int)p_draw(p, (uint64_t)s.functions);
            if (f < p->functions && !p->function[f].is_bool && (p->function[f].takes || s.pair))
                return p_new(p, P_CALL, p->function[f].takes ? p_position(p, s) : -1, -1, -1, f);
        }
        return p_num(p, p_draw_number(p));
    }
    uint64_t pick = p_draw(p, 18);
    int x = p_draw_int(p, s, depth - 1);
    switch (pick) {
    case 0: case 1: case 2: return p2(p, P_ADD, x, p_draw_int(p, s, depth - 1));
    case 3: case 4: case 5: return p2(p, P_SUB, x, p_draw_int(p, s, depth - 1));
    case 6: return p2(p, P_MUL, x, p_draw(p, 4) ? p_num(p, p_draw_number(p)) : p_draw_int(p, s, depth - 1));
    case 7: case 8: case 9: return p2(p, P_DIV, x, p_draw(p, 8) ? p_size(p) : p_draw_int(p, s, depth - 1));
    case 10: case 11: case 12: return p2(p, P_MOD, x, p_draw(p, 8) ? p_size(p) : p_draw_int(p, s, depth - 1));
    case 13: return p1(p, p_draw(p, 2) ? P_ABS : P_NEG, x);
    case 14: return p2(p, P_MIN, x, p_draw_int(p, s, depth - 1));
    case 15: return p2(p, P_MAX, x, p_draw_int(p, s, depth - 1));
    case 16: { /* a guarded division */
        int y = p_draw_int(p, s, depth - 1);
        int guard = p2(p, p_draw(p, 2) ? P_NE : P_LT, p_num(p, 0), y);
        return p_new(p, P_IF, guard, p2(p, p_draw(p, 2) ? P_DIV : P_MOD, x, y), p_num(p, (int64_t)p_draw(p, 5)), 0);
    }
    default: return p_new(p, P_IF, p_draw_bool(p, s, depth - 1), x, p_draw_int(p, s, depth - 1), 0);
    }
}

static inline int64_t p_draw_place(property *p) {
    return (int64_t)(p_draw(p, 3) ? p_draw(p, 40) : p_draw(p, 3) ? 120 + p_draw(p, 20) : p_draw(p, 300));
}

/* A union of slices, which may meet, cross or share edges; or a rect, whose bounds may be anything. */
static inline int p_draw_pieces(property *p, p_scope s) {
    bool rect = p_draw(p, 3) == 0;
    int64_t number = p->unions++;
    p_union *u = &p->pieces[number];
    u->count = rect ? 1 : 1 + (int)p_draw(p, P_SLICES_EACH);
    for (int i = 0; i < u->count; i++) {
        p_slice *x = &u->of[i], *other = i && p_draw(p, 2) ? &u->of[p_draw(p, (uint64_t)i)] : NULL;
        x->q0 = other && p_draw(p, 2) ? (p_draw(p, 2) ? other->q0 : other->q1) : p_draw_place(p);
        x->k0 = other && p_draw(p, 2) ? (p_draw(p, 2) ? other->k0 : other->k1) : p_draw_place(p);
        x->q1 = other && other->q1 > x->q0 && p_draw(p, 2) ? other->q1 : x->q0 + 1 + p_draw_place(p);
        x->k1 = p_draw(p, 3) == 0 ? x->k0 + (x->q1 - x->q0) : x->k0 + 1 + p_draw_place(p); /* a square */
        x->kind = (uint32_t)p_draw(p, 4);
    }
    if (!rect) return p_new(p, P_SLICES, -1, -1, -1, number);
    p_slice *x = &u->of[0];
    int a = p_draw(p, 3) ? p_num(p, x->q0) : p_draw_int(p, s, 1);
    int b = p_draw(p, 3) ? p_num(p, x->k0) : p_draw_int(p, s, 1);
    if (p_draw(p, 4) == 0) x->q1 = -1;
    if (p_draw(p, 4) == 0) x->k1 = -1;
    x->q0 = x->k0 = 0;
    return p_new(p, P_RECT, a, b, -1, number);
}

/* The shapes that masks have. */
static inline int p_known_shape(property *p) {
    int q = p0(p, P_Q), k = p0(p, P_K), n = p0(p, P_N), ahead = p2(p, P_SUB, q, k), w = p_size(p);
    int causal = p2(p, P_LE, k, q);
    if (p->fields && p_draw(p, 2)) {
        int64_t f = (int64_t)p_draw(p, (uint64_t)p->fields);
        int of_q = p_new(p, P_LOAD, q, -1, -1, f), of_k = p_new(p, P_LOAD, k, -1, -1, f);
        switch (p_draw(p, 5)) {
        case 0: return p2(p, P_EQ, of_q, of_k);                                    /* documents, buckets */
        case 1: return p2(p, P_AND, causal, p2(p, P_LT, q, of_k));                 /* evictions */
        case 2: return p2(p, P_OR, p2(p, P_NE, of_q, p_num(p, 0)), p2(p, P_NE, of_k, p_num(p, 0))); /* marks */
        case 3: /* trees */
            return p2(p, P_AND, p2(p, P_LE, p_new(p, P_LOAD, k, -1, -1, 0), q),
                      p2(p, P_LE, q, p_new(p, P_LOAD, k, -1, -1, p->fields - 1)));
        default: /* the first of each document */
            return p2(p, P_AND, p2(p, P_EQ, of_q, of_k),
                      p2(p, P_LT, p2(p, P_SUB, k, p_new(p, P_RUN, k, -1, -1, f)), p_size(p)));
        }
    }
    switch (p_draw(p, 8)) {
    case 0: return causal;
    case 1: /* a window cut by sinks */
        return p2(p, P_AND, causal, p2(p, P_OR, p2(p, P_LT, k, p_size(p)), p2(p, P_LT, ahead, w)));
    case 2: { /* a clamped neighbourhood, of rows or of columns */
        p_kind part = p_draw(p, 2) ? P_DIV : P_MOD;
        int side = part == P_MOD ? w : p2(p, P_DIV, n, w), r = p_num(p, (int64_t)p_draw(p, 12));
        int near = p2(p, P_MIN, p2(p, P_MAX, p2(p, part, q, w), r), p2(p, P_SUB, p2(p, P_SUB, side, p_num(p, 1)), r));
        return p2(p, P_LE, p1(p, P_ABS, p2(p, P_SUB, near, p2(p, part, k, w))), r);
    }
    case 3: { /* a line */
        int a = p2(p, P_MUL, p_num(p, (int64_t)p_draw(p, 9) - 4), q);
        int b = p2(p, P_MUL, p_num(p, (int64_t)p_draw(p, 9) - 4), k);
        p_kind compare = P_EQ + (p_kind)p_draw(p, 6);
        return p2(p, compare, p2(p, P_ADD, a, b), p_num(p, p_draw_number(p)));
    }
    case 4: { /* every m-th */
        int a = p2(p, P_MUL, p_num(p, (int64_t)p_draw(p, 7) - 3), q);
        int rest = p2(p, P_MOD, p2(p, P_ADD, a, p2(p, P_MUL, p_num(p, (int64_t)p_draw(p, 7) - 3), k)), w);
        return p2(p, p_draw(p, 3) ? P_EQ : P_LE, rest, p_num(p, (int64_t)p_draw(p, 5)));
    }
    case 5: /* blocks */
        return p2(p, P_EQ + (p_kind)p_draw(p, 6), p2(p, P_DIV, q, w), p2(p, P_DIV, k, w));
    case 6: { /* parts of what is left after a stretch, the last one longer */
        int parts = p_num(p, 1 + (int64_t)p_draw(p, 6));
        int each = p2(p, P_MAX, p_num(p, 1), p2(p, P_DIV, p2(p, P_SUB, n, w), parts));
        int last = p2(p, P_SUB, parts, p_num(p, 1));
        int of_q = p2(p, P_MIN, p2(p, P_DIV, p2(p, P_SUB, q, w), each), last);
        int of_k = p2(p, P_MIN, p2(p, P_DIV, p2(p, P_SUB, k, w), each), last);
        return p2(p, P_AND, causal, p2(p, P_OR, p2(p, P_LT, k, w), p2(p, P_EQ, of_q, of_k)));
    }
    default: { /* a band about the diagonal, and global tokens */
        int global = p2(p, p_draw(p, 2) ? P_OR : P_AND, p2(p, P_LT, q, p_size(p)), p2(p, P_LT, k, w));
        return p2(p, P_OR, p2(p, P_LE, p1(p, P_ABS, ahead), p_size(p)), global);
    }
    }
}

static inline int p_draw_bool(property *p, p_scope s, int depth) {
    bool room = p->count < P_DRAWN;
    uint64_t pick = depth > 0 && room ? p_draw(p, 16) : 15;
    if (pick >= 12 || !room) {
        if (room && s.pair && p->unions < P_UNIONS && p_draw(p, 6) == 0) return p_draw_pieces(p, s);
        if (room && s.pair && !s.t && p_draw(p, 3) == 0) return p_known_shape(p);
        if (room && s.functions && p_draw(p, 3) == 0) { /* f(q) == f(k), or the answer of one */
            int f = (int)p_draw(p, (uint64_t)s.functions);
            bool here = f < p->functions, takes = here && p->function[f].takes;
            if (here && p->function[f].is_bool && (takes || s.pair))
                return p_new(p, P_CALLB, takes ? p_position(p, s) : -1, -1, -1, f);
            if (here && takes && s.pair)
                return p2(p, P_EQ + (p_kind)p_draw(p, 6), p_new(p, P_CALL, p0(p, P_Q), -1, -1, f),
                          p_new(p, P_CALL, p0(p, P_K), -1, -1, f));
        }
        int below = depth < 3 ? depth : 3, a = p_draw_int(p, s, below);
        return p2(p, P_EQ + (p_kind)p_draw(p, 6), a, p_draw_int(p, s, below));
    }
    int a = p_draw_bool(p, s, depth - 1);
    switch (pick) {
    case 0: case 1: case 2: case 3: return p2(p, P_AND, a, p_draw_bool(p, s, depth - 1));
    case 4: case 5: case 6: case 7: return p2(p, P_OR, a, p_draw_bool(p, s, depth - 1));
    case 8: return p1(p, P_NOT, a);
    case 9: return p2(p, p_draw(p, 2) ? P_SAME : P_DIFFER, a, p_draw_bool(p, s, depth - 1));
    case 10: {
        int b = p_draw_bool(p, s, depth - 1);
        return p_new(p, P_IFB, a, b, p_draw_bool(p, s, depth - 1), 0);
    }
    default: return p0(p, p_draw(p, 2) ? P_TRUE : P_FALSE);
    }
}

static inline uint64_t p_draw_length(property *p) {
    switch (p_draw(p, 24)) {
    case 0: case 1: case 2: case 3: return 126 + p_draw(p, 5);
    case 4: return 254 + p_draw(p, 5);
    case 5: return 1 + p_draw(p, P_LONGEST);
    case 6: case 7: return 1 + p_draw(p, 140);
    default: return 1 + p_draw(p, 40);
    }
}

static inline uint32_t p_draw_cuts(property *p, uint64_t n, uint64_t *cuts) {
    uint32_t count = 0;
    uint64_t at = p_draw(p, 3) ? 0 : p_draw(p, n), step = p_draw(p, 2) ? 1 + p_draw(p, n) : 128;
    for (; count < P_CUTS - 1 && at < n; at += p_draw(p, 3) ? step : 1 + p_draw(p, n)) cuts[count++] = at;
    cuts[count] = at < n ? at : n;
    return count + 1;
}

/* Sorted, in runs, of few values, near the position, or any. */
static inline void p_draw_field(property *p, int64_t *v, uint64_t n) {
    uint64_t kind = p_draw(p, 8), length = 1 + p_draw(p, p_draw(p, 2) ? 8 : 100), few = 1 + p_draw(p, 5);
    int64_t value = 0;
    for (uint64_t i = 0; i < n; i++) {
        bool turns = p_draw(p, length) == 0;
        switch (kind) {
        case 0: v[i] = value += turns; break;
        case 1: v[i] = value = turns ? (int64_t)p_draw(p, few) : value; break;
        case 2: v[i] = (int64_t)p_draw(p, few); break;
        case 3: v[i] = (int64_t)(i + p_draw(p, length)); break;
        case 4: v[i] = (int64_t)p_draw(p, 300) - 50; break;
        case 5: v[i] = turns; break;
        case 6: v[i] = (int64_t)(i / length * length); break;
        case 7: v[i] = turns && p_draw(p, 8) == 0 ? INT64_MAX : -(int64_t)p_draw(p, few); break;
        }
    }
}

static inline void p_draw_table(property *p, int number) {
    p_table *t = &p->table[number];
    t->rows = 1 + (uint32_t)p_draw(p, number == P_GRID ? 8 : P_CELLS);
    t->columns = number == P_GRID ? 1 + (uint32_t)p_draw(p, 8) : 1;
    uint64_t kind = p_draw(p, 4);
    for (uint32_t i = 0; i < t->rows * t->columns; i++)
        t->value[i] = kind == 0 ? (int64_t)p_draw(p, 2) : kind == 1 ? (int64_t)(i * 3) : kind == 2 ? p_draw_number(p)
                      : (int64_t)p_draw(p, 20) - 5;
}

static inline void p_draw_program(property *p, uint64_t seed) {
    memset(p, 0, sizeof *p);
    p->seed = seed * 0x2545f4914f6cdd1d;
    p->heads = p_draw(p, 4) ? 1 : 1 + (uint32_t)p_draw(p, P_HEADS);
    p->fields = p_draw(p, 3) ? 0 : 1 + (int)p_draw(p, P_FIELDS);
    if (p_draw(p, 3) == 0)
        for (int i = 0; i < P_TABLES; i++) p_draw_table(p, i);
    p->top_left = p_draw(p, 4) == 0;
    int functions = p_draw(p, 2) ? 0 : 1 + (int)p_draw(p, P_FUNCTIONS);
    for (int i = 0; i < functions; i++) {
        p_function *f = &p->function[i];
        f->takes = p_draw(p, 3) != 0;
        f->is_bool = p_draw(p, 3) == 0;
        p_scope s = {f->takes, !f->takes || p_draw(p, 4) == 0, i};
        f->body = f->is_bool ? p_draw_bool(p, s, 1) : p_draw_int(p, s, 2);
        p->functions = i + 1;
    }
    p->root = p_draw_bool(p, P_IN_MASK, 1 + (int)p_draw(p, 4));
    p->sequences = p_draw(p, 3) ? 1 : 2 + (uint32_t)p_draw(p, P_SEQUENCES - 1);
    for (uint32_t i = 0; i < p->sequences; i++) {
        p_sequence *s = &p->sequence[i];
        s->n = i && p_draw(p, 4) == 0 ? s[-1].n : p_draw_length(p);
        s->queries = p_draw(p, 5) ? s->n : p_draw(p, 4) ? 1 + p_draw(p, s->n) : p_draw_length(p);
        s->q_cut_count = p_draw_cuts(p, s->queries, s->q_cuts);
        s->k_cut_count = p_draw_cuts(p, s->n, s->k_cuts);
        bool as_before = i && s->n == s[-1].n && p_draw(p, 2);
        for (int f = 0; f < p->fields; f++)
            if (as_before) memcpy(s->field[f], s[-1].field[f], sizeof s->field[f]);
            else p_draw_field(p, s->field[f], s->n);
    }
}
#endif
