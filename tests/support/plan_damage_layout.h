/* plan_damage_layout.h: damages where tokens lie: the reshuffle, and queries and keys that differ. A part of plan_damage.h. */
#ifndef PLAN_DAMAGE_LAYOUT_H
#define PLAN_DAMAGE_LAYOUT_H
#include "tests/support/plan_damage_rounds.h"

/* --- damage: the reshuffle ---------------------------------------------------------------------------------------- */

static bool lose_token_in(tables *t, draw *d) {
    place p;
    fcp_transfer *a = any_transfer(t, d, FCP_IN, -1, &p);
    if (!a || a->tokens == 1) return false;
    a->tokens--;
    return true;
}

static bool lose_token_out(tables *t, draw *d) {
    place p;
    fcp_transfer *a = any_transfer(t, d, FCP_OUT, -1, &p);
    if (!a || a->tokens == 1) return false;
    a->tokens--;
    return true;
}

static bool exchange_places(tables *t, draw *d) {
    place p;
    fcp_transfer *a = any_transfer(t, d, next(d) % 2 ? FCP_OUT : FCP_IN, -1, &p), *b = NULL;
    if (!a) return false;
    again(d);
    for (uint32_t i = 0; i < p.x->b; i++)
        if (transfer_in(t, &p, i) != a && transfer_in(t, &p, i)->place != a->place && pick(d)) b = transfer_in(t, &p, i);
    if (!b) return false;
    uint32_t keep = a->place;
    a->place = b->place;
    b->place = keep;
    return true;
}

static bool other_place(tables *t, draw *d) {
    place p;
    bool out = next(d) % 2;
    fcp_transfer *a = any_transfer(t, d, out ? FCP_OUT : FCP_IN, out ? FCP_RECV : FCP_SEND, &p);
    if (a) a->place++;
    return a;
}

/* A copy is listed as the caller's side. */
static bool copy_other_side(tables *t, draw *d) {
    place p;
    fcp_transfer *a = any_transfer(t, d, next(d) % 2 ? FCP_OUT : FCP_IN, -1, &p);
    if (a) a->dir ^= 1;
    return a;
}

/* The wait before results are sent out. */
static bool early_out(tables *t, draw *d) {
    place c = {0};
    PLACES(t, p) {
        if (p.queue != FCP_COMM || !OP(p, WAIT) || p.at + 1 == p.count) continue;
        place q = p;
        q.at++;
        q.x++;
        if (!OP(q, LAUNCH) || round_at(t, &q)->kind != FCP_ROUND_OUT) continue;
        bool sends = false; /* of a block that is visited after what was known before */
        uint32_t n, before = known_at(&p);
        const fcp_instr *compute = stream_instrs(t, p.pass, p.rank, FCP_COMPUTE, &n);
        for (uint32_t i = 0; i < q.x->b; i++)
            for (uint32_t k = before; k < n; k++)
                for (uint32_t v = compute[k].a; compute[k].op == FCP_OP_ATTEND && v < compute[k].a + compute[k].b; v++)
                    sends |=
                        transfer_in(t, &q, i)->dir == FCP_SEND && t->visits[v].q_block == transfer_in(t, &q, i)->block;
        if (sends && pick(d)) c = p;
    }
    if (c.x) neutral(c.x);
    return c.x;
}

/* --- damage: queries and keys ------------------------------------------------------------------------------------- */

static bool swap_sides(tables *t, draw *d) {
    t->blocks[next(d) % t->blocks_count].holds ^= FCP_HOLDS_BOTH;
    return true;
}

static bool hold_one_side(tables *t, draw *d) {
    uint16_t *holds = &t->blocks[next(d) % t->blocks_count].holds;
    *holds = *holds == FCP_HOLDS_BOTH ? 1u << next(d) % 2 : FCP_HOLDS_BOTH;
    return true;
}

static bool move_queries(tables *t, draw *d) {
    t->sequences[next(d) % t->sequences_count].q_first += next(d) % 2 ? 1 : -1;
    return true;
}

static bool another_query(tables *t, draw *d) {
    fcp_sequence *s = &t->sequences[next(d) % t->sequences_count];
    s->queries++;
    s->q_first -= t->problem->align == FCP_BOTTOM_RIGHT;
    t->problem->tokens++;
    return true;
}

static bool other_align(tables *t, draw *d) {
    (void)d;
    t->problem->align ^= 1;
    return true;
}

static bool drop_key_layout(tables *t, draw *d) {
    (void)d;
    if (!t->key_layout_starts_count) return false;
    t->key_layout_starts_count = t->key_layout_count = 0;
    return true;
}

static bool exchange_layouts(tables *t, draw *d) {
    (void)d;
    if (!t->key_layout_starts_count) return false;
    fcp_span *spans = t->layout;
    uint64_t count = t->layout_count;
    if (t->problem->tokens == t->problem->key_tokens) return false;
    t->layout = t->key_layout;
    t->layout_count = t->key_layout_count;
    t->key_layout = spans;
    t->key_layout_count = count;
    return true;
}

/* A tile whose KV block, or Q block, is one that does not hold it. */
static bool tile_of_other_side(tables *t, draw *d) {
    if (!t->key_layout_starts_count || !t->tiles_count) return false;
    fcp_tile *tile = &t->tiles[next(d) % t->tiles_count];
    if (next(d) % 2) tile->k_block = tile->q_block;
    else tile->q_block = tile->k_block;
    return true;
}

/* Moves KV of a block that holds Q. */
static bool send_kv_of_queries(tables *t, draw *d) {
    place p;
    fcp_transfer *a = any_transfer(t, d, next(d) % 2 ? FCP_DKV : FCP_KV, next(d) % 2, &p);
    if (!a || !t->key_layout_starts_count) return false;
    for (uint32_t b = 0; b < t->blocks_count; b++)
        if (!(t->blocks[b].holds & FCP_HOLDS_KV) && t->blocks[b].tokens >= a->first + a->tokens) {
            a->block = b;
            return true;
        }
    return false;
}

/* Takes results out of a block of keys in the forward pass: they are those of the Q block it stands for. */
static bool results_of_keys(tables *t, draw *d) {
    place p;
    fcp_transfer *a = any_transfer(t, d, FCP_OUT, (int)(next(d) % 3) - 1, &p);
    if (!a || p.pass != FCP_FORWARD || !t->key_layout_starts_count) return false;
    for (uint32_t b = 0; b < t->blocks_count; b++) {
        const fcp_block *k = &t->blocks[b];
        if (k->holds != FCP_HOLDS_KV || k->tokens < a->first + a->tokens || k->home != t->blocks[a->block].home) continue;
        if (!fcp_at_caller(a)) a->slot = k->home_slot;
        a->block = b;
        return true;
    }
    return false;
}
#endif
