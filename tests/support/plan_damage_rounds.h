/* plan_damage_rounds.h: the kinds of damage to what ranks send each other, and when: rounds, transfers, waits. A part
 * of plan_damage.h. */
#ifndef PLAN_DAMAGE_ROUNDS_H
#define PLAN_DAMAGE_ROUNDS_H
#include "tests/support/plan_places.h"

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
    if (!a || a->block == FCP_NONE) return false;
    for (uint32_t b = 0; b < t->blocks_count; b++)
        if (b != a->block && t->blocks[b].home == t->blocks[a->block].home &&
            t->blocks[b].tokens == t->blocks[a->block].tokens && t->blocks[b].holds == t->blocks[a->block].holds) {
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

/* A plan for a fat tree says that the network is of rails. */
static bool off_its_rail(tables *t, draw *d) {
    const uint32_t gpus = t->problem->gpus;
    bool off = false;
    (void)d;
    if (t->problem->topology == FCP_RAIL) return false;
    PLACES(t, p) for (uint32_t i = 0; OP(p, LAUNCH) && i < p.x->b; i++) {
        const fcp_transfer *a = transfer_in(t, &p, i);
        off |= a->fabric == FCP_NET && a->cls != FCP_IN && a->cls != FCP_OUT && a->peer % gpus != p.rank % gpus;
    }
    if (off) t->problem->topology = FCP_RAIL;
    return off;
}

/* Neither sent nor received: the tiles that read it miss it. */
static bool lose_fetch(tables *t, draw *d) {
    place p, q;
    fcp_transfer *a = any_transfer(t, d, next(d) % 2 ? FCP_KV : FCP_Q, FCP_SEND, &p);
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
            for (uint32_t l = 0; l < count; l++) {
                x[l].a += x[l].op == FCP_OP_WAIT && x[l].a == s.at + 1;
                x[l].b += x[l].op == FCP_OP_WAIT && x[l].b == s.at + 1;
            }
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
        if (t->rounds[i].kind == FCP_ROUND_DEPENDENT && pick(d)) r = &t->rounds[i];
    if (r) r->kind = FCP_ROUND_INDEPENDENT;
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

/* The stage with which the second half begins; 0: there are no halves. */
static uint32_t half_of(const tables *t) {
    for (uint64_t i = 0; i < t->rounds_count; i++)
        if (t->rounds[i].flags & FCP_ROUND_SECOND) return t->rounds[i].stage;
    return 0;
}

/* Says in both passes that the second half begins with `stage`. */
static void begin_half(tables *t, uint32_t stage) {
    for (uint64_t i = 0; i < t->rounds_count; i++) {
        fcp_round *r = &t->rounds[i];
        r->flags = r->kind == FCP_ROUND_DEPENDENT && r->stage >= stage ? FCP_ROUND_SECOND : 0;
    }
}

/* A round is said to be of the other half. */
static bool flip_half(tables *t, draw *d) {
    fcp_round *r = NULL;
    for (uint64_t i = 0; half_of(t) && i < t->rounds_count; i++)
        if (t->rounds[i].kind == FCP_ROUND_DEPENDENT && pick(d)) r = &t->rounds[i];
    if (r) r->flags ^= FCP_ROUND_SECOND;
    return r;
}

/* All is said to be of the second half. */
static bool early_half(tables *t, draw *d) {
    (void)d;
    if (!half_of(t)) return false;
    begin_half(t, 1);
    return true;
}

/* Nothing comes from the stage on with which the second half is said to begin. */
static bool late_half(tables *t, draw *d) {
    (void)d;
    if (!half_of(t)) return false;
    uint32_t last = 0;
    for (uint64_t i = 0; i < t->rounds_count; i++)
        if (t->rounds[i].kind == FCP_ROUND_DEPENDENT && i < t->round_starts[1]) last = t->rounds[i].stage;
    begin_half(t, last);
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
        for (uint32_t i = 0; i < n; i++) later |= compute[i].op == FCP_OP_WAIT && fcp_waits_whole(&compute[i]) > p.at;
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
    if (c.x) *waits_of(t, &c) += 100000;
    return c.x;
}

/* Is there a wait before this ATTEND without which it does not know of a fabric that its KV has arrived over it? */
static bool is_for_arrivals(const tables *t, const place *wait, const fcp_instr *attend, fcp_fabric fabric) {
    uint32_t homes = homes_of(t, wait->rank), n;
    const fcp_instr *comm = stream_instrs(t, wait->pass, wait->rank, FCP_COMM, &n);
    const uint32_t end = fcp_waits_over(wait->x, FCP_COMPUTE, fabric);
    for (uint32_t j = known_over(wait, fabric); j < n && j < end; j++)
        for (uint32_t i = 0; comm[j].op == FCP_OP_LAUNCH && i < comm[j].b; i++) {
            const fcp_transfer *a = &t->transfers[comm[j].a + i];
            if (a->cls != FCP_KV || a->dir != FCP_RECV || a->fabric != fabric) continue;
            for (uint32_t v = attend->a; v < attend->a + attend->b; v++)
                for (uint32_t k = t->visits[v].first_tile; k < t->visits[v].first_tile + t->visits[v].tiles; k++)
                    if (t->tiles[k].k_block == a->block && t->tiles[k].kv_slot >= homes) return true;
        }
    return false;
}

/* Draws a wait of the computing queue, right before an ATTEND, that is for arrivals over a fabric. */
static bool wait_for_arrivals(const tables *t, draw *d, place *out, fcp_fabric *out_fabric) {
    out->x = NULL;
    PLACES(t, p) for (int f = 0; f < FCP_FABRICS; f++) {
        if (p.queue != FCP_COMPUTE || !OP(p, WAIT) || p.at + 1 == p.count || p.x[1].op != FCP_OP_ATTEND) continue;
        if (!is_for_arrivals(t, &p, &p.x[1], (fcp_fabric)f) || !pick(d)) continue;
        *out = p;
        *out_fabric = (fcp_fabric)f;
    }
    return out->x;
}

static bool drop_wait_for_arrival(tables *t, draw *d) {
    place c;
    fcp_fabric fabric;
    if (wait_for_arrivals(t, d, &c, &fabric)) neutral(c.x);
    return c.x;
}

/* A wait covers what arrives over one fabric in the other. */
static bool wait_over_other_fabric(tables *t, draw *d) {
    place c;
    fcp_fabric fabric;
    if (t->problem->nodes == 1 || t->problem->gpus == 1 || !wait_for_arrivals(t, d, &c, &fabric)) return false;
    const uint32_t known = known_over(&c, fabric), whole = fcp_waits_whole(c.x);
    c.x->a = fabric == FCP_NET ? known : whole;
    c.x->b = fabric == FCP_NET ? whole : known;
    return true;
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
#endif
