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

/* Copies the pieces and blocks of a problem into *to, which has only its number of sequences. What later passes have
 * noted in the blocks is left out. False: out of memory. */
bool given_copy_cut(const problem *from, arena *a, problem *to);
/* `by`, with the blocks of `cut`. */
given given_blocks(const strategy *by, const problem *cut);
/* The same, and with these homes of them. Work moves off ranks that have too much of it, if that pays. */
given given_homes(const strategy *by, const problem *cut, const uint32_t *home);
/* `by`, with homes of so many blocks, and ranks that compute so many tiles; exec = NULL: tiles run at home. */
given given_placement(const strategy *by, const uint32_t *home, uint32_t blocks, const uint32_t *exec, uint32_t tiles);
#endif
