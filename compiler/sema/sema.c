/* sema.c: the state of a parse: freeing it, running out of memory, being stopped, new nodes. */
#include "compiler/sema/sema.h"

#include <string.h>

#include <stdlib.h>

#include "compiler/syntax/foreign_words.h"
#include "runtime/base/stop.h"

void sema_free(sema *s) {
    free(s->symbols);
    free(s->memos);
    free(s->places);
}

bool sema_no_memory(sema *s) {
    if (!s->failed) diag_error(s->d, FCP_E_NO_MEMORY, SPAN_NONE, "out of memory");
    s->failed = s->no_memory = true;
    return false;
}

bool sema_stopped(sema *s) {
    if (!fcp_stop_asked(s->stop)) return false;
    diag_error(s->d, FCP_E_INTERRUPTED, SPAN_NONE, "%s", fcp_code_text(FCP_E_INTERRUPTED));
    return true;
}

expr *sema_new_expr(sema *s, expr_kind kind, span at) {
    expr *e = ARENA_ZNEW(s->scratch, expr, 1);
    if (!e) {
        sema_no_memory(s);
        return NULL;
    }
    e->kind = (uint8_t)kind;
    e->at = at;
    e->depth = 1;
    return e;
}

bool sema_arguments(sema *s, const expr *call, const char *const *names, int count, const char *example,
                    const arg **given) {
    bool good = true;
    for (int i = 0; i < count; i++) given[i] = NULL;
    for (const arg *a = call->args; a; a = a->next) {
        int i = 0;
        while (a->name && i < count && strcmp(names[i], a->name)) i++;
        if (a->name && i < count && !given[i]) {
            given[i] = a;
            continue;
        }
        good = false;
        if (a->name && i < count) {
            diag_error(s->d, FCP_E_DUPLICATE, a->name_at, "'%s' is given twice", a->name);
            diag_also(s->d, given[i]->name_at, "first given here");
            continue;
        }
        if (a->name) diag_error(s->d, FCP_E_ARGUMENT, a->name_at, "%s has no parameter '%s'", call->name, a->name);
        else diag_error(s->d, FCP_E_ARGUMENT, a->value->at, "%s takes named arguments", call->name);
        const char *nearest = NULL;
        for (const foreign_word *h = NULL;
             a->name && !nearest && (h = foreign_words_find(a->name, FCPC_FOREIGN_ARGUMENT, h));)
            if (words_find(names, count, h->write) >= 0) nearest = h->write;
        if (a->name && !nearest) nearest = diag_nearest(a->name, strlen(a->name), names, (size_t)count);
        if (nearest) diag_hint(s->d, "did you mean '%s'?", nearest);
        else diag_hint(s->d, "%s", example);
    }
    return good;
}
