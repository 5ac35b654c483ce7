/* pack_blocks.c: packs parts of sequences into blocks.
 *
 * Requires: parts by side, sequence and start. The cut has given each part its home, and a *place*: a number, or
 *     FCP_NONE. No two parts of one sequence have the same home and the same number.
 * Gives: pieces, blocks, and the blocks' homes. A part with place FCP_NONE is a block of its own. Parts with the same
 *     side, home and number share blocks of at most x->block tokens.
 * Cost: sorting the parts, then O(parts).
 */
#include "compiler/problem/problem.h"

#include <string.h>

/* Sorts the numbers of parts in `order` by side, home and place; of equals the longer first, which packs better. */
static fcp_code sort_parts(planning *x, const problem_part *parts, size_t all, uint32_t *order, uint32_t count) {
    uint64_t *value = ARENA_NEW(&x->scratch, uint64_t, all + 1);
    uint64_t *keys = ARENA_NEW(&x->scratch, uint64_t, 2 * (size_t)count + 1);
    if (!value || !keys) return FCP_E_NO_MEMORY;
    for (size_t i = 0; i < all; i++) value[i] = (uint64_t)parts[i].place << 32 | (UINT32_MAX - parts[i].length);
    problem_sort(value, sizeof *value, false, order, count, keys);
    for (size_t i = 0; i < all; i++) value[i] = (uint64_t)parts[i].holds << 32 | parts[i].home;
    problem_sort(value, sizeof *value, false, order, count, keys);
    return FCP_OK;
}

/* Gives each part its block: first the parts without a place, in order; then the others by best fit, into one of the 64
 * newest blocks of their side, home and place. room: what is free in each block. */
static fcp_code choose_blocks(planning *x, problem_part *parts, size_t count, uint32_t *out_blocks) {
    uint32_t *order = ARENA_NEW(&x->scratch, uint32_t, count + 1);
    uint32_t *room = ARENA_NEW(&x->scratch, uint32_t, count + 1), packed = 0, blocks = 0;
    if (!order || !room) return FCP_E_NO_MEMORY;
    for (uint32_t i = 0; i < count; i++) {
        if (parts[i].place == FCP_NONE) parts[i].block = blocks++;
        else order[packed++] = i;
    }
    fcp_code code = sort_parts(x, parts, count, order, packed);
    if (code) return code;
    for (uint32_t i = 0, first = blocks; i < packed; i++) {
        problem_part *m = &parts[order[i]];
        const problem_part *before = i ? &parts[order[i - 1]] : NULL;
        if (planning_stopped_at(x, i)) return FCP_E_INTERRUPTED;
        if (!before || before->holds != m->holds || before->home != m->home || before->place != m->place)
            first = blocks;
        uint32_t best = FCP_NONE;
        for (uint32_t b = blocks; b-- > first && blocks - b <= 64;)
            if (room[b] >= m->length && (best == FCP_NONE || room[b] < room[best])) best = b;
        if (best == FCP_NONE) room[best = blocks++] = x->problem->block;
        room[best] -= m->length;
        m->block = best;
    }
    *out_blocks = blocks;
    return FCP_OK;
}

static fcp_code make_blocks(planning *x, const problem_part *parts, size_t count, uint32_t blocks,
                            uint32_t *out_home) {
    problem *p = x->problem;
    uint32_t *first = ARENA_ZNEW(&x->scratch, uint32_t, blocks + (size_t)1);
    p->pieces = ARENA_NEW(&x->memory, fcp_piece, count);
    p->blocks = ARENA_ZNEW(&x->memory, fcp_block, blocks);
    if (!first || !p->pieces || !p->blocks) return FCP_E_NO_MEMORY;
    for (size_t i = 0; i < count; i++) first[parts[i].block + 1]++;
    for (uint32_t b = 0; b < blocks; b++) {
        p->blocks[b] = (fcp_block){.first_piece = first[b], .pieces = first[b + 1]};
        first[b + 1] += first[b];
    }
    for (int side = 0; side < (p->split ? FCP_SIDES : 1); side++) {
        p->sequence_piece[side] = ARENA_NEW(&x->work, uint32_t, count);
        p->piece_start[side] = ARENA_ZNEW(&x->work, uint32_t, p->sequences + (size_t)1);
        if (!p->sequence_piece[side] || !p->piece_start[side]) return FCP_E_NO_MEMORY;
    }
    uint32_t entry[FCP_SIDES] = {0};
    for (size_t i = 0; i < count; i++) {
        const problem_part *m = &parts[i];
        fcp_block *b = &p->blocks[m->block];
        uint32_t at = first[m->block]++, side = m->holds == FCP_HOLDS_KV ? FCP_KEYS : FCP_QUERIES;
        p->pieces[at] = (fcp_piece){.sequence = m->sequence, .length = m->length, .start = m->start,
                                    .offset = b->tokens, .block = m->block};
        b->tokens += m->length;
        b->holds = (uint8_t)m->holds;
        out_home[m->block] = m->home;
        p->sequence_piece[side][entry[side]++] = at; /* parts come by sequence and start */
        p->piece_start[side][m->sequence + 1] = entry[side];
    }
    for (int side = 0; side < (p->split ? FCP_SIDES : 1); side++)
        problem_close_gaps(p->piece_start[side], p->sequences);
    if (!p->split) {
        p->sequence_piece[FCP_KEYS] = p->sequence_piece[FCP_QUERIES];
        p->piece_start[FCP_KEYS] = p->piece_start[FCP_QUERIES];
    }
    p->piece_count = (uint32_t)count;
    p->block_count = blocks;
    return FCP_OK;
}

fcp_code problem_pack(planning *x, problem_part *parts, size_t count, uint32_t **out_home) {
    uint32_t blocks = 0;
    fcp_code code = choose_blocks(x, parts, count, &blocks);
    uint32_t *home = code ? NULL : ARENA_NEW(&x->work, uint32_t, blocks + (size_t)1);
    if (code) return code;
    *out_home = home;
    return home ? make_blocks(x, parts, count, blocks, home) : FCP_E_NO_MEMORY;
}
