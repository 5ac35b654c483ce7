/* values.c: evaluates a mask's code over a box of queries and keys: it is true for all pairs, for none, or mixed.
 *
 * Requires: code that has passed mc_check; the box is within the positions of the sequence.
 * Gives:    ALL and NONE are proofs, for the meaning of the code that codegen/mask/code.h defines, which is what
 *           kernels compute. MIXED means that the mask differs inside the box, or that the ranges do not tell.
 * Method:   interval arithmetic. For a number that is linear in query and key, the linear form is kept, too. Its range
 *           is exact, because its extremes are at corners of the box, and so is the range of the difference of two such
 *           numbers. Numbers that may wrap around have the range of all 64-bit numbers. A node that equals one of its
 *           operands all over the box, as min(x, y) does where x <= y, is known to be the same.
 * Cost:     O(nodes) a box, and time logarithmic in an array's length for each node that reads the array.
 */
#include "runtime/pairs/pairs_parts.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/plan_arrays.h"

typedef __int128 wide;
typedef struct span { wide lo, hi; } span;

static const int64_t steepest = INT64_C(1) << 40; /* of a form: more is not kept, so that 128 bits suffice */

static span both(span a, span b) { return (span){a.lo < b.lo ? a.lo : b.lo, a.hi > b.hi ? a.hi : b.hi}; }
static span span_of(const pairs_value *x) { return (span){x->lo, x->hi}; }
static bool decided(const pairs_value *x) { return x->lo == x->hi; }

/* The range of c + q * (query) + k * (key) in a box. */
static span corners(const pairs_box *b, wide c, wide q, wide k) {
    const wide q0 = q * b->q0, q1 = q * (b->q1 - 1), k0 = k * b->k0, k1 = k * (b->k1 - 1);
    return (span){c + (q0 < q1 ? q0 : q1) + (k0 < k1 ? k0 : k1), c + (q0 > q1 ? q0 : q1) + (k0 > k1 ? k0 : k1)};
}

/* Sets a value to a range. A range that does not fit 64 bits becomes all 64-bit numbers, because the value may have
 * wrapped around to anything. */
static void set_range(pairs_value *v, span r) {
    v->exact = r.lo >= INT64_MIN && r.hi <= INT64_MAX;
    v->lo = v->exact ? (int64_t)r.lo : INT64_MIN;
    v->hi = v->exact ? (int64_t)r.hi : INT64_MAX;
    v->linear = decided(v);
    v->c = v->lo;
    v->q = v->k = 0;
}

/* Sets a value to the linear form c + q * (query) + k * (key), computed of operands that are exact. */
static void set_form(pairs_value *v, const pairs_box *b, wide c, wide q, wide k) {
    set_range(v, corners(b, c, q, k));
    if (v->linear || !v->exact || c < INT64_MIN || c > INT64_MAX || q < -steepest || q > steepest || k < -steepest ||
        k > steepest)
        return;
    v->linear = true;
    v->c = (int64_t)c;
    v->q = (int64_t)q;
    v->k = (int64_t)k;
}

static void set_bool(pairs_value *v, bool may_be_false, bool may_be_true) {
    set_range(v, (span){!may_be_false, may_be_true});
}

/* The difference of two nodes' values. */
static span difference(const pairs_mask *m, const pairs_box *b, uint32_t i, uint32_t j) {
    const pairs_value *x = &m->values[i], *y = &m->values[j];
    if (x->same == y->same) return (span){0, 0};
    if (x->linear && y->linear)
        return corners(b, (wide)x->c - y->c, (wide)x->q - y->q, (wide)x->k - y->k);
    return (span){(wide)x->lo - y->hi, (wide)x->hi - y->lo};
}

static span products(span a, span b) {
    const span low = both((span){a.lo * b.lo, a.lo * b.lo}, (span){a.lo * b.hi, a.lo * b.hi});
    const span high = both((span){a.hi * b.lo, a.hi * b.lo}, (span){a.hi * b.hi, a.hi * b.hi});
    return both(low, high);
}

static void multiply(pairs_value *v, const pairs_box *b, const pairs_value *x, const pairs_value *y) {
    if (decided(y)) {
        const pairs_value *keep = x;
        x = y;
        y = keep;
    }
    const wide factor = x->lo;
    const bool small = factor >= -steepest && factor <= steepest;
    if (decided(x) && y->linear && small) set_form(v, b, factor * y->c, factor * y->q, factor * y->k);
    else set_range(v, products(span_of(x), span_of(y)));
}

static wide quotient(int64_t x, int64_t y) {
    return x == INT64_MIN && y == -1 ? (wide)INT64_MAX + 1 : (wide)mc_div(x, y);
}

/* The range of x / y for divisors y in [from, to], which have one sign. x / y rises or falls in x, and in y, and
 * rounding down keeps that. So the extremes are among the quotients of the ends. */
static span quotients(const pairs_value *x, int64_t from, int64_t to) {
    const span low = both((span){quotient(x->lo, from), quotient(x->lo, from)},
                          (span){quotient(x->lo, to), quotient(x->lo, to)});
    const span high = both((span){quotient(x->hi, from), quotient(x->hi, from)},
                           (span){quotient(x->hi, to), quotient(x->hi, to)});
    return both(low, high);
}

static void divide(pairs_value *v, const pairs_value *x, const pairs_value *y) {
    span all = {0, 0}; /* x / 0 is 0 */
    bool any = y->lo <= 0 && y->hi >= 0;
    if (y->lo < 0) {
        const span s = quotients(x, y->lo, y->hi < -1 ? y->hi : -1);
        all = any ? both(all, s) : s;
        any = true;
    }
    if (y->hi > 0) {
        const span s = quotients(x, y->lo > 1 ? y->lo : 1, y->hi);
        all = any ? both(all, s) : s;
    }
    set_range(v, all);
}

static void remain(pairs_value *v, const pairs_box *b, const pairs_value *x, const pairs_value *y) {
    const bool one = decided(y) && y->lo != 0 && y->lo != -1;
    const wide times = one ? quotient(x->lo, y->lo) : 0;
    if (one && times == quotient(x->hi, y->lo)) { /* the same quotient all over the box */
        const wide less = times * y->lo;
        if (x->linear) set_form(v, b, x->c - less, x->q, x->k);
        else set_range(v, (span){x->lo - less, x->hi - less});
        return;
    }
    span s = {y->lo < 0 ? (wide)y->lo + 1 : 0, y->hi > 0 ? (wide)y->hi - 1 : 0};
    if (x->lo >= 0 && x->hi < s.hi) s.hi = x->hi;
    set_range(v, s);
}

/* The indices of one dimension that a load may read, counted from the dimension's first. *out_all: they are all of the
 * array's. Returns false if the array has none of them. */
static bool indices(const pairs_value *index, int64_t first, int64_t count, uint64_t *from, uint64_t *to,
                    bool *out_all) {
    const int64_t end = first + count, lo = index->lo < first ? first : index->lo;
    const int64_t hi = index->hi >= end ? end - 1 : index->hi;
    if (lo != index->lo || hi != index->hi) *out_all = false;
    if (lo > hi) return false;
    *from = (uint64_t)(lo - first);
    *to = (uint64_t)(hi - first) + 1;
    return true;
}

/* Bounds the elements of an array that a load reads at the indices which its operands may have. Elements outside of the
 * array count as 0. */
static void load(const pairs_mask *m, pairs_value *v, const mc_node *x) {
    enum { FEW_ROWS = 64 };
    const mc_array *a = &m->env.arrays[x->imm];
    const uint64_t rows = (uint64_t)a->count, width = a->columns ? (uint64_t)a->columns : 1;
    const uint32_t row = a->planes ? x->b : x->a, column = a->planes ? x->c : x->b;
    uint64_t plane[2] = {0, 1}, i[2], j[2] = {0, 1};
    int64_t lo = INT64_MAX, hi = INT64_MIN;
    bool all = true, some = !a->planes || indices(&m->values[x->a], 0, a->planes, &plane[0], &plane[1], &all);
    some = indices(&m->values[row], a->first, a->count, &i[0], &i[1], &all) && some;
    if (a->columns) some = indices(&m->values[column], a->column_first, a->columns, &j[0], &j[1], &all) && some;
    if (!all || !some) lo = hi = 0;
    if (some && width > 1 && (plane[1] - plane[0]) * (i[1] - i[0]) <= FEW_ROWS) {
        for (uint64_t p = plane[0]; p < plane[1]; p++)
            for (uint64_t r = p * rows + i[0]; r < p * rows + i[1]; r++)
                fcp_pairs_extremes(m->facts, (uint32_t)x->imm, a, r * width + j[0], r * width + j[1], &lo, &hi);
    } else if (some) { /* with what lies beside these between the first element and the last */
        const uint64_t first = plane[0] * rows + i[0], last = (plane[1] - 1) * rows + i[1] - 1;
        fcp_pairs_extremes(m->facts, (uint32_t)x->imm, a, first * width + j[0], last * width + j[1], &lo, &hi);
    }
    set_range(v, (span){lo, hi});
}

/* Says that node i has the same value as node j all over the box. */
static void alias(const pairs_mask *m, uint32_t i, uint32_t j) {
    m->values[i] = m->values[j];
}

/* Evaluates min (`less`) or max of two nodes. If one of them is the answer all over the box, the result is the same as
 * that node. */
static void choose(const pairs_mask *m, const pairs_box *b, uint32_t i, const mc_node *x, bool less) {
    const span d = difference(m, b, x->a, x->b);
    const pairs_value *p = &m->values[x->a], *q = &m->values[x->b];
    if (d.hi <= 0) alias(m, i, less ? x->a : x->b);
    else if (d.lo >= 0) alias(m, i, less ? x->b : x->a);
    else if (less) set_range(&m->values[i], (span){p->lo < q->lo ? p->lo : q->lo, p->hi < q->hi ? p->hi : q->hi});
    else set_range(&m->values[i], (span){p->lo > q->lo ? p->lo : q->lo, p->hi > q->hi ? p->hi : q->hi});
}

static void absolute(const pairs_mask *m, const pairs_box *b, uint32_t i, uint32_t of) {
    const pairs_value *x = &m->values[of];
    pairs_value *v = &m->values[i];
    if (x->lo >= 0) alias(m, i, of);
    else if (x->hi <= 0 && x->linear) set_form(v, b, -(wide)x->c, -(wide)x->q, -(wide)x->k);
    else if (x->hi <= 0) set_range(v, (span){-(wide)x->hi, -(wide)x->lo});
    else set_range(v, (span){0, -(wide)x->lo > x->hi ? -(wide)x->lo : x->hi});
}

static void select_one(const pairs_mask *m, uint32_t i, const mc_node *x) {
    const pairs_value *c = &m->values[x->a], *p = &m->values[x->b], *q = &m->values[x->c];
    if (decided(c)) alias(m, i, c->lo ? x->b : x->c);
    else if (p->same == q->same) alias(m, i, x->b);
    else set_range(&m->values[i], both(span_of(p), span_of(q)));
}

static void compare(const pairs_mask *m, const pairs_box *b, uint32_t i, const mc_node *x) {
    const span d = difference(m, b, x->a, x->b);
    const bool zero = d.lo <= 0 && d.hi >= 0, other = d.lo != 0 || d.hi != 0;
    pairs_value *v = &m->values[i];
    switch ((mc_op)x->op) {
    case MC_EQ: set_bool(v, other, zero); break;
    case MC_NE: set_bool(v, zero, other); break;
    case MC_LT: set_bool(v, d.hi >= 0, d.lo < 0); break;
    default: set_bool(v, d.hi > 0, d.lo <= 0); break;
    }
}

static void join(const pairs_mask *m, uint32_t i, const mc_node *x) {
    const pairs_value *p = &m->values[x->a], *q = &m->values[x->b];
    pairs_value *v = &m->values[i];
    const bool ends = x->op == MC_OR; /* the operand that decides alone */
    if (x->op == MC_IFF) {
        if (p->same == q->same) set_bool(v, false, true);
        else if (decided(p) && decided(q)) set_bool(v, p->lo != q->lo, p->lo == q->lo);
        else if (decided(p) && p->lo) alias(m, i, x->b);
        else if (decided(q) && q->lo) alias(m, i, x->a);
        else set_bool(v, true, true);
    } else if (decided(p)) {
        alias(m, i, (p->lo != 0) == ends ? x->a : x->b);
    } else if (decided(q)) {
        alias(m, i, (q->lo != 0) == ends ? x->b : x->a);
    } else if (p->same == q->same) {
        alias(m, i, x->a);
    } else {
        set_bool(v, true, true);
    }
}

static void evaluate_node(const pairs_mask *m, const pairs_box *b, uint32_t i) {
    const mc_node *x = &m->code.nodes[i];
    pairs_value *v = &m->values[i];
    const pairs_value *p = x->a != MC_NONE ? &m->values[x->a] : NULL, *q = x->b != MC_NONE ? &m->values[x->b] : NULL;
    v->same = i;
    switch ((mc_op)x->op) {
    case MC_CONST_I:
    case MC_CONST_B: set_range(v, (span){x->imm, x->imm}); break;
    case MC_Q: set_form(v, b, 0, 1, 0); break;
    case MC_K: set_form(v, b, 0, 0, 1); break;
    case MC_N: set_range(v, (span){m->env.n, m->env.n}); break;
    case MC_ADD:
        if (p->linear && q->linear) set_form(v, b, (wide)p->c + q->c, (wide)p->q + q->q, (wide)p->k + q->k);
        else set_range(v, (span){(wide)p->lo + q->lo, (wide)p->hi + q->hi});
        break;
    case MC_SUB:
        if (p->linear && q->linear) set_form(v, b, (wide)p->c - q->c, (wide)p->q - q->q, (wide)p->k - q->k);
        else set_range(v, difference(m, b, x->a, x->b));
        break;
    case MC_MUL: multiply(v, b, p, q); break;
    case MC_DIV: divide(v, p, q); break;
    case MC_MOD: remain(v, b, p, q); break;
    case MC_NEG:
        if (p->linear) set_form(v, b, -(wide)p->c, -(wide)p->q, -(wide)p->k);
        else set_range(v, (span){-(wide)p->hi, -(wide)p->lo});
        break;
    case MC_ABS: absolute(m, b, i, x->a); break;
    case MC_MIN: choose(m, b, i, x, true); break;
    case MC_MAX: choose(m, b, i, x, false); break;
    case MC_IF_I:
    case MC_IF_B: select_one(m, i, x); break;
    case MC_LOAD:
    case MC_LOAD2:
    case MC_LOAD3: load(m, v, x); break;
    case MC_EQ:
    case MC_NE:
    case MC_LT:
    case MC_LE: compare(m, b, i, x); break;
    case MC_NOT: set_bool(v, p->hi == 1, p->lo == 0); break;
    case MC_AND:
    case MC_OR:
    case MC_IFF: join(m, i, x); break;
    case MC_BANDS: {
        const pairs_answer in = fcp_pairs_in_bands(m->facts, (uint32_t)x->imm, p->lo, p->hi, q->lo, q->hi);
        set_bool(v, in != FCP_PAIRS_ALL, in != FCP_PAIRS_NONE);
        break;
    }
    default: set_range(v, (span){INT64_MIN, INT64_MAX}); break; /* h has been folded, and a mask has no reals */
    }
}

pairs_answer fcp_pairs_evaluate(const pairs_mask *m, const pairs_box *b) {
    for (uint32_t i = 0; i < m->code.count; i++) evaluate_node(m, b, i);
    const pairs_value *answer = &m->values[m->code.count - 1];
    if (!decided(answer)) return FCP_PAIRS_MIXED;
    return answer->lo ? FCP_PAIRS_ALL : FCP_PAIRS_NONE;
}

/* --- folding ------------------------------------------------------------------------------------------------------ */

static bool constant(const mc_node *x) { return x->op == MC_CONST_I || x->op == MC_CONST_B; }

static void make_constant(mc_node *x, mc_op op, int64_t value) {
    *x = (mc_node){.op = op, .a = MC_NONE, .b = MC_NONE, .c = MC_NONE, .guard = MC_NONE, .imm = value};
}

/* Replaces an element of a table by its value, which is the same in all sequences. */
static bool fold_element(const fcp_plan *plan, const mc_node *nodes, mc_node *x) {
    const fcp_array *a = &plan->arrays[x->imm];
    if (a->kind != FCP_TABLE || !constant(&nodes[x->a]) || (x->b != MC_NONE && !constant(&nodes[x->b]))) return false;
    const mc_array table = fcp_array_part(a, plan->data + a->offset, 0, NULL);
    make_constant(x, MC_CONST_I, mc_load(&table, nodes[x->a].imm, x->b != MC_NONE ? nodes[x->b].imm : 0, 0));
    return true;
}

void fcp_pairs_fold(const fcp_plan *plan, int64_t head, mc_node *out) {
    const uint32_t count = (uint32_t)plan->mask_count;
    for (uint32_t i = 0; i < count; i++) {
        mc_node *x = &out[i];
        int64_t value;
        *x = plan->mask[i];
        x->guard = MC_NONE; /* the total meaning has none */
        if (x->op == MC_H) make_constant(x, MC_CONST_I, head);
        if (x->a == MC_NONE) continue;
        if (x->op == MC_IF_I || x->op == MC_IF_B) {
            if (constant(&out[x->a])) *x = out[out[x->a].imm ? x->b : x->c];
        } else if (mc_loads_int(x->op)) {
            fold_element(plan, out, x);
        } else if (constant(&out[x->a]) && (x->b == MC_NONE || constant(&out[x->b])) &&
                   mc_value(x->op, out[x->a].imm, x->b == MC_NONE ? 0 : out[x->b].imm, &value)) {
            make_constant(x, mc_op_type(x->op) == 'b' ? MC_CONST_B : MC_CONST_I, value);
        }
    }
    /* What the answer needs, from the end; `pad` marks it meanwhile. */
    out[count - 1].pad = 1;
    for (uint32_t i = count; i-- > 0;) {
        mc_node *x = &out[i];
        if (!x->pad) {
            make_constant(x, MC_CONST_B, 0);
            continue;
        }
        x->pad = 0;
        if (x->a != MC_NONE) out[x->a].pad = 1;
        if (x->b != MC_NONE) out[x->b].pad = 1;
        if (x->c != MC_NONE) out[x->c].pad = 1;
    }
}
