/* derive.c: makes the derivative of a score by one of its nodes, as code: by s, or by an element of a table.
 *
 * For example, the derivative of c * tanh(s / c) by s is 1 - tanh(s / c)^2, which uses the tanh that the score computes
 * anyway. The derivative of s + slopes[h] * (k - q) by slopes[h] is k - q.
 *
 * Requires: a real node of mask code in a builder. Gives: a node in the same builder.
 * Method: goes forward through the nodes by the rules of calculus. Each derivative is kept as num / den * node, with
 *      two numbers and a node. So constants cancel: in the example the factors c and 1 / c become 1. Numbers are
 *      combined in double, so the result is the derivative up to rounding.
 * Meaning: - min, max, abs and if have the derivative of the branch that they take; abs at 0 has that of +x.
 *      - If a condition depends on the node by which is derived, the jump where the condition changes is ignored.
 *      - A floor of something that depends on this node has no useful derivative: it is 0 almost everywhere.
 * Cost: O(nodes).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/mask/code.h"

/* A derivative: num / den * node, or num / den alone if node is MC_NONE. den is not 0. */
typedef struct slope {
    bool zero;
    double num, den;
    uint32_t node;
} slope;

typedef struct deriving {
    mc_builder *b;
    bool failed;
} deriving;

static const slope none = {.zero = true, .num = 0, .den = 1, .node = MC_NONE};

static uint32_t emit(deriving *d, mc_op op, uint32_t a, uint32_t b, uint32_t c) {
    if (d->failed) return 0;
    uint32_t node = mc_emit(d->b, op, a, b, c, 0, MC_NONE, 0);
    d->failed = node == MC_NONE;
    return d->failed ? 0 : node;
}

static uint32_t constant(deriving *d, double x) {
    if (d->failed) return 0;
    uint32_t node = mc_emit(d->b, MC_CONST_F, MC_NONE, MC_NONE, MC_NONE, mc_real_bits(x), MC_NONE, 0);
    d->failed = node == MC_NONE;
    return d->failed ? 0 : node;
}

static slope of_node(uint32_t node) { return (slope){.num = 1, .den = 1, .node = node}; }

/* Emits a node with the value of a slope, num / den * node. */
static uint32_t emit_slope(deriving *d, const slope *x) {
    if (x->zero) return constant(d, 0);
    double c = x->num / x->den;
    if (x->node == MC_NONE) return constant(d, c);
    return c == 1 ? x->node : emit(d, MC_MUL_F, constant(d, c), x->node, MC_NONE);
}

static mc_node node_of(const deriving *d, uint32_t i) {
    uint32_t count;
    return mc_builder_nodes(d->b, &count)[i];
}

static bool is_constant(const deriving *d, uint32_t i, double *out) {
    mc_node x = node_of(d, i);
    memcpy(out, &x.imm, sizeof *out);
    return x.op == MC_CONST_F;
}

/* Is x far enough from the ends of double that num / den loses no bits? */
static bool is_tame(double x) { return fabs(x) > 0x1p-400 && fabs(x) < 0x1p400; }

/* Multiplies or divides x by a node that is no constant. If x is `if c then 0 else y`, the result is `if c then 0 else
 * y * by`, and not `(if c then 0 else y) * by`. Otherwise 0 times infinity would give NaN where the derivative is 0, as
 * in sqrt(max(s, 0.0)) for s < 0. */
static slope combined(deriving *d, mc_op op, slope x, uint32_t by) {
    double c;
    const mc_node n = x.node == MC_NONE || d->failed ? (mc_node){.op = MC_S} : node_of(d, x.node);
    bool first = n.op == MC_IF_F && is_constant(d, n.b, &c) && c == 0;
    bool last = n.op == MC_IF_F && is_constant(d, n.c, &c) && c == 0;
    if (first || last) {
        uint32_t inner = emit(d, op, first ? n.c : n.b, by, MC_NONE);
        x.node = emit(d, MC_IF_F, n.a, first ? n.b : inner, first ? inner : n.c);
    } else x.node = emit(d, op, x.node == MC_NONE ? constant(d, 1) : x.node, by, MC_NONE);
    return x;
}

static slope times(deriving *d, slope x, uint32_t by) {
    double c;
    if (x.zero) return x;
    if (is_constant(d, by, &c)) {
        if (c == 0) return none;
        if (x.den == c) {
            x.den = 1;
            return x;
        }
        if (is_tame(c) && is_tame(x.num * c)) {
            x.num *= c;
            return x;
        }
    }
    if (x.node != MC_NONE) return combined(d, MC_MUL_F, x, by);
    x.node = by;
    return x;
}

static slope divided(deriving *d, slope x, uint32_t by) {
    double c;
    if (x.zero) return x;
    if (is_constant(d, by, &c)) {
        if (x.num == c && c != 0) {
            x.num = 1;
            return x;
        }
        if (is_tame(c) && is_tame(x.den * c)) {
            x.den *= c;
            return x;
        }
    }
    return combined(d, MC_DIV_F, x, by);
}

static slope negated(slope x) {
    x.num = -x.num;
    return x;
}

static slope sum(deriving *d, slope x, slope y) {
    if (x.zero) return y;
    if (y.zero) return x;
    double c = x.num / x.den, e = y.num / y.den;
    if (x.node == y.node && is_tame(c + e)) return (slope){.num = c + e, .den = 1, .node = x.node};
    if (e < 0) y = negated(y);
    /* in two statements, because the order of nodes must not depend on the C compiler */
    const uint32_t right = emit_slope(d, &y), left = emit_slope(d, &x);
    return of_node(emit(d, e < 0 ? MC_SUB_F : MC_ADD_F, left, right, MC_NONE));
}

/* The slope of a choice: if condition then x else y. */
static slope chosen(deriving *d, uint32_t condition, slope x, slope y) {
    if (x.zero && y.zero) return none;
    const uint32_t otherwise = emit_slope(d, &y), then = emit_slope(d, &x);
    return of_node(emit(d, MC_IF_F, condition, then, otherwise));
}

static slope rule(deriving *d, const mc_node *x, uint32_t i, const slope *of) {
    static const double ln2 = 0x1.62e42fefa39efp-1;
    slope a = x->a != MC_NONE ? of[x->a] : none, b = x->b != MC_NONE ? of[x->b] : none;
    uint32_t square;
    switch ((mc_op)x->op) {
    case MC_ADD_F: return sum(d, a, b);
    case MC_SUB_F: return sum(d, a, negated(b));
    case MC_NEG_F: return negated(a);
    case MC_MUL_F:
        b = times(d, b, x->a);
        return sum(d, times(d, a, x->b), b);
    case MC_DIV_F: /* (x / y)' = (x' - (x / y) y') / y */
        return divided(d, sum(d, a, negated(times(d, b, i))), x->b);
    case MC_ABS_F: return a.zero ? a : chosen(d, emit(d, MC_LT_F, x->a, constant(d, 0), MC_NONE), negated(a), a);
    case MC_MIN_F: return chosen(d, emit(d, MC_LT_F, x->b, x->a, MC_NONE), b, a);
    case MC_MAX_F: return chosen(d, emit(d, MC_LT_F, x->a, x->b, MC_NONE), b, a);
    case MC_SQRT_F: return divided(d, divided(d, a, constant(d, 2)), i);
    case MC_EXP_F: return times(d, a, i);
    case MC_EXP2_F: return times(d, times(d, a, constant(d, ln2)), i);
    case MC_LOG_F: return divided(d, a, x->a);
    case MC_LOG2_F: return divided(d, divided(d, a, constant(d, ln2)), x->a);
    case MC_TANH_F:
    case MC_TANH_APPROX_F:
        if (a.zero) return a;
        square = emit(d, MC_MUL_F, i, i, MC_NONE);
        return times(d, a, emit(d, MC_SUB_F, constant(d, 1), square, MC_NONE));
    case MC_IF_F: return chosen(d, x->a, b, of[x->c]);
    default: return none; /* s, constants, elements, whole numbers; floor */
    }
}

bool mc_derive(mc_builder *b, uint32_t root, uint32_t by, bool flat, uint32_t *out_slope, uint32_t *out_bad) {
    deriving d = {.b = b};
    slope *of = calloc((size_t)root + 1, sizeof *of);
    bool *needed = calloc((size_t)root + 1, sizeof *needed);
    *out_bad = MC_NONE;
    d.failed = !of || !needed;
    if (!d.failed) needed[root] = true;
    for (uint32_t i = root + 1; i-- > 0 && !d.failed;) {
        const mc_node x = node_of(&d, i);
        if (!needed[i]) continue;
        const uint32_t operands[3] = {x.a, x.b, x.c};
        for (int j = 0; j < 3; j++) /* only reals have a slope; conditions do not */
            if (operands[j] != MC_NONE && mc_op_type(node_of(&d, operands[j]).op) == 'f') needed[operands[j]] = true;
    }
    bool good = !d.failed;
    for (uint32_t i = 0; i <= root && good && !d.failed; i++) {
        const mc_node x = node_of(&d, i); /* a copy, because the array moves when it grows */
        of[i] = i == by ? of_node(MC_NONE) : none;
        if (i == by || !needed[i] || mc_op_type(x.op) != 'f') continue;
        if (x.op == MC_FLOOR_F && !flat && !of[x.a].zero) {
            *out_bad = i;
            good = false;
        } else of[i] = rule(&d, &x, i, of);
    }
    if (good && !d.failed) *out_slope = emit_slope(&d, &of[root]);
    free(of);
    free(needed);
    return good && !d.failed;
}

mc_derived mc_slope(mc_code score, bool flat, mc_node **out_nodes, uint32_t *out_count, uint32_t *out_bad) {
    mc_builder *b = mc_builder_new();
    const uint32_t root = b ? mc_emit_renamed(b, score, MC_Q, MC_K) : MC_NONE;
    const uint32_t s = root == MC_NONE ? MC_NONE : mc_emit(b, MC_S, MC_NONE, MC_NONE, MC_NONE, 0, MC_NONE, 0);
    uint32_t derivative, *places;
    mc_derived what = MC_NO_MEMORY;
    *out_bad = MC_NONE;
    if (s != MC_NONE && mc_derive(b, root, s, flat, &derivative, out_bad)) {
        if (mc_extract(b, derivative, out_nodes, &places, out_count)) {
            free(places);
            what = MC_DERIVED;
        }
    } else if (*out_bad != MC_NONE) what = MC_NO_DERIVATIVE;
    else if (b && mc_builder_full(b)) what = MC_TOO_LONG;
    mc_builder_free(b);
    return what;
}
