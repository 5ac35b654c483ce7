/* held.c: the functions of held.h that are called seldom: they word errors, and check sends and results. */
#include "runtime/verify/held.h"

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

fcp_code fcp_verify_may_send(run *r, const fcp_transfer *t, const held_slot *s) {
    uint32_t id = (uint32_t)(t - r->plan->transfers);
    if (t->cls == FCP_Q) {
        if (r->v->pass == FCP_FORWARD || t->slot >= r->homes) return FCP_OK;
        uint32_t delta = r->b->home[t->slot].delta;
        if (delta && delta <= r->known[BY_COMPUTE]) return FCP_OK;
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

void fcp_verify_dead(run *r, fcp_class cls, const held_slot *s) {
    verifier *v = r->v;
    uint32_t slot = (uint32_t)(s - r->b->held[cls]), moved = fcp_verify_moved_last(s->wrote);
    if (v->late.code) return;
    bool result = cls == FCP_O || cls == FCP_DQW;
    fcp_verify_fail_rank(v, &v->late, result ? FCP_E_VERIFY_RESULT : FCP_E_VERIFY_MATCH, r->rank,
                         ": %s of block %u lay in slot %u, and was %s; last used by instruction %lld of the %s queue",
                         fcp_class_texts[cls], s->block, slot,
                         s->left ? "never whole" : result ? "not sent home" : "neither read nor sent on as a whole",
                         (long long)(moved ? moved : s->wrote[BY_COMPUTE]) - 1,
                         fcp_queue_texts[moved ? FCP_COMM : FCP_COMPUTE]);
}

fcp_code fcp_verify_receive_at_home(run *r, const fcp_transfer *t) {
    if ((t->cls == FCP_O || t->cls == FCP_DQW) && r->blocks[t->slot] == t->block)
        return fcp_verify_receive_result(r, t);
    return fail(r, FCP_E_VERIFY_SLOT, FCP_COMM, "transfer %u receives %s block %u into slot %u, the home of block %u",
                (uint32_t)(t - r->plan->transfers), fcp_class_texts[t->cls], t->block, t->slot, r->blocks[t->slot]);
}

fcp_code fcp_verify_store_result(run *r, fcp_class cls, uint32_t block, uint32_t slot) {
    uint32_t now = r->done[FCP_COMPUTE] + 1;
    const char *what = fcp_class_texts[cls];
    if (slot < r->homes)
        return fail(r, FCP_E_VERIFY_SLOT, FCP_COMPUTE, "puts %s of block %u into slot %u, the home of block %u", what,
                    block, slot, r->blocks[slot]);
    held_slot *s = fcp_verify_held(r, cls, slot);
    if (!s)
        return fail(r, FCP_E_VERIFY_MEMORY, FCP_COMPUTE,
                    "puts %s of block %u into slot %u, more than it can have any use for", what, block, slot);
    /* what was sent on had come before */
    const uint32_t *moved = fcp_verify_moved_last(s->read) ? s->read : s->wrote;
    if (s->wrote[BY_COMPUTE] == now || !fcp_verify_moves_known(r, moved))
        return fail(r, FCP_E_VERIFY_SLOT, FCP_COMPUTE,
                    "puts %s of block %u into slot %u, where that of block %u may still be used", what, block, slot,
                    s->block);
    fcp_verify_use(r, cls, slot);
    fcp_verify_leave(r, cls, s);
    *s = (held_slot){.block = block, .wrote = {[BY_COMPUTE] = now}};
    return FCP_OK;
}
