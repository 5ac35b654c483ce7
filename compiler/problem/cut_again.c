/* cut_again.c: other blocks of the same tokens.
 *
 * Requires: a problem of one range of heads, with its tiles; the stretches of tokens that the new blocks are made of.
 * Gives: the blocks, their pieces, and the tiles between them. What the old problem pointed to stays as it was.
 * Cost: O(pieces + stretches), and the tiles are made once more.
 *
 * Example: block 5 holds tokens 0 to 2,047 of a sequence. Three stretches, 0 to 127, 256 to 383 and then those between
 * and behind them, of which the first and the third open a block: one block of two pieces, and another of two.
 */
#include "compiler/problem/problem.h"

typedef struct recut {
    const problem *old;
    fcp_piece *pieces;
    fcp_block *blocks;
    uint32_t *of;                  /* per new block: the old one */
    uint32_t *first, *last, *next; /* an old piece's new ones by start: its first and last; per new one the next */
    uint32_t piece_count, block_count;
} recut;

/* Adds new piece n to those of an old piece. Most come in order of start. */
static void link_piece(recut *c, uint32_t old, uint32_t n) {
    const uint64_t start = c->pieces[n].start;
    uint32_t *at = &c->first[old];
    if (*at != FCP_NONE && c->pieces[c->last[old]].start < start) at = &c->next[c->last[old]];
    while (*at != FCP_NONE && c->pieces[*at].start < start) at = &c->next[*at];
    c->next[n] = *at;
    *at = n;
    if (c->next[n] == FCP_NONE) c->last[old] = n;
}

/* Adds a stretch to the last of the new blocks. */
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
    for (uint32_t i = from->first_piece; i < from->first_piece + from->pieces; i++) {
        const fcp_piece *piece = &p->pieces[i];
        const uint32_t at = piece->offset > s->first ? piece->offset : s->first, stop = piece->offset + piece->length,
                       end = stop < s->end ? stop : s->end;
        if (at >= end) continue;
        c->pieces[c->piece_count] = (fcp_piece){.sequence = piece->sequence, .length = end - at,
                                                .start = piece->start + (at - piece->offset), .offset = to->tokens,
                                                .block = b};
        link_piece(c, i, c->piece_count++);
        to->tokens += end - at;
        to->pieces++;
    }
}

/* Lists the new pieces of each sequence, as the old ones were listed. */
static fcp_code list_pieces(planning *x, const recut *c) {
    problem *p = x->problem;
    const problem *old = c->old;
    for (int side = 0; side < FCP_SIDES; side++) {
        if (side && !p->split) {
            p->sequence_piece[side] = p->sequence_piece[0];
            p->piece_start[side] = p->piece_start[0];
            continue;
        }
        uint32_t *list = ARENA_NEW(&x->work, uint32_t, c->piece_count + (size_t)1), count = 0;
        uint32_t *start = ARENA_NEW(&x->work, uint32_t, p->sequences + (size_t)2);
        if (!list || !start) return FCP_E_NO_MEMORY;
        for (uint32_t s = 0; s < p->sequences; s++) {
            start[s] = count;
            for (uint32_t i = old->piece_start[side][s]; i < old->piece_start[side][s + 1]; i++)
                for (uint32_t n = c->first[old->sequence_piece[side][i]]; n != FCP_NONE; n = c->next[n])
                    list[count++] = n;
        }
        start[p->sequences] = count;
        p->sequence_piece[side] = list;
        p->piece_start[side] = start;
    }
    return FCP_OK;
}

fcp_code problem_cut_again(planning *x, const problem_stretch *stretches, size_t count, uint32_t **out_of) {
    problem *p = x->problem;
    const problem old = *p;
    const size_t most = old.piece_count + count; /* a stretch begins in a piece, and so cuts one at most */
    recut c = {.old = &old, .pieces = ARENA_NEW(&x->memory, fcp_piece, most + 1),
               .blocks = ARENA_NEW(&x->memory, fcp_block, count + 1), .of = ARENA_NEW(&x->work, uint32_t, count + 1),
               .first = ARENA_NEW(&x->scratch, uint32_t, old.piece_count + (size_t)1),
               .last = ARENA_NEW(&x->scratch, uint32_t, old.piece_count + (size_t)1),
               .next = ARENA_NEW(&x->scratch, uint32_t, most + 1)};
    if (!c.pieces || !c.blocks || !c.of || !c.first || !c.last || !c.next) return FCP_E_NO_MEMORY;
    for (uint32_t i = 0; i < old.piece_count; i++) c.first[i] = FCP_NONE;
    for (size_t i = 0; i < count; i++) {
        if (planning_stopped_at(x, i)) return FCP_E_INTERRUPTED;
        add_stretch(&c, &stretches[i]);
    }
    fcp_code code = list_pieces(x, &c);
    if (code) return code;
    if (c.block_count > PROBLEM_BLOCKS_MAX)
        return planning_fail(x, FCP_E_PLAN_SIZE, planning_size_span(x),
                             "more than %d blocks are more than a plan holds", PROBLEM_BLOCKS_MAX);
    p->pieces = c.pieces, p->piece_count = c.piece_count;
    p->blocks = c.blocks, p->block_count = c.block_count;
    *out_of = c.of;
    return problem_tiles_again(x);
}
