/* strategy_table.c: the functions of each strategy, and the passes that call them: they cut, divide and place blocks.
 *
 * Requires: what earlier passes have made (pass_list.c).
 * Gives: the blocks of x->problem, and x->placement.
 * Cost: that of the strategy.
 */
#include "compiler/passes/strategy_table.h"

#include "compiler/passes/other_masks.h"
#include "compiler/place/cad/cad.h"
#include "compiler/place/dcp/dcp.h"
#include "compiler/place/fcp/place_fcp.h"
#include "compiler/place/groups/groups.h"
#include "compiler/place/heads/heads.h"
#include "compiler/place/place_tuning.h"
#include "compiler/problem/problem.h"

static const strategy strategies[FCP_STRATEGY_COUNT] = {
    [FCP_STRATEGY_FCP] = {.by_block = true, .cut = problem_cut_blocks, .place = place_by_fcp},
    [FCP_STRATEGY_RING] = {.cut = problem_cut_ring, .place = place_by_ring},
    [FCP_STRATEGY_ZIGZAG] = {.cut = problem_cut_zigzag, .place = place_by_zigzag},
    [FCP_STRATEGY_CAD] = {.by_block = true, .in_place = true, .cut = cad_cut, .place = place_by_cad,
                          .exec = exec_by_cad},
    [FCP_STRATEGY_ULYSSES] = {.in_place = true, .cut = heads_cut, .place = place_by_heads, .exec = exec_by_heads},
    [FCP_STRATEGY_UPIPE] = {.in_place = true, .cut = heads_cut, .place = place_by_heads, .exec = exec_by_heads},
    [FCP_STRATEGY_DCP] = {.by_block = true, .in_place = true, .cut = dcp_cut, .place = place_by_dcp,
                          .exec = exec_by_dcp, .bound = dcp_bound_of},
    [FCP_STRATEGY_GROUPS] = {.by_block = true, .in_place = true, .cut = groups_cut, .place = place_by_groups,
                             .exec = exec_by_groups},
};

const strategy *strategy_named(uint32_t which) { return &strategies[which]; }

const strategy *strategy_of(const planning *x) {
    return x->strategy ? x->strategy : strategy_named(program_divides_by(x->program));
}

/* Does the strategy choose homes with the aim that few bytes move (dcp)? Not if the program states a layout: then
 * blocks stay there. */
static bool saves_bytes(const planning *x) { return strategy_of(x)->bound && !x->block_home; }

bool strategy_shares_blocks(const planning *x) { return strategy_of(x)->exec || place_splits(x); }

/* The tolerance that the placement keeps, in millionths: the program's, or a larger one if tiles are too heavy for
 * that. */
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
    if (program_has_groups(x->program)) return FCP_OK; /* the bounds are of plans whose ranks compute all heads */
    if (saves_bytes(x)) {
        code = strategy_of(x)->bound(x, out_bytes);
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

fcp_code strategy_cut(planning *x) {
    return program_has_groups(x->program) ? heads_cut_between(x, strategy_of(x)) : strategy_of(x)->cut(x);
}

/* Blocks were cut into smaller ones; block b now was part of block of[b] before. Each gets the home of that block. */
static fcp_code follow(planning *x, const uint32_t *of, uint32_t **home) {
    const uint32_t blocks = x->problem->block_count, *before = *home;
    if (!before) return FCP_OK;
    uint32_t *made = *home = ARENA_NEW(&x->work, uint32_t, blocks + (size_t)1);
    if (!made) return FCP_E_NO_MEMORY;
    for (uint32_t b = 0; b < blocks; b++) made[b] = before[of[b]];
    return FCP_OK;
}

fcp_code strategy_cut_again(planning *x, const problem_stretch *stretches, size_t count) {
    uint32_t *of;
    fcp_code code = problem_look_ahead(x);
    if (code || problem_takes_long(x)) return code;
    code = problem_cut_again(x, stretches, count, &of);
    if (!code) code = follow(x, of, &x->block_home);
    return code || !x->division ? code : follow(x, of, &x->division->home);
}

fcp_code strategy_divide(planning *x) {
    const strategy *by = strategy_of(x);
    problem_stretch *list;
    size_t count;
    if (!by->by_block || by->cut_given || x->grouping) return FCP_OK; /* groups have a rank for each chunk */
    fcp_code code = problem_few_rows(x, !by->in_place, &list, &count);
    if (!code && count) code = strategy_cut_again(x, list, count);
    return code;
}

/* May ranks of a node send and receive for one another, to spread the load of their ports? Not if homes are chosen for
 * few bytes, because it adds some. */
static bool spreads(const planning *x) { return strategy_of(x)->in_place && !saves_bytes(x); }

/* For strategies in which ranks share heads (ulysses, upipe): sets the phase in which each block leaves home, and how
 * groups of ranks send to each other. If another strategy divides the batch among groups, and all heads are computed at
 * once, there is only one phase, and no block has to wait. */
static void share_heads(const planning *x, placement *made) {
    const struct fcpc_program *g = x->program;
    const bool groups = program_has_groups(g);
    made->phase = groups && g->together == g->heads ? NULL : x->sharing->phase;
    made->gather = !g->between;
    made->route = program_has_ring(g) ? heads_route : groups ? heads_route_between : NULL;
    made->relay = false;
}

/* Do keys go round a ring of all ranks (ring, zigzag)? With layers, so they do under every mask, unless work moves. */
static bool goes_around(const struct fcpc_program *g) {
    return strategy_facts_of[program_divides_by(g)].even && g->send == RING_AROUND;
}

/* Returns whether nodes and ranks may be renumbered so that more bytes travel on rails, that is, between ranks with the
 * same number in their nodes. They may not if homes are given. They also may not if several masks (`layers`) are
 * planned one by one with the homes of ring or zigzag (compiler/shared_homes.c): the numbering follows the traffic
 * under one mask, and would differ between them. */
static bool may_rename(const planning *x) {
    const strategy *by = strategy_of(x);
    const struct fcpc_program *g = x->program;
    const bool by_rule = (g->base == CAD_BASE_RING || g->base == CAD_BASE_ZIGZAG) && g->layer_count > 1;
    return g->topology == FCP_RAIL && by->by_block && !by->given && !by_rule && !strategy_keeps_homes(g);
}

/* Asks one strategy for homes and for the ranks that compute tiles. *exec stays NULL if every tile runs at home. */
static fcp_code place_alone(planning *x, uint32_t **home, uint32_t **exec) {
    const strategy *by = strategy_of(x);
    place_input in;
    *home = ARENA_NEW(&x->work, uint32_t, x->problem->block_count);
    *exec = by->exec ? ARENA_NEW(&x->work, uint32_t, x->problem->tile_count + (size_t)1) : NULL;
    if (!*home || (by->exec && !*exec)) return FCP_E_NO_MEMORY;
    fcp_code code = place_input_of(x, &in);
    if (!code) code = by->place(x, &in, *home);
    if (!code && x->other_work && !x->tile_rank) code = masks_balance(x, &in, *home);
    if (!code && *exec) code = by->exec(x, *home, *exec);
    if (code) return code;
    if (!*exec) *exec = x->tile_rank;
    if (x->program->equal && strategy_keeps_homes(x->program)) code = place_check_equal(x, *home);
    else if (x->program->equal) code = place_equal(x, home, exec);
    return !code && may_rename(x) ? place_on_rails(x, *home, *exec) : code;
}

fcp_code strategy_place(planning *x) {
    const strategy *by = strategy_of(x);
    uint32_t *home, *exec;
    fcp_code code = program_has_groups(x->program) ? heads_place_between(x, by, &home, &exec)
                                                   : place_alone(x, &home, &exec);
    placement *made = code ? NULL : ARENA_NEW(&x->work, placement, 1);
    if (code) return code;
    if (!made) return FCP_E_NO_MEMORY;
    if (!place_moves(home, exec, x->problem->tile_q, x->problem->tile_count)) exec = NULL;
    const bool around = !exec && goes_around(x->program);
    route_choice *route = around ? place_around : by->route;
    *made = (placement){.home = home,
                        .exec = exec,
                        .tile_q = x->problem->tile_q,
                        .route = route,
                        .around = around,
                        .relay = x->program->relay && !route,
                        .spread = spreads(x)};
    if (!x->coalesce && strategy_facts_of[program_divides_by(x->program)].even && !around) x->coalesce = USUAL_COALESCE;
    if (exec && x->sharing) share_heads(x, made);
    x->placement = made;
    return FCP_OK;
}

fcp_code strategy_count_bare(planning *x, strategy_bare *out) {
    const problem *p = x->problem;
    const placement *made = x->placement;
    const uint32_t ranks = p->ranks;
    bool *owns = ARENA_ZNEW(&x->scratch, bool, ranks), *works = ARENA_ZNEW(&x->scratch, bool, ranks);
    uint64_t *held = ARENA_ZNEW(&x->scratch, uint64_t, 2 * (size_t)ranks),
             *parts = ARENA_NEW(&x->scratch, uint64_t, 2 * (size_t)ranks);
    *out = (strategy_bare){0};
    if (!owns || !works || !held || !parts) return FCP_E_NO_MEMORY;
    if (!p->block_count) return FCP_OK;
    for (uint32_t b = 0; b < p->block_count; b++) owns[made->home[b]] = true;
    for (uint32_t t = 0; made->exec && t < p->tile_count; t++) works[made->exec[t]] = true;
    for (int side = 0; x->program->layout != FCP_LAYOUT_PLANNED && side < FCP_SIDES; side++)
        fcp_rule_tokens(&p->rule, (fcp_side)side, parts, held + (size_t)side * ranks);
    for (uint32_t r = 0; r < ranks; r++) {
        const bool server = r >= ranks - x->program->servers;
        if (owns[r]) continue;
        if (!works[r]) out->idle++;
        else if (!server && !held[r] && !held[ranks + r]) out->helping++;
    }
    return FCP_OK;
}
