/* ring.c: ring and zigzag: every sequence cut evenly over all ranks.
 *
 * requires  blocks numbered by chunk: block i holds the i-th of ranks * parts_per_rank chunks of every sequence.
 * gives     homes, chunk by chunk: 0 1 ... R-1 for one part; 0 1 ... R-1 R-1 ... 1 0 for two, so that a rank holds
 *           chunk i and chunk 2R-1-i, and under a causal mask all ranks have the same work up to the rounding of cuts.
 * cost      O(blocks)
 * source    Ring Attention (Liu et al., 2023); the zig-zag order of Llama 3's context parallelism and Striped
 *           Attention.
 */
#include "compiler/place/place.h"

void place_ring(const place_input *in, uint32_t parts_per_rank, uint32_t *out_home) {
    uint32_t ranks = in->ranks;
    for (uint32_t b = 0; ranks && b < in->blocks; b++) {
        uint32_t turn = b / ranks, at = b % ranks;
        out_home[b] = parts_per_rank > 1 && turn % 2 ? ranks - 1 - at : at;
    }
}
