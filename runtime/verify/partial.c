/* partial.c: proves the rules of partial results: what is added to each slot, by which rank, and that nothing is left
 * in one (partial.h).
 */
#include "runtime/verify/held.h"
#include "runtime/verify/partial.h"

const char *const fcp_verify_kinds[] = {"is empty", "is being added to", "is being sent", "is arriving",
                                        "waits to be added"};

static void begin(run *r, fcp_class cls, uint32_t slot, uint32_t block) {
    partial_slot *s = &r->b->partial[cls][slot];
    s->kind = ADDING;
    s->block = block;
    s->last_round = s->last_peer = 0;
    fcp_verify_use(r, cls, slot);
}

fcp_code fcp_verify_begin(run *r, fcp_class cls, const char *what, uint32_t id, uint32_t block, uint32_t slot,
                          uint32_t home) {
    const char *adds = fcp_class_texts[cls];
    if (home == FCP_NONE ? !fcp_verify_transient(r, cls, slot) : slot != home)
        return fail(r, FCP_E_VERIFY_RETURN, FCP_COMPUTE,
                    "%s %u adds %s of block %u to slot %u, from which it does not reach its home", what, id, adds,
                    block, slot);
    partial_slot *s = &r->b->partial[cls][slot];
    if (s->kind != EMPTY && (s->kind != ADDING || s->block != block))
        return fail(r, FCP_E_VERIFY_RETURN, FCP_COMPUTE,
                    "%s %u adds %s of block %u to slot %u, which holds block %u and %s", what, id, adds, block, slot,
                    s->block, fcp_verify_kinds[s->kind]);
    if (s->kind == ADDING)
        return fail(r, FCP_E_VERIFY_LAYOUT, FCP_COMPUTE, "%s %u adds %s of block %u, whose results went out before",
                    what, id, adds, block);
    if (!fcp_verify_moves_known(r, s->touched))
        return fail(r, FCP_E_VERIFY_SLOT, FCP_COMPUTE,
                    "%s %u adds %s of block %u to slot %u without waiting until block %u has left it", what, id, adds,
                    block, slot, s->block);
    begin(r, cls, slot, block);
    s->touched[BY_COMPUTE] = r->done[FCP_COMPUTE] + 1;
    return FCP_OK;
}

/* --- additions ---------------------------------------------------------------------------------------------------- */

/* What the three instructions differ in. */
static const struct addition {
    fcp_class cls;
    fcp_pass pass;
    const char *verb;
} additions[FCP_OP_COUNT] = {[FCP_OP_MERGE] = {FCP_STATE, FCP_FORWARD, "merges"},
                             [FCP_OP_REDUCE] = {FCP_DKV, FCP_BACKWARD, "reduces"},
                             [FCP_OP_REDUCE_Q] = {FCP_DQ, FCP_BACKWARD, "reduces"}};

/* A state that arrived, or the chain itself, goes into an empty slot: the chain is there from now on. */
static fcp_code begin_chain(run *r, const fcp_instr *x, q_state *q, bool moved) {
    if (q->ended)
        return fail(r, q->made ? FCP_E_VERIFY_RESULT : FCP_E_VERIFY_RETURN, FCP_COMPUTE,
                    "merges state of block %u into slot %u, after the chain of that block here has ended%s", x->a, x->c,
                    q->made ? " in its result" : "");
    if (!moved && q->chain)
        return fail(r, FCP_E_VERIFY_RETURN, FCP_COMPUTE,
                    "merges state of block %u into slot %u, while its chain is in slot %u", x->a, x->c, q->chain - 1);
    q->chain = x->c + 1;
    return FCP_OK;
}

fcp_code fcp_verify_add(run *r, const fcp_instr *x) {
    const struct addition *of = &additions[x->op];
    const char *verb = of->verb, *what = fcp_class_texts[of->cls];
    uint32_t now = r->done[FCP_COMPUTE] + 1;
    if (r->v->pass != of->pass)
        return fail(r, FCP_E_VERIFY_ORDER, FCP_COMPUTE, "%s in the %s pass", verb, fcp_pass_names[r->v->pass]);
    bool state = of->cls == FCP_STATE;
    const fcp_block *k = &r->plan->blocks[x->a];
    partial_slot *from = fcp_verify_transient(r, of->cls, x->b);
    bool moved = state && from && from->kind == ADDING;
    if (!from || (from->kind != ARRIVED && !moved) || from->block != x->a)
        return fail(r, FCP_E_VERIFY_RETURN, FCP_COMPUTE, "%s %s of block %u from slot %u, where no partial of it waits",
                    verb, what, x->a, x->b);
    if (!fcp_verify_moves_known(r, from->touched))
        return fail(r, FCP_E_VERIFY_PRESENCE, FCP_COMPUTE,
                    "%s %s of block %u from slot %u without waiting for its arrival", verb, what, x->a, x->b);
    bool home = !state && k->home == r->rank;
    if (home ? x->c != k->home_slot : !fcp_verify_transient(r, of->cls, x->c))
        return fail(r, FCP_E_VERIFY_RETURN, FCP_COMPUTE,
                    "%s %s of block %u into slot %u, from which it does not reach its home", verb, what, x->a, x->c);
    if (of->cls == FCP_DQ && home && k->flags & FCP_BLOCK_WHOLE)
        return fail(r, FCP_E_VERIFY_RESULT, FCP_COMPUTE, "reduces dQ of block %u, whose results come home whole", x->a);
    partial_slot *to = &r->b->partial[of->cls][x->c];
    if (to->kind == EMPTY) {
        if (!fcp_verify_moves_known(r, to->touched))
            return fail(r, FCP_E_VERIFY_SLOT, FCP_COMPUTE,
                        "%s %s of block %u into slot %u without waiting until block %u has left it", verb, what, x->a,
                        x->c, to->block);
        fcp_code code = state ? begin_chain(r, x, fcp_verify_q(r, x->a), moved) : FCP_OK;
        if (code) return code;
        begin(r, of->cls, x->c, x->a);
        if (moved) {
            to->last_round = from->last_round;
            to->last_peer = from->last_peer;
        }
    } else if (to->kind != ADDING || to->block != x->a || moved) {
        return fail(r, FCP_E_VERIFY_RETURN, FCP_COMPUTE,
                    "%s %s of block %u into slot %u, which holds block %u and %s", verb, what, x->a, x->c, to->block,
                    fcp_verify_kinds[to->kind]);
    } else if (home && r->b->home[x->c].out) {
        return fail(r, FCP_E_VERIFY_LAYOUT, FCP_COMPUTE, "%s %s of block %u, whose results went out before", verb, what,
                    x->a);
    }
    if (!moved) {
        if (from->round + 1 < to->last_round || (from->round + 1 == to->last_round && from->peer + 1 <= to->last_peer))
            return fail(r, FCP_E_VERIFY_RETURN, FCP_COMPUTE,
                        "%s %s of block %u from rank %u, round %u, after that from rank %u, round %u: out of order",
                        verb, what, x->a, from->peer, from->round, to->last_peer - 1, to->last_round - 1);
        to->last_round = from->round + 1;
        to->last_peer = from->peer + 1;
    }
    from->kind = EMPTY;
    from->touched[BY_COMPUTE] = to->touched[BY_COMPUTE] = now;
    return FCP_OK;
}

fcp_code fcp_verify_round(run *r, const fcp_instr *x) {
    if (r->v->pass != FCP_BACKWARD)
        return fail(r, FCP_E_VERIFY_ORDER, FCP_COMPUTE, "rounds dQ in the forward pass");
    const q_state *q = fcp_verify_q(r, x->a);
    uint32_t total = r->v->tiles_of[x->a];
    bool alone = r->v->away[x->a].where == r->rank + 1; /* no partial comes from elsewhere */
    if (!fcp_verify_is_whole(r, x->a) || (alone && q->tiles != total))
        return fail(r, FCP_E_VERIFY_RESULT, FCP_COMPUTE,
                    "rounds dQ of block %u, which is partial: %u of its %u tiles have been computed here", x->a,
                    q->tiles,
                    total);
    partial_slot *s = fcp_verify_transient(r, FCP_DQ, x->b);
    if (!s || s->kind != ADDING || s->block != x->a)
        return fail(r, FCP_E_VERIFY_RETURN, FCP_COMPUTE, "rounds dQ of block %u in slot %u, where it is not", x->a,
                    x->b);
    s->kind = EMPTY;
    s->touched[BY_COMPUTE] = r->done[FCP_COMPUTE] + 1;
    return fcp_verify_store_result(r, FCP_DQW, x->a, x->c);
}

fcp_code fcp_verify_nothing_left(run *r, fcp_class cls) {
    for (uint32_t i = r->first[cls]; i < r->used[cls]; i++) {
        const partial_slot *s = &r->b->partial[cls][i];
        if (s->kind == EMPTY) continue;
        return fcp_verify_fail_rank(
            r->v, r->v->err, FCP_E_VERIFY_RETURN, r->rank,
            ", at the end: %s of block %u is left in slot %u, which %s; last used by compute instruction %lld",
            fcp_class_texts[cls], s->block, i, fcp_verify_kinds[s->kind], (long long)s->touched[BY_COMPUTE] - 1);
    }
    return FCP_OK;
}
