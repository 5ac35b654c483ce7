/* plan_damage_moved.h: the kinds of damage to work that runs away from home: transfers of Q, states, whole results,
 * ranges of heads. A part of plan_damage.h. */
#ifndef PLAN_DAMAGE_MOVED_H
#define PLAN_DAMAGE_MOVED_H
#include "tests/support/plan_damage_work.h"

/* --- damage: whole and partial ------------------------------------------------------------------------------------ */

static fcp_block *any_q_block(tables *t, draw *d, uint32_t flags) {
    fcp_block *chosen = NULL;
    for (uint64_t b = 0; b < t->blocks_count; b++)
        if (t->blocks[b].holds & FCP_HOLDS_Q && t->blocks[b].flags == flags && pick(d)) chosen = &t->blocks[b];
    return chosen;
}

static bool claim_whole(tables *t, draw *d) {
    fcp_block *b = any_q_block(t, d, 0);
    if (b) b->flags = FCP_BLOCK_WHOLE;
    return b;
}

static bool deny_whole(tables *t, draw *d) {
    fcp_block *b = any_q_block(t, d, FCP_BLOCK_WHOLE);
    if (b) b->flags = 0;
    return b;
}

/* An instruction at the end of a rank's computing queue. */
static void append(tables *t, int pass, uint32_t rank, fcp_instr x) {
    uint32_t n;
    const fcp_instr *stream = stream_instrs(t, pass, rank, FCP_COMPUTE, &n);
    x.stage = n ? stream[n - 1].stage : 0;
    instr_insert(t, pass, rank, FCP_COMPUTE, n, x);
}

static bool finish_whole(tables *t, draw *d) {
    const fcp_block *b = any_q_block(t, d, FCP_BLOCK_WHOLE);
    if (b) append(t, FCP_FORWARD, b->home, (fcp_instr){.op = FCP_OP_FINISH, .a = (uint32_t)(b - t->blocks)});
    return b;
}

static bool op_at(const tables *t, draw *d, fcp_op op, place *c) {
    c->x = NULL;
    PLACES(t, p) if (p.x->op == op && pick(d)) *c = p;
    return c->x;
}

static bool drop_finish(tables *t, draw *d) {
    place c;
    if (op_at(t, d, FCP_OP_FINISH, &c)) neutral(c.x);
    return c.x;
}

static bool double_finish(tables *t, draw *d) {
    place c;
    if (op_at(t, d, FCP_OP_FINISH, &c)) instr_insert(t, c.pass, c.rank, FCP_COMPUTE, c.at + 1, *c.x);
    return c.x;
}

/* FINISH changes places with the last MERGE before it of the same block. */
static bool early_finish(tables *t, draw *d) {
    place c = {0};
    fcp_instr *merge = NULL;
    PLACES(t, p) {
        if (!OP(p, FINISH)) continue;
        for (fcp_instr *x = p.x; x-- > p.stream;)
            if (x->op == FCP_OP_MERGE && x->a == p.x->a) {
                if (pick(d)) c = p, merge = x;
                break;
            }
    }
    if (!c.x) return false;
    fcp_instr keep = *c.x;
    c.x->op = FCP_OP_MERGE, c.x->b = merge->b, c.x->c = merge->c;
    merge->op = FCP_OP_FINISH, merge->b = keep.b, merge->c = keep.c;
    return true;
}

static bool finish_other_slot(tables *t, draw *d) {
    place c;
    if (op_at(t, d, FCP_OP_FINISH, &c)) c.x->b += c.x->b && next(d) % 2 ? UINT32_MAX : 1;
    return c.x;
}

/* A home names an O slot, or what is made elsewhere goes into another one. */
static bool finish_into_other(tables *t, draw *d) {
    place c;
    if (op_at(t, d, FCP_OP_FINISH, &c)) c.x->c += c.x->c && next(d) % 2 ? UINT32_MAX : 1;
    return c.x;
}

/* Of a block whose result another rank makes, a second one makes a result of what it should send there: that is neither
 * sent, nor received, nor added. */
static bool two_results(tables *t, draw *d) {
    const bool back = next(d) % 2;
    place p = {0}, q;
    uint32_t i = 0;
    PLACES(t, s) for (uint32_t k = 0; exchanges(t, &s) && k < s.x->b; k++) {
        const fcp_transfer *a = transfer_in(t, &s, k);
        const fcp_block *b = &t->blocks[a->block];
        bool all = a->cls == (back ? FCP_DQ : FCP_STATE) && a->dir == FCP_SEND && a->tokens == b->tokens;
        if (all && b->flags & FCP_BLOCK_WHOLE && pick(d)) p = s, i = k;
    }
    if (!p.x) return false;
    uint32_t j = partner(t, &p, i, &q);
    const fcp_transfer sent = *transfer_in(t, &p, i), got = *transfer_in(t, &q, j);
    PLACES(t, s)
    if (s.pass == p.pass && s.rank == q.rank && (OP(s, MERGE) || OP(s, REDUCE_Q)) && s.x->a == got.block &&
        s.x->b == got.slot)
        neutral(s.x);
    lose_transfer(t, &q, j);
    lose_transfer(t, &p, i);
    append(t, p.pass, p.rank, (fcp_instr){.op = back ? FCP_OP_ROUND : FCP_OP_FINISH, .a = sent.block, .b = sent.slot,
                                          .c = homes_of(t, p.rank)});
    return true;
}

/* A rank rounds dQ of a block of which it sends a partial. */
static bool round_partial(tables *t, draw *d) {
    place p;
    const fcp_transfer *a = any_transfer(t, d, FCP_DQ, FCP_SEND, &p);
    if (!a) return false;
    const uint32_t block = a->block, slot = a->slot;
    append(t, FCP_BACKWARD, p.rank, (fcp_instr){.op = FCP_OP_ROUND, .a = block, .b = slot, .c = homes_of(t, p.rank)});
    return true;
}

static bool drop_round(tables *t, draw *d) {
    place c;
    if (op_at(t, d, FCP_OP_ROUND, &c)) neutral(c.x);
    return c.x;
}

static bool round_other_slot(tables *t, draw *d) {
    place c;
    if (op_at(t, d, FCP_OP_ROUND, &c)) *(next(d) % 2 ? &c.x->b : &c.x->c) += 1;
    return c.x;
}

/* A unit of a result is neither sent nor received. */
static bool lose_result(tables *t, draw *d) {
    place p, q;
    fcp_transfer *a = any_transfer(t, d, next(d) % 2 ? FCP_O : FCP_DQW, FCP_SEND, &p);
    if (!a) return false;
    uint32_t i = (uint32_t)(a - transfer_in(t, &p, 0)), j = partner(t, &p, i, &q);
    lose_transfer(t, &q, j);
    lose_transfer(t, &p, i);
    return true;
}

/* O is written where there is no result, or not to where it is taken from. */
static bool wrong_o_slot(tables *t, draw *d) {
    fcp_visit *v = &t->visits[next(d) % t->visits_count];
    v->o_slot = v->o_slot == FCP_NONE ? 0 : next(d) % 2 ? v->o_slot + 1 : FCP_NONE;
    return true;
}

static bool wrong_dq_slot(tables *t, draw *d) {
    if (!(t->problem->passes & 1u << FCP_BACKWARD)) return false;
    fcp_visit *v = &t->visits[next(d) % t->visits_count];
    v->dq_slot += v->dq_slot && next(d) % 2 ? UINT32_MAX : 1;
    return true;
}

/* --- damage: Q, states ------------------------------------------------------------------------------------------- */

/* Q leaves home before its delta is known: the waits before that launch ask for less. */
static bool send_before_delta(tables *t, draw *d) {
    place c = {0};
    uint32_t slot = 0, n, at = 0;
    PLACES(t, p) for (uint32_t i = 0; p.pass == FCP_BACKWARD && exchanges(t, &p) && i < p.x->b; i++) {
        const fcp_transfer *a = transfer_in(t, &p, i);
        if (a->cls == FCP_Q && a->dir == FCP_SEND && a->slot < homes_of(t, p.rank) && pick(d)) c = p, slot = a->slot;
    }
    if (!c.x) return false;
    const fcp_instr *x = stream_instrs(t, FCP_BACKWARD, c.rank, FCP_COMPUTE, &n);
    while (at < n && (x[at].op != FCP_OP_DELTA || slot - x[at].a >= x[at].b)) at++;
    for (fcp_instr *w = c.stream; w < c.x; w++)
        if (w->op == FCP_OP_WAIT && w->a > at) w->a = at;
    return true;
}

/* What a rank sends away it merges as well. */
static bool send_and_merge(tables *t, draw *d) {
    place p;
    const fcp_transfer *a = any_transfer(t, d, FCP_STATE, FCP_SEND, &p);
    if (!a) return false;
    const uint32_t block = a->block, slot = a->slot;
    append(t, FCP_FORWARD, p.rank, (fcp_instr){.op = FCP_OP_MERGE, .a = block, .b = slot, .c = slot ? slot - 1 : 1});
    return true;
}

/* An addition names another Q block. */
static bool add_other_block(tables *t, draw *d) {
    place c;
    if (!addition_at(t, d, &c)) return false;
    const fcp_block *b = &t->blocks[c.x->a];
    for (uint32_t i = 0; i < t->blocks_count; i++)
        if (i != c.x->a && t->blocks[i].holds == b->holds && t->blocks[i].home == b->home) {
            c.x->a = i;
            return true;
        }
    return false;
}

/* A partial is added into the slot of another block's. */
static bool add_into_other(tables *t, draw *d) {
    place c, e = {0};
    if (!addition_at(t, d, &c)) return false;
    again(d);
    PLACES(t, p)
    if (p.pass == c.pass && p.rank == c.rank && p.x->op == c.x->op && p.x->a != c.x->a && p.x->c != c.x->c && pick(d))
        e = p;
    if (e.x) c.x->c = e.x->c;
    return e.x;
}

/* Who sends on names a slot in which that block is not. */
static bool send_other_slot(tables *t, draw *d) {
    place c = {0};
    fcp_transfer *chosen = NULL;
    PLACES(t, p)
    for (uint32_t i = 0; exchanges(t, &p) && round_at(t, &p)->kind == FCP_ROUND_DEPENDENT && i < p.x->b; i++) {
        fcp_transfer *a = transfer_in(t, &p, i);
        if (a->dir == FCP_SEND && pick(d)) c = p, chosen = a;
    }
    if (chosen) chosen->slot++;
    return c.x;
}

/* A unit has one token more than its class allows. */
static bool long_unit(tables *t, draw *d) {
    place p = {0}, q;
    fcp_transfer *a = NULL;
    PLACES(t, s) for (uint32_t i = 0; exchanges(t, &s) && i < s.x->b; i++) {
        fcp_transfer *b = transfer_in(t, &s, i);
        if (b->dir == FCP_SEND && b->first + b->tokens < t->blocks[b->block].tokens && pick(d)) a = b, p = s;
    }
    if (!a) return false;
    uint32_t j = partner(t, &p, (uint32_t)(a - transfer_in(t, &p, 0)), &q);
    transfer_in(t, &q, j)->tokens++;
    a->tokens++;
    return true;
}

/* --- damage: heads ------------------------------------------------------------------------------------------------ */

static bool other_heads(tables *t, draw *d) {
    if (t->heads_count < 2) return false;
    fcp_block *b = &t->blocks[next(d) % t->blocks_count];
    b->heads = (b->heads + 1) % (uint32_t)t->heads_count;
    return true;
}

static bool move_heads(tables *t, draw *d) {
    fcp_heads *h = &t->heads[next(d) % t->heads_count];
    uint32_t *const numbers[] = {&h->kv_first, &h->kv_count, &h->sub_first, &h->sub_count};
    *numbers[next(d) % 4] += 1;
    return true;
}

/* A tile's KV block is the same tokens of other heads. */
static bool tile_of_other_heads(tables *t, draw *d) {
    if (t->heads_count < 2 || !t->tiles_count) return false;
    fcp_tile *tile = &t->tiles[next(d) % t->tiles_count];
    const fcp_block *k = &t->blocks[tile->k_block];
    for (uint32_t i = 0; i < t->blocks_count; i++) {
        const fcp_block *b = &t->blocks[i];
        if (t->heads[b->heads].kv_first == t->heads[k->heads].kv_first || b->holds != k->holds ||
            b->pieces != k->pieces)
            continue;
        bool same = true;
        for (uint32_t j = 0; j < b->pieces; j++) {
            const fcp_piece *x = &t->pieces[b->first_piece + j], *y = &t->pieces[k->first_piece + j];
            same = same && x->sequence == y->sequence && x->start == y->start && x->length == y->length;
        }
        if (!same) continue;
        for (uint32_t j = 0; j < tile->parts; j++)
            t->parts[tile->first_part + j].k_piece += b->first_piece - k->first_piece;
        tile->k_block = i;
        return true;
    }
    return false;
}

/* Has it a visit whose Q was received, with all keys at once? */
static bool gathers(const tables *t, const place *p) {
    for (uint32_t v = p->x->a; OP(*p, ATTEND) && v < p->x->a + p->x->b; v++)
        if (t->visits[v].flags == (FCP_VISIT_FIRST | FCP_VISIT_LAST) && t->visits[v].q_slot >= homes_of(t, p->rank))
            return true;
    return false;
}

/* In phases, two ATTENDs of a rank change places: what the later one reads has then been overwritten by the phases
 * between, or what the earlier one reads is not there yet. */
static bool exchange_phases(tables *t, draw *d) {
    place from = {0}, to = {0};
    if (t->problem->strategy != FCP_STRATEGY_UPIPE) return false;
    PLACES(t, p) {
        if (!gathers(t, &p) || !pick(d)) continue;
        PLACES(t, q) {
            if (!gathers(t, &q) || q.rank != p.rank || q.pass != p.pass || q.x->stage <= p.x->stage) continue;
            if (t->blocks[t->visits[p.x->a].q_block].heads == t->blocks[t->visits[q.x->a].q_block].heads) continue;
            from = p;
            to = q;
        }
    }
    if (!from.x) return false;
    const uint32_t a = from.x->a, b = from.x->b;
    from.x->a = to.x->a;
    from.x->b = to.x->b;
    to.x->a = a;
    to.x->b = b;
    return true;
}
#endif
