/* rails.h: ways of a block over a network of rails, which join GPU i of a node to GPU i of every other node.
 *
 * Example: on nodes of four, rank 1 is to send a block to rank 6. Rank 1 is GPU 1 of its node and rank 6 is GPU 2, so
 * no rail joins them. The block goes from rank 1 to rank 5 over net and from there to rank 6 inside the node; or first
 * to rank 2, if that rank has it anyway.
 */
#ifndef FCPC_SCHEDULE_RAILS_H
#define FCPC_SCHEDULE_RAILS_H
#include "compiler/place/place.h"

/* What is known of a rank while ways are made; zeros between uses. */
typedef struct rails_rank {
    bool has, wanted;  /* it has got the block; a leg leads to it */
    uint32_t children; /* legs that leave from it */
} rails_rank;

/* Changes the legs of a block, from[0] to from[count - 1], so that they reach the same readers and stay on rails
 * between nodes. `ranks` has an entry for each rank; received[r]: bytes that rank r has received over net so far; `out`
 * has room for a leg to every rank. Returns how many legs there are. */
uint32_t rails_keep(const need *n, uint32_t gpus, const leg *from, uint32_t count, rails_rank *ranks,
                    const uint64_t *received, leg *out);
#endif
