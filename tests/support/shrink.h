/* shrink.h: looks for a smaller program that still fails a test. Again and again it tries changes, and keeps those
 * after which the test still fails:
 *   - an expression becomes one of its parts, or a leaf; the call of a function becomes the function's body
 *   - numbers, and values of fields and tables, become 0
 *   - slices, sequences, cuts and heads are left out
 * Every change makes the program lighter (p_weigh), so this ends. Then no smaller neighbour of the program fails. */
#ifndef TESTS_SHRINK_H
#define TESTS_SHRINK_H
#include "tests/support/property.h"

/* How large a program is; the first figure that differs decides. */
enum { P_WEIGHTS = 12 };
typedef struct p_weight {
    uint64_t of[P_WEIGHTS];
} p_weight;

static inline int p_tree_size(const property *p, int i) {
    if (i < 0) return 0;
    const p_node *x = &p->node[i];
    return 1 + p_tree_size(p, x->a) + p_tree_size(p, x->b) + p_tree_size(p, x->c);
}

/* Nodes of the mask and of the functions it calls. */
static inline int p_size_of(const property *p) {
    unsigned used = p_calls(p, p->root);
    int size = p_tree_size(p, p->root);
    for (int i = 0; i < p->functions; i++)
        if (used & 1u << i) size += 1 + p_tree_size(p, p->function[i].body);
    return size;
}

static inline uint64_t p_weight_of(int64_t x) { return x < 0 ? 2 * (0 - (uint64_t)x) + 1 : 2 * (uint64_t)x; }
static inline void p_add_weight(uint64_t *to, uint64_t size) {
    if (__builtin_add_overflow(*to, size, to)) *to = UINT64_MAX;
}

static inline void p_weigh_leaves(const property *p, int i, p_weight *w) {
    static const uint8_t names[] = {[P_Q] = 1, [P_K] = 1, [P_N] = 2, [P_H] = 3, [P_T] = 1, [P_CALLB] = 0};
    if (i < 0) return;
    const p_node *x = &p->node[i];
    w->of[5] += names[x->kind];
    if (x->kind == P_CONST) {
        p_add_weight(&w->of[6], p_weight_of(x->imm));
    }
    p_weigh_leaves(p, x->a, w);
    p_weigh_leaves(p, x->b, w);
    p_weigh_leaves(p, x->c, w);
}

static inline void p_weigh_pieces(const property *p, unsigned reads, p_weight *w) {
    for (int i = 0; i < P_TABLES; i++) {
        const p_table *t = &p->table[i];
        if (!(reads & 1u << (P_READS_TABLE + i))) continue;
        w->of[10] += t->rows + t->columns;
        for (uint32_t j = 0; j < t->rows * t->columns; j++) p_add_weight(&w->of[11], p_weight_of(t->value[j]));
    }
    for (int i = 0; i < p->unions; i++) {
        const p_union *u = &p->pieces[i];
        for (int j = 0; j < u->count && reads & 1u << (P_READS_PIECES + i); j++) {
            const p_slice *x = &u->of[j];
            w->of[9] += 4 + x->kind;
            w->of[10] += p_weight_of(x->q0) + p_weight_of(x->q1) + p_weight_of(x->k0) + p_weight_of(x->k1);
        }
    }
}

static inline p_weight p_weigh(const property *p) {
    unsigned used = p_calls(p, p->root);
    p_weight w = {{(uint64_t)p_size_of(p), p->sequences, p->heads}};
    for (uint32_t i = 0; i < p->sequences; i++) {
        const p_sequence *s = &p->sequence[i];
        w.of[2] += s->queries != s->n;
        w.of[3] += s->n + s->queries;
        w.of[4] += s->q_cut_count + s->k_cut_count + (s->q_cuts[0] > 0) + (s->k_cuts[0] > 0);
    }
    unsigned reads = p_reads(p, p->root);
    for (int f = 0; f < p->fields; f++)
        for (uint32_t i = 0; i < p->sequences && reads & 1u << f; i++)
            for (uint64_t t = 0; t < p->sequence[i].n; t++) { /* changes of value, then sizes */
                int64_t x = p->sequence[i].field[f][t];
                w.of[7] += t && x != p->sequence[i].field[f][t - 1];
                p_add_weight(&w.of[8], p_weight_of(x));
            }
    p_weigh_pieces(p, reads, &w);
    w.of[2] += p->top_left;
    p_weigh_leaves(p, p->root, &w);
    for (int i = 0; i < p->functions; i++)
        if (used & 1u << i) p_weigh_leaves(p, p->function[i].body, &w);
    return w;
}

static inline bool p_lighter(const p_weight *a, const p_weight *b) {
    for (int i = 0; i < P_WEIGHTS; i++)
        if (a->of[i] != b->of[i]) return a->of[i] < b->of[i];
    return false;
}

/* A copy of the tree under i, made of nodes of its own; `t`, unless -1, stands for the parameter. -1: no room. */
static inline int p_copy(property *p, int i, int t) {
    p_node x = p->node[i];
    int *const operand[] = {&x.a, &x.b, &x.c};
    if (x.kind == P_T && t >= 0) return p_copy(p, t, -1);
    for (int o = 0; o < 3; o++)
        if (*operand[o] >= 0 && (*operand[o] = p_copy(p, *operand[o], t)) < 0) return -1;
    return p->count < P_NODES ? p_new(p, x.kind, x.a, x.b, x.c, x.imm) : -1;
}

/* The nodes that are reached, none shared, roots first; room for edits behind them. */
static inline void p_tidy(property *p, property *scratch) {
    unsigned used = p_calls(p, p->root);
    *scratch = *p;
    int first = scratch->count; /* copies of what is there go to the front of p */
    scratch->root = p_copy(scratch, p->root, -1);
    bool fits = scratch->root >= 0;
    for (int i = 0; i < p->functions && fits; i++)
        if (used & 1u << i) fits = (scratch->function[i].body = p_copy(scratch, p->function[i].body, -1)) >= 0;
    if (!fits) return; /* as it is, then: shared nodes change together */
    p->count = scratch->count - first;
    for (int i = 0; i < p->count; i++) {
        p_node x = scratch->node[first + i];
        if (x.a >= 0) x.a -= first;
        if (x.b >= 0) x.b -= first;
        if (x.c >= 0) x.c -= first;
        p->node[i] = x;
    }
    p->root = scratch->root - first;
    for (int i = 0; i < p->functions; i++)
        p->function[i].body = used & 1u << i ? scratch->function[i].body - first : p->root;
}

/* The nodes under i, i the first, in order of their depth. */
static inline int p_under(const property *p, int i, int *out) {
    int count = 0;
    out[count++] = i;
    for (int at = 0; at < count; at++) {
        const p_node *x = &p->node[out[at]];
        const int operand[] = {x->a, x->b, x->c};
        for (int o = 0; o < 3; o++)
            if (operand[o] >= 0 && count < P_NODES) out[count++] = operand[o];
    }
    return count;
}

static inline void p_clip_cuts(uint64_t *cuts, uint32_t *count, uint64_t n) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i + 1 < *count && cuts[i] < n; i++) cuts[kept++] = cuts[i];
    if (!kept) cuts[kept++] = 0;
    uint64_t end = cuts[*count - 1];
    cuts[kept] = end < n && end > cuts[kept - 1] ? end : n;
    *count = kept + 1;
}

typedef bool p_fails(const property *p, void *with);
typedef struct p_shrinker {
    property now, next, scratch;
    p_fails *fails;
    void *with;
    int64_t tries; /* left */
} p_shrinker;

/* Takes `next` if it is smaller and still fails. */
static inline bool p_take(p_shrinker *s) {
    p_weight was = p_weigh(&s->now), is = p_weigh(&s->next);
    if (!p_lighter(&is, &was) || s->tries <= 0) return false;
    s->tries--;
    if (!s->fails(&s->next, s->with)) return false;
    s->now = s->next;
    return true;
}

static inline bool p_take_node(p_shrinker *s, int i, p_node x) {
    s->next = s->now;
    s->next.node[i] = x;
    return p_take(s);
}

static inline bool p_take_number(p_shrinker *s, int i, int64_t value) {
    return p_take_node(s, i, (p_node){P_CONST, -1, -1, -1, value});
}

static inline bool p_shrink_node(p_shrinker *s, int i) {
    const p_node x = s->now.node[i];
    int under[P_NODES], count = p_under(&s->now, i, under);
    if (p_is_call(x.kind)) { /* what it calls, in its place */
        const p_function *f = &s->now.function[x.imm];
        s->next = s->now;
        int body = p_copy(&s->next, f->body, f->takes ? x.a : -1);
        if (body >= 0) {
            s->next.node[i] = s->next.node[body];
            if (p_take(s)) return true;
        }
    }
    if (p_is_bool(x.kind)) {
        if (p_take_node(s, i, (p_node){P_TRUE, -1, -1, -1, 0}) || p_take_node(s, i, (p_node){P_FALSE, -1, -1, -1, 0}))
            return true;
    } else {
        if (p_take_number(s, i, 0) || p_take_number(s, i, 1) || p_take_number(s, i, -1)) return true;
        if (x.kind == P_CONST) {
            if (p_take_number(s, i, x.imm / 2) || p_take_number(s, i, x.imm - x.imm / 8) ||
                p_take_number(s, i, x.imm < 0 ? x.imm + 1 : x.imm - 1) ||
                (x.imm < 0 && p_take_number(s, i, -x.imm)))
                return true;
        } else if (x.kind == P_N || x.kind == P_H || !p_is_leaf(x.kind)) {
            if (p_take_node(s, i, (p_node){P_Q, -1, -1, -1, 0}) || p_take_node(s, i, (p_node){P_K, -1, -1, -1, 0}))
                return true;
        }
    }
    for (int j = 1; j < count; j++)
        if (p_is_bool(s->now.node[under[j]].kind) == p_is_bool(x.kind) && p_take_node(s, i, s->now.node[under[j]]))
            return true;
    if (x.kind < P_EQ || x.kind > P_GE) return false;
    for (int side = 0; side < 2; side++) { /* a part of an operand, compared in another way */
        const p_node *o = &s->now.node[side ? x.b : x.a];
        const int parts[] = {o->a, o->b, o->c};
        for (int j = 0; j < 3; j++)
            for (p_kind kind = P_EQ; parts[j] >= 0 && kind <= P_GE; kind++)
                if (!p_is_bool(s->now.node[parts[j]].kind) &&
                    p_take_node(s, i, (p_node){kind, side ? x.a : parts[j], side ? parts[j] : x.b, -1, 0}))
                    return true;
    }
    return false;
}

static inline bool p_shrink_length(p_shrinker *s, uint32_t i, uint64_t n, uint64_t queries) {
    s->next = s->now;
    p_sequence *x = &s->next.sequence[i];
    if (n == 0 || queries == 0 || (n == x->n && queries == x->queries)) return false;
    x->n = n;
    x->queries = queries;
    p_clip_cuts(x->q_cuts, &x->q_cut_count, queries);
    p_clip_cuts(x->k_cuts, &x->k_cut_count, n);
    return p_take(s);
}

/* Keys and queries alike, or either alone. */
static inline bool p_shrink_side(p_shrinker *s, uint32_t i) {
    const uint64_t n = s->now.sequence[i].n, queries = s->now.sequence[i].queries;
    if (n != queries && (p_shrink_length(s, i, n, n) || p_shrink_length(s, i, queries, queries))) return true;
    const uint64_t smaller[] = {n / 2, n - n / 8, n - 1}, fewer[] = {queries / 2, queries - queries / 8, queries - 1};
    for (int j = 0; j < 3; j++) {
        if (n == queries && p_shrink_length(s, i, smaller[j], smaller[j])) return true;
        if (n != queries && (p_shrink_length(s, i, smaller[j], queries) || p_shrink_length(s, i, n, fewer[j])))
            return true;
    }
    return false;
}

static inline bool p_shrink_sequences(p_shrinker *s) {
    bool any = false;
    for (uint32_t i = 0; i < s->now.sequences;) {
        s->next = s->now;
        for (uint32_t j = i; j + 1 < s->next.sequences; j++) s->next.sequence[j] = s->next.sequence[j + 1];
        bool took = s->next.sequences-- > 1 && p_take(s);
        any |= took;
        i += !took;
    }
    for (uint32_t i = 0; i < s->now.sequences; i++) {
        while (p_shrink_side(s, i)) any = true;
        for (int side = 0; side < 2; side++)
            for (uint32_t j = 0;;) {
                s->next = s->now;
                uint64_t *cuts = side ? s->next.sequence[i].k_cuts : s->next.sequence[i].q_cuts;
                uint32_t *count = side ? &s->next.sequence[i].k_cut_count : &s->next.sequence[i].q_cut_count;
                if (j + 1 >= *count) break;
                if (j == 0) cuts[0] = 0;
                else memmove(&cuts[j], &cuts[j + 1], (--*count - j) * sizeof *cuts);
                bool took = p_take(s);
                any |= took;
                j += !took || j == 0;
            }
    }
    if (s->now.top_left) {
        s->next = s->now;
        s->next.top_left = false;
        any |= p_take(s);
    }
    while (s->now.heads > 1) {
        s->next = s->now;
        s->next.heads = 1;
        if (!p_take(s)) {
            s->next.heads = s->now.heads - 1;
            if (!p_take(s)) break;
        }
        any = true;
    }
    return any;
}

/* Makes the values of field f of a sequence from `from` to before `to` what `by` says: 0, the one before, or half. */
static inline bool p_shrink_values(p_shrinker *s, int f, uint32_t i, uint64_t from, uint64_t to, int by) {
    s->next = s->now;
    int64_t *v = s->next.sequence[i].field[f];
    bool changed = false;
    for (uint64_t t = from; t < to; t++) {
        int64_t was = v[t];
        v[t] = by == 0 ? 0 : by == 1 ? (from ? v[from - 1] : 0) : was / 2;
        changed |= v[t] != was;
    }
    return changed && p_take(s);
}

static inline bool p_shrink_fields(p_shrinker *s) {
    bool any = false;
    unsigned reads = p_reads(&s->now, s->now.root);
    for (int f = 0; f < s->now.fields; f++)
        for (uint32_t i = 0; i < s->now.sequences && reads & 1u << f; i++) {
            uint64_t n = s->now.sequence[i].n;
            for (uint64_t step = n; step; step /= 2)
                for (uint64_t at = 0; at < n; at += step)
                    for (int by = 0; by < 3; by++)
                        any |= p_shrink_values(s, f, i, at, at + step < n ? at + step : n, by);
        }
    return any;
}

/* Without its row or column `at`. */
static inline bool p_shrink_side_of(p_shrinker *s, int number, bool column, uint32_t at) {
    s->next = s->now;
    p_table *t = &s->next.table[number];
    const uint32_t columns = t->columns;
    if ((column ? t->columns-- : t->rows--) == 1) return false;
    for (uint32_t i = 0; i < t->rows * t->columns; i++) {
        uint32_t row = i / t->columns, col = i % t->columns;
        t->value[i] = t->value[(row + (!column && row >= at)) * columns + col + (column && col >= at)];
    }
    return p_take(s);
}

static inline bool p_shrink_table(p_shrinker *s, int number) {
    bool any = false;
    const p_table *t = &s->now.table[number];
    for (int column = 0; column < 2; column++)
        for (uint32_t i = column ? t->columns : t->rows; i-- > 0;) any |= p_shrink_side_of(s, number, column, i);
    for (uint32_t i = 0; i < t->rows * t->columns; i++)
        for (int by = 0; by < 3; by++) {
            s->next = s->now;
            int64_t *v = &s->next.table[number].value[i];
            *v = by == 0 ? 0 : by == 1 ? *v / 2 : *v < 0 ? *v + 1 : *v - 1;
            any |= p_take(s);
        }
    return any;
}

/* One of the numbers of a slice, or -1 for its kind, made smaller; both ends move with their beginnings. */
static inline bool p_shrink_slice(p_shrinker *s, int number, int i, int which, bool rect) {
    bool any = false;
    for (int by = 0; by < 3;) {
        s->next = s->now;
        p_slice *x = &s->next.pieces[number].of[i];
        int64_t *const numbers[] = {&x->q0, &x->q1, &x->k0, &x->k1};
        if (which < 0) {
            x->kind = by < (int)x->kind ? (uint32_t)by : x->kind;
        } else {
            int64_t *v = numbers[which], was = *v;
            if (was <= 0) break;
            *v = by == 0 ? 0 : by == 1 ? was / 2 : was - 1;
            if (which % 2 == 0) *numbers[which + 1] -= was - *v;
            if (!rect && (x->q1 <= x->q0 || x->k1 <= x->k0)) {
                by++;
                continue;
            }
        }
        if (p_take(s)) any = true;
        else by++;
    }
    return any;
}

static inline bool p_shrink_pieces(p_shrinker *s) {
    bool any = false;
    for (int i = 0; i < P_TABLES; i++)
        if (p_reads(&s->now, s->now.root) & 1u << (P_READS_TABLE + i)) any |= p_shrink_table(s, i);
    for (int i = 0; i < s->now.unions; i++) {
        if (!(p_reads(&s->now, s->now.root) & 1u << (P_READS_PIECES + i))) continue;
        for (int j = 0; j < s->now.pieces[i].count && s->now.pieces[i].count > 1;) {
            s->next = s->now;
            p_union *u = &s->next.pieces[i];
            memmove(&u->of[j], &u->of[j + 1], (size_t)(--u->count - j) * sizeof *u->of);
            bool took = p_take(s);
            any |= took;
            j += !took;
        }
        bool rect = false;
        for (int j = 0; j < s->now.count; j++) rect |= s->now.node[j].kind == P_RECT && s->now.node[j].imm == i;
        for (int j = 0; j < s->now.pieces[i].count; j++)
            for (int which = -1; which < 4; which++) any |= p_shrink_slice(s, i, j, which, rect);
    }
    return any;
}

/* Makes p, which fails, as small as it gets within so many tries. */
static inline void p_shrink(property *p, p_fails *fails, void *with, int64_t tries) {
    p_shrinker *s = malloc(sizeof *s);
    if (!s) abort();
    s->now = *p;
    s->fails = fails;
    s->with = with;
    s->tries = tries;
    for (bool any = true; any && s->tries > 0;) {
        any = p_shrink_sequences(s); /* first: what follows is then quick */
        any |= p_shrink_fields(s);
        any |= p_shrink_pieces(s);
        p_tidy(&s->now, &s->scratch);
        int roots[1 + P_FUNCTIONS], count = 0;
        unsigned used = p_calls(&s->now, s->now.root);
        roots[count++] = s->now.root;
        for (int i = 0; i < s->now.functions; i++)
            if (used & 1u << i) roots[count++] = s->now.function[i].body;
        for (int r = 0; r < count; r++) {
            int under[P_NODES], nodes = p_under(&s->now, roots[r], under);
            for (int i = 0; i < nodes; i++)
                if (p_shrink_node(s, under[i])) {
                    any = true; /* the tree is another one: take it from here again */
                    nodes = p_under(&s->now, roots[r], under);
                    i--;
                }
        }
    }
    *p = s->now;
    free(s);
}
#endif
