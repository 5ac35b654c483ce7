/* advise.h: warnings and hints about a plan: what is slow about it, and which setting would do better.
 *
 * All of them are called between passes (compiler/compile.c), and nothing of the plan depends on them. Some try
 * another setting: they run passes on a copy of the planning.
 */
#ifndef FCPC_ADVICE_ADVISE_H
#define FCPC_ADVICE_ADVISE_H
#include "compiler/passes/pass_list.h"

/* block_sizes.c. Needs blocks and tiles. Warns of a block that has more work than the mean rank, and says which size
 * would do. Cost: finding the tiles of each smaller size that is tried. */
fcp_code advise_heavy_blocks(planning *x);
/* Needs the placement. Warns of ranks that own no block and compute none: they take part in the plan for nothing. */
fcp_code advise_idle_ranks(planning *x);

/* layout_price.c. Needs traffic and reshuffle. Warns where one rank's part of the reshuffle, or the queries that leave it
 * and their results, take longer on a fabric than the mean rank computes, and a millisecond at least. Cost: linear in
 * both. */
fcp_code advise_layout(planning *x);

/* memory_hints.c. Needs slots, and the error of capacity_check. Adds hints to it: fewer rounds to a stage, another
 * `relay`, a larger tolerance, or phases of fewer heads, with which the plan would fit; else how much memory would do.
 * Cost: scheduling once, and again for each smaller `coalesce` if the smallest would do; planning at most three times. */
fcp_code advise_memory(planning *x);

/* --- inside the room ---------------------------------------------------------------------------------------------- */

/* Runs the passes behind `after` up to `last` on `other`, a copy of x with another setting, which has memory of its own
 * until advise_end_again. Unless `after` is behind the tiles, it also asks the mask anew: a plan keeps only shapes of its
 * own blocks. */
fcp_code advise_plan_again(planning *x, planning *other, pass_function *after, pass_function *last);
void advise_end_again(planning *x, planning *other);
#endif
