/* reshuffle.h: the caller's layout, and the runs of tokens that move between it and the blocks' homes. */
#ifndef FCPC_SCHEDULE_RESHUFFLE_H
#define FCPC_SCHEDULE_RESHUFFLE_H
#include "compiler/place/place.h"
#include "compiler/problem/problem.h"

/* Tokens [first, first + tokens) of a block are the caller's tokens from `place` on at rank `caller`. */
typedef struct segment {
    uint32_t block, first, tokens;
    uint32_t caller, place;
} segment;

typedef struct reshuffle {
    fcp_span *spans[FCP_SIDES];  /* the layouts, by rank; of keys only where the plan is split */
    uint32_t *starts[FCP_SIDES]; /* ranks + 1 */
    /* none longer than a unit where it crosses ranks; of Q blocks, then of KV blocks, in a split plan */
    segment *segments;
    uint32_t count;
    bool *moved;        /* per block: some of it lies at another rank than its home */
} reshuffle;

/* Makes x->reshuffle from the placement and the program's layout. FCP_E_PLAN_SIZE: more runs, or more tokens on a rank,
 * than a plan holds. Cost: O(pieces + runs of the layout). */
fcp_code reshuffle_build(planning *x);
#endif
