/* totals.c: the figures of a plan: its problem record, its memory, its summary.
 *
 * Requires: all that the passes made. Gives: numbers that the verifier counts again from the tables.
 * Cost: linear in tiles, fetches, bundles, visits and ranks.
 */
#include "compiler/lower/lower.h"

void lower_problem(const planning *x, fcp_problem *out) {
    const problem *p = x->problem;
    const struct fcpc_program *g = p->program;
    *out = (fcp_problem){.ranks = p->ranks,
                         .nodes = g->nodes,
                         .gpus = g->gpus,
                         .heads = g->heads,
                         .kv_heads = g->kv_heads,
                         .head_dim = g->head_dim,
                         .range_kv = g->kv_heads,
                         .range_sub = g->heads / g->kv_heads,
                         .dtype = g->dtype,
                         .layout = g->layout,
                         .layout_group = program_layout_group(g),
                         .strategy = g->strategy,
                         .topology = g->topology,
                         .block = p->block,
                         .max_block = p->max_block[FCP_KEYS],
                         .max_q_block = p->max_block[FCP_QUERIES],
                         .unit = p->unit,
                         .coalesce = x->coalesce,
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

/* Who talks to whom, and how much: per pass the most units that one rank sends, or receives, on one fabric; and the most
 * other ranks that one rank talks to. */
static fcp_code count_units(planning *x, const fcp_plan *plan, uint64_t out_bound[FCP_PASSES], uint64_t *out_peers) {
    uint32_t ranks = x->problem->ranks, *met = ARENA_ZNEW(&x->scratch, uint32_t, ranks); /* by which rank last, + 1 */
    if (!met) return FCP_E_NO_MEMORY;
    for (uint32_t r = 0; r < ranks; r++) {
        uint64_t peers = 0;
        for (int pass = 0; pass < FCP_PASSES; pass++) {
            uint64_t units[FCP_DIRECTION_COUNT][FCP_FABRICS] = {{0}};
            const fcp_stream *queue = &plan->streams[((size_t)pass * ranks + r) * FCP_QUEUES + FCP_COMM];
            for (uint32_t i = queue->first; i < queue->first + queue->count; i++) {
                const fcp_instr *launch = &plan->instrs[i];
                if (launch->op != FCP_OP_LAUNCH) continue;
                for (const fcp_transfer *t = plan->transfers + launch->a, *end = t + launch->b; t < end; t++) {
                    units[t->dir][t->fabric] += t->cls != FCP_IN && t->cls != FCP_OUT;
                    peers += met[t->peer] != r + 1;
                    met[t->peer] = r + 1;
                }
            }
            for (int dir = 0; dir < FCP_DIRECTION_COUNT; dir++)
                for (int fabric = 0; fabric < FCP_FABRICS; fabric++)
                    if (units[dir][fabric] > out_bound[pass]) out_bound[pass] = units[dir][fabric];
        }
        if (peers > *out_peers) *out_peers = peers;
    }
    return FCP_OK;
}

/* Counts bytes and rounds of both passes. The KV of a fetch moves once in each pass, and its dKV once back. */
static fcp_code count_traffic(planning *x, const fcp_problem *fp, fcp_summary *out) {
    const problem *p = x->problem;
    const traffic *t = x->traffic;
    arena *scratch = &x->scratch;
    const pass_schedule *ahead = &x->schedule->pass[FCP_FORWARD], *back = &x->schedule->pass[FCP_BACKWARD];
    uint64_t *sent = ARENA_ZNEW(scratch, uint64_t, p->ranks), *received = ARENA_ZNEW(scratch, uint64_t, p->ranks);
    uint64_t total = 0, net = 0, between[FCP_HOLDS_BOTH + 1] = {0}, send_max = 0, recv_max = 0;
    if (!sent || !received) return FCP_E_NO_MEMORY;
    for (uint32_t f = 0; f < t->count; f++) {
        const fetch *of = &t->fetches[f];
        uint64_t tokens = p->blocks[of->block].tokens;
        total += tokens;
        net += of->fabric == FCP_NET ? tokens : 0;
        sent[of->src] += tokens;
        received[of->dst] += tokens;
    }
    for (uint32_t r = 0; r < p->ranks; r++) {
        if (sent[r] > send_max) send_max = sent[r];
        if (received[r] > recv_max) recv_max = received[r];
    }
    for (uint32_t i = 0; i < x->reshuffle->count; i++) {
        const bundle *b = &x->reshuffle->bundles[i];
        if (b->caller != b->home) between[p->split ? 1u << b->side : FCP_HOLDS_BOTH] += b->tokens;
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
        out->rounds_lower_bound = ahead->independent; /* the colouring reaches Delta; the verifier counts it again */
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

uint64_t lower_memory_peak(const planning *x, const fcp_problem *fp) {
    const slots *s = x->slots;
    uint64_t peak = 0;
    for (uint32_t r = 0; r < x->problem->ranks; r++)
        for (int pass = 0; pass < FCP_PASSES; pass++) {
            if (!x->program->passes[pass]) continue;
            const uint64_t transient[FCP_CLASSES] = {
                [FCP_KV] = s->kv_count[r], [FCP_STATE] = s->state_count[r], [FCP_DKV] = s->dkv_count[r]};
            uint64_t bytes = fcp_rank_memory(fp, (fcp_pass)pass, s->home_tokens[FCP_QUERIES][r],
                                             s->home_tokens[FCP_KEYS][r], transient);
            if (bytes > peak) peak = bytes;
        }
    return peak;
}

fcp_code lower_summary(planning *x, const fcp_problem *fp, const fcp_plan *plan, fcp_summary *out) {
    const problem *p = x->problem;
    const schedule *s = x->schedule;
    uint64_t *work = ARENA_ZNEW(&x->scratch, uint64_t, p->ranks);
    if (!work) return FCP_E_NO_MEMORY;
    *out = (fcp_summary){.sequences = p->sequences, .blocks = p->block_count, .tiles = p->tile_count, .pairs = p->pairs,
                         .positions = p->positions, .pairs_max_block = p->heaviest};
    for (uint32_t t = 0; t < p->tile_count; t++) work[placement_exec(x->placement, t)] += p->tile_pairs[t];
    for (uint32_t r = 0; r < p->ranks; r++) {
        if (work[r] > out->pairs_max_rank) out->pairs_max_rank = work[r];
        const uint64_t *q = &x->slots->home_tokens[FCP_QUERIES][r], *k = &x->slots->home_tokens[FCP_KEYS][r];
        if (*q > out->tokens_max_rank) out->tokens_max_rank = *q;
        if (*k > out->key_tokens_max_rank) out->key_tokens_max_rank = *k;
        if (p->program->passes[FCP_FORWARD] && x->slots->kv_count[r] > out->slots_max)
            out->slots_max = x->slots->kv_count[r];
        uint64_t both = (uint64_t)x->slots->kv_count[r] + x->slots->dkv_count[r];
        if (p->program->passes[FCP_BACKWARD] && both > out->backward_slots_max) out->backward_slots_max = both;
    }
    uint64_t state = fcp_class_bytes(fp, FCP_STATE, FCP_FORWARD);
    for (uint32_t v = 0; p->program->passes[FCP_FORWARD] && v < s->visit_count; v++) {
        const fcp_visit *w = &s->visits[v];
        uint64_t bytes = p->blocks[w->q_block].tokens * state;
        out->state_bytes += (w->flags & FCP_VISIT_FIRST ? 0 : bytes) + (w->flags & FCP_VISIT_LAST ? 0 : bytes);
    }
    out->memory_peak_bytes = lower_memory_peak(x, fp);
    uint64_t bound[FCP_PASSES] = {0};
    fcp_code code = count_units(x, plan, bound, &out->peers_max);
    out->rounds_bound = bound[FCP_FORWARD];
    out->backward_rounds_bound = bound[FCP_BACKWARD];
    return code ? code : count_traffic(x, fp, out);
}
