/* strategies.c: the table of strategies, made from the lines of compiler/sema/strategies.h.
 *
 * A new strategy is a folder beside fcp/ with a function that places (and one that cuts, unless an existing cut will
 * do), and a line there. It stands above the folders of the strategies, because it calls them.
 */
#include "compiler/place/strategies.h"

#include "compiler/problem/problem.h"

static const strategy strategies[FCP_STRATEGY_COUNT] = {
#define X(id, blocks, cuts, places) [FCP_STRATEGY_##id] = {.by_block = blocks, .cut = cuts, .place = places},
    STRATEGIES(X)
#undef X
};

const strategy *strategy_of(const planning *x) {
    return x->strategy ? x->strategy : &strategies[x->program->strategy];
}

fcp_code strategy_cut(planning *x) { return strategy_of(x)->cut(x); }

fcp_code strategy_place(planning *x) {
    uint32_t *home = ARENA_NEW(&x->work, uint32_t, x->problem->block_count);
    placement *made = ARENA_NEW(&x->work, placement, 1);
    const strategy *by = strategy_of(x);
    uint32_t *exec = by->exec ? ARENA_NEW(&x->work, uint32_t, x->problem->tile_count + (size_t)1) : NULL;
    place_input in;
    if (!home || !made || (by->exec && !exec)) return FCP_E_NO_MEMORY;
    fcp_code code = place_input_of(x, &in);
    if (!code) code = by->place(x, &in, home);
    if (!code && exec) code = by->exec(x, home, exec);
    if (code) return code;
    *made = (placement){.home = home, .exec = exec, .tile_q = x->problem->tile_q, .route = by->route};
    x->placement = made;
    return FCP_OK;
}
