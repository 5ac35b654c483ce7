/* rails.h: ways of a block over a network of rails, where GPU i of a node has fast ways to GPUs i of other nodes alone.
 *
 * Example: rank 1 sends a block to rank 6, on nodes of four. From GPU 1 to GPU 2 there is no rail. So it goes from rank
 * 1 to rank 5 over net, and to rank 6 inside the node; or first to rank 2, if that rank has it anyway.
 */
#ifndef FCPC_SCHEDULE_RAILS_H
#define FCPC_SCHEDULE_RAILS_H
#include "compiler/place/place.h"

/* What is known of a rank while ways are made; zeros between uses. */
typedef struct rails_rank {
    bool has, wanted;  /* it has got the block; a leg leads to it */
    uint32_t children; /* legs that leave from it */
} rails_rank;

/* Makes of the legs of a block, from[0] to from[count - 1], ways to the same readers on which all that crosses between
 * nodes stays on its rail. `ranks` has an entry for each rank; received[r]: bytes that rank r has got over net so far;
 * `out` has room for a leg to every rank. Returns how many legs there are. */
uint32_t rails_keep(const need *n, uint32_t gpus, const leg *from, uint32_t count, rails_rank *ranks,
                    const uint64_t *received, leg *out);
#endif
