/* strategies.c: the table of strategies, made from the lines of compiler/sema/strategies.h.
 *
 * A new strategy is a folder beside fcp/ with a function that places (and one that cuts, unless an existing cut will
 * do), and a line there. It stands above the folders of the strategies, because it calls them.
 */
#include "compiler/place/strategies.h"

#include "compiler/problem/problem.h"

static const strategy strategies[FCP_STRATEGY_COUNT] = {
#define X(id, by_block, in_place, cut, place) [FCP_STRATEGY_##id] = {by_block, in_place, cut, place},
    STRATEGIES(X)
#undef X
};

const strategy *strategy_of(const planning *x) { return &strategies[x->program->strategy]; }

fcp_code strategy_cut(planning *x) { return strategy_of(x)->cut(x); }

fcp_code strategy_place(planning *x) {
    placing found = {.home = ARENA_NEW(&x->work, uint32_t, x->problem->block_count)};
    placement *made = ARENA_NEW(&x->work, placement, 1);
    place_input in;
    if (!found.home || !made) return FCP_E_NO_MEMORY;
    fcp_code code = place_input_of(x, &in);
    if (!code) code = strategy_of(x)->place(x, &in, &found);
    if (code) return code;
    *made = (placement){.home = found.home, .exec = found.exec, .tile_q = x->problem->tile_q};
    x->placement = made;
    return FCP_OK;
}
