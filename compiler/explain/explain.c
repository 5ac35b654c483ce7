/* explain.c: evaluates a mask and a score for one pair, on the syntax tree, and records the value of every
 * sub-expression.
 *
 * Requires: a program that was checked.
 * Gives:    the steps of the evaluation, in order, and the conditions that decide the answer.
 * Meaning:  that of the language. Operands are evaluated from left to right; `and` and `or` stop as soon as the answer
 *           is known, and a fault (a division by 0, say) counts only if it is reached. There is one exception: if an
 *           argument of a call faults and the body uses the argument anywhere, reached or not, the call faults.
 * Method:   the tree does not say whether a body uses an argument, but the mask code (the compiled mask, which plans
 *           hold) gives the right answer:
 *           1. Evaluate leniently: a fault of an argument counts if it is reached.
 *           2. If the mask code gives another answer, evaluate again, strictly: any fault of an argument makes the call
 *              fault. One of the two answers must be that of the mask code.
 * Cost:     O(distinct calls x size of their bodies). The text of a step is as long as its expression.
 */
#include "compiler/explain/where_computed.h"
#include "compiler/explain/where_recurs.h"
#include "compiler/explain/explain.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "compiler/explain/which_sequence.h"
#include "compiler/expr/expr.h"
#include "compiler/front/front.h"
#include "compiler/base/memo.h"
#include "compiler/base/real.h"
#include "compiler/expr/slice_sources.h"
#include "compiler/sema/fault_words.h"

enum { TEXT_MAX = 2000 };

typedef struct known {
    explain_kind kind;
    int64_t value; /* of a real number: its bits; of a fault: the address of its words, or 0 */
} known;

/* The scope of an expression: the values that names have in it. */
typedef struct scene {
    const mask *m;
    const known *args;
    const definition *def;
    const known *def_args;
    known s; /* what `s` means in a score */
} scene;

typedef struct explaining {
    sema *s;
    explanation *out;
    size_t room;
    memo memo, quiet; /* bodies that were evaluated already; quiet: without recording steps */
    const whereabouts *where;
    uint32_t in_index; /* the depth of [ ]: inside them `/` rounds down, also in a score */
    bool strict; /* a call faults if an argument of it does */
    bool lazy;   /* a call had such an argument, and did not fault because strict is off */
    bool failed;
} explaining;

static known eval(explaining *x, const expr *e, const scene *f, uint32_t depth, bool told);
static known eval_array(explaining *x, const expr *e, const scene *f, uint32_t depth, bool told);
static known eval_run(explaining *x, const expr *e, const scene *f, uint32_t depth, bool told);

/* --- steps -------------------------------------------------------------------------------------------------------- */

static const char *keep_text(explaining *x, text *t) {
    const char *copy =
        t->failed ? NULL : arena_copy(&x->out->arena, t->at ? t->at : "", t->size < TEXT_MAX ? t->size : TEXT_MAX);
    text_free(t);
    if (!copy) x->failed = true;
    return copy ? copy : "";
}

/* Begins a step, if steps are `told`. Returns its number, or SIZE_MAX if it is not kept. */
static size_t begin_step(explaining *x, const expr *e, uint32_t depth, explain_rule rule, bool told) {
    explanation *o = x->out;
    if (x->failed || !told) return SIZE_MAX;
    if (o->count == EXPLAIN_STEPS) {
        o->left_out++;
        return SIZE_MAX;
    }
    explain_step *grown = arena_grow(&o->arena, o->steps, o->count, &x->room, sizeof *grown);
    if (!grown) {
        x->failed = true;
        return SIZE_MAX;
    }
    o->steps = grown;
    text t = {0};
    ast_print_expr(e, &t);
    explain_step *s = &o->steps[o->count];
    *s = (explain_step){.depth = depth, .rule = rule, .kind = EXPLAIN_UNREACHED, .with = "", .fault = ""};
    s->text = keep_text(x, &t);
    diag_place(x->s->d, e->at, &s->file, &s->line, &s->column);
    const char *copy = arena_copy(&o->arena, s->file, strlen(s->file));
    if (!copy) x->failed = true;
    s->file = copy ? copy : "";
    const char *name, *bytes;
    size_t size;
    if (e->at.source < diag_source_count(x->s->d))
        diag_source_get(x->s->d, e->at.source, &name, &bytes, &size, &s->builtin);
    return o->count++;
}

/* The words of a fault; "": it is none. */
static const char *fault_of(known v) {
    return v.kind == EXPLAIN_FAULT && v.value ? (const char *)(intptr_t)v.value : "";
}

static known end_step(explaining *x, size_t step, known v, text *with) {
    const char *kept = with ? keep_text(x, with) : "";
    if (step == SIZE_MAX) return v;
    explain_step *s = &x->out->steps[step];
    s->kind = v.kind;
    if (v.kind == EXPLAIN_REAL) memcpy(&s->real, &v.value, sizeof s->real);
    else if (v.kind == EXPLAIN_FAULT) s->fault = fault_of(v);
    else s->value = v.value;
    s->with = kept;
    return v;
}

static void print_known(const explaining *x, text *t, known v) {
    if (v.kind == EXPLAIN_ARRAY) text_puts(t, x->s->arrays[v.value]->name);
    else if (v.kind == EXPLAIN_REAL) real_print_short(mc_real(v.value), t);
    else if (v.kind == EXPLAIN_NUMBER) text_printf(t, "%" PRId64, v.value);
    else if (v.kind == EXPLAIN_CONDITION) text_puts(t, v.value ? "true" : "false");
    else text_puts(t, "?");
}

static known fault(const char *words) { return (known){EXPLAIN_FAULT, (int64_t)(intptr_t)words}; }
static known array(uint32_t a) { return (known){EXPLAIN_ARRAY, a}; }
static known number(int64_t v) { return (known){EXPLAIN_NUMBER, v}; }
static known real(double v) { return (known){EXPLAIN_REAL, mc_real_bits(v)}; }
static double real_of(known v) { return v.kind == EXPLAIN_REAL ? mc_real(v.value) : (double)v.value; }
static known condition(bool v) { return (known){EXPLAIN_CONDITION, v}; }

/* --- operators ---------------------------------------------------------------------------------------------------- */

/* How two numbers compare: x < y, x == y, x > y; UNORDERED if one is not a number (NaN). */
typedef enum order { LESS, EQUAL, GREATER, UNORDERED } order;

static known apply_real(expr_op op, double x, double y) {
    switch (op) {
    case OP_ADD: return real(x + y);
    case OP_SUB: return real(x - y);
    case OP_MUL: return real(x * y);
    case OP_DIV: return real(x / y);
    default: return fault(NULL);
    }
}

static known apply_whole(expr_op op, int64_t x, int64_t y) {
    int64_t v = 0;
    switch (op) {
    case OP_ADD: return __builtin_add_overflow(x, y, &v) ? fault(FAULT_OVERFLOW) : number(v);
    case OP_SUB: return __builtin_sub_overflow(x, y, &v) ? fault(FAULT_OVERFLOW) : number(v);
    case OP_MUL: return __builtin_mul_overflow(x, y, &v) ? fault(FAULT_OVERFLOW) : number(v);
    case OP_DIV:
        if (y && !(x == INT64_MIN && y == -1)) return number(mc_div(x, y));
        return fault(y ? FAULT_OVERFLOW : FAULT_DIV_ZERO);
    case OP_MOD: return y == 0 ? fault(FAULT_DIV_ZERO) : number(mc_mod(x, y));
    default: return fault(NULL);
    }
}

static known apply(expr_op op, known a, known b) {
    if (a.kind == EXPLAIN_FAULT || b.kind == EXPLAIN_FAULT) return a.kind == EXPLAIN_FAULT ? a : b;
    const bool reals = a.kind == EXPLAIN_REAL || b.kind == EXPLAIN_REAL;
    const double x = real_of(a), y = real_of(b);
    const order o = reals ? x < y ? LESS : x == y ? EQUAL : x > y ? GREATER : UNORDERED
                          : a.value < b.value ? LESS : a.value == b.value ? EQUAL : GREATER;
    switch (op) {
    case OP_LT: return condition(o == LESS);
    case OP_LE: return condition(o == LESS || o == EQUAL);
    case OP_GT: return condition(o == GREATER);
    case OP_GE: return condition(o == GREATER || o == EQUAL);
    case OP_EQ: return condition(o == EQUAL);
    case OP_NE: return condition(o != EQUAL);
    default: return reals ? apply_real(op, x, y) : apply_whole(op, a.value, b.value);
    }
}

/* Evaluates a chain a op b op c ... of operators of one precedence without parentheses, which is one step. `and` and
 * `or` stop as soon as the answer is known. */
static known eval_chain(explaining *x, const expr *top, const scene *f, uint32_t depth, bool told) {
    expr_op kind = (expr_op)top->op;
    bool logic = kind == OP_AND || kind == OP_OR, done = false;
    const expr *e = top;
    while (e->a->kind == EXPR_BINARY && !e->a->parens &&
           words_op_precedence((expr_op)e->a->op) == words_op_precedence(kind))
        e = e->a;
    const explain_rule rule = kind == OP_AND ? EXPLAIN_AND : kind == OP_OR ? EXPLAIN_OR : EXPLAIN_LEAF;
    size_t step = begin_step(x, top, depth, rule, told);
    text with = {0};
    known v = eval(x, e->a, f, depth + 1, told);
    if (!logic) print_known(x, &with, v);
    for (;; e = e->up) {
        if (logic && !done) done = v.kind == EXPLAIN_FAULT || (v.value != 0) == (kind == OP_OR);
        if (logic && done) {
            begin_step(x, e->b, depth + 1, EXPLAIN_LEAF, told); /* it stays "not reached" */
        } else {
            known b = eval(x, e->b, f, depth + 1, told);
            if (!logic) {
                text_printf(&with, " %s ", words_op_spelling((expr_op)e->op));
                print_known(x, &with, b);
            }
            /* a score's `/` has whole numbers on both sides only if an `if` of real type chose them */
            if (e->op == OP_DIV && f->m->score && !x->in_index && v.kind == EXPLAIN_NUMBER) v = real(real_of(v));
            v = logic ? b : apply((expr_op)e->op, v, b);
        }
        if (e == top) break;
    }
    return end_step(x, step, v, &with);
}

static known eval_unary(explaining *x, const expr *e, const scene *f, uint32_t depth, bool told) {
    bool is_not = e->op == OP_NOT;
    size_t step = begin_step(x, e, depth, is_not ? EXPLAIN_NOT : EXPLAIN_LEAF, told);
    known v = eval(x, e->a, f, depth + 1, told);
    text with = {0};
    if (!is_not) {
        text_puts(&with, "-");
        print_known(x, &with, v);
    }
    if (v.kind == EXPLAIN_CONDITION) v = condition(!v.value);
    else if (v.kind == EXPLAIN_NUMBER) v = apply(OP_SUB, number(0), v);
    else if (v.kind == EXPLAIN_REAL) v = real(-real_of(v));
    return end_step(x, step, v, &with);
}

static known eval_if(explaining *x, const expr *e, const scene *f, uint32_t depth, bool told) {
    size_t step = begin_step(x, e, depth, EXPLAIN_IF, told);
    known c = eval(x, e->a, f, depth + 1, told), v = c;
    if (c.kind == EXPLAIN_CONDITION) {
        if (!c.value) begin_step(x, e->b, depth + 1, EXPLAIN_LEAF, told);
        v = eval(x, c.value ? e->b : e->c, f, depth + 1, told);
        if (c.value) begin_step(x, e->c, depth + 1, EXPLAIN_LEAF, told);
        /* a whole number becomes real if the other branch is */
        if (f->m->score && v.kind == EXPLAIN_NUMBER &&
            eval(x, c.value ? e->c : e->b, f, depth, false).kind == EXPLAIN_REAL)
            v = real(real_of(v));
    }
    return end_step(x, step, v, NULL);
}

static known real_function(uint32_t which, double x) {
    switch (which) {
    case BUILTIN_EXP: return real(exp(x));
    case BUILTIN_EXP2: return real(exp2(x));
    case BUILTIN_LOG: return real(log(x));
    case BUILTIN_LOG2: return real(log2(x));
    case BUILTIN_TANH:
    case BUILTIN_TANH_APPROX: return real(tanh(x));
    case BUILTIN_SQRT: return real(sqrt(x));
    default: return real(floor(x));
    }
}

/* The smaller, or the larger, of two values. */
static known extreme(bool least, known a, known b) {
    if (a.kind == EXPLAIN_FAULT || b.kind == EXPLAIN_FAULT) return a.kind == EXPLAIN_FAULT ? a : b;
    if (a.kind == EXPLAIN_REAL || b.kind == EXPLAIN_REAL) {
        double u = real_of(a), w = real_of(b);
        return real((least ? w < u : w > u) ? w : u);
    }
    return (least ? b.value < a.value : b.value > a.value) ? b : a;
}

static known exact(explaining *x, known a, known b) {
    if (a.kind == EXPLAIN_FAULT || b.kind == EXPLAIN_FAULT || !b.value || !mc_mod(a.value, b.value))
        return apply(OP_DIV, a, b);
    text words = {0};
    fault_words_exact(a.value, b.value, &words);
    return fault(keep_text(x, &words));
}

static known eval_builtin(explaining *x, const expr *e, const scene *f, uint32_t depth, bool told) {
    if (e->index == BUILTIN_RUN) return eval_run(x, e, f, depth, told);
    size_t step = begin_step(x, e, depth, EXPLAIN_LEAF, told);
    known v = {EXPLAIN_UNREACHED, 0};
    text with = {0};
    text_printf(&with, "%s(", e->name);
    for (const arg *a = e->args; a; a = a->next) {
        known b = eval(x, a->value, f, depth + 1, told);
        if (a != e->args) text_puts(&with, ", ");
        print_known(x, &with, b);
        if (e->index >= MASK_BUILTINS) v = b.kind == EXPLAIN_FAULT ? b : real_function(e->index, real_of(b));
        else if (e->index == BUILTIN_ABS && b.kind == EXPLAIN_REAL) v = real(fabs(real_of(b)));
        else if (e->index == BUILTIN_ABS) v = b.kind == EXPLAIN_NUMBER && b.value < 0 ? apply(OP_SUB, number(0), b) : b;
        else if (a == e->args) v = b;
        else if (e->index != BUILTIN_EXACT) v = extreme(e->index == BUILTIN_MIN, v, b);
        else v = exact(x, v, b);
    }
    text_puts(&with, ")");
    return end_step(x, step, v, &with);
}

static known eval_rect(explaining *x, const expr *e, const scene *f, uint32_t depth, bool told) {
    size_t step = begin_step(x, e, depth, EXPLAIN_BODY, told);
    return end_step(x, step, eval(x, e->target, f, depth + 1, told), NULL);
}

/* Finds the slices that allow the pair; the step names the first and counts the others. */
static known eval_slices(explaining *x, const expr *e, uint32_t depth, bool told) {
    size_t step = begin_step(x, e, depth, EXPLAIN_LEAF, told);
    const slice_source *from = e->target;
    const slice *first = NULL;
    uint64_t others = 0;
    for (size_t i = 0; i < from->count; i++) {
        if (!slice_allows(&from->at[i], x->out->q, x->out->k)) continue;
        others += first != NULL;
        if (!first) first = &from->at[i];
    }
    text with = {0};
    if (!from->count) { /* a plan keeps only the union of its slices */
        bool in = mc_in_bands(&x->s->out->slices[from->number], x->out->q, x->out->k);
        text_puts(&with, in ? "in one of the plan's bands" : "in none of the plan's bands");
        return end_step(x, step, condition(in), &with);
    }
    if (first) {
        text_printf(&with, "%s %u: %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %s", from->path ? "line" : "number",
                    first->line, first->q0, first->q1, first->k0, first->k1, bands_kinds[first->kind]);
        if (others) text_printf(&with, ", and %" PRIu64 " more", others);
    } else text_printf(&with, "none of the %zu", from->count);
    return end_step(x, step, condition(first != NULL), &with);
}

/* --- fields and tables -------------------------------------------------------------------------------------------- */

/* Binds an array to the explained sequence: the values of its tokens. */
static mc_array bound_array(const sema *s, const program_array *a, const whereabouts *w) {
    const mc_env env = {.n = w->n, .q_first = w->q_first, .queries = w->queries};
    const uint64_t start = w->alone || a->record.kind == FCP_TABLE ? 0 : sema_field_start(s, &a->record, w->sequence);
    return fcp_array_part(&a->record, a->data, start, &env);
}

/* Binds an array of the program to the explained sequence, and loads it if it is not loaded yet. */
static bool bind_array(explaining *x, uint32_t number_of, mc_array *out) {
    sema *s = x->s;
    if (!sema_load_array(s, number_of)) return false;
    const array_decl *a = s->arrays[number_of];
    if (!a->array.data) {
        diag_error(s->d, FCP_E_FIELD, a->at, "field '%s' has no values", a->name);
        diag_hint(s->d, "--field %s=FILE gives them", a->name);
        return false;
    }
    *out = bound_array(s, &a->array, x->where);
    return true;
}

/* Reads the element at `count` indices. `with` gets "keep[3, 0, 1]". */
static known read_element(explaining *x, known a, const known *index, int count, text *with) {
    mc_array bound;
    int64_t i[3] = {0};
    uint64_t at;
    if (a.kind != EXPLAIN_ARRAY || !bind_array(x, (uint32_t)a.value, &bound)) {
        x->failed = true;
        return fault(NULL);
    }
    text_puts(with, x->s->arrays[a.value]->name);
    for (int d = 0; d < count; d++) {
        text_puts(with, d ? ", " : "[");
        print_known(x, with, index[d]);
        i[d] = index[d].value;
    }
    if (count) text_puts(with, "]");
    for (int d = 0; d < count; d++)
        if (index[d].kind == EXPLAIN_FAULT) return index[d];
    if (!mc_place(&bound, i[0], i[1], i[2], &at)) {
        text words = {0};
        fault_words_index(&x->s->arrays[a.value]->array, &bound, i, &words);
        return fault(keep_text(x, &words));
    }
    return bound.width == MC_F64 ? real(((const double *)bound.data)[at]) : number(mc_int_at(&bound, at));
}

/* The value of a name where a number is wanted: of a field over sequences, the sequence's number. */
static known read_bare(explaining *x, known v) {
    if (v.kind != EXPLAIN_ARRAY || x->failed || !sema_is_bare(x->s, (uint32_t)v.value)) return v;
    text with = {0};
    v = read_element(x, v, NULL, 0, &with);
    text_free(&with);
    return v;
}

static known eval_index(explaining *x, const expr *e, const scene *f, uint32_t depth, bool told) {
    size_t step = begin_step(x, e, depth, EXPLAIN_LEAF, told);
    x->in_index++;
    const expr *const indices[] = {e->b, e->c, e->d};
    known a = eval_array(x, e->a, f, depth + 1, false), index[3];
    int count = 0;
    for (; count < 3 && indices[count]; count++) index[count] = eval(x, indices[count], f, depth + 1, told);
    x->in_index--;
    text with = {0};
    known v = x->failed ? fault(NULL) : read_element(x, a, index, count, &with);
    return end_step(x, step, v, &with);
}

static known eval_run(explaining *x, const expr *e, const scene *f, uint32_t depth, bool told) {
    size_t step = begin_step(x, e, depth, EXPLAIN_LEAF, told);
    known a = eval_array(x, e->args->value, f, depth + 1, false), t = eval(x, e->args->next->value, f, depth + 1, told);
    text with = {0};
    uint32_t derived =
        x->failed || a.kind != EXPLAIN_ARRAY ? ARRAY_ANY : sema_derive_run(x->s, (uint32_t)a.value);
    if (derived == ARRAY_ANY) x->failed = true;
    known v = x->failed ? fault(NULL) : read_element(x, array(derived), &t, 1, &with);
    return end_step(x, step, v, &with);
}

/* --- names -------------------------------------------------------------------------------------------------------- */

static known variable(const explaining *x, uint32_t index) {
    const explanation *o = x->out;
    return number(index == 0 ? o->q : index == 1 ? o->k : index == 2 ? o->n : o->h);
}

/* Is the expression a number or the name of one? Then it has no step of its own. */
static bool is_plain(const expr *e, const scene *f) {
    if (e->kind == EXPR_INT || e->kind == EXPR_FLOAT) return true;
    if (e->kind != EXPR_NAME) return false;
    if (e->ref == REF_ARRAY) return true;
    if (e->ref == REF_PARAM) return f->args[e->index].kind != EXPLAIN_CONDITION;
    return e->ref == REF_VAR || e->ref == REF_MODEL ||
           (e->ref == REF_DEF_PARAM && f->def_args[e->index].kind != EXPLAIN_CONDITION);
}

/* The argument that faults, so that the call does; NULL: none. */
static const known *argument_faults(explaining *x, const known *args, uint32_t count) {
    const known *found = NULL;
    for (uint32_t i = 0; i < count && !found; i++)
        if (args[i].kind == EXPLAIN_FAULT) found = &args[i];
    x->lazy |= found != NULL;
    return x->strict ? found : NULL;
}

/* Evaluates a body with its arguments in place. If the same was evaluated before, its steps are not recorded again. */
static known eval_body(explaining *x, const void *what, const expr *body, const scene *inner, uint32_t count,
                       size_t step, uint32_t depth, bool told) {
    uint32_t own = inner->def ? inner->def->param_count : 0, words = 3 + 2 * (own + count);
    int64_t *key = ARENA_NEW(x->s->scratch, int64_t, words);
    if (!key) {
        x->failed = true;
        return fault(NULL);
    }
    uint32_t w = 0;
    key[w++] = (int64_t)(uintptr_t)what;
    for (uint32_t i = 0; i < own; i++) key[w++] = inner->def_args[i].kind, key[w++] = inner->def_args[i].value;
    for (uint32_t i = 0; i < count; i++) key[w++] = inner->args[i].kind, key[w++] = inner->args[i].value;
    key[w++] = inner->s.kind;
    key[w++] = inner->s.value;
    uint64_t hash = memo_hash(key, words);
    memo *known_before = told ? &x->memo : &x->quiet;
    const memo_entry *before = memo_find(known_before, key, words, hash);
    if (before) {
        if (step != SIZE_MAX) x->out->steps[step].again = true;
        return (known){(explain_kind)before->answer[0], (int64_t)before->answer[1]};
    }
    uint32_t in_index = x->in_index;
    x->in_index = 0;
    known v = inner->def ? eval_array(x, body, inner, depth + 1, told) : eval(x, body, inner, depth + 1, told);
    x->in_index = in_index;
    const uint64_t answer[3] = {v.kind, (uint64_t)v.value, 0};
    if (!memo_add(known_before, x->s->scratch, key, words, hash, answer)) x->failed = true;
    return v;
}

static void print_args(const explaining *x, text *t, const arg *params, const known *values) {
    for (const arg *p = params; p; p = p->next, values++) {
        text_printf(t, "%s%s = ", p == params ? "" : ", ", p->name);
        print_known(x, t, *values);
    }
}

static known eval_definition(explaining *x, const expr *e, const scene *f, uint32_t depth, bool told) {
    const definition *d = e->target;
    size_t step = begin_step(x, e, depth, EXPLAIN_BODY, told);
    known *args = ARENA_NEW(x->s->scratch, known, d->param_count + 1);
    if (!args) {
        x->failed = true;
        return fault(NULL);
    }
    uint32_t i = 0;
    for (const arg *a = e->kind == EXPR_CALL ? e->args : NULL; a; a = a->next)
        args[i++] = eval_array(x, a->value, f, depth + 1, told);
    text with = {0};
    print_args(x, &with, d->params, args);
    scene inner = {.m = f->m, .args = f->args, .def = d, .def_args = args, .s = f->s};
    const known *faulty = argument_faults(x, args, i);
    if (faulty) return end_step(x, step, *faulty, &with);
    known v = eval_body(x, d, d->body, &inner, f->m->param_count, step, depth, told);
    return end_step(x, step, v, &with);
}

static known eval_mask(explaining *x, const expr *e, const scene *f, uint32_t depth, bool told) {
    const mask *m = e->target;
    size_t step = begin_step(x, e, depth, EXPLAIN_BODY, told);
    arg **given = ARENA_NEW(x->s->scratch, arg *, m->param_count + 1);
    known *args = ARENA_NEW(x->s->scratch, known, m->param_count + 1);
    if (!given || !args || !sema_bind_args(x->s, m, e->kind == EXPR_CALL ? e->args : NULL, e->at, given)) {
        x->failed = true;
        return fault(NULL);
    }
    uint32_t i = 0;
    for (const arg *p = m->params; p; p = p->next, i++) {
        int64_t v = 0;
        figure n;
        if (given[i] && p->as) args[i] = eval_array(x, given[i]->value, f, depth + 1, false);
        else if (given[i]) args[i] = eval(x, given[i]->value, f, depth + 1, told);
        else if (p->as) args[i] = array(sema_array_argument(x->s, p, p->value));
        else if (m->score && p->value->kind != EXPR_BOOL) {
            if (!expr_eval_number(x->s, p->value, p->name, &n)) x->failed = true;
            else args[i] = n.real ? real(n.value) : number(n.integer);
        } else if (p->value->kind == EXPR_BOOL) args[i] = condition(p->value->integer);
        else if (sema_eval_constant(x->s, p->value, p->name, &v)) args[i] = number(v);
        else x->failed = true;
        if (m->score && !x->failed && score_param_type(p) == TYPE_REAL && args[i].kind == EXPLAIN_NUMBER)
            args[i] = real(real_of(args[i]));
    }
    text with = {0};
    print_args(x, &with, m->params, args);
    scene inner = {.m = m, .args = args, .s = f->s};
    if (m->score && given[i]) {
        inner.s = eval(x, given[i]->value, f, depth + 1, told);
        if (inner.s.kind == EXPLAIN_NUMBER) inner.s = real(real_of(inner.s));
        text_puts(&with, i ? ", s = " : "s = ");
        print_known(x, &with, inner.s);
    }
    const known *faulty = argument_faults(x, args, i);
    if (faulty) return end_step(x, step, *faulty, &with);
    known v = eval_body(x, m, m->body, &inner, m->param_count, step, depth, told);
    if (m->score && v.kind == EXPLAIN_NUMBER) v = real(real_of(v));
    return end_step(x, step, v, &with);
}

/* Evaluates an expression. An array is returned as such, also if it is a field over sequences. */
static known eval_array(explaining *x, const expr *e, const scene *f, uint32_t depth, bool told) {
    if (x->failed) return fault(NULL);
    if (is_plain(e, f)) told = false;
    known v;
    switch ((expr_kind)e->kind) {
    case EXPR_INT: return number(e->integer);
    case EXPR_FLOAT: {
        double exact;
        return real_parse(e->name, &exact) ? real(exact) : fault(NULL); /* sema has refused what does not parse */
    }
    case EXPR_BOOL:
        v = condition(e->integer);
        return end_step(x, begin_step(x, e, depth, EXPLAIN_LEAF, told), v, NULL);
    case EXPR_UNARY:
        return eval_unary(x, e, f, depth,
                          told && !(e->op == OP_NEG && (e->a->kind == EXPR_INT || e->a->kind == EXPR_FLOAT)));
    case EXPR_BINARY: return eval_chain(x, e, f, depth, told);
    case EXPR_IF: return eval_if(x, e, f, depth, told);
    case EXPR_NAME:
    case EXPR_CALL:
        switch (e->ref) {
        case REF_VAR: return e->index == VARIABLE_S ? f->s : variable(x, e->index);
        case REF_MODEL: return number(e->index == 0 ? x->s->out->heads : x->s->out->kv_heads);
        case REF_PARAM:
        case REF_DEF_PARAM:
            v = e->ref == REF_PARAM ? f->args[e->index] : f->def_args[e->index];
            return end_step(x, begin_step(x, e, depth, EXPLAIN_LEAF, told), v, NULL);
        case REF_ARRAY: return array(e->index);
        case REF_DEF: return eval_definition(x, e, f, depth, told);
        case REF_MASK:
        case REF_SCORE: return eval_mask(x, e, f, depth, told);
        case REF_BUILTIN:
            if (e->index == BUILTIN_RECT) return eval_rect(x, e, f, depth, told);
            if (e->index == BUILTIN_SLICES) return eval_slices(x, e, depth, told);
            return eval_builtin(x, e, f, depth, told);
        default: break;
        }
        break;
    case EXPR_INDEX: return eval_index(x, e, f, depth, told);
    default: break;
    }
    diag_error(x->s->d, FCP_E_UNSUPPORTED, e->at, "explain does not know this kind of expression");
    x->failed = true;
    return fault(NULL);
}

static known eval(explaining *x, const expr *e, const scene *f, uint32_t depth, bool told) {
    return read_bare(x, eval_array(x, e, f, depth, told));
}

/* --- because ------------------------------------------------------------------------------------------------------ */

/* Adds what faults first in step i, and how: "100 / k: division by zero (100 / 0)". */
static void because_of_fault(explaining *x, size_t i) {
    explanation *o = x->out;
    for (size_t j = i + 1; j < o->count && o->steps[j].depth > o->steps[i].depth; j++)
        if (o->steps[j].kind == EXPLAIN_FAULT) i = j;
    const explain_step *s = &o->steps[i];
    text t = {0};
    text_printf(&t, "%s: %s", s->text, s->fault);
    if (*s->with && strcmp(s->with, s->text)) text_printf(&t, " (%s)", s->with);
    o->because[o->reasons++] = keep_text(x, &t);
}

/* Adds the conditions that decide the value of step i. */
static void because(explaining *x, size_t i) {
    explanation *o = x->out;
    const explain_step *s = &o->steps[i];
    bool inner = false;
    for (size_t j = i + 1; j < o->count && o->steps[j].depth > s->depth && s->kind == EXPLAIN_CONDITION; j++) {
        const explain_step *c = &o->steps[j];
        if (c->depth != s->depth + 1 || c->kind != EXPLAIN_CONDITION) continue;
        if (s->rule == EXPLAIN_LEAF || ((s->rule == EXPLAIN_AND || s->rule == EXPLAIN_OR) && c->value != s->value))
            continue;
        if (s->rule == EXPLAIN_BODY) { /* its body is the last step below it; arguments come before */
            size_t next = j + 1;
            while (next < o->count && o->steps[next].depth > c->depth) next++;
            if (next < o->count && o->steps[next].depth == c->depth) continue;
        }
        inner = true;
        because(x, j);
    }
    if (inner || s->kind != EXPLAIN_CONDITION) return;
    if (o->reasons == sizeof o->because / sizeof *o->because) return;
    text t = {0};
    text_printf(&t, "%s is %s%s%s%s", s->text, s->value ? "true" : "false", *s->with ? " (" : "", s->with,
                *s->with ? ")" : "");
    o->because[o->reasons++] = keep_text(x, &t);
}

/* --- the pair ----------------------------------------------------------------------------------------------------- */

/* Makes the environment in which the mask code is evaluated for the explained sequence. */
static bool bind_program(const sema *s, const whereabouts *w, mc_env *out) {
    const struct fcpc_program *p = s->out;
    mc_array *arrays = ARENA_NEW(s->scratch, mc_array, p->array_count + (size_t)1);
    if (!arrays) return false;
    for (uint32_t i = 0; i < p->array_count; i++) arrays[i] = bound_array(s, &p->arrays[i], w);
    *out = (mc_env){.n = w->n, .q_first = w->q_first, .queries = w->queries, .arrays = arrays, .bands = p->slices};
    return true;
}

/* *out: does the mask code give the same answer? False: out of memory. */
static bool agrees(const sema *s, const explanation *o, const whereabouts *w, bool *out) {
    const struct fcpc_program *p = s->out;
    int64_t *values = ARENA_NEW(s->scratch, int64_t, p->mask.count);
    bool allowed = false;
    uint32_t node;
    mc_env env;
    if (!values || !bind_program(s, w, &env)) return false;
    mc_fault f = mc_eval_checked(p->mask, &env, o->q, o->k, o->h, values, &allowed, &node);
    *out = f == MC_OK ? o->kind == EXPLAIN_CONDITION && o->allowed == allowed : o->kind == EXPLAIN_FAULT;
    return true;
}

/* Evaluates the plan's score, after the mask. */
static fcp_code explain_score(sema *s, explanation *o, const whereabouts *w, size_t room) {
    const struct fcpc_program *p = s->out;
    const mask *m = s->plan_score;
    explaining x = {.s = s, .out = o, .where = w, .room = room, .strict = true};
    known *args = ARENA_NEW(s->scratch, known, m->param_count + 1);
    int64_t *values = ARENA_NEW(s->scratch, int64_t, p->score.count + (size_t)1);
    o->score = arena_copy(&o->arena, p->score_name, strlen(p->score_name));
    if (!args || !values || !o->score) return FCP_E_NO_MEMORY;
    uint32_t i = 0;
    for (const arg *a = m->params; a; a = a->next, i++) {
        const figure *n = &s->plan_numbers[i];
        args[i] = a->as || n->field                  ? array((uint32_t)n->integer)
                  : score_param_type(a) == TYPE_BOOL ? condition(n->integer)
                  : n->real                          ? real(n->value)
                                                     : number(n->integer);
    }
    const scene f = {.m = m, .args = args, .s = real(o->s)};
    o->score_first = o->count;
    known v = eval(&x, m->body, &f, 0, true);
    memo_free(&x.memo);
    memo_free(&x.quiet);
    if (x.failed) return diag_errors(s->d) ? diag_first_code(s->d) : FCP_E_NO_MEMORY;
    o->score_faults = v.kind == EXPLAIN_FAULT;
    if (o->score_faults) o->fault = fault_of(v);
    if (o->score_faults) return FCP_OK;
    o->scored = real_of(v);
    mc_env env;
    if (!bind_program(s, w, &env)) return FCP_E_NO_MEMORY;
    double made = p->score.count ? mc_eval_score(p->score, &env, o->q, o->k, o->h, o->s, values) : o->s;
    if (made == o->scored || (isnan(made) && isnan(o->scored))) return FCP_OK;
    diag_error(s->d, FCP_E_INTERNAL, p->at[AT_SCORE],
               "the score's code gives another answer for q = %" PRId64 ", k = %" PRId64, o->q, o->k);
    return FCP_E_INTERNAL;
}

static fcp_code explain_mask(sema *s, void *context) {
    explanation *o = context;
    const struct fcpc_program *p = s->out;
    const mask *m = s->plan_mask;
    whereabouts w;
    fcp_code code = explain_where(s, o, &w);
    if (code != FCP_OK) return code;
    explaining x;
    known *args = ARENA_NEW(s->scratch, known, m->param_count + 1);
    o->mask = arena_copy(&o->arena, p->mask_name, strlen(p->mask_name));
    if (!args || !o->mask) return FCP_E_NO_MEMORY;
    uint32_t i = 0;
    for (const arg *a = m->params; a; a = a->next, i++)
        args[i] = s->plan_values[i].field || a->as          ? array((uint32_t)s->plan_values[i].integer)
                  : a->value && a->value->kind == EXPR_BOOL ? condition(s->plan_values[i].integer)
                                                            : number(s->plan_values[i].integer);
    scene f = {.m = m, .args = args};
    o->by_head = mc_uses(p->mask) & MC_USES_H;
    bool same = false;
    for (int strict = 0; strict < 2 && !same; strict++) {
        x = (explaining){.s = s, .out = o, .strict = strict, .where = &w};
        o->count = o->left_out = o->reasons = 0;
        known v = eval(&x, m->body, &f, 0, true);
        memo_free(&x.memo);
        memo_free(&x.quiet);
        o->kind = v.kind;
        o->allowed = v.kind == EXPLAIN_CONDITION && v.value;
        o->fault = fault_of(v);
        if (!x.failed && o->count && v.kind == EXPLAIN_FAULT) because_of_fault(&x, 0);
        else if (!x.failed && o->count) because(&x, 0);
        if (x.failed && diag_errors(s->d)) return diag_first_code(s->d);
        if (x.failed || !agrees(s, o, &w, &same)) return FCP_E_NO_MEMORY;
        if (!x.lazy) break;
    }
    if (same) return s->plan_score && o->allowed ? explain_score(s, o, &w, x.room) : FCP_OK;
    diag_error(s->d, FCP_E_INTERNAL, p->at[AT_MASK],
               "the mask code gives another answer for q = %" PRId64 ", k = %" PRId64, o->q, o->k);
    return FCP_E_INTERNAL;
}

/* Of a plan with layers that recur, finds the stretch of the query. */
static fcp_code explain_recurs(explanation *o) {
    explain_stretch *x = ARENA_NEW(&o->arena, explain_stretch, 1);
    bool found;
    if (!x) return FCP_E_NO_MEMORY;
    const fcp_code code = explain_stretch_find(o->plan, o->sequence, o->q, &o->arena, x, &found);
    if (code == FCP_OK && found) o->stretch = x;
    return code;
}

/* Explains the mask and, for a plan, finds the rank that computes the pair, for which it searches all tiles. */
static fcp_code explain_whole(sema *s, void *context) {
    explanation *o = context;
    fcp_code code = explain_mask(s, o);
    if (code != FCP_OK || !o->plan) return code;
    code = explain_recurs(o);
    if (code != FCP_OK || !o->allowed) return code;
    explain_computed *c = ARENA_NEW(&o->arena, explain_computed, 1);
    bool found;
    if (!c) return FCP_E_NO_MEMORY;
    code = explain_computed_find(o->plan, o->sequence, o->q, o->k, o->h, &o->arena, c, &found);
    if (code == FCP_OK && found) o->computed = c;
    return code;
}

fcp_code explain_pair(const char *name, const char *bytes, size_t size, const fcpc_options *options, diags *d,
                      explanation *out) {
    const front_input in = {name, bytes, size, options, out->plan, out->layer};
    fcpc_program *p = NULL;
    fcp_code code = front_parse(&in, d, &p, explain_whole, out);
    fcpc_program_free(p);
    return code;
}

typedef struct many {
    const fcp_plan *plan;
    explain_next *next;
    explain_told *told;
    void *context;
} many;

static fcp_code explain_each(sema *s, void *context) {
    const many *m = context;
    fcp_code code = FCP_OK;
    for (explanation o = {.plan = m->plan}; !code && m->next(m->context, &o); o = (explanation){.plan = m->plan}) {
        code = explain_mask(s, &o);
        if (!code) m->told(m->context, &o);
        arena_free(&o.arena);
    }
    return code;
}

fcp_code explain_pairs(const char *name, const char *bytes, size_t size, const fcpc_options *options,
                       const fcp_plan *plan, explain_next *next, explain_told *told, diags *d, void *context) {
    many m = {plan, next, told, context};
    const front_input in = {name, bytes, size, options, plan, 0};
    fcpc_program *p = NULL;
    fcp_code code = front_parse(&in, d, &p, explain_each, &m);
    fcpc_program_free(p);
    return code;
}
