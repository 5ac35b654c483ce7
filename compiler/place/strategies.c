/* strategies.c: the table of strategies, made from the lines of compiler/sema/strategies.h.
 *
 * A new strategy is a folder beside fcp/ with a function that places (and one that cuts, unless an existing cut will
 * do), and a line there. It stands above the folders of the strategies, because it calls them.
 */
#include "compiler/place/strategies.h"

#include "compiler/place/cad/cad.h"
#include "compiler/place/dcp/dcp.h"
#include "compiler/place/heads/heads.h"
#include "compiler/problem/problem.h"

static const strategy strategies[FCP_STRATEGY_COUNT] = {
#define X(id, blocks, in_places, cuts, places, execs)                                                                  \
    [FCP_STRATEGY_##id] = {.by_block = blocks, .in_place = in_places, .cut = cuts, .place = places, .exec = execs},
    STRATEGIES(X)
#undef X
};

const strategy *strategy_of(const planning *x) {
    return x->strategy ? x->strategy : &strategies[x->program->strategy];
}

bool strategy_shares_blocks(const planning *x) { return strategy_of(x)->exec || place_splits(x); }

/* The tolerance that the placement keeps: the program's, or more where tiles are too heavy for that; millionths. */
static fcp_code reached_tolerance(planning *x, uint32_t *out) {
    const problem *p = x->problem;
    uint64_t most = 0, *load = ARENA_ZNEW(&x->scratch, uint64_t, p->ranks);
    if (!load) return FCP_E_NO_MEMORY;
    for (uint32_t t = 0; t < p->tile_count; t++) {
        const uint32_t r = placement_exec(x->placement, t);
        if ((load[r] += p->tile_pairs[t]) > most) most = load[r];
    }
    const uint64_t mean = p->pairs < p->ranks ? 1 : p->pairs / p->ranks;
    const unsigned __int128 over = most > mean ? ((unsigned __int128)(most - mean) * 1000000 + mean - 1) / mean : 0;
    *out = over > UINT32_MAX ? UINT32_MAX : over > x->program->tolerance ? (uint32_t)over : x->program->tolerance;
    return FCP_OK;
}

fcp_code strategy_bound(planning *x, uint64_t *out_bytes) {
    cad_input in = {0};
    *out_bytes = 0;
    fcp_code code = FCP_OK;
    if (x->program->strategy == FCP_STRATEGY_DCP && !x->block_home) {
        code = dcp_bound_of(x, out_bytes);
        arena_reset(&x->scratch);
        return code;
    }
    if (!x->division && !x->block_home) return FCP_OK;
    if (x->division) in = x->division->in;
    else { /* homes are given: the bound holds for whichever strategy moves the work */
        code = cad_input_of(x, &in);
        if (!code) code = reached_tolerance(x, &in.tolerance);
    }
    in.price = cad_price_of(x->program, false);
    if (!code) code = cad_bound(&in, &x->scratch, out_bytes);
    arena_reset(&x->scratch);
    return code;
}

fcp_code strategy_cut(planning *x) { return strategy_of(x)->cut(x); }

/* Does any tile run elsewhere than at its Q block's home? */
static bool moves(const problem *p, const uint32_t *home, const uint32_t *exec) {
    uint32_t t = 0;
    while (t < p->tile_count && exec[t] == home[p->tile_q[t]]) t++;
    return t < p->tile_count;
}

/* May ranks send and receive for others of their node? Where homes are chosen for few bytes, that would add some. */
static bool spreads(const planning *x) {
    const bool chosen = x->program->strategy == FCP_STRATEGY_DCP && !x->block_home;
    return strategy_of(x)->in_place && !chosen;
}

/* Who shares heads has phases, and ways of its own around a ring. */
static void share_heads(const planning *x, placement *made) {
    made->phase = x->sharing->phase;
    made->gather = !x->program->ring;
    made->route = x->program->ring ? heads_route : NULL;
    made->relay = false;
}

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
    if (!exec) exec = x->tile_rank;
    if (x->program->equal && strategy_keeps_homes(x->program)) code = place_check_equal(x, home);
    else if (x->program->equal) code = place_equal(x, &home, &exec);
    if (code) return code;
    if (exec && !moves(x->problem, home, exec)) exec = NULL;
    *made = (placement){.home = home, .exec = exec, .tile_q = x->problem->tile_q, .route = by->route,
                        .relay = x->program->relay && !by->route, .spread = spreads(x)};
    if (exec && x->sharing) share_heads(x, made);
    x->placement = made;
    return FCP_OK;
}
