/* reshuffle.h: the layout in which the caller holds the tokens, and how they move to the blocks' homes and back. */
#ifndef FCPC_SCHEDULE_RESHUFFLE_H
#define FCPC_SCHEDULE_RESHUFFLE_H
#include "compiler/place/place.h"
#include "compiler/problem/problem.h"

/* Tokens first to first + tokens - 1 of a block. The caller holds them at rank `caller`, from its token `place` on. */
typedef struct segment {
    uint32_t block, first, tokens;
    uint32_t caller, place;
} segment;

typedef struct reshuffle {
    fcp_span *spans[FCP_SIDES];  /* the layouts, by rank; of keys only where the plan is split */
    uint32_t *starts[FCP_SIDES]; /* ranks + 1 */
    /* A segment that crosses ranks is no longer than a unit. In a split plan those of Q blocks come first. */
    segment *segments;
    uint32_t count;
    bool *moved;        /* per block: the caller holds some of it at another rank than its home */
} reshuffle;

/* Makes x->reshuffle from the placement and the program's layout. FCP_E_PLAN_SIZE: more runs, or more tokens on a rank,
 * than a plan holds. Cost: O(pieces + runs of the layout). */
fcp_code reshuffle_build(planning *x);
#endif
