/* plan_damage_layout.h: the kinds of damage to where tokens lie: the reshuffle, and plans whose queries and keys differ
 * in number. A part of plan_damage.h. */
#ifndef PLAN_DAMAGE_LAYOUT_H
#define PLAN_DAMAGE_LAYOUT_H
#include "runtime/exec/bundles.h"
#include "tests/support/plan_damage_rounds.h"

/* --- damage: the reshuffle ---------------------------------------------------------------------------------------- */

/* The same at both ends of a transfer: its other end, or NULL of a COPY. */
static fcp_transfer *other_end(const tables *t, const place *p, fcp_transfer *a) {
    place q;
    if (OP(*p, COPY)) return NULL;
    uint32_t i = partner(t, p, (uint32_t)(a - transfer_in(t, p, 0)), &q);
    return transfer_in(t, &q, i);
}

static bool bundle_short(tables *t, draw *d) {
    place p;
    fcp_transfer *a = any_transfer(t, d, next(d) % 2 ? FCP_OUT : FCP_IN, (int)(next(d) % 3) - 1, &p), *b;
    if (!a || a->tokens == 1) return false;
    a->tokens--;
    if ((b = other_end(t, &p, a))) b->tokens--;
    return true;
}

static bool bundle_long(tables *t, draw *d) {
    place p;
    fcp_transfer *a = any_transfer(t, d, next(d) % 2 ? FCP_OUT : FCP_IN, (int)(next(d) % 3) - 1, &p), *b;
    if (!a || (!OP(p, COPY) && a->tokens == t->problem->unit)) return false;
    a->tokens++;
    if ((b = other_end(t, &p, a))) b->tokens++;
    return true;
}

/* What a COPY moves is moved by another COPY, too. */
static bool bundle_doubled(tables *t, draw *d) {
    place c = {0};
    PLACES(t, p) if (OP(p, COPY) && pick(d)) c = p;
    if (!c.x) return false;
    fcp_instr again = *c.x;
    again.a = (uint32_t)t->transfers_count;
    for (uint32_t i = 0; i < c.x->b; i++) {
        fcp_transfer copy = *transfer_in(t, &c, i);
        PUSH(t, transfers, copy);
    }
    instr_insert(t, c.pass, c.rank, c.queue, c.at + 1, again);
    return true;
}

/* One end has two units of a bundle in the other order. */
static bool bundle_permuted(tables *t, draw *d) {
    place p;
    fcp_transfer *a = any_transfer(t, d, next(d) % 2 ? FCP_OUT : FCP_IN, next(d) % 2, &p), *b = NULL;
    if (!a) return false;
    again(d);
    PLACES(t, q) {
        if (!OP(q, LAUNCH) || q.pass != p.pass || q.rank != p.rank) continue;
        for (uint32_t i = 0; i < q.x->b; i++) {
            fcp_transfer *x = transfer_in(t, &q, i);
            if (x->cls == a->cls && x->dir == a->dir && x->peer == a->peer && x->side == a->side && x != a && pick(d))
                b = x;
        }
    }
    if (!b) return false;
    uint32_t first = a->first, tokens = a->tokens;
    a->first = b->first;
    a->tokens = b->tokens;
    b->first = first;
    b->tokens = tokens;
    return true;
}

/* At both ends a unit is said to be the one before it. */
static bool unit_again(tables *t, draw *d) {
    place p;
    fcp_transfer *a = any_transfer(t, d, next(d) % 2 ? FCP_OUT : FCP_IN, next(d) % 2, &p);
    if (!a || a->first < t->problem->unit || a->tokens != t->problem->unit) return false;
    other_end(t, &p, a)->first -= t->problem->unit;
    a->first -= t->problem->unit;
    return true;
}

static bool other_bundle(tables *t, draw *d) {
    place p;
    fcp_transfer *a = any_transfer(t, d, next(d) % 2 ? FCP_OUT : FCP_IN, (int)(next(d) % 3) - 1, &p);
    if (!a) return false;
    a->side ^= 1;
    return true;
}

/* The rule says of other tokens that they are the caller's. */
static bool other_layout(tables *t, draw *d) {
    fcp_problem *p = t->problem;
    (void)d;
    if (p->ranks == 1 || p->layout == FCP_LAYOUT_PLANNED) return false;
    p->layout = p->layout == FCP_LAYOUT_ZIGZAG ? FCP_LAYOUT_CONTIGUOUS : FCP_LAYOUT_ZIGZAG;
    return true;
}

static bool other_group(tables *t, draw *d) {
    fcp_problem *p = t->problem;
    (void)d;
    if (p->layout == FCP_LAYOUT_PLANNED || p->layout_group == 1) return false;
    p->layout_group = 1;
    return true;
}

static bool wrong_group(tables *t, draw *d) {
    t->problem->layout_group = next(d) % 2 ? 0 : t->problem->ranks + 1;
    return true;
}

/* The values of a head have other numbers than those that were planned. */
static bool other_value_dim(tables *t, draw *d) {
    fcp_problem *p = t->problem;
    p->value_dim += next(d) % 2 || p->value_dim == 1 ? 1 : UINT32_MAX;
    return !p->values_in_keys || p->value_dim <= p->head_dim;
}

/* They are in keys, or no longer are. */
static bool other_values(tables *t, draw *d) {
    (void)d;
    t->problem->values_in_keys ^= 1;
    return t->problem->value_dim <= t->problem->head_dim;
}

/* The backward pass takes a gradient of LSE, or no longer does. */
static bool other_gradient(tables *t, draw *d) {
    (void)d;
    t->problem->lse_gradient ^= 1;
    return t->problem->passes & 1u << FCP_BACKWARD;
}

/* Numbers of heads that no plan can have. */
static bool wrong_heads(tables *t, draw *d) {
    fcp_problem *p = t->problem;
    switch (next(d) % 6) {
    case 0: p->value_dim = next(d) % 2 ? 0 : FCP_NONE; break;
    case 1: p->value_dim += 65536; break;
    case 2: p->values_in_keys = 2 + (uint16_t)(next(d) % 1000); break;
    case 3: p->values_in_keys = 1, p->value_dim = p->head_dim + 1; break;
    case 4: p->lse_gradient = 2 + (uint16_t)(next(d) % 1000); break;
    default: p->lse_gradient = 1, p->passes = 1u << FCP_FORWARD;
    }
    return true;
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
    fcp_bundles *bundles;
    if (fcp_bundles_make(tables_plan(t), 0, t->problem->ranks, &bundles, NULL)) abort();
    PLACES(t, p) {
        if (p.queue != FCP_COMM || !OP(p, WAIT) || p.at + 1 == p.count) continue;
        place q = p;
        q.at++;
        q.x++;
        if (!OP(q, LAUNCH) || round_at(t, &q)->kind != FCP_ROUND_OUT) continue;
        bool sends = false; /* of a block that is visited after what was known before */
        uint32_t n, before = known_at(&p);
        const fcp_instr *compute = stream_instrs(t, p.pass, p.rank, FCP_COMPUTE, &n);
        for (uint32_t i = 0; i < q.x->b; i++) {
            const fcp_transfer *a = transfer_in(t, &q, i);
            const fcp_bundle bundle = fcp_bundle_of(bundles, p.rank, a);
            fcp_bundle_run run;
            for (uint32_t j = 0; a->dir == FCP_SEND && fcp_bundle_next(&bundle, a, &j, &run);)
                for (uint32_t k = before; k < n; k++)
                    for (uint32_t v = compute[k].a; compute[k].op == FCP_OP_ATTEND && v < compute[k].a + compute[k].b;
                         v++)
                        sends |= t->visits[v].q_block == run.block;
        }
        if (sends && pick(d)) c = p;
    }
    fcp_bundles_free(bundles);
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

/* Other ranks for the sequences of a deal; or a deal too many, or too few. */
static bool other_deal(tables *t, draw *d) {
    if (!t->deals_count || t->problem->ranks < 2 || t->problem->layout_group != t->problem->ranks) return false;
    t->deals[0].ranks--;
    t->deals[0].first_rank += next(d) % 2;
    return true;
}

static bool deal_too_many_or_few(tables *t, draw *d) {
    if (!t->deals_count) return false;
    if (next(d) % 2) t->deals_count--;
    else PUSH(t, deals, t->deals[0]);
    return true;
}

static bool is_split(const tables *t) {
    for (uint64_t s = 0; s < t->sequences_count; s++)
        if (t->sequences[s].queries != t->sequences[s].keys) return true;
    return false;
}

/* A tile whose KV block, or Q block, is one that does not hold it. */
static bool tile_of_other_side(tables *t, draw *d) {
    if (!is_split(t) || !t->tiles_count) return false;
    fcp_tile *tile = &t->tiles[next(d) % t->tiles_count];
    if (next(d) % 2) tile->k_block = tile->q_block;
    else tile->q_block = tile->k_block;
    return true;
}

/* Moves KV of a block that holds Q. */
static bool send_kv_of_queries(tables *t, draw *d) {
    place p;
    fcp_transfer *a = any_transfer(t, d, next(d) % 2 ? FCP_DKV : FCP_KV, next(d) % 2, &p);
    if (!a || !is_split(t)) return false;
    for (uint32_t b = 0; b < t->blocks_count; b++)
        if (!(t->blocks[b].holds & FCP_HOLDS_KV) && t->blocks[b].tokens >= a->first + a->tokens) {
            a->block = b;
            return true;
        }
    return false;
}

/* Takes results of keys out in the forward pass, in place of those of queries. */
static bool results_of_keys(tables *t, draw *d) {
    place p;
    fcp_transfer *a = any_transfer(t, d, FCP_OUT, (int)(next(d) % 3) - 1, &p), *b;
    if (!a || p.pass != FCP_FORWARD || !is_split(t)) return false;
    a->side = FCP_KEYS;
    if ((b = other_end(t, &p, a))) b->side = FCP_KEYS;
    return true;
}
#endif
