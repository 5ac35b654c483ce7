/* emit.c: prints mask code as CUDA text without branches, one variable for each node. README.md shows an example.
 *
 * Requires: nothing. Code is checked here.
 * Method:   interval analysis in 128 bits finds the range of each node, from the first to the last. A node is a 32-bit
 *           variable if its range fits, else a 64-bit one. Where 64 bits may overflow, unsigned arithmetic is printed,
 *           which wraps. A division is printed as a shift for powers of two, as plain C where the signs allow it, else
 *           as a call of a helper. Nodes that the result does not need are left out.
 * Cost:     O(nodes).
 */
#include "codegen/emit.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/mask/mask_parts.h"
#include "codegen/spans.h"

typedef __int128 wide;

typedef struct range {
    int64_t lo, hi;
    bool exact; /* the operation cannot overflow 64 bits */
} range;

typedef struct printer {
    emit_text *out;
    void *context;
    const emit_program *program;
    mc_code code;
    range *ranges;
    bool *needed;
    bool of_score;       /* the code is that of a score, or of a derivative of it */
    /* Real operations are printed with their rounding, so that every kernel gets the same logits. The slope is printed
     * so, too: it shares terms with the score, which the compiler can only merge if they are alike. */
    bool exact;
    char operand[3][32]; /* of the node under way: a variable, or a constant as it is */
} printer;

static void say(printer *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(printer *p, const char *format, ...) {
    char line[512];
    va_list args;
    va_start(args, format);
    int size = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (size > 0) p->out(p->context, line, (size_t)size < sizeof line ? (size_t)size : sizeof line - 1);
}

/* --- ranges ------------------------------------------------------------------------------------------------------- */

static const range everything = {INT64_MIN, INT64_MAX, false};

static range hull(wide lo, wide hi) {
    if (lo < INT64_MIN || hi > INT64_MAX) return everything;
    return (range){(int64_t)lo, (int64_t)hi, true};
}

/* The range that holds four numbers. */
static range range_of_four(wide a, wide b, wide c, wide d) {
    const wide v[4] = {a, b, c, d};
    wide lo, hi;
    mc_hull4(v, &lo, &hi);
    return hull(lo, hi);
}

static range quotient(range x, range y) {
    if (y.lo <= 0 && y.hi >= 0) { /* x / 0 is 0 */
        if (x.lo == INT64_MIN) return everything;
        int64_t most = x.hi > -x.lo ? x.hi : -x.lo;
        return (range){-most - 1 < -INT64_MAX ? -INT64_MAX : -most - 1, most, true};
    }
    if (x.lo == INT64_MIN && y.lo <= -1 && y.hi >= -1) return everything;
    return range_of_four(mc_div(x.lo, y.lo), mc_div(x.lo, y.hi), mc_div(x.hi, y.lo), mc_div(x.hi, y.hi));
}

static range remainder_of(range x, range y) {
    int64_t lo = 0, hi = 0;
    if (y.hi > 1) hi = y.hi - 1;
    if (y.lo < -1) lo = y.lo + 1;
    if (y.lo > 0 && x.lo >= 0 && x.hi < hi) hi = x.hi;
    return (range){lo, hi, true};
}

static range values_of(const emit_array *a) {
    switch (a->width) {
    case MC_I8: return (range){INT8_MIN, INT8_MAX, true};
    case MC_I16: return (range){INT16_MIN, INT16_MAX, true};
    case MC_I32: return (range){INT32_MIN, INT32_MAX, true};
    default: return (range){INT64_MIN, INT64_MAX, true};
    }
}

static range range_of(const printer *p, const mc_node *x) {
    const range *r = p->ranges, none = {0, 0, true};
    range a = x->a != MC_NONE ? r[x->a] : none, b = x->b != MC_NONE ? r[x->b] : none,
          c = x->c != MC_NONE ? r[x->c] : none;
    int64_t n = p->program->positions;
    switch ((mc_op)x->op) {
    case MC_CONST_I: return (range){x->imm, x->imm, true};
    case MC_Q: return (range){p->program->negative ? -n : 0, n, true};
    case MC_K:
    case MC_N: return (range){0, n, true};
    case MC_H: return (range){0, p->program->heads ? p->program->heads - 1 : 0, true};
    case MC_ADD: return hull((wide)a.lo + b.lo, (wide)a.hi + b.hi);
    case MC_SUB: return hull((wide)a.lo - b.hi, (wide)a.hi - b.lo);
    case MC_MUL: return range_of_four((wide)a.lo * b.lo, (wide)a.lo * b.hi, (wide)a.hi * b.lo, (wide)a.hi * b.hi);
    case MC_DIV: return quotient(a, b);
    case MC_MOD: return remainder_of(a, b);
    case MC_NEG: return hull(-(wide)a.hi, -(wide)a.lo);
    case MC_ABS: return hull(a.lo > 0 ? a.lo : a.hi < 0 ? -(wide)a.hi : 0, -(wide)a.lo > a.hi ? -(wide)a.lo : a.hi);
    case MC_MIN: return (range){a.lo < b.lo ? a.lo : b.lo, a.hi < b.hi ? a.hi : b.hi, true};
    case MC_MAX: return (range){a.lo > b.lo ? a.lo : b.lo, a.hi > b.hi ? a.hi : b.hi, true};
    case MC_IF_I: return (range){b.lo < c.lo ? b.lo : c.lo, b.hi > c.hi ? b.hi : c.hi, true};
    case MC_LOAD:
    case MC_LOAD2:
    case MC_LOAD3: return values_of(&p->program->arrays[x->imm]);
    default: return mc_op_type(x->op) == 'i' ? everything : none;
    }
}

static bool narrow(range r) { return r.lo >= INT32_MIN && r.hi <= INT32_MAX; }

static void write_constant(char out[32], int64_t value) {
    if (value == INT64_MIN) snprintf(out, 32, "(-9223372036854775807ll - 1)");
    else if (value < INT32_MIN || value > INT32_MAX) snprintf(out, 32, "(%" PRId64 "ll)", value);
    else if (value == INT32_MIN) snprintf(out, 32, "(-2147483647 - 1)");
    else snprintf(out, 32, value < 0 ? "(%" PRId64 ")" : "%" PRId64, value);
}

static bool is_constant(const mc_node *x) { return x->op == MC_CONST_I || x->op == MC_CONST_B; }

static void name_operands(printer *p, const mc_node *x) {
    const uint32_t from[3] = {x->a, x->b, x->c};
    for (int i = 0; i < 3; i++) {
        if (from[i] == MC_NONE) continue;
        const mc_node *y = &p->code.nodes[from[i]];
        if (is_constant(y)) write_constant(p->operand[i], y->imm);
        else snprintf(p->operand[i], sizeof p->operand[i], "v%u", from[i]);
    }
}

/* --- nodes -------------------------------------------------------------------------------------------------------- */

/* The type a node's variable has. */
static const char *type_of(const printer *p, uint32_t i) {
    switch (mc_op_type(p->code.nodes[i].op)) {
    case 'b': return "int";
    case 'f': return "float";
    default: return narrow(p->ranges[i]) ? "fk_i32" : "fk_i64";
    }
}

/* Can the operation be done in 32 bits: operands and result fit them? */
static bool all_narrow(const printer *p, const mc_node *x, uint32_t i) {
    return narrow(p->ranges[i]) && narrow(p->ranges[x->a]) && (x->b == MC_NONE || narrow(p->ranges[x->b]));
}

static void say_arithmetic(printer *p, const mc_node *x, uint32_t i) {
    const char *op = x->op == MC_ADD ? "+" : x->op == MC_SUB ? "-" : "*";
    if (all_narrow(p, x, i)) say(p, "%s %s %s", p->operand[0], op, p->operand[1]);
    else if (p->ranges[i].exact)
        say(p, "(%s)((fk_i64)%s %s (fk_i64)%s)", type_of(p, i), p->operand[0], op, p->operand[1]);
    else say(p, "(fk_i64)((fk_u64)(fk_i64)%s %s (fk_u64)(fk_i64)%s)", p->operand[0], op, p->operand[1]);
}

static void say_division(printer *p, const mc_node *x, uint32_t i) {
    range a = p->ranges[x->a], b = p->ranges[x->b];
    bool rest = x->op == MC_MOD, small = narrow(a) && narrow(b) && (narrow(p->ranges[i]) || rest);
    const char *word = small ? "fk_i32" : "fk_i64", *type = type_of(p, i);
    if (b.lo == b.hi && b.lo > 0 && (b.lo & (b.lo - 1)) == 0) { /* >> of a negative number floors in CUDA and in gcc */
        if (rest) say(p, "(%s)((%s)%s & %" PRId64 ")", type, word, p->operand[0], b.lo - 1);
        else say(p, "(%s)((%s)%s >> %d)", type, word, p->operand[0], __builtin_ctzll((uint64_t)b.lo));
    } else if (a.lo >= 0 && b.lo > 0) {
        const char *unsigned_word = small ? "fk_u32" : "fk_u64";
        say(p, "(%s)((%s)%s %s (%s)%s)", type, unsigned_word, p->operand[0], rest ? "%" : "/", unsigned_word,
            p->operand[1]);
    } else {
        const char *by = b.lo > 0 ? "_by" : ""; /* a divisor above 0 */
        say(p, "(%s)fk_%s%s%s(%s, %s)", type, rest ? "mod" : "div", by, small ? "32" : "64", p->operand[0],
            p->operand[1]);
    }
}

/* --- elements of arrays ------------------------------------------------------------------------------------------- */

/* Is every value of a range an index of the dimension, in every sequence? */
static bool within(range r, const emit_dim *d) { return d->over == EMIT_COUNT && r.lo >= 0 && r.hi < d->count; }

/* Are 32 bits enough for every index of the array, and for every place? */
static bool small_array(const printer *p, const emit_array *a) {
    enum { NEAR = 1 << 30 };
    const int64_t positions = p->program->positions;
    uint64_t total = 1;
    for (uint32_t i = 0; i < a->dims; i++) {
        const emit_dim *d = &a->dim[i];
        const int64_t most = d->over == EMIT_COUNT ? d->count : positions / d->cell + 2; /* both ends may cut a cell */
        if ((d->over != EMIT_COUNT && positions > NEAR) || __builtin_mul_overflow(total, (uint64_t)most, &total))
            return false;
    }
    return total <= UINT32_MAX;
}
/* Are 32 bits enough to compare an index of such an array with a count? */
static bool small_index(range r, bool small) {
    enum { NEAR = 1 << 30 }; /* no difference of two such numbers leaves 32 bits */
    return small && r.lo >= -NEAR && r.hi <= NEAR;
}

/* Prints how many indices a dimension has. */
static void say_count(printer *p, const emit_dim *d, const char *word) {
    if (d->over == EMIT_COUNT) say(p, "%" PRId64 "%s", d->count, word[4] == '3' ? "u" : "ull");
    else if (d->cell == 1) say(p, d->over == EMIT_KEYS ? "(%s)e->sequence.n" : "(%s)e->sequence.queries", word);
    else say(p, "(%s)%s%s(e, %u)", word, d->over == EMIT_KEYS ? "fk_key_cells" : "fk_query_cells", word + 4, d->cell);
}

/* Prints the offset of the last index. */
static void say_last(printer *p, const emit_dim *d, const char *word) {
    const emit_dim less = {.over = EMIT_COUNT, .count = d->count - 1};
    say_count(p, d->over == EMIT_COUNT ? &less : d, word);
    if (d->over != EMIT_COUNT) say(p, " - 1");
}

/* Prints an index, less the dimension's first one, as an unsigned number. It is below the count if the index is one of
 * the array's. */
static void say_offset(printer *p, const emit_dim *d, const char *value, range r, const char *word) {
    say(p, narrow(r) && word[4] == '3' ? "(%s)%s" : "(%s)(fk_i64)%s", word, value);
    if (d->over == EMIT_QUERIES && d->cell == 1) say(p, " - (%s)e->sequence.q_first", word);
    else if (d->over == EMIT_QUERIES) say(p, " - (%s)fk_query_cell%s(e, %u)", word, word + 4, d->cell);
}

/* Prints the test whether an array has the element that a node reads, unless ranges prove it. Returns whether it
 * printed one. A score needs no test: it reads another element then (say_index). */
static bool say_array_test(printer *p, const mc_node *x, const emit_array *a) {
    const uint32_t index[3] = {x->a, x->b, x->c};
    const bool small = small_array(p, a);
    bool tested = false;
    for (uint32_t i = 0; i < a->dims; i++) {
        const emit_dim *d = &a->dim[i];
        const range r = p->ranges[index[i]];
        if (within(r, d) || (p->of_score && (d->over != EMIT_COUNT || d->count))) continue;
        const bool counted = d->over == EMIT_COUNT && narrow(r) && d->count <= INT32_MAX;
        const char *word = counted || small_index(r, small) ? "fk_u32" : "fk_u64";
        if (tested) say(p, " && ");
        say_offset(p, d, p->operand[i], r, word);
        say(p, " < ");
        say_count(p, d, word);
        tested = true;
    }
    return tested;
}

/* Prints an offset of a dimension. In a score, an index outside the array is replaced by the last one, so that the load
 * can always be done: that takes fewer registers than a load under a condition. Only pairs that do not count, and
 * branches that are not taken, have such an index; any other would be an error of the plan. */
static void say_index(printer *p, const emit_dim *d, const char *value, range r, const char *type, bool small) {
    const bool counted = d->over == EMIT_COUNT && narrow(r) && d->count <= INT32_MAX;
    const char *word = counted || small_index(r, small) ? "fk_u32" : "fk_u64";
    if (!p->of_score || within(r, d) || (d->over == EMIT_COUNT && !d->count)) {
        if (d->over == EMIT_QUERIES) say(p, "(%s)(", type);
        say_offset(p, d, value, r, type);
        if (d->over == EMIT_QUERIES) say(p, ")");
        return;
    }
    say(p, "(%s)(", type);
    say_offset(p, d, value, r, word);
    say(p, " < ");
    say_last(p, d, word);
    say(p, " ? ");
    say_offset(p, d, value, r, word);
    say(p, " : ");
    say_last(p, d, word);
    say(p, ")");
}

/* Prints the element's place in the array: rows of the last dimension lie one behind the other. */
static void say_array_place(printer *p, const mc_node *x, const emit_array *a) {
    const uint32_t index[3] = {x->a, x->b, x->c};
    const bool small = small_array(p, a);
    const char *type = small ? "fk_u32" : "fk_u64";
    if (a->dims == 3) say(p, "(");
    for (uint32_t i = 0; i < a->dims; i++) {
        if (i) {
            say(p, i == 2 ? ") * " : " * ");
            say_count(p, &a->dim[i], type);
            say(p, " + ");
        }
        say_index(p, &a->dim[i], p->operand[i], p->ranges[index[i]], type, small);
    }
}

/* Prints the element of an array; outside it 0, or in a score another one. */
static void say_load(printer *p, const mc_node *x) {
    const emit_array *a = &p->program->arrays[x->imm];
    static const char *const types[] = {[MC_I8] = "fk_i8",
                                        [MC_I16] = "fk_i16",
                                        [MC_I32] = "fk_i32",
                                        [MC_I64] = "fk_i64",
                                        [MC_F64] = "float"}; /* rounded when loaded */
    const bool tested = say_array_test(p, x, a);
    say(p, "%s((const %s *)e->arrays[%" PRId64 "])[", tested ? " ? " : "", types[a->width], x->imm);
    say_array_place(p, x, a);
    say(p, tested ? "] : 0" : "]");
}

/* Prints a double as the float that it rounds to, with hexadecimal digits, which are exact. */
static void say_real(printer *p, int64_t bits) {
    const double value = mc_real(bits);
    float small = (float)value;
    if (small > 3.4028234e38f || small < -3.4028234e38f) small = value > 0 ? 3.4028234e38f : -3.4028234e38f;
    uint32_t word;
    memcpy(&word, &small, sizeof word);
    uint32_t exponent = word >> 23 & 0xff, fraction = word & 0x7fffff;
    if (exponent) say(p, "%s0x1.%06xp%df", word >> 31 ? "-" : "", fraction << 1, (int)exponent - 127);
    else say(p, "%s0x0.%06xp-126f", word >> 31 ? "-" : "", fraction << 1);
}

/* A quotient of reals. By a constant it is a product, which has an error of an ulp more and a tenth of the cost. */
static void say_quotient(printer *p, const mc_node *x) {
    const mc_node *by = &p->code.nodes[x->b];
    double value = by->op == MC_CONST_F ? mc_real(by->imm) : 0, size = fabs(value);
    if (size < 1e-30 || size > 1e30) {
        say(p, "%s / %s", p->operand[0], p->operand[1]);
        return;
    }
    say(p, p->exact ? "fk_rounded_product(%s, " : "%s * ", p->operand[0]);
    say_real(p, mc_real_bits(1 / value));
    if (p->exact) say(p, ")");
}

/* If one operand of a sum or difference of reals is a product, both can be one FMA. Returns that operand, 0 or 1; -1:
 * none. Where bits matter this is decided here, because a compiler would do it in one kernel and not in another. */
static int fused_operand(const printer *p, const mc_node *x) {
    if (!p->exact || (x->op != MC_ADD_F && x->op != MC_SUB_F)) return -1;
    return p->code.nodes[x->a].op == MC_MUL_F ? 0 : p->code.nodes[x->b].op == MC_MUL_F ? 1 : -1;
}
static void say_real_sum(printer *p, const mc_node *x) {
    const char *minus = x->op == MC_SUB_F ? "-" : "";
    const int fused = fused_operand(p, x);
    const mc_node *product = &p->code.nodes[fused == 1 ? x->b : x->a];
    if (!p->exact) say(p, "%s %c %s", p->operand[0], *minus ? '-' : '+', p->operand[1]);
    else if (fused < 0) say(p, "fk_rounded_sum(%s, %s%s)", p->operand[0], minus, p->operand[1]);
    else if (fused) say(p, "fk_fma(%sv%u, v%u, %s)", minus, product->a, product->b, p->operand[0]);
    else say(p, "fk_fma(v%u, v%u, %s%s)", product->a, product->b, minus, p->operand[1]);
}

static void say_node(printer *p, uint32_t i) {
    const mc_node *x = &p->code.nodes[i];
    name_operands(p, x);
    switch ((mc_op)x->op) {
    case MC_CONST_I:
    case MC_CONST_B: {
        char text[32];
        write_constant(text, x->imm);
        say(p, "%s", text);
        return;
    }
    case MC_CONST_F: say_real(p, x->imm); return;
    case MC_Q: say(p, "(%s)q", type_of(p, i)); return;
    case MC_K: say(p, "(%s)k", type_of(p, i)); return;
    case MC_N: say(p, "(%s)e->sequence.n", type_of(p, i)); return;
    case MC_H: say(p, "(%s)h", type_of(p, i)); return;
    case MC_S: say(p, "s"); return;
    case MC_ADD: case MC_SUB: case MC_MUL: say_arithmetic(p, x, i); return;
    case MC_DIV: case MC_MOD: say_division(p, x, i); return;
    case MC_NEG:
        if (all_narrow(p, x, i)) say(p, "-%s", p->operand[0]);
        else if (p->ranges[i].exact) say(p, "(%s)-(fk_i64)%s", type_of(p, i), p->operand[0]);
        else say(p, "(fk_i64)(0 - (fk_u64)%s)", p->operand[0]);
        return;
    case MC_ABS:
        if (all_narrow(p, x, i)) say(p, "%s < 0 ? -%s : %s", p->operand[0], p->operand[0], p->operand[0]);
        else if (p->ranges[i].exact)
            say(p, "(%s)(%s < 0 ? -(fk_i64)%s : (fk_i64)%s)", type_of(p, i), p->operand[0], p->operand[0],
                p->operand[0]);
        else say(p, "%s < 0 ? (fk_i64)(0 - (fk_u64)%s) : %s", p->operand[0], p->operand[0], p->operand[0]);
        return;
    case MC_MIN:
    case MC_MAX:
        say(p, "(%s)(%s %c %s ? %s : %s)", type_of(p, i), p->operand[0], x->op == MC_MIN ? '<' : '>', p->operand[1],
            p->operand[0], p->operand[1]);
        return;
    case MC_IF_I:
    case MC_IF_B:
    case MC_IF_F: say(p, "%s ? %s : %s", p->operand[0], p->operand[1], p->operand[2]); return;
    case MC_LOAD:
    case MC_LOAD2:
    case MC_LOAD3:
    case MC_LOAD_F:
    case MC_LOAD2_F:
    case MC_LOAD3_F: say_load(p, x); return;
    case MC_EQ: case MC_IFF: case MC_EQ_F: say(p, "%s == %s", p->operand[0], p->operand[1]); return;
    case MC_NE: case MC_NE_F: say(p, "%s != %s", p->operand[0], p->operand[1]); return;
    case MC_LT: case MC_LT_F: say(p, "%s < %s", p->operand[0], p->operand[1]); return;
    case MC_LE: case MC_LE_F: say(p, "%s <= %s", p->operand[0], p->operand[1]); return;
    case MC_NOT: say(p, "!%s", p->operand[0]); return;
    case MC_AND: say(p, "%s & %s", p->operand[0], p->operand[1]); return;
    case MC_OR: say(p, "%s | %s", p->operand[0], p->operand[1]); return;
    case MC_BANDS:
        say(p, "fk_in_bands(&e->bands[%" PRId64 "], (fk_i64)%s, (fk_i64)%s)", x->imm, p->operand[0], p->operand[1]);
        return;
    case MC_TO_F: say(p, "(float)%s", p->operand[0]); return;
    case MC_ADD_F: case MC_SUB_F: say_real_sum(p, x); return;
    case MC_MUL_F:
        say(p, p->exact ? "fk_rounded_product(%s, %s)" : "%s * %s", p->operand[0], p->operand[1]);
        return;
    case MC_DIV_F: say_quotient(p, x); return;
    case MC_NEG_F: say(p, "-%s", p->operand[0]); return;
    case MC_ABS_F: say(p, "fabsf(%s)", p->operand[0]); return;
    case MC_MIN_F: say(p, "%s < %s ? %s : %s", p->operand[1], p->operand[0], p->operand[1], p->operand[0]); return;
    case MC_MAX_F: say(p, "%s > %s ? %s : %s", p->operand[1], p->operand[0], p->operand[1], p->operand[0]); return;
    case MC_FLOOR_F: say(p, "floorf(%s)", p->operand[0]); return;
    case MC_SQRT_F: say(p, "sqrtf(%s)", p->operand[0]); return;
    case MC_EXP_F: say(p, "expf(%s)", p->operand[0]); return;
    case MC_EXP2_F: say(p, "exp2f(%s)", p->operand[0]); return;
    case MC_LOG_F: say(p, "logf(%s)", p->operand[0]); return;
    case MC_LOG2_F: say(p, "log2f(%s)", p->operand[0]); return;
    case MC_TANH_F: say(p, "fk_tanh(%s)", p->operand[0]); return;
    case MC_TANH_APPROX_F: say(p, "fk_tanh_approx(%s)", p->operand[0]); return;
    case MC_OP_COUNT: break;
    }
}

/* --- functions ---------------------------------------------------------------------------------------------------- */

static const char helpers[] =
    "#ifndef FK_DIVISION\n"
    "#define FK_DIVISION\n"
    "FK_DEVICE fk_i32 fk_div_by32(fk_i32 a, fk_i32 b) { return a / b - (a % b < 0); }\n"
    "FK_DEVICE fk_i32 fk_mod_by32(fk_i32 a, fk_i32 b) { return a % b < 0 ? a % b + b : a % b; }\n"
    "FK_DEVICE fk_i64 fk_div_by64(fk_i64 a, fk_i64 b) { return a / b - (a % b < 0); }\n"
    "FK_DEVICE fk_i64 fk_mod_by64(fk_i64 a, fk_i64 b) { return a % b < 0 ? a % b + b : a % b; }\n"
    "FK_DEVICE fk_i32 fk_div32(fk_i32 a, fk_i32 b) {\n"
    "    if (b == 0) return 0;\n"
    "    if (b == -1) return (fk_i32)(0 - (fk_u32)a);\n"
    "    return a / b - (a % b != 0 && (a < 0) != (b < 0));\n"
    "}\n"
    "FK_DEVICE fk_i32 fk_mod32(fk_i32 a, fk_i32 b) {\n"
    "    if (b == 0 || b == -1) return 0;\n"
    "    fk_i32 r = a % b;\n"
    "    return r != 0 && (r < 0) != (b < 0) ? r + b : r;\n"
    "}\n"
    "FK_DEVICE fk_i64 fk_div64(fk_i64 a, fk_i64 b) {\n"
    "    if (b == 0) return 0;\n"
    "    if (b == -1) return (fk_i64)(0 - (fk_u64)a);\n"
    "    fk_i64 d = a / b;\n"
    "    return d - (a % b != 0 && (a < 0) != (b < 0));\n"
    "}\n"
    "FK_DEVICE fk_i64 fk_mod64(fk_i64 a, fk_i64 b) {\n"
    "    if (b == 0 || b == -1) return 0;\n"
    "    fk_i64 r = a % b;\n"
    "    return r != 0 && (r < 0) != (b < 0) ? r + b : r;\n"
    "}\n"
    "#endif\n";

/* How many cells hold the keys, the number of the first that holds a query, and how many do. */
static const char cell_helper[] = "#ifndef FK_CELLS\n"
                                  "#define FK_CELLS\n"
                                  "FK_DEVICE fk_i32 fk_key_cells32(const fk_env *e, fk_i32 cell) {\n"
                                  "    return ((fk_i32)e->sequence.n + cell - 1) / cell;\n"
                                  "}\n"
                                  "FK_DEVICE fk_i32 fk_query_cell32(const fk_env *e, fk_i32 cell) {\n"
                                  "    return fk_div_by32((fk_i32)e->sequence.q_first, cell);\n"
                                  "}\n"
                                  "FK_DEVICE fk_i32 fk_query_cells32(const fk_env *e, fk_i32 cell) {\n"
                                  "    const fk_i32 last = (fk_i32)(e->sequence.q_first + e->sequence.queries - 1);\n"
                                  "    return fk_div_by32(last, cell) - fk_query_cell32(e, cell) + 1;\n"
                                  "}\n"
                                  "FK_DEVICE fk_i64 fk_key_cells64(const fk_env *e, fk_i64 cell) {\n"
                                  "    return ((fk_i64)e->sequence.n + cell - 1) / cell;\n"
                                  "}\n"
                                  "FK_DEVICE fk_i64 fk_query_cell64(const fk_env *e, fk_i64 cell) {\n"
                                  "    return fk_div_by64((fk_i64)e->sequence.q_first, cell);\n"
                                  "}\n"
                                  "FK_DEVICE fk_i64 fk_query_cells64(const fk_env *e, fk_i64 cell) {\n"
                                  "    const fk_i64 last = (fk_i64)(e->sequence.q_first + e->sequence.queries - 1);\n"
                                  "    return fk_div_by64(last, cell) - fk_query_cell64(e, cell) + 1;\n"
                                  "}\n"
                                  "#endif\n";

/* The bits of a lane's columns. Of each eight columns it has two: 0, 1, 8, 9, 16, 17, ... Bit 2 j + e of a word is
 * column 8 j + e. */
static const char span_helper[] =
    "#ifndef FK_BELOW\n"
    "#define FK_BELOW\n"
    "FK_DEVICE fk_u32 fk_below32(fk_i32 x) {\n"
    "    fk_i32 most = x < 128 ? x : 128, n = most > 0 ? most : 0, rest = n & 7;\n"
    "    return (fk_u32)~(~(fk_u64)0 << ((n >> 2 & ~1) + (rest < 2 ? rest : 2)));\n"
    "}\n"
    "FK_DEVICE fk_u32 fk_below64(fk_i64 x) { return fk_below32(x < 0 ? 0 : x < 128 ? (fk_i32)x : 128); }\n"
    "FK_DEVICE fk_i32 fk_less32(fk_i32 x, fk_i32 limit) { return x < limit ? x : limit; }\n"
    "FK_DEVICE fk_i32 fk_less64(fk_i64 x, fk_i32 limit) { return x < 0 ? 0 : x < limit ? (fk_i32)x : limit; }\n"
    "#endif\n";

/* tanh as 1 - 2 / (1 + e^2x), without branches. Its absolute error is below 2^-20, as test_emit measures; where e^2x
 * overflows or underflows it is next to -1 or 1. A soft cap of c multiplies the error by c, and bf16 rounds logits and
 * P by 2^-9. */
static const char tanh_helper[] =
    "#ifndef FK_TANH\n"
    "#define FK_TANH\n"
    "FK_DEVICE float fk_tanh(float x) {\n"
    "    return fk_fma(-2.0f, fk_reciprocal(1.0f + fk_exp2(x * 2.88539008177792681472f)), 1.0f);\n"
    "}\n"
    "#endif\n";

static const char band_helper[] =
    "#ifndef FK_IN_BANDS\n"
    "#define FK_IN_BANDS\n"
    "typedef struct fk_band {\n"
    "    fk_i64 lo, hi;\n"
    "    fk_i32 lo_slope, hi_slope;\n"
    "} fk_band;\n"
    "typedef struct fk_band_rows {\n"
    "    fk_i64 q;\n"
    "    fk_u32 first, count;\n"
    "} fk_band_rows;\n"
    "FK_DEVICE int fk_in_bands(const fk_bands *s, fk_i64 q, fk_i64 k) {\n"
    "    const fk_band_rows *rows = (const fk_band_rows *)s->rows;\n"
    "    fk_u32 lo = 0, hi = s->row_count;\n"
    "    while (lo < hi) {\n"
    "        fk_u32 middle = lo + (hi - lo) / 2;\n"
    "        if (rows[middle].q <= q) lo = middle + 1;\n"
    "        else hi = middle;\n"
    "    }\n"
    "    if (lo == 0) return 0;\n"
    "    const fk_band *band = (const fk_band *)s->bands + rows[lo - 1].first;\n"
    "    for (fk_u32 i = 0; i < rows[lo - 1].count; i++) {\n"
    "        if (k < (fk_i64)((fk_u64)band[i].lo + (fk_u64)(band[i].lo_slope ? q : 0))) return 0;\n"
    "        if (k < (fk_i64)((fk_u64)band[i].hi + (fk_u64)(band[i].hi_slope ? q : 0))) return 1;\n"
    "    }\n"
    "    return 0;\n"
    "}\n"
    "#endif\n";

/* Marks the nodes that those marked need. Guards are not among them: the total meaning has none. */
static void find_needed(printer *p) {
    for (uint32_t i = p->code.count; i-- > 0;) {
        const mc_node *x = &p->code.nodes[i];
        const uint32_t of[] = {x->a, x->b, x->c};
        if (!p->needed[i]) continue;
        const int fused = fused_operand(p, x);
        for (int j = 0; j < 3; j++)
            if (of[j] != MC_NONE && j != fused) p->needed[of[j]] = true;
        if (fused >= 0) p->needed[p->code.nodes[of[fused]].a] = p->needed[p->code.nodes[of[fused]].b] = true;
    }
}

/* Begins with a function's code: finds its ranges. */
static bool open_code(printer *p, mc_code code) {
    p->code = code;
    p->ranges = calloc(code.count, sizeof *p->ranges);
    p->needed = calloc(code.count, sizeof *p->needed);
    bool good = p->ranges && p->needed;
    for (uint32_t i = 0; good && i < code.count; i++)
        if (mc_op_type(code.nodes[i].op) == 'i') p->ranges[i] = range_of(p, &code.nodes[i]);
    return good;
}
static void close_code(printer *p) {
    free(p->ranges);
    free(p->needed);
}

/* The head of a function and the variables of the nodes that are needed. */
static void say_head(printer *p, const char *head) {
    say(p, "%s {\n", head);
    say(p, "    (void)e, (void)q, (void)k, (void)h;\n");
    for (uint32_t i = 0; i < p->code.count; i++) {
        if (!p->needed[i] || (is_constant(&p->code.nodes[i]) && i + 1 < p->code.count)) continue;
        say(p, "    const %s v%u = ", type_of(p, i), i);
        say_node(p, i);
        say(p, ";\n");
    }
}

static bool say_function(printer *p, mc_code code, const char *head) {
    bool good = open_code(p, code);
    if (good) {
        p->needed[code.count - 1] = true;
        find_needed(p);
        say_head(p, head);
        say(p, "    return v%u;\n}\n", code.count - 1);
    }
    close_code(p);
    return good;
}

/* Prints where a read finds its element among the numbers of all tables; -1: it is in none. */
static bool say_place(printer *p, const emit_read *read, const char *head) {
    const mc_node *x = &read->load.nodes[read->load.count - 1];
    const emit_array *a = &p->program->arrays[x->imm];
    bool good = open_code(p, read->load);
    if (good) {
        p->needed[x->a] = true;
        if (x->b != MC_NONE) p->needed[x->b] = true;
        if (x->c != MC_NONE) p->needed[x->c] = true;
        find_needed(p);
        say_head(p, head);
        name_operands(p, x);
        say(p, "    return ");
        const bool tested = say_array_test(p, x, a);
        say(p, "%s(fk_i64)(%" PRIu64 "ull + (", tested ? " ? " : "", read->first);
        say_array_place(p, x, a);
        say(p, tested ? ")) : -1;\n}\n" : "));\n}\n");
    }
    close_code(p);
    return good;
}

/* Prints the functions of each read, and those that choose one of them by its number. */
static bool say_reads(printer *p) {
    static const char *const types[] = {"float", "fk_i64"}, *const names[] = {"fk_part", "fk_place"};
    const uint32_t count = p->program->read_count;
    bool good = true;
    say(p, "#define FK_READS %u\n", count);
    for (int f = 0; f < 2; f++) {
        for (uint32_t i = 0; good && i < count; i++) {
            const emit_read *read = &p->program->reads[i];
            char head[128];
            snprintf(head, sizeof head, "FK_DEVICE %s %s_%u(const fk_env *e, float s, fk_i64 q, fk_i64 k, int h)",
                     types[f], names[f], i);
            p->of_score = !f;
            good = f ? say_place(p, read, head) : say_function(p, read->part, head);
        }
        say(p, "FK_DEVICE %s %s(const fk_env *e, fk_u32 i, float s, fk_i64 q, fk_i64 k, int h) {\n", types[f],
            names[f]);
        for (uint32_t i = 0; i + 1 < count; i++)
            say(p, "    if (i == %u) return %s_%u(e, s, q, k, h);\n", i, names[f], i);
        say(p, "    return %s_%u(e, s, q, k, h);\n}\n", names[f], count - 1);
    }
    return good;
}

/* --- spans -------------------------------------------------------------------------------------------------------- */

/* The range of a sum; its nodes are needed. Are they all of 32 bits? */
static bool add_sum(printer *p, const spans_sum *s, wide *lo, wide *hi) {
    bool small = true;
    *lo = *hi = s->constant;
    for (uint32_t i = 0; i < s->count; i++) {
        range r = p->ranges[s->node[i]];
        small = small && narrow(r);
        p->needed[s->node[i]] = true;
        *lo += s->minus[i] ? -(wide)r.hi : r.lo;
        *hi += s->minus[i] ? -(wide)r.lo : r.hi;
    }
    return small;
}

/* Marks the nodes of a bound as needed. Do its values fit 64 bits with room; do they fit 32? */
static bool check_bound(printer *p, const spans_bound *b, bool *small) {
    const wide most = (wide)1 << 60, few = 1 << 30;
    wide lo, hi, scaled_lo, scaled_hi;
    *small = add_sum(p, &b->sum, &lo, &hi) && *small;
    *small = add_sum(p, &b->scaled, &scaled_lo, &scaled_hi) && *small;
    const wide part_lo = scaled_lo, part_hi = scaled_hi;
    scaled_lo *= b->factor;
    scaled_hi *= b->factor;
    lo += scaled_lo < scaled_hi ? scaled_lo : scaled_hi;
    hi += scaled_lo < scaled_hi ? scaled_hi : scaled_lo;
    *small = *small && lo > -few && hi < few && part_lo > -few && part_hi < few;
    return lo > -most && hi < most && part_lo > -most && part_hi < most;
}

static void say_sum(printer *p, const spans_sum *s, const char *type) {
    char constant[32];
    write_constant(constant, s->constant);
    say(p, "(%s)%s", type, constant);
    for (uint32_t i = 0; i < s->count; i++) say(p, " %c (%s)v%u", s->minus[i] ? '-' : '+', type, s->node[i]);
}

/* The least upper bound, or the greatest lower one, as a variable. */
static void say_bound(printer *p, const spans_bound *b, uint32_t count, const char *name, char than, const char *type) {
    for (uint32_t i = 0; i < count; i++) {
        say(p, "    const %s %s%u = ", type, name, i);
        say_sum(p, &b[i].sum, type);
        if (b[i].factor) {
            say(p, " + %" PRId64 " * (", b[i].factor);
            say_sum(p, &b[i].scaled, type);
            say(p, ")");
        }
        say(p, ";\n");
        if (i)
            say(p, "    const %s %sto%u = %s%s%u %c %s%u ? %s%s%u : %s%u;\n", type, name, i, name, i > 1 ? "to" : "",
                i - 1, than, name, i, name, i > 1 ? "to" : "", i - 1, name, i);
    }
}

static void say_part(printer *p, const spans_part *x, unsigned number, const char *variable, bool small) {
    const char *type = small ? "fk_i32" : "fk_i64", *size = small ? "32" : "64";
    char lo[16], hi[16];
    snprintf(lo, sizeof lo, "lo%u_", number);
    snprintf(hi, sizeof hi, "hi%u_", number);
    say_bound(p, x->lower, x->lowers, lo, '>', type);
    say_bound(p, x->upper, x->uppers, hi, '<', type);
    say(p, "    bits |= ");
    for (uint32_t i = 0; i < x->conditions; i++)
        say(p, "%s%sv%u", i ? " & " : "", x->negated[i] ? "!" : "", x->condition[i]);
    if (x->conditions) say(p, " ? ");
    if (x->uppers)
        say(p, "fk_below32(fk_less%s(%s%s%u - (%s)%s, limit))", size, hi, x->uppers > 1 ? "to" : "", x->uppers - 1,
            type, variable);
    else say(p, "fk_below32(limit)");
    if (x->lowers)
        say(p, " & ~fk_below%s(%s%s%u - (%s)%s)", size, lo, x->lowers > 1 ? "to" : "", x->lowers - 1, type, variable);
    if (x->conditions) say(p, " : 0u");
    say(p, ";\n");
}

/* Prints the function that finds a row's pairs by spans, if there are any, and says whether it did. */
static bool say_spans(printer *p, mc_op variable) {
    const char *name = variable == MC_K ? "FK_KEY_SPANS" : "FK_QUERY_SPANS", *letter = variable == MC_K ? "k" : "q";
    spans found;
    bool small = p->program->positions <= 1 << 30, has = false, *exact = NULL, good = open_code(p, p->program->mask);
    if (good) good = (exact = calloc(p->code.count, sizeof *exact)) != NULL;
    for (uint32_t i = 0; good && i < p->code.count; i++) exact[i] = p->ranges[i].exact;
    has = good && spans_find(p->code, variable, exact, &found);
    for (uint32_t i = 0; has && i < found.count; i++) {
        spans_part *x = &found.part[i];
        for (uint32_t n = 0; n < x->lowers; n++) has = check_bound(p, &x->lower[n], &small) && has;
        for (uint32_t n = 0; n < x->uppers; n++) has = check_bound(p, &x->upper[n], &small) && has;
        for (uint32_t n = 0; n < x->conditions; n++) p->needed[x->condition[n]] = true;
    }
    if (good) say(p, "#define %s %d\n", name, has);
    if (has) {
        find_needed(p);
        say_head(p, variable == MC_K
                        ? "FK_DEVICE fk_u32 fk_keys(const fk_env *e, fk_i64 q, fk_i64 k, fk_i32 limit, int h)"
                        : "FK_DEVICE fk_u32 fk_queries(const fk_env *e, fk_i64 q, fk_i64 k, fk_i32 limit, int h)");
        say(p, "    fk_u32 bits = 0;\n");
        for (uint32_t i = 0; i < found.count; i++) say_part(p, &found.part[i], i, letter, small);
        say(p, "    return bits;\n}\n");
    }
    free(exact);
    close_code(p);
    return good;
}

/* A read's code is that of scores, and ends with a node that reads a table. */
static const char *check_read(const emit_program *g, const emit_read *x, const mc_decls *decls, uint32_t *node) {
    const char *wrong = mc_check(x->part, MC_SCORE, decls, node);
    if (!wrong) wrong = mc_check(x->load, MC_SCORE, decls, node);
    if (wrong) return wrong;
    const mc_node *last = &x->load.nodes[x->load.count - 1];
    return mc_loads_real(last->op) && g->arrays[last->imm].table ? NULL : "a read of no table";
}

static const char *check(const emit_program *g, uint32_t *node) {
    mc_array *arrays = calloc(g->array_count + (size_t)1, sizeof *arrays);
    if (!arrays) return "out of memory";
    const char *wrong = NULL;
    for (uint32_t i = 0; i < g->array_count && !wrong; i++) {
        const emit_array *a = &g->arrays[i];
        arrays[i] = (mc_array){.columns = a->dims > 1, .planes = a->dims > 2, .width = a->width};
        if (a->dims < 1 || a->dims > 3) wrong = "an array of no dimensions";
        for (uint32_t j = 0; j < a->dims && !wrong; j++)
            if (a->dim[j].over > EMIT_KEYS || a->dim[j].count < 0 || (a->dim[j].over != EMIT_COUNT && !a->dim[j].cell))
                wrong = "an array of no kind";
    }
    const mc_decls decls = {arrays, g->array_count, g->band_count};
    if (!wrong) wrong = mc_check(g->mask, MC_MASK, &decls, node);
    if (!wrong && !g->score.count != !g->slope.count) wrong = "a score without its derivative, or the reverse";
    if (!wrong && g->score.count) wrong = mc_check(g->score, MC_SCORE, &decls, node);
    if (!wrong && g->slope.count) wrong = mc_check(g->slope, MC_SCORE, &decls, node);
    if (!wrong && g->read_count && !g->score.count) wrong = "a read without a score";
    for (uint32_t i = 0; i < g->read_count && !wrong; i++) wrong = check_read(g, &g->reads[i], &decls, node);
    if (!wrong && (g->positions <= 0 || g->positions > (int64_t)1 << 40)) wrong = "positions out of range";
    free(arrays);
    return wrong;
}

static bool has_cells(const emit_program *g) {
    for (uint32_t i = 0; i < g->array_count; i++)
        for (uint32_t j = 0; j < g->arrays[i].dims; j++)
            if (g->arrays[i].dim[j].over != EMIT_COUNT && g->arrays[i].dim[j].cell > 1) return true;
    return false;
}

int64_t emit_positions(uint64_t n) {
    static const unsigned bits[] = {16, 20, 24, 28, 31};
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++)
        if (n < UINT64_C(1) << bits[i]) return ((int64_t)1 << bits[i]) - 1;
    return n <= UINT64_C(1) << 40 ? (int64_t)1 << 40 : 0;
}

const char *emit_functions(const emit_program *program, emit_text *out, void *context, uint32_t *node) {
    uint32_t ignored;
    if (!node) node = &ignored;
    *node = 0;
    const char *wrong = check(program, node);
    if (wrong) return wrong;
    printer p = {.out = out, .context = context, .program = program};
    unsigned uses = mc_uses(program->mask);
    if (program->score.count) uses |= mc_uses(program->score) | mc_uses(program->slope);
    say(&p, "#define FK_ARRAYS %u\n", program->array_count);
    out(context, helpers, sizeof helpers - 1);
    if (has_cells(program)) out(context, cell_helper, sizeof cell_helper - 1);
    out(context, span_helper, sizeof span_helper - 1);
    if (program->score.count) out(context, tanh_helper, sizeof tanh_helper - 1);
    if (uses & MC_USES_BANDS) out(context, band_helper, sizeof band_helper - 1);
    bool good = say_function(&p, program->mask, "FK_DEVICE int fk_allow(const fk_env *e, fk_i64 q, fk_i64 k, int h)");
    good = good && say_spans(&p, MC_K) && say_spans(&p, MC_Q);
    if (program->score.count) {
        p.of_score = p.exact = true;
        good = good && say_function(&p, program->score,
                                    "FK_DEVICE float fk_score(const fk_env *e, float s, fk_i64 q, fk_i64 k, int h)");
        good = good && say_function(&p, program->slope,
                                    "FK_DEVICE float fk_slope(const fk_env *e, float s, fk_i64 q, fk_i64 k, int h)");
        p.exact = false;
    }
    if (program->read_count) good = good && say_reads(&p);
    return good ? NULL : "out of memory";
}
