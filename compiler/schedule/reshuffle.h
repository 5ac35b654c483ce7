/* reshuffle.h: the layout in which the caller holds the tokens, and what moves to the blocks' homes and back. */
#ifndef FCPC_SCHEDULE_RESHUFFLE_H
#define FCPC_SCHEDULE_RESHUFFLE_H
#include "compiler/place/place.h"
#include "compiler/problem/problem.h"

/* So many tokens of a block. */
typedef struct content {
    uint32_t block, tokens;
} content;

/* All tokens of a side that the caller holds at one rank and that are at home at another, or the same. In a plan that
 * is not split the side is that of queries, and each token moves with both. */
typedef struct bundle {
    uint32_t caller, home, side;
    uint32_t tokens;
    uint32_t first, count; /* its contents, in order of block; of a block the tokens are in order */
} bundle;

typedef struct reshuffle {
    bundle *bundles;   /* in order of (home, side, caller) */
    uint32_t count;
    content *contents;
    uint32_t units;    /* of the bundles between two ranks */
    bool *moved;       /* per block: the caller holds some of it at another rank than its home */
} reshuffle;

/* Makes x->reshuffle from the placement and the program's layout. FCP_E_PLAN_SIZE: more units, or more tokens on a
 * rank, than a plan holds. Cost: O(pieces + runs of the layout); memory: O(pieces + blocks times the ranks that hold
 * them). */
fcp_code reshuffle_build(planning *x);
/* The unit of a bundle that begins at token `first`: how many tokens it has. */
static inline uint32_t bundle_unit(const problem *p, const bundle *b, uint32_t first) {
    return b->tokens - first < p->unit ? b->tokens - first : p->unit;
}
#endif
