/* rank.c: one rank's two queues, executed against its slots.
 *
 * Requires: checked tables; launches that fit together (match.c); visits that hold each tile once, and ATTENDs that
 *           name each visit once (verify.c).
 * Proves:   - Both queues run to their ends.
 *           - Whatever an instruction reads is in the slot that it names, whole, and ordered after what wrote it.
 *           - Nothing is overwritten before what reads it has completed.
 *           - Visits have the right flags and state slots.
 *           - Every partial is sent on or reduced, once, and in order.
 *           - Tokens are brought in before use and taken out after the last use.
 *           - Launches keep to `buffers`.
 * Method:   The queues are run in one order that respects the waits. One order is enough: any two accesses of a slot of
 *           which one writes must be ordered by waits, so in every other order each access finds the same contents.
 *           Instruction i of one queue comes before instruction j of the other if and only if a WAIT at or before j
 *           asks for more than i. Sends are checked here, too: what arrives is what was sent, since both sides agree on
 *           block and tokens, and the sender's own run proves that it had them. Partials need no count: each goes to
 *           one place, another accumulator of its block, or is found left over; and time moves forward, so all end at
 *           the home.
 * Cost:     linear in the rank's instructions, transfers, visits and tiles.
 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/verify/parts.h"

/* An access is written down as the number of its instruction in its queue, + 1; 0 means that there was none. */
typedef struct kv_slot {
    uint32_t block, left;   /* left: tokens that have not arrived */
    uint32_t wrote[FCP_QUEUES], read[FCP_QUEUES];
} kv_slot;

typedef enum partial_kind { EMPTY, ADDING, LEAVING, ARRIVING, ARRIVED } partial_kind;
/* A slot of class DKV. Home slots are ADDING all the time. */
typedef struct dkv_slot {
    uint32_t block, kind;
    uint32_t tokens;               /* LEAVING, ARRIVING: how many have left, have arrived */
    uint32_t peer;                 /* LEAVING, ARRIVING, ARRIVED: the other rank */
    uint32_t round;                /* ARRIVED: the round that brought the last unit */
    uint32_t last_round, last_peer; /* ADDING: of the last partial that was reduced into it, + 1 */
    uint32_t touched[FCP_QUEUES];
} dkv_slot;

typedef struct home_block {
    uint32_t visits, visited; /* how many visits so far; instruction + 1 of the last */
    uint32_t total;           /* how many visits it has in all */
    uint32_t state;           /* state slot, while there is one */
    bool out;                 /* results have gone out */
} home_block;

typedef struct state_slot {
    uint32_t owner; /* Q block + 1 */
    uint32_t freed; /* instruction + 1 */
} state_slot;

struct rank_buffers {
    kv_slot *kv;
    dkv_slot *dkv;
    home_block *home;
    state_slot *state;
};

typedef struct run {
    verifier *v;
    const fcp_plan *plan;
    rank_buffers *b;
    uint32_t rank, homes;
    const uint32_t *blocks;            /* home blocks */
    const fcp_round *rounds;           /* of the pass */
    const fcp_instr *instr[FCP_QUEUES];
    uint32_t count[FCP_QUEUES], done[FCP_QUEUES];
    uint32_t known[FCP_QUEUES];        /* how many instructions of the other queue it has waited for */
    uint32_t kv_room, dkv_room;        /* how many slots this rank can have any use for */
    uint32_t kv_used, dkv_used, state_used; /* the largest slot named, + 1; at least homes for kv and dkv */
    uint32_t stage[FCP_QUEUES];        /* of the newest instruction */
    uint32_t computed, compute_scan, buffers_stage; /* see check_buffers */
    bool delta;
} run;

static const char *const dkv_words[] = {"is empty", "is being added to", "is being sent", "is arriving",
                                        "waits to be reduced"};

/* An error at the instruction where queue q stands. */
__attribute__((format(printf, 4, 5), cold))
static fcp_code fail(const run *r, fcp_code code, fcp_queue q, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fcp_verify_vfail(r->v, code, r->rank, q, r->done[q], format, args);
    va_end(args);
    return code;
}

/* --- KV and home blocks ------------------------------------------------------------------------------------------- */

/* A block is not in its slot when queue q reads it. Finds out why, to word the error: it may have been there and have
 * been overwritten. */
__attribute__((cold, noinline)) static fcp_code absent(run *r, fcp_queue q, const char *reader, uint32_t id,
                                                       uint32_t block, uint32_t slot) {
    const kv_slot *s = slot < r->kv_room ? &r->b->kv[slot] : NULL;
    if (s && s->block == block && s->left)
        return fail(r, FCP_E_VERIFY_PRESENCE, q,
                    "%s %u reads KV block %u in slot %u, where %u of its tokens are missing", reader, id, block, slot,
                    s->left);
    if (s && s->block == block)
        return fail(r, FCP_E_VERIFY_PRESENCE, q,
                    "%s %u reads KV block %u in slot %u without waiting for what brings it", reader, id, block, slot);
    for (uint32_t j = 0; s && j < r->done[FCP_COMM]; j++) {
        const fcp_instr *x = &r->instr[FCP_COMM][j];
        if (x->op != FCP_OP_LAUNCH) continue;
        for (const fcp_transfer *t = r->plan->transfers + x->a, *end = t + x->b; t < end; t++)
            if (t->cls == FCP_KV && t->dir == FCP_RECV && t->slot == slot && t->block == block)
                return fail(r, FCP_E_VERIFY_SLOT, q,
                            "%s %u reads KV block %u in slot %u, which block %u has overwritten", reader, id, block,
                            slot, s->block);
    }
    if (s && s->block != FCP_NONE)
        return fail(r, FCP_E_VERIFY_PRESENCE, q, "%s %u reads KV block %u in slot %u, which holds block %u", reader, id,
                    block, slot, s->block);
    return fail(r, FCP_E_VERIFY_PRESENCE, q, "%s %u reads KV block %u in slot %u, which holds nothing", reader, id,
                block, slot);
}

/* A unit of a bundle comes in, by a COPY or a receive: tokens of one or more home blocks. */
static fcp_code bring_in(run *r, fcp_queue q, const fcp_transfer *t) {
    uint64_t entry;
    uint32_t block, tokens;
    fcp_code code = fcp_verify_unit(r->v, q, r->done[q], t, &entry);
    while (!code && fcp_verify_unit_next(r->v, t, &entry, &block, &tokens)) {
        kv_slot *s = &r->b->kv[r->plan->blocks[block].home_slot];
        s->left -= tokens; /* it has as many: no unit comes in twice */
        s->wrote[q] = r->done[q] + 1;
    }
    return code;
}

/* Results of a home block go out, by a COPY or a send. */
static fcp_code take_out_block(run *r, fcp_queue q, uint32_t block) {
    uint32_t slot = r->plan->blocks[block].home_slot;
    home_block *h = &r->b->home[slot];
    uint32_t last = h->visited;
    if (r->v->pass == FCP_BACKWARD && r->b->dkv[slot].touched[FCP_COMPUTE] > last)
        last = r->b->dkv[slot].touched[FCP_COMPUTE];
    if (h->visits != h->total || (q == FCP_COMM && last > r->known[q]))
        return fail(r, FCP_E_VERIFY_LAYOUT, q,
                    "results of block %u go out before its last visit or reduction is known to be complete", block);
    h->out = true;
    return FCP_OK;
}

static fcp_code take_out(run *r, fcp_queue q, const fcp_transfer *t) {
    uint64_t entry;
    uint32_t block, tokens;
    fcp_code code = fcp_verify_unit(r->v, q, r->done[q], t, &entry);
    while (!code && fcp_verify_unit_next(r->v, t, &entry, &block, &tokens)) code = take_out_block(r, q, block);
    return code;
}

/* --- computing queue ---------------------------------------------------------------------------------------------- */

static fcp_code copy(run *r, const fcp_instr *x) {
    r->v->named += x->b;
    for (const fcp_transfer *t = r->plan->transfers + x->a, *end = t + x->b; t < end; t++) {
        if ((t->cls != FCP_IN && t->cls != FCP_OUT) || t->peer != r->rank)
            return fail(r, FCP_E_VERIFY_ORDER, FCP_COMPUTE, "transfer %zu is no copy: class %u, peer %u",
                        (size_t)(t - r->plan->transfers), t->cls, t->peer);
        if (!fcp_at_caller(t))
            return fail(r, FCP_E_VERIFY_LAYOUT, FCP_COMPUTE, "copy %zu is listed as the home's side",
                        (size_t)(t - r->plan->transfers));
        fcp_code code = t->cls == FCP_IN ? bring_in(r, FCP_COMPUTE, t) : take_out(r, FCP_COMPUTE, t);
        if (code) return code;
    }
    return FCP_OK;
}

static inline bool ready(const run *r, const kv_slot *s) {
    return s->left == 0 && s->wrote[FCP_COMM] <= r->known[FCP_COMPUTE];
}

static fcp_code delta(run *r, const fcp_instr *x) {
    if (r->v->pass != FCP_BACKWARD || r->delta || x->a != 0 || x->b != r->homes)
        return fail(r, FCP_E_VERIFY_ORDER, FCP_COMPUTE, "delta is computed once, in the backward pass, of all blocks");
    for (uint32_t h = 0; h < r->homes; h++)
        if (!ready(r, &r->b->kv[h])) return absent(r, FCP_COMPUTE, "home slot", h, r->blocks[h], h);
    r->delta = true;
    return FCP_OK;
}

/* The running state of a visit: flags and slot. */
static fcp_code visit_state(run *r, uint32_t id, const fcp_visit *v, home_block *h) {
    uint32_t total = h->total, now = r->done[FCP_COMPUTE] + 1;
    bool first = h->visits == 0, last = h->visits + 1 == total;
    if (h->visits && h->visited == now)
        return fail(r, FCP_E_VERIFY_TILE, FCP_COMPUTE, "Q block %u is visited twice in one launch, by visit %u too",
                    v->q_block, id);
    if (!!(v->flags & FCP_VISIT_FIRST) != first || !!(v->flags & FCP_VISIT_LAST) != last)
        return fail(r, FCP_E_VERIFY_TILE, FCP_COMPUTE, "visit %u is number %u of %u to Q block %u and flagged %s%s%s",
                    id, h->visits + 1, total, v->q_block, v->flags & FCP_VISIT_FIRST ? "first" : "",
                    v->flags == (FCP_VISIT_FIRST | FCP_VISIT_LAST) ? ", " : v->flags ? "" : "neither",
                    v->flags & FCP_VISIT_LAST ? "last" : "");
    if (first && last) {
        if (v->state_slot != FCP_NONE)
            return fail(r, FCP_E_VERIFY_SLOT, FCP_COMPUTE, "visit %u, the only one to Q block %u, names state slot %u",
                        id, v->q_block, v->state_slot);
        return FCP_OK;
    }
    if (v->state_slot == FCP_NONE)
        return fail(r, FCP_E_VERIFY_SLOT, FCP_COMPUTE, "visit %u, one of %u to Q block %u, has no state slot", id,
                    total, v->q_block);
    if (v->state_slot >= r->homes)
        return fail(r, FCP_E_VERIFY_MEMORY, FCP_COMPUTE,
                    "visit %u to Q block %u names state slot %u; %u blocks live here", id, v->q_block, v->state_slot,
                    r->homes);
    state_slot *s = &r->b->state[v->state_slot];
    if (first) {
        if (s->owner || s->freed == now)
            return fail(r, FCP_E_VERIFY_SLOT, FCP_COMPUTE,
                        "visit %u puts the state of Q block %u into slot %u, which %s", id, v->q_block, v->state_slot,
                        s->owner ? "still holds another's" : "is read in the same launch");
        s->owner = v->q_block + 1;
        h->state = v->state_slot;
        if (v->state_slot >= r->state_used) r->state_used = v->state_slot + 1;
    } else if (v->state_slot != h->state || s->owner != v->q_block + 1) {
        return fail(r, FCP_E_VERIFY_SLOT, FCP_COMPUTE,
                    "visit %u reads the state of Q block %u in slot %u; it is in slot %u", id, v->q_block,
                    v->state_slot, h->state);
    }
    if (last) {
        s->owner = 0;
        s->freed = now;
    }
    if (r->v->pass == FCP_FORWARD)
        r->v->facts[FCP_FORWARD].state_tokens += (uint64_t)(!first + !last) * r->plan->blocks[v->q_block].tokens;
    return FCP_OK;
}

/* A tile adds its dK and dV. Its KV block is in its slot, so the block is at home here if and only if that is a home
 * slot. */
static inline fcp_code add_partial(run *r, uint32_t id, const fcp_tile *t) {
    bool home = t->kv_slot < r->homes;
    if (home ? t->dkv_slot != t->kv_slot : t->dkv_slot < r->homes || t->dkv_slot >= r->dkv_room)
        return fail(r, FCP_E_VERIFY_RETURN, FCP_COMPUTE,
                    "tile %u adds dKV of block %u to slot %u, from which it does not reach its home", id, t->k_block,
                    t->dkv_slot);
    dkv_slot *d = &r->b->dkv[t->dkv_slot];
    if (d->kind == EMPTY) {
        if (d->touched[FCP_COMM] > r->known[FCP_COMPUTE])
            return fail(r, FCP_E_VERIFY_SLOT, FCP_COMPUTE,
                 "tile %u adds dKV of block %u to slot %u without waiting until block %u has left it", id, t->k_block,
                 t->dkv_slot, d->block);
        d->kind = ADDING;
        d->block = t->k_block;
        d->last_round = d->last_peer = 0;
        if (t->dkv_slot >= r->dkv_used) r->dkv_used = t->dkv_slot + 1;
    } else if (d->kind != ADDING || d->block != t->k_block) {
        return fail(r, FCP_E_VERIFY_RETURN, FCP_COMPUTE,
                    "tile %u adds dKV of block %u to slot %u, which holds block %u and %s", id, t->k_block, t->dkv_slot,
                    d->block, dkv_words[d->kind]);
    } else if (home && r->b->home[t->kv_slot].out) {
        return fail(r, FCP_E_VERIFY_LAYOUT, FCP_COMPUTE, "tile %u adds dKV of block %u, whose results went out before",
                    id, t->k_block);
    }
    d->touched[FCP_COMPUTE] = r->done[FCP_COMPUTE] + 1;
    return FCP_OK;
}

static fcp_code visit(run *r, uint32_t id) {
    verifier *v = r->v;
    const fcp_plan *plan = r->plan;
    const fcp_visit *w = &plan->visits[id];
    const fcp_block *q = &plan->blocks[w->q_block];
    if (q->home != r->rank)
        return fail(r, FCP_E_VERIFY_PRESENCE, FCP_COMPUTE, "visit %u is to Q block %u, whose home is rank %u", id,
                    w->q_block, q->home);
    home_block *h = &r->b->home[q->home_slot];
    if (w->q_slot != q->home_slot)
        return fail(r, FCP_E_VERIFY_PRESENCE, FCP_COMPUTE,
                    "visit %u reads Q block %u in slot %u, and its home slot is %u", id, w->q_block, w->q_slot,
                    q->home_slot);
    if (!ready(r, &r->b->kv[q->home_slot])) return absent(r, FCP_COMPUTE, "visit", id, w->q_block, q->home_slot);
    if (h->out)
        return fail(r, FCP_E_VERIFY_LAYOUT, FCP_COMPUTE, "visit %u is to Q block %u, whose results went out before", id,
                    w->q_block);
    fcp_code code = visit_state(r, id, w, h);
    if (code) return code;
    uint32_t o_slot = w->flags & FCP_VISIT_LAST ? q->home_slot : FCP_NONE;
    if (w->o_slot != o_slot || (v->p->passes & 1u << FCP_BACKWARD && w->dq_slot != q->home_slot))
        return fail(r, FCP_E_VERIFY_SLOT, FCP_COMPUTE, "visit %u writes Q block %u to slots %u of O and %u of dQ", id,
                    w->q_block, w->o_slot, w->dq_slot);
    uint32_t now = r->done[FCP_COMPUTE] + 1, known = r->known[FCP_COMPUTE];
    h->visits++;
    h->visited = now;
    bool backward = v->pass == FCP_BACKWARD;
    for (uint32_t i = w->first_tile; i < w->first_tile + w->tiles; i++) {
        const fcp_tile *t = &plan->tiles[i];
        if (t->q_block != w->q_block)
            return fail(r, FCP_E_VERIFY_TILE, FCP_COMPUTE, "visit %u to Q block %u holds tile %u, of Q block %u", id,
                        w->q_block, i, t->q_block);
        kv_slot *s = &r->b->kv[t->kv_slot < r->kv_room ? t->kv_slot : 0]; /* there is one: the Q block's */
        if (t->kv_slot >= r->kv_room || s->block != t->k_block || s->left || s->wrote[FCP_COMM] > known)
            return absent(r, FCP_COMPUTE, "tile", i, t->k_block, t->kv_slot);
        s->read[FCP_COMPUTE] = now;
        if (backward && (code = add_partial(r, i, t))) return code;
    }
    return FCP_OK;
}

static fcp_code attend(run *r, const fcp_instr *x) {
    if (r->v->pass == FCP_BACKWARD && !r->delta)
        return fail(r, FCP_E_VERIFY_ORDER, FCP_COMPUTE, "computes gradients before delta");
    pass_facts *facts = &r->v->facts[r->v->pass];
    if (x->stage >= facts->stages) facts->stages = (uint64_t)x->stage + 1;
    for (uint32_t i = x->a; i < x->a + x->b; i++) {
        fcp_code code = visit(r, i);
        if (code) return code;
    }
    return FCP_OK;
}

static fcp_code reduce(run *r, const fcp_instr *x) {
    uint32_t now = r->done[FCP_COMPUTE] + 1, known = r->known[FCP_COMPUTE];
    if (r->v->pass != FCP_BACKWARD) return fail(r, FCP_E_VERIFY_ORDER, FCP_COMPUTE, "reduces in the forward pass");
    const fcp_block *k = &r->plan->blocks[x->a];
    dkv_slot *from = x->b < r->dkv_room ? &r->b->dkv[x->b] : NULL;
    if (!from || from->kind != ARRIVED || from->block != x->a)
        return fail(r, FCP_E_VERIFY_RETURN, FCP_COMPUTE,
                    "reduces dKV of block %u from slot %u, where no partial of it waits", x->a, x->b);
    if (from->touched[FCP_COMM] > known)
        return fail(r, FCP_E_VERIFY_PRESENCE, FCP_COMPUTE,
                    "reduces dKV of block %u from slot %u without waiting for its arrival", x->a, x->b);
    if (k->home == r->rank ? x->c != k->home_slot : x->c < r->homes || x->c >= r->dkv_room)
        return fail(r, FCP_E_VERIFY_RETURN, FCP_COMPUTE,
                    "reduces dKV of block %u into slot %u, from which it does not reach its home", x->a, x->c);
    dkv_slot *to = &r->b->dkv[x->c];
    if (to->kind == EMPTY) {
        if (to->touched[FCP_COMM] > known)
            return fail(r, FCP_E_VERIFY_SLOT, FCP_COMPUTE,
                        "reduces dKV of block %u into slot %u without waiting until block %u has left it", x->a, x->c,
                        to->block);
        to->kind = ADDING;
        to->block = x->a;
        to->last_round = to->last_peer = 0;
        if (x->c >= r->dkv_used) r->dkv_used = x->c + 1;
    } else if (to->kind != ADDING || to->block != x->a) {
        return fail(r, FCP_E_VERIFY_RETURN, FCP_COMPUTE,
                    "reduces dKV of block %u into slot %u, which holds block %u and %s", x->a, x->c, to->block,
                    dkv_words[to->kind]);
    } else if (x->c < r->homes && r->b->home[x->c].out) {
        return fail(r, FCP_E_VERIFY_LAYOUT, FCP_COMPUTE, "reduces dKV of block %u, whose results went out before",
                    x->a);
    }
    if (from->round + 1 < to->last_round || (from->round + 1 == to->last_round && from->peer + 1 <= to->last_peer))
        return fail(r, FCP_E_VERIFY_RETURN, FCP_COMPUTE,
                    "reduces dKV of block %u from rank %u, round %u, after that from rank %u, round %u: out of order",
                    x->a, from->peer, from->round, to->last_peer - 1, to->last_round - 1);
    to->last_round = from->round + 1;
    to->last_peer = from->peer + 1;
    from->kind = EMPTY;
    from->touched[FCP_COMPUTE] = to->touched[FCP_COMPUTE] = now;
    return FCP_OK;
}

/* --- communication queue ------------------------------------------------------------------------------------------ */

/* A launch of stage t waits for every ATTEND of stage t - buffers or earlier. Stages do not decrease on either queue,
 * so one pointer, which only moves on, finds the last of them. */
static inline fcp_code check_buffers(run *r, const fcp_instr *x) {
    const fcp_instr *compute = r->instr[FCP_COMPUTE];
    uint64_t buffers = r->v->p->buffers;
    for (; r->compute_scan < r->count[FCP_COMPUTE] && compute[r->compute_scan].stage + buffers <= x->stage;
         r->compute_scan++)
        if (compute[r->compute_scan].op == FCP_OP_ATTEND) r->computed = r->compute_scan + 1;
    if (r->computed > r->known[FCP_COMM])
        return fail(r, FCP_E_VERIFY_ORDER, FCP_COMM,
                    "with %u buffers it must wait for compute instruction %u (stage %u), and waits for %u",
                    r->v->p->buffers, r->computed - 1, compute[r->computed - 1].stage, r->known[FCP_COMM]);
    r->buffers_stage = x->stage;
    return FCP_OK;
}

/* How many tokens the launch that a send belongs to brings into its slot. They are listed before the send, but move at
 * the same time, so they cannot be sent in it. */
static uint32_t arriving(const run *r, const fcp_instr *x, const fcp_transfer *sent) {
    uint32_t tokens = 0;
    for (const fcp_transfer *t = r->plan->transfers + x->a; t < sent; t++)
        if (t->cls == FCP_KV && t->dir == FCP_RECV && t->slot == sent->slot) tokens += t->tokens;
    return tokens;
}

static inline fcp_code send_kv(run *r, const fcp_instr *x, const fcp_transfer *t) {
    uint32_t id = (uint32_t)(t - r->plan->transfers), now = r->done[FCP_COMM] + 1;
    kv_slot *s = t->slot < r->kv_room ? &r->b->kv[t->slot] : NULL;
    if (!s || s->block != t->block) return absent(r, FCP_COMM, "transfer", id, t->block, t->slot);
    if (s->left || s->wrote[FCP_COMM] == now) {
        uint32_t have = t->slot < r->homes ? 0 : r->plan->blocks[t->block].tokens - s->left;
        if (s->wrote[FCP_COMM] == now) have -= arriving(r, x, t);
        if (t->first + t->tokens > have)
            return fail(r, FCP_E_VERIFY_PRESENCE, FCP_COMM,
                        "transfer %u sends tokens %u to %u of KV block %u, of which %u are in slot %u", id, t->first,
                        t->first + t->tokens, t->block, have, t->slot);
    }
    if (s->wrote[FCP_COMPUTE] > r->known[FCP_COMM])
        return fail(r, FCP_E_VERIFY_PRESENCE, FCP_COMM,
             "transfer %u sends KV block %u from slot %u without waiting for the copy that fills it", id, t->block,
             t->slot);
    s->read[FCP_COMM] = now;
    return FCP_OK;
}

static inline fcp_code receive_kv(run *r, const fcp_transfer *t) {
    uint32_t id = (uint32_t)(t - r->plan->transfers), now = r->done[FCP_COMM] + 1;
    uint32_t tokens = r->plan->blocks[t->block].tokens;
    if (t->slot < r->homes)
        return fail(r, FCP_E_VERIFY_SLOT, FCP_COMM,
                    "transfer %u receives KV block %u into slot %u, the home of block %u", id, t->block, t->slot,
                    r->blocks[t->slot]);
    if (t->slot >= r->kv_room)
        return fail(r, FCP_E_VERIFY_MEMORY, FCP_COMM,
                    "transfer %u receives KV block %u into slot %u, more than it can have any use for", id, t->block,
                    t->slot);
    if (t->slot >= r->kv_used) r->kv_used = t->slot + 1;
    kv_slot *s = &r->b->kv[t->slot];
    if (t->first == 0) {
        if (s->read[FCP_COMPUTE] > r->known[FCP_COMM])
            return fail(r, FCP_E_VERIFY_SLOT, FCP_COMM,
                 "transfer %u overwrites slot %u, where compute instruction %u may still read KV block %u", id, t->slot,
                 s->read[FCP_COMPUTE] - 1, s->block);
        if (s->read[FCP_COMM] == now || s->wrote[FCP_COMM] == now)
            return fail(r, FCP_E_VERIFY_SLOT, FCP_COMM,
                        "transfer %u overwrites slot %u, which KV block %u uses in the same launch", id, t->slot,
                        s->block);
        s->block = t->block;
        s->left = tokens;
    } else if (s->block != t->block) {
        return fail(r, FCP_E_VERIFY_PRESENCE, FCP_COMM,
             "transfer %u brings tokens %u to %u of KV block %u to slot %u, which does not hold its beginning", id,
             t->first, t->first + t->tokens, t->block, t->slot);
    }
    if (tokens - s->left != t->first)
        return fail(r, FCP_E_VERIFY_PRESENCE, FCP_COMM,
                    "transfer %u brings tokens %u to %u of KV block %u to slot %u, where %u have arrived", id, t->first,
                    t->first + t->tokens, t->block, t->slot, tokens - s->left);
    s->left -= t->tokens;
    s->wrote[FCP_COMM] = now;
    return FCP_OK;
}

static inline fcp_code send_dkv(run *r, const fcp_transfer *t) {
    uint32_t id = (uint32_t)(t - r->plan->transfers), now = r->done[FCP_COMM] + 1;
    dkv_slot *d = t->slot >= r->homes && t->slot < r->dkv_room ? &r->b->dkv[t->slot] : NULL;
    bool begins = d && d->kind == ADDING && t->first == 0;
    bool goes_on = d && d->kind == LEAVING && t->first == d->tokens && t->peer == d->peer;
    if (!d || d->block != t->block || (!begins && !goes_on))
        return fail(r, FCP_E_VERIFY_RETURN, FCP_COMM,
             "transfer %u sends tokens %u to %u of dKV of block %u from slot %u, where they do not wait", id, t->first,
             t->first + t->tokens, t->block, t->slot);
    if (d->touched[FCP_COMPUTE] > r->known[FCP_COMM])
        return fail(r, FCP_E_VERIFY_PRESENCE, FCP_COMM,
             "transfer %u sends dKV of block %u from slot %u without waiting for compute instruction %u", id, t->block,
             t->slot, d->touched[FCP_COMPUTE] - 1);
    d->peer = t->peer;
    d->tokens = t->first + t->tokens;
    d->kind = d->tokens == r->plan->blocks[t->block].tokens ? EMPTY : LEAVING;
    d->touched[FCP_COMM] = now;
    return FCP_OK;
}

static inline fcp_code receive_dkv(run *r, const fcp_transfer *t, uint32_t round) {
    uint32_t id = (uint32_t)(t - r->plan->transfers), now = r->done[FCP_COMM] + 1;
    if (t->slot < r->homes)
        return fail(r, FCP_E_VERIFY_SLOT, FCP_COMM,
                    "transfer %u receives dKV of block %u into slot %u, the accumulator of block %u", id, t->block,
                    t->slot, r->blocks[t->slot]);
    if (t->slot >= r->dkv_room)
        return fail(r, FCP_E_VERIFY_MEMORY, FCP_COMM,
                    "transfer %u receives dKV of block %u into slot %u, more than it can have any use for", id,
                    t->block, t->slot);
    if (t->slot >= r->dkv_used) r->dkv_used = t->slot + 1;
    dkv_slot *d = &r->b->dkv[t->slot];
    if (d->kind == EMPTY) {
        if (d->touched[FCP_COMPUTE] > r->known[FCP_COMM] || d->touched[FCP_COMM] == now)
            return fail(r, FCP_E_VERIFY_SLOT, FCP_COMM,
                        "transfer %u overwrites slot %u, where dKV of block %u may still be read", id, t->slot,
                        d->block);
        d->kind = ARRIVING;
        d->block = t->block;
        d->tokens = 0;
        d->peer = t->peer;
    } else if (d->kind != ARRIVING || (d->block != t->block && t->first == 0)) {
        return fail(r, FCP_E_VERIFY_RETURN, FCP_COMM,
                    "transfer %u receives dKV of block %u into slot %u, which holds that of block %u and %s", id,
                    t->block, t->slot, d->block, dkv_words[d->kind]);
    }
    if (d->block != t->block || d->peer != t->peer || d->tokens != t->first)
        return fail(r, FCP_E_VERIFY_RETURN, FCP_COMM,
             "transfer %u brings tokens %u to %u of dKV of block %u from rank %u to slot %u, which has %u tokens of "
             "block %u "
             "from rank %u",
             id, t->first, t->first + t->tokens, t->block, t->peer, t->slot, d->tokens, d->block, d->peer);
    d->tokens += t->tokens;
    d->touched[FCP_COMM] = now;
    if (d->tokens == r->plan->blocks[t->block].tokens) {
        d->kind = ARRIVED;
        d->round = round;
    }
    return FCP_OK;
}

/* match.c has checked that the kind of the round and the class of each transfer go together. */
static fcp_code launch(run *r, const fcp_instr *x, uint32_t kind) {
    const fcp_transfer *t = r->plan->transfers + x->a, *end = t + x->b;
    fcp_code code;
    if (kind == FCP_ROUND_IN || kind == FCP_ROUND_OUT) {
        for (; t < end; t++) {
            if (fcp_at_caller(t)) continue; /* match.c: the home's side says the same */
            if ((code = kind == FCP_ROUND_IN ? bring_in(r, FCP_COMM, t) : take_out(r, FCP_COMM, t))) return code;
        }
        return FCP_OK;
    }
    if ((code = check_buffers(r, x))) return code;
    for (; t < end; t++) {
        prefetch_block(r->plan, t);
        if (t->cls == FCP_KV)
            code = t->dir == FCP_SEND ? send_kv(r, x, t) : receive_kv(r, t);
        else
            code = t->dir == FCP_SEND ? send_dkv(r, t) : receive_dkv(r, t, x->c);
        if (code) return code;
    }
    return FCP_OK;
}

/* --- both queues -------------------------------------------------------------------------------------------------- */

static fcp_code compute_step(run *r, const fcp_instr *x) {
    switch (x->op) {
    case FCP_OP_COPY: return copy(r, x);
    case FCP_OP_DELTA: return delta(r, x);
    case FCP_OP_ATTEND: return attend(r, x);
    case FCP_OP_REDUCE: return reduce(r, x);
    default: return fail(r, FCP_E_VERIFY_ORDER, FCP_COMPUTE, "not an instruction of this queue");
    }
}

/* Runs one queue as far as it goes. */
static fcp_code advance(run *r, fcp_queue q) {
    fcp_queue other = q == FCP_COMPUTE ? FCP_COMM : FCP_COMPUTE;
    for (; r->done[q] < r->count[q]; r->done[q]++) {
        const fcp_instr *x = &r->instr[q][r->done[q]];
        fcp_code code = FCP_OK;
        if (x->stage < r->stage[q]) return fail(r, FCP_E_VERIFY_ORDER, q, "comes after one of stage %u", r->stage[q]);
        r->stage[q] = x->stage;
        if (x->op == FCP_OP_WAIT) {
            if (x->a > r->count[other])
                return fail(r, FCP_E_VERIFY_DEADLOCK, q, "waits for %u instructions of a queue that has %u", x->a,
                            r->count[other]);
            if (x->a > r->done[other]) return FCP_OK;
            if (x->a > r->known[q]) r->known[q] = x->a;
        } else {
            code = q == FCP_COMPUTE ? compute_step(r, x) : launch(r, x, r->rounds[x->c].kind);
        }
        if (code) return code;
    }
    return FCP_OK;
}

static fcp_code execute(run *r) {
    while (r->done[FCP_COMPUTE] < r->count[FCP_COMPUTE] || r->done[FCP_COMM] < r->count[FCP_COMM]) {
        uint64_t before = (uint64_t)r->done[FCP_COMPUTE] + r->done[FCP_COMM];
        fcp_code code = advance(r, FCP_COMPUTE);
        if (!code) code = advance(r, FCP_COMM);
        if (code) return code;
        if ((uint64_t)r->done[FCP_COMPUTE] + r->done[FCP_COMM] != before) continue;
        /* both queues are at a WAIT: if one had ended, the other could go on */
        return fail(r, FCP_E_VERIFY_DEADLOCK, FCP_COMM,
             "waits for %u compute instructions, and compute instruction %u for %u of this queue: a cycle",
             r->instr[FCP_COMM][r->done[FCP_COMM]].a, r->done[FCP_COMPUTE],
             r->instr[FCP_COMPUTE][r->done[FCP_COMPUTE]].a);
    }
    return FCP_OK;
}

static void start(run *r) {
    const fcp_plan *plan = r->plan;
    rank_buffers *b = r->b;
    bool backward = r->v->pass == FCP_BACKWARD;
    for (uint32_t h = 0; h < r->homes; h++) {
        b->kv[h] = (kv_slot){.block = r->blocks[h], .left = plan->blocks[r->blocks[h]].tokens};
        if (backward) b->dkv[h] = (dkv_slot){.block = r->blocks[h], .kind = ADDING};
        b->home[h] = (home_block){.total = r->v->visits_of[r->blocks[h]], .state = FCP_NONE};
        b->state[h] = (state_slot){0};
    }
    for (uint32_t s = r->homes; s < r->kv_room; s++) b->kv[s] = (kv_slot){.block = FCP_NONE, .left = 1};
    if (backward)
        for (uint32_t s = r->homes; s < r->dkv_room; s++) b->dkv[s] = (dkv_slot){.block = FCP_NONE};
}

/* Nothing may be left over at the end. Then the rank's memory. */
static fcp_code finish(run *r) {
    verifier *v = r->v;
    pass_facts *facts = &v->facts[v->pass];
    for (int q = 0; q < FCP_QUEUES; q++)
        if (r->stage[q] > facts->last_stage) facts->last_stage = r->stage[q];
    if (v->pass == FCP_BACKWARD)
        for (uint32_t s = r->homes; s < r->dkv_room; s++) {
            const dkv_slot *d = &r->b->dkv[s];
            if (d->kind != EMPTY)
                return fcp_verify_fail_rank(v, v->err, FCP_E_VERIFY_RETURN, r->rank,
                                            ", at the end: dKV of block %u is left in slot %u, which %s; last used by "
                                            "compute instruction %lld",
                                            d->block, s, dkv_words[d->kind], (long long)d->touched[FCP_COMPUTE] - 1);
        }
    uint32_t unused = FCP_NONE;
    for (uint32_t s = r->homes; s < r->kv_used; s++)
        if (r->b->kv[s].block == FCP_NONE) unused = s;
    for (uint32_t s = r->homes; s < r->dkv_used; s++)
        if (r->b->dkv[s].block == FCP_NONE) unused = s;
    if (unused != FCP_NONE && !v->late.code)
        fcp_verify_fail_rank(v, &v->late, FCP_E_VERIFY_MEMORY, r->rank, ": nothing ever lies in slot %u", unused);
    uint64_t kv = r->kv_used - r->homes, dkv = r->dkv_used - r->homes;
    if (kv + dkv > facts->slots_max) facts->slots_max = kv + dkv;
    const uint64_t slots[FCP_CLASSES] = {[FCP_KV] = kv, [FCP_STATE] = r->state_used, [FCP_DKV] = dkv};
    uint64_t bytes = fcp_rank_memory(v->p, v->pass, v->home_tokens[FCP_QUERIES][r->rank],
                                     v->home_tokens[FCP_KEYS][r->rank], slots);
    if (bytes > facts->memory_peak) facts->memory_peak = bytes;
    if (bytes > v->p->memory_cap && !v->late.code)
        fcp_verify_fail_rank(v, &v->late, FCP_E_VERIFY_MEMORY, r->rank, ": %llu bytes are needed, and the cap is %llu",
                             (unsigned long long)bytes, (unsigned long long)v->p->memory_cap);
    return FCP_OK;
}

/* A transient slot is received into, or it is an accumulator and is sent from; so there are no more than there are such
 * transfers. A few more are kept, so that damage by a missing transfer is reported by what is missing, and not as a
 * slot too many. */
enum { SPARE = 16 };
static uint32_t kv_room(const verifier *v, uint32_t rank) { return v->homes[rank] + v->kv_recvs[rank] + SPARE; }
static uint32_t dkv_room(const verifier *v, uint32_t rank) {
    return v->homes[rank] + v->dkv_recvs[rank] + v->dkv_sends[rank] + SPARE;
}

fcp_code fcp_verify_buffers(const verifier *v, rank_buffers **out) {
    size_t kv = 1, dkv = 1, homes = 1;
    for (uint32_t r = 0; r < v->p->ranks; r++) {
        if (kv_room(v, r) > kv) kv = kv_room(v, r);
        if (dkv_room(v, r) > dkv) dkv = dkv_room(v, r);
        if (v->homes[r] > homes) homes = v->homes[r];
    }
    rank_buffers *b = calloc(1, sizeof *b);
    if (b) {
        *b = (rank_buffers){malloc(kv * sizeof *b->kv), malloc(dkv * sizeof *b->dkv), malloc(homes * sizeof *b->home),
                            malloc(homes * sizeof *b->state)};
        if (b->kv && b->dkv && b->home && b->state) {
            *out = b;
            return FCP_OK;
        }
        fcp_verify_buffers_free(b);
    }
    return fcp_fail(v->err, FCP_E_NO_MEMORY, "out of memory to verify a rank's slots");
}

void fcp_verify_buffers_free(rank_buffers *b) {
    if (!b) return;
    free(b->kv);
    free(b->dkv);
    free(b->home);
    free(b->state);
    free(b);
}

fcp_code fcp_verify_rank(verifier *v, rank_buffers *b, uint32_t rank) {
    run r = {.v = v,
             .plan = v->plan,
             .b = b,
             .rank = rank,
             .homes = v->homes[rank],
             .blocks = v->home_blocks + v->home_first[rank],
             .rounds = v->plan->rounds + v->plan->round_starts[v->pass],
             .kv_room = kv_room(v, rank),
             .dkv_room = dkv_room(v, rank),
             .kv_used = v->homes[rank],
             .dkv_used = v->homes[rank],
             .buffers_stage = FCP_NONE};
    for (int q = 0; q < FCP_QUEUES; q++) {
        const fcp_stream *s = fcp_stream_of(v->plan, v->pass, rank, (fcp_queue)q);
        r.instr[q] = v->plan->instrs + s->first;
        r.count[q] = s->count;
    }
    start(&r);
    fcp_code code = execute(&r);
    return code ? code : finish(&r);
}
