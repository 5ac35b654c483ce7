/* scan_rounds.c: gives the messages of a scan rounds, and its intermediate results registers.
 *
 * Requires: operations, each behind those whose results it uses.
 * Gives:    the steps of every rank. In a round no rank sends twice or receives twice on a fabric.
 * Method:   list scheduling. Operations are taken by depth, which is how many messages must come before; among those of
 *           one depth, the one with the longest chain of messages behind it first. A message gets the first round, from
 *           when its value is there, in which both of its ports are free. Then intermediate results get registers as
 *           intervals get colours: in order of time, each the lowest register that is free.
 * Cost:     linear in operations and ranks, but for looking for free rounds, 64 at a time.
 */
#include <string.h>

#include "compiler/base/group.h"
#include "compiler/recurrent/recurrent_make.h"

/* The rounds in which a port is busy, a bit each. */
typedef struct port {
    uint64_t *busy;
    uint32_t words, degree;
} port;

typedef struct timing {
    uint32_t *depth;  /* of a message: how many come before it; of others: how many come before their result */
    uint32_t *height; /* how many messages follow in a row */
    uint32_t *when;   /* as placed_step.when */
    uint32_t *ready;  /* rounds that must be over before its result is there */
    uint32_t *last;   /* the `when` of whoever uses its result last */
    uint32_t *reg;    /* of its result */
} timing;

static uint32_t ready_of(const uint32_t *ready, uint32_t ref) { return ref & SCAN_GIVEN ? 0 : ready[ref]; }

/* Depths and heights; returns the largest depth of a message, plus 1. */
static uint32_t find_depths(const scan_ops *ops, timing *t) {
    uint32_t most = 0;
    memset(t->height, 0, ops->count * sizeof *t->height);
    for (uint32_t i = 0; i < ops->count; i++) {
        const scan_op *x = &ops->at[i];
        uint32_t before = ready_of(t->ready, x->a);
        if (x->op == FCP_STEP_COMBINE && ready_of(t->ready, x->b) > before) before = ready_of(t->ready, x->b);
        t->depth[i] = before;
        t->ready[i] = before + (x->op == FCP_STEP_SEND);
        if (t->ready[i] > most) most = t->ready[i];
    }
    for (uint32_t i = ops->count; i--;) {
        const scan_op *x = &ops->at[i];
        const uint32_t height = t->height[i] + (x->op == FCP_STEP_SEND);
        if (!(x->a & SCAN_GIVEN) && t->height[x->a] < height) t->height[x->a] = height;
        if (x->op == FCP_STEP_COMBINE && !(x->b & SCAN_GIVEN) && t->height[x->b] < height) t->height[x->b] = height;
    }
    return most;
}

/* The order in which operations are taken: by depth, what makes before what sends; then the highest first. */
static fcp_code find_order(recurrent_batch *b, const scan_ops *ops, const timing *t, uint32_t depths, uint32_t **out) {
    uint32_t *start, *by_height, *by_depth, *key = ARENA_NEW(b->scratch, uint32_t, ops->count + (size_t)1);
    if (!key) return FCP_E_NO_MEMORY;
    for (uint32_t i = 0; i < ops->count; i++) key[i] = depths - t->height[i];
    fcp_code code = group_new(b->scratch, key, sizeof *key, ops->count, depths + 1, b->stop, &start, &by_height);
    if (code) return code;
    for (uint32_t i = 0; i < ops->count; i++) {
        const uint32_t x = by_height[i];
        key[i] = 2 * t->depth[x] + (ops->at[x].op == FCP_STEP_SEND);
    }
    code = group_new(b->scratch, key, sizeof *key, ops->count, 2 * depths + 2, b->stop, &start, &by_depth);
    for (uint32_t i = 0; i < ops->count && !code; i++) by_depth[i] = by_height[by_depth[i]];
    *out = by_depth;
    return code;
}

/* Takes the first round from `from` on in which both ports are free. False: no memory. */
static bool take_round(recurrent_batch *b, port *x, port *y, uint32_t from, uint32_t *out) {
    uint32_t word = from / 64;
    uint64_t wanted = ~UINT64_C(0) << from % 64, free = 0;
    for (;; word++, wanted = ~UINT64_C(0)) {
        free = wanted & ~(word < x->words ? x->busy[word] : 0) & ~(word < y->words ? y->busy[word] : 0);
        if (free) break;
    }
    for (int i = 0; i < 2; i++) {
        port *p = i ? y : x;
        if (word >= p->words) {
            const uint32_t words = 2 * word + 2;
            uint64_t *more = ARENA_ZNEW(b->scratch, uint64_t, words);
            if (!more) return false;
            if (p->words) memcpy(more, p->busy, p->words * sizeof *more);
            p->busy = more;
            p->words = words;
        }
        p->busy[word] |= free & -free;
        p->degree++;
    }
    *out = word * 64 + (uint32_t)__builtin_ctzll(free);
    return true;
}

static fcp_code give_rounds(recurrent_batch *b, const scan_ops *ops, const uint32_t *order, timing *t, step_list *out) {
    port *ports = ARENA_ZNEW(b->scratch, port, (size_t)b->ranks * FCP_FABRICS * 2);
    if (!ports) return FCP_E_NO_MEMORY;
    for (uint32_t k = 0; k < ops->count; k++) {
        if (!(k & 1023) && fcp_stop_asked(b->stop)) return FCP_E_INTERRUPTED;
        const uint32_t i = order[k];
        const scan_op *x = &ops->at[i];
        uint32_t time = ready_of(t->ready, x->a), round;
        if (x->op == FCP_STEP_COMBINE && ready_of(t->ready, x->b) > time) time = ready_of(t->ready, x->b);
        t->when[i] = 2 * time;
        t->ready[i] = time;
        if (x->op != FCP_STEP_SEND) continue;
        const int fabric = (int)recurrent_fabric(b, x->rank, x->to);
        port *from = &ports[((size_t)x->rank * FCP_FABRICS + fabric) * 2];
        port *to = &ports[((size_t)x->to * FCP_FABRICS + fabric) * 2 + 1];
        if (!take_round(b, from, to, time, &round)) return FCP_E_NO_MEMORY;
        t->when[i] = 2 * round + 1;
        t->ready[i] = round + 1;
        if (round >= out->rounds) out->rounds = round + 1;
    }
    for (size_t i = 0; i < (size_t)b->ranks * FCP_FABRICS * 2; i++)
        if (ports[i].degree > out->bound) out->bound = ports[i].degree;
    return FCP_OK;
}

/* Where results lie. Free registers of a rank are a list of operations that had them. */
static fcp_code give_registers(recurrent_batch *b, const scan_ops *ops, timing *t, step_list *out) {
    uint32_t *start, *by_time, *by_end, times = 1, released = 0;
    uint32_t *key = ARENA_NEW(b->scratch, uint32_t, ops->count + (size_t)1);
    uint32_t *next = ARENA_NEW(b->scratch, uint32_t, ops->count + (size_t)1);
    uint32_t *free = ARENA_NEW(b->scratch, uint32_t, b->ranks);
    out->temporaries = ARENA_ZNEW(b->scratch, uint32_t, b->ranks);
    if (!key || !next || !free || !out->temporaries) return FCP_E_NO_MEMORY;
    memset(free, 0xff, b->ranks * sizeof *free);
    memset(t->last, 0, ops->count * sizeof *t->last);
    for (uint32_t i = 0; i < ops->count; i++) {
        const scan_op *x = &ops->at[i];
        if (!(x->a & SCAN_GIVEN) && t->last[x->a] < t->when[i]) t->last[x->a] = t->when[i];
        if (x->op == FCP_STEP_COMBINE && !(x->b & SCAN_GIVEN) && t->last[x->b] < t->when[i]) t->last[x->b] = t->when[i];
        if (t->when[i] >= times) times = t->when[i] + 1;
    }
    fcp_code code = group_new(b->scratch, t->when, sizeof *t->when, ops->count, times, b->stop, &start, &by_time);
    for (uint32_t i = 0; i < ops->count; i++) key[i] = ops->at[i].out == VALUE_TEMPORARY ? t->last[i] : FCP_NONE;
    if (!code) code = group_new(b->scratch, key, sizeof *key, ops->count, times, b->stop, &start, &by_end);
    if (code) return code;
    const uint32_t ends = start[times];
    for (uint32_t k = 0; k < ops->count; k++) {
        const uint32_t i = by_time[k], rank = ops->at[i].op == FCP_STEP_SEND ? ops->at[i].to : ops->at[i].rank;
        for (; released < ends && t->last[by_end[released]] < t->when[i]; released++) {
            const scan_op *x = &ops->at[by_end[released]];
            const uint32_t owner = x->op == FCP_STEP_SEND ? x->to : x->rank;
            next[by_end[released]] = free[owner];
            free[owner] = by_end[released];
        }
        t->reg[i] = ops->at[i].out;
        if (t->reg[i] != VALUE_TEMPORARY) continue;
        if (free[rank] != FCP_NONE) {
            t->reg[i] = t->reg[free[rank]];
            free[rank] = next[free[rank]];
        } else t->reg[i] = 2 * b->rank_counts[rank] + out->temporaries[rank]++;
    }
    return FCP_OK;
}

static uint32_t reg_of(const timing *t, uint32_t ref) { return ref & SCAN_GIVEN ? ref & ~SCAN_GIVEN : t->reg[ref]; }

/* In the order of operations: those of one time and rank depend on each other in that order alone. */
static bool write_steps(recurrent_batch *b, const scan_ops *ops, const timing *t, step_list *out) {
    out->room = 2 * (size_t)ops->count;
    out->at = ARENA_NEW(b->scratch, placed_step, out->room);
    if (!out->at) return false;
    for (uint32_t i = 0; i < ops->count; i++) {
        const scan_op *x = &ops->at[i];
        fcp_step step = {.op = x->op, .whole = x->whole, .part = x->part, .a = reg_of(t, x->a)};
        if (x->op == FCP_STEP_SEND) {
            step.fabric = (uint8_t)recurrent_fabric(b, x->rank, x->to);
            step.round = t->when[i] / 2;
            step.peer = x->to;
            if (!recurrent_add(b, out, x->rank, t->when[i], step)) return false;
            step.op = FCP_STEP_RECV;
            step.peer = x->rank;
            step.a = 0;
            step.out = t->reg[i];
            if (!recurrent_add(b, out, x->to, t->when[i], step)) return false;
            continue;
        }
        step.out = t->reg[i];
        if (x->op == FCP_STEP_COMBINE) step.b = reg_of(t, x->b);
        if (!recurrent_add(b, out, x->rank, t->when[i], step)) return false;
    }
    return true;
}

fcp_code recurrent_rounds(recurrent_batch *b, const scan_ops *ops, step_list *out) {
    const size_t room = ops->count + (size_t)1;
    timing t = {ARENA_NEW(b->scratch, uint32_t, room), ARENA_NEW(b->scratch, uint32_t, room),
                ARENA_NEW(b->scratch, uint32_t, room), ARENA_NEW(b->scratch, uint32_t, room),
                ARENA_NEW(b->scratch, uint32_t, room), ARENA_NEW(b->scratch, uint32_t, room)};
    uint32_t *order;
    if (!t.depth || !t.height || !t.when || !t.ready || !t.last || !t.reg) return FCP_E_NO_MEMORY;
    if (!ops->count) return FCP_OK;
    const uint32_t depths = find_depths(ops, &t);
    out->bound = depths;
    fcp_code code = find_order(b, ops, &t, depths, &order);
    if (!code) code = give_rounds(b, ops, order, &t, out);
    if (!code) code = give_registers(b, ops, &t, out);
    if (!code && !write_steps(b, ops, &t, out)) code = FCP_E_NO_MEMORY;
    return code;
}
