/* totals.c: counts the figures of a plan's summary: memory, bytes, rounds, peers.
 *
 * Requires: all that the passes made.
 * Gives: numbers that the verifier counts again from the plan's tables.
 * Cost: linear in tiles, hops, bundles, visits and ranks.
 */
#include <string.h>

#include "compiler/lower/lower.h"
#include "runtime/base/saturate.h"
#include "runtime/plan/bytes.h"

/* Counts the most other ranks that one rank exchanges tokens with, along hops or bundles. */
static fcp_code count_peers(planning *x, uint64_t *out_peers) {
    const traffic *t = x->traffic;
    const reshuffle *moved = x->reshuffle;
    uint32_t ranks = x->problem->ranks, *end = ARENA_ZNEW(&x->scratch, uint32_t, ranks + (size_t)1);
    uint32_t *met = ARENA_ZNEW(&x->scratch, uint32_t, ranks); /* per rank: the last that counted it as a peer, + 1 */
    uint32_t *peers = ARENA_NEW(&x->scratch, uint32_t, 2 * ((size_t)t->count + moved->count) + 1); /* by rank */
    if (!end || !met || !peers) return FCP_E_NO_MEMORY;
    for (uint32_t f = 0; f < t->count; f++) end[t->hops[f].src]++, end[t->hops[f].dst]++;
    for (uint32_t i = 0; i < moved->count; i++) end[moved->bundles[i].caller]++, end[moved->bundles[i].home]++;
    for (uint32_t r = 1; r <= ranks; r++) end[r] += end[r - 1];
    for (uint32_t f = 0; f < t->count; f++) {
        const hop *h = &t->hops[f];
        peers[--end[h->src]] = h->dst;
        peers[--end[h->dst]] = h->src;
    }
    for (uint32_t i = 0; i < moved->count; i++) {
        const bundle *b = &moved->bundles[i];
        peers[--end[b->caller]] = b->home;
        peers[--end[b->home]] = b->caller;
    }
    for (uint32_t r = 0; r < ranks; r++) { /* what was its end is now where it begins */
        uint64_t count = 0;
        met[r] = r + 1; /* a bundle may stay where it is */
        for (uint32_t i = end[r]; i < end[r + 1]; i++) {
            count += met[peers[i]] != r + 1;
            met[peers[i]] = r + 1;
        }
        if (count > *out_peers) *out_peers = count;
    }
    return FCP_OK;
}

/* The bytes that move between ranks in a pass, without the reshuffle. */
typedef struct moved {
    uint64_t total, net, of_q, send_max, recv_max;
    uint64_t bound; /* the most units that one rank sends, or receives, on one fabric */
} moved;

/* How many units a rank sends and receives on each fabric. */
typedef uint32_t rank_units[FCP_DIRECTION_COUNT][FCP_FABRICS];

static uint64_t most_units(const rank_units *kv, const rank_units *q, uint32_t ranks, fcp_pass pass) {
    uint64_t most = 0;
    for (uint32_t r = 0; r < ranks; r++)
        for (int dir = 0; dir < FCP_DIRECTION_COUNT; dir++)
            for (int fabric = 0; fabric < FCP_FABRICS; fabric++) {
                uint64_t n = (uint64_t)kv[r][dir][fabric] + q[r][dir][fabric];
                if (pass == FCP_BACKWARD) n += kv[r][!dir][fabric]; /* the gradients, the other way */
                if (n > most) most = n;
            }
    return most;
}

/* Adds up what moves along the hops in each pass: the block once, and its results once back. */
static fcp_code count_hops(planning *x, const fcp_problem *fp, moved out[FCP_PASSES]) {
    const problem *p = x->problem;
    const traffic *t = x->traffic;
    uint64_t *sent = ARENA_ZNEW(&x->scratch, uint64_t, p->ranks);
    uint64_t *received = ARENA_ZNEW(&x->scratch, uint64_t, p->ranks);
    uint64_t keys = 0, keys_net = 0; /* tokens */
    rank_units *kv_units = ARENA_ZNEW(&x->scratch, rank_units, p->ranks);
    rank_units *units = ARENA_ZNEW(&x->scratch, rank_units, p->ranks);
    if (!sent || !received || !kv_units || !units) return FCP_E_NO_MEMORY;
    for (uint32_t f = 0; f < t->keys; f++) {
        const hop *of = &t->hops[f];
        uint64_t tokens = p->blocks[of->block].tokens;
        keys += tokens;
        keys_net += of->fabric == FCP_NET ? tokens : 0;
        sent[of->src] += tokens;
        received[of->dst] += tokens;
        kv_units[of->src][FCP_SEND][of->fabric] += of->units;
        kv_units[of->dst][FCP_RECV][of->fabric] += of->units;
    }
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        if (!p->program->passes[pass]) continue;
        uint64_t kv = fcp_class_bytes(fp, FCP_KV, (fcp_pass)pass), token[FCP_CLASSES];
        for (uint32_t r = 0; pass == FCP_FORWARD && r < p->ranks; r++) sent[r] *= kv, received[r] *= kv;
        if (pass == FCP_BACKWARD) kv += fcp_class_bytes(fp, FCP_DKV, (fcp_pass)pass);
        out[pass].total = keys * kv;
        out[pass].net = keys_net * kv;
        for (int cls = 0; cls < FCP_CLASSES; cls++) token[cls] = fcp_class_bytes(fp, (fcp_class)cls, (fcp_pass)pass);
        for (uint32_t f = t->keys; f < t->count; f++) {
            const hop *of = &t->hops[f];
            uint64_t tokens = p->blocks[of->block].tokens, there = tokens * token[FCP_Q];
            fcp_class back_as = traffic_return(of, (fcp_pass)pass);
            if (back_as == FCP_CLASSES) continue; /* KV, forward: there is none among these */
            uint64_t back = tokens * token[back_as];
            uint32_t back_units = return_units(p, of, back_as);
            units[of->src][FCP_SEND][of->fabric] += of->units;
            units[of->dst][FCP_RECV][of->fabric] += of->units;
            units[of->dst][FCP_SEND][of->fabric] += back_units;
            units[of->src][FCP_RECV][of->fabric] += back_units;
            out[pass].of_q += there + back;
            out[pass].net += of->fabric == FCP_NET ? there + back : 0;
            if (pass == FCP_BACKWARD) continue; /* the summary states the others of the forward pass */
            sent[of->src] += there;
            received[of->dst] += there;
            sent[of->dst] += back;
            received[of->src] += back;
        }
        out[pass].total += out[pass].of_q;
        out[pass].bound = most_units(kv_units, units, p->ranks, (fcp_pass)pass);
        if (pass == FCP_FORWARD) memset(units, 0, p->ranks * sizeof *units);
    }
    for (uint32_t r = 0; r < p->ranks; r++) {
        if (sent[r] > out[FCP_FORWARD].send_max) out[FCP_FORWARD].send_max = sent[r];
        if (received[r] > out[FCP_FORWARD].recv_max) out[FCP_FORWARD].recv_max = received[r];
    }
    return FCP_OK;
}

/* Counts bytes and rounds of both passes. */
static fcp_code count_traffic(planning *x, const fcp_problem *fp, fcp_summary *out) {
    const problem *p = x->problem;
    const pass_schedule *ahead = &x->schedule->pass[FCP_FORWARD], *back = &x->schedule->pass[FCP_BACKWARD];
    uint64_t between[FCP_HOLDS_BOTH + 1] = {0};
    moved of[FCP_PASSES] = {{0}};
    fcp_code code = count_hops(x, fp, of);
    if (code) return code;
    for (uint32_t i = 0; i < x->reshuffle->count; i++) {
        const bundle *b = &x->reshuffle->bundles[i];
        if (b->caller != b->home) between[p->split ? 1u << b->side : FCP_HOLDS_BOTH] += b->tokens;
    }
    if (p->program->passes[FCP_FORWARD]) {
        const moved *m = &of[FCP_FORWARD];
        out->bytes_total = m->total;
        out->bytes_moved = m->of_q;
        out->bytes_inter_node = m->net;
        out->send_max = m->send_max;
        out->recv_max = m->recv_max;
        for (uint32_t holds = 1; holds <= FCP_HOLDS_BOTH; holds++)
            out->bytes_reshuffle += between[holds] * (fcp_held_bytes(fp, holds, FCP_IN, FCP_FORWARD) +
                                                      fcp_held_bytes(fp, holds, FCP_OUT, FCP_FORWARD));
        out->rounds = ahead->independent;
        out->rounds_lower_bound = ahead->independent; /* the colouring reaches Delta; the verifier counts it again */
        out->rounds_dependent = ahead->dependent;
        out->rounds_bound = m->bound;
        out->rounds_reshuffle = ahead->in + ahead->out;
        out->stages = ahead->stages;
    }
    if (p->program->passes[FCP_BACKWARD]) {
        out->backward_bytes_total = of[FCP_BACKWARD].total;
        out->backward_bytes_moved = of[FCP_BACKWARD].of_q;
        out->backward_bytes_inter_node = of[FCP_BACKWARD].net;
        out->backward_rounds = back->independent;
        out->backward_rounds_dependent = back->dependent;
        out->backward_rounds_bound = of[FCP_BACKWARD].bound;
        out->backward_rounds_reshuffle = back->in + back->out;
        out->backward_stages = back->stages;
    }
    return FCP_OK;
}

/* model: per rank, bytes that it needs besides; NULL: none. */
static memory_peak find_peak(const planning *x, const fcp_problem *fp, const uint64_t *model) {
    const slots *s = x->slots;
    memory_peak peak = {0};
    for (uint32_t r = 0; r < x->problem->ranks; r++)
        for (int pass = 0; pass < FCP_PASSES; pass++) {
            if (!x->program->passes[pass]) continue;
            uint64_t transient[FCP_CLASSES];
            for (int cls = 0; cls < FCP_CLASSES; cls++) transient[cls] = s->count[cls][r];
            uint64_t bytes = fcp_rank_memory(fp, (fcp_pass)pass, s->home_tokens[FCP_QUERIES][r],
                                             s->home_tokens[FCP_KEYS][r], transient);
            if (model) bytes = fcp_plus(bytes, model[r]);
            if (bytes > peak.bytes) peak = (memory_peak){bytes, r, (fcp_pass)pass};
        }
    return peak;
}

memory_peak lower_memory_peak(const planning *x, const fcp_problem *fp) { return find_peak(x, fp, NULL); }

fcp_code lower_memory_need(planning *x, const fcp_problem *fp, memory_peak *out) {
    const uint32_t ranks = x->problem->ranks;
    const uint64_t each = x->program->linear_memory;
    uint64_t *bytes = each ? ARENA_NEW(&x->scratch, uint64_t, ranks) : NULL;
    uint64_t *parts = each ? ARENA_NEW(&x->scratch, uint64_t, 2 * (size_t)ranks) : NULL;
    if (each && (!bytes || !parts)) return FCP_E_NO_MEMORY;
    const bool planned = x->program->layout == FCP_LAYOUT_PLANNED;
    if (each && !planned) fcp_rule_tokens(&x->problem->rule, FCP_QUERIES, parts, bytes);
    for (uint32_t r = 0; each && r < ranks; r++)
        bytes[r] = fcp_times(each, planned ? x->slots->home_tokens[FCP_QUERIES][r] : bytes[r]);
    *out = find_peak(x, fp, bytes);
    return FCP_OK;
}

fcp_code lower_summary(planning *x, const fcp_problem *fp, fcp_summary *out) {
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
        if (p->program->passes[FCP_FORWARD] && x->slots->count[FCP_KV][r] > out->slots_max)
            out->slots_max = x->slots->count[FCP_KV][r];
        uint64_t both = (uint64_t)x->slots->count[FCP_KV][r] + x->slots->count[FCP_DKV][r];
        if (p->program->passes[FCP_BACKWARD] && both > out->backward_slots_max) out->backward_slots_max = both;
    }
    uint64_t state = fcp_slot_bytes(fp, FCP_STATE, FCP_FORWARD);
    for (uint32_t v = 0; p->program->passes[FCP_FORWARD] && v < s->visit_count; v++) {
        const fcp_visit *w = &s->visits[v];
        uint64_t bytes = p->blocks[w->q_block].tokens * state;
        out->state_bytes += (w->flags & FCP_VISIT_FIRST ? 0 : bytes) + (w->flags & FCP_VISIT_LAST ? 0 : bytes);
    }
    out->memory_peak_bytes = lower_memory_peak(x, fp).bytes;
    fcp_code code = count_peers(x, &out->peers_max);
    return code ? code : count_traffic(x, fp, out);
}
