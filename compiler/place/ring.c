/* ring.c: ring and zigzag: every sequence is cut evenly over all ranks, and keys go round a ring of them.
 *
 * Requires: blocks that hold the chunks of problem_cut_ring or problem_cut_zigzag.
 * Gives: homes. In a ring chunk i is at rank i. In zigzag the 2 R chunks go to ranks 0 1 ... R-1 R-1 ... 1 0: rank i
 *     holds chunks i and 2R-1-i, and under a causal mask all ranks have equal work, but for the rounding of cuts.
 *     And ways: each rank passes a block on to the next one, and the last rank to the first. The way ends at the last
 *     rank that needs the block. Ranks on the way pass it on also if they do not need it themselves.
 * Cost: O(blocks); O(ranks) for each way.
 *
 * Example: 4 ranks, zigzag, causal. Rank 1 holds chunks 1 and 6. Chunk 6 is needed by chunk 7 alone, which rank 0 has.
 * It goes from rank 1 by way of ranks 2 and 3 to rank 0.
 *
 * Source: Ring Attention (Liu et al., 2023); the zig-zag order of Llama 3's context parallelism and Striped Attention.
 */
#include "compiler/place/place.h"
#include "compiler/problem/problem.h"

uint32_t place_chunk(uint32_t chunk, uint32_t ranks, uint32_t parts_per_rank) {
    uint32_t turn = chunk / ranks, at = chunk % ranks;
    return parts_per_rank > 1 && turn % 2 ? ranks - 1 - at : at;
}

static fcp_code place_chunks(planning *x, uint32_t parts_per_rank, uint32_t *home) {
    const problem *p = x->problem;
    for (uint32_t b = 0; b < p->block_count; b++) home[b] = place_chunk(p->chunk[b], p->ranks, parts_per_rank);
    return FCP_OK;
}

fcp_code place_by_ring(planning *x, const place_input *in, uint32_t *home) {
    (void)in; /* chunks have their ranks, whatever they weigh */
    return place_chunks(x, 1, home);
}

fcp_code place_by_zigzag(planning *x, const place_input *in, uint32_t *home) {
    (void)in;
    return place_chunks(x, 2, home);
}

uint32_t place_around(const planning *x, const need *n, leg *legs) {
    const uint32_t ranks = x->problem->ranks;
    uint32_t last = n->ranks[n->count - 1], count = 0; /* round the ring from home: the last that needs it */
    for (uint32_t i = 0; i < n->count && n->ranks[i] < n->home; i++) last = n->ranks[i];
    for (uint32_t at = n->home; at != last; count++) {
        const uint32_t next = at + 1 < ranks ? at + 1 : 0;
        legs[count] = (leg){at, next};
        at = next;
    }
    return count;
}
