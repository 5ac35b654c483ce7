/* plan_damage_work.h: damages what ranks compute, and where that lies: tiles, visits, slots, partial results. A part of
 * plan_damage.h. */
#ifndef PLAN_DAMAGE_WORK_H
#define PLAN_DAMAGE_WORK_H
#include "tests/support/plan_damage_rounds.h"

/* --- damage: tiles, visits ---------------------------------------------------------------------------------------- */

static bool drop_tile(tables *t, draw *d) {
    fcp_visit *v = NULL;
    for (uint64_t i = 0; i < t->visits_count; i++)
        if (t->visits[i].tiles > 1 && pick(d)) v = &t->visits[i];
    if (v) v->tiles--;
    return v;
}

static bool double_tile(tables *t, draw *d) {
    uint64_t i = next(d) % t->tiles_count, visit = 0;
    fcp_tile copy = t->tiles[i];
    for (uint32_t j = 0; j < copy.parts; j++) PUSH(t, parts, t->parts[copy.first_part + j]);
    copy.first_part = (uint32_t)t->parts_count - copy.parts;
    INSERT(t, tiles, i + 1, copy);
    while (i - t->visits[visit].first_tile >= t->visits[visit].tiles) visit++;
    t->visits[visit].tiles++;
    while (++visit < t->visits_count) t->visits[visit].first_tile++;
    return true;
}

static bool exchange_tiles(tables *t, draw *d) {
    uint64_t i = next(d) % t->tiles_count, chosen = i;
    for (uint64_t j = 0; j < t->tiles_count; j++)
        if (t->tiles[j].q_block != t->tiles[i].q_block && pick(d)) chosen = j;
    fcp_tile keep = t->tiles[i];
    t->tiles[i] = t->tiles[chosen];
    t->tiles[chosen] = keep;
    return chosen != i;
}

static bool drop_visit(tables *t, draw *d) {
    place c = {0};
    PLACES(t, p) if (OP(p, ATTEND) && pick(d)) c = p;
    if (!c.x) return false;
    if (c.x->b > 1)
        c.x->b--;
    else
        neutral(c.x);
    return true;
}

static bool double_visit(tables *t, draw *d) {
    place c = {0};
    PLACES(t, p) if (OP(p, ATTEND) && pick(d)) c = p;
    if (!c.x) return false;
    place other = {0};
    again(d);
    PLACES(t, p) if (OP(p, ATTEND) && p.pass == c.pass && p.x != c.x && pick(d)) other = p;
    if (!other.x) return false;
    c.x->a = other.x->a;
    c.x->b = 1;
    return true;
}

static bool exchange_ranks(tables *t, draw *d) {
    place c = {0}, other = {0};
    PLACES(t, p) if (OP(p, ATTEND) && pick(d)) c = p;
    if (!c.x) return false;
    again(d);
    PLACES(t, p) if (OP(p, ATTEND) && p.pass == c.pass && p.rank != c.rank && pick(d)) other = p;
    if (!other.x) return false;
    fcp_instr keep = *c.x;
    c.x->a = other.x->a;
    c.x->b = other.x->b;
    other.x->a = keep.a;
    other.x->b = keep.b;
    return true;
}

static bool wrong_flag(tables *t, draw *d) {
    t->visits[next(d) % t->visits_count].flags ^= 1 + next(d) % 2;
    return true;
}

static bool wrong_kv_slot(tables *t, draw *d) {
    fcp_tile *tile = &t->tiles[next(d) % t->tiles_count];
    tile->kv_slot += tile->kv_slot && next(d) % 2 ? UINT32_MAX : 1;
    return true;
}

static bool wrong_q_slot(tables *t, draw *d) {
    t->visits[next(d) % t->visits_count].q_slot++;
    return true;
}

static bool wrong_state_slot(tables *t, draw *d) {
    fcp_visit *v = NULL;
    for (uint64_t i = 0; i < t->visits_count; i++)
        if (!(t->visits[i].flags & FCP_VISIT_FIRST) && t->visits[i].state_slot && pick(d)) v = &t->visits[i];
    if (v) v->state_slot--;
    return v;
}

static bool state_slot_lost_or_needless(tables *t, draw *d) {
    fcp_visit *v = &t->visits[next(d) % t->visits_count];
    v->state_slot = v->state_slot == FCP_NONE ? 0 : FCP_NONE;
    return true;
}

/* A Q block's state goes where another's still lies. */
static bool reuse_state_slot(tables *t, draw *d) {
    uint32_t from = FCP_NONE, to = 0, block = 0;
    for (uint64_t i = 0; i < t->visits_count; i++) { /* i begins while another of its rank, begun before, goes on */
        const fcp_visit *v = &t->visits[i];
        if (v->flags != FCP_VISIT_FIRST) continue;
        for (uint64_t j = i + 1; j < t->visits_count; j++) {
            const fcp_visit *w = &t->visits[j];
            if (t->blocks[w->q_block].home != t->blocks[v->q_block].home) break;
            bool began_before = !(w->flags & FCP_VISIT_FIRST);
            for (uint64_t k = i; k < j; k++) began_before = began_before && t->visits[k].q_block != w->q_block;
            if (began_before && pick(d)) from = v->state_slot, to = w->state_slot, block = v->q_block;
        }
    }
    for (uint64_t i = 0; i < t->visits_count && from != FCP_NONE; i++)
        if (t->visits[i].q_block == block) t->visits[i].state_slot = to;
    return from != FCP_NONE;
}

/* --- damage: slots ------------------------------------------------------------------------------------------------ */

/* What arrives at a rank as a block's KV (its units), from where on it is there, and until when it is read. */
typedef struct fetched {
    uint32_t block, slot, arrives, last_read; /* comm, compute instruction */
    uint32_t known;                           /* compute instructions known complete when it arrives */
} fetched;

/* A block is received where another still waits to be read. */
static bool reuse_live_slot(tables *t, draw *d) {
    int pass = FCP_FORWARD;
    uint32_t rank = (uint32_t)(next(d) % t->problem->ranks), homes = homes_of(t, rank), n = 0, count;
    fetched *f = calloc(t->blocks_count + 1, sizeof *f);
    PLACES(t, p) {
        if (p.pass != pass || p.rank != rank || p.queue != FCP_COMM || !exchanges(t, &p)) continue;
        for (uint32_t i = 0; i < p.x->b; i++) {
            const fcp_transfer *a = transfer_in(t, &p, i);
            if (a->cls == FCP_KV && a->dir == FCP_RECV && a->first == 0)
                f[n++] = (fetched){a->block, a->slot, p.at, 0, known_at(&p)};
        }
    }
    const fcp_instr *x = stream_instrs(t, pass, rank, FCP_COMPUTE, &count);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t v = x[i].a; x[i].op == FCP_OP_ATTEND && v < x[i].a + x[i].b; v++)
            for (uint32_t k = t->visits[v].first_tile; k < t->visits[v].first_tile + t->visits[v].tiles; k++)
                for (uint32_t j = 0; j < n; j++)
                    if (t->tiles[k].k_block == f[j].block) f[j].last_read = i;
    uint32_t from = FCP_NONE, to = 0;
    for (uint32_t a = 0; a < n; a++)
        for (uint32_t b = 0; b < n; b++)
            if (f[a].slot != f[b].slot && f[a].arrives < f[b].arrives && f[a].last_read >= f[b].known && pick(d))
                from = b, to = a;
    if (from != FCP_NONE) { /* all that concerns block `from` at this rank now names the slot of block `to` */
        uint32_t block = f[from].block, slot = f[to].slot;
        PLACES(t, p) {
            if (p.rank != rank || !exchanges(t, &p)) continue;
            for (uint32_t i = 0; i < p.x->b; i++) {
                fcp_transfer *a = transfer_in(t, &p, i);
                if (a->cls == FCP_KV && a->block == block) a->slot = slot;
            }
        }
        for (uint64_t k = 0; k < t->tiles_count; k++)
            if (t->tiles[k].k_block == block && t->blocks[t->tiles[k].q_block].home == rank &&
                t->tiles[k].kv_slot >= homes)
                t->tiles[k].kv_slot = slot;
    }
    free(f);
    return from != FCP_NONE;
}

static bool into_home_slot(tables *t, draw *d) {
    place p;
    fcp_transfer *a = any_transfer(t, d, next(d) % 2 ? FCP_KV : FCP_DKV, FCP_RECV, &p);
    if (!a || !homes_of(t, p.rank)) return false;
    a->slot = (uint32_t)(next(d) % homes_of(t, p.rank));
    return true;
}

static bool slot_gap(tables *t, draw *d) {
    place p;
    fcp_transfer *a = any_transfer(t, d, next(d) % 2 ? FCP_KV : FCP_DKV, FCP_RECV, &p);
    if (a) a->slot += 100000;
    return a;
}

static bool wrong_home(tables *t, draw *d) {
    if (t->problem->ranks < 2) return false;
    fcp_block *b = &t->blocks[next(d) % t->blocks_count];
    b->home = (b->home + 1) % t->problem->ranks;
    uint32_t *slots = calloc(t->problem->ranks, sizeof *slots);
    for (uint64_t i = 0; i < t->blocks_count; i++) t->blocks[i].home_slot = slots[t->blocks[i].home]++;
    free(slots);
    return true;
}

static bool small_memory(tables *t, draw *d) {
    (void)d;
    t->problem->memory_cap = t->summary->memory_peak_bytes - 1;
    return true;
}

/* --- damage: the backward pass ------------------------------------------------------------------------------------ */

static bool reduce_at(const tables *t, draw *d, place *c) {
    c->x = NULL;
    PLACES(t, p) if (OP(p, REDUCE) && pick(d)) *c = p;
    return c->x;
}

static bool drop_reduce(tables *t, draw *d) {
    place c;
    if (reduce_at(t, d, &c)) neutral(c.x);
    return c.x;
}

static bool double_reduce(tables *t, draw *d) {
    place c;
    if (!reduce_at(t, d, &c)) return false;
    instr_insert(t, c.pass, c.rank, FCP_COMPUTE, c.at + 1, *c.x);
    return true;
}

static bool reduce_elsewhere(tables *t, draw *d) {
    place c;
    if (reduce_at(t, d, &c)) c.x->c++;
    return c.x;
}

static bool reduce_order(tables *t, draw *d) {
    place c = {0}, e = {0};
    PLACES(t, p) {
        if (!OP(p, REDUCE)) continue;
        place q = p; /* the next into the same accumulator, with nothing but REDUCEs between */
        for (q.at++, q.x++; q.at < q.count && OP(q, REDUCE) && q.x->c != p.x->c; q.at++) q.x++;
        if (q.at < q.count && OP(q, REDUCE) && q.x->a == p.x->a && pick(d)) c = p, e = q;
    }
    if (!c.x) return false;
    fcp_instr keep = *c.x;
    *c.x = *e.x;
    *e.x = keep;
    return true;
}

static bool lose_return(tables *t, draw *d) {
    place p, q;
    if (t->problem->unit != t->problem->max_block) return false; /* whole blocks: one transfer each */
    fcp_transfer *a = any_transfer(t, d, FCP_DKV, FCP_RECV, &p);
    if (!a) return false;
    fcp_transfer received = *a;
    uint32_t i = (uint32_t)(a - transfer_in(t, &p, 0)), j = partner(t, &p, i, &q), n;
    fcp_instr *x = stream_instrs(t, p.pass, p.rank, FCP_COMPUTE, &n);
    uint32_t at = 0; /* its REDUCE is the first from this slot after a wait for its arrival */
    for (uint32_t known = 0; at < n; at++) {
        if (x[at].op == FCP_OP_WAIT && x[at].a > known) known = x[at].a;
        if (x[at].op == FCP_OP_REDUCE && x[at].b == received.slot && x[at].a == received.block && known > p.at) break;
    }
    if (at == n) return false;
    neutral(&x[at]);
    lose_transfer(t, &q, j);
    lose_transfer(t, &p, i);
    return true;
}

static bool wrong_dkv_slot(tables *t, draw *d) {
    if (!(t->problem->passes & 1u << FCP_BACKWARD)) return false;
    fcp_tile *tile = &t->tiles[next(d) % t->tiles_count];
    tile->dkv_slot += tile->dkv_slot && next(d) % 2 ? UINT32_MAX : 1;
    return true;
}

static bool drop_delta(tables *t, draw *d) {
    place c = {0};
    PLACES(t, p) if (OP(p, DELTA) && p.at + 1 < p.count && pick(d)) c = p;
    if (c.x) neutral(c.x);
    return c.x;
}

static bool two_deltas(tables *t, draw *d) {
    place c = {0};
    PLACES(t, p) if (OP(p, DELTA) && pick(d)) c = p;
    if (c.x) instr_insert(t, c.pass, c.rank, FCP_COMPUTE, c.at, *c.x);
    return c.x;
}
#endif
