/* held.c: which rank holds which tokens before the plan begins.
 *
 * Requires: checked lengths.
 * Gives: runs by sequence and start; every token of the side in one.
 * Cost: O(sequences + runs).
 *
 * Contiguous: the tokens of a part of the batch, T in all, are cut at floor(i T / R) over its R ranks. Zigzag: every
 * sequence of n tokens is cut in 2R chunks at floor(i n / 2R), and rank r holds chunks r and 2R - 1 - r. A batch
 * without parts is one part on all ranks but the servers. Two parts may share ranks.
 */
#include "compiler/problem/problem.h"

/* Begins with the part that has the next sequence. */
static void next_part(problem_layout *l) {
    uint32_t end = l->part->end < l->holders ? l->part->end : l->holders;
    l->first = l->part->first < end ? l->part->first : end - 1;
    l->ranks = end - l->first;
    l->left = (uint32_t)l->part->count;
    l->tokens = l->offset = 0;
    for (uint32_t q = l->next; q < l->next + l->left; q++) l->tokens += problem_length(l->p, q, l->side);
    l->rank = 0;
    l->part++;
}

void problem_layout_open(problem_layout *out, const planning *x, fcp_side side, bool zigzag, uint64_t least) {
    const struct fcpc_program *g = x->program;
    *out = (problem_layout){.p = x->problem, .side = side, .zigzag = zigzag, .least = least,
                            .all = {x->problem->sequences, 0, x->problem->ranks}};
    out->holders = x->problem->ranks - g->servers;
    out->parts = g->part_count && x->lengths == g->lengths ? g->part_count : 0;
    out->part = out->parts ? g->parts : NULL;
}

uint64_t problem_layout_most(const problem_layout *l) {
    uint64_t most = 0, chunks = 2 * (uint64_t)l->holders;
    for (uint32_t s = 0; s < l->p->sequences; s++) {
        uint64_t n = problem_length(l->p, s, l->side);
        most += l->zigzag ? n < chunks ? n : chunks : 1;
    }
    return most + (uint64_t)l->holders * (l->parts ? l->parts : 1);
}

uint32_t problem_layout_next(problem_layout *l, problem_run *out) {
    if (!l->left) {
        if (!l->parts) l->part = &l->all;
        next_part(l);
    }
    const uint32_t s = l->next++;
    const uint64_t n = problem_length(l->p, s, l->side), chunks = 2 * (uint64_t)l->ranks;
    uint32_t count = 0;
    bool zigzag = l->zigzag && n / l->ranks >= l->least;
    for (uint64_t at = 0, to; at < n; at = to) {
        uint32_t rank;
        if (zigzag) {
            /* `at` is in the chunk i that is the largest with floor(i n / chunks) <= at, that is with i n < (at + 1)
             * chunks */
            uint64_t i = (uint64_t)(((unsigned __int128)(at + 1) * chunks - 1) / n);
            to = (uint64_t)((unsigned __int128)(i + 1) * n / chunks);
            rank = (uint32_t)(i < l->ranks ? i : chunks - 1 - i);
        } else {
            while ((to = (uint64_t)((unsigned __int128)l->tokens * (l->rank + 1) / l->ranks)) <= l->offset + at)
                l->rank++;
            to = to - l->offset < n ? to - l->offset : n;
            rank = l->rank;
        }
        out[count++] = (problem_run){s, l->first + rank, at, to};
    }
    l->offset += n;
    l->left--;
    return count;
}

fcp_code problem_held(planning *x, fcp_side side, bool zigzag, problem_run **out, uint32_t *out_count) {
    problem_layout l;
    problem_layout_open(&l, x, side, zigzag, ZIGZAG_LEAST);
    uint64_t most = problem_layout_most(&l);
    if (most > UINT32_MAX / 4) return FCP_E_PLAN_SIZE;
    *out_count = 0;
    if (!(*out = ARENA_NEW(&x->work, problem_run, most + 1))) return FCP_E_NO_MEMORY;
    for (uint32_t s = 0; s < x->problem->sequences; s++) {
        if (planning_stopped_at(x, s)) return FCP_E_INTERRUPTED;
        *out_count += problem_layout_next(&l, *out + *out_count);
    }
    return FCP_OK;
}
