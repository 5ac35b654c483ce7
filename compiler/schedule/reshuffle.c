/* reshuffle.c: compares the caller's layout with the homes, and lists the runs of tokens that move between them.
 *
 * Requires: a problem with its blocks; a placement.
 * Gives: for each rank the runs of tokens that the caller holds there, in order; every token of every block in exactly
 *     one segment.
 * Cost: O(pieces + runs of the layout).
 *
 * The layouts of R ranks:
 *   planned     rank r holds its home blocks, in block order (of the first range of heads, where there are several).
 *   contiguous  the batch, sequence after sequence, is cut at floor(i T / R), where T is its number of tokens.
 *   zigzag      every sequence of n tokens is cut in 2R chunks at floor(i n / 2R); rank r holds chunks r and 2R - 1 - r
 *               of each, sequence after sequence.
 * In a split plan the rule holds for the queries, and again, by itself, for the keys.
 */
#include "compiler/schedule/reshuffle.h"

#include <string.h>

typedef struct state {
    planning *x;
    const problem *p;
    const uint32_t *home;
    reshuffle *out;
    size_t room;
    fcp_side side;    /* the one at hand */
    uint64_t *filled; /* per rank: how many tokens it holds so far */
} state;

static fcp_code add_run(state *s, uint32_t block, uint32_t first, uint32_t tokens, uint32_t rank, uint32_t place) {
    reshuffle *out = s->out;
    bool crosses = rank != s->home[block];
    if (crosses) out->moved[block] = true;
    while (tokens) {
        uint32_t length = crosses && tokens > s->p->unit ? s->p->unit : tokens;
        if (out->count == s->room) {
            size_t room = s->room * 2 + 64;
            if (room > UINT32_MAX / 4) return FCP_E_PLAN_SIZE;
            segment *grown = ARENA_NEW(&s->x->work, segment, room);
            if (!grown) return FCP_E_NO_MEMORY;
            if (out->count) memcpy(grown, out->segments, out->count * sizeof *grown);
            out->segments = grown;
            s->room = room;
        }
        out->segments[out->count++] = (segment){block, first, length, rank, place};
        first += length;
        place += length;
        tokens -= length;
    }
    return FCP_OK;
}

/* The same tokens of all ranges of heads: the caller holds them at one place. */
static fcp_code add_segment(state *s, uint32_t block, uint32_t first, uint32_t tokens, uint32_t rank, uint32_t place) {
    fcp_code code = add_run(s, block, first, tokens, rank, place);
    while (!code && (block = problem_twin(s->p, block)) != FCP_NONE)
        code = add_run(s, block, first, tokens, rank, place);
    return code;
}

static fcp_code planned(state *s) {
    const problem *p = s->p;
    fcp_span *spans = ARENA_NEW(&s->x->memory, fcp_span, p->piece_count);
    uint32_t *at = ARENA_ZNEW(&s->x->scratch, uint32_t, p->ranks + (size_t)1), *starts = s->out->starts[s->side];
    if (!spans || !at) return FCP_E_NO_MEMORY;
    s->out->spans[s->side] = spans;
    for (uint32_t b = 0; b < p->range_blocks; b++)
        if (problem_holds(p, b, s->side)) starts[s->home[b] + 1] += p->blocks[b].pieces;
    for (uint32_t r = 0; r < p->ranks; r++) {
        at[r] = starts[r];
        starts[r + 1] += starts[r];
    }
    for (uint32_t b = 0; b < p->range_blocks; b++) {
        if (planning_stopped_at(s->x, b)) return FCP_E_INTERRUPTED;
        const fcp_block *blk = &p->blocks[b];
        if (!problem_holds(p, b, s->side)) continue;
        uint32_t r = s->home[b];
        for (uint32_t i = 0; i < blk->pieces; i++) {
            const fcp_piece *piece = &p->pieces[blk->first_piece + i];
            spans[at[r]++] = (fcp_span){piece->sequence, piece->length, piece->start};
        }
        fcp_code code = add_segment(s, b, 0, blk->tokens, r, (uint32_t)s->filled[r]);
        if (code) return code;
        s->filled[r] += blk->tokens;
    }
    return FCP_OK;
}

static fcp_code stated(state *s, bool zigzag) {
    const problem *p = s->p;
    uint32_t *starts = s->out->starts[s->side];
    problem_layout layout;
    problem_layout_open(&layout, s->x, s->side, zigzag, 0);
    uint64_t total = problem_layout_most(&layout);
    if (total > UINT32_MAX / 4) return FCP_E_PLAN_SIZE;
    problem_run *runs = ARENA_NEW(&s->x->scratch, problem_run, 2 * (size_t)p->ranks + 1);
    uint64_t *place = ARENA_NEW(&s->x->scratch, uint64_t, 2 * (size_t)p->ranks + 1);
    struct tagged { fcp_span span; uint32_t rank; } *all = arena_alloc(&s->x->scratch, total, sizeof *all, 8);
    fcp_span *listed = ARENA_NEW(&s->x->memory, fcp_span, total);
    if (!runs || !place || !all || !listed) return FCP_E_NO_MEMORY;
    s->out->spans[s->side] = listed;
    const uint32_t *piece_start = p->piece_start[s->side], *pieces = p->sequence_piece[s->side];
    uint32_t spans = 0;
    for (uint32_t q = 0; q < p->sequences; q++) {
        if (planning_stopped(s->x)) return FCP_E_INTERRUPTED; /* a sequence may have as many runs as there are ranks */
        uint32_t count = problem_layout_next(&layout, runs), at = 0;
        for (uint32_t i = 0; i < count; i++) {
            place[i] = s->filled[runs[i].rank]; /* of a rank's two chunks the first comes first */
            s->filled[runs[i].rank] += runs[i].end - runs[i].start;
            all[spans].span = (fcp_span){q, (uint32_t)(runs[i].end - runs[i].start), runs[i].start};
            all[spans++].rank = runs[i].rank;
            starts[runs[i].rank + 1]++;
        }
        for (uint32_t i = piece_start[q]; i < piece_start[q + 1]; i++) { /* pieces and runs are both in order */
            const fcp_piece *piece = &p->pieces[pieces[i]];
            uint64_t from = piece->start, end = piece->start + piece->length;
            while (from < end) {
                while (runs[at].end <= from) at++;
                uint64_t to = runs[at].end < end ? runs[at].end : end;
                fcp_code code = add_segment(s, piece->block, piece->offset + (uint32_t)(from - piece->start),
                                            (uint32_t)(to - from), runs[at].rank,
                                            (uint32_t)place[at] + (uint32_t)(from - runs[at].start));
                if (code) return code;
                from = to;
            }
        }
    }
    uint32_t *at = ARENA_NEW(&s->x->scratch, uint32_t, p->ranks);
    if (!at) return FCP_E_NO_MEMORY;
    for (uint32_t r = 0; r < p->ranks; r++) {
        at[r] = starts[r];
        starts[r + 1] += starts[r];
    }
    for (uint32_t i = 0; i < spans; i++) listed[at[all[i].rank]++] = all[i].span;
    return FCP_OK;
}

fcp_code reshuffle_build(planning *x) {
    const problem *p = x->problem;
    reshuffle *out = ARENA_ZNEW(&x->work, reshuffle, 1);
    if (!out) return FCP_E_NO_MEMORY;
    state s = {.x = x, .p = p, .home = x->placement->home, .out = out,
               .room = p->piece_count + (size_t)p->ranks + 16};
    out->moved = ARENA_ZNEW(&x->work, bool, p->block_count);
    out->segments = ARENA_NEW(&x->work, segment, s.room);
    s.filled = ARENA_ZNEW(&x->scratch, uint64_t, p->ranks);
    if (!out->moved || !out->segments || !s.filled) return FCP_E_NO_MEMORY;
    fcp_code code = FCP_OK;
    for (int side = 0; !code && side < (p->split ? FCP_SIDES : 1); side++) {
        s.side = (fcp_side)side;
        memset(s.filled, 0, p->ranks * sizeof *s.filled);
        if (!(out->starts[side] = ARENA_ZNEW(&x->memory, uint32_t, p->ranks + (size_t)1))) code = FCP_E_NO_MEMORY;
        else if (p->program->layout == FCP_LAYOUT_PLANNED) code = planned(&s);
        else code = stated(&s, p->program->layout == FCP_LAYOUT_ZIGZAG);
        for (uint32_t r = 0; !code && r < p->ranks; r++)
            if (s.filled[r] > INT32_MAX) code = FCP_E_PLAN_SIZE;
    }
    if (code == FCP_E_PLAN_SIZE)
        return planning_fail(x, code, x->program->lengths_span,
                             "the batch is too large for a plan of so few ranks: the layout has more than 2^31 tokens "
                             "on a rank, or 2^30 runs");
    if (!code) x->reshuffle = out;
    return code;
}
