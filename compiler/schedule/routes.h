/* routes.h: finds by which ways blocks go to all ranks that need them, for all blocks of a plan together.
 *
 * Example: rank 0 has a block that ranks 9, 12, 17 and 25 need, on nodes of eight. Rank 0 sends it to rank 9 over net,
 * and rank 9 passes it on to rank 12 over local. Rank 17 gets it from rank 0 or 9, and rank 25 from rank 0, 9 or 17:
 * from the one of them that has sent least so far.
 */
#ifndef FCPC_SCHEDULE_ROUTES_H
#define FCPC_SCHEDULE_ROUTES_H
#include "compiler/base/arena.h"
#include "compiler/place/place.h"
#include "runtime/plan/enums.h"

/* A block that has to reach some ranks: readers[first] to readers[first + count - 1], ascending, without `src`. */
typedef struct route_want {
    uint32_t src, first, count;
    uint64_t bytes, back; /* over each hop; and of the results that come back over it, 0: nothing comes back */
    /* Not 0: what comes back is merged at one rank, and from there on is so many bytes. So one hop leaves `src`. */
    uint64_t joined;
} route_want;

typedef struct routes_input {
    uint32_t ranks, gpus; /* rank r is in node r / gpus */
    bool rail;            /* what crosses between nodes joins ranks of the same index in their nodes */
    /* No way has more hops, unless three are more: to the rank that merges results, over net, and inside a node. 0: any
     * number. */
    uint32_t most_hops;
    const route_want *wants;
    uint32_t want_count;
    const uint32_t *readers;
    const volatile int *stop;
} routes_input;

typedef struct routes {
    leg *hops;       /* by want; a hop leaves from the source, or from where an earlier hop of the want leads */
    uint32_t *start; /* want_count + 1 */
    uint64_t *sent[FCP_FABRICS], *received[FCP_FABRICS]; /* bytes, per rank, with what comes back */
    uint32_t depth;  /* hops of the longest way */
} routes;

/* Gives every want its tree. FCP_E_PLAN_SIZE: more than 2^30 hops. What is found lies in `memory`. */
fcp_code routes_find(const routes_input *in, arena *memory, arena *scratch, routes *out);
#endif
