/* traffic.h: which KV blocks travel to which ranks, and over which fabric. */
#ifndef FCPC_SCHEDULE_TRAFFIC_H
#define FCPC_SCHEDULE_TRAFFIC_H
#include "compiler/place/place.h"
#include "compiler/problem/problem.h"

/* The keys and values of `block`, on their way from rank src to rank dst. */
typedef struct fetch {
    uint32_t block, src, dst;
    uint32_t parent; /* the fetch over net that brought them to src; FCP_NONE: src is the home */
    uint64_t work;   /* pairs of the tiles that need it: at dst, and where dst forwards it to */
    uint32_t units;
    uint8_t fabric;
} fetch;

typedef struct traffic {
    fetch *fetches;        /* by block: those in the home's node; then by node the one over net, and its forwards */
    uint32_t count;
    uint32_t *block_start; /* per block, block_count + 1 */
    uint32_t *tile_fetch;  /* per tile: the fetch that brings its KV; FCP_NONE: the KV is at home where the tile runs */
    uint64_t units;        /* sum over fetches */
} traffic;

/* Makes x->traffic from the problem and its placement. FCP_E_PLAN_SIZE: more units than a plan holds.
 * Cost: linear in tiles and fetches. */
fcp_code traffic_build(planning *x);
#endif
