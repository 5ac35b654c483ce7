/* plan_damage_recurrent.h: damage to what a plan has for layers that recur: streams, steps, and rows of halos. */
#ifndef PLAN_DAMAGE_RECURRENT_H
#define PLAN_DAMAGE_RECURRENT_H
#include "runtime/plan/recurrent.h"
#include "runtime/plan/layout.h"
#include "tests/support/plan_places.h"

/* A step and where it is. */
typedef struct step_at {
    uint64_t stream;
    uint32_t at, count, rank;
    fcp_recurrent *layer;
    int pass;
    fcp_step *x;
} step_at;

static bool step_next(const tables *t, step_at *p) {
    const uint64_t ranks = t->problem->ranks;
    if (p->x) p->at++;
    while (!p->x || p->at >= p->count) {
        if (p->x || p->layer) p->stream++;
        if (p->stream >= t->step_streams_count) return false;
        const fcp_step_stream *s = &t->step_streams[p->stream];
        *p = (step_at){p->stream,
                       0,
                       s->count,
                       (uint32_t)(p->stream % ranks),
                       &t->recurrent[p->stream / ranks / FCP_PASSES],
                       (int)(p->stream / ranks % FCP_PASSES),
                       s->count ? t->steps + s->first : NULL};
    }
    p->x = t->steps + t->step_streams[p->stream].first + p->at;
    return true;
}
#define STEPS(t, p) for (step_at p = {0}; step_next(t, &p);)
#define STEP(p, name) ((p).x->op == FCP_STEP_##name)
static bool step_moves(const step_at *p) { return STEP(*p, SEND) || STEP(*p, RECV); }
static bool of_scan(const step_at *p) { return p->layer->kind == FCP_SCAN; }
static uint32_t stretches_at(const tables *t, uint32_t rank) { return fcp_stretches_of(&t->plan, rank, NULL); }
/* The first register of temporaries at a step's rank. */
static uint32_t temporary_at(const tables *t, const step_at *p) { return 2 * stretches_at(t, p->rank); }

/* Draws a step for which `right` holds. */
static bool draw_step(const tables *t, draw *d, bool (*right)(const tables *t, const step_at *p), step_at *out) {
    again(d);
    STEPS(t, p)
    if (right(t, &p) && pick(d)) *out = p;
    return d->seen > 0;
}
static bool is_message(const tables *t, const step_at *p) { return (void)t, step_moves(p); }
static bool is_send(const tables *t, const step_at *p) { return (void)t, STEP(*p, SEND); }
static bool is_receive(const tables *t, const step_at *p) { return (void)t, STEP(*p, RECV); }
static bool is_scan_send(const tables *t, const step_at *p) { return (void)t, STEP(*p, SEND) && of_scan(p); }
static bool is_combine(const tables *t, const step_at *p) { return (void)t, STEP(*p, COMBINE); }
static bool is_own(const tables *t, const step_at *p) { return (void)t, STEP(*p, COPY) || STEP(*p, COMBINE); }
static bool is_scan_copy(const tables *t, const step_at *p) { return (void)t, STEP(*p, COPY) && of_scan(p); }
static bool is_halo_copy(const tables *t, const step_at *p) { return (void)t, STEP(*p, COPY) && !of_scan(p); }
static bool is_halo_send(const tables *t, const step_at *p) { return (void)t, STEP(*p, SEND) && !of_scan(p); }
static bool is_halo_receive(const tables *t, const step_at *p) { return (void)t, STEP(*p, RECV) && !of_scan(p); }
static bool is_result(const tables *t, const step_at *p) {
    return of_scan(p) && !STEP(*p, SEND) && p->x->out < temporary_at(t, p);
}

/* The other end of a message. */
static step_at step_other_end(const tables *t, const step_at *p) {
    STEPS(t, q)
    if (q.layer == p->layer && q.pass == p->pass && q.rank == p->x->peer && q.x->peer == p->rank &&
        q.x->round == p->x->round && step_moves(&q) && q.x->op != p->x->op)
        return q;
    cr_assert(false, "no other end");
    return *p;
}

/* Loses the records of halo_rows that only a step that goes away has named. */
static void lose_rows(tables *t, uint32_t first, uint32_t count) {
    memmove(t->halo_rows + first, t->halo_rows + first + count,
            (t->halo_rows_count - first - count) * sizeof *t->halo_rows);
    t->halo_rows_count -= count;
    STEPS(t, p) {
        if (of_scan(&p)) continue;
        if (p.x->a > first) p.x->a -= count;
        if (STEP(p, COPY) && p.x->b > first) p.x->b -= count;
    }
}
static void lose_step(tables *t, const step_at *p) {
    const fcp_step x = *p->x;
    const uint64_t at = (uint64_t)(p->x - t->steps);
    memmove(t->steps + at, t->steps + at + 1, (t->steps_count - at - 1) * sizeof *t->steps);
    t->steps_count--;
    t->step_streams[p->stream].count--;
    for (uint64_t s = p->stream + 1; s < t->step_streams_count; s++) t->step_streams[s].first--;
    if (of_scan(p)) return;
    if (x.op != FCP_STEP_COPY) {
        lose_rows(t, x.a, x.b);
        return;
    }
    lose_rows(t, x.a > x.b ? x.a : x.b, 1);
    lose_rows(t, x.a > x.b ? x.b : x.a, 1);
}
static void insert_step(tables *t, uint64_t stream, uint32_t at, fcp_step x) {
    INSERT(t, steps, t->step_streams[stream].first + at, x);
    t->step_streams[stream].count++;
    for (uint64_t s = stream + 1; s < t->step_streams_count; s++) t->step_streams[s].first++;
}
/* Adds copies of records of halo_rows, and returns where they are. */
static uint32_t more_rows(tables *t, uint32_t first, uint32_t count) {
    const uint32_t at = (uint32_t)t->halo_rows_count;
    for (uint32_t i = 0; i < count; i++) PUSH(t, halo_rows, t->halo_rows[first + i]);
    return at;
}

/* --- rounds and peers --------------------------------------------------------------------------------------------- */

static bool step_wrong_round(tables *t, draw *d) {
    step_at p;
    if (!draw_step(t, d, is_message, &p)) return false;
    p.x->round += next(d) % 2 ? 1 : UINT32_MAX;
    return true;
}
static bool step_wrong_sender(tables *t, draw *d) {
    step_at p;
    if (!draw_step(t, d, is_receive, &p) || t->problem->ranks < 3) return false;
    const uint32_t was = p.x->peer;
    do p.x->peer = (uint32_t)(next(d) % t->problem->ranks);
    while (p.x->peer == was || p.x->peer == p.rank);
    return true;
}
static bool step_wrong_receiver(tables *t, draw *d) {
    step_at p;
    if (!draw_step(t, d, is_send, &p) || t->problem->ranks < 3) return false;
    const uint32_t was = p.x->peer;
    do p.x->peer = (uint32_t)(next(d) % t->problem->ranks);
    while (p.x->peer == was || p.x->peer == p.rank);
    return true;
}
static bool step_to_itself(tables *t, draw *d) {
    step_at p;
    if (!draw_step(t, d, is_message, &p)) return false;
    p.x->peer = p.rank;
    return true;
}
/* Both ends say the other fabric. */
static bool step_wrong_fabric(tables *t, draw *d) {
    step_at p;
    if (!draw_step(t, d, is_send, &p)) return false;
    step_at q = step_other_end(t, &p);
    p.x->fabric ^= 1;
    q.x->fabric ^= 1;
    return true;
}
/* A step is done twice in the same round. */
static bool step_send_doubled(tables *t, draw *d) {
    step_at p;
    if (!draw_step(t, d, is_message, &p)) return false;
    fcp_step x = *p.x;
    if (!of_scan(&p)) x.a = more_rows(t, x.a, x.b);
    insert_step(t, p.stream, p.at + 1, x);
    return true;
}
/* A message goes again, in a round of its own behind all others. */
static bool step_message_again(tables *t, draw *d) {
    step_at p;
    if (!draw_step(t, d, is_send, &p)) return false;
    const uint32_t round = p.layer->rounds[p.pass]++;
    for (int end = 0; end < 2; end++) {
        const step_at q = end ? step_other_end(t, &p) : p;
        fcp_step x = *q.x;
        const uint64_t stream = q.stream;
        if (!of_scan(&q)) x.a = more_rows(t, x.a, x.b);
        x.round = round;
        insert_step(t, stream, t->step_streams[stream].count, x);
        STEPS(t, again) /* the tables may have moved */
        if (again.stream == p.stream && again.at == p.at) p = again;
    }
    return true;
}
static bool step_message_lost(tables *t, draw *d) {
    step_at p;
    if (!draw_step(t, d, is_send, &p)) return false;
    const uint64_t stream = p.stream;
    const uint32_t at = p.at;
    const step_at q = step_other_end(t, &p);
    lose_step(t, &q);
    STEPS(t, again)
    if (again.stream == stream && again.at == at - (q.stream == stream && q.at < at)) p = again;
    lose_step(t, &p);
    return true;
}
static bool step_send_lost(tables *t, draw *d) {
    step_at p;
    if (!draw_step(t, d, is_message, &p)) return false;
    lose_step(t, &p);
    return true;
}
/* Two neighbours of different rounds, or a message and what is done before it, change places. */
static bool step_out_of_order(tables *t, draw *d) {
    step_at found = {0};
    again(d);
    STEPS(t, p) {
        if (p.at + 1 == p.count || !step_moves(&p)) continue;
        const fcp_step *b = p.x + 1;
        if ((b->op == FCP_STEP_SEND || b->op == FCP_STEP_RECV) && b->round != p.x->round && pick(d)) found = p;
    }
    if (!d->seen) return false;
    const fcp_step x = found.x[0];
    found.x[0] = found.x[1];
    found.x[1] = x;
    return true;
}
/* Something is done between the messages of one round. */
static bool step_between(tables *t, draw *d) {
    step_at found = {0}, other = {0};
    again(d);
    STEPS(t, p)
    if (of_scan(&p) && p.at + 1 < p.count && step_moves(&p) && p.x[1].op <= FCP_STEP_RECV &&
        p.x[1].round == p.x->round && pick(d))
        found = p;
    if (!d->seen) return false;
    again(d);
    STEPS(t, p)
    if (p.stream == found.stream && is_own(t, &p) && pick(d)) other = p;
    if (!d->seen) return false;
    insert_step(t, found.stream, found.at + 1, *other.x);
    return true;
}
/* A rank receives into the register that it sends in the same round. */
static bool step_into_what_is_sent(tables *t, draw *d) {
    step_at found = {0};
    again(d);
    STEPS(t, p)
    if (of_scan(&p) && p.at + 1 < p.count && STEP(p, SEND) && p.x[1].op == FCP_STEP_RECV &&
        p.x[1].round == p.x->round && p.x->a >= stretches_at(t, p.rank) && p.x->part == p.x[1].part &&
        p.x->whole >= p.x[1].whole && pick(d))
        found = p;
    if (!d->seen) return false;
    found.x[1].out = found.x->a;
    return true;
}
/* Two sends of one round and fabric go to each other's receivers. */
static bool step_cross_sends(tables *t, draw *d) {
    step_at p, found = {0};
    if (!draw_step(t, d, is_send, &p)) return false;
    again(d);
    STEPS(t, q)
    if (STEP(q, SEND) && q.layer == p.layer && q.pass == p.pass && q.rank != p.rank && q.x->round == p.x->round &&
        q.x->fabric == p.x->fabric && q.x->peer != p.rank && p.x->peer != q.rank && pick(d))
        found = q;
    if (!d->seen) return false;
    const uint32_t peer = p.x->peer;
    p.x->peer = found.x->peer;
    found.x->peer = peer;
    return true;
}
static bool network_of(tables *t, draw *d, step_at *out) { return draw_step(t, d, is_message, out); }
static bool network_rounds(tables *t, draw *d) {
    step_at p;
    if (!network_of(t, d, &p)) return false;
    p.layer->rounds[p.pass]++;
    return true;
}
static bool network_bound(tables *t, draw *d) {
    step_at p;
    if (!network_of(t, d, &p)) return false;
    p.layer->bound[p.pass] += p.layer->bound[p.pass] < p.layer->rounds[p.pass] && next(d) % 2 ? 1 : UINT32_MAX;
    return true;
}
static bool network_shape(tables *t, draw *d) {
    step_at p;
    if (!draw_step(t, d, is_scan_send, &p)) return false;
    p.layer->shape = FCP_SCAN_NONE;
    return true;
}

/* --- scans -------------------------------------------------------------------------------------------------------- */

static bool scan_reversed(tables *t, draw *d) {
    step_at p;
    if (!draw_step(t, d, is_scan_send, &p)) return false;
    p.layer->reverse ^= 1;
    return true;
}
/* First what comes later, then what comes before. */
static bool scan_wrong_order(tables *t, draw *d) {
    step_at p;
    if (!draw_step(t, d, is_combine, &p)) return false;
    const uint32_t a = p.x->a;
    p.x->a = p.x->b;
    p.x->b = a;
    return true;
}
/* A summary of another stretch is combined, or sent. */
static bool scan_other_summary(tables *t, draw *d) {
    step_at p, found = {0};
    again(d);
    STEPS(t, q)
    if (of_scan(&q) && STEP(q, COMBINE) && q.x->b < stretches_at(t, q.rank) && stretches_at(t, q.rank) > 1 && pick(d))
        found = q;
    if (!d->seen) return false;
    p = found;
    const uint32_t all = stretches_at(t, p.rank);
    p.x->b = (p.x->b + 1 + (uint32_t)(next(d) % (all - 1))) % all;
    return true;
}
static bool scan_step_lost(tables *t, draw *d) {
    step_at p, found = {0};
    again(d);
    STEPS(t, q)
    if (of_scan(&q) && is_own(t, &q) && pick(d)) found = q;
    if (!d->seen) return false;
    p = found;
    lose_step(t, &p);
    return true;
}
static bool scan_copy_lost(tables *t, draw *d) {
    step_at p;
    if (!draw_step(t, d, is_scan_copy, &p)) return false;
    lose_step(t, &p);
    return true;
}
static bool scan_step_again(tables *t, draw *d) {
    step_at p, found = {0};
    again(d);
    STEPS(t, q)
    if (of_scan(&q) && is_own(t, &q) && pick(d)) found = q;
    if (!d->seen) return false;
    p = found;
    insert_step(t, p.stream, p.at + 1, *p.x);
    return true;
}
/* The states of two stretches are written to each other's register. */
static bool scan_other_result(tables *t, draw *d) {
    step_at p;
    if (!draw_step(t, d, is_result, &p)) return false;
    const uint32_t stretches = stretches_at(t, p.rank);
    if (stretches < 2) return false;
    p.x->out = stretches + (p.x->out - stretches + 1 + (uint32_t)(next(d) % (stretches - 1))) % stretches;
    return true;
}
/* Heads of a part do not travel: of a document, or all of them. */
static bool scan_part_left_out(tables *t, draw *d) {
    step_at p, found = {0};
    again(d);
    STEPS(t, q)
    if (of_scan(&q) && q.layer->parts > 1 && pick(d)) found = q;
    if (!d->seen) return false;
    const uint32_t part = found.x->part;
    const fcp_recurrent *layer = found.layer;
    for (bool more = true; more;) {
        more = false;
        STEPS(t, q)
        if (q.layer == layer && q.pass == found.pass && q.x->part == part) {
            p = q;
            more = true;
        }
        if (more) lose_step(t, &p);
    }
    return true;
}
/* A message says the other half of what it has: A and b, or b alone. Both ends, if the register of the receiver can. */
static bool scan_whole_of_one(tables *t, draw *d) {
    step_at p;
    if (!draw_step(t, d, is_scan_send, &p)) return false;
    p.x->whole ^= 1;
    return true;
}
static bool scan_whole_of_both(tables *t, draw *d) {
    step_at p;
    if (!draw_step(t, d, is_scan_send, &p)) return false;
    step_other_end(t, &p).x->whole ^= 1;
    p.x->whole ^= 1;
    return true;
}
/* A state travels with its A, into a register that has room for it. */
static bool scan_state_with_decay(tables *t, draw *d) {
    step_at found = {0};
    again(d);
    STEPS(t, p) {
        if (!is_scan_send(t, &p) || p.x->whole || p.x->a >= stretches_at(t, p.rank)) continue;
        const step_at q = step_other_end(t, &p);
        if (q.x->out >= temporary_at(t, &q) && pick(d)) found = p;
    }
    if (!d->seen) return false;
    step_other_end(t, &found).x->whole = 1;
    found.x->whole = 1;
    return true;
}
/* A result is written over what it is made of. */
static bool scan_into_operand(tables *t, draw *d) {
    step_at found = {0};
    again(d);
    STEPS(t, p)
    if (is_combine(t, &p) && p.x->a >= temporary_at(t, &p) && pick(d)) found = p;
    if (!d->seen) return false;
    found.x->out = found.x->a;
    return true;
}
static bool scan_temporaries(tables *t, draw *d) {
    uint64_t found = 0;
    again(d);
    for (uint64_t s = 0; s < t->step_streams_count; s++)
        if (t->step_streams[s].temporaries && pick(d)) found = s;
    if (!d->seen) return false;
    t->step_streams[found].temporaries += next(d) % 2 ? 1 : UINT32_MAX;
    return true;
}
static bool scan_more_parts(tables *t, draw *d) {
    step_at p;
    if (!draw_step(t, d, is_scan_send, &p) || p.layer->heads % (2 * p.layer->parts)) return false;
    p.layer->parts *= 2;
    return true;
}
/* A summary is written. */
static bool scan_into_summary(tables *t, draw *d) {
    step_at p;
    if (!draw_step(t, d, is_result, &p)) return false;
    p.x->out -= stretches_at(t, p.rank);
    return true;
}

/* --- halos -------------------------------------------------------------------------------------------------------- */

static fcp_halo_rows *draw_rows(tables *t, draw *d, const step_at *p) {
    return &t->halo_rows[p->x->a + next(d) % p->x->b];
}

static bool halo_sends_next_row(tables *t, draw *d) {
    step_at p;
    if (!draw_step(t, d, is_halo_send, &p)) return false;
    draw_rows(t, d, &p)->first += next(d) % 2 ? 1 : UINT64_MAX;
    return true;
}
static bool halo_into_next_row(tables *t, draw *d) {
    step_at p;
    if (!draw_step(t, d, is_halo_receive, &p)) return false;
    draw_rows(t, d, &p)->first += next(d) % 2 ? 1 : UINT64_MAX;
    return true;
}
static bool halo_copies_next_row(tables *t, draw *d) {
    step_at p;
    if (!draw_step(t, d, is_halo_copy, &p)) return false;
    t->halo_rows[next(d) % 2 ? p.x->a : p.x->b].first += next(d) % 2 ? 1 : UINT64_MAX;
    return true;
}
static bool halo_copy_lost(tables *t, draw *d) {
    step_at p;
    if (!draw_step(t, d, is_halo_copy, &p)) return false;
    lose_step(t, &p);
    return true;
}
static bool halo_copy_again(tables *t, draw *d) {
    step_at p;
    if (!draw_step(t, d, is_halo_copy, &p)) return false;
    fcp_step x = *p.x;
    x.a = more_rows(t, x.a, 1);
    x.b = more_rows(t, x.b, 1);
    insert_step(t, p.stream, p.at, x);
    return true;
}
/* In place of a copy, a message from the rank to itself, in a round of its own. */
static bool halo_sends_to_itself(tables *t, draw *d) {
    step_at p;
    if (!draw_step(t, d, is_halo_copy, &p)) return false;
    const uint32_t from = p.x->a, to = p.x->b;
    const fcp_step send = {.op = FCP_STEP_SEND,
                           .fabric = FCP_LOCAL,
                           .round = p.layer->rounds[p.pass]++,
                           .peer = p.rank,
                           .a = from,
                           .b = 1};
    fcp_step receive = send;
    receive.op = FCP_STEP_RECV;
    receive.a = to;
    const uint64_t stream = p.stream, first = t->step_streams[stream].first;
    memmove(p.x, p.x + 1, (p.count - p.at - 1) * sizeof *p.x);
    t->steps[first + p.count - 1] = send;
    insert_step(t, stream, p.count, receive);
    return true;
}
static bool halo_rows_of_nothing(tables *t, draw *d) {
    step_at p;
    if (!draw_step(t, d, is_halo_send, &p)) return false;
    more_rows(t, p.x->a, 1);
    return true;
}
/* Fewer rows: at one end, at both. */
static bool halo_sends_less(tables *t, draw *d) {
    step_at p;
    if (!draw_step(t, d, is_halo_send, &p)) return false;
    draw_rows(t, d, &p)->count--;
    return true;
}
static bool halo_moves_less(tables *t, draw *d) {
    step_at p;
    if (!draw_step(t, d, is_halo_send, &p)) return false;
    const step_at q = step_other_end(t, &p);
    const uint32_t last = p.x->b - 1;
    if (p.x->b != q.x->b || t->halo_rows[p.x->a + last].count < 2) return false;
    t->halo_rows[p.x->a + last].count--;
    t->halo_rows[q.x->a + last].count--;
    return true;
}
/* Two records of one message change places, so that rows come to each other's place. */
static bool halo_swaps_rows(tables *t, draw *d) {
    step_at found = {0};
    again(d);
    STEPS(t, p)
    if (STEP(p, SEND) && !of_scan(&p) && p.x->b > 1 && t->halo_rows[p.x->a].first != t->halo_rows[p.x->a + 1].first &&
        pick(d))
        found = p;
    if (!d->seen) return false;
    const uint64_t first = t->halo_rows[found.x->a].first;
    t->halo_rows[found.x->a].first = t->halo_rows[found.x->a + 1].first;
    t->halo_rows[found.x->a + 1].first = first;
    return true;
}
/* Every stretch needs a row more, or less. */
static bool halo_other_width(tables *t, draw *d) {
    step_at p;
    if (!draw_step(t, d, is_halo_send, &p) || p.layer->before < 2) return false;
    p.layer->before += next(d) % 2 ? 1 : UINT32_MAX;
    return true;
}
static bool layer_of_other_kind(tables *t, draw *d) {
    step_at p;
    if (!network_of(t, d, &p)) return false;
    p.layer->kind = !p.layer->kind;
    return true;
}

/* --- the list ----------------------------------------------------------------------------------------------------- */

#define D(name, ...)                                                                                                   \
    {                                                                                                                  \
#name, name, { __VA_ARGS__ }                                                                                   \
    }
#define E(name) FCP_E_VERIFY_##name
static const damage recurrent_kinds[] = {
    D(step_wrong_round, E(MATCH), E(ORDER), E(ROUND), E(DELTA), FCP_E_PLAN_FORMAT), /* DELTA: it was alone there */
    D(step_wrong_sender, E(MATCH)),
    D(step_wrong_receiver, E(MATCH)),
    D(step_to_itself, E(MATCH)),
    D(step_wrong_fabric, E(MATCH)),
    D(step_send_doubled, E(ROUND)),
    D(step_message_again, E(SCAN), E(HALO), E(MATCH)),                     /* MATCH: nothing reads it */
    D(step_message_lost, E(SCAN), E(HALO), E(DELTA), E(MATCH), E(MEMORY)), /* MATCH: others are of no use then */
    D(step_send_lost, E(MATCH)),
    D(step_out_of_order, E(ORDER)),
    D(step_between, E(ORDER)),
    D(step_into_what_is_sent, E(ORDER)),
    D(step_cross_sends, E(MATCH)),
    D(network_rounds, E(DELTA)),
    D(network_bound, E(DELTA)),
    D(network_shape, E(SCAN)),
    D(layer_of_other_kind, FCP_E_PLAN_FORMAT),
    D(scan_reversed, E(SCAN)),
    D(scan_wrong_order, E(SCAN), FCP_E_PLAN_FORMAT), /* FORMAT: a result has no A */
    D(scan_other_summary, E(SCAN)),
    D(scan_step_lost, E(SCAN), E(MATCH), E(MEMORY)),
    D(scan_copy_lost, E(SCAN)),
    D(scan_step_again, E(SCAN)),
    D(scan_other_result, E(SCAN)),
    D(scan_part_left_out, E(SCAN), E(DELTA), E(MEMORY)),
    D(scan_whole_of_one, E(MATCH), FCP_E_PLAN_FORMAT), /* FORMAT: as above */
    D(scan_whole_of_both, E(SCAN), FCP_E_PLAN_FORMAT),
    D(scan_state_with_decay, E(SCAN)),
    D(scan_into_operand, FCP_E_PLAN_FORMAT),
    D(scan_temporaries, E(MEMORY), FCP_E_PLAN_FORMAT),
    D(scan_more_parts, E(SCAN)),
    D(scan_into_summary, FCP_E_PLAN_FORMAT),
    D(halo_sends_next_row, E(HALO), FCP_E_PLAN_FORMAT),
    D(halo_into_next_row, E(HALO), FCP_E_PLAN_FORMAT),
    D(halo_copies_next_row, E(HALO), FCP_E_PLAN_FORMAT),
    D(halo_copy_lost, E(HALO)),
    D(halo_copy_again, E(HALO)),
    D(halo_sends_to_itself, E(MATCH)),
    D(halo_rows_of_nothing, FCP_E_PLAN_FORMAT),
    D(halo_sends_less, E(MATCH), FCP_E_PLAN_FORMAT), /* FORMAT: none */
    D(halo_moves_less, E(HALO)),
    D(halo_swaps_rows, E(HALO), FCP_E_PLAN_FORMAT), /* FORMAT: they have other lengths */
    D(halo_other_width, E(HALO), FCP_E_PLAN_FORMAT),
};
#undef D
#undef E
#endif
