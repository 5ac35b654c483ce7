/* strategy_table.h: the strategy of a planning, and the passes that do what it says. */
#ifndef FCPC_PASSES_STRATEGY_TABLE_H
#define FCPC_PASSES_STRATEGY_TABLE_H
#include "compiler/place/place.h"

/* Of plans: 0 to FCP_STRATEGY_COUNT - 1. */
const strategy *strategy_named(uint32_t which);
/* x->strategy, or else that which divides the program's batch. */
const strategy *strategy_of(const planning *x);
/* Do several ranks compute a block that is too heavy for one? */
bool strategy_shares_blocks(const planning *x);

/* *out_bytes becomes a lower bound on the bytes that the forward pass moves: no way to divide the work within the
 * tolerance moves fewer. A bound is known if tokens stay where the caller holds them and work moves, and for dcp also
 * if it chooses homes. Otherwise *out_bytes = 0. Cost: some microseconds a rank, which is more than placing takes. */
fcp_code strategy_bound(planning *x, uint64_t *out_bytes);

/* Three passes. The first cuts the batch into blocks. The second divides those of which few rows are read by many
 * ranks, once tiles are known. The third fills x->placement. */
fcp_code strategy_cut(planning *x);
fcp_code strategy_divide(planning *x);
struct problem_stretch;
/* problem_cut_again. What is known of the homes of blocks is changed to fit. It does nothing if the mask takes long to
 * ask. */
fcp_code strategy_cut_again(planning *x, const struct problem_stretch *stretches, size_t count);
fcp_code strategy_place(planning *x);
#endif
