/* place_input.c: makes what strategies see of a problem; and, in split plans, moves KV blocks to ranks that read them.
 *
 * Requires: a problem with its tiles; for place_keys a home for every block.
 * Gives: place_input_of: the tokens and reads of each block (place.h). place_keys: if no rank reads a KV block at its
 *     home, it moves to a rank that does and has room; no rank loses its last block.
 * Cost: linear in blocks and tiles.
 * Units: tokens. In a split plan they are weighted, because queries and keys are of different size at home: a query
 *     keeps Q and O, a key K and V. The weights are in the ratio of these sizes. Example: 64 query heads, 8 of K and V,
 *     all of one width: a query counts as 8 tokens, and a key as 1. Weights are in lowest terms, and halved, rounded
 *     up, until they are at most PLACE_WEIGHT_MOST.
 */
#include "compiler/base/group.h"
#include "compiler/base/integers.h"
#include "compiler/place/place.h"
#include "compiler/place/place_tuning.h"
#include "compiler/problem/problem.h"
#include "runtime/plan/bytes.h"
#include "runtime/plan/sides.h"

/* The weight of a query and of a key. */
static void find_weights(const problem *p, uint32_t out[FCP_SIDES]) {
    uint64_t most = UINT64_C(1) << 40, tokens = p->tokens > p->key_tokens ? p->tokens : p->key_tokens;
    const fcp_problem facts = problem_early_facts(p->program);
    const uint32_t query = facts.heads * (facts.head_dim + facts.value_dim), key = facts.kv_heads * fcp_kv_dim(&facts);
    const uint32_t divisor = (uint32_t)common_divisor(query, key);
    out[FCP_QUERIES] = query / divisor;
    out[FCP_KEYS] = key / divisor;
    /* The strategies take at most 2^40 tokens in all. If the weighted tokens are more, the weights shrink. */
    while (out[FCP_QUERIES] > PLACE_WEIGHT_MOST || out[FCP_KEYS] > PLACE_WEIGHT_MOST ||
           (out[FCP_QUERIES] + out[FCP_KEYS] > 2 && tokens > most / (out[FCP_QUERIES] + out[FCP_KEYS])))
        for (int side = 0; side < FCP_SIDES; side++) out[side] = (out[side] + 1) / 2;
}

fcp_code place_input_of(planning *x, place_input *out) {
    const problem *p = x->problem;
    arena *scratch = &x->scratch;
    uint32_t *tokens = ARENA_NEW(scratch, uint32_t, p->block_count), weight[FCP_SIDES] = {1, 1};
    if (!tokens) return FCP_E_NO_MEMORY;
    *out = (place_input){.ranks = p->ranks, .gpus = p->program->gpus, .blocks = p->block_count, .block = p->block,
                         .tokens = tokens, .work = p->work, .reads_start = p->tile_start, .reads = p->tile_k,
                         .tolerance = x->program->tolerance, .stop = x->stop};
    if (!p->split) {
        for (uint32_t b = 0; b < p->block_count; b++) tokens[b] = p->blocks[b].tokens;
        return FCP_OK;
    }
    find_weights(p, weight);
    uint32_t *start = ARENA_NEW(scratch, uint32_t, p->block_count + (size_t)1), at = 0;
    uint32_t *reads = ARENA_NEW(scratch, uint32_t, p->tile_count + (size_t)p->block_count);
    if (!start || !reads) return FCP_E_NO_MEMORY;
    for (uint32_t b = 0; b < p->block_count; b++) {
        const fcp_block *k = &p->blocks[b];
        tokens[b] = k->tokens * weight[fcp_side_of(k)];
        start[b] = at;
        for (uint32_t t = p->tile_start[b]; t < p->tile_start[b + 1]; t++) reads[at++] = p->tile_k[t];
        if (k->holds == FCP_HOLDS_KV) reads[at++] = b;
    }
    start[p->block_count] = at;
    out->reads_start = start;
    out->reads = reads;
    out->block = p->block * (weight[FCP_QUERIES] > weight[FCP_KEYS] ? weight[FCP_QUERIES] : weight[FCP_KEYS]);
    return FCP_OK;
}

fcp_code place_keys(const problem *p, const place_input *in, arena *scratch, uint32_t *home) {
    uint64_t *held = ARENA_ZNEW(scratch, uint64_t, p->ranks), cap = place_token_cap(in);
    uint32_t *blocks = ARENA_ZNEW(scratch, uint32_t, p->ranks), *first, *reader; /* the tiles that read each KV block */
    if (!held || !blocks) return FCP_E_NO_MEMORY;
    for (uint32_t b = 0; b < p->block_count; b++) {
        held[home[b]] += in->tokens[b];
        blocks[home[b]]++;
    }
    fcp_code code = group_new(scratch, p->tile_k, sizeof *p->tile_k, p->tile_count, p->block_count, in->stop, &first,
                              &reader);
    if (code) return code;
    for (uint32_t b = 0; b < p->block_count; b++) {
        uint32_t best = FCP_NONE;
        if (!(b & 1023) && fcp_stop_asked(in->stop)) return FCP_E_INTERRUPTED;
        if (p->blocks[b].holds != FCP_HOLDS_KV || blocks[home[b]] == 1) continue;
        for (uint32_t i = first[b]; i < first[b + 1]; i++) {
            uint32_t r = home[p->tile_q[reader[i]]];
            if (r == home[b]) best = r;
            if (best == home[b]) break;
            if (held[r] + in->tokens[b] <= cap && (best == FCP_NONE || held[r] < held[best])) best = r;
        }
        if (best == FCP_NONE || best == home[b]) continue;
        held[home[b]] -= in->tokens[b];
        held[best] += in->tokens[b];
        blocks[home[b]]--;
        blocks[best]++;
        home[b] = best;
    }
    return FCP_OK;
}
