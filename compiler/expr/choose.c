/* choose.c: finds the mask and the score that the plan names, has them checked, and has them turned into mask code.
 *
 * Requires: masks and arrays declared; for the score also the plan's mask as mask code, and the passes of the plan.
 * Gives:    what expr_lower_mask, expr_lower_score and expr_lower_sink put into the program; errors are reported.
 */
#include <stdlib.h>
#include <string.h>

#include "compiler/expr/choose.h"
#include "compiler/expr/expr.h"
#include "compiler/syntax/foreign_words.h"

void expr_check_masks(sema *s) {
    if (s->plan) return; /* a plan has only the arrays that its own mask and score read */
    for (mask *m = s->program.masks; m; m = m->next) expr_check_mask(s, m);
}

/* Adds what to write where the plan must name a mask or score, and has another value. */
static void hint_define(sema *s, const char *kind, const expr *v) {
    enum { LONGEST = 80 };
    const bool operation = v->kind == EXPR_BINARY || v->kind == EXPR_UNARY,
               number = operation && v->op > OP_NE && words_same(kind, words_keys[KEY_MASK].name),
               could = (operation && !number) || v->kind == EXPR_IF || v->kind == EXPR_BOOL;
    text t = {0};
    if (could) ast_print_expr(v, &t);
    char *written = text_take(&t);
    if (v->kind == EXPR_STRING) diag_hint(s->d, "write %s = %s, without quotes", kind, v->name);
    else if (v->kind == EXPR_LIST && words_same(kind, words_keys[KEY_MASK].name))
        diag_hint(s->d, "masks that differ between layers are plan { layers = [...] }");
    else
        diag_hint(s->d, "define it first: %s mine = %s; then plan { %s = mine }", kind,
                  written && *written && strlen(written) <= LONGEST ? written : "...", kind);
    free(written);
}

void expr_choose_mask(sema *s, const sema_keys *k) {
    const entry *e = k->at[KEY_MASK];
    if (!e) {
        mask *only = NULL;
        int count = 0;
        for (mask *m = s->program.masks; m; m = m->next)
            if (!m->score) only = m, count++;
        if (count == 1) {
            expr_check_mask(s, only);
            expr_lower_mask(s, only, NULL, only->name_at);
            return;
        }
        const section *plan = k->sections[SECTION_PLAN];
        if (k->misspelled) return;
        diag_error(s->d, FCP_E_MISSING, plan ? plan->name_at : s->program.end, "the plan names no mask");
        const mask *first = s->program.masks;
        while (first && first->score) first = first->next;
        diag_hint(s->d, first ? "say which: plan { mask = %s }" : "for instance plan { mask = %s }",
                  first ? first->name : "causal");
        return;
    }
    const expr *v = e->value;
    if (v->kind != EXPR_NAME && v->kind != EXPR_CALL) {
        diag_error(s->d, FCP_E_TYPE, v->at, "mask must name a mask");
        hint_define(s, words_keys[KEY_MASK].name, v);
        return;
    }
    mask *m = sema_visible_mask(s, v->name, KIND_MASK);
    span at = v->kind == EXPR_CALL ? v->name_at : v->at;
    if (m && m->score) {
        diag_error(s->d, FCP_E_TYPE, at, "'%s' is a score, not a mask", v->name);
        diag_hint(s->d, "plan { mask = ...; score = %s }", v->name);
    } else if (m) {
        expr_check_mask(s, m); /* the program's own are checked already; one of the prelude is not */
        expr_lower_mask(s, m, v->kind == EXPR_CALL ? v->args : NULL, v->at);
    } else if (ast_is_call(v, words_functions[BUILTIN_RECT]) || ast_is_call(v, words_functions[BUILTIN_SLICES])) {
        m = ARENA_ZNEW(s->scratch, mask, 1); /* a mask without a name of its own */
        if (!m) {
            sema_no_memory(s);
            return;
        }
        *m = (mask){.name = v->name, .name_at = v->name_at, .body = e->value};
        expr_check_mask(s, m);
        expr_lower_mask(s, m, NULL, v->at);
    } else if (!s->no_memory) { /* to read it from the prelude */
        diag_error(s->d, FCP_E_UNKNOWN_NAME, at, "unknown mask '%s'", v->name);
        if (ast_is_call(v, words_sources[SOURCE_FILE]))
            diag_hint(s->d,
                      "rectangles in a file are slices(file(\"a.slices\")); a mask reads other numbers from a field");
        const int layer = words_find(words_layers, LAYER_KINDS, v->name);
        const bool recurs = layer >= 0;
        if (recurs)
            diag_hint(s->d, "it is a kind of layers beside attention: plan { layers = [causal, %s%s] }", v->name,
                      layer ? "" : "(before = 3)");
        const bool usual = recurs || sema_hint_foreign(s, v->name, FCPC_FOREIGN_PLAN, v);
        const char *nearest = usual ? NULL : sema_nearest_mask(s, v->name, KIND_MASK);
        if (!usual && !nearest && s->layers_entry)
            nearest = diag_nearest(v->name, strlen(v->name), words_layers, LAYER_KINDS);
        if (nearest) diag_hint(s->d, "did you mean '%s'?", nearest);
    }
}

void expr_choose_score(sema *s, const sema_keys *k) {
    const entry *e = k->at[KEY_SCORE];
    const expr *v = e ? e->value : NULL;
    if (k->at[KEY_SINK]) expr_lower_sink(s, k->at[KEY_SINK]->value);
    if (!e) return;
    if (v->kind != EXPR_NAME && v->kind != EXPR_CALL) {
        diag_error(s->d, FCP_E_TYPE, v->at, "score must name a score");
        hint_define(s, words_keys[KEY_SCORE].name, v);
        return;
    }
    mask *m = sema_visible_mask(s, v->name, KIND_SCORE);
    span at = v->kind == EXPR_CALL ? v->name_at : v->at;
    if (m && m->score) {
        expr_check_mask(s, m);
        expr_lower_score(s, m, v->kind == EXPR_CALL ? v->args : NULL, v->at);
    } else if (m) {
        diag_error(s->d, FCP_E_TYPE, at, "'%s' is a mask, not a score", v->name);
        diag_hint(s->d, "plan { mask = %s }", v->name);
    } else if (!s->no_memory) {
        diag_error(s->d, FCP_E_UNKNOWN_NAME, at, "unknown score '%s'", v->name);
        const bool usual = sema_hint_foreign(s, v->name, FCPC_FOREIGN_SCORE, v);
        const char *nearest = usual ? NULL : sema_nearest_mask(s, v->name, KIND_SCORE);
        if (nearest) diag_hint(s->d, "did you mean '%s'?", nearest);
    }
}
