/* cut_split.c: cuts a batch into blocks of a stated size, where some sequence has more or fewer queries than keys.
 *
 * Requires: checked lengths; a block size.
 * Gives: blocks of queries alone and of keys alone, of at most x->block tokens, that hold every query and every key
 *     once.
 * Cost: sorting the remainders, then O(sequences * OPEN_BINS).
 * Units: tokens; work in positions, that is queries times keys, whatever the mask leaves of them.
 * Source: Csirik and Johnson, "Bounded Space On-Line Bin Packing: Best is Better than First" (1991), for the rule.
 *
 * 1. Each side of a sequence is cut at multiples of the block size. Example: with blocks of 4, a sequence of 6 queries
 *    and 11 keys gives a full block of queries, two of keys, and the remainders 2 and 3.
 * 2. The two remainders of a sequence are packed into the same bin. A bin becomes a Q block and a KV block of the same
 *    sequences, so that the Q block reads as few KV blocks as possible.
 * 3. Sequences are packed in order of the larger of their two remainders, the largest first, ties by index. Each goes
 *    to the open bin in which it leaves least room on the side of its larger remainder; of equals, to the oldest bin.
 * 4. A bin takes at most 1 / BIN_WORK_PART of a rank's mean work, unless a single sequence's remainders have more. Why:
 *    a few queries can be much work, because a query may see a whole long sequence. A thousand sequences that decode
 *    one token each have a thousand queries. These would fit one block, and that block would have all the work of the
 *    batch.
 */
#include "compiler/problem/problem.h"

#include <string.h>

#include "compiler/base/group.h"
#include "compiler/base/sort.h"
#include "compiler/problem/problem_tuning.h"

typedef struct bin {
    uint32_t number, room[FCP_SIDES];
    uint64_t work; /* that it still takes */
} bin;

typedef struct packing {
    problem *p;
    bin open[OPEN_BINS];
    uint32_t count; /* bins that are open, oldest first */
    uint32_t bins;
    uint64_t most_work;
} packing;

static void close_bin(packing *x, uint32_t i) {
    x->count--;
    memmove(x->open + i, x->open + i + 1, (x->count - i) * sizeof *x->open);
}

/* Puts the remainders of a sequence, which have this much work, into the best bin; returns its number. */
static uint32_t choose_bin(packing *x, const uint32_t rest[FCP_SIDES], uint64_t work) {
    int side = rest[FCP_KEYS] >= rest[FCP_QUERIES] ? FCP_KEYS : FCP_QUERIES;
    uint32_t best = OPEN_BINS, fullest = 0;
    for (uint32_t i = 0; i < x->count; i++) {
        const bin *b = &x->open[i];
        if (b->room[side] < x->open[fullest].room[side]) fullest = i;
        if (b->room[FCP_QUERIES] < rest[FCP_QUERIES] || b->room[FCP_KEYS] < rest[FCP_KEYS] || b->work < work) continue;
        if (best == OPEN_BINS || b->room[side] < x->open[best].room[side]) best = i;
    }
    if (best == OPEN_BINS) {
        if (x->count == OPEN_BINS) close_bin(x, fullest);
        best = x->count++;
        x->open[best] = (bin){x->bins++, {x->p->block, x->p->block}, x->most_work > work ? x->most_work : work};
    }
    bin *b = &x->open[best];
    uint32_t number = b->number;
    for (int i = 0; i < FCP_SIDES; i++) b->room[i] -= rest[i];
    b->work -= work;
    if (!b->room[side]) close_bin(x, best);
    return number;
}

static void add_piece(problem *p, uint32_t sequence, uint32_t length, uint64_t start) {
    fcp_block *b = &p->blocks[p->block_count - 1];
    p->pieces[p->piece_count++] = (fcp_piece){
        .sequence = sequence, .length = length, .start = start, .offset = b->tokens, .block = p->block_count - 1};
    b->pieces++;
    b->tokens += length;
}

static void open_block(problem *p, int side) {
    p->blocks[p->block_count++] = (fcp_block){.first_piece = p->piece_count, .holds = 1u << side};
}

/* Makes two blocks of each bin. Bin i has the remainders of sequence[first[i]] to sequence[first[i + 1] - 1], in the
 * order in which they were packed. */
static void add_bins(problem *p, const uint32_t *first, uint32_t bins, const uint32_t *sequence) {
    for (uint32_t i = 0; i < bins; i++)
        for (int side = 0; side < FCP_SIDES; side++) {
            bool opened = false;
            for (uint32_t j = first[i]; j < first[i + 1]; j++) {
                uint64_t n = problem_length(p, sequence[j], (fcp_side)side);
                uint32_t rest = (uint32_t)(n % p->block);
                if (!rest) continue;
                if (!opened) open_block(p, side);
                opened = true;
                add_piece(p, sequence[j], rest, n - rest);
            }
        }
}

fcp_code problem_cut_split(planning *x) {
    problem *p = x->problem;
    fcp_code code = problem_check_blocks(x);
    if (code) return code;
    arena *plan = &x->memory, *scratch = &x->scratch;
    uint64_t full = 0;
    unsigned __int128 work = 0;
    uint32_t rests = 0;
    for (uint32_t s = 0; s < p->sequences; s++) {
        full += p->queries[s] / p->block + p->lengths[s] / p->block;
        rests += p->queries[s] % p->block || p->lengths[s] % p->block;
        work += (unsigned __int128)p->queries[s] * p->lengths[s];
    }
    if (full + 2 * (uint64_t)rests > UINT32_MAX / 4)
        return planning_fail(x, FCP_E_PLAN_SIZE, planning_size_span(x),
                             "%llu blocks of %u tokens are more than a plan holds",
                             (unsigned long long)(full + 2 * (uint64_t)rests), p->block);
    size_t room = (size_t)full + 2 * (size_t)rests;
    p->pieces = ARENA_NEW(plan, fcp_piece, room);
    p->blocks = ARENA_NEW(plan, fcp_block, room);
    uint64_t *keys = ARENA_NEW(scratch, uint64_t, rests + (size_t)1),
             *other = ARENA_NEW(scratch, uint64_t, rests + (size_t)1);
    uint32_t *bin_of = ARENA_NEW(scratch, uint32_t, rests + (size_t)1),
             *first = ARENA_NEW(scratch, uint32_t, rests + (size_t)2);
    uint32_t *member = ARENA_NEW(scratch, uint32_t, rests + (size_t)1);
    packing *packed = ARENA_ZNEW(scratch, packing, 1);
    if (!p->pieces || !p->blocks || !keys || !other || !bin_of || !first || !member || !packed) return FCP_E_NO_MEMORY;

    uint32_t count = 0;
    for (uint32_t s = 0; s < p->sequences; s++) {
        if (planning_stopped_at(x, s)) return FCP_E_INTERRUPTED;
        for (int side = 0; side < FCP_SIDES; side++) {
            uint64_t n = problem_length(p, s, (fcp_side)side);
            for (uint64_t start = 0; start + p->block <= n; start += p->block) {
                open_block(p, side);
                add_piece(p, s, p->block, start);
            }
        }
        uint32_t q = (uint32_t)(p->queries[s] % p->block), k = (uint32_t)(p->lengths[s] % p->block),
                 most = q > k ? q : k;
        if (most) keys[count++] = (uint64_t)(p->block - most) << 32 | s;
    }
    sort_u64(keys, other, count);
    work /= (unsigned __int128)BIN_WORK_PART * p->ranks;
    packed->p = p;
    packed->most_work = work > UINT64_MAX ? UINT64_MAX : (uint64_t)work;
    for (uint32_t i = 0; i < count; i++) {
        if (planning_stopped_at(x, i)) return FCP_E_INTERRUPTED;
        uint32_t s = (uint32_t)keys[i];
        const uint32_t rest[FCP_SIDES] = {(uint32_t)(p->queries[s] % p->block), (uint32_t)(p->lengths[s] % p->block)};
        bin_of[i] = choose_bin(packed, rest, rest[FCP_QUERIES] * p->lengths[s]); /* less than 2^20 times at most 2^40 */
    }
    if (!group_by(bin_of, sizeof *bin_of, count, packed->bins, first, member, x->stop)) return FCP_E_INTERRUPTED;
    for (uint32_t i = 0; i < count; i++) member[i] = (uint32_t)keys[member[i]]; /* the sequence it is a remainder of */
    add_bins(p, first, packed->bins, member);
    return FCP_OK;
}
