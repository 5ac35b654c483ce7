/* score.c: checks and lowers what scores have beyond masks: real numbers in expressions.
 *
 * A whole number that meets a real becomes real, and nothing becomes whole again. + - * of two whole numbers are whole.
 * `/` and `%` of two whole numbers are refused, because a mask rounds down and readers of a score would not expect it;
 * inside an index [ ] they are allowed, and mean what they mean in a mask. A condition on reals guards nothing: if
 * something could fault without such a condition, it counts as reachable.
 *
 * Requires: operands lowered by expr.c. Gives: typed values, and nodes if there is a builder. Cost: O(1) each.
 */
#include <math.h>
#include <string.h>

#include "compiler/expr/expr.h"
#include "compiler/base/real.h"

static const value poison = {TYPE_POISON, 0};

static uint32_t emit(sema *s, expr *e, mc_op op, uint32_t a, uint32_t b) {
    return expr_emit(s, e, op, a, b, MC_NONE, 0, MC_NONE);
}

static bool is_number(value v) { return v.type == TYPE_INT || v.type == TYPE_REAL; }

static value to_real(sema *s, expr *e, value v) {
    if (v.type != TYPE_INT) return v;
    return (value){TYPE_REAL, emit(s, e, MC_TO_F, v.node, MC_NONE)};
}

/* Is v a number, or not known yet? */
static bool needs_number(sema *s, value v, const expr *e, const char *who) {
    if (is_number(v) || v.type == TYPE_ANY) return true;
    return expr_needs(s, v, TYPE_INT, e, who); /* reports that it is a condition */
}

/* The type of the sum or product of two numbers. */
static uint32_t joined(value a, value b) {
    if (a.type == TYPE_REAL || b.type == TYPE_REAL) return TYPE_REAL;
    return a.type == TYPE_INT && b.type == TYPE_INT ? TYPE_INT : TYPE_ANY;
}

static uint32_t constant(sema *s, expr *e, double x) {
    return expr_emit(s, e, MC_CONST_F, MC_NONE, MC_NONE, MC_NONE, mc_real_bits(x), MC_NONE);
}

value score_literal(sema *s, expr *e) {
    double x;
    if (!real_parse(e->name, &x)) {
        diag_error(s->d, FCP_E_SCORE, e->at, "this is beyond the largest number, 1.8e308");
        return (value){TYPE_REAL, s->builder ? constant(s, e, 0) : 0};
    }
    return (value){TYPE_REAL, constant(s, e, x)};
}

/* --- constants that are not finite -------------------------------------------------------------------------------- */

static bool is_constant(const mc_node *nodes, uint32_t i, double *out) {
    if (nodes[i].op != MC_CONST_F) return false;
    memcpy(out, &nodes[i].imm, sizeof *out);
    return true;
}

void score_finite(sema *s, const expr *e, mc_op op, uint32_t node, uint32_t a, uint32_t b, uint32_t guard) {
    uint32_t count;
    const mc_node *nodes = mc_builder_nodes(s->builder, &count);
    double x, y = 0;
    if (mc_op_type(op) != 'f' || op == MC_IF_F || op == MC_TO_F || a == MC_NONE || nodes[node].op == MC_CONST_F) return;
    if (guard != MC_NONE && nodes[guard].op == MC_CONST_B && !nodes[guard].imm) return; /* never reached */
    if (op == MC_DIV_F && !is_constant(nodes, a, &x) && is_constant(nodes, b, &y) && y == 0) {
        diag_error(s->d, FCP_E_SCORE, e->at, "a division by %s, whatever is divided", signbit(y) ? "-0.0" : "0.0");
        s->failed = true;
        return;
    }
    if (mc_loads_real(op) || !is_constant(nodes, a, &x) || (b != MC_NONE && !is_constant(nodes, b, &y))) return;
    bool finite;
    switch (op) { /* functions that are not folded: would the result be finite? */
    case MC_EXP_F: finite = x <= 0x1.62e42fefa39efp+9; break;
    case MC_EXP2_F: finite = x < 1024; break;
    case MC_LOG_F:
    case MC_LOG2_F: finite = x > 0; break;
    case MC_TANH_F:
    case MC_TANH_APPROX_F: finite = true; break;
    case MC_MUL_F: finite = isfinite(x * y); break;
    case MC_DIV_F: finite = isfinite(x / y); break; /* of 1.0 / 8.0, the node is a product */
    default: finite = nodes[node].op != op; break;
    }
    if (finite) return;
    text t = {0};
    static const char *const signs[MC_OP_COUNT] = {[MC_ADD_F] = " + ", [MC_SUB_F] = " - ", [MC_MUL_F] = " * ",
                                                   [MC_DIV_F] = " / "};
    static const char *const names[MC_OP_COUNT] = {[MC_SQRT_F] = "sqrt", [MC_EXP_F] = "exp", [MC_EXP2_F] = "exp2",
                                                   [MC_LOG_F] = "log", [MC_LOG2_F] = "log2"};
    if (names[op]) text_printf(&t, "%s(", names[op]);
    real_print(x, &t);
    if (signs[op]) {
        text_puts(&t, signs[op]);
        real_print(y, &t);
    }
    if (names[op]) text_puts(&t, ")");
    text_add(&t, "", 1);
    diag_error(s->d, FCP_E_SCORE, e->at, "%s is not a finite number", t.failed ? "this" : t.at);
    text_free(&t);
    s->failed = true;
}

/* --- operators ---------------------------------------------------------------------------------------------------- */

static value refuse_division(sema *s, const expr *e, const char *who) {
    diag_error(s->d, FCP_E_TYPE, e->at, "%s of two whole numbers in a score: is the result to be rounded?", who);
    if (e->op == OP_DIV)
        diag_hint(s->d, "in a score write floor(q / 16.0) or q / 16.0; inside an index, table[q / 16], "
                        "it rounds down");
    else diag_hint(s->d, "it has its place inside an index, table[q %% 16]; else write x - 16.0 * floor(x / 16.0)");
    return s->builder ? poison : (value){TYPE_ANY, 0};
}

static value arithmetic(sema *s, expr *e, value a, value b, const char *who, uint32_t guard) {
    static const mc_op whole[OP_COUNT] = {[OP_ADD] = MC_ADD, [OP_SUB] = MC_SUB, [OP_MUL] = MC_MUL, [OP_DIV] = MC_DIV,
                                          [OP_MOD] = MC_MOD};
    static const mc_op real[OP_COUNT] = {[OP_ADD] = MC_ADD_F, [OP_SUB] = MC_SUB_F, [OP_MUL] = MC_MUL_F,
                                         [OP_DIV] = MC_DIV_F};
    bool left = needs_number(s, a, e->a, who), right = needs_number(s, b, e->b, who);
    if (!left || !right) return s->builder ? poison : (value){TYPE_ANY, 0};
    uint32_t type = joined(a, b);
    if (e->op == OP_MOD && type == TYPE_REAL) {
        expr_needs(s, (value){TYPE_REAL, 0}, TYPE_INT, a.type == TYPE_REAL ? e->a : e->b, who);
        return s->builder ? poison : (value){TYPE_ANY, 0};
    }
    if (type == TYPE_ANY) return (value){TYPE_ANY, 0};
    if (type == TYPE_INT) {
        if ((e->op == OP_DIV || e->op == OP_MOD) && !s->in_index) return refuse_division(s, e, who);
        return (value){TYPE_INT, expr_emit(s, e, whole[e->op], a.node, b.node, MC_NONE, 0, guard)};
    }
    a = to_real(s, e->a, a);
    b = to_real(s, e->b, b);
    return (value){TYPE_REAL, expr_emit(s, e, real[e->op], a.node, b.node, MC_NONE, 0, guard)};
}

static value comparison(sema *s, expr *e, value a, value b, const char *who) {
    static const mc_op whole[OP_COUNT] = {[OP_LT] = MC_LT, [OP_GT] = MC_LT, [OP_LE] = MC_LE,
                                          [OP_GE] = MC_LE, [OP_EQ] = MC_EQ, [OP_NE] = MC_NE};
    static const mc_op real[OP_COUNT] = {[OP_LT] = MC_LT_F, [OP_GT] = MC_LT_F, [OP_LE] = MC_LE_F,
                                         [OP_GE] = MC_LE_F, [OP_EQ] = MC_EQ_F, [OP_NE] = MC_NE_F};
    const value result = {TYPE_BOOL, 0};
    bool equality = e->op == OP_EQ || e->op == OP_NE;
    if (equality && (a.type == TYPE_BOOL || b.type == TYPE_BOOL)) {
        if (a.type == TYPE_POISON || b.type == TYPE_POISON || a.type == TYPE_ANY || b.type == TYPE_ANY) return result;
        if (a.type != b.type) {
            diag_error(s->d, FCP_E_TYPE, e->at,
                       "%s compares two values of one kind; these are a number and a condition", who);
            expr_hint_number(s, a.type == TYPE_BOOL ? e->a : e->b);
            return s->builder ? poison : result;
        }
        uint32_t node = emit(s, e, MC_IFF, a.node, b.node);
        return (value){TYPE_BOOL, e->op == OP_NE ? emit(s, e, MC_NOT, node, MC_NONE) : node};
    }
    bool left = needs_number(s, a, e->a, who), right = needs_number(s, b, e->b, who);
    if (!left || !right) return s->builder ? poison : result;
    uint32_t type = joined(a, b);
    if (type == TYPE_ANY) return result;
    if (type == TYPE_REAL) a = to_real(s, e->a, a), b = to_real(s, e->b, b);
    bool swap = e->op == OP_GT || e->op == OP_GE;
    return (value){TYPE_BOOL, emit(s, e, type == TYPE_REAL ? real[e->op] : whole[e->op], swap ? b.node : a.node,
                                   swap ? a.node : b.node)};
}

value score_binary(sema *s, expr *e, value a, value b, uint32_t guard) {
    char who[8] = {'\''};
    strcat(strcat(who, words_op_spelling((expr_op)e->op)), "'");
    if (e->op == OP_AND || e->op == OP_OR) {
        bool left = expr_needs(s, a, TYPE_BOOL, e->a, who), right = expr_needs(s, b, TYPE_BOOL, e->b, who);
        if (!left || !right) return s->builder ? poison : (value){TYPE_BOOL, 0};
        return (value){TYPE_BOOL, emit(s, e, e->op == OP_AND ? MC_AND : MC_OR, a.node, b.node)};
    }
    if (words_op_precedence((expr_op)e->op) == PREC_COMPARE) return comparison(s, e, a, b, who);
    return arithmetic(s, e, a, b, who, guard);
}

value score_negate(sema *s, expr *e, value a, uint32_t guard) {
    if (!needs_number(s, a, e->a, "'-'")) return s->builder ? poison : (value){TYPE_ANY, 0};
    if (a.type == TYPE_ANY) return a;
    mc_op op = a.type == TYPE_REAL ? MC_NEG_F : MC_NEG;
    return (value){a.type, expr_emit(s, e, op, a.node, MC_NONE, MC_NONE, 0, guard)};
}

void score_branches(sema *s, expr *e, value *a, value *b) {
    if (a->type == TYPE_REAL && b->type == TYPE_INT) *b = to_real(s, e->c, *b);
    if (b->type == TYPE_REAL && a->type == TYPE_INT) *a = to_real(s, e->b, *a);
}

/* --- functions ---------------------------------------------------------------------------------------------------- */

static value extreme(sema *s, expr *e, value a, value b, expr *last) {
    uint32_t type = joined(a, b);
    bool least = e->index == BUILTIN_MIN;
    if (type == TYPE_ANY) return (value){TYPE_ANY, 0};
    if (type == TYPE_REAL) a = to_real(s, e->args->value, a), b = to_real(s, last, b);
    mc_op op = type == TYPE_REAL ? least ? MC_MIN_F : MC_MAX_F : least ? MC_MIN : MC_MAX;
    return (value){type, emit(s, e, op, a.node, b.node)};
}

value score_builtin(sema *s, expr *e, const frame *f, uint32_t guard) {
    static const mc_op reals[SCORE_BUILTINS] = {
        [BUILTIN_EXP] = MC_EXP_F,   [BUILTIN_EXP2] = MC_EXP2_F,  [BUILTIN_LOG] = MC_LOG_F,
        [BUILTIN_LOG2] = MC_LOG2_F, [BUILTIN_TANH] = MC_TANH_F,  [BUILTIN_TANH_APPROX] = MC_TANH_APPROX_F,
        [BUILTIN_SQRT] = MC_SQRT_F, [BUILTIN_FLOOR] = MC_FLOOR_F};
    bool is_real = e->index >= MASK_BUILTINS, is_exact = e->index == BUILTIN_EXACT;
    bool one = is_real || e->index == BUILTIN_ABS;
    const value unknown = {is_real ? TYPE_REAL : is_exact ? TYPE_INT : TYPE_ANY, 0};
    if (one ? e->arg_count != 1 : is_exact ? e->arg_count != 2 : e->arg_count < 2) {
        diag_error(s->d, FCP_E_ARGUMENT, e->at, one ? "'%s' takes one number" : is_exact ? "'%s' takes two numbers"
                   : "'%s' takes two numbers or more", e->name);
        return s->builder ? poison : unknown;
    }
    value result = poison;
    bool good = true;
    for (arg *a = e->args; a; a = a->next) {
        if (a->name) {
            diag_error(s->d, FCP_E_ARGUMENT, a->name_at, "'%s' takes numbers without names", e->name);
            return s->builder ? poison : unknown;
        }
        value v = expr_lower(s, a->value, f, guard);
        if (!(is_exact ? expr_needs(s, v, TYPE_INT, a->value, e->name) : needs_number(s, v, a->value, e->name)))
            good = false;
        if (!good) continue;
        if (is_real) {
            v = to_real(s, a->value, v);
            result = (value){TYPE_REAL, v.type == TYPE_ANY
                                            ? 0
                                            : expr_emit(s, e, reals[e->index], v.node, MC_NONE, MC_NONE, 0, guard)};
        } else if (e->index == BUILTIN_ABS) {
            result = v;
            if (v.type == TYPE_REAL) result.node = emit(s, e, MC_ABS_F, v.node, MC_NONE);
            else if (v.type == TYPE_INT) result.node = expr_emit(s, e, MC_ABS, v.node, MC_NONE, MC_NONE, 0, guard);
        } else if (a == e->args) result = v;
        else if (is_exact) result = (value){TYPE_INT, expr_exact(s, e, result.node, v.node, guard)};
        else result = extreme(s, e, result, v, a->value);
    }
    return good ? result : s->builder ? poison : unknown;
}

/* --- scores in scores --------------------------------------------------------------------------------------------- */

value_type score_param_type(const arg *p) {
    if (p->as) return TYPE_ARRAY;
    if (!p->value) return TYPE_ANY;
    return p->value->kind == EXPR_BOOL ? TYPE_BOOL : expr_has_point(p->value) ? TYPE_REAL : TYPE_INT;
}

/* The value of parameter p: its argument, or its default if none is given. If the default is real, an integer argument
 * becomes real. If the default is an integer, the argument may still be real. */
static bool argument(sema *s, const arg *p, const arg *given, const frame *f, uint32_t guard, value *out) {
    value_type type = score_param_type(p);
    expr *e = given ? given->value : p->value;
    if (!given && type == TYPE_ARRAY) {
        *out = (value){TYPE_ARRAY, sema_array_argument(s, p, e)};
        return out->node != ARRAY_ANY;
    }
    if (!given && type == TYPE_BOOL) {
        *out = (value){TYPE_BOOL, expr_emit(s, e, MC_CONST_B, MC_NONE, MC_NONE, MC_NONE, e->integer, MC_NONE)};
        return true;
    }
    if (!given) {
        figure n;
        if (!expr_eval_number(s, e, p->name, &n)) return false;
        *out = n.real ? (value){TYPE_REAL, constant(s, e, n.value)}
                      : (value){TYPE_INT, expr_emit(s, e, MC_CONST_I, MC_NONE, MC_NONE, MC_NONE, n.integer, MC_NONE)};
        return true;
    }
    *out = type == TYPE_ARRAY ? expr_array_argument(s, e, f, guard) : expr_lower(s, e, f, guard);
    if (type == TYPE_BOOL) return expr_needs(s, *out, TYPE_BOOL, e, p->name);
    if (type == TYPE_ARRAY)
        return expr_needs(s, *out, TYPE_ARRAY, e, p->name) && sema_fits_param(s, p, out->node, e->at);
    if (!needs_number(s, *out, e, p->name)) return false;
    if (type == TYPE_REAL) *out = to_real(s, e, *out);
    return true;
}

value score_call(sema *s, expr *e, const frame *f, uint32_t guard) {
    mask *m = (mask *)e->target;
    const value result = {TYPE_REAL, 0};
    if (!s->builder && !expr_check_called(s, e, m)) return result;
    arg **given = ARENA_NEW(s->scratch, arg *, m->param_count + 1);
    value *args = ARENA_NEW(s->scratch, value, m->param_count + 1);
    if (!given || !args) {
        sema_no_memory(s);
        return poison;
    }
    if (!sema_bind_args(s, m, e->kind == EXPR_CALL ? e->args : NULL, e->at, given)) return s->builder ? poison : result;
    uint32_t i = 0;
    bool good = true;
    for (const arg *p = m->params; p; p = p->next, i++) good &= argument(s, p, given[i], f, guard, &args[i]);
    value logit = f->s;
    if (given[i]) {
        logit = expr_lower(s, given[i]->value, f, guard);
        good &= needs_number(s, logit, given[i]->value, "s");
        logit = to_real(s, given[i]->value, logit);
    }
    if (!good || !s->builder || s->failed) return s->builder ? poison : result;
    args[i] = logit;
    const frame inner = {.m = m, .args = args, .s = logit};
    value v = expr_inline(s, m, m->body, args, m->param_count + 1, &inner, guard);
    return to_real(s, e, v);
}
