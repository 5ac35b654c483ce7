/* given.h: strategies that repeat what is known from another planning: its blocks, or also who owns and computes them.
 *
 * Example: a program has two masks, and fcp has chosen homes for the first. To plan the second with the same homes, a
 * strategy is made from fcp that cuts the same blocks and puts them at the same homes.
 */
#ifndef FCPC_PASSES_GIVEN_H
#define FCPC_PASSES_GIVEN_H
#include "compiler/place/place.h"
#include "compiler/problem/problem.h"

typedef struct given {
    strategy strategy; /* first: planning.strategy points to it */
    const problem *cut;
    const uint32_t *home, *exec;
    uint32_t blocks, tiles;
} given;

/* Copies the pieces and blocks of a problem into *to, in which only the number of sequences is set. What later passes
 * have noted in the blocks is left out. False: out of memory. */
bool given_copy_cut(const problem *from, arena *a, problem *to);
/* A strategy that cuts the blocks of `cut` and does everything else as `by` does. */
given given_blocks(const strategy *by, const problem *cut);
/* A strategy as given_blocks makes it, which also puts each block b at home[b]. Where a rank has too much work at these
 * homes, some of it moves to other ranks if that pays. */
given given_homes(const strategy *by, const problem *cut, const uint32_t *home);
/* A strategy like `by` that puts each block b at home[b] and has rank exec[t] compute tile t. exec = NULL: tiles run at
 * home. */
given given_placement(const strategy *by, const uint32_t *home, uint32_t blocks, const uint32_t *exec, uint32_t tiles);
#endif
