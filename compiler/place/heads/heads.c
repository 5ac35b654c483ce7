/* heads.c: the strategies ulysses and upipe, alone or with a ring.
 *
 * Requires: checked lengths; groups of ranks that divide the heads (sema/sharing.c).
 * Gives: for each rank and each range of heads, one block of the tokens that the rank holds: those that the caller has
 *     there, or an even share. For each range of heads also which rank of a group computes it, and in which phase.
 * Cost: O(runs of tokens + blocks + tiles).
 * Source: Jacobs et al., "DeepSpeed Ulysses" (2023), for heads over ranks; UPipe ("Untied Ulysses"), for heads in
 *     phases and the order of query heads that share KV heads; Fang and Zhao, "USP" (2024), for a ring around groups.
 *
 * Example: 16 query heads, 4 of K and V, 4 ranks, one head each at a time. Phase 0 computes heads 0 4 8 12, phase 1
 * heads 1 5 9 13. K and V of four heads arrive in phase 0 and stay for four phases.
 *
 * Which heads a rank computes at a time: `each` query heads, which should share KV heads, because all tokens of the KV
 * heads must come, too. They are a range: range_sub query heads of each of range_kv KV heads. range_sub is the largest
 * number that divides both `each` and the query heads of a KV head.
 *
 * Which rank computes a range, and when (a lane is the number of a rank in its group):
 *   - Neighbouring ranges of KV heads go to neighbouring lanes.
 *   - If there are fewer ranges of KV heads than lanes, several lanes take different query heads of the same KV heads.
 *   - If there are more ranges than lanes, the rest waits for later phases: first the other query heads of the same KV
 *     heads, because these are there already, then the next KV heads.
 *
 * With a ring, a group computes its own queries alone, and needs the keys of all groups. Keys go from their home to the
 * rank of the home's group that computes their heads, and from there from group to group, in the same lane.
 */
#include "compiler/place/heads/heads.h"

#include <string.h>

#include "compiler/base/group.h"
#include "compiler/base/integers.h"

heads_shape heads_shape_of(uint32_t heads, uint32_t kv_heads, uint32_t each) {
    uint32_t sub = (uint32_t)common_divisor(each, heads / kv_heads);
    return (heads_shape){each / sub, sub};
}

void heads_divide(uint32_t parts, uint32_t subs, uint32_t group, uint32_t kv, uint32_t sub, uint32_t *out_lane,
                  uint32_t *out_phase) {
    /* across: how many lanes have different KV heads; beside: how many have different query heads of the same */
    const uint32_t across = (uint32_t)common_divisor(parts, group), beside = group / across;
    *out_lane = kv % across * beside + sub % beside;
    *out_phase = kv / across * (subs / beside) + sub / beside;
}

/* --- cutting ------------------------------------------------------------------------------------------------------ */

/* Makes one block for each rank, of all runs of tokens that it holds; each run is a piece. Runs come by sequence and
 * start. */
static fcp_code add_blocks(planning *x, const problem_run *runs, uint32_t count, int side, sharing *out) {
    problem *p = x->problem;
    const uint16_t holds = (uint16_t)(p->split ? 1u << side : FCP_HOLDS_BOTH);
    p->sequence_piece[side] = ARENA_NEW(&x->work, uint32_t, count + (size_t)1);
    p->piece_start[side] = ARENA_ZNEW(&x->work, uint32_t, p->sequences + (size_t)1);
    if (!p->sequence_piece[side] || !p->piece_start[side]) return FCP_E_NO_MEMORY;
    uint32_t *first = ARENA_ZNEW(&x->scratch, uint32_t, p->ranks + (size_t)1);
    uint64_t *tokens = ARENA_ZNEW(&x->scratch, uint64_t, p->ranks);
    uint32_t *block_of = ARENA_NEW(&x->scratch, uint32_t, p->ranks);
    if (!first || !tokens || !block_of) return FCP_E_NO_MEMORY;
    for (uint32_t i = 0; i < count; i++) {
        first[runs[i].rank + 1]++;
        tokens[runs[i].rank] += runs[i].end - runs[i].start;
    }
    group_starts(first, p->ranks);
    for (uint32_t r = 0; r < p->ranks; r++) {
        if (!tokens[r]) continue;
        if (tokens[r] > INT32_MAX)
            return planning_fail(x, FCP_E_PLAN_SIZE, planning_size_span(x), "rank %u holds more than 2^31 tokens", r);
        out->holder[p->block_count] = r;
        block_of[r] = p->block_count;
        p->blocks[p->block_count++] = (fcp_block){.first_piece = p->piece_count + first[r], .holds = holds};
    }
    for (uint32_t i = 0; i < count; i++) {
        if (planning_stopped_at(x, i)) return FCP_E_INTERRUPTED;
        fcp_block *b = &p->blocks[block_of[runs[i].rank]];
        p->sequence_piece[side][i] = b->first_piece + b->pieces;
        p->piece_start[side][runs[i].sequence + 1] = i + 1;
        p->pieces[b->first_piece + b->pieces++] =
            (fcp_piece){.sequence = runs[i].sequence, .length = (uint32_t)(runs[i].end - runs[i].start),
                        .start = runs[i].start, .offset = b->tokens, .block = block_of[runs[i].rank]};
        b->tokens += (uint32_t)(runs[i].end - runs[i].start);
    }
    problem_close_gaps(p->piece_start[side], p->sequences);
    p->piece_count += count;
    return FCP_OK;
}

fcp_code heads_cut(planning *x) {
    problem *p = x->problem;
    const struct fcpc_program *g = x->program;
    const fcp_layout layout = p->rule.layout;
    const bool ring = program_has_ring(g);
    sharing *out = ARENA_ZNEW(&x->work, sharing, 1);
    problem_run *runs[FCP_SIDES];
    uint32_t count[FCP_SIDES] = {0};
    if (!out) return FCP_E_NO_MEMORY;
    const heads_shape shape = heads_shape_of(g->heads, g->kv_heads, g->together / g->inside);
    p->range_kv = shape.range_kv;
    p->range_sub = shape.range_sub;
    p->split |= shape.range_sub < g->heads / g->kv_heads;
    const int sides = p->split ? FCP_SIDES : 1;
    /* around a ring the work of a group is that of its queries, which zigzag balances */
    if (layout == FCP_LAYOUT_PLANNED && ring) p->rule.layout = FCP_LAYOUT_ZIGZAG;
    fcp_code code = FCP_OK;
    for (int side = 0; side < sides && !code; side++) code = problem_held(x, (fcp_side)side, &runs[side], &count[side]);
    p->rule.layout = layout;
    for (int side = 0; side < sides && !code && layout == FCP_LAYOUT_PLANNED && ring && g->equal; side++)
        code = heads_even_out(x, g->inside, &runs[side], &count[side]);
    if (code) return code;
    out->group = g->inside;
    p->pieces = ARENA_NEW(&x->memory, fcp_piece, count[0] + (size_t)count[1]);
    p->blocks = ARENA_NEW(&x->memory, fcp_block, (size_t)p->ranks * (size_t)sides);
    out->holder = ARENA_NEW(&x->work, uint32_t, (size_t)p->ranks * (size_t)sides);
    if (!p->pieces || !p->blocks || !out->holder) return FCP_E_NO_MEMORY;
    for (int side = 0; side < sides && !code; side++)
        code = add_blocks(x, runs[side], count[side], side, out);
    if (!p->split) {
        p->sequence_piece[FCP_KEYS] = p->sequence_piece[FCP_QUERIES];
        p->piece_start[FCP_KEYS] = p->piece_start[FCP_QUERIES];
    }
    x->sharing = out;
    return code;
}

/* --- placing ------------------------------------------------------------------------------------------------------ */

fcp_code heads_divide_ranges(planning *x) {
    const problem *p = x->problem;
    const uint32_t shared = p->program->heads / p->program->kv_heads;
    const uint32_t parts = p->program->kv_heads / p->range_kv, subs = shared / p->range_sub;
    sharing *s = x->sharing;
    s->lane = ARENA_NEW(&x->work, uint32_t, p->head_count);
    s->phase = ARENA_NEW(&x->work, uint32_t, p->head_count);
    if (!s->lane || !s->phase) return FCP_E_NO_MEMORY;
    for (uint32_t i = 0; i < p->head_count; i++) { /* sub_first of KV heads is 0, so theirs is the first phase */
        const fcp_heads *h = &p->heads[i];
        heads_divide(parts, subs, s->group, h->kv_first / p->range_kv, h->sub_first / p->range_sub, &s->lane[i],
                     &s->phase[i]);
    }
    return FCP_OK;
}

fcp_code place_by_heads(planning *x, const place_input *in, uint32_t *home) {
    const problem *p = x->problem;
    (void)in; /* every rank computes its heads, whatever they weigh */
    for (uint32_t b = 0; b < p->range_blocks; b++)
        for (uint32_t twin = b; twin != FCP_NONE; twin = problem_twin(p, twin)) home[twin] = x->sharing->holder[b];
    return heads_divide_ranges(x);
}

fcp_code exec_by_heads(planning *x, const uint32_t *home, uint32_t *exec) {
    const problem *p = x->problem;
    const sharing *s = x->sharing;
    for (uint32_t t = 0; t < p->tile_count; t++) {
        uint32_t q = p->tile_q[t];
        exec[t] = home[q] / s->group * s->group + s->lane[p->blocks[q].heads];
    }
    return FCP_OK;
}

/* --- the ring ----------------------------------------------------------------------------------------------------- */

uint32_t heads_route(const planning *x, const need *n, leg *legs) {
    const uint32_t group = x->sharing->group, groups = x->problem->ranks / group, home = n->home / group;
    uint32_t count = 0;
    if (n->cls == FCP_Q) { /* one rank reads them, in their own group */
        legs[count++] = (leg){n->home, n->ranks[0]};
        return count;
    }
    for (uint32_t lane = 0; lane < group; lane++) {
        uint32_t at = n->home, step = 0;
        while (step < groups && !n->work[(home + step) % groups * group + lane]) step++;
        if (step == groups) continue; /* nobody in this lane needs them */
        for (step = 0; step < groups; step++) {
            uint32_t rank = (home + step) % groups * group + lane;
            if (rank == at || (step && !n->work[rank])) continue;
            legs[count++] = (leg){at, rank};
            at = rank;
        }
    }
    return count;
}
