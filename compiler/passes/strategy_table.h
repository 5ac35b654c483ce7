/* strategy_table.h: finds the strategy of a planning, and has the passes that call it. */
#ifndef FCPC_PASSES_STRATEGY_TABLE_H
#define FCPC_PASSES_STRATEGY_TABLE_H
#include "compiler/place/place.h"

/* The strategy with this number, 0 to FCP_STRATEGY_COUNT - 1, as plans have it. */
const strategy *strategy_named(uint32_t which);
/* The strategy of a planning: x->strategy if it is set, otherwise the one that divides the program's batch. */
const strategy *strategy_of(const planning *x);
/* May several ranks compute a block, so that one that is too heavy for a rank does no harm? */
bool strategy_shares_blocks(const planning *x);

/* *out_bytes becomes a lower bound on the bytes that the forward pass moves: no way to divide the work within the
 * tolerance moves fewer. A bound is known if tokens stay where the caller holds them and work moves, and for dcp also
 * if it chooses homes. Otherwise *out_bytes = 0. Cost: some microseconds a rank, which is more than placing takes. */
fcp_code strategy_bound(planning *x, uint64_t *out_bytes);

/* Three passes. strategy_cut cuts the batch into blocks. strategy_divide, once tiles are known, cuts blocks again of
 * which few rows are read by many ranks. strategy_place fills x->placement. */
fcp_code strategy_cut(planning *x);
fcp_code strategy_divide(planning *x);
struct problem_stretch;
/* Cuts blocks again (problem_cut_again), and gives homes that are already known to the new blocks. Does nothing if the
 * mask takes long to ask. */
fcp_code strategy_cut_again(planning *x, const struct problem_stretch *stretches, size_t count);
fcp_code strategy_place(planning *x);
/* Requires the placement. Counts ranks without tokens: those that own no block and compute no tile, and those that
 * compute for others, except servers. A rank of the second kind may have tokens before they are brought home, if the
 * program states a layout: then it does not count. Both are 0 if no sequence has tokens. Fails with FCP_E_NO_MEMORY. */
typedef struct strategy_bare {
    uint32_t idle, helping;
} strategy_bare;
fcp_code strategy_count_bare(planning *x, strategy_bare *out);
#endif
