/* lives.c: counts, over time, how many slots of a rank are in use and how many bytes are on their way.
 *
 * A transient slot holds what came from another rank, or what goes there, or a partial result. It is in use from when
 * it is filled to its last access before it is filled anew:
 *
 *   slots of                    from                                          to
 *   whole blocks: KV, Q, O,     the receive of the block's first unit, or     the last reader: a tile, or a send
 *   DQW (a whole dQ on its      what writes it
 *   way home)
 *   partial results: STATE,     the receive, or the first tile or addition    the send or the addition that empties it;
 *   DKV, DQ                                                                   a state also to the last visit of its Q
 *                                                                             block
 *
 * Requires: the intervals of one rank and pass, in order.
 * Gives:    trace_changes, in order of time.
 * Cost:     n log n for n intervals and the tiles that they compute.
 */
#include <stdlib.h>
#include <string.h>

#include "compiler/trace/timeline.h"
#include "runtime/plan/bytes.h"
#include "runtime/plan/instructions.h"

typedef struct life {
    bool alive;
    uint64_t birth, last;
} life;

typedef struct lives {
    const timeline *t;
    fcp_pass pass;
    uint32_t rank, homes;
    life *at; /* [slot * FCP_CLASSES + class] */
    size_t slots;
    trace_change *changes;
    size_t count, room;
    arena *memory;
    bool failed;
} lives;

static void add_change(lives *x, uint64_t time, int64_t change, trace_counter counter, uint32_t what) {
    trace_change *grown = arena_grow(x->memory, x->changes, x->count, &x->room, sizeof *grown);
    x->failed |= !grown;
    if (!grown) return;
    x->changes = grown;
    x->changes[x->count++] = (trace_change){time, change, counter, what};
}

static bool transient(const lives *x, uint32_t cls, uint32_t slot) {
    return slot != FCP_NONE && cls != FCP_IN && cls != FCP_OUT && (cls == FCP_STATE || slot >= x->homes);
}

static life *life_of(lives *x, uint32_t cls, uint32_t slot) {
    if (slot >= x->slots) {
        const size_t slots = 2 * (size_t)slot + 8;
        life *grown = ARENA_ZNEW(x->memory, life, slots * FCP_CLASSES);
        x->failed |= !grown;
        if (!grown) return NULL;
        if (x->slots) memcpy(grown, x->at, x->slots * FCP_CLASSES * sizeof *grown);
        x->at = grown;
        x->slots = slots;
    }
    return &x->at[(size_t)slot * FCP_CLASSES + cls];
}

static void end_life(lives *x, life *l, uint32_t cls) {
    if (!l->alive) return;
    add_change(x, l->birth, 1, TRACE_SLOTS, cls);
    add_change(x, l->last, -1, TRACE_SLOTS, cls);
    l->alive = false;
}

/* Notes that an interval uses a slot. born: it fills the slot anew; dies: it empties it. */
static void touch(lives *x, const sim_interval *i, uint32_t cls, uint32_t slot, bool born, bool dies) {
    if (!transient(x, cls, slot)) return;
    life *l = life_of(x, cls, slot);
    if (!l) return;
    if (born) end_life(x, l, cls);
    if (!l->alive) *l = (life){true, i->start, i->start};
    if (i->end > l->last) l->last = i->end;
    if (dies) end_life(x, l, cls);
}

static bool is_partial(uint32_t cls) { return cls == FCP_STATE || cls == FCP_DKV || cls == FCP_DQ; }

static void touch_transfers(lives *x, const sim_interval *i) {
    const fcp_plan *plan = x->t->plan;
    const fcp_instr *launch = &plan->instrs[i->instr];
    const fcp_fabric fabric = i->lane == SIM_LANE_NET ? FCP_NET : FCP_LOCAL;
    const fcp_direction dir = i->doing == SIM_SEND ? FCP_SEND : FCP_RECV;
    add_change(x, i->start, (int64_t)i->bytes, TRACE_FLIGHT, fabric);
    add_change(x, i->end, -(int64_t)i->bytes, TRACE_FLIGHT, fabric);
    for (uint32_t n = launch->a; n < launch->a + launch->b; n++) { /* this rank's record of it */
        const fcp_transfer *t = &plan->transfers[n];
        if (t->fabric != fabric || t->dir != dir || t->peer != i->peer || t->block != i->block) continue;
        if (t->block == FCP_NONE) continue; /* inputs or outputs: no slots */
        const bool ends = t->first + t->tokens >= plan->blocks[t->block].tokens;
        touch(x, i, t->cls, t->slot, dir == FCP_RECV && t->first == 0, dir == FCP_SEND && ends && is_partial(t->cls));
    }
}

static void touch_visits(lives *x, const sim_interval *i) {
    const fcp_plan *plan = x->t->plan;
    const fcp_instr *attend = &plan->instrs[i->instr];
    for (uint32_t n = attend->a; n < attend->a + attend->b; n++) {
        const fcp_visit *v = &plan->visits[n];
        touch(x, i, FCP_Q, v->q_slot, false, false);
        if (x->pass == FCP_BACKWARD) touch(x, i, FCP_DQ, v->dq_slot, false, false);
        else touch(x, i, FCP_STATE, v->state_slot, v->flags & FCP_VISIT_FIRST, v->flags & FCP_VISIT_LAST);
        if (x->pass == FCP_FORWARD && v->flags & FCP_VISIT_LAST) touch(x, i, FCP_O, v->o_slot, true, false);
        for (uint32_t k = v->first_tile; k < v->first_tile + v->tiles; k++) {
            touch(x, i, FCP_KV, plan->tiles[k].kv_slot, false, false);
            if (x->pass == FCP_BACKWARD) touch(x, i, FCP_DKV, plan->tiles[k].dkv_slot, false, false);
        }
    }
}

/* Instructions that add one slot to another, or make a result of it. */
static void touch_sums(lives *x, const sim_interval *i) {
    const fcp_instr *instr = &x->t->plan->instrs[i->instr];
    const uint32_t op = instr->op;
    const bool of_dq = op == FCP_OP_REDUCE_Q || op == FCP_OP_ROUND;
    const uint32_t cls = op == FCP_OP_REDUCE ? FCP_DKV : of_dq ? FCP_DQ : FCP_STATE;
    if (op != FCP_OP_REDUCE && op != FCP_OP_REDUCE_Q && op != FCP_OP_ROUND && op != FCP_OP_MERGE && op != FCP_OP_FINISH)
        return;
    touch(x, i, cls, instr->b, false, true);
    if (op == FCP_OP_ROUND) touch(x, i, FCP_DQW, instr->c, true, false);
    else if (op == FCP_OP_FINISH) touch(x, i, FCP_O, fcp_finish_slot(x->t->plan, x->rank, instr), true, false);
    else touch(x, i, cls, instr->c, false, false);
}

static int by_start(const void *a, const void *b) {
    const sim_interval *x = *(const sim_interval *const *)a, *y = *(const sim_interval *const *)b;
    if (x->start != y->start) return x->start < y->start ? -1 : 1;
    return (x > y) - (x < y);
}

static int by_time(const void *a, const void *b) {
    const trace_change *x = a, *y = b;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    if (x->counter != y->counter) return x->counter < y->counter ? -1 : 1;
    if (x->what != y->what) return x->what < y->what ? -1 : 1;
    return (x->change > y->change) - (x->change < y->change); /* at one time, ends come before beginnings */
}

fcp_code trace_changes(const timeline *t, uint32_t rank, fcp_pass pass, uint64_t first, uint64_t count, arena *memory,
                       trace_change **out, uint64_t *out_count) {
    lives x = {.t = t, .pass = pass, .rank = rank, .memory = memory};
    const sim_interval **order = ARENA_NEW(memory, const sim_interval *, count + 1);
    if (!order) return FCP_E_NO_MEMORY;
    for (uint64_t b = 0; b < t->plan->blocks_count; b++) x.homes += t->plan->blocks[b].home == rank;
    for (uint64_t i = 0; i < count; i++) order[i] = &t->at[first + i];
    qsort(order, count, sizeof *order, by_start);
    for (uint64_t n = 0; n < count; n++) {
        const sim_interval *i = order[n];
        const fcp_instr *instr = &t->plan->instrs[i->instr];
        if (i->doing == SIM_SEND || i->doing == SIM_RECV) touch_transfers(&x, i);
        else if (i->doing == SIM_WORK && instr->op == FCP_OP_ATTEND) touch_visits(&x, i);
        else if (i->doing == SIM_WORK) touch_sums(&x, i);
    }
    for (size_t i = 0; i < x.slots * FCP_CLASSES; i++) end_life(&x, &x.at[i], i % FCP_CLASSES);
    if (x.count) qsort(x.changes, x.count, sizeof *x.changes, by_time);
    *out = x.changes;
    *out_count = x.count;
    return x.failed ? FCP_E_NO_MEMORY : FCP_OK;
}

uint64_t trace_memory_base(const fcp_plan *plan, fcp_pass pass, uint32_t rank) {
    uint64_t queries = 0, keys = 0;
    for (uint64_t b = 0; b < plan->blocks_count; b++) {
        const fcp_block *x = &plan->blocks[b];
        if (x->home != rank) continue;
        if (x->holds & FCP_HOLDS_Q) queries += x->tokens;
        if (x->holds & FCP_HOLDS_KV) keys += x->tokens;
    }
    return fcp_rank_memory(plan->problem, pass, queries, keys, (const uint64_t[FCP_CLASSES]){0});
}

uint64_t trace_slot_bytes(const fcp_plan *plan, fcp_pass pass, uint32_t cls) {
    const fcp_problem *p = plan->problem;
    uint64_t tokens = cls == FCP_KV || cls == FCP_DKV ? p->max_block : p->max_q_block;
    return tokens * fcp_slot_bytes(p, (fcp_class)cls, pass);
}
