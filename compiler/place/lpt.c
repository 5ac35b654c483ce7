/* lpt.c: longest processing time first (LPT), a rule of list scheduling, with a cap on the tokens of a rank.
 *
 * Requires: tokens[b] <= block for every block (for larger ones the cap is kept where it can be); work that adds up
 *     to less than 2^64.
 * Gives: a home for every block. No rank holds more than floor(mean) + block tokens.
 * Cost: O(blocks x ranks) at worst: ranks without room are passed over, and ranks are moved in a sorted list.
 * Units: work in allowed pairs, lengths in tokens.
 * Source: Graham, "Bounds on multiprocessing timing anomalies" (1969), for the rule. FCP adds the cap and the zig-zag.
 *
 * LPT takes the blocks by falling work and gives each to the least loaded rank that has room for its tokens. Such a
 * rank always exists: when a block of t tokens comes, the ranks hold at most total - t tokens, so some rank holds at
 * most floor((total - t) / ranks), which with the block is at most floor(mean) + block. Among ranks of equal load the
 * one that was given a block last comes first. So blocks of equal or evenly falling work go to ranks 0 1 2 ... 2 1 0 0
 * 1 2 ...: this zig-zag pairs the first chunk of a causal sequence with the last. Work is compared by its upper 32
 * bits.
 */
#include "compiler/place/place.h"

#include <string.h>

#include "compiler/base/bisect.h"
#include "compiler/base/sort.h"

uint64_t place_token_cap(const place_input *in) {
    uint64_t total = 0;
    for (uint32_t b = 0; b < in->blocks; b++) total += in->tokens[b];
    return (in->ranks ? total / in->ranks : 0) + in->block;
}

/* A rank in the list, which is sorted by load; of equal loads, the rank that was given a block last comes first. */
typedef struct loaded {
    uint64_t load, room;
    uint32_t rank;
} loaded;

fcp_code place_lpt(const place_input *in, arena *scratch, uint32_t *out_home) {
    const uint32_t ranks = in->ranks;
    uint64_t *order = ARENA_NEW(scratch, uint64_t, 2 * (size_t)in->blocks + 1), cap = place_token_cap(in);
    loaded *list = ARENA_NEW(scratch, loaded, ranks + (size_t)1);
    if (!order || !list) return FCP_E_NO_MEMORY;
    if (!ranks || !in->blocks) return FCP_OK;
    memcpy(order, in->work, in->blocks * sizeof *order);
    order_falling(order, order + in->blocks, in->blocks);
    for (uint32_t r = 0; r < ranks; r++) list[r] = (loaded){0, cap, r};
    for (uint32_t i = 0; i < in->blocks; i++) {
        const uint32_t b = (uint32_t)order[i], t = in->tokens[b];
        uint32_t at = 0;
        if (!(i & 1023) && fcp_stop_asked(in->stop)) return FCP_E_INTERRUPTED;
        while (at < ranks && list[at].room < t) at++;
        if (at == ranks) at = 0; /* a block larger than `block`: the least loaded rank of all */
        const uint64_t load = list[at].load + in->work[b];
        const loaded next = {load, list[at].room - (t < list[at].room ? t : list[at].room), list[at].rank};
        uint32_t to = 0, end = ranks; /* behind all ranks with less */
        BISECT(to, end, k, list[k].load < load)
        if (to > at) memmove(list + at, list + at + 1, (--to - at) * sizeof *list);
        else memmove(list + to + 1, list + to, (at - to) * sizeof *list); /* it has no work, so no load grows */
        list[to] = next;
        out_home[b] = next.rank;
    }
    return FCP_OK;
}
