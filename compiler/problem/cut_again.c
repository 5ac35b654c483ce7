/* cut_again.c: divides the tokens of a problem into other blocks.
 *
 * Requires: a problem of one range of heads, with its tiles; the stretches of tokens that the new blocks are made of.
 * Gives: the new blocks, their pieces, and the tiles between them. What the old problem pointed to stays as it was.
 * Cost: O(pieces + stretches), and the tiles are made once more.
 *
 * Example: block 5 holds tokens 0 to 2,047 of a sequence, and is divided into four stretches: 0 to 127 (opens a block),
 * 256 to 383, 128 to 255 (opens a block), 384 to 2,047. It becomes one block with the first two stretches as its
 * pieces, and another with the last two.
 */
#include "compiler/problem/problem.h"

typedef struct recut {
    const problem *old;
    fcp_piece *pieces;
    fcp_block *blocks;
    uint32_t *of; /* per new block: the old one */
    uint32_t piece_count, block_count;
} recut;

/* Adds a stretch to the newest block, or to a new one if it opens one. */
static void add_stretch(recut *c, const problem_stretch *s) {
    const problem *p = c->old;
    const fcp_block *from = &p->blocks[s->block];
    if (s->opens) {
        fcp_block *made = &c->blocks[c->block_count];
        *made = *from;
        made->first_piece = c->piece_count;
        made->pieces = made->tokens = 0;
        c->of[c->block_count++] = s->block;
    }
    const uint32_t b = c->block_count - 1;
    fcp_block *to = &c->blocks[b];
    for (const fcp_piece *piece = p->pieces + from->first_piece, *last = piece + from->pieces; piece < last; piece++) {
        const uint32_t at = piece->offset > s->first ? piece->offset : s->first, stop = piece->offset + piece->length,
                       end = stop < s->end ? stop : s->end;
        if (at >= end) continue;
        c->pieces[c->piece_count++] = (fcp_piece){.sequence = piece->sequence, .length = end - at,
                                                  .start = piece->start + (at - piece->offset),
                                                  .offset = to->tokens, .block = b};
        to->tokens += end - at;
        to->pieces++;
    }
}

fcp_code problem_cut_again(planning *x, const problem_stretch *stretches, size_t count, uint32_t **out_of) {
    problem *p = x->problem;
    const problem old = *p;
    const size_t most = old.piece_count + count; /* a stretch begins in a piece, and so cuts one at most */
    recut c = {.old = &old, .pieces = ARENA_NEW(&x->memory, fcp_piece, most + 1),
               .blocks = ARENA_NEW(&x->memory, fcp_block, count + 1), .of = ARENA_NEW(&x->work, uint32_t, count + 1)};
    if (!c.pieces || !c.blocks || !c.of) return FCP_E_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        if (planning_stopped_at(x, i)) return FCP_E_INTERRUPTED;
        add_stretch(&c, &stretches[i]);
    }
    if (c.block_count > PROBLEM_BLOCKS_MAX)
        return planning_fail(x, FCP_E_PLAN_SIZE, planning_size_span(x),
                             "more than %d blocks are more than a plan holds", PROBLEM_BLOCKS_MAX);
    p->piece_start[0] = NULL; /* problem_tiles lists the new pieces */
    p->pieces = c.pieces, p->piece_count = c.piece_count;
    p->blocks = c.blocks, p->block_count = c.block_count;
    *out_of = c.of;
    return problem_tiles_again(x);
}
