/* given.c: strategies that repeat what is known from another planning (given.h).
 *
 * Requires: blocks of the same batch. Gives: those blocks, homes and ranks. Cost: copying them, and moving work to less
 *           loaded ranks (place/shift_work.c).
 */
#include "compiler/passes/given.h"

#include <string.h>

static void *copy(arena *a, const void *from, size_t bytes) {
    void *made = arena_alloc(a, bytes + 1, 1, _Alignof(uint64_t));
    if (made && bytes) memcpy(made, from, bytes);
    return made;
}

bool given_copy_cut(const problem *from, arena *a, problem *to) {
    to->max_block[0] = from->max_block[0];
    to->max_block[1] = from->max_block[1];
    to->block_count = to->range_blocks = from->range_blocks; /* those of other heads are made anew */
    to->piece_count = 0;
    for (uint32_t b = 0; b < to->block_count; b++) to->piece_count += from->blocks[b].pieces;
    to->pieces = copy(a, from->pieces, to->piece_count * sizeof *from->pieces);
    to->blocks = copy(a, from->blocks, to->block_count * sizeof *from->blocks);
    for (int side = 0; side < FCP_SIDES; side++) {
        const uint32_t count = from->piece_start[side][from->sequences];
        if (side && !from->split) {
            to->sequence_piece[1] = to->sequence_piece[0];
            to->piece_start[1] = to->piece_start[0];
            break;
        }
        to->sequence_piece[side] = copy(a, from->sequence_piece[side], count * sizeof(uint32_t));
        to->piece_start[side] = copy(a, from->piece_start[side], (from->sequences + (size_t)1) * sizeof(uint32_t));
        if (!to->sequence_piece[side] || !to->piece_start[side]) return false;
    }
    for (uint32_t b = 0; to->blocks && b < to->block_count; b++) /* what later passes found is of the other mask */
        to->blocks[b].home = to->blocks[b].home_slot = to->blocks[b].flags = to->blocks[b].heads = 0;
    return to->pieces && to->blocks;
}

static const given *given_of(const planning *x) { return (const given *)x->strategy; }

static fcp_code cut_given(planning *x) {
    problem whole = *x->problem; /* pieces and blocks go into the plan */
    if (!given_copy_cut(given_of(x)->cut, &x->memory, &whole)) return FCP_E_NO_MEMORY;
    *x->problem = whole;
    return FCP_OK;
}

static fcp_code place_given(planning *x, const place_input *in, uint32_t *home) {
    const given *g = given_of(x);
    (void)in;
    if (g->blocks != x->problem->block_count || (g->exec && g->tiles != x->problem->tile_count))
        return planning_fail(x, FCP_E_INTERNAL, SPAN_NONE, "a placement was given of other blocks than there are");
    memcpy(home, g->home, g->blocks * sizeof *home);
    return FCP_OK;
}

static fcp_code exec_given(planning *x, const uint32_t *home, uint32_t *exec) {
    (void)home;
    memcpy(exec, given_of(x)->exec, given_of(x)->tiles * sizeof *exec);
    return FCP_OK;
}

/* Moves work away from ranks that have too much under this mask, and takes the moves back if the plan gets no faster by
 * them. */
static fcp_code exec_shifted(planning *x, const uint32_t *home, uint32_t *exec) {
    uint64_t still, moved;
    fcp_code code = place_shift(x, home, exec);
    if (!code) code = place_weigh(x, home, NULL, &still);
    if (!code) code = place_weigh(x, home, exec, &moved);
    for (uint32_t t = 0; t < x->problem->tile_count && !code && moved >= still; t++)
        exec[t] = home[x->problem->tile_q[t]];
    return code;
}

given given_blocks(const strategy *by, const problem *cut) {
    given g = {.strategy = *by, .cut = cut, .blocks = cut->block_count};
    g.strategy.cut = cut_given;
    g.strategy.cut_given = true;
    return g;
}

given given_homes(const strategy *by, const problem *cut, const uint32_t *home) {
    given g = given_blocks(by, cut);
    g.home = home;
    g.strategy.place = place_given;
    g.strategy.exec = exec_shifted;
    g.strategy.in_place = false;
    g.strategy.given = true;
    return g;
}

given given_placement(const strategy *by, const uint32_t *home, uint32_t blocks, const uint32_t *exec, uint32_t tiles) {
    given g = {.strategy = *by, .home = home, .blocks = blocks, .exec = exec, .tiles = tiles};
    g.strategy.place = place_given;
    g.strategy.given = true;
    g.strategy.exec = exec ? exec_given : NULL;
    return g;
}
