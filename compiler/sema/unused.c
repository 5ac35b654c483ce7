/* unused.c: warns of what the program's masks and scores define and never use.
 *
 * A definition is used if the condition of the mask names it, or another used definition does. A parameter is used if
 * the condition or a used definition names it.
 *
 * Requires: masks that have been checked, so that each name has its meaning.
 * Cost:     O(masks).
 */
#include "compiler/sema/names.h"
#include "compiler/sema/unused.h"

typedef struct uses {
    bool *params, *definitions; /* by number */
} uses;

/* Marks what an expression of a mask names. */
static void mark(const expr *e, uses *u) {
    for (; e && e->kind == EXPR_BINARY; e = e->a) mark(e->b, u);
    if (!e) return;
    switch ((expr_kind)e->kind) {
    case EXPR_NAME:
    case EXPR_CALL:
        if (e->ref == REF_PARAM) u->params[e->index] = true;
        if (e->ref == REF_DEF) u->definitions[((const definition *)e->target)->number] = true;
        for (const arg *a = e->kind == EXPR_CALL ? e->args : NULL; a; a = a->next) mark(a->value, u);
        break;
    case EXPR_UNARY: mark(e->a, u); break;
    case EXPR_IF:
        mark(e->c, u);
        mark(e->a, u);
        mark(e->b, u);
        break;
    case EXPR_INDEX:
        mark(e->a, u);
        mark(e->b, u);
        mark(e->c, u);
        mark(e->d, u);
        break;
    case EXPR_LIST:
    case EXPR_TUPLE:
        for (const arg *a = e->args; a; a = a->next) mark(a->value, u);
        break;
    case EXPR_RANGE:
    case EXPR_REPEAT:
    case EXPR_ON:
    case EXPR_OVER:
    case EXPR_PAIR:
        mark(e->a, u);
        mark(e->b, u);
        break;
    default: break;
    }
}

/* Does an expression of a score name s, or call a score without the argument s? */
static bool names_s(const expr *e) {
    for (; e && e->kind == EXPR_BINARY; e = e->a)
        if (names_s(e->b)) return true;
    if (!e) return false;
    switch ((expr_kind)e->kind) {
    case EXPR_NAME:
    case EXPR_CALL:
        if ((e->ref == REF_VAR && e->index == VARIABLE_S) || e->ref == REF_SCORE) return true;
        for (const arg *a = e->kind == EXPR_CALL ? e->args : NULL; a; a = a->next)
            if (names_s(a->value)) return true;
        return false;
    case EXPR_UNARY: return names_s(e->a);
    case EXPR_IF: return names_s(e->a) || names_s(e->b) || names_s(e->c);
    default: return false;
    }
}

static void warn_mask(sema *s, const mask *m) {
    uint32_t count = 0, i = 0;
    for (const definition *d = m->definitions; d; d = d->next) count++;
    if (m->score) {
        bool found = names_s(m->body);
        for (const definition *d = m->definitions; d; d = d->next) found |= names_s(d->body);
        if (!found) {
            diag_warning(s->d, m->body->at, "the score '%s' does not name s: queries and keys do not matter", m->name);
            diag_hint(s->d, "s is the scaled logit: s + ...");
        }
    }
    if (!count && !m->params) return;
    uses u = {ARENA_ZNEW(s->scratch, bool, m->param_count + 1), ARENA_ZNEW(s->scratch, bool, count + (size_t)1)};
    const definition **all = ARENA_NEW(s->scratch, const definition *, count + (size_t)1);
    if (!u.params || !u.definitions || !all) return;
    for (const definition *d = m->definitions; d; d = d->next) all[i++] = d;
    mark(m->body, &u);
    for (i = count; i-- > 0;) /* backwards, because a definition names only those before it */
        if (u.definitions[i]) mark(all[i]->body, &u);
    for (i = 0; i < count; i++) {
        if (u.definitions[i]) continue;
        diag_warning(s->d, all[i]->name_at, "'%s' is defined and never used", all[i]->name);
        diag_hint(s->d, "the %s '%s' means the same without it", m->score ? "score" : "mask", m->name);
    }
    i = 0;
    for (const arg *p = m->params; p; p = p->next, i++) {
        if (u.params[i]) continue;
        diag_warning(s->d, p->name_at, "parameter '%s' is never used", p->name);
        diag_hint(s->d, "setting it does not change the %s '%s'", m->score ? "score" : "mask", m->name);
    }
}

void sema_warn_unused(sema *s) {
    for (const mask *m = s->program.masks; m; m = m->next)
        if (!m->adopted && m->state == MASK_GOOD) warn_mask(s, m);
    if (s->plan_score) return;
    for (const mask *m = s->program.masks; m; m = m->next) {
        if (!m->score || m->adopted) continue;
        diag_warning(s->d, m->name_at, "score '%s' changes nothing: the plan names no score", m->name);
        diag_hint(s->d, "plan { score = %s } would use this one", m->name);
        return;
    }
}
