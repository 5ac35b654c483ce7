/* sema.c: the state of a parse: freeing it, running out of memory, being stopped, new nodes. */
#include "compiler/sema/sema.h"

#include <stdlib.h>

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
