/* check_compute.c: checks the compute instructions of a rank, and how a Q block gets its results.
 *
 * Words:  a visit has the flag FIRST if it begins the state (m, l, O) of its rows, and LAST if it makes their
 *         result. A block is WHOLE if none of its tiles runs at its home: one other rank makes its result and
 *         sends it home.
 * Proves: - A visit finds its Q block, and each of its tiles the KV block, in the slots that it names; in the backward
 *           pass, Q comes with a delta.
 *         - The visits and MERGEs of a Q block at a rank form one chain of state. FIRST begins it. It ends in LAST, in
 *           a send, or in FINISH. At LAST all tiles of the block have been computed. A result is made at home or, for a
 *           block that is WHOLE, elsewhere.
 *         - The results of a block are made once, by LAST or FINISH at home, or come home once. They go out after that
 *           and, in the backward pass, after the last addition to them.
 *         - Tokens are brought in before use.
 * Method: verify.c proves that each tile is computed once. So if a rank has computed as many tiles of a block as the
 *         block has, it has computed all of them, and no other rank computes any.
 */
#include "runtime/base/saturate.h"
#include "runtime/verify/held.h"
#include "runtime/verify/partial.h"

/* --- Q blocks and their chains of state --------------------------------------------------------------------------- */

/* Returns whether any other rank computes tiles of a block. */
__attribute__((cold)) static bool runs_elsewhere(const run *r, uint32_t block) {
    const fcp_plan *plan = r->plan;
    for (uint32_t rank = 0; rank < r->v->p->ranks; rank++) {
        const fcp_stream *s = fcp_stream_of(plan, r->v->pass, rank, FCP_COMPUTE);
        for (const fcp_instr *x = plan->instrs + s->first, *end = x + s->count; x < end && rank != r->rank; x++)
            for (uint32_t w = x->a; x->op == FCP_OP_ATTEND && w < x->a + x->b; w++)
                if (plan->visits[w].q_block == block) return true;
    }
    return false;
}

/* FIRST or LAST is not where it should be. */
__attribute__((cold)) static fcp_code wrong_flags(const run *r, uint32_t id, const fcp_visit *w, const q_state *q) {
    uint32_t total = r->v->tiles_of[w->q_block];
    bool last = w->flags & FCP_VISIT_LAST;
    bool away = r->plan->blocks[w->q_block].home != r->rank && !fcp_verify_is_whole(r, w->q_block);
    if (last && (away || runs_elsewhere(r, w->q_block)))
        return fail(r, FCP_E_VERIFY_RESULT, FCP_COMPUTE,
                    "visit %u makes the result of Q block %u, which is partial: %u of its %u tiles have been computed "
                    "here%s",
                    id, w->q_block, q->tiles, total, away ? ", not at its home" : "");
    return fail(r, FCP_E_VERIFY_TILE, FCP_COMPUTE,
                "visit %u is number %u here to Q block %u (with it %u of %u tiles, %s) and flagged %s%s%s", id,
                q->visits, w->q_block, q->tiles, total, q->chain ? "a state before it" : "no state yet",
                w->flags & FCP_VISIT_FIRST ? "first" : "",
                w->flags == (FCP_VISIT_FIRST | FCP_VISIT_LAST) ? ", " : w->flags ? "" : "neither", last ? "last" : "");
}

/* The running state of a visit, forward: flags, slot, and where O goes. The visit is counted in *q already. */
static fcp_code visit_state(run *r, uint32_t id, const fcp_visit *w, const fcp_block *k, q_state *q) {
    uint32_t now = r->done[FCP_COMPUTE] + 1;
    bool home = k->home == r->rank, first = !q->chain;
    bool last = q->tiles == r->v->tiles_of[w->q_block] && (home || k->flags & FCP_BLOCK_WHOLE);
    if (q->ended)
        return fail(r, q->made ? FCP_E_VERIFY_RESULT : FCP_E_VERIFY_RETURN, FCP_COMPUTE,
                    "visit %u is to Q block %u, whose chain here has ended%s", id, w->q_block,
                    q->made ? " in its result" : "");
    if (!!(w->flags & FCP_VISIT_FIRST) != first || !!(w->flags & FCP_VISIT_LAST) != last)
        return wrong_flags(r, id, w, q);
    if (w->o_slot == FCP_NONE ? last : !last || (home && w->o_slot != k->home_slot))
        return fail(r, FCP_E_VERIFY_SLOT, FCP_COMPUTE, "visit %u writes O of Q block %u to slot %u", id, w->q_block,
                    w->o_slot);
    if (last) {
        q->ended = true;
        if (home) {
            q->made = now;
        } else {
            fcp_code code = fcp_verify_store_result(r, FCP_O, w->q_block, w->o_slot);
            if (code) return code;
        }
    }
    if (first && last) {
        if (w->state_slot != FCP_NONE)
            return fail(r, FCP_E_VERIFY_SLOT, FCP_COMPUTE, "visit %u, the only one to Q block %u, names state slot %u",
                        id, w->q_block, w->state_slot);
        return FCP_OK;
    }
    if (w->state_slot == FCP_NONE)
        return fail(r, FCP_E_VERIFY_SLOT, FCP_COMPUTE, "visit %u, one of several to Q block %u, has no state slot", id,
                    w->q_block);
    if (w->state_slot >= r->room[FCP_STATE])
        return fail(r, FCP_E_VERIFY_MEMORY, FCP_COMPUTE,
                    "visit %u to Q block %u names state slot %u, more than it can have any use for", id, w->q_block,
                    w->state_slot);
    partial_slot *s = &r->b->partial[FCP_STATE][w->state_slot];
    if (first) {
        if (s->kind != EMPTY || s->touched[BY_COMPUTE] == now || !fcp_verify_moves_known(r, s->touched))
            return fail(r, FCP_E_VERIFY_SLOT, FCP_COMPUTE,
                        "visit %u puts the state of Q block %u into slot %u, %s", id, w->q_block, w->state_slot,
                        s->kind != EMPTY                  ? "which still holds another's"
                        : s->touched[BY_COMPUTE] == now ? "which is read in the same launch"
                                                          : "without waiting until another's has left it");
        s->kind = ADDING;
        s->block = w->q_block;
        s->last_round = s->last_peer = 0;
        q->chain = w->state_slot + 1;
        fcp_verify_use(r, FCP_STATE, w->state_slot);
    } else if (w->state_slot + 1 != q->chain) {
        return fail(r, FCP_E_VERIFY_SLOT, FCP_COMPUTE,
                    "visit %u reads the state of Q block %u in slot %u; it is in slot %u", id, w->q_block,
                    w->state_slot, q->chain - 1);
    }
    s->touched[BY_COMPUTE] = now;
    if (last) {
        s->kind = EMPTY;
        q->chain = 0;
    }
    r->v->facts.state_tokens += (uint64_t)(!first + !last) * k->tokens;
    return FCP_OK;
}

/* Backward, a visit runs at the rank at which it ran forward. */
static inline fcp_code check_place(run *r, uint32_t id, const fcp_visit *w, uint32_t away) {
    const verifier *v = r->v;
    if (v->pass == FCP_FORWARD || !v->visits_away || v->visit_away[id] == away) return FCP_OK;
    return fail(r, FCP_E_VERIFY_TILE, FCP_COMPUTE, "visit %u to Q block %u is at another rank than forward", id,
                w->q_block);
}

/* Q of a visit is in its slot: at home in the home slot, elsewhere where it was received. */
static inline fcp_code visit_q(run *r, uint32_t id, const fcp_visit *w, const fcp_block *k, const q_state *q) {
    if (k->home == r->rank) {
        if (w->q_slot != k->home_slot)
            return fail(r, FCP_E_VERIFY_PRESENCE, FCP_COMPUTE,
                        "visit %u reads Q block %u in slot %u, and its home slot is %u", id, w->q_block, w->q_slot,
                        k->home_slot);
        if (!fcp_verify_ready(r, &r->b->held[FCP_KV][w->q_slot]))
            return fcp_verify_absent(r, FCP_COMPUTE, "visit", id, FCP_Q, w->q_block, w->q_slot);
        if (q->out)
            return fail(r, FCP_E_VERIFY_LAYOUT, FCP_COMPUTE, "visit %u is to Q block %u, whose results went out before",
                        id, w->q_block);
        if (r->v->pass == FCP_BACKWARD && !q->delta)
            return fail(r, FCP_E_VERIFY_ORDER, FCP_COMPUTE,
                        "visit %u computes gradients of Q block %u before its delta", id, w->q_block);
        if (k->flags & FCP_BLOCK_WHOLE)
            return fail(r, FCP_E_VERIFY_RESULT, FCP_COMPUTE,
                        "visit %u is to Q block %u at its home, and its results come home whole", id, w->q_block);
        return check_place(r, id, w, 0);
    }
    held_slot *s = fcp_verify_held(r, FCP_Q, w->q_slot);
    if (!s || s->block != w->q_block || !fcp_verify_ready(r, s))
        return fcp_verify_absent(r, FCP_COMPUTE, "visit", id, FCP_Q, w->q_block, w->q_slot);
    s->read[BY_COMPUTE] = r->done[FCP_COMPUTE] + 1;
    return check_place(r, id, w, r->rank + 1);
}

/* dQ of a visit. An addition to a home slot needs no note of its own, because q_state knows the block's last visit. */
static inline fcp_code visit_dq(run *r, uint32_t id, const fcp_visit *w, const fcp_block *k) {
    if (k->home != r->rank) return fcp_verify_contribute(r, FCP_DQ, "visit", id, w->q_block, w->dq_slot, FCP_NONE);
    if (w->dq_slot == k->home_slot) return FCP_OK;
    return fail(r, FCP_E_VERIFY_SLOT, FCP_COMPUTE, "visit %u adds dQ of Q block %u to slot %u, and its home slot is %u",
                id, w->q_block, w->dq_slot, k->home_slot);
}

static fcp_code visit(run *r, uint32_t id) {
    const fcp_plan *plan = r->plan;
    const fcp_visit *w = &plan->visits[id];
    const fcp_block *k = &plan->blocks[w->q_block];
    q_state *q = fcp_verify_q(r, w->q_block);
    uint32_t now = r->done[FCP_COMPUTE] + 1;
    fcp_code code = visit_q(r, id, w, k, q);
    if (code) return code;
    if (q->visited == now)
        return fail(r, FCP_E_VERIFY_TILE, FCP_COMPUTE, "Q block %u is visited twice in one launch, by visit %u too",
                    w->q_block, id);
    q->visits++;
    q->visited = now;
    q->tiles += w->tiles;
    bool backward = r->v->pass == FCP_BACKWARD;
    if ((code = backward ? visit_dq(r, id, w, k) : visit_state(r, id, w, k, q))) return code;
    held_slot *held = r->b->held[FCP_KV];
    const uint32_t q_block = w->q_block, room = r->room[FCP_KV], homes = r->homes;
    for (const fcp_tile *t = plan->tiles + w->first_tile, *end = t + w->tiles; t < end; t++) {
        const uint32_t slot = t->kv_slot, k_block = t->k_block, i = (uint32_t)(t - plan->tiles);
        __builtin_prefetch(t + 32);
        if (t->q_block != q_block)
            return fail(r, FCP_E_VERIFY_TILE, FCP_COMPUTE, "visit %u to Q block %u holds tile %u, of Q block %u", id,
                        q_block, i, t->q_block);
        held_slot *s = &held[slot < room ? slot : 0];
        if (slot >= room || s->block != k_block || s->left || !fcp_verify_moves_known(r, s->wrote))
            return fcp_verify_absent(r, FCP_COMPUTE, "tile", i, FCP_KV, k_block, slot);
        s->read[BY_COMPUTE] = now;
        if (!backward) continue;
        code = fcp_verify_contribute(r, FCP_DKV, "tile", i, k_block, t->dkv_slot, slot < homes ? slot : FCP_NONE);
        if (code) return code;
    }
    return FCP_OK;
}

fcp_code fcp_verify_attend(run *r, const fcp_instr *x) {
    pass_facts *facts = &r->v->facts;
    if (x->stage >= facts->stages) facts->stages = (uint64_t)x->stage + 1;
    for (uint32_t i = x->a; i < x->a + x->b; i++) {
        __builtin_prefetch(&r->plan->visits[i] + 16);
        fcp_code code = visit(r, i);
        if (code) return code;
    }
    return FCP_OK;
}

fcp_code fcp_verify_finish(run *r, const fcp_instr *x) {
    const fcp_block *k = &r->plan->blocks[x->a];
    if (r->v->pass != FCP_FORWARD)
        return fail(r, FCP_E_VERIFY_ORDER, FCP_COMPUTE, "finishes state in the backward pass");
    q_state *q = fcp_verify_q(r, x->a);
    bool home = k->home == r->rank;
    if (home == fcp_verify_is_whole(r, x->a) || q->made)
        return fail(r, FCP_E_VERIFY_RESULT, FCP_COMPUTE, "finishes Q block %u, %s", x->a,
                    q->made ? "whose result was made before"
                    : home  ? "whose results come home whole"
                            : "whose home is elsewhere");
    if (home && x->c)
        return fail(r, FCP_E_VERIFY_SLOT, FCP_COMPUTE, "finishes Q block %u at its home, and names O slot %u", x->a,
                    x->c);
    partial_slot *s = x->b < r->room[FCP_STATE] ? &r->b->partial[FCP_STATE][x->b] : NULL;
    if (!s || s->kind != ADDING || q->chain != x->b + 1) /* a chain's slot holds its own block */
        return fail(r, FCP_E_VERIFY_RETURN, FCP_COMPUTE, "finishes Q block %u from slot %u, where its state is not",
                    x->a, x->b);
    s->kind = EMPTY;
    q->chain = 0;
    q->ended = true;
    q->made = s->touched[BY_COMPUTE] = r->done[FCP_COMPUTE] + 1;
    return home ? FCP_OK : fcp_verify_store_result(r, FCP_O, x->a, x->c);
}

/* --- home blocks -------------------------------------------------------------------------------------------------- */

fcp_code fcp_verify_delta(run *r, const fcp_instr *x) {
    if (r->v->pass != FCP_BACKWARD || x->b > r->homes || x->a > r->homes - x->b)
        return fail(r, FCP_E_VERIFY_ORDER, FCP_COMPUTE,
                    "computes delta of home slots %u to %llu in the %s pass; there are %u", x->a,
                    (unsigned long long)x->a + x->b, fcp_pass_names[r->v->pass], r->homes);
    for (uint32_t h = x->a; h < x->a + x->b; h++) {
        if (!(r->plan->blocks[r->blocks[h]].holds & FCP_HOLDS_Q)) continue;
        if (!fcp_verify_ready(r, &r->b->held[FCP_KV][h]))
            return fcp_verify_absent(r, FCP_COMPUTE, "home slot", h, FCP_Q, r->blocks[h], h);
        q_state *q = &r->b->home[h];
        if (q->delta)
            return fail(r, FCP_E_VERIFY_ORDER, FCP_COMPUTE, "computes delta of block %u a second time", r->blocks[h]);
        q->delta = r->done[FCP_COMPUTE] + 1;
    }
    return FCP_OK;
}

fcp_code fcp_verify_deltas(run *r) {
    for (uint32_t h = 0; h < r->homes; h++)
        if (!r->b->home[h].delta && r->plan->blocks[r->blocks[h]].holds & FCP_HOLDS_Q)
            return fcp_verify_fail_rank(r->v, r->v->err, FCP_E_VERIFY_ORDER, r->rank,
                                        ", at the end: there is no delta of block %u", r->blocks[h]);
    return FCP_OK;
}

fcp_code fcp_verify_bring_in(run *r, fcp_queue q, const fcp_transfer *t) {
    const fcp_block *blocks = r->plan->blocks;
    held_slot *held = r->b->held[FCP_KV];
    unit_walk w;
    fcp_code code = fcp_verify_unit(r->v, q, r->done[q], t, &w);
    for (; !code && fcp_verify_more(&w); fcp_verify_go_on(&w)) {
        held_slot *s = &held[blocks[w.at->block].home_slot];
        s->left -= fcp_verify_share(&w); /* it has as many: no unit comes in twice */
        s->wrote[q == FCP_COMPUTE ? (uint32_t)BY_COMPUTE : t->fabric] = r->done[q] + 1;
    }
    return code;
}

/* Returns whether something that is still to come at this rank makes O of a block, or brings its results home. */
__attribute__((cold)) static bool is_to_come(const run *r, uint32_t block) {
    const fcp_plan *plan = r->plan;
    for (uint32_t i = r->done[FCP_COMPUTE]; i < r->count[FCP_COMPUTE]; i++) {
        const fcp_instr *x = &r->instr[FCP_COMPUTE][i];
        if (x->op == FCP_OP_FINISH && x->a == block) return true;
        for (uint32_t w = x->a; x->op == FCP_OP_ATTEND && w < x->a + x->b; w++)
            if (plan->visits[w].q_block == block && plan->visits[w].flags & FCP_VISIT_LAST) return true;
    }
    for (uint32_t i = r->done[FCP_COMM]; i < r->count[FCP_COMM]; i++) {
        const fcp_instr *x = &r->instr[FCP_COMM][i];
        for (uint32_t j = x->a; x->op == FCP_OP_LAUNCH && j < x->a + x->b; j++) {
            const fcp_transfer *t = &plan->transfers[j];
            if (t->block == block && t->dir == FCP_RECV && (t->cls == FCP_O || t->cls == FCP_DQW)) return true;
        }
    }
    return false;
}

__attribute__((cold)) static fcp_code too_early(const run *r, fcp_queue q, uint32_t block) {
    const q_state *h = &r->b->home[r->plan->blocks[block].home_slot];
    bool whole = fcp_verify_is_whole(r, block);
    bool missing = whole ? h->got < r->plan->blocks[block].tokens : r->v->pass == FCP_FORWARD && !h->made;
    if (missing && !is_to_come(r, block))
        return fail(r, FCP_E_VERIFY_RESULT, q, "results of block %u go out, and nothing %s", block,
                    whole ? "brings them home" : "makes them");
    return fail(r, FCP_E_VERIFY_LAYOUT, q,
                "results of block %u go out before its last visit, addition or arrival is known to be complete", block);
}

static inline fcp_code take_out_block(run *r, fcp_queue q, uint32_t block) {
    const verifier *v = r->v;
    uint32_t slot = r->plan->blocks[block].home_slot;
    q_state *h = &r->b->home[slot];
    uint32_t last = h->visited; /* the last access of the compute queue */
    const fcp_block *k = &r->plan->blocks[block];
    if (k->flags & FCP_BLOCK_WHOLE) {
        if (h->got < k->tokens) return too_early(r, q, block);
        if (q == FCP_COMPUTE && !fcp_verify_moves_known(r, h->arrived)) return too_early(r, q, block);
    } else if (v->pass == FCP_FORWARD ? !h->made && v->tiles_of[block]
                                       : h->tiles != v->tiles_of[block] && !v->away[block].tiles) {
        return too_early(r, q, block);
    }
    if (v->pass == FCP_FORWARD) {
        last = h->made;
    } else {
        uint32_t dkv = r->b->partial[FCP_DKV][slot].touched[BY_COMPUTE];
        uint32_t dq = v->facts.moves[FCP_DQ] ? r->b->partial[FCP_DQ][slot].touched[BY_COMPUTE] : 0;
        if (dkv > last) last = dkv;
        if (dq > last) last = dq;
    }
    if (q == FCP_COMM && last > r->known[BY_COMPUTE]) return too_early(r, q, block);
    h->out = true;
    return FCP_OK;
}

fcp_code fcp_verify_take_out(run *r, fcp_queue q, const fcp_transfer *t) {
    unit_walk w;
    fcp_code code = fcp_verify_unit(r->v, q, r->done[q], t, &w);
    for (; !code && fcp_verify_more(&w); fcp_verify_go_on(&w)) code = take_out_block(r, q, w.at->block);
    return code;
}

fcp_code fcp_verify_receive_result(run *r, const fcp_transfer *t) {
    uint32_t id = (uint32_t)(t - r->plan->transfers);
    q_state *h = &r->b->home[t->slot];
    const char *what = fcp_class_texts[t->cls];
    if (!fcp_verify_is_whole(r, t->block))
        return fail(r, FCP_E_VERIFY_RESULT, FCP_COMM, "transfer %u receives %s of block %u, whose results are partial",
                    id, what, t->block);
    if (t->first != h->got)
        return fail(r, FCP_E_VERIFY_RESULT, FCP_COMM,
                    "transfer %u brings tokens %u to %u of %s of block %u home, where %u have arrived", id, t->first,
                    t->first + t->tokens, what, t->block, h->got);
    h->got += t->tokens;
    h->arrived[t->fabric] = r->done[FCP_COMM] + 1;
    return FCP_OK;
}
