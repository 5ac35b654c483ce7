/* streams.c: writes rounds, visits and slots as instructions: two queues for each rank and pass, with explicit waits.
 *
 * Requires: rounds, stages, visits and slots.
 * Gives: the plan's streams, instructions and transfers.
 * Cost: linear in moves and instructions.
 *
 * Before the launches of stage s the communication queue waits for two things. The computing of stages <= s - buffers
 * must be over, because only then are its slots free again and the partials that it sends complete. And the rank's
 * own tokens must have been copied in. Before the work of stage s the computing queue waits for the last launch of a
 * stage <= s that receives something, and for the last launch of a stage < s that sends a partial, because its slot
 * may be used again. There are no other waits, and every rank launches its rounds in the same order.
 *
 * So time can be read off the plan: give the launches of stage s the time 2 s, and its computing 2 s + 1. Every wait is
 * for something earlier, hence there is no cycle.
 */
#include <string.h>

#include "compiler/lower/lower.h"

typedef struct emitter {
    planning *x;
    fcp_transfer *transfers;
    uint32_t transfer_count;
    fcp_instr *instrs; /* all streams so far; room for the most there can be: untouched pages cost nothing */
    size_t instr_count;
    fcp_instr *comm;   /* the communication queue of a rank, until its computing queue is complete */
    size_t comm_room;
    fcp_stream *streams;
    /* of the pass at hand */
    uint32_t *begin, *copies, *sides, *copies_out; /* per rank: its first transfer; how many of each kind */
    uint32_t *at;                    /* per rank: the next free transfer */
    uint32_t *side_of;               /* per transfer of a round: 4 * round + SIDE_* */
    uint32_t *reduce_start, *reduce; /* per rank: the fetches whose returns it reduces, in order */
} emitter;

/* --- a rank's two queues, while they grow ------------------------------------------------------------------------- */

typedef struct queue {
    fcp_instr *instr;
    uint32_t count;
    uint32_t waited; /* how many instructions of the other queue it has waited for */
} queue;

static void push(queue *q, fcp_instr instr) { q->instr[q->count++] = instr; }

static void wait_for(queue *q, uint32_t stage, uint32_t count) {
    if (count <= q->waited) return;
    q->waited = count;
    push(q, (fcp_instr){.op = FCP_OP_WAIT, .stage = stage, .a = count});
}

/* --- transfers ---------------------------------------------------------------------------------------------------- */

enum { STRETCH = 1 << 18 }; /* moves between two looks at stop */
enum { SIDE_RECEIVES = 1, SIDE_PARTIAL = 2 }; /* it receives what computing may wait for; it sends a partial */

static inline void put_sides(fcp_transfer *transfers, uint32_t *side_of, uint32_t send, uint32_t receive,
                             const move *m) {
    transfers[send] = (fcp_transfer){.peer = m->dst, .cls = m->cls, .fabric = m->fabric, .dir = FCP_SEND,
                                     .block = m->block, .first = m->first, .tokens = m->tokens, .slot = m->from};
    transfers[receive] = (fcp_transfer){.peer = m->src, .cls = m->cls, .fabric = m->fabric, .dir = FCP_RECV,
                                        .block = m->block, .first = m->first, .tokens = m->tokens, .slot = m->to};
    side_of[send] = m->round * 4 + (m->cls == FCP_DKV ? SIDE_PARTIAL : 0);
    side_of[receive] = m->round * 4 + (m->cls == FCP_OUT ? 0 : SIDE_RECEIVES);
}

/* Lists the transfers of a pass: per rank its copies in, then its sends and receives in launch order, then its copies
 * out. */
static fcp_code pass_transfers(emitter *e, const pass_schedule *ps, fcp_pass pass) {
    const planning *x = e->x;
    const reshuffle *moved = x->reshuffle;
    uint32_t ranks = x->problem->ranks;
    memset(e->copies, 0, ranks * sizeof *e->copies);
    memset(e->copies_out, 0, ranks * sizeof *e->copies_out);
    memset(e->sides, 0, ranks * sizeof *e->sides);
    for (uint32_t i = 0; i < moved->count; i++) {
        const bundle *b = &moved->bundles[i];
        if (b->caller != b->home) continue;
        e->copies[b->home]++;
        e->copies_out[b->home] += pass == FCP_BACKWARD || b->side != FCP_KEYS; /* keys have no results forward */
    }
    for (uint32_t i = 0; i < ps->move_count; i++) e->sides[ps->moves[i].src]++, e->sides[ps->moves[i].dst]++;
    for (uint32_t r = 0; r < ranks; r++) {
        e->begin[r] = e->at[r] = e->transfer_count;
        e->transfer_count += e->copies[r] + e->sides[r] + e->copies_out[r];
        e->copies_out[r] = 0; /* counted again below */
    }
    for (uint32_t i = 0; i < moved->count; i++) {
        const bundle *b = &moved->bundles[i];
        uint32_t r = b->home;
        if (b->caller != r) continue;
        fcp_transfer copy = {.peer = r, .cls = FCP_IN, .fabric = FCP_LOCAL, .dir = FCP_SEND, .block = FCP_NONE,
                             .tokens = b->tokens, .side = b->side};
        e->transfers[e->at[r]++] = copy;
        if (pass == FCP_FORWARD && b->side == FCP_KEYS) continue;
        copy.cls = FCP_OUT;
        copy.dir = FCP_RECV;
        e->transfers[e->begin[r] + e->copies[r] + e->sides[r] + e->copies_out[r]++] = copy;
    }
    uint32_t *at = e->at, *side_of = e->side_of;
    fcp_transfer *transfers = e->transfers;
    for (const move *m = ps->moves, *end = m + ps->move_count; m < end;) {
        const move *stretch = end - m > STRETCH ? m + STRETCH : end;
        if (planning_stopped(x)) return FCP_E_INTERRUPTED;
        for (; m < stretch; m++) put_sides(transfers, side_of, at[m->src]++, at[m->dst]++, m);
    }
    return FCP_OK;
}

/* Lists the fetches whose partials each rank reduces, in order of stage, round and sender. */
static fcp_code pass_reduces(emitter *e, const pass_schedule *ps) {
    const traffic *t = e->x->traffic;
    uint32_t ranks = e->x->problem->ranks;
    uint32_t *left = ARENA_NEW(&e->x->scratch, uint32_t, t->count + (size_t)1),
             *at = ARENA_NEW(&e->x->scratch, uint32_t, ranks);
    uint32_t *round = ARENA_NEW(&e->x->scratch, uint32_t, t->count + (size_t)1);
    if (!left || !at || !round) return FCP_E_NO_MEMORY;
    memset(e->reduce_start, 0, (ranks + (size_t)1) * sizeof *e->reduce_start);
    for (uint32_t f = 0; f < t->count; f++) {
        left[f] = t->fetches[f].units;
        e->reduce_start[t->fetches[f].src + 1]++;
    }
    for (uint32_t r = 0; r < ranks; r++) {
        at[r] = e->reduce_start[r];
        e->reduce_start[r + 1] += e->reduce_start[r];
    }
    for (uint32_t i = 0; i < ps->move_count; i++) {
        const move *m = &ps->moves[i];
        if (!(i & 0xfffff) && planning_stopped(e->x)) return FCP_E_INTERRUPTED;
        if (m->cls != FCP_DKV || --left[m->ref]) continue;
        uint32_t to = at[m->dst]++;
        /* a round may bring one over net and one over local */
        if (to > e->reduce_start[m->dst] && round[to - 1] == m->round &&
            t->fetches[e->reduce[to - 1]].dst > m->src) {
            e->reduce[to] = e->reduce[to - 1];
            round[to] = round[to - 1];
            to--;
        }
        e->reduce[to] = m->ref;
        round[to] = m->round;
    }
    return FCP_OK;
}

/* --- instructions ------------------------------------------------------------------------------------------------- */

typedef struct rank_emitter {
    emitter *e;
    const pass_schedule *ps;
    fcp_pass pass;
    uint32_t rank, copies;
    queue compute, comm;
    uint32_t side, side_end;        /* transfers of rounds not yet launched */
    uint32_t visit, visit_end;      /* visits not yet attended */
    uint32_t reduce, reduce_end;
    uint32_t received, sent_partial; /* how far the communication queue must be: see the head comment */
    uint32_t *computed;             /* per stage: instructions of the computing queue after it */
} rank_emitter;

/* Launches this rank's share of the rounds of a stage: of those that are of kind OUT, or of the others. */
static void launch_stage(rank_emitter *x, uint32_t stage, bool out, uint32_t wait) {
    emitter *e = x->e;
    while (x->side < x->side_end) {
        uint32_t round = e->side_of[x->side] / 4, first = x->side, is = 0;
        const fcp_round *r = &x->ps->rounds[round];
        if (r->stage != stage || (r->kind == FCP_ROUND_OUT) != out) return;
        for (; x->side < x->side_end && e->side_of[x->side] / 4 == round; x->side++) is |= e->side_of[x->side];
        wait_for(&x->comm, stage, wait);
        push(&x->comm, (fcp_instr){.op = FCP_OP_LAUNCH, .stage = stage, .a = first, .b = x->side - first, .c = round});
        if (is & SIDE_RECEIVES) x->received = x->comm.count;
        if (is & SIDE_PARTIAL) x->sent_partial = x->comm.count;
    }
}

static void attend(rank_emitter *x, uint32_t stage, bool early) {
    const schedule *s = x->e->x->schedule;
    uint32_t first = x->visit;
    while (x->visit < x->visit_end && s->visit_stage[x->visit] == stage && (!early || s->visit_early[x->visit]))
        x->visit++;
    if (x->visit > first)
        push(&x->compute, (fcp_instr){.op = FCP_OP_ATTEND, .stage = stage, .a = first, .b = x->visit - first});
}

static void compute_stage(rank_emitter *x, uint32_t stage, uint32_t partial_before) {
    const planning *l = x->e->x;
    bool visits = x->visit < x->visit_end && l->schedule->visit_stage[x->visit] == stage;
    bool reduces = x->reduce < x->reduce_end && l->schedule->return_stage[x->e->reduce[x->reduce]] == stage;
    if (!visits && !reduces) return;
    wait_for(&x->compute, stage, x->received > partial_before ? x->received : partial_before);
    attend(x, stage, false);
    for (; x->reduce < x->reduce_end && l->schedule->return_stage[x->e->reduce[x->reduce]] == stage; x->reduce++) {
        uint32_t f = x->e->reduce[x->reduce];
        uint32_t parent = l->traffic->fetches[f].parent, block = l->traffic->fetches[f].block;
        uint32_t into = parent == FCP_NONE ? l->slots->home_slot[block] : l->slots->fetch[parent].accumulator;
        push(&x->compute,
             (fcp_instr){.op = FCP_OP_REDUCE, .stage = stage, .a = block, .b = l->slots->fetch[f].landing, .c = into});
    }
}

static void emit_rank(rank_emitter *x) {
    emitter *e = x->e;
    uint32_t stages = x->ps->stages, buffers = e->x->program->buffers;
    uint32_t copies = e->copies[x->rank], copies_out = e->copies_out[x->rank], first = e->begin[x->rank];
    if (copies) push(&x->compute, (fcp_instr){.op = FCP_OP_COPY, .a = first, .b = copies});
    uint32_t copied = x->compute.count;
    launch_stage(x, 0, false, 0); /* IN */
    uint32_t brought = x->comm.count;
    if (x->pass == FCP_FORWARD && brought) attend(x, 0, true);
    wait_for(&x->compute, 0, brought);
    if (x->pass == FCP_BACKWARD && e->x->slots->homes[x->rank]) 
        push(&x->compute, (fcp_instr){.op = FCP_OP_DELTA, .b = e->x->slots->homes[x->rank]});
    attend(x, 0, false);
    x->computed[0] = x->compute.count;

    for (uint32_t s = 1; s < stages; s++) {
        uint32_t partial_before = x->sent_partial, free = s >= buffers ? x->computed[s - buffers] : copied;
        launch_stage(x, s, false, free > copied ? free : copied);
        compute_stage(x, s, partial_before);
        x->computed[s] = x->compute.count;
    }
    if (stages > 1) launch_stage(x, stages - 1, true, x->computed[stages - 2]);
    launch_stage(x, stages, true, x->computed[stages - 1]);
    if (copies_out)
        push(&x->compute,
             (fcp_instr){.op = FCP_OP_COPY, .stage = stages, .a = first + copies + e->sides[x->rank], .b = copies_out});
}

static fcp_code emit_pass(emitter *e, fcp_pass pass) {
    planning *l = e->x;
    const pass_schedule *ps = &l->schedule->pass[pass];
    uint32_t ranks = l->problem->ranks;
    fcp_code code = pass_transfers(e, ps, pass);
    memset(e->reduce_start, 0, (ranks + (size_t)1) * sizeof *e->reduce_start);
    if (!code && pass == FCP_BACKWARD) code = pass_reduces(e, ps);
    rank_emitter x = {.e = e, .ps = ps, .pass = pass};
    x.computed = ARENA_NEW(&e->x->scratch, uint32_t, ps->stages + (size_t)1);
    if (!x.computed) return FCP_E_NO_MEMORY;
    for (uint32_t r = 0; !code && r < ranks; r++) {
        if (planning_stopped_at(l, r * 16)) return FCP_E_INTERRUPTED;
        x.rank = r;
        x.side = e->begin[r] + e->copies[r];
        x.side_end = x.side + e->sides[r];
        x.visit = l->schedule->rank_visit[r];
        x.visit_end = l->schedule->rank_visit[r + 1];
        x.reduce = e->reduce_start[r];
        x.reduce_end = e->reduce_start[r + 1];
        /* a wait before each launch at most; a wait before each attend and first reduce of a stage at most */
        uint32_t room = 2 * e->sides[r];
        if (e->comm_room < room && !(e->comm = ARENA_NEW(&e->x->scratch, fcp_instr, e->comm_room = 2 * (size_t)room)))
            return FCP_E_NO_MEMORY;
        x.compute = (queue){.instr = e->instrs + e->instr_count};
        x.comm = (queue){.instr = e->comm};
        x.received = x.sent_partial = 0;
        emit_rank(&x);
        fcp_stream *streams = e->streams + ((size_t)pass * ranks + r) * FCP_QUEUES;
        streams[FCP_COMPUTE] = (fcp_stream){(uint32_t)e->instr_count, x.compute.count};
        e->instr_count += x.compute.count;
        streams[FCP_COMM] = (fcp_stream){(uint32_t)e->instr_count, x.comm.count};
        if (x.comm.count) memcpy(e->instrs + e->instr_count, x.comm.instr, x.comm.count * sizeof *x.comm.instr);
        e->instr_count += x.comm.count;
    }
    return code;
}

/* Is there room in the plan's 32-bit numbers for what both passes may need? */
static bool fits(const planning *x, size_t *out_transfers, size_t *out_instrs) {
    size_t transfers = 0;
    for (int pass = 0; pass < FCP_PASSES; pass++)
        if (x->program->passes[pass])
            transfers += 2 * (size_t)x->schedule->pass[pass].move_count + 2 * (size_t)x->reshuffle->count;
    *out_transfers = transfers;
    *out_instrs = 2 * transfers + 2 * FCP_PASSES * (size_t)(x->schedule->visit_count + x->traffic->count) +
                  16 * (size_t)x->problem->ranks;
    return *out_instrs <= UINT32_MAX / 2;
}

fcp_code lower_streams(planning *x, fcp_plan *plan) {
    uint32_t ranks = x->problem->ranks;
    size_t transfers, instrs;
    if (!fits(x, &transfers, &instrs)) return FCP_E_PLAN_SIZE;
    arena *memory = &x->memory, *scratch = &x->scratch;
    emitter e = {.x = x};
    e.transfers = ARENA_NEW(memory, fcp_transfer, transfers + 1);
    e.instrs = ARENA_NEW(memory, fcp_instr, instrs);
    e.streams = ARENA_ZNEW(memory, fcp_stream, (size_t)FCP_PASSES * ranks * FCP_QUEUES);
    e.side_of = ARENA_NEW(scratch, uint32_t, transfers + 1);
    e.begin = ARENA_NEW(scratch, uint32_t, ranks);
    e.copies = ARENA_NEW(scratch, uint32_t, ranks);
    e.copies_out = ARENA_NEW(scratch, uint32_t, ranks);
    e.sides = ARENA_NEW(scratch, uint32_t, ranks);
    e.at = ARENA_NEW(scratch, uint32_t, ranks);
    e.reduce_start = ARENA_NEW(scratch, uint32_t, ranks + (size_t)1);
    e.reduce = ARENA_NEW(scratch, uint32_t, x->traffic->count + (size_t)1);
    if (!e.transfers || !e.instrs || !e.streams || !e.side_of || !e.begin || !e.copies || !e.copies_out || !e.sides ||
        !e.at || !e.reduce_start || !e.reduce)
        return FCP_E_NO_MEMORY;
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        if (x->program->passes[pass]) {
            fcp_code code = emit_pass(&e, (fcp_pass)pass);
            if (code) return code;
            continue;
        }
        for (size_t i = 0; i < (size_t)ranks * FCP_QUEUES; i++) /* empty streams, where the next ones begin */
            e.streams[(size_t)pass * ranks * FCP_QUEUES + i].first = (uint32_t)e.instr_count;
    }
    plan->streams = e.streams;
    plan->streams_count = (uint64_t)FCP_PASSES * ranks * FCP_QUEUES;
    plan->instrs = e.instrs;
    plan->instrs_count = e.instr_count;
    plan->transfers = e.transfers;
    plan->transfers_count = e.transfer_count;
    return FCP_OK;
}
