/* lower.c: schedule and slots to the plan's tables.
 *
 * requires  rounds, stages, visits, slots.
 * gives     per rank and pass two instruction streams with explicit waits.
 * cost      linear in tiles, moves and instructions.
 *
 * Waits, the whole of them. On the communication queue, before the launches of stage s: computing of stages <= s -
 * buffers (slots are free again, partials are finished), and COPY of the rank's own tokens. On the computing queue,
 * before the work of stage s: the last launch of a stage <= s that receives something, and the last of a stage < s that
 * sends a partial (its slot may be reused). Launches are in order of round on every rank. So time can be read off the
 * plan: give the launches of stage s time 2 s and its computing 2 s + 1; every wait is for something earlier, hence no
 * cycle.
 */
#include "compiler/lower/lower.h"

#include <string.h>

typedef struct emitter {
    const lowering *l;
    arena *memory, *scratch;
    fcp_plan *plan;
    fcp_transfer *transfers;
    uint32_t transfer_count;
    fcp_instr *instrs; /* all streams so far; room for the most there can be, of which untouched memory costs nothing */
    size_t instr_count;
    fcp_instr *comm; /* a rank's communication queue until its computing queue is complete */
    size_t comm_room;
    fcp_stream *streams;
    /* of the pass at hand */
    uint32_t *begin, *copies, *sides, *copies_out; /* per rank: its transfers: copies in, sides of rounds, copies out */
    uint32_t *at;                     /* per rank: scratch */
    uint32_t *side_of;                /* per transfer of a round: 4 * round + SIDE_* */
    uint32_t *reduce_start, *reduce; /* per rank: fetches whose returns it reduces, in order */
} emitter;

/* --- a rank's two queues, while they grow ------------------------------------------------------------------------- */

typedef struct queue {
    fcp_instr *instr;
    uint32_t count;
    uint32_t waited; /* instructions of the other queue already waited for */
} queue;

static void push(queue *q, fcp_instr instr) { q->instr[q->count++] = instr; }

static void wait_for(queue *q, uint32_t stage, uint32_t count) {
    if (count <= q->waited) return;
    q->waited = count;
    push(q, (fcp_instr){.op = FCP_OP_WAIT, .stage = stage, .a = count});
}

/* --- transfers ---------------------------------------------------------------------------------------------------- */

enum { SIDE_RECEIVES = 1, SIDE_PARTIAL = 2 }; /* receives what computing may wait for; sends a partial */

static inline void put_sides(fcp_transfer *transfers, uint32_t *side_of, uint32_t send, uint32_t receive,
                             const move *m) {
    transfers[send] = (fcp_transfer){.peer = m->dst, .cls = m->cls, .fabric = m->fabric, .dir = FCP_SEND,
                                     .block = m->block, .first = m->first, .tokens = m->tokens, .slot = m->from};
    transfers[receive] = (fcp_transfer){.peer = m->src, .cls = m->cls, .fabric = m->fabric, .dir = FCP_RECV,
                                        .block = m->block, .first = m->first, .tokens = m->tokens, .slot = m->to};
    side_of[send] = m->round * 4 + (m->cls == FCP_DKV ? SIDE_PARTIAL : 0);
    side_of[receive] = m->round * 4 + (m->cls == FCP_OUT ? 0 : SIDE_RECEIVES);
}

/* Does a segment bring back anything? */
static bool has_results(const lowering *l, const segment *s, fcp_pass pass) {
    return pass == FCP_BACKWARD || l->p->blocks[s->block].holds & FCP_HOLDS_Q;
}

/* A pass's transfers: per rank its copies in, its rounds' sends and receives in launch order, its copies out. */
static void pass_transfers(emitter *e, const pass_schedule *ps, fcp_pass pass) {
    const lowering *l = e->l;
    uint32_t ranks = l->p->ranks;
    memset(e->copies, 0, ranks * sizeof *e->copies);
    memset(e->copies_out, 0, ranks * sizeof *e->copies_out);
    memset(e->sides, 0, ranks * sizeof *e->sides);
    for (uint32_t i = 0; i < l->r->count; i++) {
        const segment *s = &l->r->segments[i];
        if (s->caller != l->home[s->block]) continue;
        e->copies[s->caller]++;
        e->copies_out[s->caller] += has_results(l, s, pass);
    }
    for (uint32_t i = 0; i < ps->move_count; i++) e->sides[ps->moves[i].src]++, e->sides[ps->moves[i].dst]++;
    for (uint32_t r = 0; r < ranks; r++) {
        e->begin[r] = e->at[r] = e->transfer_count;
        e->transfer_count += e->copies[r] + e->sides[r] + e->copies_out[r];
        e->copies_out[r] = 0; /* counted again below */
    }
    for (uint32_t i = 0; i < l->r->count; i++) {
        const segment *s = &l->r->segments[i];
        uint32_t r = s->caller;
        if (r != l->home[s->block]) continue;
        fcp_transfer copy = {.peer = r, .cls = FCP_IN, .fabric = FCP_LOCAL, .dir = FCP_SEND, .block = s->block,
                             .first = s->first, .tokens = s->tokens, .place = s->place};
        e->transfers[e->at[r]++] = copy;
        if (!has_results(l, s, pass)) continue;
        copy.cls = FCP_OUT;
        copy.dir = FCP_RECV;
        e->transfers[e->begin[r] + e->copies[r] + e->sides[r] + e->copies_out[r]++] = copy;
    }
    uint32_t *at = e->at, *side_of = e->side_of;
    fcp_transfer *transfers = e->transfers;
    for (const move *m = ps->moves, *end = m + ps->move_count; m < end; m++)
        put_sides(transfers, side_of, at[m->src]++, at[m->dst]++, m);
}

/* Fetches whose partials each rank reduces, in order of (stage, round, sender). */
static fcp_code pass_reduces(emitter *e, const pass_schedule *ps) {
    const traffic *t = e->l->t;
    uint32_t ranks = e->l->p->ranks;
    uint32_t *left = ARENA_NEW(e->scratch, uint32_t, t->count + (size_t)1),
             *at = ARENA_NEW(e->scratch, uint32_t, ranks);
    uint32_t *round = ARENA_NEW(e->scratch, uint32_t, t->count + (size_t)1);
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
        if (m->cls != FCP_DKV || --left[m->ref]) continue;
        uint32_t to = at[m->dst]++;
        if (to > e->reduce_start[m->dst] && round[to - 1] == m->round && /* one over net, one over local */
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
    uint32_t received, sent_partial; /* communication instructions to wait for: see the head comment */
    uint32_t *computed;             /* per stage: instructions of the computing queue after it */
} rank_emitter;

/* Launches this rank's share of every round of a stage that is, or is not, of kind OUT. */
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
    const schedule *s = x->e->l->s;
    uint32_t first = x->visit;
    while (x->visit < x->visit_end && s->visit_stage[x->visit] == stage && (!early || s->visit_early[x->visit]))
        x->visit++;
    if (x->visit > first)
        push(&x->compute, (fcp_instr){.op = FCP_OP_ATTEND, .stage = stage, .a = first, .b = x->visit - first});
}

static void compute_stage(rank_emitter *x, uint32_t stage, uint32_t partial_before) {
    const lowering *l = x->e->l;
    bool visits = x->visit < x->visit_end && l->s->visit_stage[x->visit] == stage;
    bool reduces = x->reduce < x->reduce_end && l->s->return_stage[x->e->reduce[x->reduce]] == stage;
    if (!visits && !reduces) return;
    wait_for(&x->compute, stage, x->received > partial_before ? x->received : partial_before);
    attend(x, stage, false);
    for (; x->reduce < x->reduce_end && l->s->return_stage[x->e->reduce[x->reduce]] == stage; x->reduce++) {
        uint32_t f = x->e->reduce[x->reduce], parent = l->t->fetches[f].parent, block = l->t->fetches[f].block;
        uint32_t into = parent == FCP_NONE ? l->slots->home_slot[block] : l->slots->fetch[parent].accumulator;
        push(&x->compute,
             (fcp_instr){.op = FCP_OP_REDUCE, .stage = stage, .a = block, .b = l->slots->fetch[f].landing, .c = into});
    }
}

static void emit_rank(rank_emitter *x) {
    emitter *e = x->e;
    uint32_t stages = x->ps->stages, buffers = e->l->p->program->buffers;
    uint32_t copies = e->copies[x->rank], copies_out = e->copies_out[x->rank], first = e->begin[x->rank];
    if (copies) push(&x->compute, (fcp_instr){.op = FCP_OP_COPY, .a = first, .b = copies});
    uint32_t copied = x->compute.count;
    launch_stage(x, 0, false, 0); /* IN */
    uint32_t brought = x->comm.count;
    if (x->pass == FCP_FORWARD && brought) attend(x, 0, true);
    wait_for(&x->compute, 0, brought);
    if (x->pass == FCP_BACKWARD && e->l->slots->homes[x->rank]) push(&x->compute, (fcp_instr){.op = FCP_OP_DELTA});
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
    const lowering *l = e->l;
    const pass_schedule *ps = &l->s->pass[pass];
    uint32_t ranks = l->p->ranks;
    pass_transfers(e, ps, pass);
    memset(e->reduce_start, 0, (ranks + (size_t)1) * sizeof *e->reduce_start);
    fcp_code code = pass == FCP_BACKWARD ? pass_reduces(e, ps) : FCP_OK;
    rank_emitter x = {.e = e, .ps = ps, .pass = pass};
    x.computed = ARENA_NEW(e->scratch, uint32_t, ps->stages + (size_t)1);
    if (!x.computed) return FCP_E_NO_MEMORY;
    for (uint32_t r = 0; !code && r < ranks; r++) {
        x.rank = r;
        x.side = e->begin[r] + e->copies[r];
        x.side_end = x.side + e->sides[r];
        x.visit = l->s->rank_visit[r];
        x.visit_end = l->s->rank_visit[r + 1];
        x.reduce = e->reduce_start[r];
        x.reduce_end = e->reduce_start[r + 1];
        /* a wait before each launch at most; a wait before each attend and first reduce of a stage at most */
        uint32_t room = 2 * e->sides[r];
        if (e->comm_room < room && !(e->comm = ARENA_NEW(e->scratch, fcp_instr, e->comm_room = 2 * (size_t)room)))
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

/* --- tables ------------------------------------------------------------------------------------------------------- */

void lower_problem(const lowering *l, fcp_problem *out) {
    const problem *p = l->p;
    const struct fcpc_program *g = p->program;
    *out = (fcp_problem){.ranks = p->ranks,
                         .nodes = g->nodes,
                         .gpus = g->gpus,
                         .heads = g->heads,
                         .kv_heads = g->kv_heads,
                         .head_dim = g->head_dim,
                         .head_groups = 1,
                         .dtype = g->dtype,
                         .layout = g->layout,
                         .strategy = g->strategy,
                         .topology = g->topology,
                         .block = p->block,
                         .max_block = p->max_block[FCP_KEYS],
                         .max_q_block = p->max_block[FCP_QUERIES],
                         .unit = p->unit,
                         .coalesce = l->coalesce,
                         .buffers = g->buffers,
                         .margin = g->margin,
                         .deterministic = g->deterministic,
                         .mask_uses = mc_uses(g->mask),
                         .align = p->split ? g->align : FCP_BOTTOM_RIGHT,
                         .tokens = p->tokens,
                         .key_tokens = p->key_tokens,
                         .memory_cap = g->memory_cap,
                         .scale = g->scale};
    for (int pass = 0; pass < FCP_PASSES; pass++) out->passes |= (uint32_t)g->passes[pass] << pass;
}

static fcp_code lower_tiles(const lowering *l, arena *memory, fcp_plan *plan) {
    const problem *p = l->p;
    const schedule *s = l->s;
    fcp_tile *tiles = ARENA_NEW(memory, fcp_tile, p->tile_count + (size_t)1);
    if (!tiles) return FCP_E_NO_MEMORY;
    bool backward = p->program->passes[FCP_BACKWARD];
    for (uint32_t v = 0; v < s->visit_count; v++) {
        const fcp_visit *visit = &s->visits[v];
        for (uint32_t i = visit->first_tile; i < visit->first_tile + visit->tiles; i++) {
            uint32_t t = s->order[i], k = p->tile_k[t], f = l->t->tile_fetch[t], part = p->tile_part[t];
            bool home = f == FCP_NONE;
            tiles[i] = (fcp_tile){.q_block = visit->q_block, .k_block = k, .first_part = part,
                                  .parts = p->tile_part[t + 1] - part,
                                  .kv_slot = home ? l->slots->home_slot[k] : l->slots->fetch[f].kv,
                                  .dkv_slot = !backward ? FCP_NONE
                                              : home    ? l->slots->home_slot[k]
                                                        : l->slots->fetch[f].accumulator,
                                  .pairs = p->tile_pairs[t]};
        }
    }
    plan->tiles = tiles;
    plan->tiles_count = p->tile_count;
    plan->parts = p->parts;
    plan->parts_count = p->part_count;
    plan->visits = s->visits;
    plan->visits_count = s->visit_count;
    return FCP_OK;
}

/* Bytes and rounds of both passes. A fetch's KV moves once a pass, and its dKV once back. */
static fcp_code count_traffic(const lowering *l, const fcp_problem *fp, arena *scratch, fcp_summary *out) {
    const problem *p = l->p;
    const pass_schedule *ahead = &l->s->pass[FCP_FORWARD], *back = &l->s->pass[FCP_BACKWARD];
    uint64_t *sent = ARENA_ZNEW(scratch, uint64_t, p->ranks), *received = ARENA_ZNEW(scratch, uint64_t, p->ranks);
    uint64_t total = 0, net = 0, between[FCP_HOLDS_BOTH + 1] = {0}, send_max = 0, recv_max = 0;
    if (!sent || !received) return FCP_E_NO_MEMORY;
    for (uint32_t f = 0; f < l->t->count; f++) {
        const fetch *x = &l->t->fetches[f];
        uint64_t tokens = p->blocks[x->block].tokens;
        total += tokens;
        net += x->fabric == FCP_NET ? tokens : 0;
        sent[x->src] += tokens;
        received[x->dst] += tokens;
    }
    for (uint32_t r = 0; r < p->ranks; r++) {
        if (sent[r] > send_max) send_max = sent[r];
        if (received[r] > recv_max) recv_max = received[r];
    }
    for (uint32_t i = 0; i < l->r->count; i++) {
        const segment *s = &l->r->segments[i];
        if (s->caller != l->home[s->block]) between[p->blocks[s->block].holds] += s->tokens;
    }
    if (p->program->passes[FCP_FORWARD]) {
        uint64_t kv = fcp_class_bytes(fp, FCP_KV, FCP_FORWARD);
        out->bytes_total = total * kv;
        out->bytes_inter_node = net * kv;
        out->send_max = send_max * kv;
        out->recv_max = recv_max * kv;
        for (uint32_t holds = 1; holds <= FCP_HOLDS_BOTH; holds++)
            out->bytes_reshuffle += between[holds] * (fcp_held_bytes(fp, holds, FCP_IN, FCP_FORWARD) +
                                                      fcp_held_bytes(fp, holds, FCP_OUT, FCP_FORWARD));
        out->rounds = ahead->independent;
        out->rounds_lower_bound = ahead->independent; /* Delta: the colouring reaches it, the verifier counts it */
        out->rounds_dependent = ahead->dependent;
        out->rounds_reshuffle = ahead->in + ahead->out;
        out->stages = ahead->stages;
    }
    if (p->program->passes[FCP_BACKWARD]) {
        uint64_t both = fcp_class_bytes(fp, FCP_KV, FCP_BACKWARD) + fcp_class_bytes(fp, FCP_DKV, FCP_BACKWARD);
        out->backward_bytes_total = total * both;
        out->backward_bytes_inter_node = net * both;
        out->backward_rounds = back->independent;
        out->backward_rounds_dependent = back->dependent;
        out->backward_rounds_reshuffle = back->in + back->out;
        out->backward_stages = back->stages;
    }
    return FCP_OK;
}

uint64_t lower_memory_peak(const lowering *l, const fcp_problem *fp) {
    const slots *s = l->slots;
    uint64_t peak = 0;
    for (uint32_t r = 0; r < l->p->ranks; r++)
        for (int pass = 0; pass < FCP_PASSES; pass++) {
            if (!l->p->program->passes[pass]) continue;
            uint64_t bytes = fcp_rank_memory(fp, (fcp_pass)pass, s->home_tokens[FCP_QUERIES][r],
                                             s->home_tokens[FCP_KEYS][r], s->kv_count[r], s->state_count[r],
                                             s->dkv_count[r]);
            if (bytes > peak) peak = bytes;
        }
    return peak;
}

static fcp_code summarise(const lowering *l, const fcp_problem *fp, arena *scratch, fcp_summary *out) {
    const problem *p = l->p;
    const schedule *s = l->s;
    uint64_t *work = ARENA_ZNEW(scratch, uint64_t, p->ranks);
    if (!work) return FCP_E_NO_MEMORY;
    *out = (fcp_summary){.sequences = p->sequences, .blocks = p->block_count, .tiles = p->tile_count, .pairs = p->pairs,
                         .positions = p->positions, .pairs_max_block = p->heaviest};
    for (uint32_t b = 0; b < p->block_count; b++) work[l->home[b]] += p->work[b];
    for (uint32_t r = 0; r < p->ranks; r++) {
        if (work[r] > out->pairs_max_rank) out->pairs_max_rank = work[r];
        const uint64_t *q = &l->slots->home_tokens[FCP_QUERIES][r], *k = &l->slots->home_tokens[FCP_KEYS][r];
        if (*q > out->tokens_max_rank) out->tokens_max_rank = *q;
        if (*k > out->key_tokens_max_rank) out->key_tokens_max_rank = *k;
        if (p->program->passes[FCP_FORWARD] && l->slots->kv_count[r] > out->slots_max)
            out->slots_max = l->slots->kv_count[r];
        uint64_t both = (uint64_t)l->slots->kv_count[r] + l->slots->dkv_count[r];
        if (p->program->passes[FCP_BACKWARD] && both > out->backward_slots_max) out->backward_slots_max = both;
    }
    uint64_t state = fcp_class_bytes(fp, FCP_STATE, FCP_FORWARD);
    for (uint32_t v = 0; p->program->passes[FCP_FORWARD] && v < s->visit_count; v++) {
        const fcp_visit *x = &s->visits[v];
        uint64_t bytes = p->blocks[x->q_block].tokens * state;
        out->state_bytes += (x->flags & FCP_VISIT_FIRST ? 0 : bytes) + (x->flags & FCP_VISIT_LAST ? 0 : bytes);
    }
    out->memory_peak_bytes = lower_memory_peak(l, fp);
    return count_traffic(l, fp, scratch, out);
}

fcp_code lower(const lowering *l, arena *memory, arena *scratch, fcp_plan *plan) {
    const problem *p = l->p;
    const struct fcpc_program *g = p->program;
    uint32_t ranks = p->ranks;
    size_t segments = l->r->count, rounds = 0, room = 0;
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        if (!g->passes[pass]) continue;
        rounds += l->s->pass[pass].round_count;
        room += 2 * (size_t)l->s->pass[pass].move_count + 2 * segments;
    }
    size_t most = 2 * room + 2 * FCP_PASSES * (size_t)(l->s->visit_count + l->t->count) + 16 * (size_t)ranks;
    if (most > UINT32_MAX / 2 || rounds >= UINT32_MAX / 4) return FCP_E_PLAN_SIZE;

    emitter e = {.l = l, .memory = memory, .scratch = scratch, .plan = plan};
    e.transfers = ARENA_NEW(memory, fcp_transfer, room + 1);
    e.instrs = ARENA_NEW(memory, fcp_instr, most);
    e.streams = ARENA_ZNEW(memory, fcp_stream, (size_t)FCP_PASSES * ranks * FCP_QUEUES);
    e.side_of = ARENA_NEW(scratch, uint32_t, room + 1);
    e.begin = ARENA_NEW(scratch, uint32_t, ranks);
    e.copies = ARENA_NEW(scratch, uint32_t, ranks);
    e.copies_out = ARENA_NEW(scratch, uint32_t, ranks);
    e.sides = ARENA_NEW(scratch, uint32_t, ranks);
    e.at = ARENA_NEW(scratch, uint32_t, ranks);
    e.reduce_start = ARENA_NEW(scratch, uint32_t, ranks + (size_t)1);
    e.reduce = ARENA_NEW(scratch, uint32_t, l->t->count + (size_t)1);
    fcp_problem *problem_out = ARENA_ZNEW(memory, fcp_problem, 1);
    fcp_summary *summary = ARENA_ZNEW(memory, fcp_summary, 1);
    fcp_cluster *cluster = ARENA_ZNEW(memory, fcp_cluster, 1);
    fcp_sequence *sequences = ARENA_NEW(memory, fcp_sequence, p->sequences);
    fcp_shape_rec *shapes = ARENA_NEW(memory, fcp_shape_rec, p->shape_count + (size_t)1);
    fcp_run *runs = ARENA_NEW(memory, fcp_run, p->run_count + (size_t)1);
    fcp_round *all_rounds = ARENA_NEW(memory, fcp_round, rounds + 1);
    uint32_t *round_starts = ARENA_ZNEW(memory, uint32_t, FCP_PASSES + 1);
    mc_node *mask = ARENA_NEW(memory, mc_node, g->mask.count);
    size_t source_size = strlen(g->plan_source);
    char *source = arena_copy(memory, g->plan_source, source_size);
    if (!e.transfers || !e.instrs || !e.streams || !e.side_of || !e.begin || !e.copies || !e.copies_out || !e.sides ||
        !e.at || !e.reduce_start || !e.reduce || !problem_out || !summary || !cluster || !sequences || !shapes ||
        !runs || !all_rounds || !round_starts || !mask || !source)
        return FCP_E_NO_MEMORY;

    for (uint32_t b = 0; b < p->block_count; b++) {
        p->blocks[b].home = l->home[b];
        p->blocks[b].home_slot = l->slots->home_slot[b];
    }
    for (uint32_t s = 0; s < p->sequences; s++)
        sequences[s] = (fcp_sequence){p->queries[s], p->lengths[s], problem_q_first(p, s)};
    if (p->shape_count) memcpy(shapes, p->shapes, p->shape_count * sizeof *shapes);
    if (p->run_count) memcpy(runs, p->runs, p->run_count * sizeof *runs);
    memcpy(mask, g->mask.nodes, g->mask.count * sizeof *mask);
    *cluster = g->cluster;
    lower_problem(l, problem_out);
    fcp_code code = lower_tiles(l, memory, plan);
    for (int pass = 0; !code && pass < FCP_PASSES; pass++) {
        const pass_schedule *ps = &l->s->pass[pass];
        round_starts[pass + 1] = round_starts[pass];
        if (!g->passes[pass]) { /* streams stay empty, and where the next ones begin */
            for (size_t i = 0; i < (size_t)ranks * FCP_QUEUES; i++)
                e.streams[(size_t)pass * ranks * FCP_QUEUES + i].first = (uint32_t)e.instr_count;
            continue;
        }
        if (ps->round_count) memcpy(all_rounds + round_starts[pass], ps->rounds, ps->round_count * sizeof *all_rounds);
        round_starts[pass + 1] += ps->round_count;
        code = emit_pass(&e, (fcp_pass)pass);
    }
    if (!code) code = summarise(l, problem_out, scratch, summary);
    if (code) return code;

#define TABLE(member, records, number)                                                                                 \
    plan->member = records;                                                                                            \
    plan->member##_count = number
    TABLE(source, source, source_size);
    TABLE(problem, problem_out, 1);
    TABLE(cluster, cluster, 1);
    TABLE(summary, summary, 1);
    TABLE(sequences, sequences, p->sequences);
    TABLE(pieces, p->pieces, p->piece_count);
    TABLE(blocks, p->blocks, p->block_count);
    TABLE(shapes, shapes, p->shape_count);
    TABLE(runs, runs, p->run_count);
    TABLE(rounds, all_rounds, round_starts[FCP_PASSES]);
    TABLE(round_starts, round_starts, FCP_PASSES + 1);
    TABLE(streams, e.streams, (uint64_t)FCP_PASSES * ranks * FCP_QUEUES);
    TABLE(instrs, e.instrs, e.instr_count);
    TABLE(transfers, e.transfers, e.transfer_count);
    TABLE(layout_starts, l->r->starts[FCP_QUERIES], ranks + (uint64_t)1);
    TABLE(layout, l->r->spans[FCP_QUERIES], l->r->starts[FCP_QUERIES][ranks]);
    if (p->split) {
        TABLE(key_layout_starts, l->r->starts[FCP_KEYS], ranks + (uint64_t)1);
        TABLE(key_layout, l->r->spans[FCP_KEYS], l->r->starts[FCP_KEYS][ranks]);
    }
    TABLE(mask, mask, g->mask.count);
#undef TABLE
    return lower_data(p, memory, plan);
}
