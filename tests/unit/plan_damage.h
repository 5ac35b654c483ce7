/* plan_damage.h: kinds of damage to plans, and the codes that are right names for each.
 *
 * A kind picks a place by a seeded draw among all places of a plan where it makes sense; it returns false where there
 * is none. Everything is static. */
#ifndef PLAN_DAMAGE_H
#define PLAN_DAMAGE_H
#include "plan_damage_data.h"
#include "plan_places.h"

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

/* --- damage: rounds and transfers --------------------------------------------------------------------------------- */

/* Two neighbouring launches of a rank, of one kind and stage. */
static bool neighbours(const tables *t, draw *d, place *first, place *second, bool same_stage) {
    first->x = NULL;
    PLACES(t, p) {
        if (!exchanges(t, &p)) continue;
        place q = p;
        do {
            q.at++;
            q.x++;
        } while (q.at < q.count && q.x->op == FCP_OP_WAIT);
        if (q.at == q.count || !exchanges(t, &q) || round_at(t, &q)->kind != round_at(t, &p)->kind) continue;
        if (same_stage && round_at(t, &q)->stage != round_at(t, &p)->stage) continue;
        if (pick(d)) *first = p, *second = q;
    }
    return first->x;
}

static bool swap_rounds(tables *t, draw *d) {
    place p, q;
    if (!neighbours(t, d, &p, &q, true)) return false;
    uint32_t keep = p.x->c;
    p.x->c = q.x->c;
    q.x->c = keep;
    return true;
}

static bool swap_round_contents(tables *t, draw *d) {
    place p, q;
    if (!neighbours(t, d, &p, &q, true)) return false;
    fcp_instr keep = *p.x;
    p.x->a = q.x->a;
    p.x->b = q.x->b;
    q.x->a = keep.a;
    q.x->b = keep.b;
    return true;
}

static bool send_twice(tables *t, draw *d) {
    /* the second launch's transfers join the first's, which lie before them, where both send or both receive on a
     * fabric */
    place c = {0}, e = {0};
    PLACES(t, p) {
        if (!exchanges(t, &p) || p.at + 1 == p.count) continue;
        place q = p;
        q.at++;
        q.x++;
        if (!exchanges(t, &q) || round_at(t, &q)->kind != round_at(t, &p)->kind || q.x->a != p.x->a + p.x->b) continue;
        unsigned busy = 0, twice = 0;
        for (uint32_t i = 0; i < p.x->b; i++)
            busy |= 1u << (transfer_in(t, &p, i)->fabric * 2 + transfer_in(t, &p, i)->dir);
        for (uint32_t i = 0; i < q.x->b; i++)
            twice |= busy & 1u << (transfer_in(t, &q, i)->fabric * 2 + transfer_in(t, &q, i)->dir);
        if (twice && pick(d)) c = p, e = q;
    }
    if (!c.x) return false;
    c.x->b += e.x->b;
    neutral(e.x);
    return true;
}

static bool cross_sends(tables *t, draw *d) {
    fcp_transfer *one = NULL, *two = NULL;
    place c = {0};
    PLACES(t, p) for (uint32_t i = 0; OP(p, LAUNCH) && i < p.x->b; i++) {
        fcp_transfer *a = transfer_in(t, &p, i);
        if (a->dir == FCP_SEND && pick(d)) one = a, c = p;
    }
    if (!one) return false;
    again(d);
    PLACES(t, p) for (uint32_t i = 0; OP(p, LAUNCH) && p.pass == c.pass && p.x->c == c.x->c && i < p.x->b; i++) {
        fcp_transfer *a = transfer_in(t, &p, i);
        if (a->dir == FCP_SEND && a->fabric == one->fabric && a->peer != one->peer && pick(d)) two = a;
    }
    if (!two) return false;
    uint32_t keep = one->peer;
    one->peer = two->peer;
    two->peer = keep;
    return true;
}

static fcp_transfer *any_transfer(tables *t, draw *d, int cls, int dir, place *where) {
    fcp_transfer *chosen = NULL;
    PLACES(t, p) for (uint32_t i = 0; (OP(p, LAUNCH) || OP(p, COPY)) && i < p.x->b; i++) {
        fcp_transfer *a = transfer_in(t, &p, i);
        if (OP(p, COPY) != (dir < 0) || (cls >= 0 && a->cls != cls) || (dir >= 0 && a->dir != dir)) continue;
        if (pick(d)) {
            chosen = a;
            *where = p;
        }
    }
    return chosen;
}

static bool send_less(tables *t, draw *d) {
    place p;
    fcp_transfer *a = any_transfer(t, d, -1, FCP_SEND, &p);
    if (!a || a->tokens == 1) return false;
    a->tokens--;
    return true;
}

static bool send_other_block(tables *t, draw *d) {
    place p;
    fcp_transfer *a = any_transfer(t, d, -1, FCP_RECV, &p);
    if (!a) return false;
    for (uint32_t b = 0; b < t->blocks_count; b++)
        if (b != a->block && t->blocks[b].home == t->blocks[a->block].home &&
            t->blocks[b].tokens == t->blocks[a->block].tokens && t->blocks[b].holds == t->blocks[a->block].holds &&
            a->cls != FCP_IN) {
            a->block = b;
            return true;
        }
    return false;
}

static bool send_to_itself(tables *t, draw *d) {
    place p;
    fcp_transfer *a = any_transfer(t, d, -1, next(d) % 2, &p);
    if (a) a->peer = p.rank;
    return a;
}

static bool wrong_fabric(tables *t, draw *d) {
    place p, q;
    fcp_transfer *a = any_transfer(t, d, FCP_KV, FCP_SEND, &p);
    if (!a) return false;
    uint32_t j = partner(t, &p, (uint32_t)(a - transfer_in(t, &p, 0)), &q);
    a->fabric ^= 1;
    transfer_in(t, &q, j)->fabric ^= 1;
    return true;
}

/* Neither sent nor received: the tiles that read it miss it. */
static bool lose_fetch(tables *t, draw *d) {
    place p, q;
    fcp_transfer *a = any_transfer(t, d, FCP_KV, FCP_SEND, &p);
    if (!a) return false;
    uint32_t i = (uint32_t)(a - transfer_in(t, &p, 0)), j = partner(t, &p, i, &q);
    lose_transfer(t, &q, j);
    lose_transfer(t, &p, i);
    return true;
}

static bool units_out_of_order(tables *t, draw *d) {
    place p, q, p2 = {0}, q2;
    fcp_transfer *a = any_transfer(t, d, FCP_KV, FCP_RECV, &p), *b = NULL;
    if (!a || a->tokens != t->problem->unit) return false;
    again(d);
    PLACES(t, s) for (uint32_t i = 0; exchanges(t, &s) && s.pass == p.pass && s.rank == p.rank && i < s.x->b; i++) {
        fcp_transfer *c = transfer_in(t, &s, i);
        if (c->dir == FCP_RECV && c->cls == FCP_KV && c->block == a->block && c != a && c->tokens == a->tokens &&
            pick(d))
            b = c, p2 = s;
    }
    if (!b) return false;
    fcp_transfer *a2, *b2;
    a2 = transfer_in(t, &q, partner(t, &p, (uint32_t)(a - transfer_in(t, &p, 0)), &q));
    b2 = transfer_in(t, &q2, partner(t, &p2, (uint32_t)(b - transfer_in(t, &p2, 0)), &q2));
    uint32_t keep = a->first;
    a->first = a2->first = b->first;
    b->first = b2->first = keep;
    return true;
}

static bool extra_round(tables *t, draw *d) {
    int pass = (int)(next(d) % FCP_PASSES);
    if (!(t->problem->passes & 1u << pass)) pass = FCP_FORWARD;
    uint32_t begin = t->round_starts[pass], end = t->round_starts[pass + 1], last = FCP_NONE;
    for (uint32_t i = begin; i < end; i++)
        if (pick(d)) last = i;
    if (last == FCP_NONE) return false;
    fcp_round copy = t->rounds[last];
    uint32_t id = last - begin + 1; /* the new one comes after it */
    INSERT(t, rounds, last + 1, copy);
    for (int i = pass + 1; i <= FCP_PASSES; i++) t->round_starts[i]++;
    PLACES(t, p) if (p.pass == pass && OP(p, LAUNCH) && p.x->c >= id) p.x->c++;
    return true;
}

/* Part of a round's transfers get a round of their own: all is well, but for the number of rounds. */
static bool split_round(tables *t, draw *d) {
    place p, q;
    fcp_transfer *a = any_transfer(t, d, -1, FCP_SEND, &p);
    if (!a) return false;
    uint32_t round = p.x->c, begin = t->round_starts[p.pass], at = begin + round;
    uint32_t i = (uint32_t)(a - transfer_in(t, &p, 0)), j = partner(t, &p, i, &q);
    fcp_round copy = t->rounds[at];
    for (int n = p.pass + 1; n <= FCP_PASSES; n++) t->round_starts[n]++;
    PLACES(t, s) if (s.pass == p.pass && OP(s, LAUNCH) && s.x->c > round) s.x->c++;
    /* the pair's transfers go to the end of their launches, and then to launches of their own */
    for (int n = 0; n < 2; n++) {
        place s = n ? q : p;
        uint32_t k = n ? j : i, stage = s.x->stage;
        fcp_transfer keep = *transfer_in(t, &s, k), *end = transfer_in(t, &s, s.x->b - 1);
        *transfer_in(t, &s, k) = *end;
        *end = keep;
        if (s.x->b == 1) {
            s.x->c = round + 1;
        } else {
            fcp_instr own = {.op = FCP_OP_LAUNCH, .stage = stage, .a = s.x->a + s.x->b - 1, .b = 1, .c = round + 1};
            s.x->b--;
            instr_insert(t, s.pass, s.rank, FCP_COMM, s.at + 1, own);
            uint32_t count; /* who waited for the launch that was, waits for both */
            fcp_instr *x = stream_instrs(t, s.pass, s.rank, FCP_COMPUTE, &count);
            for (uint32_t l = 0; l < count; l++) x[l].a += x[l].op == FCP_OP_WAIT && x[l].a == s.at + 1;
        }
        if (n == 0) { /* find the partner again: tables moved */
            fcp_instr *x = stream_instrs(t, p.pass, keep.peer, FCP_COMM, &q.count);
            q = (place){.pass = p.pass, .queue = FCP_COMM, .rank = keep.peer, .count = q.count, .x = x, .stream = x};
            while (q.x->op != FCP_OP_LAUNCH || q.x->c != round) q.at++, q.x++;
            for (j = 0; transfer_in(t, &q, j)->dir != FCP_RECV || transfer_in(t, &q, j)->fabric != keep.fabric; j++)
                ;
        }
    }
    INSERT(t, rounds, at + 1, copy);
    return true;
}

static bool wrong_kind(tables *t, draw *d) {
    fcp_round *r = NULL;
    for (uint64_t i = 0; i < t->rounds_count; i++)
        if (t->rounds[i].kind == FCP_ROUND_INDEPENDENT && pick(d)) r = &t->rounds[i];
    if (r) r->kind = FCP_ROUND_DEPENDENT;
    return r;
}

static bool rounds_stage(tables *t, draw *d) {
    fcp_round *r = NULL;
    for (int pass = 0; pass < FCP_PASSES; pass++)
        for (uint32_t i = t->round_starts[pass]; i + 1 < t->round_starts[pass + 1]; i++)
            if (pick(d)) r = &t->rounds[i];
    if (r) r->stage += 1000;
    return r;
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

/* --- damage: waits ------------------------------------------------------------------------------------------------ */

static bool wait_cycle(tables *t, draw *d) {
    /* a wait of the communication queue, before a launch that the computing queue waits for, now asks for all of it */
    place c = {0};
    PLACES(t, p) {
        uint32_t n;
        if (p.queue != FCP_COMM || !OP(p, WAIT)) continue;
        const fcp_instr *compute = stream_instrs(t, p.pass, p.rank, FCP_COMPUTE, &n);
        bool later = false;
        for (uint32_t i = 0; i < n; i++) later |= compute[i].op == FCP_OP_WAIT && compute[i].a > p.at;
        if (later && pick(d)) c = p;
    }
    if (!c.x) return false;
    uint32_t all;
    stream_instrs(t, c.pass, c.rank, FCP_COMPUTE, &all);
    c.x->a = all;
    return true;
}

static bool wait_for_more_than_there_is(tables *t, draw *d) {
    place c = {0};
    PLACES(t, p) if (OP(p, WAIT) && pick(d)) c = p;
    if (c.x) c.x->a += 100000;
    return c.x;
}

/* A wait of the computing queue without which an ATTEND does not know that its KV has arrived. */
static bool drop_wait_for_arrival(tables *t, draw *d) {
    place c = {0};
    PLACES(t, p) {
        if (p.queue != FCP_COMPUTE || !OP(p, WAIT)) continue;
        place q = p;
        while (q.at < q.count && q.x->op == FCP_OP_WAIT) q.at++, q.x++;
        if (q.at == q.count || !OP(q, ATTEND)) continue;
        uint32_t before = known_at(&p), homes = homes_of(t, p.rank), n;
        if (q.at != p.at + 1) continue;
        const fcp_instr *comm = stream_instrs(t, p.pass, p.rank, FCP_COMM, &n);
        bool needed = false;
        for (uint32_t j = before; j < n && j < p.x->a; j++)
            for (uint32_t i = 0; comm[j].op == FCP_OP_LAUNCH && i < comm[j].b; i++) {
                const fcp_transfer *a = &t->transfers[comm[j].a + i];
                if (a->cls != FCP_KV || a->dir != FCP_RECV) continue;
                for (uint32_t v = q.x->a; v < q.x->a + q.x->b; v++)
                    for (uint32_t k = t->visits[v].first_tile; k < t->visits[v].first_tile + t->visits[v].tiles; k++)
                        needed |= t->tiles[k].k_block == a->block && t->tiles[k].kv_slot >= homes;
            }
        if (needed && pick(d)) c = p;
    }
    if (c.x) neutral(c.x);
    return c.x;
}

/* A wait of the communication queue without which a launch comes too early for `buffers`. */
static bool early_launch(tables *t, draw *d) {
    place c = {0};
    PLACES(t, p) {
        if (p.queue != FCP_COMM || !OP(p, WAIT) || p.at + 1 == p.count) continue;
        place q = p;
        q.at++;
        q.x++;
        if (!exchanges(t, &q)) continue;
        uint32_t before = known_at(&p), n;
        const fcp_instr *compute = stream_instrs(t, p.pass, p.rank, FCP_COMPUTE, &n);
        bool needed = false;
        for (uint32_t i = before; i < n; i++)
            needed |= compute[i].op == FCP_OP_ATTEND && compute[i].stage + (uint64_t)t->problem->buffers <= q.x->stage;
        if (needed && pick(d)) c = p;
    }
    if (c.x) neutral(c.x);
    return c.x;
}

/* The same plan, said to have one buffer less: some launch is too early if any launch leans on the last buffer. */
static bool fewer_buffers(tables *t, draw *d) {
    bool leans = false;
    PLACES(t, p) {
        if (p.queue != FCP_COMM || !exchanges(t, &p)) continue;
        uint32_t known = known_at(&p), n;
        const fcp_instr *compute = stream_instrs(t, p.pass, p.rank, FCP_COMPUTE, &n);
        for (uint32_t i = known; i < n; i++)
            leans |=
                compute[i].op == FCP_OP_ATTEND && compute[i].stage + (uint64_t)t->problem->buffers - 1 <= p.x->stage;
    }
    (void)d;
    if (leans && t->problem->buffers > 1) t->problem->buffers--;
    else leans = false;
    return leans;
}

static bool wrong_queue(tables *t, draw *d) {
    place c = {0};
    PLACES(t, p) if (t->rounds_count && (OP(p, COPY) || OP(p, LAUNCH)) && pick(d)) c = p;
    if (!c.x || t->round_starts[c.pass] == t->round_starts[c.pass + 1]) return false;
    c.x->op = OP(c, COPY) ? FCP_OP_LAUNCH : FCP_OP_COPY;
    c.x->c = 0;
    return true;
}

static bool stage_goes_back(tables *t, draw *d) {
    place c = {0};
    PLACES(t, p) if (p.at && p.x[-1].stage && !OP(p, LAUNCH) && pick(d)) c = p;
    if (c.x) c.x->stage = c.x[-1].stage - 1;
    return c.x;
}

static bool launch_of_other_stage(tables *t, draw *d) {
    place c = {0};
    PLACES(t, p) if (OP(p, LAUNCH) && p.at + 1 == p.count && pick(d)) c = p;
    if (c.x) c.x->stage++;
    return c.x;
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

/* --- damage: what the mask reads ---------------------------------------------------------------------------------- */

static bool wrong_array(tables *t, draw *d) {
    if (!t->arrays_count) return false;
    fcp_array *a = &t->arrays[next(d) % t->arrays_count];
    switch (next(d) % 9) {
    case 0: a->width = 3; break;
    case 1: a->kind = FCP_ARRAY_KINDS; break;
    case 2: a->count++; break;
    case 3: a->count = 0; break;
    case 4: a->columns = UINT64_C(1) << 33; break;
    case 5: a->offset += 64; break;
    case 6: a->name = (uint32_t)t->names_count; break;
    case 7: a->file = (uint32_t)t->names_count; break;
    default: a->lo = a->hi + 1; break;
    }
    return true;
}

static bool lose_data(tables *t, draw *d) {
    if (!t->data_count) return false;
    t->data_count -= 1 + next(d) % t->data_count;
    return true;
}

static bool name_without_end(tables *t, draw *d) {
    if (!t->names_count) return false;
    t->names[t->names_count - 1] = (char)('a' + next(d) % 26);
    return true;
}

static bool load_of_nothing(tables *t, draw *d) {
    mc_node *chosen = NULL;
    for (uint64_t i = 0; i < t->mask_count; i++)
        if (t->mask[i].op == MC_LOAD && pick(d)) chosen = &t->mask[i];
    if (chosen) chosen->imm = next(d) % 2 ? (int64_t)t->arrays_count : -1;
    return chosen;
}

/* --- damage: queries and keys ------------------------------------------------------------------------------------- */

static bool swap_sides(tables *t, draw *d) {
    t->blocks[next(d) % t->blocks_count].holds ^= FCP_HOLDS_BOTH;
    return true;
}

static bool hold_one_side(tables *t, draw *d) {
    uint32_t *holds = &t->blocks[next(d) % t->blocks_count].holds;
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

/* --- the list ----------------------------------------------------------------------------------------------------- */

typedef struct damage {
    const char *name;
    bool (*apply)(tables *t, draw *d);
    fcp_code codes[6];
} damage;

#define D(name, ...) {#name, name, {__VA_ARGS__}}
#define E(name) FCP_E_VERIFY_##name
static const damage kinds[] = {
    D(drop_tile, E(TILE)),
    D(double_tile, E(TILE)),
    D(exchange_tiles, E(TILE)),
    D(drop_visit, E(TILE)),
    D(double_visit, E(TILE)),
    D(wrong_flag, E(TILE)),
    D(exchange_ranks, E(PRESENCE)),
    D(wrong_q_slot, E(PRESENCE)),
    D(wrong_kv_slot, E(PRESENCE), E(SLOT)), /* SLOT: it was there, and has been overwritten */
    D(wrong_state_slot, E(SLOT)),
    D(state_slot_lost_or_needless, E(SLOT)),
    D(reuse_state_slot, E(SLOT)),
    D(swap_rounds, E(ORDER)),
    D(swap_round_contents, E(MATCH)),
    D(send_twice, E(ROUND)),
    D(cross_sends, E(MATCH)),
    D(send_less, E(MATCH)),
    D(send_other_block, E(MATCH)),
    D(send_to_itself, E(MATCH)),
    D(wrong_fabric, E(MATCH)),
    D(lose_fetch, E(PRESENCE), E(SLOT)),
    D(units_out_of_order, E(PRESENCE)),
    D(extra_round, E(DELTA)),
    D(split_round, E(DELTA)),
    D(wrong_kind, E(DELTA)),
    D(rounds_stage, E(ORDER)),
    D(reuse_live_slot, E(SLOT), E(PRESENCE)), /* PRESENCE: units of both arrive in turn */
    D(into_home_slot, E(SLOT)),
    D(slot_gap, E(MEMORY)),
    D(wrong_home, E(PRESENCE), E(MATCH), E(DELTA), E(LAYOUT), E(SLOT)),
    D(small_memory, E(MEMORY)),
    D(wait_cycle, E(DEADLOCK)),
    D(wait_for_more_than_there_is, E(DEADLOCK)),
    D(drop_wait_for_arrival, E(PRESENCE)),
    D(early_launch, E(ORDER)),
    D(fewer_buffers, E(ORDER)),
    D(wrong_queue, E(ORDER)),
    D(stage_goes_back, E(ORDER)),
    D(launch_of_other_stage, E(ORDER)),
    D(drop_reduce, E(RETURN)),
    D(double_reduce, E(RETURN)),
    D(reduce_elsewhere, E(RETURN), E(SLOT)), /* SLOT: what was there is leaving */
    D(reduce_order, E(RETURN)),
    D(lose_return, E(RETURN)),
    D(wrong_dkv_slot, E(RETURN), E(SLOT)),
    D(drop_delta, E(ORDER)),
    D(two_deltas, E(ORDER)),
    D(lose_token_in, E(LAYOUT), E(PRESENCE)), /* PRESENCE: a visit finds its block incomplete first */
    D(lose_token_out, E(LAYOUT)),
    D(exchange_places, E(LAYOUT)),
    D(other_place, E(LAYOUT)),
    D(copy_other_side, E(LAYOUT)),
    D(early_out, E(LAYOUT)),
    D(wrong_array, FCP_E_PLAN_FORMAT),
    D(lose_data, FCP_E_PLAN_FORMAT),
    D(name_without_end, FCP_E_PLAN_FORMAT),
    D(load_of_nothing, FCP_E_PLAN_FORMAT),
    D(swap_sides, FCP_E_PLAN_FORMAT),
    D(hold_one_side, FCP_E_PLAN_FORMAT),
    D(move_queries, FCP_E_PLAN_FORMAT),
    D(another_query, FCP_E_PLAN_FORMAT),
    D(other_align, FCP_E_PLAN_FORMAT),
    D(drop_key_layout, FCP_E_PLAN_FORMAT),
    D(exchange_layouts, FCP_E_PLAN_FORMAT),
    D(tile_of_other_side, FCP_E_PLAN_FORMAT),
    D(send_kv_of_queries, FCP_E_PLAN_FORMAT),
    D(results_of_keys, E(LAYOUT), E(MATCH)),
    D(wrong_key_layout, FCP_E_PLAN_FORMAT),
    D(wrong_slices, FCP_E_PLAN_FORMAT),
    D(lose_slices, FCP_E_PLAN_FORMAT),
    D(wrong_band_rows, FCP_E_PLAN_FORMAT),
    D(wrong_band, FCP_E_PLAN_FORMAT),
    D(share_bands, FCP_E_PLAN_FORMAT),
    D(bands_of_nothing, FCP_E_PLAN_FORMAT),
    D(wrong_code, FCP_E_PLAN_FORMAT),
    D(lose_score, FCP_E_PLAN_FORMAT),
    D(wrong_real, FCP_E_PLAN_FORMAT),
    D(wrong_sink, FCP_E_PLAN_FORMAT),
};
#undef D
#undef E
#endif
