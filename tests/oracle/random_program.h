/* random_program.h: draws random programs from a seed or from a fuzzer's bytes, and evaluates them without the
 * compiler.
 *
 * A program is drawn twice: as source text for the compiler, and as an expression tree, which this file evaluates. So
 * the judge shares no code with the compiler. Masks mean what the language says: int64, division rounds down, `and` and
 * `or` stop early, and a fault counts only if evaluation reaches it. Fields are integers, one for each token; others are
 * in shaped_fields.h. */
#ifndef RANDOM_PROGRAM_H
#define RANDOM_PROGRAM_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct dice {
    const uint8_t *bytes; /* a fuzzer's, or NULL: then `state` runs */
    size_t size, at;
    uint64_t state;
} dice;

/* 0 .. n - 1; bytes that have run out count as 0. */
static uint32_t roll(dice *d, uint32_t n) {
    if (d->bytes) {
        uint32_t x = 0;
        for (uint32_t m = n - 1; m; m >>= 8) x = x << 8 | (d->at < d->size ? d->bytes[d->at++] : 0);
        return x % n;
    }
    d->state ^= d->state << 13;
    d->state ^= d->state >> 7;
    d->state ^= d->state << 17;
    return (uint32_t)((d->state * UINT64_C(0x2545f4914f6cdd1d)) >> 33) % n;
}

/* Dice for a seed; another `salt` makes others of it. Neighbouring seeds begin alike, so the first throws do not
 * count. */
static inline dice dice_of(uint64_t seed, uint64_t salt) {
    dice d = {.state = seed * UINT64_C(0x9e3779b97f4a7c15) + salt};
    for (int i = 0; i < 8; i++) roll(&d, 2);
    return d;
}

#include "runtime/plan/enum_names.h"
#include "tests/oracle/shaped_fields.h"
#include "tests/oracle/random_score.h"

/* --- expressions -------------------------------------------------------------------------------------------------- */

typedef enum kind {
    X_CONST,
    X_Q,
    X_K,
    X_N,
    X_H,
    X_ADD,
    X_SUB,
    X_MUL,
    X_DIV,
    X_MOD,
    X_MIN,
    X_MAX,
    X_ABS,
    X_NEG,
    X_IF,
    X_LOAD,
    X_RUN,
    X_SHAPED,
    X_PIECES,
    X_TRUE,
    X_FALSE,
    X_EQ,
    X_NE,
    X_LT,
    X_LE,
    X_GT,
    X_GE,
    X_AND,
    X_OR,
    X_NOT,
    X_IFB
} kind;

/* A piece of rect or slices: queries, keys, kind; an end of -1 is n. */
typedef struct piece {
    int64_t q0, q1, k0, k1;
    uint32_t kind;
} piece;
static const char *const piece_kinds[] = {"full", "causal", "inverse", "both"};

typedef struct expr {
    kind kind;
    int64_t value;
    struct expr *a, *b, *c;
    const piece *pieces;     /* X_PIECES: `value` of them, or rect if that is 0 */
    const field_view *field; /* X_LOAD: its element a; X_RUN: where the run begins that holds a */
    const shaped_field *shaped; /* X_SHAPED: its value for the pair; `value` is its name */
} expr;

enum { MAX_EXPRS = 256, MAX_SEQUENCES = 8, MAX_FIELDS = 2, MAX_TOKENS = 8192, MAX_PIECES = 24,
       LAYERED = 32 /* one program in so many has layers */ };

typedef struct random_program {
    uint32_t used; /* of pool */
    expr *mask;
    /* when not NULL, what the mask means, instead of the tree; its parameters */
    bool (*allow)(const int64_t *params, int64_t q, int64_t k, int64_t n);
    const int64_t *params;
    uint32_t heads, kv_heads, head_dim, nodes, gpus, block, coalesce, buffers;
    uint32_t value_dim;
    bool values_in_keys, lse_gradient;
    bool large;                  /* inputs are much larger than 1 */
    int dtype, strategy, layout; /* as in runtime/plan/enums.h */
    uint32_t group;              /* of the layout; 0: none is stated */
    uint32_t servers;            /* ranks of strategy cad that hold no tokens */
    bool wire;                   /* partial results travel in bf16 */
    bool equal;                  /* all ranks hold as many tokens, or one more */
    uint32_t inside, together;   /* of ulysses and upipe: ranks that share heads; heads that are computed at a time */
    bool ring, joined;           /* ... + ring, or + the strategy `between` */
    int between;
    uint32_t among;              /* auto may choose these strategies, a bit for each; 0: `strategy` is stated */
    size_t by, by_end;           /* where the strategy is in the text */
    bool layers;                 /* three layers more have a causal mask */
    bool rail, backward, uses_h, uses_field;
    field_view *views;                      /* MAX_FIELDS of them: view_room of the same program, when it has fields */
    field_view view_room[MAX_FIELDS];
    uint32_t field_count;
    uint32_t shaped_count;
    bool documents;              /* the first field tells documents apart */
    piece *pieces;                          /* MAX_PIECES of them, as views */
    piece piece_room[MAX_PIECES];
    uint32_t piece_count;
    uint64_t lengths[MAX_SEQUENCES], queries[MAX_SEQUENCES]; /* queries 0: as many as keys */
    bool none[MAX_SEQUENCES];    /* there are no queries */
    uint32_t sequences;
    uint64_t tokens, key_tokens;
    bool top_left;
    size_t size; /* of the text */
    /* From here on it is large, and not set to 0 before a program is drawn. */
    expr pool[MAX_EXPRS];
    random_score score;
    int64_t fields[MAX_FIELDS][MAX_TOKENS]; /* one value a key */
    shaped_field shaped[SHAPED_MOST];
    char text[1 << 18];
} random_program;

static expr *node(random_program *p, kind k, expr *a, expr *b, expr *c, int64_t value) {
    expr *e = &p->pool[p->used++];
    *e = (expr){k, value, a, b, c, NULL, NULL, NULL};
    if (k == X_H) p->uses_h = true;
    if (k == X_LOAD || k == X_RUN) p->uses_field = true;
    return e;
}

static expr *draw_int(random_program *p, dice *d, unsigned depth) {
    if (p->field_count && p->used < MAX_EXPRS - 16 && roll(d, 4) == 0) { /* mostly at a place that is there */
        expr *at = depth && !roll(d, 8) ? draw_int(p, d, depth - 1) : node(p, roll(d, 2) ? X_Q : X_K, 0, 0, 0, 0);
        expr *e = node(p, roll(d, 6) ? X_LOAD : X_RUN, at, 0, 0, 0);
        e->value = roll(d, p->field_count);
        e->field = &p->views[e->value];
        return e;
    }
    if (!depth || p->used > MAX_EXPRS - 16 || roll(d, 4) == 0) {
        switch (roll(d, p->heads > 1 ? 9 : 8)) {
        case 0: case 1: case 2: return node(p, X_Q, 0, 0, 0, 0);
        case 3: case 4: case 5: return node(p, X_K, 0, 0, 0, 0);
        case 6: {
            static const int64_t odd[] = {0,   1,   2,   3,   5,    7,    64,        100,    127,
                                          128, 129, 200, 256, 1000, 4096, INT64_MAX, 1 << 30};
            return node(p, X_CONST, 0, 0, 0, roll(d, 2) ? odd[roll(d, 17)] : (int64_t)roll(d, 300));
        }
        case 8: return node(p, X_H, 0, 0, 0, 0);
        default: return node(p, X_N, 0, 0, 0, 0);
        }
    }
    static const kind ops[] = {X_ADD, X_SUB, X_SUB, X_MUL, X_DIV, X_MOD, X_DIV, X_MOD, X_MIN, X_MAX, X_ABS, X_NEG};
    uint32_t pick = roll(d, 13);
    if (pick == 12) {
        static const kind compare[] = {X_EQ, X_NE, X_LT, X_LE, X_GT, X_GE};
        expr *x = draw_int(p, d, depth - 1), *y = draw_int(p, d, depth - 1);
        expr *c = node(p, compare[roll(d, 6)], x, y, 0, 0);
        x = draw_int(p, d, depth - 1);
        y = draw_int(p, d, depth - 1);
        return node(p, X_IF, c, x, y, 0);
    }
    kind k = ops[pick];
    expr *a = draw_int(p, d, depth - 1);
    if (k == X_ABS || k == X_NEG) return node(p, k, a, 0, 0, 0);
    expr *b = (k == X_DIV || k == X_MOD) && roll(d, 8) /* mostly by a positive constant */
                  ? node(p, X_CONST, 0, 0, 0, 1 + (int64_t)roll(d, roll(d, 2) ? 10 : 300))
                  : draw_int(p, d, depth - 1);
    return node(p, k, a, b, 0, 0);
}

/* rect(...), or a few slices; both of them often beyond shorter sequences. */
static expr *draw_pieces(random_program *p, dice *d) {
    uint64_t longest = 0;
    for (uint32_t s = 0; s < p->sequences; s++)
        if (p->lengths[s] > longest) longest = p->lengths[s];
    if (!longest) longest = 1;
    uint32_t count = roll(d, 2) ? 1 + roll(d, 6) : 0, left = MAX_PIECES - p->piece_count;
    if (count > left) count = left;
    expr *e = node(p, X_PIECES, 0, 0, 0, count);
    e->pieces = &p->pieces[p->piece_count];
    for (uint32_t i = 0; i < (count ? count : 1); i++) {
        piece *x = &p->pieces[p->piece_count++];
        x->q0 = roll(d, (uint32_t)longest);
        x->k0 = roll(d, (uint32_t)longest);
        x->q1 = x->q0 + 1 + roll(d, (uint32_t)(longest - (uint64_t)x->q0));
        x->k1 = x->k0 + 1 + roll(d, (uint32_t)(longest - (uint64_t)x->k0));
        x->kind = roll(d, 4);
        if (!count && !roll(d, 3)) x->q1 = -1;
        if (!count && !roll(d, 3)) x->k1 = -1;
    }
    return e;
}

static bool in_pieces(const expr *e, int64_t q, int64_t k, int64_t n) {
    for (int64_t i = 0; i < (e->value ? e->value : 1); i++) {
        const piece *x = &e->pieces[i];
        int64_t q1 = x->q1 < 0 ? n : x->q1, k1 = x->k1 < 0 ? n : x->k1;
        if (q < x->q0 || q >= q1 || k < x->k0 || k >= k1) continue;
        if (x->kind % 2 && k1 - k < q1 - q) continue; /* fewer keys are left from k on than queries from q on */
        if (x->kind / 2 && k - x->k0 < q - x->q0) continue;
        return true;
    }
    return false;
}

static expr *draw_bool(random_program *p, dice *d, unsigned depth) {
    uint32_t pick = depth && p->used < MAX_EXPRS - 64 ? roll(d, 12) : 11;
    if (pick < 3) {
        expr *a = draw_bool(p, d, depth - 1);
        return node(p, X_AND, a, draw_bool(p, d, depth - 1), 0, 0);
    }
    if (pick < 6) {
        expr *a = draw_bool(p, d, depth - 1);
        return node(p, X_OR, a, draw_bool(p, d, depth - 1), 0, 0);
    }
    if (pick == 6) return node(p, X_NOT, draw_bool(p, d, depth - 1), 0, 0, 0);
    if (pick == 7) {
        expr *c = draw_bool(p, d, depth - 1), *a = draw_bool(p, d, depth - 1);
        return node(p, X_IFB, c, a, draw_bool(p, d, depth - 1), 0);
    }
    if (pick == 8) return node(p, X_LE, node(p, X_K, 0, 0, 0, 0), node(p, X_Q, 0, 0, 0, 0), 0, 0);
    if (pick == 10 && p->piece_count < MAX_PIECES) return draw_pieces(p, d);
    if (pick == 9 && !roll(d, 4)) return node(p, roll(d, 2) ? X_TRUE : X_FALSE, 0, 0, 0, 0);
    static const kind compare[] = {X_EQ, X_NE, X_LT, X_LE, X_GT, X_GE};
    unsigned below = depth < 3 ? depth : 3;
    expr *a = draw_int(p, d, below), *b = draw_int(p, d, below);
    return node(p, compare[roll(d, 6)], a, b, 0, 0);
}

static inline int64_t value_of(const expr *e, int64_t q, int64_t k, int64_t n, int64_t h, bool *fault);

/* The same, without a call where it is a leaf: every other node is one. */
static inline int64_t leaf_or_value(const expr *e, int64_t q, int64_t k, int64_t n, int64_t h, bool *fault) {
    switch (e->kind) {
    case X_CONST: return e->value;
    case X_Q: return q;
    case X_K: return k;
    case X_N: return n;
    case X_H: return h;
    default: return value_of(e, q, k, n, h, fault);
    }
}

/* The value of an expression; *fault becomes true where evaluation faults (the value is then of no use). */
static inline int64_t value_of(const expr *e, int64_t q, int64_t k, int64_t n, int64_t h, bool *fault) {
    if (*fault) return 0;
    int64_t a, b, r;
#define SUB(x) leaf_or_value(e->x, q, k, n, h, fault)
    switch (e->kind) {
    case X_CONST: return e->value;
    case X_Q: return q;
    case X_K: return k;
    case X_N: return n;
    case X_H: return h;
    case X_SHAPED: return shaped_value(e->shaped, q, k, h);
    case X_PIECES: return in_pieces(e, q, k, n);
    case X_TRUE: return 1;
    case X_FALSE: return 0;
    case X_IF: case X_IFB: return SUB(a) ? SUB(b) : SUB(c);
    case X_AND: return SUB(a) ? SUB(b) : 0;
    case X_OR: return SUB(a) ? 1 : SUB(b);
    case X_NOT: return !SUB(a);
    default: break;
    }
    a = SUB(a);
    b = e->b ? SUB(b) : 0;
    if (*fault) return 0;
    switch (e->kind) {
    case X_LOAD:
    case X_RUN:
        if (a < 0 || a >= e->field->n) {
            *fault = true;
            return 0;
        }
        if (e->kind == X_LOAD) return e->field->at[a];
        while (a && e->field->at[a - 1] == e->field->at[a]) a--;
        return a;
    case X_ADD: *fault = __builtin_add_overflow(a, b, &r); return r;
    case X_SUB: *fault = __builtin_sub_overflow(a, b, &r); return r;
    case X_MUL: *fault = __builtin_mul_overflow(a, b, &r); return r;
    case X_DIV: case X_MOD:
        if (!b || (a == INT64_MIN && b == -1 && e->kind == X_DIV)) {
            *fault = true;
            return 0;
        }
        if (b == -1) return e->kind == X_DIV ? -a : 0;
        r = a % b;
        if (r && (r < 0) != (b < 0)) r += b; /* the sign of b */
        return e->kind == X_MOD ? r : (int64_t)(((__int128)a - r) / b);
    case X_MIN: return a < b ? a : b;
    case X_MAX: return a > b ? a : b;
    case X_ABS: if (a == INT64_MIN) *fault = true; return a < 0 && !*fault ? -a : a;
    case X_NEG: if (a == INT64_MIN) *fault = true; return *fault ? 0 : -a;
    case X_EQ: return a == b;
    case X_NE: return a != b;
    case X_LT: return a < b;
    case X_LE: return a <= b;
    case X_GT: return a > b;
    case X_GE: return a >= b;
    default: abort();
    }
#undef SUB
}

/* --- text --------------------------------------------------------------------------------------------------------- */

static void put(random_program *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
#include <stdarg.h>
static void put(random_program *p, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(p->text + p->size, sizeof p->text - p->size, format, args);
    va_end(args);
    if (n > 0) p->size += (size_t)n < sizeof p->text - p->size ? (size_t)n : sizeof p->text - p->size - 1;
}

/* The same of what needs no format. */
static void put_word(random_program *p, const char *word) {
    for (; *word && p->size + 1 < sizeof p->text; word++) p->text[p->size++] = *word;
    p->text[p->size] = 0;
}

static void put_number(random_program *p, int64_t number) {
    char digits[24];
    char *at = digits + sizeof digits - 1;
    uint64_t left = number < 0 ? -(uint64_t)number : (uint64_t)number;
    *at = 0;
    do *--at = (char)('0' + left % 10);
    while (left /= 10);
    if (number < 0) *--at = '-';
    put_word(p, at);
}

/* word, number, word: as most that is put. */
static void put_set(random_program *p, const char *before, int64_t number, const char *after) {
    put_word(p, before);
    put_number(p, number);
    put_word(p, after);
}

/* A number of hundredths, with a point. */
static void put_hundredths(random_program *p, uint32_t number) {
    put_set(p, "", number / 100, number % 100 < 10 ? ".0" : ".");
    put_number(p, number % 100);
}

static void put_end(random_program *p, int64_t end) {
    if (end < 0) put_word(p, "n");
    else put_number(p, end);
}

static void put_pieces(random_program *p, const expr *e) {
    const piece *x = e->pieces;
    if (!e->value) {
        put_set(p, "rect(", x->q0, "..");
        put_end(p, x->q1);
        put_set(p, ", ", x->k0, "..");
        put_end(p, x->k1);
        if (x->kind) put_word(p, ", "), put_word(p, piece_kinds[x->kind]);
        put_word(p, ")");
        return;
    }
    put_word(p, "slices(");
    for (int64_t i = 0; i < e->value; i++, x++) {
        put_set(p, i ? ", [" : "[", x->q0, ", ");
        put_set(p, "", x->q1, ", ");
        put_set(p, "", x->k0, ", ");
        put_set(p, "", x->k1, ", ");
        put_word(p, piece_kinds[x->kind]);
        put_word(p, "]");
    }
    put_word(p, ")");
}

static void put_shaped(random_program *p, const expr *e) {
    char text[SHAPED_TEXT];
    shaped_read(e->shaped, (unsigned)e->value, text);
    put_word(p, text);
}

static void put_expr(random_program *p, const expr *e) {
    static const char *const infix[] = {[X_ADD] = "+", [X_SUB] = "-", [X_MUL] = "*", [X_DIV] = "/", [X_MOD] = "%",
                                        [X_EQ] = "==", [X_NE] = "!=", [X_LT] = "<", [X_LE] = "<=", [X_GT] = ">",
                                        [X_GE] = ">=", [X_AND] = "and", [X_OR] = "or", [X_IFB] = NULL};
    switch (e->kind) {
    case X_CONST: put_number(p, e->value); return;
    case X_Q: put_word(p, "q"); return;
    case X_K: put_word(p, "k"); return;
    case X_N: put_word(p, "n"); return;
    case X_H: put_word(p, "h"); return;
    case X_PIECES: put_pieces(p, e); return;
    case X_SHAPED: put_shaped(p, e); return;
    case X_TRUE: put_word(p, "true"); return;
    case X_FALSE: put_word(p, "false"); return;
    case X_NOT: put_word(p, "(not "); put_expr(p, e->a); put_word(p, ")"); return;
    case X_NEG: put_word(p, "(-"); put_expr(p, e->a); put_word(p, ")"); return;
    case X_ABS: put_word(p, "abs("); put_expr(p, e->a); put_word(p, ")"); return;
    case X_LOAD: put_set(p, "f", e->value, "["); put_expr(p, e->a); put_word(p, "]"); return;
    case X_RUN: put_set(p, "run(f", e->value, ", "); put_expr(p, e->a); put_word(p, ")"); return;
    case X_MIN: case X_MAX:
        put_word(p, e->kind == X_MIN ? "min(" : "max(");
        put_expr(p, e->a);
        put_word(p, ", ");
        put_expr(p, e->b);
        put_word(p, ")");
        return;
    case X_IF: case X_IFB:
        put_word(p, "(if ");
        put_expr(p, e->a);
        put_word(p, " then ");
        put_expr(p, e->b);
        put_word(p, " else ");
        put_expr(p, e->c);
        put_word(p, ")");
        return;
    default:
        put_word(p, "(");
        put_expr(p, e->a);
        put_word(p, " "), put_word(p, infix[e->kind]), put_word(p, " ");
        put_expr(p, e->b);
        put_word(p, ")");
    }
}

/* --- programs ----------------------------------------------------------------------------------------------------- */

/* Values of a field: sorted runs, few values, a wide range, or places of the sequence. */
static void draw_field(random_program *p, dice *d, int64_t *out) {
    uint32_t style = roll(d, 5), span = 1 + roll(d, 200);
    int64_t v = (int64_t)roll(d, 10) - 5;
    uint64_t t = 0;
    for (uint32_t s = 0; s < p->sequences; s++)
        for (uint64_t i = 0; i < p->lengths[s]; i++, t++) {
            if (style == 0 && roll(d, span) == 0) v++;
            if (style == 1) v = (int64_t)roll(d, 3);
            if (style == 2) v = ((int64_t)roll(d, 1 << 20) - (1 << 19)) * ((int64_t)1 << roll(d, 24));
            if (style == 3 && roll(d, span) == 0) v = (int64_t)roll(d, 4);
            if (style == 4) v = (int64_t)i + (int64_t)roll(d, span);
            out[t] = v;
        }
}

static void put_field(random_program *p, uint32_t number) {
    const int64_t *v = p->fields[number];
    put_set(p, "    field f", number, " = [");
    for (uint64_t t = 0, end; t < p->key_tokens; t = end) {
        for (end = t + 1; end < p->key_tokens && v[end] == v[t];) end++;
        if (t) put_word(p, ", ");
        put_number(p, v[t]);
        if (end - t > 1) put_word(p, " x "), put_number(p, (int64_t)(end - t));
    }
    put_word(p, "]\n");
}

static inline uint64_t queries_of(const random_program *p, uint32_t s) {
    return p->none[s] ? 0 : p->queries[s] ? p->queries[s] : p->lengths[s];
}

/* Turns the fields to a sequence. */
static inline void view_fields(random_program *p, uint32_t sequence) {
    uint64_t base = 0, starts[SHAPED_MOST] = {0};
    for (uint32_t s = 0; s <= sequence; s++) {
        const int64_t n = (int64_t)p->lengths[s], queries = (int64_t)queries_of(p, s);
        for (uint32_t f = 0; f < p->shaped_count; f++)
            starts[f] += shaped_turn(&p->shaped[f], p->top_left ? 0 : n - queries, queries, n, starts[f]);
        if (s < sequence) base += p->lengths[s];
    }
    for (uint32_t f = 0; f < p->field_count; f++)
        p->views[f] = (field_view){p->fields[f] + base, (int64_t)p->lengths[sequence]};
}

/* Draws what a field is over, so that it has some values and not too many, and its values: few, or distances. */
static inline void draw_shaped_values(random_program *p, dice *d, shaped_field *f) {
    do {
        shaped_draw(f, d, p->heads, p->kv_heads);
        f->count = 0;
        for (uint32_t s = 0; s < p->sequences; s++) {
            const int64_t n = (int64_t)p->lengths[s], queries = (int64_t)queries_of(p, s);
            f->count += shaped_turn(f, p->top_left ? 0 : n - queries, queries, n, f->count);
        }
    } while (f->count == 0 || f->count > SHAPED_ROOM);
    const uint32_t few = 2 + roll(d, 4), far = roll(d, 2) ? 400 : 0;
    for (uint64_t i = 0; i < f->count; i++) f->value[i] = roll(d, far ? far : few);
}

/* A condition that reads a field of whole numbers. */
static inline expr *draw_shaped_condition(random_program *p, dice *d, uint32_t number) {
    static const kind compare[] = {X_EQ, X_NE, X_LT, X_LE, X_GT, X_GE};
    expr *q = node(p, X_Q, 0, 0, 0, 0), *k = node(p, X_K, 0, 0, 0, 0), *e = node(p, X_SHAPED, 0, 0, 0, number), *with;
    e->shaped = &p->shaped[number];
    p->uses_h |= e->shaped->heads > 0;
    switch (roll(d, 4)) {
    case 0: with = k; break;
    case 1: with = node(p, X_SUB, q, k, 0, 0); break;
    default: with = node(p, X_CONST, 0, 0, 0, roll(d, 4)); break;
    }
    return node(p, compare[roll(d, 6)], e, with, 0, 0);
}

/* Fields of any shape, of which the mask reads one, or the score, or both. */
static inline void draw_shaped(random_program *p, dice *d) {
    const uint32_t readers = 1 + roll(d, 3);
    if (!p->key_tokens || !p->tokens) return;
    if (readers & 1) {
        draw_shaped_values(p, d, &p->shaped[p->shaped_count]);
        expr *c = draw_shaped_condition(p, d, p->shaped_count++);
        p->mask = roll(d, 3) ? node(p, roll(d, 2) ? X_AND : X_OR, p->mask, c, 0, 0) : c;
    }
    if (readers & 2) {
        shaped_field *f = &p->shaped[p->shaped_count];
        draw_shaped_values(p, d, f);
        f->real = roll(d, 4);
        for (uint64_t i = 0; i < f->count; i++) f->value[i] = f->value[i] % 300 - (f->real ? 150 : 1);
        draw_shaped_score(&p->score, d, f, p->shaped_count++);
    }
}

static inline void put_shaped_field(random_program *p, uint32_t number) {
    const shaped_field *f = &p->shaped[number];
    char over[SHAPED_TEXT];
    put_set(p, "    field b", number, " = [");
    for (uint64_t i = 0; i < f->count; i++) {
        if (i) put_word(p, ", ");
        if (!f->real) put_number(p, f->value[i]);
        else put(p, "%.2f", (double)f->value[i] / 100);
    }
    shaped_dims(f, f->heads == p->heads ? "heads" : "kv_heads", "queries", "keys", over);
    put(p, "] over %s\n", *over ? over : "sequences");
}

/* Leaves some sequences without queries, without keys, or without both. */
static void draw_empty(random_program *p, dice *d) {
    p->tokens = p->key_tokens = 0;
    for (uint32_t s = 0; s < p->sequences; s++) {
        const uint32_t what = roll(d, 6);
        if (what == 3) p->queries[s] = queries_of(p, s);
        if (what >= 4) p->none[s] = true;
        if (what == 3 || what == 4) p->lengths[s] = 0;
        p->tokens += queries_of(p, s);
        p->key_tokens += p->lengths[s];
    }
}

/* Some sequences with more or fewer queries than keys; positions stay about as many. */
static void draw_queries(random_program *p, dice *d) {
    p->top_left = roll(d, 3) == 0;
    p->tokens = p->key_tokens = 0;
    for (uint32_t s = 0; s < p->sequences; s++) {
        uint64_t n = p->lengths[s];
        switch (roll(d, 5)) {
        case 0: p->queries[s] = 1; break;
        case 1: p->queries[s] = 1 + roll(d, (uint32_t)n); break;
        case 2: p->queries[s] = n, p->lengths[s] = 1 + roll(d, (uint32_t)n); break; /* more queries */
        case 3: p->queries[s] = 1 + n / 8, p->lengths[s] = n * 2; break;
        default: break;
        }
        p->tokens += queries_of(p, s);
        p->key_tokens += p->lengths[s];
    }
}

/* How many ranks strategy groups needs, where each holds so many tokens: best fit decreasing. */
static inline uint32_t ranks_for_groups(const random_program *p, uint32_t tokens) {
    uint64_t room[MAX_SEQUENCES], size[MAX_SEQUENCES];
    uint32_t groups = 0, ranks = 0;
    for (uint32_t s = 0; s < p->sequences; s++)
        size[s] = queries_of(p, s) > p->lengths[s] ? queries_of(p, s) : p->lengths[s];
    for (uint32_t n = 0; n < p->sequences; n++) {
        uint32_t s = 0, best = groups;
        for (uint32_t i = 0; i < p->sequences; i++)
            if (size[i] > size[s]) s = i;
        for (uint32_t g = 0; g < groups; g++)
            if (room[g] >= size[s] && (best == groups || room[g] < room[best])) best = g;
        if (best == groups) {
            uint64_t least = (size[s] + tokens - 1) / tokens;
            ranks += (uint32_t)least;
            room[groups++] = least * tokens;
        }
        room[best] -= size[s];
        size[s] = 0;
    }
    return ranks;
}

/* Ranks that share heads, and how many heads are computed at a time: divisors of what there is. */
static void draw_sharing(random_program *p, dice *d) {
    static const fcp_strategy between[] = {FCP_STRATEGY_FCP, FCP_STRATEGY_CAD, FCP_STRATEGY_DCP};
    uint32_t ranks = p->nodes * p->gpus, inside, each;
    do inside = 1 + roll(d, p->heads);
    while (p->heads % inside || ranks % inside);
    p->inside = inside;
    p->together = p->strategy == FCP_STRATEGY_UPIPE ? inside : p->heads;
    p->ring = inside != ranks || roll(d, 4) == 0;
    if (p->strategy == FCP_STRATEGY_UPIPE && roll(d, 4)) {
        do each = 1 + roll(d, p->heads / inside);
        while (p->heads / inside % each);
        p->together = each * inside;
    }
    if (!p->ring || roll(d, 3) == 0) return;
    p->ring = false;
    p->joined = true;
    p->between = (int)between[roll(d, 3)];
}

/* Parameters of a strategy that divides the batch among ranks, or among groups of `lanes` ranks. True: homes are where
 * the caller holds the tokens. */
static bool draw_params(random_program *p, dice *d, int strategy, uint32_t lanes) {
    static const char *const bases[] = {"caller", "fcp", "ring", "zigzag"};
    const uint32_t places = p->nodes * p->gpus / lanes;
    const bool divides = strategy == FCP_STRATEGY_DCP && roll(d, 2);
    bool held = (strategy == FCP_STRATEGY_GROUPS || strategy == FCP_STRATEGY_DCP) && p->layout;
    put_set(p, "(buffers = ", p->buffers, "");
    if (p->joined && p->together < p->heads) {} /* phases have stages of their own */
    else if (divides) put_set(p, ", divisions = ", 2 + roll(d, 5), "");
    else put_set(p, ", coalesce = ", p->coalesce, "");
    if (strategy == FCP_STRATEGY_DCP) {
        const uint32_t whole = roll(d, 4) ? 0 : roll(d, 3);
        put_word(p, ", epsilon_compute = ");
        put_hundredths(p, whole * 100 + 1 + roll(d, 60));
        if (roll(d, 3) == 0) {
            put_word(p, ", epsilon_nodes = ");
            put_hundredths(p, 1 + roll(d, 90));
        }
    }
    if (strategy == FCP_STRATEGY_CAD) {
        uint32_t base = roll(d, 4);
        held = !base;
        put_set(p, ", shard = ", 8u << roll(d, 5), ", tolerance = ");
        put_hundredths(p, 1 + roll(d, 20));
        put_word(p, ", base = ");
        put_word(p, bases[base]);
        if (places > 1 && !roll(d, 4)) p->servers = lanes * (1 + roll(d, places - 1));
        if (p->servers) put_set(p, ", servers = ", p->servers, "");
        if (roll(d, 3) == 0) put_word(p, ", pingpong = true");
    }
    if (strategy == FCP_STRATEGY_GROUPS) {
        uint32_t tokens = 1 + roll(d, 1500);
        while (ranks_for_groups(p, tokens) > places) tokens += 1 + tokens / 2;
        put_set(p, ", tokens = ", tokens, roll(d, 3) ? ", shape = zigzag" : ", shape = ring");
    }
    put_word(p, ")");
    return held;
}

/* Strategies that divide heads, as drawn. True: homes are where the caller holds the tokens. */
static bool put_sharing(random_program *p, dice *d) {
    if (!p->joined) put_set(p, "(buffers = ", p->buffers, p->ring ? ", " : "");
    if (p->joined) put_word(p, "(");
    if (p->ring || p->joined) put_set(p, "inside = ", p->inside, "");
    if (p->strategy == FCP_STRATEGY_UPIPE && (p->together != p->inside || p->buffers % 2))
        put_set(p, ", heads = ", p->together, "");
    put_word(p, p->ring ? ") + ring" : p->joined ? ") + " : ")");
    if (!p->joined) return true;
    put_word(p, fcp_strategy_names[p->between]);
    return draw_params(p, d, p->between, p->inside);
}

/* What programs may have besides: what not every machine of the tests computes. */
enum {
    DRAW_VALUES = 1, /* V of another width than K, or in K */
    DRAW_LSE = 2,    /* a gradient of LSE */
    DRAW_EMPTY = 4,  /* sequences of length zero */
    DRAW_FAR = 8,    /* logits as far from 0 as float reaches, and large inputs */
    DRAW_ALL = 15,
    DRAW_FEW_KEYS = 16, /* a sequence of which most rows need a few keys besides those near them; it is long */
    DRAW_SHAPED = 32    /* fields over heads, queries, keys, cells or nothing */
};

/* Ranks, blocks and strategies with which a long sequence has blocks that are worth dividing. */
static void draw_few_ranks(random_program *p, dice *d) {
    static const fcp_strategy by[] = {FCP_STRATEGY_FCP, FCP_STRATEGY_DCP, FCP_STRATEGY_CAD};
    p->strategy = by[roll(d, 3)];
    p->block = 128 * (4 + roll(d, 2));
    p->nodes = 2;
    p->gpus = 3 + roll(d, 2);
}

/* `drawn` near the diagonal, or keys `first` to `first + count` - 1, of each `period` where it is not 0; or rows g. */
static expr *draw_few_keys(random_program *p, dice *d, expr *drawn) {
    const int64_t period = roll(d, 4) ? 0 : 4 * p->block, first = roll(d, 2) ? 0 : roll(d, p->block);
    expr *q = node(p, X_Q, 0, 0, 0, 0), *k = node(p, X_K, 0, 0, 0, 0);
    expr *distance = node(p, X_ABS, node(p, X_SUB, q, k, 0, 0), 0, 0, 0);
    expr *near = node(p, X_LT, distance, node(p, X_CONST, 0, 0, 0, 1 + roll(d, 300)), 0, 0);
    expr *at = period ? node(p, X_MOD, k, node(p, X_CONST, 0, 0, 0, period), 0, 0) : k;
    expr *from = node(p, X_GE, at, node(p, X_CONST, 0, 0, 0, first), 0, 0);
    expr *until = node(p, X_LT, at, node(p, X_CONST, 0, 0, 0, first + 1 + roll(d, 80)), 0, 0);
    expr *some = node(p, X_AND, from, until, 0, 0);
    if (!roll(d, 3)) {
        expr *row = node(p, X_CONST, 0, 0, 0, 1 + roll(d, 80));
        some = node(p, X_OR, some, node(p, X_LT, q, row, 0, 0), 0, 0);
    }
    return node(p, X_OR, roll(d, 3) ? node(p, X_AND, near, drawn, 0, 0) : near, some, 0, 0);
}

/* Draws a program of at most about `budget` query-key positions. */
static inline void draw_program_with(random_program *p, dice *d, uint64_t budget, unsigned features) {
    static const uint32_t value_dims[] = {8, 16, 24, 40};
    static const uint32_t head_counts[] = {1, 2, 4, 6, 8, 12}, dims[] = {8, 16, 32};
    static const char *const dtypes[] = {"fp32", "fp16", "bf16"};
    static const char *const layouts[] = {"planned", "contiguous", "zigzag"};
    memset(p, 0, offsetof(random_program, pool));
    memset(&p->score, 0, offsetof(random_score, pool));
    p->heads = head_counts[roll(d, 6)];
    p->kv_heads = 1 + roll(d, p->heads);
    while (p->heads % p->kv_heads) p->kv_heads--;
    p->head_dim = p->value_dim = dims[roll(d, 3)];
    if (features & DRAW_VALUES && roll(d, 2)) {
        p->value_dim = value_dims[roll(d, 4)];
        p->values_in_keys = p->value_dim <= p->head_dim && roll(d, 2);
    }
    p->dtype = (int)roll(d, 3);
    p->nodes = 1 + roll(d, 3);
    p->gpus = 1 + roll(d, 4);
    p->rail = roll(d, 3) == 0;
    p->block = 128 * (1 + roll(d, 3));
    p->coalesce = 1 + roll(d, roll(d, 2) ? 3 : 16);
    p->buffers = 1 + roll(d, 4);
    p->strategy = (int)roll(d, FCP_STRATEGY_COUNT);
    if (features & DRAW_FEW_KEYS) draw_few_ranks(p, d);
    p->layout = (int)roll(d, 3);
    p->group = 0;
    if (p->layout && roll(d, 3) == 0)
        do p->group = 1 + roll(d, p->nodes * p->gpus);
        while (p->nodes * p->gpus % p->group);
    p->backward = roll(d, 4) != 0;
    p->sequences = 1 + roll(d, MAX_SEQUENCES);
    uint64_t used = 0;
    for (uint32_t s = 0; s < p->sequences; s++) {
        uint64_t n = 1 + roll(d, roll(d, 3) ? 300 : 1500);
        if (s && roll(d, 4) == 0) n = p->lengths[s - 1];
        if (!s && features & DRAW_FEW_KEYS) n = 2600 + roll(d, 300);
        while (n > 1 && used + n * n > budget) n /= 2;
        p->lengths[s] = n;
        used += n * n;
        p->tokens += n;
        p->key_tokens += n;
    }
    if (roll(d, features & DRAW_FEW_KEYS ? 4 : 2) == 1) draw_queries(p, d);
    if (features & DRAW_EMPTY && roll(d, 3) == 2) draw_empty(p, d);
    p->lse_gradient = features & DRAW_LSE && p->backward && roll(d, 2);
    p->large = features & DRAW_FAR && roll(d, 4) == 3;
    p->field_count = roll(d, 2) && p->key_tokens && p->key_tokens <= MAX_TOKENS / 2 ? 1 + roll(d, MAX_FIELDS) : 0;
    p->views = p->view_room;
    for (uint32_t f = 0; f < p->field_count; f++) draw_field(p, d, p->fields[f]);
    p->pieces = p->piece_room;
    p->mask = draw_bool(p, d, 1 + roll(d, 4));
    if (features & DRAW_FEW_KEYS) p->mask = draw_few_keys(p, d, p->mask);
    draw_score(&p->score, d, p->heads, p->views, p->field_count, features & DRAW_FAR);
    if (features & DRAW_SHAPED && roll(d, 2)) draw_shaped(p, d);

    put_set(p, "model { heads = ", p->heads, "; kv_heads = ");
    put_set(p, "", p->kv_heads, "; head_dim = ");
    put_set(p, "", p->head_dim, p->values_in_keys ? "; values = keys; dtype = " : "; dtype = ");
    put_word(p, dtypes[p->dtype]);
    for (int i = 0; i < SCORE_TABLE && p->score.uses_table; i++)
        put(p, "%s%.2f", i ? ", " : "; table near = [", p->score.table[i]);
    if (p->score.uses_table) put_word(p, "]");
    if (p->value_dim != p->head_dim) put_set(p, "; value_dim = ", p->value_dim, "");
    put_word(p, " }\n");
    /* work lists are cut for the multiprocessors of the GPU, of which `cpu` has none */
    put_set(p, "cluster { nodes = ", p->nodes, "; gpus = ");
    put_set(p, "", p->gpus, "; gpu = ");
    put_word(p, (p->block + p->head_dim / 16 + p->sequences) % 2 ? "h100" : "cpu");
    /* ranks that wait for the network divide their stages */
    if ((p->coalesce + p->buffers + p->sequences) % 2) put_word(p, "; inter = 1MB/s");
    put_word(p, p->rail ? "; fabric = rail }\n" : "; fabric = fat_tree }\n");
    put_word(p, "batch { lengths = [");
    for (uint32_t s = 0; s < p->sequences; s++) {
        if (s) put_word(p, ", ");
        if (p->queries[s] || p->none[s]) put_number(p, (int64_t)queries_of(p, s)), put_word(p, ":");
        put_number(p, (int64_t)p->lengths[s]);
    }
    put_word(p, p->top_left ? "]; align = top_left\n" : "]\n");
    p->documents = p->field_count && (p->block / 128 + p->heads + p->sequences) % 2;
    for (uint32_t s = 0; s < p->sequences; s++) p->documents &= queries_of(p, s) == p->lengths[s];
    if (p->documents) put_word(p, "  documents = f0\n");
    for (uint32_t f = 0; f < p->field_count; f++) put_field(p, f);
    for (uint32_t f = 0; f < p->shaped_count; f++) put_shaped_field(p, f);
    put_word(p, "}\nmask drawn = ");
    put_expr(p, p->mask);
    if (p->score.root) put_word(p, "\nscore logit = "), put_word(p, p->score.text);
    put_word(p, "\nplan {\n");
    if (p->score.root) put_word(p, "  score = logit\n");
    for (uint32_t h = 0; p->score.sinks && h < p->heads; h++)
        put(p, "%s%.2f%s", h ? ", " : "  sink = [", p->score.sink[h], h + 1 < p->heads ? "" : "]\n");
    if ((p->heads + p->sequences + p->head_dim / 16) % 8) put_set(p, "  block = ", p->block, "\n");
    put_word(p, "  strategy = "); /* where nothing is said of blocks, auto finds their size */
    p->by = p->size;
    put_word(p, fcp_strategy_names[p->strategy]);
    const bool shares = p->strategy == FCP_STRATEGY_ULYSSES || p->strategy == FCP_STRATEGY_UPIPE;
    if (shares) draw_sharing(p, d);
    const bool held = shares ? put_sharing(p, d) : draw_params(p, d, p->strategy, 1);
    p->by_end = p->size;
    put_word(p, roll(d, 3) ? "\n  layout = " : "\n  relay = off\n  layout = ");
    put_word(p, layouts[p->layout]);
    if (p->group) put_set(p, "(group = ", p->group, ")");
    put_word(p, "\n");
    bool even = p->layout != FCP_LAYOUT_ZIGZAG && !p->group;
    p->equal = !p->servers && (!held || even) && !roll(d, 3);
    p->wire = !roll(d, 3) && p->dtype != FCP_FP32;
    p->layers = roll(d, LAYERED) == LAYERED - 1;
    put_word(p, p->layers ? "  layers = [drawn, causal x 3]\n" : "  mask = drawn\n");
    if (p->wire) put_word(p, "  wire = bf16\n");
    if (p->lse_gradient) put_word(p, "  lse_gradient = true\n");
    if (p->equal) put_word(p, "  tokens = equal\n");
    put_word(p, p->backward ? "  passes = forward, backward\n}\n" : "  passes = forward\n}\n");
}

static inline void draw_program(random_program *p, dice *d, uint64_t budget) {
    draw_program_with(p, d, budget, DRAW_SHAPED);
}

/* Leaves the strategy of one program in so many to auto, which may choose among some. */
static inline void draw_auto(random_program *p, dice *d, uint32_t one_in) {
    char by[200];
    if (roll(d, one_in) != one_in - 1) return;
    if (roll(d, 2)) p->among = 1u << roll(d, FCP_STRATEGY_COUNT);
    else p->among = 1 + roll(d, (1u << FCP_STRATEGY_COUNT) - 1);
    /* others may leave tokens where these make them unequal */
    if (p->equal && (p->layout == FCP_LAYOUT_ZIGZAG || p->group)) p->among |= 1u << FCP_STRATEGY_FCP;
    size_t size = (size_t)snprintf(by, sizeof by, "auto(among = [");
    for (int s = 0, count = 0; s < FCP_STRATEGY_COUNT; s++)
        if (p->among >> s & 1)
            size += (size_t)snprintf(by + size, sizeof by - size, "%s%s", count++ ? ", " : "", fcp_strategy_names[s]);
    static const char *const rest[] = {"], coalesce = 2)", "])", "])", "], budget = 100 us)"};
    size += (size_t)snprintf(by + size, sizeof by - size, "%s", rest[roll(d, 4)]);
    memmove(p->text + p->by + size, p->text + p->by_end, p->size + 1 - p->by_end);
    memcpy(p->text + p->by, by, size);
    p->size += p->by + size - p->by_end;
    p->by_end = p->by + size;
    p->servers = 0;
}

/* May auto choose only strategies that divide heads among ranks, and they do not divide? */
static inline bool auto_is_refused(const random_program *p) {
    const uint32_t sharing = 1u << FCP_STRATEGY_ULYSSES | 1u << FCP_STRATEGY_UPIPE;
    return p->among && !(p->among & ~sharing) && p->heads % p->gpus;
}
#endif
