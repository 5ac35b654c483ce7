/* strategy_table.h: the strategies as passes see them: a table of what each does. */
#ifndef FCPC_PASSES_STRATEGY_TABLE_H
#define FCPC_PASSES_STRATEGY_TABLE_H
#include "compiler/place/place.h"

/* Of plans: 0 to FCP_STRATEGY_COUNT - 1. */
const strategy *strategy_named(uint32_t which);
/* x->strategy, or else that which divides the program's batch. */
const strategy *strategy_of(const planning *x);
/* Do several ranks compute a block that is too heavy for one? */
bool strategy_shares_blocks(const planning *x);

/* Where work moves from where the caller holds the tokens: the bytes that the forward pass moves at least, in whatever
 * way it is divided within the tolerance; for dcp with layout = planned, also wherever tokens are. Else 0. Cost: some
 * microseconds a rank, more than placing. */
fcp_code strategy_bound(planning *x, uint64_t *out_bytes);

/* Three passes that do what the program's strategy says: blocks of x->problem; these divided, once their tiles are
 * known, where few of their rows are read by many; and x->placement. */
fcp_code strategy_cut(planning *x);
fcp_code strategy_divide(planning *x);
struct problem_stretch;
/* problem_cut_again, and the homes that are known of blocks follow. Nothing is done if the mask takes long to ask. */
fcp_code strategy_cut_again(planning *x, const struct problem_stretch *stretches, size_t count);
fcp_code strategy_place(planning *x);
#endif
