/* cover.h: asserts that every token of a batch lies in exactly one block, and that lists of pieces are in order. */
#ifndef TESTS_COVER_H
#define TESTS_COVER_H
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/problem/problem.h"

static inline void check_cover(const problem *p) {
    uint64_t *next = calloc(p->sequences, sizeof *next);
    uint32_t pieces = 0;
    for (int side = 0; side < FCP_SIDES; side++) {
        memset(next, 0, p->sequences * sizeof *next);
        for (uint32_t s = 0; s < p->sequences; s++)
            for (uint32_t i = p->piece_start[side][s]; i < p->piece_start[side][s + 1]; i++, pieces++) {
                const fcp_piece *piece = &p->pieces[p->sequence_piece[side][i]];
                cr_assert_eq(piece->sequence, s);
                cr_assert_eq(piece->start, next[s]);
                cr_assert(p->blocks[piece->block].holds & 1u << side);
                next[s] += piece->length;
            }
        for (uint32_t s = 0; s < p->sequences; s++) cr_assert_eq(next[s], problem_length(p, s, (fcp_side)side));
    }
    cr_assert_eq(pieces, p->split ? p->piece_count : 2 * p->piece_count);
    for (uint32_t b = 0; b < p->block_count; b++)
        cr_assert(p->split ? p->blocks[b].holds == FCP_HOLDS_Q || p->blocks[b].holds == FCP_HOLDS_KV
                           : p->blocks[b].holds == FCP_HOLDS_BOTH);
    for (uint32_t b = 0; b < p->block_count; b++) {
        uint32_t sum = 0;
        for (uint32_t i = 0; i < p->blocks[b].pieces; i++) {
            const fcp_piece *piece = &p->pieces[p->blocks[b].first_piece + i];
            cr_assert_eq(piece->block, b);
            cr_assert_eq(piece->offset, sum);
            sum += piece->length;
        }
        cr_assert_eq(sum, p->blocks[b].tokens);
    }
    free(next);
}
#endif
