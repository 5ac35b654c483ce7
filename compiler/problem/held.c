/* held.c: which rank holds which tokens before the plan begins.
 *
 * Requires: checked lengths.
 * Gives: runs by sequence and start; every token of the side in one.
 * Cost: O(sequences + runs).
 *
 * Contiguous: the tokens of a part of the batch, T in all, are cut at floor(i T / R) over its R ranks. A batch without parts is one
 * part on all ranks. Two parts may share ranks.
 */
#include "compiler/problem/problem.h"

typedef struct state {
    planning *x;
    problem_run *runs;
    size_t count, room;
} state;

static bool add(state *s, uint32_t sequence, uint32_t rank, uint64_t start, uint64_t end) {
    if (s->count == s->room) {
        problem_run *grown = arena_grow(&s->x->work, s->runs, s->count, &s->room, sizeof *grown);
        if (!grown) return false;
        s->runs = grown;
    }
    s->runs[s->count++] = (problem_run){sequence, rank, start, end};
    return true;
}

/* The chunks of one sequence: 2R of them, of which rank r has chunks r and 2R - 1 - r. */
static bool add_zigzag(state *s, uint32_t sequence, uint64_t n, uint32_t first, uint32_t ranks) {
    for (uint64_t i = 0, parts = 2 * (uint64_t)ranks; i < parts; i++) {
        uint64_t from = (uint64_t)((unsigned __int128)n * i / parts), to = (uint64_t)((unsigned __int128)n * (i + 1) / parts);
        if (!add(s, sequence, first + (uint32_t)(i < ranks ? i : parts - 1 - i), from, to)) return false;
    }
    return true;
}

fcp_code problem_held(planning *x, fcp_side side, bool zigzag, problem_run **out, uint32_t *out_count) {
    const problem *p = x->problem;
    const struct fcpc_program *g = x->program;
    program_part all = {p->sequences, 0, p->ranks};
    const program_part *parts = &all;
    uint32_t part_count = 1;
    state s = {.x = x};
    if (g->part_count && x->lengths == g->lengths) {
        parts = g->parts;
        part_count = g->part_count;
    }
    for (uint32_t i = 0, sequence = 0; i < part_count; i++) {
        uint32_t first = parts[i].first, end = parts[i].end, last = sequence + (uint32_t)parts[i].count;
        if (end > p->ranks - g->servers) end = p->ranks - g->servers;
        if (first >= end) first = end - 1;
        uint32_t ranks = end - first, rank = 0;
        uint64_t tokens = 0, offset = 0;
        for (uint32_t q = sequence; q < last; q++) tokens += problem_length(p, q, side);
        for (; sequence < last; sequence++) {
            uint64_t n = problem_length(p, sequence, side);
            if (planning_stopped_at(x, sequence)) return FCP_E_INTERRUPTED;
            if (zigzag && n / ranks >= ZIGZAG_LEAST) {
                if (!add_zigzag(&s, sequence, n, first, ranks)) return FCP_E_NO_MEMORY;
            } else
                for (uint64_t at = 0, to; at < n; at = to) {
                    while ((to = (uint64_t)((unsigned __int128)tokens * (rank + 1) / ranks)) <= offset + at) rank++;
                    to = to - offset < n ? to - offset : n;
                    if (!add(&s, sequence, first + rank, at, to)) return FCP_E_NO_MEMORY;
                }
            offset += n;
        }
    }
    if (s.count > UINT32_MAX / 4) return FCP_E_PLAN_SIZE;
    *out = s.runs;
    *out_count = (uint32_t)s.count;
    return FCP_OK;
}
