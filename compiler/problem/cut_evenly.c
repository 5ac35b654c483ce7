/* cut_evenly.c: cuts every sequence into equal chunks, one for each rank (ring) or two (zigzag).
 *
 * Requires: checked lengths.
 * Gives: a block for each chunk that has tokens, in order of chunk. Of every sequence of n tokens, chunk i of R has the
 *     tokens from floor(i n / R) to floor((i + 1) n / R). R is the number of ranks for ring, twice that for zigzag.
 * Cost: O(chunks * sequences).
 *
 * A split plan has two blocks for each chunk: one of queries and one of keys. It cuts at floor((i n + f) / R), where f
 * is the number of tokens of that side in earlier sequences, modulo R. Example: 8 sequences with one query each on 8
 * ranks. With f each rank gets one query; without f all 8 queries would be in the last chunk.
 */
#include "compiler/problem/problem.h"

static uint64_t cut_at(uint64_t n, uint64_t i, uint64_t parts, uint64_t shift) {
    return (uint64_t)(((unsigned __int128)n * i + shift) / parts);
}

/* Returns how many tokens the chunks before chunk i get of a sequence of n tokens, for tokens = equal. Here the chunks
 * of all sequences together are cut as if they were one long sequence, so that chunks differ by one token at most.
 * `before`: how many tokens earlier sequences have. Only for sequences of at least `parts` tokens: in shorter ones a
 * chunk might end before it begins. */
static uint64_t cut_on(uint64_t n, uint64_t i, uint64_t parts, uint64_t before) {
    return cut_at(before + n, i, parts, 0) - cut_at(before, i, parts, 0);
}

static fcp_code cut_evenly(planning *x, uint32_t per_rank) {
    problem *p = x->problem;
    uint64_t parts = (uint64_t)p->ranks * per_rank, pieces = 0;
    const int sides = p->split ? FCP_SIDES : 1;
    for (int side = 0; side < sides; side++)
        for (uint32_t s = 0; s < p->sequences; s++) {
            uint64_t n = problem_length(p, s, (fcp_side)side);
            pieces += n < parts ? n : parts;
        }
    if (pieces > UINT32_MAX / 4)
        return planning_fail(x, FCP_E_PLAN_SIZE, planning_size_span(x),
                             "%u sequences cut in %llu parts are more pieces than a plan holds", p->sequences,
                             (unsigned long long)parts);
    p->pieces = ARENA_NEW(&x->memory, fcp_piece, pieces + 1);
    p->blocks = ARENA_NEW(&x->memory, fcp_block, parts * (uint64_t)sides);
    p->chunk = ARENA_NEW(&x->work, uint32_t, parts * (uint64_t)sides);
    if (!p->pieces || !p->blocks || !p->chunk) return FCP_E_NO_MEMORY;
    for (uint64_t at = 0; at < parts * (uint64_t)sides; at++) {
        uint64_t i = at / (uint64_t)sides;
        fcp_side side = (fcp_side)(at % (uint64_t)sides);
        fcp_block *blk = &p->blocks[p->block_count];
        *blk = (fcp_block){.first_piece = p->piece_count, .holds = p->split ? 1u << side : FCP_HOLDS_BOTH};
        uint64_t tokens = 0, before = 0;
        if (planning_stopped(x)) return FCP_E_INTERRUPTED;
        for (uint32_t s = 0; s < p->sequences; s++) {
            if (planning_stopped_at(x, s)) return FCP_E_INTERRUPTED;
            uint64_t n = problem_length(p, s, side), shift = p->split ? before % parts : 0;
            uint64_t start = cut_at(n, i, parts, shift), end = cut_at(n, i + 1, parts, shift);
            if (p->program->equal && n >= parts) {
                start = cut_on(n, i, parts, before);
                end = cut_on(n, i + 1, parts, before);
            }
            uint64_t length = end - start;
            before += n;
            if (!length) continue;
            if ((tokens += length) > INT32_MAX)
                return planning_fail(x, FCP_E_PLAN_SIZE, planning_size_span(x),
                                     "chunk %llu of %llu holds more than 2^31 tokens", (unsigned long long)i,
                                     (unsigned long long)parts);
            p->pieces[p->piece_count++] =
                (fcp_piece){.sequence = s, .length = (uint32_t)length, .start = start,
                            .offset = (uint32_t)(tokens - length), .block = p->block_count};
            blk->pieces++;
        }
        blk->tokens = (uint32_t)tokens;
        if (blk->pieces) p->chunk[p->block_count++] = (uint32_t)i;
    }
    return FCP_OK;
}

fcp_code problem_cut_ring(planning *x) { return cut_evenly(x, 1); }
fcp_code problem_cut_zigzag(planning *x) { return cut_evenly(x, 2); }
