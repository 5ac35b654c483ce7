/* mask.c: checks masks and scores, and makes the mask of a plan: its code, its name, its parameters.
 *
 * Requires: all names are declared.
 * Gives: errors of every mask and score, and of their definitions, whether or not the plan uses them; for the plan's
 *      mask, the members mask, mask_spans, mask_name, mask_span and mask_params of the program.
 * Cost: O(size of the inlined expression).
 */
#include <inttypes.h>
#include <string.h>

#include "compiler/expr/expr.h"
#include "compiler/syntax/foreign_words.h"

void expr_check_mask(sema *s, mask *m) {
    if (m->state != MASK_NEW || s->builder || s->failed) return;
    m->state = MASK_BUSY;
    if (!s->depth) s->steps = 0;
    size_t before = diag_errors(s->d);
    value *args = ARENA_NEW(s->scratch, value, m->param_count + 1);
    if (!args) {
        sema_no_memory(s);
        return;
    }
    uint32_t i = 0;
    for (arg *p = m->params; p; p = p->next) {
        int64_t ignored;
        figure unused;
        args[i++] = (value){m->score ? score_param_type(p) : expr_mask_param_type(p), p->as ? ARRAY_ANY : 0};
        if (!p->value || (m->score && p->value->kind == EXPR_BOOL)) continue;
        if (m->score && !p->as) expr_eval_number(s, p->value, p->name, &unused);
        else expr_mask_constant(s, p, p->value, &ignored);
    }
    for (definition *d = m->definitions; d; d = d->next) {
        value *any = ARENA_NEW(s->scratch, value, d->param_count + 1);
        if (!any) {
            sema_no_memory(s);
            return;
        }
        for (uint32_t j = 0; j < d->param_count; j++) any[j] = (value){TYPE_ANY, 0};
        size_t errors = diag_errors(s->d);
        frame f = {.m = m, .args = args, .def = d, .def_args = any, .s = {TYPE_REAL, 0}};
        expr_lower(s, d->body, &f, MC_NONE);
        d->broken = diag_errors(s->d) > errors;
    }
    frame f = {.m = m, .args = args, .s = {TYPE_REAL, 0}};
    value body = expr_lower(s, m->body, &f, MC_NONE);
    if (m->score && (body.type == TYPE_BOOL || body.type == TYPE_ARRAY)) {
        diag_error(s->d, FCP_E_TYPE, m->body->at, "a score is a number, this is %s", expr_type_text(body.type));
        diag_hint(s->d, "say what becomes of s, for instance if k <= q then s else s - 1.0");
    } else if (!m->score && (body.type == TYPE_INT || body.type == TYPE_ARRAY)) {
        diag_error(s->d, FCP_E_TYPE, m->body->at, "a mask is a condition, this is %s", expr_type_text(body.type));
        diag_hint(s->d, "say which pairs (q, k) are allowed, for instance k <= q");
    }
    m->state = diag_errors(s->d) > before ? MASK_BROKEN : MASK_GOOD;
}

bool expr_check_called(sema *s, const expr *e, mask *m) {
    if (m->state == MASK_BUSY) {
        diag_error(s->d, FCP_E_RECURSION, e->kind == EXPR_CALL ? e->name_at : e->at, "%s '%s' is defined by itself",
                   m->score ? "score" : "mask", m->name);
        diag_also(s->d, m->name_at, "defined here");
        return false;
    }
    expr_check_mask(s, m);
    return true;
}

/* Adds what to write for a window of the prelude that shall have no limit on one side or both, which is what -1 means
 * in FlashAttention. l and r are of window_both; FOREIGN_UNKNOWN: not known. */
static void hint_no_limit(sema *s, const mask *m, const char *param, int64_t l, int64_t r) {
    static const char lead[] = "where -1 means no limit, as in FlashAttention, write";
    static const struct {
        const char *mask, *param, *write;
    } known[] = {{"window", "w", "causal"}, {"lambda", "window", "causal"}, {"global_window", "w", "full"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(m->name, known[i].mask) && !strcmp(param, known[i].param))
            diag_hint(s->d, "%s %s", lead, known[i].write);
    if (strcmp(m->name, "window_both")) return;
    text t = {0};
    foreign_words_put_window(l, r, &t);
    text_add(&t, "", 1);
    if (!t.failed) diag_hint(s->d, "%s %s", lead, t.at);
    text_free(&t);
}

bool expr_check_counts(sema *s, const mask *m, arg *const *given, const int64_t *numbers, const bool *known,
                       span call) {
    if (!m->builtin && !m->adopted) return true;
    uint32_t i = 0;
    for (const arg *p = m->params; p; p = p->next, i++) {
        if (expr_mask_param_type(p) != TYPE_INT || !known[i] || numbers[i] >= 0) continue;
        diag_error(s->d, FCP_E_VALUE, given[i] ? given[i]->value->at : call,
                   "%s of '%s' must be at least 0, this is %" PRId64, p->name, m->name, numbers[i]);
        const bool both = m->param_count == 2;
        hint_no_limit(s, m, p->name, both && known[0] ? numbers[0] : FOREIGN_UNKNOWN,
                      both && known[1] ? numbers[1] : FOREIGN_UNKNOWN);
        return false;
    }
    return true;
}

const char *expr_count_name(sema *s, const mask *m, const arg *param) {
    text t = {0};
    text_printf(&t, "%s of '%s'", param->name, m->name);
    const char *name = t.failed ? NULL : arena_copy(&s->out->arena, t.at, t.size);
    text_free(&t);
    if (!name) sema_no_memory(s);
    return name;
}

bool expr_note_count(sema *s, const mask *m, const arg *param, uint32_t array) {
    program_array *a = &s->arrays[array]->array;
    if (!a->count_of) a->count_of = expr_count_name(s, m, param);
    return a->count_of;
}

/* Keeps the parameters of the plan's mask, and their values. Later steps warn of a parameter that is larger than every
 * sequence of a batch. */
static bool keep_params(sema *s, const mask *m, arg *const *given, const figure *values, span call) {
    struct program_param *kept = ARENA_NEW(&s->out->arena, struct program_param, m->param_count + 1);
    uint32_t i = 0;
    for (const arg *p = m->params; p && kept; p = p->next, i++) {
        kept[i] = (struct program_param){.value = values[i].integer,
                                         .is_number = expr_mask_param_type(p) == TYPE_INT && !values[i].field,
                                         .at = given[i]     ? given[i]->value->at
                                               : m->builtin ? call
                                                            : p->name_at};
        kept[i].name = arena_copy(&s->out->arena, p->name, strlen(p->name));
        if (!kept[i].name) kept = NULL;
    }
    s->out->mask_params = kept;
    s->out->mask_param_count = kept ? m->param_count : 0;
    s->out->mask_own = !m->builtin && !m->adopted;
    return kept ? true : sema_no_memory(s);
}

/* Makes sure that the code of a mask names h if its source does, because the pairs of such a mask are counted for each
 * head. Simplifying may remove h: `not per_head or h < 4` is true if per_head is false. In that case a node of h is put
 * first, which no other node uses. */
static bool keep_head(sema *s) {
    struct fcpc_program *p = s->out;
    const mc_code code = p->mask;
    if (!s->names_h || mc_uses(code) & MC_USES_H) return true;
    mc_node *nodes = ARENA_NEW(&p->arena, mc_node, code.count + (size_t)1);
    span *spans = ARENA_NEW(&p->arena, span, code.count + (size_t)1);
    if (!nodes || !spans) return sema_no_memory(s);
    nodes[0] = (mc_node){.op = MC_H, .a = MC_NONE, .b = MC_NONE, .c = MC_NONE, .guard = MC_NONE};
    spans[0] = p->mask_spans[code.count - 1];
    for (uint32_t i = 0; i < code.count; i++) {
        mc_node *x = &nodes[i + 1];
        *x = code.nodes[i];
        uint32_t *const operands[] = {&x->a, &x->b, &x->c, &x->guard};
        for (int j = 0; j < 4; j++)
            if (*operands[j] != MC_NONE) ++*operands[j];
        spans[i + 1] = p->mask_spans[i];
    }
    p->mask = (mc_code){nodes, code.count + 1};
    p->mask_spans = spans;
    return true;
}

bool expr_lower_mask(sema *s, mask *m, const arg *args, span call) {
    arg **given = ARENA_NEW(s->scratch, arg *, m->param_count + 1);
    value *values = ARENA_NEW(s->scratch, value, m->param_count + 1);
    figure *figures = ARENA_ZNEW(s->scratch, figure, m->param_count + 1);
    if (!given || !values || !figures) return sema_no_memory(s);
    if (!sema_bind_args(s, m, args, call, given)) return false;
    bool good = true;
    uint32_t i = 0;
    for (const arg *p = m->params; p; p = p->next, i++) {
        const expr *e = given[i] ? given[i]->value : p->value;
        bool fits =
            !given[i] || expr_mask_param_type(p) != TYPE_INT || expr_field_argument(s, p, e, false, &figures[i]);
        if (fits && !figures[i].field) {
            fits = expr_mask_constant(s, p, e, &figures[i].integer);
            if (!fits && given[i] && expr_mask_param_type(p) == TYPE_INT) expr_hint_field(s, e);
        }
        good &= fits;
    }
    if (!good || m->state != MASK_GOOD) return false;
    bool *known = ARENA_NEW(s->scratch, bool, m->param_count + 1);
    int64_t *numbers = ARENA_NEW(s->scratch, int64_t, m->param_count + 1);
    if (!known || !numbers) return sema_no_memory(s);
    i = 0;
    for (const arg *p = m->params; p; p = p->next, i++) {
        known[i] = !figures[i].field;
        numbers[i] = figures[i].integer;
        const bool prelude = m->builtin || m->adopted;
        if (figures[i].field && prelude && !expr_note_count(s, m, p, (uint32_t)numbers[i])) return false;
    }
    if (!expr_check_counts(s, m, given, numbers, known, call)) return false;
    s->plan_mask = m;
    s->plan_values = figures;
    if (!keep_params(s, m, given, figures, call)) return false;

    if (!expr_begin(s)) return false;
    i = 0;
    for (const arg *p = m->params; p; p = p->next, i++) {
        expr *e = given[i] ? given[i]->value : p->value;
        values[i] = figures[i].field ? expr_read_bare(s, e, (uint32_t)figures[i].integer, false)
                                     : expr_mask_argument(s, e, p, figures[i].integer);
    }
    frame f = {.m = m, .args = values};
    s->names_h = false;
    value root = expr_lower(s, m->body, &f, MC_NONE);
    if (!s->failed && root.type != TYPE_BOOL) { /* as when it reads a field that is wrong, which was reported */
        if (!diag_errors(s->d)) diag_error(s->d, FCP_E_INTERNAL, call, "a checked mask did not lower");
        s->failed = true;
    }
    if (!s->failed && expr_extract(s, s->builder, root.node, &s->out->mask, &s->out->mask_spans)) keep_head(s);
    expr_end(s);
    s->out->mask_name = expr_call_text(s, m, figures);
    s->out->at[AT_MASK] = call;
    if (!s->out->mask_name) sema_no_memory(s);
    return !s->failed;
}
