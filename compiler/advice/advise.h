/* advise.h: warnings and hints about a plan: what makes it slow or too large, and which setting would do better.
 *
 * compiler/compile.c calls these functions between passes. They change nothing of the plan. To find out whether another
 * setting would do better, some of them run passes once more, on a copy of the planning.
 */
#ifndef FCPC_ADVICE_ADVISE_H
#define FCPC_ADVICE_ADVISE_H
#include "compiler/passes/pass_list.h"

/* block_sizes.c. Requires blocks and tiles. Warns of a block that has more work than the mean rank, and says which size
 * of blocks would be small enough. Cost: finding the tiles again for each smaller size that is tried. */
fcp_code advise_heavy_blocks(planning *x);
/* Requires the placement. Warns of ranks that get no tokens: of those that do nothing, and of those that compute for
 * others (strategy_count_bare). */
fcp_code advise_idle_ranks(planning *x);

/* layout_price.c. Requires traffic and reshuffle. Warns if the layout that the program states makes some rank send and
 * receive for longer than the mean rank computes, and for at least a millisecond. What counts is the tokens that move
 * to their homes and back, and the queries that are computed on another rank, with their results. Cost: linear in
 * traffic and reshuffle. */
fcp_code advise_layout(planning *x);

/* memory_hints.c. Requires slots, and the error that capacity_check has reported. Adds hints to that error: settings
 * with which the plan would fit (fewer rounds to a stage, another `relay`, a larger tolerance, phases of fewer heads),
 * or how much memory would do. Cost: up to three plannings, and one schedule for each smaller `coalesce`. */
fcp_code advise_memory(planning *x);

/* --- inside the room ---------------------------------------------------------------------------------------------- */

/* Runs the passes that follow `after`, up to and including `last`, on `other`: a copy of x in which the caller has
 * changed a setting. `other` has memory of its own, which advise_end_again frees. If the blocks are cut again, the mask
 * is evaluated again as well, because the answers that x keeps are about the old blocks. */
fcp_code advise_plan_again(planning *x, planning *other, pass_function *after, pass_function *last);
void advise_end_again(planning *x, planning *other);
#endif
