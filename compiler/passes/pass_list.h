/* pass_list.h: runs the passes that make a plan: all of them, or some at a time.
 *
 * Example: strategy = auto runs the passes up to the placement. If the busiest rank alone would compute for longer than
 * the best plan so far takes, it runs no more of them.
 */
#ifndef FCPC_PASSES_PASS_LIST_H
#define FCPC_PASSES_PASS_LIST_H
#include "compiler/planning/planning.h"

typedef fcp_code pass_function(planning *x);

/* Runs the passes that follow `after`, up to and including `last`. after = NULL: from the first on; last = NULL: to the
 * end. Returns the code of the first pass that fails; FCP_E_INTERRUPTED: the caller has asked to stop. */
fcp_code passes_run(planning *x, pass_function *after, pass_function *last);
/* Runs a function that adds nothing to the plan, such as a warning, after the pass `after`. Its seconds are added to
 * those of that pass. */
fcp_code passes_advise(planning *x, pass_function *after, pass_function *advice);
/* Ends a planning (planning_end), and frees the answers of its mask. The plan, if there is one, stays. */
void passes_end(planning *x);

/* --- the passes of this room -------------------------------------------------------------------------------------- */

/* Two passes of other_masks.c, for programs with several masks. The first divides blocks so that they suit all masks.
 * The second finds the work of each block under each mask, x->other_work. They do nothing if x->others is NULL. Cost of
 * each: finding the tiles of each mask. */
fcp_code masks_divide(planning *x);
fcp_code masks_find_work(planning *x);
/* capacity.c. FCP_E_MEMORY_CAP: the fullest rank needs more than cluster.memory; the error says which rank, and how
 * much. Cost: linear in ranks. */
fcp_code capacity_check(planning *x);
/* choose_margin.c. Chooses how many SMs the plan leaves to communication, so that it is fastest. */
fcp_code margin_choose(planning *x);
#endif
