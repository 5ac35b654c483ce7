/* build.c: builds mask code. It folds constants, simplifies, shares equal nodes, and extracts what an answer needs.
 *
 * Requires: operands and guards come from the same builder and have the types that MC_OPS says. Positions keep to the
 *      limits of the language: k and n in [0, 2^40], q in [-2^40, 2^40], h in [0, 2^32].
 * Gives: fewer nodes with the same two meanings (code.h) as the expression that was emitted.
 * Guards: the guard of a node is the condition under which the source reaches it. The builder knows the range of every
 * integer, and drops a guard if the ranges show that the node cannot fault. For example, `q < 8 and q / 64 == 2 or q >
 * 90 and q / 64 == 3` reaches q / 64 under two conditions, but dividing by 64 never faults. Without guards the two
 * nodes are equal, so there is only one. A node that may fault is never simplified away while its guard may be true,
 * because its fault would be lost.
 * Reals: constants are folded in double, but only where every machine agrees: + - * / sqrt floor and comparisons, which
 * IEEE 754 fixes to the bit, and the few exact values of other functions, such as exp 0, log2 of a power of two and
 * floor(log2(12)). Results that are not finite are not folded. Simplifications hold for every x, NaN and -0.0
 * included. That is why x + 0.0 stays (for x = -0.0 it is +0.0), and so do x * 0.0, x - x and x == x.
 * Cost: expected O(1) for a node (hashing); extraction O(nodes).
 */
#include <math.h>
#include <stdlib.h>

#include "codegen/mask/mask_parts.h"

/* What is known about a node. The ends of a bool's range are 0 or 1. */
typedef struct fact {
    int64_t lo, hi;  /* the value, if nothing faults */
    uint32_t place;
    bool loose;      /* it, or something it needs, may fault */
    bool is_bool;
    bool real;       /* it is a real, or a real decides it */
} fact;

struct mc_builder {
    mc_node *nodes;
    fact *facts;
    uint32_t count, room;
    uint32_t *table; /* node + 1, or 0; open addressing */
    uint32_t table_size;
    bool failed;
};

typedef __int128 wide;
enum { FIRST_ROOM = 64, FIRST_TABLE = 256 };
#define POSITION_MAX ((int64_t)1 << 40)
#define HEAD_MAX ((int64_t)1 << 32)
#define WHOLE_MAX                                                                                                      \
    ((double)(1 << 20)) /* below a power of two up to here, a whole number has a smaller log2 in float, too */

mc_builder *mc_builder_new(void) {
    mc_builder *b = calloc(1, sizeof *b);
    if (!b) return NULL;
    b->nodes = malloc(FIRST_ROOM * sizeof *b->nodes);
    b->facts = malloc(FIRST_ROOM * sizeof *b->facts);
    b->table = calloc(FIRST_TABLE, sizeof *b->table);
    if (!b->nodes || !b->facts || !b->table) {
        mc_builder_free(b);
        return NULL;
    }
    b->room = FIRST_ROOM;
    b->table_size = FIRST_TABLE;
    return b;
}

void mc_builder_free(mc_builder *b) {
    if (!b) return;
    free(b->nodes);
    free(b->facts);
    free(b->table);
    free(b);
}

bool mc_builder_failed(const mc_builder *b) { return b->failed; }
bool mc_builder_full(const mc_builder *b) { return b->failed && b->count >= MC_MAX_NODES - 1; }

const mc_node *mc_builder_nodes(const mc_builder *b, uint32_t *count) {
    *count = b->count;
    return b->nodes;
}

uint32_t mc_builder_place(const mc_builder *b, uint32_t node) { return b->facts[node].place; }
bool mc_builder_loose(const mc_builder *b, uint32_t node) { return b->facts[node].loose; }
bool mc_builder_real(const mc_builder *b, uint32_t node) { return b->facts[node].real; }

/* --- sharing ---------------------------------------------------------------------------------------------------- */

static uint64_t node_hash(const mc_node *x) {
    const uint64_t words[4] = {(uint64_t)x->op << 32 | x->a, (uint64_t)x->b << 32 | x->c, x->guard, (uint64_t)x->imm};
    uint64_t h = 0x9e3779b97f4a7c15u;
    for (unsigned i = 0; i < 4; i++) {
        h = (h ^ words[i]) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    return h;
}

static bool node_equal(const mc_node *x, const mc_node *y) {
    return x->op == y->op && x->a == y->a && x->b == y->b && x->c == y->c && x->guard == y->guard && x->imm == y->imm;
}

static bool grow_builder(mc_builder *b) {
    uint32_t room = b->room * 2;
    mc_node *nodes = realloc(b->nodes, room * sizeof *nodes);
    if (nodes) b->nodes = nodes;
    fact *facts = realloc(b->facts, room * sizeof *facts);
    if (facts) b->facts = facts;
    if (!nodes || !facts) return false;
    b->room = room;
    uint32_t size = room * 4;
    uint32_t *table = calloc(size, sizeof *table);
    if (!table) return false;
    for (uint32_t i = 0; i < b->count; i++) {
        uint32_t at = (uint32_t)node_hash(&b->nodes[i]) & (size - 1);
        while (table[at]) at = (at + 1) & (size - 1);
        table[at] = i + 1;
    }
    free(b->table);
    b->table = table;
    b->table_size = size;
    return true;
}

static uint32_t intern_node(mc_builder *b, const mc_node *x, const fact *f) {
    uint32_t at = (uint32_t)node_hash(x) & (b->table_size - 1);
    for (; b->table[at]; at = (at + 1) & (b->table_size - 1))
        if (node_equal(&b->nodes[b->table[at] - 1], x)) return b->table[at] - 1;
    if (b->count >= MC_MAX_NODES) {
        b->failed = true;
        return MC_NONE;
    }
    if (b->count == b->room) {
        if (!grow_builder(b)) {
            b->failed = true;
            return MC_NONE;
        }
        at = (uint32_t)node_hash(x) & (b->table_size - 1);
        while (b->table[at]) at = (at + 1) & (b->table_size - 1);
    }
    b->nodes[b->count] = *x;
    b->facts[b->count] = *f;
    b->table[at] = b->count + 1;
    return b->count++;
}

static uint32_t emit_constant(mc_builder *b, bool is_bool, int64_t value, uint32_t place) {
    mc_node x = {.op = is_bool ? MC_CONST_B : MC_CONST_I, .a = MC_NONE, .b = MC_NONE, .c = MC_NONE, .guard = MC_NONE,
                 .imm = value};
    fact f = {.lo = value, .hi = value, .place = place, .is_bool = is_bool};
    return intern_node(b, &x, &f);
}

static double real_of(const mc_builder *b, uint32_t i) { return mc_real(b->nodes[i].imm); }

static uint32_t real_constant(mc_builder *b, double value, uint32_t place) {
    mc_node x = {.op = MC_CONST_F, .a = MC_NONE, .b = MC_NONE, .c = MC_NONE, .guard = MC_NONE,
                 .imm = mc_real_bits(value)};
    fact f = {.lo = INT64_MIN, .hi = INT64_MAX, .place = place, .real = true};
    return intern_node(b, &x, &f);
}

/* --- facts ------------------------------------------------------------------------------------------------------ */

static wide wide_max(wide a, wide b) { return a > b ? a : b; }

/* Computes the range of an operation that can fault, from the ranges of its operands. True: it may fault for some
 * operands in these ranges; then the range is all of int64. */
static bool range_of(mc_op op, const fact *x, const fact *y, int64_t *out_lo, int64_t *out_hi) {
    wide lo = 0, hi = 0;
    bool risky = false;
    switch (op) {
    case MC_ADD: lo = (wide)x->lo + y->lo, hi = (wide)x->hi + y->hi; break;
    case MC_SUB: lo = (wide)x->lo - y->hi, hi = (wide)x->hi - y->lo; break;
    case MC_MUL: {
        const wide v[4] = {(wide)x->lo * y->lo, (wide)x->lo * y->hi, (wide)x->hi * y->lo, (wide)x->hi * y->hi};
        mc_hull4(v, &lo, &hi);
        break;
    }
    case MC_NEG: lo = -(wide)x->hi, hi = -(wide)x->lo; break;
    case MC_ABS:
        lo = x->lo > 0 ? x->lo : x->hi < 0 ? -(wide)x->hi : 0;
        hi = wide_max(x->hi, -(wide)x->lo);
        break;
    case MC_DIV:
        if (y->lo <= 0 && y->hi >= 0) {
            risky = true;
        } else if (x->lo == INT64_MIN && y->lo <= -1 && y->hi >= -1) {
            risky = true;
        } else {
            const wide v[4] = {mc_div(x->lo, y->lo), mc_div(x->lo, y->hi), mc_div(x->hi, y->lo), mc_div(x->hi, y->hi)};
            mc_hull4(v, &lo, &hi);
        }
        break;
    case MC_MOD:
        risky = y->lo <= 0 && y->hi >= 0;
        if (y->lo > 0) lo = 0, hi = y->hi - 1;
        else lo = (wide)y->lo + 1, hi = 0;
        break;
    case MC_LOAD:
    case MC_LOAD2:
    case MC_LOAD3:
    case MC_LOAD_F:
    case MC_LOAD2_F:
    case MC_LOAD3_F: risky = true; break;
    default: return false;
    }
    if (lo < INT64_MIN || hi > INT64_MAX) risky = true;
    *out_lo = risky ? INT64_MIN : (int64_t)lo;
    *out_hi = risky ? INT64_MAX : (int64_t)hi;
    return risky;
}

static bool is_bool_op(mc_op op) { return mc_op_type(op) == 'b'; }

bool mc_commutes(mc_op op) {
    switch (op) {
    case MC_ADD: case MC_MUL: case MC_MIN: case MC_MAX: case MC_EQ: case MC_NE: case MC_AND: case MC_OR: case MC_IFF:
    case MC_ADD_F: case MC_MUL_F: case MC_EQ_F: case MC_NE_F:
        return true;
    default: return false;
    }
}

/* --- simplification --------------------------------------------------------------------------------------------- */

static bool is_const(const mc_builder *b, uint32_t i) {
    return b->nodes[i].op == MC_CONST_I || b->nodes[i].op == MC_CONST_B;
}
static bool is_value(const mc_builder *b, uint32_t i, int64_t value) {
    return is_const(b, i) && b->nodes[i].imm == value;
}

/* A node that always equals x op y; MC_NONE if no identity applies. An operand that may fault never disappears. */
static uint32_t simplify_int(mc_builder *b, mc_op op, uint32_t x, uint32_t y, uint32_t place) {
    bool same = x == y, drop = !b->facts[x].loose;
    switch (op) {
    case MC_ADD:
        if (is_value(b, x, 0)) return y;
        if (is_value(b, y, 0)) return x;
        break;
    case MC_SUB:
        if (is_value(b, y, 0)) return x;
        if (same && drop) return emit_constant(b, false, 0, place);
        break;
    case MC_MUL:
        if (is_value(b, x, 1)) return y;
        if (is_value(b, y, 1)) return x;
        if (is_value(b, x, 0) && !b->facts[y].loose) return x;
        if (is_value(b, y, 0) && drop) return y;
        break;
    case MC_DIV:
        if (is_value(b, y, 1)) return x;
        break;
    case MC_MOD:
        if ((is_value(b, y, 1) || is_value(b, y, -1)) && drop) return emit_constant(b, false, 0, place);
        break;
    case MC_NEG:
        if (b->nodes[x].op == MC_NEG && drop) return b->nodes[x].a;
        break;
    case MC_MIN:
    case MC_MAX:
        if (same) return x;
        break;
    default: break;
    }
    return MC_NONE;
}

static uint32_t simplify_bool(mc_builder *b, mc_op op, uint32_t x, uint32_t y, uint32_t place) {
    bool same = x == y, drop_x = !b->facts[x].loose, drop_y = y == MC_NONE || !b->facts[y].loose;
    switch (op) {
    case MC_EQ:
    case MC_LE:
        if (same && drop_x) return emit_constant(b, true, 1, place);
        break;
    case MC_NE:
    case MC_LT:
        if (same && drop_x) return emit_constant(b, true, 0, place);
        break;
    case MC_NOT: {
        const mc_node n = b->nodes[x];
        if (n.op == MC_NOT) return n.a;
        if (n.op == MC_EQ) return mc_emit(b, MC_NE, n.a, n.b, MC_NONE, 0, MC_NONE, place);
        if (n.op == MC_NE) return mc_emit(b, MC_EQ, n.a, n.b, MC_NONE, 0, MC_NONE, place);
        if (n.op == MC_LT) return mc_emit(b, MC_LE, n.b, n.a, MC_NONE, 0, MC_NONE, place);
        if (n.op == MC_LE) return mc_emit(b, MC_LT, n.b, n.a, MC_NONE, 0, MC_NONE, place);
        break;
    }
    case MC_AND:
        if (same || is_value(b, y, 1)) return x;
        if (is_value(b, x, 1)) return y;
        if (is_value(b, x, 0) && drop_y) return x;
        if (is_value(b, y, 0) && drop_x) return y;
        break;
    case MC_OR:
        if (same || is_value(b, y, 0)) return x;
        if (is_value(b, x, 0)) return y;
        if (is_value(b, x, 1) && drop_y) return x;
        if (is_value(b, y, 1) && drop_x) return y;
        break;
    case MC_IFF:
        if (same && drop_x) return emit_constant(b, true, 1, place);
        if (is_value(b, x, 1)) return y;
        if (is_value(b, y, 1)) return x;
        if (is_value(b, x, 0)) return mc_emit(b, MC_NOT, y, MC_NONE, MC_NONE, 0, MC_NONE, place);
        if (is_value(b, y, 0)) return mc_emit(b, MC_NOT, x, MC_NONE, MC_NONE, 0, MC_NONE, place);
        break;
    default: break;
    }
    return MC_NONE;
}

static uint32_t simplify_if(mc_builder *b, mc_op op, uint32_t p, uint32_t x, uint32_t y, uint32_t place) {
    bool drop_p = !b->facts[p].loose, drop_x = !b->facts[x].loose, drop_y = !b->facts[y].loose;
    if (is_value(b, p, 1) && drop_y) return x;
    if (is_value(b, p, 0) && drop_x) return y;
    if (x == y && drop_p) return x;
    if (op != MC_IF_B) return MC_NONE;
    if (is_value(b, x, 1) && is_value(b, y, 0)) return p;
    if (is_value(b, x, 0) && is_value(b, y, 1)) return mc_emit(b, MC_NOT, p, MC_NONE, MC_NONE, 0, MC_NONE, place);
    if (is_value(b, y, 0)) return mc_emit(b, MC_AND, p, x, MC_NONE, 0, MC_NONE, place);
    if (is_value(b, x, 1)) return mc_emit(b, MC_OR, p, y, MC_NONE, 0, MC_NONE, place);
    return MC_NONE;
}

/* Computes the value of a node, if its operands are constants and nothing faults. False: it is not known. */
static bool fold_ints(const mc_node *x, const mc_builder *b, int64_t *out) {
    if (x->a == MC_NONE || !is_const(b, x->a)) return false;
    if (x->b != MC_NONE && !is_const(b, x->b)) return false;
    const int64_t u = b->nodes[x->a].imm, w = x->b != MC_NONE ? b->nodes[x->b].imm : 0;
    return mc_value_fault(x->op, u, w) == MC_OK && mc_value(x->op, u, w, out);
}

/* --- reals -------------------------------------------------------------------------------------------------------- */

static bool is_real_const(const mc_builder *b, uint32_t i) { return b->nodes[i].op == MC_CONST_F; }
static bool is_real_value(const mc_builder *b, uint32_t i, double value) { /* -0.0 is not 0.0 */
    return is_real_const(b, i) && b->nodes[i].imm == mc_real_bits(value);
}

/* The value of a function at x where it is exact; false elsewhere. */
static bool exact_value(mc_op op, double x, double *out) {
    int power;
    switch (op) {
    case MC_FLOOR_F: *out = floor(x); return true;
    case MC_SQRT_F: *out = sqrt(x); return true;
    case MC_EXP_F: *out = 1; return x == 0;
    case MC_EXP2_F:
        if (!(x >= -1022 && x <= 1023) || x != floor(x)) return false;
        *out = ldexp(1, (int)x);
        return true;
    case MC_LOG_F: *out = 0; return x == 1;
    case MC_LOG2_F:
        if (!(x > 0) || frexp(x, &power) != 0.5) return false;
        *out = power - 1;
        return true;
    case MC_TANH_F:
    case MC_TANH_APPROX_F: *out = x; return x == 0;
    default: return false;
    }
}

/* Folds an operation on real constants to a constant. MC_NONE: it cannot be folded. */
static uint32_t fold_real(mc_builder *b, const mc_node *n, uint32_t place) {
    if (n->op == MC_TO_F) return is_const(b, n->a) ? real_constant(b, (double)b->nodes[n->a].imm, place) : MC_NONE;
    if (n->op == MC_FLOOR_F && b->nodes[n->a].op == MC_LOG2_F && is_real_const(b, b->nodes[n->a].a)) {
        int power; /* floor(log2(12)) is 3, though log2(12) depends on the machine */
        double x = real_of(b, b->nodes[n->a].a);
        if (x >= 1 && x <= WHOLE_MAX && x == floor(x)) return frexp(x, &power), real_constant(b, power - 1, place);
    }
    if (n->op == MC_IF_F || n->a == MC_NONE || !is_real_const(b, n->a)) return MC_NONE;
    if (n->b != MC_NONE && !is_real_const(b, n->b)) return MC_NONE;
    double x = real_of(b, n->a), y = n->b != MC_NONE ? real_of(b, n->b) : 0, out = 0;
    switch ((mc_op)n->op) {
    case MC_LT_F: return emit_constant(b, true, x < y, place);
    case MC_LE_F: return emit_constant(b, true, x <= y, place);
    case MC_EQ_F: return emit_constant(b, true, x == y, place);
    case MC_NE_F: return emit_constant(b, true, x != y, place);
    case MC_ADD_F: out = x + y; break;
    case MC_SUB_F: out = x - y; break;
    case MC_MUL_F: out = x * y; break;
    case MC_DIV_F: out = x / y; break;
    case MC_NEG_F: out = -x; break;
    case MC_ABS_F: out = fabs(x); break;
    case MC_MIN_F: out = y < x ? y : x; break;
    case MC_MAX_F: out = y > x ? y : x; break;
    default:
        if (!exact_value((mc_op)n->op, x, &out)) return MC_NONE;
    }
    return isfinite(out) ? real_constant(b, out, place) : MC_NONE;
}

/* Applies identities that hold for every x, NaN, infinities and -0.0 included. Returns a node that equals x op y;
 * MC_NONE: none applies. */
static uint32_t simplify_real(mc_builder *b, mc_op op, uint32_t x, uint32_t y, uint32_t place) {
    switch (op) {
    case MC_ADD_F:
        if (is_real_value(b, x, -0.0)) return y;
        if (is_real_value(b, y, -0.0)) return x;
        /* a whole number is never -0.0 */
        if (is_real_value(b, x, 0.0) && b->nodes[y].op == MC_TO_F) return y;
        if (is_real_value(b, y, 0.0) && b->nodes[x].op == MC_TO_F) return x;
        break;
    case MC_SUB_F:
        if (is_real_value(b, y, 0.0)) return x;
        break;
    case MC_MUL_F:
        if (is_real_value(b, x, 1)) return y;
        if (is_real_value(b, y, 1)) return x;
        if (is_real_value(b, x, -1)) return mc_emit(b, MC_NEG_F, y, MC_NONE, MC_NONE, 0, MC_NONE, place);
        if (is_real_value(b, y, -1)) return mc_emit(b, MC_NEG_F, x, MC_NONE, MC_NONE, 0, MC_NONE, place);
        break;
    case MC_DIV_F: {
        if (is_real_value(b, y, 1)) return x;
        int power;
        if (!is_real_const(b, y) || fabs(frexp(real_of(b, y), &power)) != 0.5 || power < -60 || power > 60) break;
        uint32_t inverse = real_constant(b, 1 / real_of(b, y), place); /* of a power of two: exact */
        return b->failed ? MC_NONE : mc_emit(b, MC_MUL_F, x, inverse, MC_NONE, 0, MC_NONE, place);
    }
    case MC_NEG_F:
        if (b->nodes[x].op == MC_NEG_F) return b->nodes[x].a;
        break;
    case MC_ABS_F:
        if (b->nodes[x].op == MC_ABS_F) return x;
        if (b->nodes[x].op == MC_NEG_F) return mc_emit(b, MC_ABS_F, b->nodes[x].a, MC_NONE, MC_NONE, 0, MC_NONE, place);
        break;
    case MC_MIN_F:
    case MC_MAX_F:
        if (x == y) return x;
        break;
    default: break;
    }
    return MC_NONE;
}

/* --- the interface ---------------------------------------------------------------------------------------------- */

/* The facts about a node that is about to be made. Drops its guard where that can never matter. */
static fact facts_of(const mc_builder *b, mc_node *x, uint32_t place) {
    fact f = {.lo = INT64_MIN, .hi = INT64_MAX, .place = place, .is_bool = is_bool_op((mc_op)x->op)};
    const fact *u = x->a != MC_NONE ? &b->facts[x->a] : NULL, *w = x->b != MC_NONE ? &b->facts[x->b] : NULL;
    const fact *z = x->c != MC_NONE ? &b->facts[x->c] : NULL;
    if (f.is_bool) f.lo = 0, f.hi = 1;
    f.loose = (u && u->loose) || (w && w->loose) || (z && z->loose);
    f.real = mc_op_type(x->op) == 'f' || (u && u->real) || (w && w->real) || (z && z->real);
    switch ((mc_op)x->op) {
    case MC_CONST_I:
    case MC_CONST_B: f.lo = f.hi = x->imm; break;
    case MC_Q: f.lo = -POSITION_MAX, f.hi = POSITION_MAX; break;
    case MC_K:
    case MC_N: f.lo = 0, f.hi = POSITION_MAX; break;
    case MC_H: f.lo = 0, f.hi = HEAD_MAX; break;
    case MC_MIN: f.lo = u->lo < w->lo ? u->lo : w->lo, f.hi = u->hi < w->hi ? u->hi : w->hi; break;
    case MC_MAX: f.lo = u->lo > w->lo ? u->lo : w->lo, f.hi = u->hi > w->hi ? u->hi : w->hi; break;
    case MC_IF_I: f.lo = w->lo < z->lo ? w->lo : z->lo, f.hi = w->hi > z->hi ? w->hi : z->hi; break;
    default: break;
    }
    if (!mc_op_faults(x->op)) {
        x->guard = MC_NONE;
        return f;
    }
    bool risky = range_of((mc_op)x->op, u, w, &f.lo, &f.hi);
    bool never = x->guard != MC_NONE && is_value(b, x->guard, 0);
    if (risky && !never) f.loose = true;
    if (!risky || (x->guard != MC_NONE && is_value(b, x->guard, 1))) x->guard = MC_NONE;
    if (x->guard != MC_NONE && b->facts[x->guard].loose) f.loose = true;
    return f;
}

uint32_t mc_emit(mc_builder *b, mc_op op, uint32_t a, uint32_t b_, uint32_t c, int64_t imm, uint32_t guard,
                 uint32_t place) {
    if (b->failed) return MC_NONE;
    if (mc_commutes(op) && a > b_) {
        uint32_t t = a;
        a = b_;
        b_ = t;
    }
    mc_node x = {.op = op, .a = a, .b = b_, .c = c, .guard = guard, .imm = imm};
    int64_t value;
    if (fold_ints(&x, b, &value)) return emit_constant(b, is_bool_op(op), value, place);
    uint32_t simpler = op >= MC_LT_F ? fold_real(b, &x, place) : MC_NONE;
    if (simpler != MC_NONE || b->failed) return simpler;
    if (op == MC_IF_I || op == MC_IF_B || op == MC_IF_F) simpler = simplify_if(b, op, a, b_, c, place);
    else if (op >= MC_ADD && op <= MC_MAX) simpler = simplify_int(b, op, a, b_, place);
    else if (op >= MC_EQ && op <= MC_IFF) simpler = simplify_bool(b, op, a, b_, place);
    else if (op >= MC_LT_F) simpler = simplify_real(b, op, a, b_, place);
    if (simpler != MC_NONE || b->failed) return simpler;
    fact f = facts_of(b, &x, place);
    return intern_node(b, &x, &f);
}

uint32_t mc_emit_renamed(mc_builder *b, mc_code code, mc_op q_op, mc_op k_op) {
    uint32_t *at = malloc(code.count * sizeof *at), root = MC_NONE;
    if (!at) {
        b->failed = true;
        return MC_NONE;
    }
    for (uint32_t i = 0; i < code.count; i++) {
        const mc_node x = mc_renumbered(code.nodes[i], at);
        const mc_op op = x.op == MC_Q ? q_op : x.op == MC_K ? k_op : (mc_op)x.op;
        root = at[i] = mc_emit(b, op, x.a, x.b, x.c, x.imm, x.guard, 0);
        if (root == MC_NONE) break;
    }
    free(at);
    return root;
}

bool mc_extract(const mc_builder *b, uint32_t root, mc_node **nodes, uint32_t **places, uint32_t *count) {
    uint32_t *number = calloc((size_t)root + 1, sizeof *number);
    if (!number) return false;
    number[root] = 1;
    uint32_t kept = 0;
    for (uint32_t i = root + 1; i-- > 0;) {
        if (!number[i]) continue;
        const mc_node *x = &b->nodes[i];
        const uint32_t needs[4] = {x->a, x->b, x->c, x->guard};
        for (unsigned j = 0; j < 4; j++)
            if (needs[j] != MC_NONE) number[needs[j]] = 1;
        kept++;
    }
    mc_node *out = malloc(kept * sizeof *out);
    uint32_t *out_places = malloc(kept * sizeof *out_places);
    if (!out || !out_places) {
        free(number);
        free(out);
        free(out_places);
        return false;
    }
    uint32_t next = 0;
    for (uint32_t i = 0; i <= root; i++) {
        if (!number[i]) continue;
        out[next] = mc_renumbered(b->nodes[i], number);
        out_places[next] = b->facts[i].place;
        number[i] = next++;
    }
    free(number);
    *nodes = out;
    *places = out_places;
    *count = kept;
    return true;
}
