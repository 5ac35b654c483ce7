/* plan_damage_work.h: the kinds of damage to what ranks compute and where they keep it: tiles, visits, slots, partial
 * results. A part of plan_damage.h. */
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
    uint32_t from = FCP_NONE, to = 0, block = 0, *rank = calloc(t->visits_count + 1, sizeof *rank);
    PLACES(t, p)
        for (uint32_t v = p.x->a; p.pass == FCP_FORWARD && OP(p, ATTEND) && v < p.x->a + p.x->b; v++) rank[v] = p.rank;
    for (uint64_t i = 0; i < t->visits_count; i++) { /* i begins while another of its rank, begun before, goes on */
        const fcp_visit *v = &t->visits[i];
        if (v->flags != FCP_VISIT_FIRST) continue;
        for (uint64_t j = i + 1; j < t->visits_count && rank[j] == rank[i]; j++) {
            const fcp_visit *w = &t->visits[j];
            bool began_before = false;
            for (uint64_t k = i; k-- && rank[k] == rank[i];)
                began_before |= t->visits[k].q_block == w->q_block && t->visits[k].state_slot == w->state_slot;
            for (uint64_t k = i; k < j; k++) began_before = began_before && t->visits[k].q_block != w->q_block;
            if (began_before && pick(d)) from = (uint32_t)i, to = w->state_slot, block = v->q_block;
        }
    }
    for (uint64_t i = 0; i < t->visits_count && from != FCP_NONE; i++)
        if (t->visits[i].q_block == block && rank[i] == rank[from]) t->visits[i].state_slot = to;
    free(rank);
    return from != FCP_NONE;
}

/* --- damage: slots ------------------------------------------------------------------------------------------------ */

/* What arrives at a rank as a block's KV (its units), from where on it is there, and until when it is read. */
typedef struct fetched {
    uint32_t block, slot, arrives, last_read; /* comm, compute instruction; + 1 */
    uint32_t known;                           /* compute instructions known complete when it arrives */
} fetched;

/* A block is received where another still waits to be read. */
static bool reuse_live(tables *t, draw *d, fcp_class cls) {
    int pass = FCP_FORWARD;
    uint32_t rank = (uint32_t)(next(d) % t->problem->ranks), n = 0, count;
    fetched *f = calloc(t->blocks_count + 1, sizeof *f);
    PLACES(t, p) {
        if (p.pass != pass || p.rank != rank || p.queue != FCP_COMM || !exchanges(t, &p)) continue;
        for (uint32_t i = 0; i < p.x->b; i++) {
            const fcp_transfer *a = transfer_in(t, &p, i);
            if (a->cls == cls && a->dir == FCP_RECV && a->first == 0)
                f[n++] = (fetched){a->block, a->slot, p.at, 0, known_at(&p)};
        }
    }
    const fcp_instr *x = stream_instrs(t, pass, rank, FCP_COMPUTE, &count);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t v = x[i].a; x[i].op == FCP_OP_ATTEND && v < x[i].a + x[i].b; v++)
            for (uint32_t k = t->visits[v].first_tile; k < t->visits[v].first_tile + t->visits[v].tiles; k++)
                for (uint32_t j = 0; j < n; j++)
                    if ((cls == FCP_Q ? t->tiles[k].q_block : t->tiles[k].k_block) == f[j].block)
                        f[j].last_read = i + 1;
    uint32_t from = FCP_NONE, to = 0;
    for (uint32_t a = 0; a < n; a++)
        for (uint32_t b = 0; b < n; b++)
            if (f[a].slot != f[b].slot && f[a].arrives < f[b].arrives && f[a].last_read > f[b].known && pick(d))
                from = b, to = a;
    if (from != FCP_NONE) { /* all that concerns block `from` at this rank now names the slot of block `to` */
        uint32_t block = f[from].block, old = f[from].slot, slot = f[to].slot;
        PLACES(t, p) {
            if (p.rank != rank || !exchanges(t, &p)) continue;
            for (uint32_t i = 0; i < p.x->b; i++) {
                fcp_transfer *a = transfer_in(t, &p, i);
                if (a->cls == cls && a->block == block) a->slot = slot;
            }
        }
        for (uint32_t i = 0; i < count; i++)
            for (uint32_t v = x[i].a; x[i].op == FCP_OP_ATTEND && v < x[i].a + x[i].b; v++) {
                fcp_visit *w = &t->visits[v];
                if (cls == FCP_Q && w->q_block == block) w->q_slot = slot;
                for (uint32_t k = w->first_tile; cls == FCP_KV && k < w->first_tile + w->tiles; k++)
                    if (t->tiles[k].k_block == block && t->tiles[k].kv_slot == old) t->tiles[k].kv_slot = slot;
            }
    }
    free(f);
    return from != FCP_NONE;
}

static bool reuse_live_slot(tables *t, draw *d) { return reuse_live(t, d, FCP_KV); }
static bool reuse_live_q_slot(tables *t, draw *d) { return reuse_live(t, d, FCP_Q); }

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

/* MERGE, REDUCE or REDUCE_Q. */
static bool adds(const fcp_instr *x) {
    return x->op == FCP_OP_MERGE || x->op == FCP_OP_REDUCE || x->op == FCP_OP_REDUCE_Q;
}
static bool addition_at(const tables *t, draw *d, place *c) {
    c->x = NULL;
    PLACES(t, p) if (adds(p.x) && pick(d)) *c = p;
    return c->x;
}

static bool drop_addition(tables *t, draw *d) {
    place c;
    if (addition_at(t, d, &c)) neutral(c.x);
    return c.x;
}

static bool double_addition(tables *t, draw *d) {
    place c;
    if (!addition_at(t, d, &c)) return false;
    instr_insert(t, c.pass, c.rank, FCP_COMPUTE, c.at + 1, *c.x);
    return true;
}

static bool add_elsewhere(tables *t, draw *d) {
    place c;
    if (addition_at(t, d, &c)) c.x->c++;
    return c.x;
}

static bool addition_order(tables *t, draw *d) {
    place c = {0}, e = {0};
    PLACES(t, p) {
        if (!adds(p.x)) continue;
        place q = p; /* the next into the same accumulator, with nothing but additions between */
        for (q.at++, q.x++; q.at < q.count && q.x->op == p.x->op && q.x->c != p.x->c; q.at++) q.x++;
        if (q.at < q.count && q.x->op == p.x->op && q.x->a == p.x->a && pick(d)) c = p, e = q;
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
        if (x[at].op == FCP_OP_WAIT && fcp_waits_whole(&x[at]) > known) known = fcp_waits_whole(&x[at]);
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

/* A DELTA of a block that holds Q. */
static bool delta_at(const tables *t, draw *d, place *c) {
    c->x = NULL;
    PLACES(t, p) {
        bool any = false;
        for (uint64_t b = 0; OP(p, DELTA) && b < t->blocks_count; b++)
            any |= t->blocks[b].home == p.rank && t->blocks[b].holds & FCP_HOLDS_Q &&
                   t->blocks[b].home_slot - p.x->a < p.x->b;
        if (any && pick(d)) *c = p;
    }
    return c->x;
}

static bool drop_delta(tables *t, draw *d) {
    place c;
    if (delta_at(t, d, &c)) neutral(c.x);
    return c.x;
}

static bool two_deltas(tables *t, draw *d) {
    place c;
    if (delta_at(t, d, &c)) instr_insert(t, c.pass, c.rank, FCP_COMPUTE, c.at, *c.x);
    return c.x;
}
#endif
