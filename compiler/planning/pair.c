/* pair.c: runs two pieces of a pass, in two threads if that pays. */
#include "compiler/planning/pair.h"

#include "runtime/base/both.h"

typedef struct half {
    planning *x;
    pair_piece piece;
    fcp_code code;
} half;

static void make_half(void *given) {
    half *h = given;
    h->code = h->piece.make(h->x, h->piece.given);
}

fcp_code pair_make(planning *x, bool large, pair_piece first, pair_piece second) {
    const bool busy = x->trial && !x->alone; /* of candidates two are tried at a time: auto/trial.c */
    if (!large || !x->aside || busy || !fcp_both_at_once()) {
        fcp_code code = first.make(x, first.given);
        return code ? code : second.make(x, second.given);
    }
    arena_reset(&x->aside->scratch);
    planning other = *x;
    other.memory = (arena){0};
    other.work = x->aside->work;
    other.scratch = x->aside->scratch;
    half mine = {x, first, FCP_OK}, its = {&other, second, FCP_OK};
    fcp_both(make_half, &mine, &its);
    x->aside->work = other.work;
    x->aside->scratch = other.scratch;
    /* of two that colour at the same time, the one that takes longer is waited for */
    if (other.times.colour > x->times.colour) x->times.colour = other.times.colour;
    return mine.code ? mine.code : its.code;
}
