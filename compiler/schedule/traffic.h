/* traffic.h: what must move: the fetches of KV blocks, and over which fabric each goes. */
#ifndef FCPC_SCHEDULE_TRAFFIC_H
#define FCPC_SCHEDULE_TRAFFIC_H
#include "compiler/place/place.h"
#include "compiler/problem/problem.h"

/* KV of `block` from rank src to rank dst. */
typedef struct fetch {
    uint32_t block, src, dst;
    uint32_t parent; /* the net fetch that brought it to src; FCP_NONE: src is the home (independent) */
    uint64_t work;   /* pairs of the tiles at dst that read it, forwarded ones included */
    uint32_t units;
    uint8_t fabric;
} fetch;

typedef struct traffic {
    fetch *fetches;        /* by block; of a block: home's node, then by node: the net fetch, then its forwards */
    uint32_t count;
    uint32_t *block_start; /* per block, block_count + 1 */
    uint32_t *tile_fetch;  /* per tile: the fetch that brings its KV to its exec rank, FCP_NONE when it is home */
    uint64_t units;        /* sum over fetches */
} traffic;

/* Makes x->traffic from the problem and its placement. FCP_E_PLAN_SIZE: more units than a plan holds.
 * Cost: linear in tiles and fetches. */
fcp_code traffic_build(planning *x);
#endif
