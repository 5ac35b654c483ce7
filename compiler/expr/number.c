/* number.c: evaluates constant numbers, with or without a point: sinks, and the parameters of a score. Also prints
 * calls with constant arguments.
 *
 * Requires: trees from syntax/parse.c. Gives: a finite number, or an error at its place.
 * Meaning: as in a score. + - * of two whole numbers give a whole number, and a real if one of the operands is real;
 * `/` needs a real operand.
 * Cost: O(expression); recursion is bounded by NEST_MAX.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "compiler/expr/expr.h"
#include "compiler/base/real.h"

const char *expr_call_text(sema *s, const mask *m, const figure *values) {
    text t = {0};
    text_puts(&t, m->name);
    uint32_t i = 0;
    for (const arg *p = m->params; p; p = p->next, i++) {
        text_printf(&t, "%s%s = ", i ? ", " : "(", p->name);
        if (p->as || values[i].field) text_puts(&t, s->arrays[values[i].integer]->name);
        else if (score_param_type(p) == TYPE_BOOL) text_puts(&t, values[i].integer ? "true" : "false");
        else if (values[i].real) real_print(values[i].value, &t);
        else text_printf(&t, "%" PRId64, values[i].integer);
    }
    if (i) text_puts(&t, ")");
    const char *copy = t.failed ? NULL : arena_copy(&s->out->arena, t.at, t.size);
    text_free(&t);
    return copy;
}

bool expr_has_point(const expr *e) {
    for (; e && e->kind == EXPR_BINARY; e = e->a)
        if (expr_has_point(e->b)) return true;
    if (!e) return false;
    if (e->kind == EXPR_FLOAT) return true;
    if (e->kind == EXPR_UNARY) return expr_has_point(e->a);
    for (const arg *a = e->kind == EXPR_CALL ? e->args : NULL; a; a = a->next)
        if (a->value && expr_has_point(a->value)) return true;
    return false;
}

static figure whole(int64_t x) { return (figure){.integer = x, .value = (double)x}; }

static bool too_large(sema *s, const expr *e) {
    diag_error(s->d, FCP_E_VALUE, e->at, "this overflows 64 bits");
    return false;
}

static bool apply_operator(sema *s, const expr *e, figure a, figure b, figure *out) {
    if (!a.real && !b.real) {
        int64_t v;
        bool over = false;
        switch (e->op) {
        case OP_ADD: over = __builtin_add_overflow(a.integer, b.integer, &v); break;
        case OP_SUB: over = __builtin_sub_overflow(a.integer, b.integer, &v); break;
        case OP_MUL: over = __builtin_mul_overflow(a.integer, b.integer, &v); break;
        case OP_DIV:
        case OP_MOD:
            diag_error(s->d, FCP_E_TYPE, e->at, "two whole numbers under '%s': is the result to be rounded?",
                       words_op_spelling((expr_op)e->op));
            diag_hint(s->d, "write one of them with a point, as in 1 / 3.0");
            return false;
        default: diag_error(s->d, FCP_E_TYPE, e->at, "this is a condition, not a number"); return false;
        }
        *out = whole(v);
        return over ? too_large(s, e) : true;
    }
    double v;
    switch (e->op) {
    case OP_ADD: v = a.value + b.value; break;
    case OP_SUB: v = a.value - b.value; break;
    case OP_MUL: v = a.value * b.value; break;
    case OP_DIV: v = a.value / b.value; break;
    default:
        diag_error(s->d, FCP_E_TYPE, e->at,
                   e->op == OP_MOD ? "'%%' needs whole numbers" : "this is a condition, not a number");
        return false;
    }
    *out = (figure){.real = true, .value = v};
    if (isfinite(v)) return true;
    diag_error(s->d, FCP_E_SCORE, e->at, "this is not a finite number");
    return false;
}

static bool eval_leaf(sema *s, const expr *e, const char *what, figure *out) {
    switch ((expr_kind)e->kind) {
    case EXPR_INT: *out = whole(e->integer); return true;
    case EXPR_FLOAT:
        *out = (figure){.real = true};
        if (real_parse(e->name, &out->value)) return true;
        diag_error(s->d, FCP_E_SCORE, e->at, "this is beyond the largest number, 1.8e308");
        return false;
    case EXPR_UNARY:
        if (e->op != OP_NEG) break;
        if (!expr_eval_number(s, e->a, what, out)) return false;
        if (!out->real && out->integer == INT64_MIN) return too_large(s, e);
        if (out->real) out->value = -out->value;
        else *out = whole(-out->integer);
        return true;
    case EXPR_QUANTITY: diag_error(s->d, FCP_E_UNIT, e->at, "%s takes no unit", what); return false;
    default: break;
    }
    diag_error(s->d, FCP_E_TYPE, e->at, "%s must be a constant number, for instance 0.5", what);
    return false;
}

bool expr_eval_number(sema *s, const expr *e, const char *what, figure *out) {
    if (e->kind == EXPR_CALL && !expr_has_point(e)) { /* min, max, abs, exact of whole numbers */
        int64_t v;
        if (!sema_eval_constant(s, e, what, &v)) return false;
        *out = whole(v);
        return true;
    }
    const expr *leaf = e;
    while (leaf->kind == EXPR_BINARY) leaf = leaf->a;
    if (leaf->kind == EXPR_CALL && leaf != e) {
        if (!expr_eval_number(s, leaf, what, out)) return false;
    } else if (!eval_leaf(s, leaf, what, out)) return false;
    while (leaf != e) {
        leaf = leaf->up;
        figure right;
        if (!expr_eval_number(s, leaf->b, what, &right) || !apply_operator(s, leaf, *out, right, out)) return false;
    }
    return true;
}
