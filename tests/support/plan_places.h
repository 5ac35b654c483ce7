/* plan_places.h: lists places in a plan, and draws one of them. */
#ifndef PLAN_PLACES_H
#define PLAN_PLACES_H
#include <criterion/criterion.h>

#include "tests/support/plan_tables.h"
#include "tests/support/splitmix.h"

typedef struct draw {
    uint64_t state;
    uint32_t seen; /* candidates so far */
} draw;

static uint64_t next(draw *d) { return splitmix(&d->state); }

/* Whether this candidate replaces the one chosen so far: each is as likely in the end. */
static bool pick(draw *d) { return next(d) % ++d->seen == 0; }

static draw *again(draw *d) {
    d->seen = 0;
    return d;
}

/* A kind of damage, and the codes with which it may be reported. */
typedef struct damage {
    const char *name;
    bool (*apply)(tables *t, draw *d);
    fcp_code codes[6];
} damage;

/* An instruction and where it is. */
typedef struct place {
    int pass, queue;
    uint32_t rank, at, count; /* of `count` in its stream */
    fcp_instr *x, *stream;
} place;

static inline bool place_next(const tables *t, place *p) {
    uint64_t ranks = t->problem->ranks;
    if (p->x) {
        p->at++;
        p->x++;
    } else {
        *p = (place){0, 0, 0, 0, 0, NULL, NULL};
        p->stream = p->x = stream_instrs(t, 0, 0, 0, &p->count);
    }
    while (p->at >= p->count) {
        if (++p->queue == FCP_QUEUES) {
            p->queue = 0;
            if (++p->rank == ranks) {
                p->rank = 0;
                if (++p->pass == FCP_PASSES) return false;
            }
        }
        p->at = 0;
        p->stream = p->x = stream_instrs(t, p->pass, p->rank, p->queue, &p->count);
    }
    return true;
}
#define PLACES(t, p) for (place p = {0}; place_next(t, &p);)
#define OP(p, name) ((p).x->op == FCP_OP_##name)

static inline const fcp_round *round_at(const tables *t, const place *p) {
    return &t->rounds[t->round_starts[p->pass] + p->x->c];
}
static inline bool exchanges(const tables *t, const place *p) { /* KV or dKV */
    return OP(*p, LAUNCH) &&
           (round_at(t, p)->kind == FCP_ROUND_INDEPENDENT || round_at(t, p)->kind == FCP_ROUND_DEPENDENT);
}
static inline uint32_t homes_of(const tables *t, uint32_t rank) {
    uint32_t n = 0;
    for (uint64_t b = 0; b < t->blocks_count; b++) n += t->blocks[b].home == rank;
    return n;
}
/* Instructions of the other queue that are known at a place to be complete, in what they move over a fabric. */
static inline uint32_t known_over(const place *p, fcp_fabric fabric) {
    uint32_t known = 0;
    for (uint32_t i = 0; i < p->at; i++) {
        const uint32_t waits = fcp_waits_over(&p->stream[i], (fcp_queue)p->queue, fabric);
        if (p->stream[i].op == FCP_OP_WAIT && waits > known) known = waits;
    }
    return known;
}
/* The same of a place in a communication queue: compute instructions are complete or not. */
static inline uint32_t known_at(const place *p) { return known_over(p, FCP_NET); }
/* A number that a WAIT names: that of a fabric which the cluster has. */
static inline uint32_t *waits_of(const tables *t, const place *p) {
    return p->queue == FCP_COMPUTE && t->problem->gpus > 1 ? &p->x->b : &p->x->a;
}
static inline void neutral(fcp_instr *x) { *x = (fcp_instr){.op = FCP_OP_WAIT, .stage = x->stage}; }

static fcp_transfer *transfer_in(const tables *t, const place *p, uint32_t i) { return &t->transfers[p->x->a + i]; }

static inline void lose_transfer(tables *t, const place *p, uint32_t i) {
    *transfer_in(t, p, i) = *transfer_in(t, p, p->x->b - 1);
    if (--p->x->b == 0) neutral(p->x);
}

/* The partner of a transfer: fills *q and returns its position in that launch. */
static inline uint32_t partner(const tables *t, const place *p, uint32_t i, place *q) {
    const fcp_transfer *a = transfer_in(t, p, i);
    *q = (place){.pass = p->pass, .queue = FCP_COMM, .rank = a->peer};
    q->stream = q->x = stream_instrs(t, p->pass, a->peer, FCP_COMM, &q->count);
    for (; q->at < q->count; q->at++, q->x++) {
        if (q->x->op != FCP_OP_LAUNCH || q->x->c != p->x->c) continue;
        for (uint32_t j = 0; j < q->x->b; j++) {
            const fcp_transfer *b = transfer_in(t, q, j);
            if (b->peer == p->rank && b->dir != a->dir && b->fabric == a->fabric && b->block == a->block) return j;
        }
    }
    cr_assert(false, "no partner");
    return 0;
}
#endif
