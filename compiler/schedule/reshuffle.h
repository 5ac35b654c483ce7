/* reshuffle.h: which tokens move from where the caller holds them to the homes of their blocks, and back. */
#ifndef FCPC_SCHEDULE_RESHUFFLE_H
#define FCPC_SCHEDULE_RESHUFFLE_H
#include "compiler/place/place.h"
#include "compiler/problem/problem.h"

/* How many tokens of a block a bundle has. */
typedef struct content {
    uint32_t block, tokens;
} content;

/* All tokens of a side that the caller holds at rank `caller` and whose home is rank `home`, which may be the same. In
 * a plan that is not split, `side` is FCP_QUERIES and stands for both sides. */
typedef struct bundle {
    uint32_t caller, home, side;
    uint32_t tokens;
    uint32_t first, count; /* contents[first] and on, by block. A block's tokens are in the order of the block */
} bundle;

typedef struct reshuffle {
    bundle *bundles;   /* in order of (home, side, caller) */
    uint32_t count;
    content *contents;
    uint32_t units; /* of all bundles between two different ranks */
    bool *moved;    /* per block: does the caller hold some of it at another rank than its home? */
} reshuffle;

/* Makes x->reshuffle from the placement and the program's layout. FCP_E_PLAN_SIZE: more units, or more tokens on a
 * rank, than a plan holds. Cost: O(pieces + runs of the layout); memory: O(pieces + blocks times the ranks that hold
 * them). */
fcp_code reshuffle_build(planning *x);
/* Adds a hint to what was said last: the layout within groups of ranks. */
void reshuffle_hint_group(const planning *x);
/* The unit of a bundle that begins at token `first`: how many tokens it has. */
static inline uint32_t bundle_unit(const problem *p, const bundle *b, uint32_t first) {
    return b->tokens - first < p->unit ? b->tokens - first : p->unit;
}
#endif
