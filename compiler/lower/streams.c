/* streams.c: writes rounds, visits and slots as instructions: two queues for each rank and pass, with explicit waits.
 *
 * Requires: rounds, stages, visits and slots.
 * Gives: the plan's streams, instructions and transfers.
 * Cost: linear in moves and instructions.
 *
 * The communication queue launches rounds; the compute queue computes. Each waits for the other only where it must.
 *
 * Before it launches rounds of stage s, the communication queue waits
 *   - until the computing of stages <= s - buffers is over, because only then are its slots free again;
 *   - until the rank's own tokens have been copied in;
 *   - if the launch sends results: until the stage is computed in which these may become complete (schedule.after);
 *   - if it sends Q from home in the backward pass: until delta of the blocks that leave is computed.
 *
 * Before it computes stage s, the compute queue waits
 *   - for the last launch of a stage <= s that receives something (but if tiles run anywhere, they do not wait for
 *     launches that receive only results that come back);
 *   - for the last launch of a stage < s (with phases: <= s) that sends a result, because its slot may be used again;
 *   - before results are copied out to the caller: for results that come home whole.
 *
 * Waits for launches are separate for each fabric. Example: in a ring over two nodes of four, rank 3 receives each
 * block from rank 2 over local and sends it on to rank 4 over net, in one launch. Its tiles wait for local only, so
 * they begin while the block is still leaving over net. If a rank divides a stage (schedule/near.c), its early visits
 * wait for what came over local, and for what came over net before this stage; the other visits wait for all.
 *
 * The computing of a stage is its visits; then what came back is added, in order of round and sender; then FINISH or
 * ROUND of the blocks that are complete.
 *
 * There is no deadlock: give the launches of stage s the time 2 s and its computing the time 2 s + 1. Every wait is for
 * something earlier, and every rank launches its rounds in the same order.
 */
#include <string.h>

#include "compiler/base/group.h"
#include "compiler/lower/lower.h"

/* The transfers of a rank in a pass. */
typedef struct rank_transfers {
    uint32_t begin, copies, sides, copies_out; /* the first; how many: copies in, sends and receives, copies out */
    uint32_t leaves_first, leaves_end;         /* Q leaves only from home slots leaves_first to leaves_end - 1 */
} rank_transfers;

/* Writes the streams of one pass. */
typedef struct emitter {
    planning *x;
    fcp_pass pass;
    fcp_transfer *transfers; /* of the plan */
    uint32_t transfer_count; /* where the next transfer of the pass is written */
    fcp_instr *instrs; /* of the pass, with room for the most there can be, because untouched pages cost nothing */
    size_t instr_room, instr_count;
    fcp_instr *comm;   /* the communication queue of a rank, until its computing queue is complete */
    size_t comm_room;
    fcp_stream *streams; /* of the pass; `first` counts from its first instruction */
    rank_transfers *ranks;
    uint32_t *at;                    /* per rank: the next free transfer */
    uint32_t *side_of;               /* per transfer of a round: SIDE_ROUND * round + SIDE_* */
    uint32_t *reduce_start, *reduce; /* per rank: the hops whose returns it adds up, in order */
    uint32_t *final_start, *final;   /* per rank: the Q blocks that need a FINISH, or a ROUND of dQ, by stage */
} emitter;

struct lower_streams {
    emitter of[FCP_PASSES];
    fcp_transfer *transfers;
    fcp_stream *streams;
    fcp_instr *instrs; /* the newest in `memory`, because most of it will be given back */
    size_t transfer_count, instr_room;
};

/* --- a rank's two queues, while they grow ------------------------------------------------------------------------- */

/* How far the communication queue is, for each fabric: 7 means that all transfers on this fabric of the queue's first 7
 * instructions are over. */
typedef struct reach {
    uint32_t over[FCP_FABRICS];
} reach;

static uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }
static reach farther(reach a, reach b) {
    return (reach){{[FCP_NET] = larger(a.over[FCP_NET], b.over[FCP_NET]),
                    [FCP_LOCAL] = larger(a.over[FCP_LOCAL], b.over[FCP_LOCAL])}};
}

typedef struct queue {
    fcp_instr *instr;
    uint32_t count;
    reach waited; /* how far the other queue is, after the waits so far; a communication queue uses over[0] only */
} queue;

static void push(queue *q, fcp_instr instr) { q->instr[q->count++] = instr; }

/* Lets the communication queue wait until `count` instructions of the compute queue are over. */
static void wait_for_work(queue *q, uint32_t stage, uint32_t count) {
    if (count <= q->waited.over[0]) return;
    q->waited.over[0] = count;
    push(q, (fcp_instr){.op = FCP_OP_WAIT, .stage = stage, .a = count});
}

/* Lets the compute queue wait for transfers. The numbers in its WAITs never decrease. */
static void wait_for_moves(queue *q, uint32_t stage, reach to) {
    to = farther(to, q->waited);
    if (to.over[FCP_NET] == q->waited.over[FCP_NET] && to.over[FCP_LOCAL] == q->waited.over[FCP_LOCAL]) return;
    q->waited = to;
    push(q, (fcp_instr){.op = FCP_OP_WAIT, .stage = stage, .a = to.over[FCP_NET], .b = to.over[FCP_LOCAL]});
}

/* --- transfers ---------------------------------------------------------------------------------------------------- */

enum { STRETCH = 1 << 18 /* moves between two looks at stop */, FAR = 24 /* moves that are fetched early */ };
/* What a transfer does for the rank, as bits. Each of the first four bits is there twice, once for each fabric: that
 * of FCP_LOCAL is SIDE_FABRIC times as large.
 *   SIDE_RECEIVES     it receives what tiles read
 *   SIDE_PARTIAL      it receives a partial result
 *   SIDE_COMES_HOME   it receives a whole result
 *   SIDE_RESULT       it sends a result that computing made
 *   SIDE_SENDS_Q      it sends Q from home */
enum { SIDE_RECEIVES = 1, SIDE_PARTIAL = 2, SIDE_COMES_HOME = 4, SIDE_RESULT = 8, SIDE_FABRIC = 16,
       SIDE_SENDS_Q = SIDE_FABRIC * SIDE_FABRIC, SIDE_ROUND = 2 * SIDE_SENDS_Q };

/* Writes the two transfers of a move, that of its sender and that of its receiver. */
static inline void write_sides(fcp_transfer *transfers, uint32_t *side_of, uint32_t send, uint32_t receive,
                               const move *m, const uint32_t *home) {
    static const uint8_t sends[FCP_CLASSES] = {[FCP_STATE] = SIDE_RESULT,
                                               [FCP_O] = SIDE_RESULT,
                                               [FCP_DKV] = SIDE_RESULT,
                                               [FCP_DQ] = SIDE_RESULT,
                                               [FCP_DQW] = SIDE_RESULT};
    static const uint8_t receives[FCP_CLASSES] = {
        [FCP_KV] = SIDE_RECEIVES, [FCP_Q] = SIDE_RECEIVES,  [FCP_STATE] = SIDE_PARTIAL,   [FCP_DKV] = SIDE_PARTIAL,
        [FCP_DQ] = SIDE_PARTIAL,  [FCP_O] = SIDE_COMES_HOME, [FCP_DQW] = SIDE_COMES_HOME, [FCP_IN] = SIDE_RECEIVES};
    const uint32_t cls = m->cls, fabric = m->fabric, round = m->round * SIDE_ROUND;
    const uint32_t of = fabric == FCP_LOCAL ? SIDE_FABRIC : 1;
    const uint32_t block = m->block, first = m->first, tokens = m->tokens;
    transfers[send] = (fcp_transfer){.peer = m->dst, .cls = cls, .fabric = fabric, .dir = FCP_SEND, .block = block,
                                     .first = first, .tokens = tokens, .slot = m->from};
    transfers[receive] = (fcp_transfer){.peer = m->src, .cls = cls, .fabric = fabric, .dir = FCP_RECV, .block = block,
                                        .first = first, .tokens = tokens, .slot = m->to};
    side_of[send] = round + sends[cls] * of;
    if (cls == FCP_Q && m->src == home[block]) side_of[send] += SIDE_SENDS_Q;
    side_of[receive] = round + receives[cls] * of;
}

/* Writes the transfers of a pass: of each rank its copies in, then its sends and receives in order of launch, then its
 * copies out. */
static fcp_code pass_transfers(emitter *e, const pass_schedule *ps) {
    const planning *x = e->x;
    const fcp_pass pass = e->pass;
    const reshuffle *moved = x->reshuffle;
    uint32_t ranks = x->problem->ranks;
    for (uint32_t i = 0; i < moved->count; i++) {
        const bundle *b = &moved->bundles[i];
        if (b->caller != b->home) continue;
        e->ranks[b->home].copies++;
        e->ranks[b->home].copies_out += pass == FCP_BACKWARD || b->side != FCP_KEYS; /* keys have no results forward */
    }
    for (uint32_t i = 0; i < ps->move_count; i++) {
        e->ranks[ps->moves[i].src].sides++;
        e->ranks[ps->moves[i].dst].sides++;
    }
    for (uint32_t r = 0; r < ranks; r++) {
        e->ranks[r].begin = e->at[r] = e->transfer_count;
        e->transfer_count += e->ranks[r].copies + e->ranks[r].sides + e->ranks[r].copies_out;
        e->ranks[r].copies_out = 0; /* counted again below */
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
        e->transfers[e->ranks[r].begin + e->ranks[r].copies + e->ranks[r].sides + e->ranks[r].copies_out++] = copy;
    }
    uint32_t *at = e->at, *side_of = e->side_of;
    fcp_transfer *transfers = e->transfers;
    for (const move *m = ps->moves, *end = m + ps->move_count; m < end;) {
        const move *stretch = end - m > STRETCH ? m + STRETCH : end;
        if (planning_stopped(x)) return FCP_E_INTERRUPTED;
        for (; m < stretch; m++) {
            __builtin_prefetch(m + FAR);
            write_sides(transfers, side_of, at[m->src]++, at[m->dst]++, m, x->placement->home);
        }
    }
    return FCP_OK;
}

/* Lists for each rank the hops along which partial results come to it, in order of stage, round and sender. */
static fcp_code pass_reduces(emitter *e, const pass_schedule *ps) {
    const traffic *t = e->x->traffic;
    const fcp_pass pass = e->pass;
    uint32_t ranks = e->x->problem->ranks;
    uint32_t *left = ARENA_NEW(&e->x->scratch, uint32_t, t->count + (size_t)1),
             *at = ARENA_NEW(&e->x->scratch, uint32_t, ranks);
    uint32_t *round = ARENA_NEW(&e->x->scratch, uint32_t, t->count + (size_t)1);
    if (!left || !at || !round) return FCP_E_NO_MEMORY;
    for (uint32_t f = 0; f < t->count; f++) {
        fcp_class cls = traffic_return(&t->hops[f], pass);
        left[f] = 0;
        if (cls != FCP_STATE && cls != FCP_DKV && cls != FCP_DQ) continue;
        left[f] = return_units(e->x->problem, &t->hops[f], cls);
        e->reduce_start[t->hops[f].to + 1]++;
    }
    for (uint32_t r = 0; r < ranks; r++) {
        at[r] = e->reduce_start[r];
        e->reduce_start[r + 1] += e->reduce_start[r];
    }
    for (uint32_t i = 0; i < ps->move_count; i++) {
        const move *m = &ps->moves[i];
        if (!(i & 0xfffff) && planning_stopped(e->x)) return FCP_E_INTERRUPTED;
        if ((m->cls != FCP_STATE && m->cls != FCP_DKV && m->cls != FCP_DQ) || --left[m->ref]) continue;
        uint32_t to = at[m->dst]++;
        /* a round may bring one over net and one over local */
        if (to > e->reduce_start[m->dst] && round[to - 1] == m->round &&
            t->hops[e->reduce[to - 1]].dst > m->src) {
            e->reduce[to] = e->reduce[to - 1];
            round[to] = round[to - 1];
            to--;
        }
        e->reduce[to] = m->ref;
        round[to] = m->round;
    }
    return FCP_OK;
}

/* A Q block whose result needs a FINISH or ROUND, at a rank and in a stage. */
typedef struct final {
    uint32_t rank, stage, block;
} final;

/* Does the result of a Q block need an instruction of its own? Forward (FINISH) if several ranks compute the block;
 * backward (ROUND) if its result is made away from home. */
static bool needs_final(const traffic *t, fcp_pass pass, uint32_t block) {
    return pass == FCP_FORWARD ? traffic_is_shared(t, block) : t->tile_q && t->maker[block] != FCP_NONE;
}

/* Lists the Q blocks that each rank must FINISH or ROUND, in order of stage. */
static fcp_code pass_finals(emitter *e, uint32_t stages) {
    const planning *x = e->x;
    const fcp_pass pass = e->pass;
    const traffic *t = x->traffic;
    uint32_t ranks = x->problem->ranks, count = 0;
    size_t room = x->problem->block_count + (size_t)1;
    final *found = ARENA_NEW(&e->x->scratch, final, room);
    final *sorted = ARENA_NEW(&e->x->scratch, final, room);
    uint32_t *start = ARENA_NEW(&e->x->scratch, uint32_t, stages + (size_t)2);
    uint32_t *order = ARENA_NEW(&e->x->scratch, uint32_t, room);
    if (!found || !sorted || !start || !order) return FCP_E_NO_MEMORY;
    for (uint32_t b = 0; b < x->problem->block_count; b++) {
        if (!needs_final(t, pass, b)) continue;
        uint32_t rank = t->maker[b] == FCP_NONE ? x->placement->home[b] : t->hops[t->maker[b]].dst;
        found[count++] = (final){rank, x->schedule->finish[pass][b], b};
    }
    if (!group_by(&found->stage, sizeof *found, count, stages, start, order, x->stop)) return FCP_E_INTERRUPTED;
    for (uint32_t i = 0; i < count; i++) sorted[i] = found[order[i]];
    if (!group_by(&sorted->rank, sizeof *sorted, count, ranks, e->final_start, order, x->stop))
        return FCP_E_INTERRUPTED;
    for (uint32_t i = 0; i < count; i++) e->final[i] = sorted[order[i]].block;
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
    uint32_t final, final_end;
    /* the newest launch that received what tiles read, received partial results, sent results, received whole
     * results */
    reach received, partials, sent_result, came_home;
    uint32_t delta;     /* how far the compute queue must be before Q leaves home */
    uint32_t *computed; /* per stage: how many instructions the compute queue has after it */
} rank_emitter;

/* Launches the rank's transfers in the rounds of a stage: in those of kind OUT if `out`, otherwise in all others. Each
 * launch waits until `wait` instructions of the compute queue are over; a launch that sends results, until `made` are.
 */
static void launch_stage(rank_emitter *x, uint32_t stage, bool out, uint32_t wait, uint32_t made) {
    const uint32_t *side_of = x->e->side_of, end = x->side_end;
    const fcp_round *rounds = x->ps->rounds;
    /* kept in registers and updated without branches, because what a round brings cannot be predicted */
    reach received = x->received, partials = x->partials, sent_result = x->sent_result, came_home = x->came_home;
    uint32_t at = x->side;
    while (at < end) {
        uint32_t is = side_of[at], first = at, round = is / SIDE_ROUND, next = SIDE_ROUND * (round + 1);
        if (rounds[round].stage != stage || (rounds[round].kind == FCP_ROUND_OUT) != out) break;
        while (++at < end && side_of[at] < next) is |= side_of[at]; /* they are in order of rounds */
        uint32_t most = is & (SIDE_RESULT | SIDE_RESULT * SIDE_FABRIC) && made > wait ? made : wait;
        wait_for_work(&x->comm, stage, is & SIDE_SENDS_Q && x->delta > most ? x->delta : most);
        push(&x->comm, (fcp_instr){.op = FCP_OP_LAUNCH, .stage = stage, .a = first, .b = at - first, .c = round});
        const uint32_t launch = x->comm.count;
        for (uint32_t f = 0, of = 1; f < FCP_FABRICS; f++, of *= SIDE_FABRIC) {
            received.over[f] = is & SIDE_RECEIVES * of ? launch : received.over[f];
            partials.over[f] = is & SIDE_PARTIAL * of ? launch : partials.over[f];
            sent_result.over[f] = is & SIDE_RESULT * of ? launch : sent_result.over[f];
            came_home.over[f] = is & SIDE_COMES_HOME * of ? launch : came_home.over[f];
        }
    }
    x->side = at;
    x->received = received;
    x->partials = partials;
    x->sent_result = sent_result;
    x->came_home = came_home;
}

/* Does the rank have a visit of this stage that is not attended yet? */
static bool has_visit(const rank_emitter *x, uint32_t stage) {
    return x->visit < x->visit_end && x->e->x->schedule->visit_stage[x->visit] == stage;
}

/* Attends the visits of a stage that are left; early: only those that come before the others of the stage. */
static void attend(rank_emitter *x, uint32_t stage, bool early) {
    const schedule *s = x->e->x->schedule;
    uint32_t first = x->visit;
    while (has_visit(x, stage) && (!early || s->visit_early[x->visit])) x->visit++;
    if (x->visit > first)
        push(&x->compute, (fcp_instr){.op = FCP_OP_ATTEND, .stage = stage, .a = first, .b = x->visit - first});
}

/* Adds the partial results that came in this stage. */
static void add_partials(rank_emitter *x, uint32_t stage) {
    const planning *l = x->e->x;
    const traffic *t = l->traffic;
    const slots *places = l->slots;
    const back_slots *back = &places->back[x->pass];
    for (; x->reduce < x->reduce_end && l->schedule->back[x->pass].last[x->e->reduce[x->reduce]] == stage;
         x->reduce++) {
        uint32_t f = x->e->reduce[x->reduce], onto = t->hops[f].onto, block = t->hops[f].block;
        fcp_class cls = traffic_return(&t->hops[f], x->pass);
        bool made = cls != FCP_DKV && onto == t->maker[block]; /* by this rank */
        uint32_t into = made && cls == FCP_STATE   ? places->sum_state[block]
                        : made && onto != FCP_NONE ? places->sum_dq[block]
                        : onto == FCP_NONE         ? places->home_slot[block]
                                                   : back->from[onto];
        fcp_op op = cls == FCP_STATE ? FCP_OP_MERGE : cls == FCP_DKV ? FCP_OP_REDUCE : FCP_OP_REDUCE_Q;
        push(&x->compute, (fcp_instr){.op = op, .stage = stage, .a = block, .b = back->to[f], .c = into});
    }
}

/* Makes the results that are complete in this stage. */
static void make_results(rank_emitter *x, uint32_t stage) {
    const planning *l = x->e->x;
    const slots *places = l->slots;
    for (; x->final < x->final_end; x->final++) {
        const uint32_t block = x->e->final[x->final], maker = l->traffic->maker[block];
        if (l->schedule->finish[x->pass][block] != stage) break;
        fcp_instr make = {.op = FCP_OP_FINISH, .stage = stage, .a = block, .b = places->sum_state[block]};
        if (x->pass == FCP_BACKWARD) make.op = FCP_OP_ROUND, make.b = places->sum_dq[block];
        if (maker != FCP_NONE) make.c = places->back[x->pass].from[maker]; /* at home it is the home slot */
        push(&x->compute, make);
    }
}

/* Writes the instructions that compute a stage. received_before: the receives of earlier stages, for which early visits
 * wait. result_before: the sends of results for which all visits wait, because the slots of what is sent may be used
 * again. */
static void compute_stage(rank_emitter *x, uint32_t stage, reach received_before, reach result_before) {
    const planning *l = x->e->x;
    bool reduces = x->reduce < x->reduce_end &&
                   l->schedule->back[x->pass].last[x->e->reduce[x->reduce]] == stage;
    const reach inputs = farther(x->received, result_before), all = farther(x->partials, inputs);
    if (has_visit(x, stage) && l->schedule->visit_early[x->visit]) {
        reach near = x->received;
        near.over[FCP_NET] = received_before.over[FCP_NET];
        wait_for_moves(&x->compute, stage, farther(near, result_before));
        attend(x, stage, true);
    }
    /* if tiles run anywhere, or ranks pass keys on, tiles do not wait for results */
    if (has_visit(x, stage))
        wait_for_moves(&x->compute, stage,
                       l->traffic->tile_q || l->traffic->trees || l->traffic->around ? inputs : all);
    attend(x, stage, false);
    if (reduces) wait_for_moves(&x->compute, stage, all);
    add_partials(x, stage);
    make_results(x, stage);
}

/* Backward: computes delta of the rank's home blocks. If some of their Q leaves the rank, the range of home slots that
 * holds all these blocks comes first, so that they can leave early. */
static void emit_delta(rank_emitter *x) {
    const planning *l = x->e->x;
    const traffic *t = l->traffic;
    uint32_t homes = l->slots->homes[x->rank], first = homes, end = 0;
    if (t->tile_q) {
        first = x->e->ranks[x->rank].leaves_first;
        end = x->e->ranks[x->rank].leaves_end;
    }
    if (end) {
        push(&x->compute, (fcp_instr){.op = FCP_OP_DELTA, .a = first, .b = end - first});
        x->delta = x->compute.count;
        if (first) push(&x->compute, (fcp_instr){.op = FCP_OP_DELTA, .b = first});
        if (end < homes) push(&x->compute, (fcp_instr){.op = FCP_OP_DELTA, .a = end, .b = homes - end});
    } else if (homes) {
        push(&x->compute, (fcp_instr){.op = FCP_OP_DELTA, .b = homes});
    }
}

static void emit_rank(rank_emitter *x) {
    emitter *e = x->e;
    uint32_t stages = x->ps->stages, buffers = e->x->program->buffers, after = e->x->schedule->after;
    const rank_transfers *own = &e->ranks[x->rank];
    if (own->copies) push(&x->compute, (fcp_instr){.op = FCP_OP_COPY, .a = own->begin, .b = own->copies});
    uint32_t copied = x->compute.count;
    launch_stage(x, 0, false, 0, 0); /* IN */
    if (x->pass == FCP_FORWARD && x->comm.count) attend(x, 0, true);
    wait_for_moves(&x->compute, 0, x->received);
    if (x->pass == FCP_BACKWARD) emit_delta(x);
    attend(x, 0, false);
    make_results(x, 0);
    x->computed[0] = x->compute.count;

    for (uint32_t s = 1; s < stages; s++) {
        reach received_before = x->received, result_before = x->sent_result;
        uint32_t free = s >= buffers ? x->computed[s - buffers] : copied;
        launch_stage(x, s, false, free > copied ? free : copied, s >= after ? x->computed[s - after] : copied);
        compute_stage(x, s, received_before, e->x->placement->phase ? x->sent_result : result_before);
        x->computed[s] = x->compute.count;
    }
    if (stages > 1) launch_stage(x, stages - 1, true, x->computed[stages - 2], 0);
    launch_stage(x, stages, true, x->computed[stages - 1], 0);
    if (own->copies_out) {
        wait_for_moves(&x->compute, stages, x->came_home);
        const uint32_t first = own->begin + own->copies + own->sides;
        push(&x->compute, (fcp_instr){.op = FCP_OP_COPY, .stage = stages, .a = first, .b = own->copies_out});
    }
}

/* Writes the queues of all ranks, once their transfers, partial results and final instructions are listed. */
static fcp_code emit_ranks(emitter *e) {
    planning *l = e->x;
    const pass_schedule *ps = &l->schedule->pass[e->pass];
    uint32_t ranks = l->problem->ranks;
    rank_emitter x = {.e = e, .ps = ps, .pass = e->pass};
    x.computed = ARENA_NEW(&l->scratch, uint32_t, ps->stages + (size_t)1);
    if (!x.computed) return FCP_E_NO_MEMORY;
    for (uint32_t r = 0; r < ranks; r++) {
        if (planning_stopped_at(l, (uint64_t)r * 16)) return FCP_E_INTERRUPTED;
        x.rank = r;
        x.side = e->ranks[r].begin + e->ranks[r].copies;
        x.side_end = x.side + e->ranks[r].sides;
        x.visit = l->schedule->rank_visit[r];
        x.visit_end = l->schedule->rank_visit[r + 1];
        x.reduce = e->reduce_start[r];
        x.reduce_end = e->reduce_start[r + 1];
        x.final = e->final_start[r];
        x.final_end = e->final_start[r + 1];
        /* a wait before each launch at most; a wait before each attend and first reduce of a stage at most */
        uint32_t room = 2 * e->ranks[r].sides;
        if (e->comm_room < room && !(e->comm = ARENA_NEW(&l->scratch, fcp_instr, e->comm_room = 2 * (size_t)room)))
            return FCP_E_NO_MEMORY;
        x.compute = (queue){.instr = e->instrs + e->instr_count};
        x.comm = (queue){.instr = e->comm};
        x.received = x.partials = x.sent_result = x.came_home = (reach){{0}};
        x.delta = 0;
        emit_rank(&x);
        fcp_stream *streams = e->streams + (size_t)r * FCP_QUEUES;
        streams[FCP_COMPUTE] = (fcp_stream){(uint32_t)e->instr_count, x.compute.count};
        e->instr_count += x.compute.count;
        streams[FCP_COMM] = (fcp_stream){(uint32_t)e->instr_count, x.comm.count};
        if (x.comm.count) memcpy(e->instrs + e->instr_count, x.comm.instr, x.comm.count * sizeof *x.comm.instr);
        e->instr_count += x.comm.count;
    }
    return FCP_OK;
}

/* Gets what is needed if tiles run away from home; and finds the home slots from which Q leaves. */
static fcp_code open_away(emitter *e) {
    const traffic *t = e->x->traffic;
    e->final = ARENA_NEW(&e->x->scratch, uint32_t, e->x->problem->block_count + (size_t)1);
    if (!e->final) return FCP_E_NO_MEMORY;
    for (uint32_t r = 0; r < e->x->problem->ranks; r++) e->ranks[r].leaves_first = FCP_NONE;
    for (uint32_t f = t->keys; f < t->count; f++) {
        uint32_t r = t->hops[f].src, slot = e->x->slots->home_slot[t->hops[f].block];
        if (t->hops[f].parent != FCP_NONE) continue;
        if (slot < e->ranks[r].leaves_first) e->ranks[r].leaves_first = slot;
        if (slot >= e->ranks[r].leaves_end) e->ranks[r].leaves_end = slot + 1;
    }
    return FCP_OK;
}

static fcp_code open_pass(emitter *e) {
    const planning *x = e->x;
    arena *scratch = &e->x->scratch;
    uint32_t ranks = x->problem->ranks;
    e->ranks = ARENA_ZNEW(scratch, rank_transfers, ranks);
    e->at = ARENA_NEW(scratch, uint32_t, ranks);
    e->reduce_start = ARENA_ZNEW(scratch, uint32_t, ranks + (size_t)1);
    e->reduce = ARENA_NEW(scratch, uint32_t, x->traffic->count + (size_t)1);
    e->final_start = ARENA_ZNEW(scratch, uint32_t, ranks + (size_t)2);
    if (!e->ranks || !e->at || !e->reduce_start || !e->reduce || !e->final_start) return FCP_E_NO_MEMORY;
    return x->traffic->tile_q ? open_away(e) : FCP_OK;
}

fcp_code lower_pass(planning *x, lower_streams *streams, fcp_pass pass) {
    emitter *e = &streams->of[pass];
    const pass_schedule *ps = &x->schedule->pass[pass];
    e->x = x;
    fcp_code code = open_pass(e);
    if (!code) code = pass_transfers(e, ps);
    if (!code && x->schedule->back[pass].last) code = pass_reduces(e, ps);
    if (!code && x->traffic->tile_q) code = pass_finals(e, ps->stages);
    return code ? code : emit_ranks(e);
}

/* Counts the transfers of a pass: two for each move, and the copies in and out. */
static size_t count_transfers(const planning *x, fcp_pass pass) {
    size_t count = 2 * (size_t)x->schedule->pass[pass].move_count;
    for (uint32_t i = 0; i < x->reshuffle->count; i++) {
        const bundle *b = &x->reshuffle->bundles[i];
        if (b->caller == b->home) count += 1 + (pass == FCP_BACKWARD || b->side != FCP_KEYS);
    }
    return count;
}

/* Counts the transfers of both passes, and the most instructions that there can be. False: these are more than the
 * 32-bit numbers of a plan count. */
static bool count_room(const planning *x, lower_streams *s) {
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        emitter *e = &s->of[pass];
        *e = (emitter){.pass = (fcp_pass)pass, .transfer_count = (uint32_t)s->transfer_count};
        if (!x->program->passes[pass]) continue;
        size_t transfers = count_transfers(x, (fcp_pass)pass);
        if (x->schedule->pass[pass].round_count > UINT32_MAX / SIDE_ROUND) return false;
        e->instr_room = 2 * transfers + 2 * (size_t)(x->schedule->visit_count + x->traffic->count) +
                        (x->traffic->tile_q ? (size_t)x->problem->block_count : 0) + 8 * (size_t)x->problem->ranks;
        s->transfer_count += transfers;
        s->instr_room += e->instr_room;
    }
    return s->instr_room <= UINT32_MAX / 2;
}

fcp_code lower_open_streams(planning *x, lower_streams **out) {
    const uint32_t ranks = x->problem->ranks;
    lower_streams *s = ARENA_ZNEW(&x->scratch, lower_streams, 1);
    if (!s) return FCP_E_NO_MEMORY;
    if (!count_room(x, s)) return FCP_E_PLAN_SIZE;
    s->transfers = ARENA_NEW(&x->memory, fcp_transfer, s->transfer_count + 1);
    s->streams = ARENA_ZNEW(&x->memory, fcp_stream, (size_t)FCP_PASSES * ranks * FCP_QUEUES);
    s->instrs = ARENA_NEW(&x->memory, fcp_instr, s->instr_room);
    uint32_t *side_of = ARENA_NEW(&x->scratch, uint32_t, s->transfer_count + 1);
    if (!s->transfers || !s->streams || !s->instrs || !side_of) return FCP_E_NO_MEMORY;
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        s->of[pass].transfers = s->transfers;
        s->of[pass].side_of = side_of;
        s->of[pass].streams = s->streams + (size_t)pass * ranks * FCP_QUEUES;
    }
    s->of[FCP_FORWARD].instrs = s->instrs;
    s->of[FCP_BACKWARD].instrs = s->instrs + s->of[FCP_FORWARD].instr_room; /* moved up when both are complete */
    *out = s;
    return FCP_OK;
}

void lower_join_passes(planning *x, const lower_streams *s, fcp_plan *plan) {
    const emitter *ahead = &s->of[FCP_FORWARD], *back = &s->of[FCP_BACKWARD];
    if (back->instr_count)
        memmove(s->instrs + ahead->instr_count, back->instrs, back->instr_count * sizeof *back->instrs);
    for (size_t i = 0; i < (size_t)x->problem->ranks * FCP_QUEUES; i++) /* of a pass that is not there: empty */
        back->streams[i].first += (uint32_t)ahead->instr_count;
    PLAN_TABLE(plan, streams, s->streams, (uint64_t)FCP_PASSES * x->problem->ranks * FCP_QUEUES);
    PLAN_TABLE(plan, instrs, s->instrs, ahead->instr_count + back->instr_count);
    PLAN_TABLE(plan, transfers, s->transfers, s->transfer_count);
    arena_trim(&x->memory, s->instrs, s->instr_room * sizeof *s->instrs, plan->instrs_count * sizeof *s->instrs);
}
