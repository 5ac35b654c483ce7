/* held.c: slots that hold a block: KV, Q, and the results O and DQW on their way home.
 *
 * Proves:  - What is read or sent is in the slot that is named, whole, and ordered after what brought it there.
 *          - A transient slot gets its block from the first unit to the last, in order, and is not overwritten while
 *            what was in it may still be read.
 *          - What was received is read, or every unit of it is sent on; and a result is sent once.
 * Method:  A send counts the tokens of the block that have been sent so far, from its first. Units arrive in order, so
 *          whoever gets a block from this slot alone gets them in order, too.
 */
#include "runtime/verify/run.h"

/* Home slots of KV and Q are filled by IN, and those of results by the block's own work. */
static bool at_home(const run *r, const fcp_transfer *t) { return t->slot < r->homes; }

/* Finds out why a block is not there, to word the error: it may have been there and have been overwritten. */
fcp_code fcp_verify_absent(run *r, fcp_queue q, const char *reader, uint32_t id, fcp_class cls, uint32_t block,
                           uint32_t slot) {
    const held_slot *s = fcp_verify_held(r, cls, slot);
    const char *what = fcp_class_texts[cls];
    if (s && s->block == block && s->left)
        return fail(r, FCP_E_VERIFY_PRESENCE, q,
                    "%s %u reads %s block %u in slot %u, where %u of its tokens are missing", reader, id, what, block,
                    slot, s->left);
    if (s && s->block == block)
        return fail(r, FCP_E_VERIFY_PRESENCE, q,
                    "%s %u reads %s block %u in slot %u without waiting for what brings it", reader, id, what, block,
                    slot);
    for (uint32_t j = 0; s && j < r->done[FCP_COMM]; j++) {
        const fcp_instr *x = &r->instr[FCP_COMM][j];
        if (x->op != FCP_OP_LAUNCH) continue;
        for (const fcp_transfer *t = r->plan->transfers + x->a, *end = t + x->b; t < end; t++)
            if (t->cls == cls && t->dir == FCP_RECV && t->slot == slot && t->block == block)
                return fail(r, FCP_E_VERIFY_SLOT, q,
                            "%s %u reads %s block %u in slot %u, which block %u has overwritten", reader, id, what,
                            block, slot, s->block);
    }
    if (s && s->block != FCP_NONE)
        return fail(r, FCP_E_VERIFY_PRESENCE, q, "%s %u reads %s block %u in slot %u, which holds block %u", reader, id,
                    what, block, slot, s->block);
    return fail(r, FCP_E_VERIFY_PRESENCE, q, "%s %u reads %s block %u in slot %u, which holds nothing", reader, id,
                what, block, slot);
}

/* The rules of what may leave, beside that it is there. */
static fcp_code check_sender(run *r, const fcp_transfer *t, const held_slot *s) {
    uint32_t id = (uint32_t)(t - r->plan->transfers);
    if (t->cls == FCP_Q) {
        if (r->v->pass == FCP_FORWARD || !at_home(r, t)) return FCP_OK;
        uint32_t delta = r->b->home[t->slot].delta;
        if (delta && delta <= r->known[FCP_COMM]) return FCP_OK;
        return fail(r, FCP_E_VERIFY_ORDER, FCP_COMM,
                    "transfer %u sends Q block %u before its delta is known to be complete", id, t->block);
    }
    if (!(r->plan->blocks[t->block].flags & FCP_BLOCK_WHOLE))
        return fail(r, FCP_E_VERIFY_RESULT, FCP_COMM, "transfer %u sends %s of block %u, whose results are partial", id,
                    fcp_class_texts[t->cls], t->block);
    if (t->first == s->sent) return FCP_OK;
    return fail(r, FCP_E_VERIFY_RESULT, FCP_COMM,
                "transfer %u sends tokens %u to %u of %s of block %u, of which %u have been sent", id, t->first,
                t->first + t->tokens, fcp_class_texts[t->cls], t->block, s->sent);
}

fcp_code fcp_verify_send_held(run *r, const fcp_transfer *t) {
    uint32_t id = (uint32_t)(t - r->plan->transfers), now = r->done[FCP_COMM] + 1;
    held_slot *s = fcp_verify_held(r, (fcp_class)t->cls, t->slot);
    if (!s || s->block != t->block || s->left || s->wrote[FCP_COMM] == now) /* what moves at the same time is not there */
        return fcp_verify_absent(r, FCP_COMM, "transfer", id, (fcp_class)t->cls, t->block, t->slot);
    if (s->wrote[FCP_COMPUTE] > r->known[FCP_COMM])
        return fail(r, FCP_E_VERIFY_PRESENCE, FCP_COMM,
                    "transfer %u sends %s block %u from slot %u without waiting for what fills it", id,
                    fcp_class_texts[t->cls], t->block, t->slot);
    fcp_code code = t->cls == FCP_KV ? FCP_OK : check_sender(r, t, s);
    if (t->first <= s->sent && t->first + t->tokens > s->sent) s->sent = t->first + t->tokens;
    s->read[FCP_COMM] = now;
    return code;
}

void fcp_verify_dead(run *r, fcp_class cls, uint32_t slot) {
    verifier *v = r->v;
    const held_slot *s = &r->b->held[cls][slot];
    if (v->late.code) return;
    bool result = cls == FCP_O || cls == FCP_DQW;
    fcp_verify_fail_rank(v, &v->late, result ? FCP_E_VERIFY_RESULT : FCP_E_VERIFY_MATCH, r->rank,
                         ": %s of block %u lay in slot %u, and was %s; last used by instruction %lld of the %s queue",
                         fcp_class_texts[cls], s->block, slot,
                         s->left ? "never whole" : result ? "not sent home" : "neither read nor sent on as a whole",
                         (long long)(s->wrote[FCP_COMM] ? s->wrote[FCP_COMM] : s->wrote[FCP_COMPUTE]) - 1,
                         fcp_queue_texts[s->wrote[FCP_COMM] ? FCP_COMM : FCP_COMPUTE]);
}

static fcp_code receive_at_home(run *r, const fcp_transfer *t) {
    if ((t->cls == FCP_O || t->cls == FCP_DQW) && r->blocks[t->slot] == t->block)
        return fcp_verify_receive_result(r, t);
    return fail(r, FCP_E_VERIFY_SLOT, FCP_COMM, "transfer %u receives %s block %u into slot %u, the home of block %u",
                (uint32_t)(t - r->plan->transfers), fcp_class_texts[t->cls], t->block, t->slot, r->blocks[t->slot]);
}

fcp_code fcp_verify_receive_held(run *r, const fcp_transfer *t) {
    uint32_t id = (uint32_t)(t - r->plan->transfers), now = r->done[FCP_COMM] + 1;
    const char *what = fcp_class_texts[t->cls];
    if (at_home(r, t)) return receive_at_home(r, t);
    held_slot *s = fcp_verify_held(r, (fcp_class)t->cls, t->slot);
    if (!s)
        return fail(r, FCP_E_VERIFY_MEMORY, FCP_COMM,
                    "transfer %u receives %s block %u into slot %u, more than it can have any use for", id, what,
                    t->block, t->slot);
    fcp_verify_use(r, (fcp_class)t->cls, t->slot);
    const fcp_block *k = &r->plan->blocks[t->block];
    if (k->home == r->rank) /* a result; match.c lets no KV and no Q home */
        return fail(r, FCP_E_VERIFY_SLOT, FCP_COMM, "transfer %u receives %s of block %u into slot %u, and not slot %u",
                    id, what, t->block, t->slot, k->home_slot);
    uint32_t tokens = k->tokens;
    if (t->first == 0) {
        uint32_t before = s->read[FCP_COMPUTE] > s->wrote[FCP_COMPUTE] ? s->read[FCP_COMPUTE] : s->wrote[FCP_COMPUTE];
        if (before > r->known[FCP_COMM])
            return fail(r, FCP_E_VERIFY_SLOT, FCP_COMM,
                        "transfer %u overwrites slot %u, where compute instruction %u may still use %s block %u", id,
                        t->slot, before - 1, what, s->block);
        if (s->read[FCP_COMM] == now || s->wrote[FCP_COMM] == now)
            return fail(r, FCP_E_VERIFY_SLOT, FCP_COMM,
                        "transfer %u overwrites slot %u, which %s block %u uses in the same launch", id, t->slot, what,
                        s->block);
        fcp_verify_leave(r, (fcp_class)t->cls, t->slot);
        *s = (held_slot){.block = t->block, .left = tokens};
    } else if (s->block != t->block) {
        return fail(r, FCP_E_VERIFY_PRESENCE, FCP_COMM,
                    "transfer %u brings tokens %u to %u of %s block %u to slot %u, which does not hold its beginning",
                    id, t->first, t->first + t->tokens, what, t->block, t->slot);
    }
    if (tokens - s->left != t->first)
        return fail(r, FCP_E_VERIFY_PRESENCE, FCP_COMM,
                    "transfer %u brings tokens %u to %u of %s block %u to slot %u, where %u have arrived", id, t->first,
                    t->first + t->tokens, what, t->block, t->slot, tokens - s->left);
    s->left -= t->tokens;
    s->wrote[FCP_COMM] = now;
    return FCP_OK;
}

fcp_code fcp_verify_put(run *r, fcp_class cls, uint32_t block, uint32_t slot) {
    uint32_t now = r->done[FCP_COMPUTE] + 1;
    const char *what = fcp_class_texts[cls];
    if (slot < r->homes)
        return fail(r, FCP_E_VERIFY_SLOT, FCP_COMPUTE, "puts %s of block %u into slot %u, the home of block %u", what,
                    block, slot, r->blocks[slot]);
    held_slot *s = fcp_verify_held(r, cls, slot);
    if (!s)
        return fail(r, FCP_E_VERIFY_MEMORY, FCP_COMPUTE,
                    "puts %s of block %u into slot %u, more than it can have any use for", what, block, slot);
    if (s->wrote[FCP_COMPUTE] == now || s->read[FCP_COMM] > r->known[FCP_COMPUTE] ||
        s->wrote[FCP_COMM] > r->known[FCP_COMPUTE])
        return fail(r, FCP_E_VERIFY_SLOT, FCP_COMPUTE,
                    "puts %s of block %u into slot %u, where that of block %u may still be used", what, block, slot,
                    s->block);
    fcp_verify_use(r, cls, slot);
    fcp_verify_leave(r, cls, slot);
    *s = (held_slot){.block = block, .wrote = {[FCP_COMPUTE] = now}};
    return FCP_OK;
}
