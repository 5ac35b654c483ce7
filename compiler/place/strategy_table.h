/* strategy_table.h: the strategies as passes see them: a table of what each does. */
#ifndef FCPC_PLACE_STRATEGY_TABLE_H
#define FCPC_PLACE_STRATEGY_TABLE_H
#include "compiler/place/place.h"

typedef struct strategy {
    bool by_block;                /* it cuts blocks of x->block tokens; else plan.block does not matter */
    bool cut_given;               /* its blocks are another plan's, and stay as they are */
    bool in_place;                /* homes are where the caller holds the tokens, and work moves */
    fcp_code (*cut)(planning *x); /* a problem's sequences into blocks */
    /* divides blocks once more, after they were divided for the mask at hand; NULL: nobody does */
    fcp_code (*divide)(planning *x);
    fcp_code (*place)(planning *x, const place_input *in, uint32_t *home); /* fills home */
    /* NULL in strategies that leave both to others: where each tile runs (fills exec), and the ways of blocks */
    fcp_code (*exec)(planning *x, const uint32_t *home, uint32_t *exec);
    route_choice *route;
    bool given;                   /* homes are those of another plan, or of a program's first layer */
} strategy;

/* x->strategy, or else the program's. */
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
