/* cost_model.c: computes how long one instruction or transfer takes if nothing else runs.
 *
 * Attention (ATTEND) is priced by a roofline:
 *
 *   time    = launch + max(compute, bytes / bandwidth of the memory)
 *   compute = (FULL cells * full + PARTIAL cells * partial + row items * row) * sms / (sms - margin)
 *
 * A row item is 128 queries of a head. full, partial, row and launch are constants of the profile. The margin is the
 * number of SMs that attention leaves to communication. A small launch does not fill the device: if it has fewer than
 * FOUR_WAVES waves of thread blocks, each wave that has begun counts as a whole one. This rule is assumed.
 *
 * A transfer takes the latency, and then its bytes at the rate of its link. Over net that rate is at most what the SMs
 * of the margin can move, if the profile says how much that is. If there are two fabrics, half of these SMs serve net.
 * A margin of 0 counts as one SM.
 *
 * Everything else (COPY, DELTA, REDUCE, MERGE, ...) moves memory: it takes a small launch, and its bytes over the
 * memory's bandwidth.
 *
 * Source: the form of the attention model was fitted to published throughputs; see the profiles.
 */
#include "compiler/simulate/cost_model.h"
#include "runtime/plan/bytes.h"
#include "runtime/plan/head_ranges.h"
#include "runtime/plan/plan_summary.h"

#include <string.h>

#include "compiler/simulate/margin.h"
#include "runtime/plan/fabrics.h"

enum { FOUR_WAVES = 4 };

uint64_t sim_model_time(uint64_t bytes, uint64_t rate) {
    if (bytes <= UINT64_MAX / SIM_SECOND && rate) { /* the usual case: 64 bits are enough, which is much faster */
        uint64_t work = bytes * SIM_SECOND;
        return work / rate + (work % rate != 0);
    }
    unsigned __int128 time = ((unsigned __int128)bytes * SIM_SECOND + rate - 1) / (rate ? rate : 1);
    return time >> 64 ? UINT64_MAX : (uint64_t)time;
}

uint32_t sim_model_drawn(uint64_t seed, uint64_t number) {
    uint64_t x = seed * UINT64_C(0x9e3779b97f4a7c15) + number;
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)(x >> 32);
}

static uint64_t noisy(const sim_model *m, uint64_t time, uint64_t number) {
    if (!m->noise) return time;
    return time + (uint64_t)((unsigned __int128)time * m->noise * sim_model_drawn(m->seed, number) / 1000 >> 32);
}

/* What a launch computes. */
typedef struct cell_counts {
    uint64_t full, partial, rows; /* rows: row items, 128 queries of a head each */
} cell_counts;

uint64_t sim_model_waves(uint64_t items, uint64_t share) {
    return items < FOUR_WAVES * share ? (items + share - 1) / share * share : items;
}

/* The longest time of an instruction that is represented; simulate() refuses plans that take so long. */
#define LONGEST (UINT64_C(1) << 60)
static uint64_t at_most(unsigned __int128 time) { return time < LONGEST ? (uint64_t)time : LONGEST; }

/* Returns the time of an ATTEND launch, as in the head comment. time: what its cells and rows take on the whole device,
 * with no margin. items: its thread blocks. bytes: what it moves between the memory and the SMs. */
static uint64_t launched(const sim_model *m, uint64_t time, uint64_t items, uint64_t bytes) {
    const uint64_t share = m->sms - m->margin;
    time = at_most((unsigned __int128)time * m->sms / share);
    if (items) time = at_most((unsigned __int128)time * sim_model_waves(items, share) / items);
    uint64_t moved = at_most(sim_model_time(bytes, m->hbm));
    return at_most((unsigned __int128)m->kernel.at[SIM_LAUNCH] + (time > moved ? time : moved));
}

bool sim_count_shapes(sim_counts *c, const fcp_shape_rec *shapes, uint64_t count, const fcp_run *runs) {
    if (c->of) return true;
    c->of = ARENA_ZNEW(&c->memory, sim_cells, count + 1);
    for (uint64_t s = 0; c->of && s < count; s++)
        for (const fcp_run *r = runs + shapes[s].first_run; r < runs + shapes[s].first_run + shapes[s].runs; r++)
            *(r->cls == FCP_CELL_FULL ? &c->of[s].full : &c->of[s].partial) += r->count;
    return c->of;
}

static const sim_cells *count_shapes(const fcp_plan *plan, sim_counts *c) {
    return sim_count_shapes(c, plan->shapes, plan->shapes_count, plan->runs) ? c->of : NULL;
}

/* Adds the cells of a part, over the heads of its range. */
static void add_cells(const fcp_plan *plan, const sim_cells *shapes, const fcp_part *part, uint32_t range,
                      cell_counts *sum) {
    for (uint32_t c = 0; c < fcp_class_count(plan, range); c++) {
        const uint64_t heads = fcp_class_size(plan, range, c);
        sum->full += shapes[part->shape + c].full * heads;
        sum->partial += shapes[part->shape + c].partial * heads;
    }
}

/* Counts what one launch computes, for tiles [first, end): all query heads of their blocks, and each row of cells once.
 * `seen` has, for each piece, the number of the launch that counted its rows last; this launch is `number`. */
static cell_counts count_tiles(const fcp_plan *plan, const sim_cells *shapes, uint32_t first, uint32_t end,
                               uint64_t *seen, uint64_t number) {
    const uint64_t heads = (uint64_t)plan->problem->range_kv * plan->problem->range_sub;
    cell_counts sum = {0};
    for (uint32_t t = first; t < end; t++)
        for (const fcp_part *part = &plan->parts[plan->tiles[t].first_part];
             part < &plan->parts[plan->tiles[t].first_part + plan->tiles[t].parts]; part++) {
            add_cells(plan, shapes, part, plan->blocks[plan->tiles[t].q_block].heads, &sum);
            if (seen[part->q_piece] == number) continue;
            seen[part->q_piece] = number;
            sum.rows += (plan->pieces[part->q_piece].length + FCP_CELL - 1) / FCP_CELL * heads;
        }
    return sum;
}

static uint64_t cells_time(const sim_model *m, const cell_counts *c) {
    unsigned __int128 time =
        (unsigned __int128)c->full * m->kernel.at[SIM_FULL] + (unsigned __int128)c->partial * m->kernel.at[SIM_PARTIAL];
    return at_most(time + (unsigned __int128)c->rows * m->kernel.at[SIM_ROW]);
}

/* The least number of bytes that a visit moves between the device's memory and its SMs: its queries' tensors and state
 * once, and the keys of each tile once. */
static uint64_t memory_bytes(const sim_model *m, uint32_t q_block, uint64_t keys, bool first, bool last) {
    const uint64_t *slot = m->slot, tokens = m->plan->blocks[q_block].tokens;
    if (m->pass == FCP_BACKWARD)
        return tokens * (slot[FCP_Q] + 2 * slot[FCP_DQ]) + keys * (slot[FCP_KV] + 2 * slot[FCP_DKV]);
    return tokens * (slot[FCP_Q] + (first ? 0 : slot[FCP_STATE]) + slot[last ? FCP_O : FCP_STATE]) +
           keys * slot[FCP_KV];
}

static uint64_t visit_bytes(const sim_model *m, const fcp_visit *v) {
    const fcp_plan *plan = m->plan;
    uint64_t keys = 0;
    for (uint32_t t = v->first_tile; t < v->first_tile + v->tiles; t++)
        keys += plan->blocks[plan->tiles[t].k_block].tokens;
    return memory_bytes(m, v->q_block, keys, v->flags & FCP_VISIT_FIRST, v->flags & FCP_VISIT_LAST);
}

/* The bytes that one tile of a visit moves, if that tile is a launch of its own. */
static uint64_t tile_bytes(const sim_model *m, const fcp_visit *v, uint32_t t) {
    bool first = t == v->first_tile && v->flags & FCP_VISIT_FIRST,
         last = t + 1 == v->first_tile + v->tiles && v->flags & FCP_VISIT_LAST;
    return memory_bytes(m, v->q_block, m->plan->blocks[m->plan->tiles[t].k_block].tokens, first, last);
}

void sim_model_share(sim_model *m, const fcp_problem *p, const fcp_cluster *c, const sim_profile *profile,
                     uint32_t margin) {
    const uint64_t moved = sim_margin_moves(margin, fcp_two_fabrics(p), profile);
    m->margin = p->ranks < 2 ? 0 : margin < m->sms ? margin : m->sms - 1;
    m->rate[FCP_NET] = moved < c->inter ? moved : c->inter;
}

void sim_model_device(const fcp_problem *p, const fcp_cluster *c, fcp_pass pass, const sim_profile *profile,
                      sim_model *out) {
    *out = (sim_model){
        .pass = pass, .kernel = sim_profile_kernel(profile, pass, p->head_dim, p->value_dim), .sms = profile->sms,
        .small = profile->small,
        .latency = {[FCP_NET] = c->latency_ns * 1000, [FCP_LOCAL] = c->latency_ns * 1000},
        .rate = {[FCP_LOCAL] = c->intra}, .hbm = c->memory_bandwidth,
        .apart = profile->queues == 2 && fcp_two_fabrics(p)};
    if (profile->local && profile->local < out->latency[FCP_LOCAL]) out->latency[FCP_LOCAL] = profile->local;
    sim_model_share(out, p, c, profile, p->margin);
    uint64_t whole = (uint64_t)p->gpus * c->inter;
    out->uplink =
        (uint64_t)((unsigned __int128)whole * 1000 / (c->oversubscription_milli ? c->oversubscription_milli : 1000));
    for (uint32_t holds = 0; holds <= FCP_HOLDS_BOTH; holds++)
        for (int cls = 0; cls < FCP_CLASSES; cls++)
            out->bytes[holds][cls] = fcp_held_bytes(p, holds, (fcp_class)cls, pass);
    for (int cls = 0; cls < FCP_CLASSES; cls++) out->slot[cls] = fcp_slot_bytes(p, (fcp_class)cls, pass);
    out->delta = fcp_range_heads(p) * (2 * (uint64_t)p->value_dim * fcp_dtype_size((fcp_dtype)p->dtype) +
                                       (p->lse_gradient ? 2 : 1) * sizeof(float));
}

static fcp_code price_visits(const fcp_plan *plan, fcp_pass pass, const sim_profile *profile,
                             const sim_options *options, arena *memory, sim_model *out) {
    const fcp_problem *p = plan->problem;
    sim_model_device(p, plan->cluster, pass, profile, out);
    out->plan = plan;
    out->noise = options ? options->noise : 0;
    out->seed = options ? options->seed : 0;
    out->single = options && options->without & SIM_WITHOUT_FUSION;
    sim_counts own = {.memory = *memory}, *counts = options && options->counts ? options->counts : &own;
    const sim_cells *shapes = count_shapes(plan, counts);
    if (counts == &own) *memory = own.memory;
    sim_visit *visits = ARENA_ZNEW(memory, sim_visit, plan->visits_count);
    uint64_t *tokens = ARENA_ZNEW(memory, uint64_t, plan->blocks_count + p->ranks);
    uint32_t *first = ARENA_ZNEW(memory, uint32_t, (size_t)p->ranks + 1);
    /* per piece: the last launch that counted its rows */
    uint64_t *seen = ARENA_ZNEW(memory, uint64_t, plan->pieces_count);
    fcp_code code = shapes && visits && tokens && first && seen ? FCP_OK : FCP_E_NO_MEMORY;
    for (uint64_t b = 0; !code && b < plan->blocks_count; b++) first[plan->blocks[b].home + 1]++;
    for (uint32_t r = 0; !code && r < p->ranks; r++) first[r + 1] += first[r] + 1; /* + 1: the sum of all */
    for (uint64_t b = 0; !code && b < plan->blocks_count; b++) {
        const fcp_block *x = &plan->blocks[b];
        tokens[first[x->home] + x->home_slot + 1] = x->holds & FCP_HOLDS_Q ? x->tokens : 0;
    }
    for (uint32_t r = 0; !code && r < p->ranks; r++)
        for (uint32_t n = first[r] + 1; n < first[r + 1]; n++) tokens[n] += tokens[n - 1];
    if (!code && fcp_bytes_off_rails(plan, pass)) out->rails = p->gpus;
    uint64_t launches = 0;
    for (uint64_t i = 0; !code && i < plan->visits_count; i++) {
        const fcp_visit *v = &plan->visits[i];
        const uint32_t last = v->first_tile + v->tiles;
        if (!out->single) {
            const cell_counts sum = count_tiles(plan, shapes, v->first_tile, last, seen, ++launches);
            visits[i] =
                (sim_visit){.time = cells_time(out, &sum), .items = sum.rows, .bytes = visit_bytes(out, v)};
        }
        for (uint32_t t = v->first_tile; out->single && t < last; t++) {
            const cell_counts sum = count_tiles(plan, shapes, t, t + 1, seen, ++launches);
            visits[i].time = at_most((unsigned __int128)visits[i].time +
                                     launched(out, cells_time(out, &sum), sum.rows, tile_bytes(out, v, t)));
        }
    }
    out->visits = visits;
    out->home_tokens = tokens;
    out->home_first = first;
    return code;
}

/* The time of rounding a partial result for the wire, and back. Each end needs a small launch, which converts between
 * slot and wire. */
static unsigned __int128 rounding_time(const sim_model *m, const fcp_transfer *t) {
    if (!fcp_is_rounded(m->plan, t)) return 0;
    const uint64_t slot = t->tokens * m->slot[t->cls];
    return 2 * ((unsigned __int128)m->small + sim_model_time(slot + sim_model_bytes(m, t), m->hbm));
}

/* A transfer that leaves its rail first goes to another GPU of its node, whose port sends it: the time of that hop. */
static uint64_t detour_time(const sim_model *m, uint32_t from, const fcp_transfer *t) {
    if (t->fabric != FCP_NET || sim_model_port(m, from, t->peer) == from) return 0;
    return m->latency[FCP_LOCAL] + sim_model_time(sim_model_bytes(m, t), m->rate[FCP_LOCAL]);
}

uint64_t sim_model_transfer(const sim_model *m, uint32_t from, uint32_t t, uint64_t rate) {
    const fcp_transfer *x = &m->plan->transfers[t];
    return noisy(m, at_most((unsigned __int128)m->latency[x->fabric] + rounding_time(m, x) + detour_time(m, from, x) +
                            sim_model_time(sim_model_bytes(m, x), rate)),
                 m->plan->instrs_count + t);
}

static uint64_t attend(const sim_model *m, const fcp_instr *x) {
    uint64_t time = 0, items = 0, bytes = 0;
    for (uint32_t v = x->a; v < x->a + x->b; v++) {
        time = at_most((unsigned __int128)time + m->visits[v].time);
        items += m->visits[v].items;
        bytes += m->visits[v].bytes;
    }
    return m->single ? time : launched(m, time, items, bytes);
}

uint64_t sim_model_copied(const sim_model *m, const fcp_instr *copy) {
    uint64_t bytes = 0;
    for (uint32_t t = copy->a; t < copy->a + copy->b; t++) bytes += sim_model_bytes(m, &m->plan->transfers[t]);
    return bytes;
}

/* What an instruction reads and writes of its block: classes, and how often. An addition reads two blocks and writes
 * one of them; a conversion reads one and writes another. */
static const struct touched {
    fcp_class from, into;
    uint64_t times;
} touches[FCP_OP_COUNT] = {[FCP_OP_REDUCE] = {FCP_DKV, FCP_DKV, 2},
                           [FCP_OP_MERGE] = {FCP_STATE, FCP_STATE, 2},
                           [FCP_OP_FINISH] = {FCP_STATE, FCP_O, 1},
                           [FCP_OP_REDUCE_Q] = {FCP_DQ, FCP_DQ, 2},
                           [FCP_OP_ROUND] = {FCP_DQ, FCP_DQW, 1}};

static uint64_t compute_time(const sim_model *m, uint32_t rank, uint32_t instr) {
    const fcp_instr *x = &m->plan->instrs[instr];
    const uint64_t *tokens = &m->home_tokens[m->home_first[rank]];
    const struct touched *t = &touches[x->op];
    uint64_t bytes = 0;
    switch (x->op) {
    case FCP_OP_WAIT: case FCP_OP_LAUNCH: return 0;
    case FCP_OP_ATTEND: return noisy(m, attend(m, x), instr);
    case FCP_OP_COPY: /* each byte is read and written */
        bytes = 2 * sim_model_copied(m, x);
        break;
    case FCP_OP_DELTA: bytes = (tokens[x->a + x->b] - tokens[x->a]) * m->delta; break;
    default:
        bytes = m->plan->blocks[x->a].tokens *
                (t->times * m->slot[t->from] + m->slot[t->into]);
    }
    return noisy(m, at_most((unsigned __int128)m->small + sim_model_time(bytes, m->hbm)), instr);
}

void sim_model_price(sim_model *m) {
    m->total = 0;
    for (uint32_t r = 0; r < m->plan->problem->ranks; r++) {
        const fcp_stream *s = fcp_stream_of(m->plan, m->pass, r, FCP_COMPUTE);
        for (uint32_t i = s->first; i < s->first + s->count; i++)
            m->total += m->computes[i] = compute_time(m, r, i);
    }
}

fcp_code sim_model_new(const fcp_plan *plan, fcp_pass pass, const sim_profile *profile, const sim_options *options,
                       arena *memory, sim_model *out) {
    fcp_code code = price_visits(plan, pass, profile, options, memory, out);
    out->computes = ARENA_NEW(memory, uint64_t, plan->instrs_count);
    if (!out->computes) return FCP_E_NO_MEMORY;
    if (!code) sim_model_price(out);
    return code;
}

fcp_code sim_model_count(const fcp_plan *plan, fcp_pass pass, uint32_t rank, uint64_t out[SIM_CONSTANT_COUNT]) {
    arena scratch = {0};
    sim_counts counts = {0};
    const sim_cells *shapes = count_shapes(plan, &counts);
    uint64_t *seen = ARENA_ZNEW(&scratch, uint64_t, plan->pieces_count), visit = 0;
    const fcp_stream *s = fcp_stream_of(plan, pass, rank, FCP_COMPUTE);
    const fcp_code code = shapes && seen ? FCP_OK : FCP_E_NO_MEMORY;
    memset(out, 0, SIM_CONSTANT_COUNT * sizeof *out);
    for (uint32_t i = s->first; !code && i < s->first + s->count; i++) {
        const fcp_instr *x = &plan->instrs[i];
        if (x->op != FCP_OP_ATTEND) continue;
        out[SIM_LAUNCH]++;
        for (const fcp_visit *v = &plan->visits[x->a]; v < &plan->visits[x->a + x->b]; v++) {
            const cell_counts sum = count_tiles(plan, shapes, v->first_tile, v->first_tile + v->tiles, seen, ++visit);
            out[SIM_FULL] += sum.full;
            out[SIM_PARTIAL] += sum.partial;
            out[SIM_ROW] += sum.rows;
        }
    }
    arena_free(&scratch);
    arena_free(&counts.memory);
    return code;
}
