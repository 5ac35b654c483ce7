/* model.c: what one instruction or transfer takes, all by itself.
 *
 * Attention. Its time follows the cells: a FULL cell of one head costs `full`, a PARTIAL one `partial`, a row item (128
 * queries of a head) `row`, a launch `launch`. It is never less than its bytes over the memory's bandwidth. A small launch
 * does not fill the device: below FOUR_WAVES waves of thread blocks, waves count as whole ones. That rule is assumed; the
 * constants are the profile's.
 *
 * Communication. A transfer takes the latency and then its bytes at the rate of its wire.
 *
 * Everything else (COPY, DELTA, REDUCE) moves memory: a launch, and its bytes over the memory's bandwidth.
 *
 * Source: the form of the attention model is fitted in the project's notes to published throughputs; see the profiles.
 */
#include "compiler/simulate/model.h"

enum { FOUR_WAVES = 4 };

uint64_t sim_model_time(uint64_t bytes, uint64_t rate) {
    unsigned __int128 time = ((unsigned __int128)bytes * SIM_SECOND + rate - 1) / (rate ? rate : 1);
    return time >> 64 ? UINT64_MAX : (uint64_t)time;
}

/* A number below 2^32 that looks drawn, the same for the same seed and number. */
static uint32_t drawn(uint64_t seed, uint64_t number) {
    uint64_t x = seed * UINT64_C(0x9e3779b97f4a7c15) + number;
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)(x >> 32);
}

static uint64_t noisy(const sim_model *m, uint64_t time, uint64_t number) {
    if (!m->noise) return time;
    return time + (uint64_t)((unsigned __int128)time * m->noise * drawn(m->seed, number) / 1000 >> 32);
}

/* Cells of each class in each shape, over its runs. */
typedef struct cell_counts {
    uint64_t full, partial;
} cell_counts;

static cell_counts *count_shapes(const fcp_plan *plan, arena *scratch) {
    cell_counts *counts = ARENA_ZNEW(scratch, cell_counts, plan->shapes_count);
    for (uint64_t s = 0; counts && s < plan->shapes_count; s++)
        for (uint32_t r = plan->shapes[s].first_run; r < plan->shapes[s].first_run + plan->shapes[s].runs; r++)
            *(plan->runs[r].cls == FCP_CELL_FULL ? &counts[s].full : &counts[s].partial) += plan->runs[r].count;
    return counts;
}

/* Bytes that a visit moves between the device's memory and its multiprocessors at least: its queries' tensors and state
 * once, and the keys of each tile once. */
static uint64_t visit_bytes(const fcp_plan *plan, fcp_pass pass, const fcp_visit *v) {
    const fcp_problem *p = plan->problem;
    uint64_t q = fcp_class_bytes(p, FCP_Q, FCP_FORWARD), kv = fcp_class_bytes(p, FCP_KV, FCP_FORWARD);
    uint64_t state = fcp_class_bytes(p, FCP_STATE, FCP_FORWARD), dkv = fcp_class_bytes(p, FCP_DKV, FCP_FORWARD);
    uint64_t tokens = plan->blocks[v->q_block].tokens, keys = 0;
    for (uint32_t t = v->first_tile; t < v->first_tile + v->tiles; t++) keys += plan->blocks[plan->tiles[t].k_block].tokens;
    if (pass == FCP_BACKWARD) return tokens * (2 * q + 2 * (uint64_t)p->heads * p->head_dim * 4) + keys * (kv + 2 * dkv);
    bool first = v->flags & FCP_VISIT_FIRST, last = v->flags & FCP_VISIT_LAST;
    return tokens * (q + (first ? 0 : state) + (last ? q + (uint64_t)p->heads * 4 : state)) + keys * kv;
}

fcp_code sim_model_new(const fcp_plan *plan, fcp_pass pass, const sim_profile *profile, const sim_options *options, arena *memory,
                       sim_model *out) {
    const fcp_problem *p = plan->problem;
    const fcp_cluster *c = plan->cluster;
    bool moves = p->ranks > 1; /* only then attention leaves `margin` to communication */
    *out = (sim_model){
        .plan = plan, .pass = pass, .kernel = sim_profile_kernel(profile, pass, p->head_dim), .sms = profile->sms,
        .margin = moves ? p->margin : 0, .small = profile->small, .latency = c->latency_ns * 1000,
        .rate = {[FCP_NET] = c->inter, [FCP_LOCAL] = c->intra}, .hbm = c->memory_bandwidth,
        .noise = options ? options->noise : 0, .seed = options ? options->noise_seed : 0};
    if (out->margin >= out->sms) out->margin = out->sms - 1;
    uint64_t whole = (uint64_t)p->gpus * c->inter;
    out->uplink = (uint64_t)((unsigned __int128)whole * 1000 / (c->oversubscription_milli ? c->oversubscription_milli : 1000));
    arena scratch = {0};
    cell_counts *shapes = count_shapes(plan, &scratch);
    sim_visit *visits = ARENA_NEW(memory, sim_visit, plan->visits_count);
    uint64_t *tokens = ARENA_ZNEW(memory, uint64_t, p->ranks);
    uint64_t *seen = ARENA_ZNEW(&scratch, uint64_t, plan->pieces_count); /* per piece: 1 + the visit that counted its rows */
    fcp_code code = shapes && visits && tokens && seen ? FCP_OK : FCP_E_NO_MEMORY;
    for (uint64_t b = 0; !code && b < plan->blocks_count; b++)
        if (plan->blocks[b].holds & FCP_HOLDS_Q) tokens[plan->blocks[b].home] += plan->blocks[b].tokens;
    for (uint64_t i = 0; !code && i < plan->visits_count; i++) {
        const fcp_visit *v = &plan->visits[i];
        uint64_t full = 0, partial = 0, rows = 0;
        for (uint32_t t = v->first_tile; t < v->first_tile + v->tiles; t++)
            for (uint32_t x = plan->tiles[t].first_part; x < plan->tiles[t].first_part + plan->tiles[t].parts; x++) {
                const fcp_part *part = &plan->parts[x];
                full += shapes[part->shape].full;
                partial += shapes[part->shape].partial;
                if (seen[part->q_piece] == i + 1) continue;
                seen[part->q_piece] = i + 1;
                rows += (plan->pieces[part->q_piece].length + FCP_CELL - 1) / FCP_CELL;
            }
        visits[i] = (sim_visit){
            .time = (full * out->kernel.full + partial * out->kernel.partial + rows * out->kernel.row) * p->heads,
            .items = rows * p->heads, .bytes = visit_bytes(plan, pass, v)};
    }
    arena_free(&scratch);
    out->visits = visits;
    out->home_tokens = tokens;
    return code;
}

uint64_t sim_model_bytes(const sim_model *m, const fcp_transfer *t) {
    return t->tokens * fcp_held_bytes(m->plan->problem, fcp_moved_holds(m->plan, t), (fcp_class)t->cls, m->pass);
}

uint64_t sim_model_transfer(const sim_model *m, uint32_t t, uint64_t rate) {
    uint64_t bytes = sim_model_bytes(m, &m->plan->transfers[t]);
    return noisy(m, m->latency + sim_model_time(bytes, rate), m->plan->instrs_count + t);
}

static uint64_t attend(const sim_model *m, const fcp_instr *x) {
    uint64_t time = 0, items = 0, bytes = 0, share = m->sms - m->margin;
    for (uint32_t v = x->a; v < x->a + x->b; v++) {
        time += m->visits[v].time;
        items += m->visits[v].items;
        bytes += m->visits[v].bytes;
    }
    time = (uint64_t)((unsigned __int128)time * m->sms / share);
    if (items && items < FOUR_WAVES * share)
        time = (uint64_t)((unsigned __int128)time * ((items + share - 1) / share * share) / items);
    uint64_t moved = sim_model_time(bytes, m->hbm);
    return m->kernel.launch + (time > moved ? time : moved);
}

uint64_t sim_model_compute(const sim_model *m, uint32_t rank, uint32_t instr) {
    const fcp_instr *x = &m->plan->instrs[instr];
    const fcp_problem *p = m->plan->problem;
    uint64_t bytes = 0;
    switch (x->op) {
    case FCP_OP_ATTEND:
        return noisy(m, attend(m, x), instr);
    case FCP_OP_COPY: /* each byte is read and written */
        for (uint32_t t = x->a; t < x->a + x->b; t++) bytes += 2 * sim_model_bytes(m, &m->plan->transfers[t]);
        break;
    case FCP_OP_DELTA: /* reads O and dO, writes a float a head */
        bytes = m->home_tokens[rank] * (2 * fcp_class_bytes(p, FCP_Q, m->pass) + (uint64_t)p->heads * 4);
        break;
    case FCP_OP_REDUCE: /* two are read, one is written */
        bytes = 3 * m->plan->blocks[x->a].tokens * fcp_class_bytes(p, FCP_DKV, m->pass);
        break;
    default: return 0;
    }
    return noisy(m, m->small + sim_model_time(bytes, m->hbm), instr);
}
