/* cut_blocks.c: cuts a batch into blocks of a stated size.
 *
 * Requires: checked lengths, with as many queries as keys; a block size.
 * Gives: blocks of at most x->block tokens that hold every token once.
 * Cost: sorting the remainders, then O(pieces).
 *
 * Each sequence is cut at multiples of the block size. Its remainder, which is shorter than a block, is packed whole
 * into a shared block. This is bin packing by best fit decreasing, ties by sequence index. So only pieces shorter than
 * a block share blocks. Example: lengths 10, 7 and 1 with blocks of 4 tokens. 10 gives two full blocks and 7 gives one.
 * The remainders 3, 2 and 1 are packed in that order: 3 opens a shared block, 2 does not fit and opens another, and 1
 * goes to the first, which it fills.
 */
#include "compiler/problem/bins.h"
#include "compiler/problem/problem.h"

#include <string.h>

#include "compiler/base/sort.h"

/* --- blocks ------------------------------------------------------------------------------------------------------- */

fcp_code problem_cut_blocks(planning *x) {
    problem *p = x->problem;
    if (p->split) return problem_cut_split(x);
    fcp_code code = problem_check_blocks(x);
    if (code) return code;
    arena *plan = &x->memory, *scratch = &x->scratch;
    uint32_t block = p->block, rests = 0;
    uint64_t full = 0;
    for (uint32_t s = 0; s < p->sequences; s++) {
        full += p->lengths[s] / block;
        rests += p->lengths[s] % block != 0;
    }
    if (full + rests > UINT32_MAX / 4)
        return planning_fail(x, FCP_E_PLAN_SIZE, planning_size_span(x),
                             "%llu blocks of %u tokens are more than a plan holds", (unsigned long long)(full + rests),
                             block);
    p->piece_count = (uint32_t)full + rests;
    p->pieces = ARENA_NEW(plan, fcp_piece, p->piece_count);
    p->blocks = ARENA_NEW(plan, fcp_block, p->piece_count);
    uint64_t *keys = ARENA_NEW(scratch, uint64_t, rests + (size_t)1);
    uint64_t *room = ARENA_NEW(scratch, uint64_t, rests + (size_t)1);
    uint32_t *bin_of = ARENA_NEW(scratch, uint32_t, rests + (size_t)1);
    uint32_t *first = ARENA_ZNEW(scratch, uint32_t, rests + (size_t)2);
    bins b;
    if (!p->pieces || !p->blocks || !keys || !room || !bin_of || !first || !bins_init(&b, scratch, block, rests))
        return FCP_E_NO_MEMORY;

    /* The full blocks, in order of sequence and start. Remainders get keys that sort them by falling length, then by
     * sequence. */
    uint32_t at = 0, rest = 0;
    for (uint32_t s = 0; s < p->sequences; s++) {
        if (planning_stopped_at(x, s)) return FCP_E_INTERRUPTED;
        uint32_t m = (uint32_t)(p->lengths[s] / block);
        for (uint32_t i = 0; i < m; i++, at++) {
            p->pieces[at] = (fcp_piece){.sequence = s, .length = block, .start = (uint64_t)i * block, .block = at};
            p->blocks[at] = (fcp_block){.first_piece = at, .pieces = 1, .tokens = block, .holds = FCP_HOLDS_BOTH};
        }
        uint32_t r = (uint32_t)(p->lengths[s] % block);
        if (r) keys[rest++] = (uint64_t)(block - r) << 32 | s;
    }
    sort_u64(keys, room, rest);

    uint32_t shared = 0;
    for (uint32_t i = 0; i < rest; i++) {
        if (planning_stopped_at(x, i)) return FCP_E_INTERRUPTED;
        uint32_t length = block - (uint32_t)(keys[i] >> 32), space, bin = bins_take(&b, length, &space);
        if (bin == FCP_NONE) bin = shared++, space = block;
        bin_of[i] = bin;
        first[bin + 1]++;
        if (space > length) bins_put(&b, space - length, bin);
    }
    for (uint32_t i = 0; i < shared; i++) {
        p->blocks[at + i] = (fcp_block){.first_piece = at + first[i], .pieces = first[i + 1], .holds = FCP_HOLDS_BOTH};
        first[i + 1] += first[i];
    }
    for (uint32_t i = 0; i < rest; i++) { /* in the order of packing; `first` moves on as a bin fills */
        uint32_t s = (uint32_t)keys[i], length = block - (uint32_t)(keys[i] >> 32), bin = bin_of[i];
        uint32_t piece = at + first[bin]++;
        fcp_block *blk = &p->blocks[at + bin];
        p->pieces[piece] = (fcp_piece){.sequence = s, .length = length, .start = p->lengths[s] - length,
                                       .offset = blk->tokens, .block = at + bin};
        blk->tokens += length;
    }
    p->block_count = at + shared;
    return FCP_OK;
}
