/* ring.c: ring and zigzag: every sequence is cut evenly over all ranks.
 *
 * Requires: blocks that hold the chunks of problem_cut_ring or problem_cut_zigzag.
 * Gives: homes. In a ring chunk i is at rank i. In zigzag the 2 R chunks go to ranks 0 1 ... R-1 R-1 ... 1 0: rank i
 *     holds chunks i and 2R-1-i, and under a causal mask all ranks have equal work, but for the rounding of cuts.
 * Cost: O(blocks).
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
