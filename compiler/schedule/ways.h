/* ways.h: estimates how long a plan takes whose blocks travel by given ways.
 *
 * Example: rank 0 sends a block to seven other nodes, in 8 ms each. If it sends all seven copies itself, its port is
 * busy for 56 ms. If ranks that have got the block send it on, no port is busy for more than 25 ms.
 */
#ifndef FCPC_SCHEDULE_WAYS_H
#define FCPC_SCHEDULE_WAYS_H
#include "compiler/schedule/traffic.h"

/* Picoseconds, of all passes of the plan. */
typedef struct ways_time {
    uint64_t all;
    uint64_t least; /* if each rank sent no block of keys to more than one node: no trees of keys take less */
} ways_time;

/* Cost: O(hops + tiles + ranks). */
fcp_code ways_time_of(planning *x, const traffic *t, ways_time *out);
#endif
