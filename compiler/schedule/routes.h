/* routes.h: by which way a block goes from one rank to all that need it.
 *
 * Example: rank 0 has a block that ranks 9, 12, 17 and 25 need, on nodes of eight. It goes to rank 9 over net, from
 * there to rank 12 over local; from rank 0 or 9 to rank 17; and to rank 25 from whichever of the three has sent least
 * so far.
 */
#ifndef FCPC_SCHEDULE_ROUTES_H
#define FCPC_SCHEDULE_ROUTES_H
#include "compiler/base/arena.h"
#include "runtime/plan/enums.h"

/* One thing that has to reach some ranks: readers[first] to readers[first + count - 1], ascending, without `src`. */
typedef struct route_want {
    uint32_t src, first, count;
    uint64_t bytes, back; /* over each hop; and what comes back over it, as results do: 0: nothing */
    /* Not 0: what comes back is joined at one rank, and from there on is so many bytes. So one hop leaves `src`. */
    uint64_t joined;
} route_want;

typedef struct routes_input {
    uint32_t ranks, gpus; /* rank r is in node r / gpus */
    bool rail;            /* what crosses between nodes stays at its index in them */
    bool relay;           /* who has got it may send it on to other nodes */
    bool spread;          /* a rank that would send too much has others of its node send */
    const route_want *wants;
    uint32_t want_count;
    const uint32_t *readers;
    const volatile int *stop;
} routes_input;

typedef struct route_hop {
    uint32_t src, dst;
    uint32_t parent; /* the hop of the same want that brings it to src; FCP_NONE: src is where it begins */
    uint8_t fabric;
    bool relay;      /* dst is no reader: it only passes it on */
} route_hop;

typedef struct routes {
    route_hop *hops; /* by want; a parent comes before its children */
    uint32_t *start; /* want_count + 1 */
    uint64_t *sent[FCP_FABRICS], *received[FCP_FABRICS]; /* bytes, per rank, with what comes back */
    uint32_t depth;  /* hops of the longest way */
} routes;

/* Gives every want its tree. FCP_E_PLAN_SIZE: more than 2^30 hops. What is found lies in `memory`. */
fcp_code routes_find(const routes_input *in, arena *memory, arena *scratch, routes *out);
#endif
