/* explain.c: evaluates a mask for one pair on its syntax tree, and keeps what every sub-expression came to.
 *
 * Requires: a program that checks. Gives: the steps of the evaluation, in order; the conditions that decide the answer.
 * Meaning: that of the language: from left to right, stopping where the answer is known, a fault only where it is
 *      reached. An argument that faults makes its call fault if the body uses it at all, reached or not; that is found
 *      out by asking the mask code, which is what a plan holds, and with which the answer must agree in any case.
 * Cost: O(distinct calls x size of their bodies), with the text of a step as long as its expression.
 */
#include "explain.h"

#include <inttypes.h>
#include <string.h>

#include "memo.h"
#include "sema.h"

enum { TEXT_MAX = 2000 };

typedef struct known {
    explain_kind kind;
    int64_t value;
} known;

/* Where an expression stands: see expr.c. */
typedef struct frame {
    const mask *m;
    const known *args;
    const definition *def;
    const known *def_args;
} frame;

typedef struct explaining {
    sema *s;
    explanation *out;
    size_t room;
    memo memo;
    uint64_t first; /* where the sequence's tokens begin in the batch */
    bool strict; /* a call with an argument that faults faults */
    bool lazy;   /* such a call did not, as it is not strict */
    bool failed;
} explaining;

static known eval(explaining *x, const expr *e, const frame *f, uint32_t depth, bool told);
static known eval_run(explaining *x, const expr *e, const frame *f, uint32_t depth, bool told);

/* --- steps -------------------------------------------------------------------------------------------------------- */

static const char *keep(explaining *x, text *t) {
    const char *copy =
        t->failed ? NULL : arena_copy(&x->out->arena, t->at ? t->at : "", t->size < TEXT_MAX ? t->size : TEXT_MAX);
    text_free(t);
    if (!copy) x->failed = true;
    return copy ? copy : "";
}

/* Begins a step; its number, or SIZE_MAX where it is not kept. */
static size_t begin_step(explaining *x, const expr *e, uint32_t depth, explain_rule rule) {
    explanation *o = x->out;
    if (x->failed) return SIZE_MAX;
    if (o->count == EXPLAIN_STEPS) {
        o->left_out++;
        return SIZE_MAX;
    }
    if (o->count == x->room) {
        size_t room = x->room ? x->room * 2 : 64;
        explain_step *grown = ARENA_NEW(&o->arena, explain_step, room);
        if (!grown) {
            x->failed = true;
            return SIZE_MAX;
        }
        if (o->count) memcpy(grown, o->steps, o->count * sizeof *grown);
        o->steps = grown;
        x->room = room;
    }
    text t = {0};
    expr_print(e, &t);
    explain_step *s = &o->steps[o->count];
    *s = (explain_step){.depth = depth, .rule = rule, .kind = EXPLAIN_UNREACHED, .with = ""};
    s->text = keep(x, &t);
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

static known end_step(explaining *x, size_t step, known v, text *with) {
    const char *kept = with ? keep(x, with) : "";
    if (step == SIZE_MAX) return v;
    explain_step *s = &x->out->steps[step];
    s->kind = v.kind;
    s->value = v.value;
    s->with = kept;
    return v;
}

static void print_known(const explaining *x, text *t, known v) {
    if (v.kind == EXPLAIN_ARRAY) text_puts(t, x->s->arrays[v.value]->name);
    else if (v.kind == EXPLAIN_NUMBER) text_printf(t, "%" PRId64, v.value);
    else if (v.kind == EXPLAIN_CONDITION) text_puts(t, v.value ? "true" : "false");
    else text_puts(t, "?");
}

static known fault(void) { return (known){EXPLAIN_FAULT, 0}; }
static known array(uint32_t a) { return (known){EXPLAIN_ARRAY, a}; }
static known number(int64_t v) { return (known){EXPLAIN_NUMBER, v}; }
static known condition(bool v) { return (known){EXPLAIN_CONDITION, v}; }

/* --- operators ---------------------------------------------------------------------------------------------------- */

static known apply(expr_op op, known a, known b) {
    if (a.kind == EXPLAIN_FAULT || b.kind == EXPLAIN_FAULT) return fault();
    int64_t v = 0, x = a.value, y = b.value;
    switch (op) {
    case OP_LT: return condition(x < y);
    case OP_LE: return condition(x <= y);
    case OP_GT: return condition(x > y);
    case OP_GE: return condition(x >= y);
    case OP_EQ: return condition(x == y);
    case OP_NE: return condition(x != y);
    case OP_ADD: return __builtin_add_overflow(x, y, &v) ? fault() : number(v);
    case OP_SUB: return __builtin_sub_overflow(x, y, &v) ? fault() : number(v);
    case OP_MUL: return __builtin_mul_overflow(x, y, &v) ? fault() : number(v);
    case OP_DIV: return y == 0 || (x == INT64_MIN && y == -1) ? fault() : number(mc_div(x, y));
    case OP_MOD: return y == 0 ? fault() : number(mc_mod(x, y));
    default: return fault();
    }
}

/* a op b op c ..., of one precedence and without parentheses, as one step. `and` and `or` stop where they may. */
static known eval_chain(explaining *x, const expr *top, const frame *f, uint32_t depth, bool told) {
    expr_op kind = (expr_op)top->op;
    bool logic = kind == OP_AND || kind == OP_OR, done = false;
    const expr *e = top;
    while (e->a->kind == EXPR_BINARY && !e->a->parens && op_precedence((expr_op)e->a->op) == op_precedence(kind))
        e = e->a;
    size_t step = told ? begin_step(x, top, depth,
                                    kind == OP_AND  ? EXPLAIN_AND
                                    : kind == OP_OR ? EXPLAIN_OR
                                                    : EXPLAIN_LEAF)
                       : SIZE_MAX;
    text with = {0};
    known v = eval(x, e->a, f, depth + 1, told);
    if (!logic) print_known(x, &with, v);
    for (;; e = e->up) {
        if (logic && !done) done = v.kind == EXPLAIN_FAULT || (v.value != 0) == (kind == OP_OR);
        if (logic && done) {
            if (told) begin_step(x, e->b, depth + 1, EXPLAIN_LEAF); /* stays not reached */
        } else {
            known b = eval(x, e->b, f, depth + 1, told);
            if (!logic) {
                text_printf(&with, " %s ", op_spelling((expr_op)e->op));
                print_known(x, &with, b);
            }
            v = logic ? b : apply((expr_op)e->op, v, b);
        }
        if (e == top) break;
    }
    return end_step(x, step, v, &with);
}

static known eval_unary(explaining *x, const expr *e, const frame *f, uint32_t depth, bool told) {
    bool is_not = e->op == OP_NOT;
    size_t step = told ? begin_step(x, e, depth, is_not ? EXPLAIN_NOT : EXPLAIN_LEAF) : SIZE_MAX;
    known v = eval(x, e->a, f, depth + 1, told);
    text with = {0};
    if (!is_not) {
        text_puts(&with, "-");
        print_known(x, &with, v);
    }
    if (v.kind == EXPLAIN_CONDITION) v = condition(!v.value);
    else if (v.kind == EXPLAIN_NUMBER) v = apply(OP_SUB, number(0), v);
    return end_step(x, step, v, &with);
}

static known eval_if(explaining *x, const expr *e, const frame *f, uint32_t depth, bool told) {
    size_t step = told ? begin_step(x, e, depth, EXPLAIN_IF) : SIZE_MAX;
    known c = eval(x, e->a, f, depth + 1, told), v = fault();
    if (c.kind == EXPLAIN_CONDITION) {
        if (!c.value && told) begin_step(x, e->b, depth + 1, EXPLAIN_LEAF);
        v = eval(x, c.value ? e->b : e->c, f, depth + 1, told);
        if (c.value && told) begin_step(x, e->c, depth + 1, EXPLAIN_LEAF);
    }
    return end_step(x, step, v, NULL);
}

static known eval_builtin(explaining *x, const expr *e, const frame *f, uint32_t depth, bool told) {
    if (e->index == BUILTIN_RUN) return eval_run(x, e, f, depth, told);
    size_t step = told ? begin_step(x, e, depth, EXPLAIN_LEAF) : SIZE_MAX;
    known v = {EXPLAIN_UNREACHED, 0};
    text with = {0};
    text_printf(&with, "%s(", e->name);
    for (const arg *a = e->args; a; a = a->next) {
        known b = eval(x, a->value, f, depth + 1, told);
        if (a != e->args) text_puts(&with, ", ");
        print_known(x, &with, b);
        if (!strcmp(e->name, "abs")) v = b.kind == EXPLAIN_NUMBER && b.value < 0 ? apply(OP_SUB, number(0), b) : b;
        else if (a == e->args || v.kind == EXPLAIN_FAULT) v = v.kind == EXPLAIN_FAULT ? v : b;
        else if (b.kind == EXPLAIN_FAULT) v = b;
        else if (!strcmp(e->name, "exact")) v = b.value && mc_mod(v.value, b.value) ? fault() : apply(OP_DIV, v, b);
        else if (!strcmp(e->name, "min") ? b.value < v.value : b.value > v.value) v = b;
    }
    text_puts(&with, ")");
    return end_step(x, step, v, &with);
}

/* --- fields and tables -------------------------------------------------------------------------------------------- */

/* The values of an array as the sequence explained sees them. */
static bool bind_array(explaining *x, uint32_t number_of, mc_array *out) {
    sema *s = x->s;
    if (!load_array(s, number_of)) return false;
    const array_decl *a = s->arrays[number_of];
    const fcp_array *r = &a->array.record;
    if (!a->array.data) {
        diag_error(s->d, FCP_E_FIELD, a->at, "field '%s' has no values", a->name);
        diag_hint(s->d, "--field %s=FILE gives them", a->name);
        return false;
    }
    *out = (mc_array){.data = a->array.data, .count = (int64_t)r->count, .columns = (uint32_t)r->columns,
                      .width = (mc_width)r->width};
    if (a->table) return true;
    out->data = (const char *)a->array.data + x->first * r->width;
    out->count = x->out->n;
    return true;
}

static known read_element(explaining *x, known a, known i, known j, text *with) {
    mc_array bound;
    if (a.kind != EXPLAIN_ARRAY || !bind_array(x, (uint32_t)a.value, &bound)) {
        x->failed = true;
        return fault();
    }
    text_printf(with, "%s[", x->s->arrays[a.value]->name);
    print_known(x, with, i);
    if (bound.columns) {
        text_puts(with, ", ");
        print_known(x, with, j);
    }
    text_puts(with, "]");
    uint64_t at;
    if (i.kind != EXPLAIN_NUMBER || j.kind != EXPLAIN_NUMBER || !mc_place(&bound, i.value, j.value, &at)) return fault();
    return number(mc_int_at(&bound, at));
}

static known eval_index(explaining *x, const expr *e, const frame *f, uint32_t depth, bool told) {
    size_t step = told ? begin_step(x, e, depth, EXPLAIN_LEAF) : SIZE_MAX;
    known a = eval(x, e->a, f, depth + 1, false), i = eval(x, e->b, f, depth + 1, told);
    known j = e->c ? eval(x, e->c, f, depth + 1, told) : number(0);
    text with = {0};
    known v = x->failed ? fault() : read_element(x, a, i, j, &with);
    return end_step(x, step, v, &with);
}

static known eval_run(explaining *x, const expr *e, const frame *f, uint32_t depth, bool told) {
    size_t step = told ? begin_step(x, e, depth, EXPLAIN_LEAF) : SIZE_MAX;
    known a = eval(x, e->args->value, f, depth + 1, false), t = eval(x, e->args->next->value, f, depth + 1, told);
    text with = {0};
    uint32_t derived =
        x->failed || a.kind != EXPLAIN_ARRAY ? ARRAY_ANY : derive_run(x->s, (uint32_t)a.value);
    if (derived == ARRAY_ANY) x->failed = true;
    known v = x->failed ? fault() : read_element(x, array(derived), t, number(0), &with);
    return end_step(x, step, v, &with);
}

/* --- names -------------------------------------------------------------------------------------------------------- */

static known variable(const explaining *x, uint32_t index) {
    const explanation *o = x->out;
    return number(index == 0 ? o->q : index == 1 ? o->k : index == 2 ? o->n : o->h);
}

/* Is it a number or the name of one, which is no step? */
static bool is_plain(const expr *e, const frame *f) {
    if (e->kind == EXPR_INT) return true;
    if (e->kind != EXPR_NAME) return false;
    if (e->ref == REF_ARRAY) return true;
    if (e->ref == REF_PARAM) return f->args[e->index].kind != EXPLAIN_CONDITION;
    return e->ref == REF_VAR || (e->ref == REF_DEF_PARAM && f->def_args[e->index].kind != EXPLAIN_CONDITION);
}

/* Is there an argument that faults, and does that count? */
static bool argument_faults(explaining *x, const known *args, uint32_t count) {
    bool found = false;
    for (uint32_t i = 0; i < count; i++) found |= args[i].kind == EXPLAIN_FAULT;
    x->lazy |= found;
    return found && x->strict;
}

/* Evaluates a body with its arguments in place; what was told before is not told again. */
static known eval_body(explaining *x, const void *what, const expr *body, const frame *inner, uint32_t count,
                       size_t step, uint32_t depth, bool told) {
    uint32_t own = inner->def ? inner->def->param_count : 0, words = 1 + 2 * (own + count);
    int64_t *key = ARENA_NEW(x->s->scratch, int64_t, words);
    if (!key) {
        x->failed = true;
        return fault();
    }
    uint32_t w = 0;
    key[w++] = (int64_t)(uintptr_t)what;
    for (uint32_t i = 0; i < own; i++) key[w++] = inner->def_args[i].kind, key[w++] = inner->def_args[i].value;
    for (uint32_t i = 0; i < count; i++) key[w++] = inner->args[i].kind, key[w++] = inner->args[i].value;
    uint64_t hash = memo_hash(key, words);
    const memo_entry *before = memo_find(&x->memo, key, words, hash);
    if (before) {
        if (step != SIZE_MAX) x->out->steps[step].again = true;
        return (known){(explain_kind)before->answer[0], (int64_t)before->answer[1]};
    }
    known v = eval(x, body, inner, depth + 1, told);
    const uint64_t answer[3] = {v.kind, (uint64_t)v.value, 0};
    if (!memo_add(&x->memo, x->s->scratch, key, words, hash, answer)) x->failed = true;
    return v;
}

static void print_args(const explaining *x, text *t, const arg *params, const known *values) {
    for (const arg *p = params; p; p = p->next, values++) {
        text_printf(t, "%s%s = ", p == params ? "" : ", ", p->name);
        print_known(x, t, *values);
    }
}

static known eval_definition(explaining *x, const expr *e, const frame *f, uint32_t depth, bool told) {
    const definition *d = e->target;
    size_t step = told ? begin_step(x, e, depth, EXPLAIN_BODY) : SIZE_MAX;
    known *args = ARENA_NEW(x->s->scratch, known, d->param_count + 1);
    if (!args) {
        x->failed = true;
        return fault();
    }
    uint32_t i = 0;
    for (const arg *a = e->kind == EXPR_CALL ? e->args : NULL; a; a = a->next)
        args[i++] = eval(x, a->value, f, depth + 1, told);
    text with = {0};
    print_args(x, &with, d->params, args);
    frame inner = {.m = f->m, .args = f->args, .def = d, .def_args = args};
    if (argument_faults(x, args, i)) return end_step(x, step, fault(), &with);
    known v = eval_body(x, d, d->body, &inner, f->m->param_count, step, depth, told);
    return end_step(x, step, v, &with);
}

static known eval_mask(explaining *x, const expr *e, const frame *f, uint32_t depth, bool told) {
    const mask *m = e->target;
    size_t step = told ? begin_step(x, e, depth, EXPLAIN_BODY) : SIZE_MAX;
    arg **given = ARENA_NEW(x->s->scratch, arg *, m->param_count + 1);
    known *args = ARENA_NEW(x->s->scratch, known, m->param_count + 1);
    if (!given || !args || !bind_args(x->s, m, e->kind == EXPR_CALL ? e->args : NULL, e->at, given)) {
        x->failed = true;
        return fault();
    }
    uint32_t i = 0;
    for (const arg *p = m->params; p; p = p->next, i++) {
        int64_t v = 0;
        if (given[i]) args[i] = eval(x, given[i]->value, f, depth + 1, told && !p->as);
        else if (p->as) args[i] = array(array_argument(x->s, p, p->value));
        else if (p->value->kind == EXPR_BOOL) args[i] = condition(p->value->integer);
        else if (eval_constant(x->s, p->value, p->name, &v)) args[i] = number(v);
        else x->failed = true;
    }
    text with = {0};
    print_args(x, &with, m->params, args);
    frame inner = {.m = m, .args = args};
    if (argument_faults(x, args, i)) return end_step(x, step, fault(), &with);
    known v = eval_body(x, m, m->body, &inner, m->param_count, step, depth, told);
    return end_step(x, step, v, &with);
}

static known eval(explaining *x, const expr *e, const frame *f, uint32_t depth, bool told) {
    if (x->failed) return fault();
    if (is_plain(e, f)) told = false;
    known v;
    switch ((expr_kind)e->kind) {
    case EXPR_INT: return number(e->integer);
    case EXPR_BOOL:
        v = condition(e->integer);
        return end_step(x, told ? begin_step(x, e, depth, EXPLAIN_LEAF) : SIZE_MAX, v, NULL);
    case EXPR_UNARY: return eval_unary(x, e, f, depth, told && !(e->op == OP_NEG && e->a->kind == EXPR_INT));
    case EXPR_BINARY: return eval_chain(x, e, f, depth, told);
    case EXPR_IF: return eval_if(x, e, f, depth, told);
    case EXPR_NAME:
    case EXPR_CALL:
        switch (e->ref) {
        case REF_VAR: return variable(x, e->index);
        case REF_PARAM:
        case REF_DEF_PARAM:
            v = e->ref == REF_PARAM ? f->args[e->index] : f->def_args[e->index];
            return end_step(x, told ? begin_step(x, e, depth, EXPLAIN_LEAF) : SIZE_MAX, v, NULL);
        case REF_ARRAY: return array(e->index);
        case REF_DEF: return eval_definition(x, e, f, depth, told);
        case REF_MASK: return eval_mask(x, e, f, depth, told);
        case REF_BUILTIN: return eval_builtin(x, e, f, depth, told);
        default: break;
        }
        break;
    case EXPR_INDEX: return eval_index(x, e, f, depth, told);
    default: break;
    }
    diag_error(x->s->d, FCP_E_UNSUPPORTED, e->at, "explain does not know this kind of expression");
    x->failed = true;
    return fault();
}

/* --- because ------------------------------------------------------------------------------------------------------ */

/* Notes the conditions that decide step i. */
static void because(explaining *x, size_t i) {
    explanation *o = x->out;
    const explain_step *s = &o->steps[i];
    bool inner = false;
    for (size_t j = i + 1; j < o->count && o->steps[j].depth > s->depth && s->kind == EXPLAIN_CONDITION; j++) {
        const explain_step *c = &o->steps[j];
        if (c->depth != s->depth + 1 || c->kind != EXPLAIN_CONDITION) continue;
        if (s->rule == EXPLAIN_LEAF || ((s->rule == EXPLAIN_AND || s->rule == EXPLAIN_OR) && c->value != s->value))
            continue;
        if (s->rule == EXPLAIN_BODY) { /* the last one: before it come arguments */
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
    o->because[o->reasons++] = keep(x, &t);
}

/* --- the pair ----------------------------------------------------------------------------------------------------- */

/* Chooses the sequence: out->n, and where its tokens begin in the batch. */
static fcp_code choose_sequence(sema *s, explanation *o, uint64_t *first) {
    const struct fcpc_program *p = s->out;
    const uint64_t *sizes = o->plan ? o->plan->sequences : p->lengths;
    size_t count = o->plan ? (size_t)o->plan->sequences_count : p->length_count, at = 0;
    const program_array *field = NULL;
    for (uint32_t i = 0; i < p->array_count; i++) {
        const program_array *a = &p->arrays[i];
        if (a->record.kind != FCP_TABLE && !field) field = a;
        if (a->data) continue;
        diag_error(s->d, FCP_E_FIELD, a->at, "field '%s' has no values", a->run_of ? a->run_of : a->name);
        diag_hint(s->d, "--field %s=FILE gives them", a->run_of ? a->run_of : a->name);
        return FCP_E_FIELD;
    }
    if (!count && field) sizes = &field->record.count, count = 1; /* as one sequence */
    *first = 0;
    if (o->asked && o->sequence >= count) {
        diag_error(s->d, FCP_E_VALUE, SPAN_NONE, "there is no sequence %" PRIu64 ": the batch has %zu, from 0", o->sequence,
                   count);
        return FCP_E_VALUE;
    }
    bool any = !o->asked;
    if (any && o->n && !field) return FCP_OK;
    if (!any) at = (size_t)o->sequence;
    else if (o->n)
        while (at < count && sizes[at] != (uint64_t)o->n) at++;
    else
        for (size_t i = 1; i < count; i++)
            if (sizes[i] > sizes[at]) at = i;
    if (field && (at == count || (o->n && sizes[at] != (uint64_t)o->n))) {
        if (any) diag_error(s->d, FCP_E_VALUE, SPAN_NONE, "the batch has no sequence of %" PRId64 " tokens", o->n);
        else
            diag_error(s->d, FCP_E_VALUE, SPAN_NONE, "sequence %" PRIu64 " has %" PRIu64 " tokens, not %" PRId64,
                       o->sequence, sizes[at], o->n);
        diag_hint(s->d, "field '%s' has values for the batch's sequences only; --seq says which", field->name);
        return FCP_E_VALUE;
    }
    for (size_t i = 0; i < at && field; i++) *first += sizes[i];
    if (!o->n) o->n = count ? (int64_t)sizes[at] : (o->q > o->k ? o->q : o->k) + 1;
    o->by_field = field != NULL;
    o->sequence = at;
    return FCP_OK;
}

static bool check_pair(sema *s, explanation *o) {
    const int64_t at[2] = {o->q, o->k};
    for (int i = 0; i < 2; i++) {
        if (at[i] >= 0 && at[i] < o->n) continue;
        diag_error(s->d, FCP_E_VALUE, SPAN_NONE, "%s = %" PRId64 " lies outside a sequence of %" PRId64 " tokens",
                   mask_variables[i], at[i], o->n);
        diag_hint(s->d, "-n sets the length");
        return false;
    }
    if (o->h >= 0 && o->h < s->out->heads) return true;
    diag_error(s->d, FCP_E_VALUE, SPAN_NONE, "h = %" PRId64 ": the model has %u heads", o->h, s->out->heads);
    return false;
}

/* Is the answer that of the mask code? */
static bool agrees(const struct fcpc_program *p, const explanation *o, uint64_t first, arena *scratch, bool *out) {
    int64_t *values = ARENA_NEW(scratch, int64_t, p->mask.count);
    mc_array *arrays = ARENA_NEW(scratch, mc_array, p->array_count + (size_t)1);
    bool allowed = false;
    uint32_t node;
    if (!values || !arrays) return false;
    for (uint32_t i = 0; i < p->array_count; i++) {
        const fcp_array *r = &p->arrays[i].record;
        bool table = r->kind == FCP_TABLE;
        arrays[i] = (mc_array){.data = (const char *)p->arrays[i].data + (table ? 0 : first * r->width),
                               .count = table ? (int64_t)r->count : o->n, .columns = (uint32_t)r->columns,
                               .width = (mc_width)r->width};
    }
    const mc_env env = {.n = o->n, .queries = o->n, .arrays = arrays, .bands = p->slices};
    mc_fault f = mc_eval_checked(p->mask, &env, o->q, o->k, o->h, values, &allowed, &node);
    *out = f == MC_OK ? o->kind == EXPLAIN_CONDITION && o->allowed == allowed : o->kind == EXPLAIN_FAULT;
    return true;
}

static fcp_code explain_mask(sema *s, void *context) {
    explanation *o = context;
    const struct fcpc_program *p = s->out;
    const mask *m = s->plan_mask;
    uint64_t first;
    fcp_code code = choose_sequence(s, o, &first);
    if (code != FCP_OK) return code;
    if (!check_pair(s, o)) return FCP_E_VALUE;
    explaining x;
    known *args = ARENA_NEW(s->scratch, known, m->param_count + 1);
    o->mask = arena_copy(&o->arena, p->mask_name, strlen(p->mask_name));
    if (!args || !o->mask) return FCP_E_NO_MEMORY;
    uint32_t i = 0;
    for (const arg *a = m->params; a; a = a->next, i++)
        args[i] = a->as ? array((uint32_t)s->plan_values[i]) : a->value && a->value->kind == EXPR_BOOL ? condition(s->plan_values[i]) : number(s->plan_values[i]);
    frame f = {.m = m, .args = args};
    o->by_head = mc_uses(p->mask) & MC_USES_H;
    bool same = false;
    for (int strict = 0; strict < 2 && !same; strict++) {
        x = (explaining){.s = s, .out = o, .strict = strict, .first = first};
        o->count = o->left_out = o->reasons = 0;
        known v = eval(&x, m->body, &f, 0, true);
        memo_free(&x.memo);
        o->kind = v.kind;
        o->allowed = v.kind == EXPLAIN_CONDITION && v.value;
        if (!x.failed && o->count) because(&x, 0);
        if (x.failed && diag_errors(s->d)) return diag_first_code(s->d);
        if (x.failed || !agrees(p, o, first, s->scratch, &same)) return FCP_E_NO_MEMORY;
        if (!x.lazy) break;
    }
    if (same) return FCP_OK;
    diag_error(s->d, FCP_E_INTERNAL, p->mask_span,
               "the mask code gives another answer for q = %" PRId64 ", k = %" PRId64, o->q, o->k);
    return FCP_E_INTERNAL;
}

fcp_code explain_pair(const char *name, const char *bytes, size_t size, const fcpc_options *options, diags *d,
                      explanation *out) {
    fcpc_program *p = NULL;
    fcp_code code = sema_text(name, bytes, size, options, out->plan, d, &p, explain_mask, out);
    fcpc_program_free(p);
    return code;
}
