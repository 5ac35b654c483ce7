/* held.h: the rules of slots that hold a block: KV, Q, and the results O and DQW on their way home. Private to
 * runtime/verify.
 *
 * Proves: - What is read or sent is in the slot that is named, whole, and ordered after what brought it there.
 *         - A transient slot gets its block from the first unit to the last, in order, and is not overwritten while its
 *           old contents may still be read.
 *         - What was received is read, or every unit of it is sent on; and a result is sent once.
 * Method: each slot counts how many of its block's first tokens have been sent. Units arrive in order, so a rank that
 *         gets a block from this slot alone gets them in order, too.
 *
 * Fabrics. Each slot notes over which fabric its block came, and over which it was last sent.
 *   - The compute queue waits for each fabric separately, so what it reads or overwrites must be ordered after the
 *     transfer over that fabric.
 *   - Two transfers of the communication queue that touch one slot are in the order of that queue, whatever their
 *     fabrics (runtime/plan/fabrics.c). So a block that came over net may be sent on over local. Only two sends from a
 *     slot may run at the same time, which does no harm.
 *   - Once a new block has come into a slot, all earlier sends from it are over, and are forgotten here.
 *
 * Every transfer goes through this, so it is inline, which saves a twentieth of the verifier's time.
 */
#ifndef FCP_VERIFY_HELD_H
#define FCP_VERIFY_HELD_H
#include "runtime/plan/enum_names.h"
#include "runtime/verify/rank_state.h"

/* The slot of a class and number, or NULL. */
static inline held_slot *fcp_verify_held(const run *r, fcp_class cls, uint32_t slot) {
    if (slot >= r->room[cls]) return NULL;
    return &r->b->held[cls == FCP_Q && slot < r->homes ? FCP_KV : cls][slot];
}
/* Returns whether the slot has all of its block, and the compute queue knows. */
static inline bool fcp_verify_ready(const run *r, const held_slot *s) {
    return s->left == 0 && fcp_verify_moves_known(r, s->wrote);
}
/* A block is not in its slot when queue q reads it, on behalf of `reader` number `id`: words the error. */
fcp_code fcp_verify_absent(run *r, fcp_queue q, const char *reader, uint32_t id, fcp_class cls, uint32_t block,
                           uint32_t slot) __attribute__((cold));
/* May what is there leave? Q of a home block, backward, after its delta; a result, if it is one, and once. */
fcp_code fcp_verify_may_send(run *r, const fcp_transfer *t, const held_slot *s);
/* A home slot receives nothing but the result of its block. */
fcp_code fcp_verify_receive_at_home(run *r, const fcp_transfer *t);
/* Instruction `now` of the compute queue puts a result of a block into a transient slot of class O or DQW. */
fcp_code fcp_verify_store_result(run *r, fcp_class cls, uint32_t block, uint32_t slot);
/* What lies in a slot goes away: it must have been of use. */
void fcp_verify_dead(run *r, fcp_class cls, const held_slot *s) __attribute__((cold));
static inline void fcp_verify_leave(run *r, fcp_class cls, const held_slot *s) {
    if (s->block == FCP_NONE || s->read[BY_COMPUTE]) return;
    if (s->left || s->sent != r->plan->blocks[s->block].tokens) fcp_verify_dead(r, cls, s);
}

static inline fcp_code fcp_verify_send_held(run *r, const fcp_transfer *t) {
    uint32_t id = (uint32_t)(t - r->plan->transfers), now = r->done[FCP_COMM] + 1;
    held_slot *s = fcp_verify_held(r, (fcp_class)t->cls, t->slot);
    /* what moves at the same time is not there */
    if (!s || s->block != t->block || s->left || fcp_verify_moved_at(s->wrote, now))
        return fcp_verify_absent(r, FCP_COMM, "transfer", id, (fcp_class)t->cls, t->block, t->slot);
    if (s->wrote[BY_COMPUTE] > r->known[BY_COMPUTE])
        return fail(r, FCP_E_VERIFY_PRESENCE, FCP_COMM,
                    "transfer %u sends %s block %u from slot %u without waiting for what fills it", id,
                    fcp_class_texts[t->cls], t->block, t->slot);
    fcp_code code = t->cls == FCP_KV ? FCP_OK : fcp_verify_may_send(r, t, s);
    if (t->first <= s->sent && t->first + t->tokens > s->sent) s->sent = t->first + t->tokens;
    s->read[t->fabric] = now;
    return code;
}

static inline fcp_code fcp_verify_receive_held(run *r, const fcp_transfer *t) {
    fcp_class cls = (fcp_class)t->cls;
    uint32_t id = (uint32_t)(t - r->plan->transfers), now = r->done[FCP_COMM] + 1, slot = t->slot;
    if (slot < r->homes) return fcp_verify_receive_at_home(r, t);
    if (slot >= r->room[cls])
        return fail(r, FCP_E_VERIFY_MEMORY, FCP_COMM,
                    "transfer %u receives %s block %u into slot %u, more than it can have any use for", id,
                    fcp_class_texts[cls],
                    t->block, slot);
    fcp_verify_use(r, cls, slot);
    const fcp_block *k = &r->plan->blocks[t->block];
    if (k->home == r->rank) /* a result; match.c lets no KV and no Q home */
        return fail(r, FCP_E_VERIFY_SLOT, FCP_COMM, "transfer %u receives %s of block %u into slot %u, and not slot %u",
                    id, fcp_class_texts[cls], t->block, slot, k->home_slot);
    held_slot *s = &r->b->held[cls][slot];
    if (t->first == 0) {
        uint32_t before = s->read[BY_COMPUTE] > s->wrote[BY_COMPUTE] ? s->read[BY_COMPUTE] : s->wrote[BY_COMPUTE];
        if (before > r->known[BY_COMPUTE])
            return fail(r, FCP_E_VERIFY_SLOT, FCP_COMM,
                        "transfer %u overwrites slot %u, where compute instruction %u may still use %s block %u", id,
                        slot, before - 1, fcp_class_texts[cls], s->block);
        if (fcp_verify_moved_at(s->read, now) || fcp_verify_moved_at(s->wrote, now))
            return fail(r, FCP_E_VERIFY_SLOT, FCP_COMM,
                        "transfer %u overwrites slot %u, which %s block %u uses in the same launch", id, slot,
                        fcp_class_texts[cls],
                        s->block);
        fcp_verify_leave(r, cls, s);
        *s = (held_slot){.block = t->block, .left = k->tokens};
    } else if (s->block != t->block) {
        return fail(r, FCP_E_VERIFY_PRESENCE, FCP_COMM,
                    "transfer %u brings tokens %u to %u of %s block %u to slot %u, which does not hold its beginning",
                    id, t->first, t->first + t->tokens, fcp_class_texts[cls], t->block, slot);
    }
    if (k->tokens - s->left != t->first)
        return fail(r, FCP_E_VERIFY_PRESENCE, FCP_COMM,
                    "transfer %u brings tokens %u to %u of %s block %u to slot %u, where %u have arrived", id, t->first,
                    t->first + t->tokens, fcp_class_texts[cls], t->block, slot, k->tokens - s->left);
    s->left -= t->tokens;
    s->wrote[t->fabric] = now;
    return FCP_OK;
}
#endif
