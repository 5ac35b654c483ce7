/* partial.h: the rules of slots that are added to: the running state of Q blocks (STATE), dK and dV (DKV), and dQ (DQ).
 *
 * Proves:   - A slot adds up one block at a time, from its first contribution until its last token leaves, is added
 *             elsewhere or is rounded. Nothing that it holds is overwritten or left over.
 *           - A rank adds each partial result that it receives to another slot, once, before the sum in that slot
 *             travels on; and additions into one slot are in order of (round of the last unit, sender).
 *           - At its home a block's dKV and dQ are added to their home slot.
 *
 * Why this is enough: no partial result has to be counted.
 *   1. Each is added to one other slot of its block. One that is not is found left over, which is an error.
 *   2. None can travel on for ever, because there are only so many rounds.
 *   3. So all of them reach the slot in which the result is made: at the home or, for a block that is WHOLE
 *      (plan/records.h), at one other rank.
 *
 * There are many transfers and tiles, so the code that each goes through is inline. Private to runtime/verify.
 */
#ifndef FCP_VERIFY_PARTIAL_H
#define FCP_VERIFY_PARTIAL_H
#include "runtime/plan/enum_names.h"
#include "runtime/verify/rank_state.h"

extern const char *const fcp_verify_kinds[]; /* of a partial_kind, for messages */

/* A transient slot of its class, or NULL. */
static inline partial_slot *fcp_verify_transient(const run *r, fcp_class cls, uint32_t slot) {
    return slot >= r->first[cls] && slot < r->room[cls] ? &r->b->partial[cls][slot] : NULL;
}

/* `what` (number id) adds to a slot: a transient one or, at the block's home, home slot `home`, which is FCP_NONE
 * elsewhere. The first contribution begins a transient slot. */
fcp_code fcp_verify_begin(run *r, fcp_class cls, const char *what, uint32_t id, uint32_t block, uint32_t slot,
                          uint32_t home);
static inline fcp_code fcp_verify_contribute(run *r, fcp_class cls, const char *what, uint32_t id, uint32_t block,
                                             uint32_t slot, uint32_t home) {
    if (home == FCP_NONE ? slot < r->homes || slot >= r->room[cls] : slot != home || r->b->home[home].out)
        return fcp_verify_begin(r, cls, what, id, block, slot, home);
    partial_slot *s = &r->b->partial[cls][slot];
    if (s->kind != ADDING || s->block != block) return fcp_verify_begin(r, cls, what, id, block, slot, home);
    s->touched[BY_COMPUTE] = r->done[FCP_COMPUTE] + 1;
    return FCP_OK;
}
/* MERGE, REDUCE, REDUCE_Q. */
fcp_code fcp_verify_add(run *r, const fcp_instr *x);
/* ROUND, which empties a DQ slot. */
fcp_code fcp_verify_round(run *r, const fcp_instr *x);
/* Nothing may be left in a partial slot when both queues have ended. */
fcp_code fcp_verify_nothing_left(run *r, fcp_class cls);

static inline fcp_code fcp_verify_send_partial(run *r, const fcp_transfer *t) {
    fcp_class cls = (fcp_class)t->cls;
    uint32_t id = (uint32_t)(t - r->plan->transfers), now = r->done[FCP_COMM] + 1;
    partial_slot *s = fcp_verify_transient(r, cls, t->slot);
    bool begins = s && s->kind == ADDING && t->first == 0;
    bool goes_on = s && s->kind == LEAVING && t->first == s->tokens && t->peer == s->peer;
    if (!s || s->block != t->block || (!begins && !goes_on))
        return fail(r, FCP_E_VERIFY_RETURN, FCP_COMM,
                    "transfer %u sends tokens %u to %u of %s of block %u from slot %u, where they do not wait", id,
                    t->first, t->first + t->tokens, fcp_class_texts[cls], t->block, t->slot);
    if (s->touched[BY_COMPUTE] > r->known[BY_COMPUTE])
        return fail(r, FCP_E_VERIFY_PRESENCE, FCP_COMM,
                    "transfer %u sends %s of block %u from slot %u without waiting for compute instruction %u", id,
                    fcp_class_texts[cls], t->block, t->slot, s->touched[BY_COMPUTE] - 1);
    if (cls != FCP_DKV) {
        q_state *q = fcp_verify_q(r, t->block);
        if (fcp_verify_is_whole(r, t->block) && (t->peer == r->plan->blocks[t->block].home ||
                                                 r->v->away[t->block].where != FCP_VERIFY_SEVERAL))
            return fail(r, FCP_E_VERIFY_RESULT, FCP_COMM,
                        "transfer %u sends %s of block %u, whose results come home whole", id,
                        fcp_class_texts[cls], t->block);
        if (cls == FCP_STATE && r->plan->blocks[t->block].home == r->rank)
            return fail(r, FCP_E_VERIFY_RETURN, FCP_COMM, "transfer %u sends state of block %u away from its home", id,
                        t->block);
        if (cls == FCP_STATE) {
            q->chain = 0;
            q->ended = true;
        }
    }
    s->peer = t->peer;
    s->tokens = t->first + t->tokens;
    s->kind = s->tokens == r->plan->blocks[t->block].tokens ? EMPTY : LEAVING;
    s->touched[t->fabric] = now;
    return FCP_OK;
}

static inline fcp_code fcp_verify_receive_partial(run *r, const fcp_transfer *t, uint32_t round) {
    fcp_class cls = (fcp_class)t->cls;
    uint32_t id = (uint32_t)(t - r->plan->transfers), now = r->done[FCP_COMM] + 1;
    if (t->slot < r->first[cls])
        return fail(r, FCP_E_VERIFY_SLOT, FCP_COMM,
                    "transfer %u receives %s of block %u into slot %u, the accumulator of block %u", id,
                    fcp_class_texts[cls], t->block, t->slot, r->blocks[t->slot]);
    partial_slot *s = fcp_verify_transient(r, cls, t->slot);
    if (!s)
        return fail(r, FCP_E_VERIFY_MEMORY, FCP_COMM,
                    "transfer %u receives %s of block %u into slot %u, more than it can have any use for", id,
                    fcp_class_texts[cls], t->block, t->slot);
    fcp_verify_use(r, cls, t->slot);
    if (s->kind == EMPTY) {
        if (s->touched[BY_COMPUTE] > r->known[BY_COMPUTE] || fcp_verify_moved_at(s->touched, now))
            return fail(r, FCP_E_VERIFY_SLOT, FCP_COMM,
                        "transfer %u overwrites slot %u, where %s of block %u may still be read", id, t->slot,
                        fcp_class_texts[cls], s->block);
        s->kind = ARRIVING;
        s->touched[OVER_NET] = s->touched[OVER_LOCAL] = 0; /* what was sent before is over when this is there: held.h */
        s->block = t->block;
        s->tokens = 0;
        s->peer = t->peer;
    } else if (s->kind != ARRIVING || (s->block != t->block && t->first == 0)) {
        return fail(r, FCP_E_VERIFY_RETURN, FCP_COMM,
                    "transfer %u receives %s of block %u into slot %u, which holds that of block %u and %s", id,
                    fcp_class_texts[cls], t->block, t->slot, s->block, fcp_verify_kinds[s->kind]);
    }
    if (s->block != t->block || s->peer != t->peer || s->tokens != t->first)
        return fail(r, FCP_E_VERIFY_RETURN, FCP_COMM,
                    "transfer %u brings tokens %u to %u of %s of block %u from rank %u to slot %u, which has %u tokens "
                    "of block %u from rank %u",
                    id, t->first, t->first + t->tokens, fcp_class_texts[cls], t->block, t->peer, t->slot, s->tokens,
                    s->block, s->peer);
    s->tokens += t->tokens;
    s->touched[t->fabric] = now;
    if (s->tokens == r->plan->blocks[t->block].tokens) {
        s->kind = ARRIVED;
        s->round = round;
    }
    return FCP_OK;
}
#endif
