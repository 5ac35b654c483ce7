/* pack_sequences.c: packs sequences into groups, each for as few ranks as hold its tokens.
 *
 * Requires: sizes of at most 2^40 tokens, of at most 2^24 sequences; tokens < 2^24.
 * Gives: the group of every sequence. A group of `least` ranks has at most least * tokens tokens. Sequences without
 *     tokens are in the first group, which has one rank if there are no others.
 * Cost: sorting the sequences, then O(1) for each.
 * Source: best fit decreasing, a rule for bin packing, which "Flexible Context Parallelism" (2025), section 4.4, also
 *     uses.
 *
 * Example: sizes 150, 40, 40 and 30, with 64 tokens a rank. 150 needs three ranks, which hold 192: 42 are free. The
 * first 40 goes there. The second begins a group of its own, of which 24 are free. 30 fits nowhere and begins a third.
 */
#include "compiler/place/groups/groups.h"

#include "compiler/base/sort.h"
#include "compiler/problem/bins.h"

fcp_code groups_pack(const uint64_t *size, uint32_t count, uint32_t tokens, uint32_t most, arena *scratch,
                     uint32_t *out_group, groups_group *out, uint32_t *out_count) {
    enum { INDEX_BITS = 24 };
    const uint64_t longest = UINT64_C(1) << 40;
    uint64_t *keys = ARENA_NEW(scratch, uint64_t, count + (size_t)1);
    uint64_t *room = ARENA_NEW(scratch, uint64_t, count + (size_t)1);
    uint32_t groups = 0, some = 0;
    bins b;
    if (!keys || !room || !bins_init(&b, scratch, tokens, count)) return FCP_E_NO_MEMORY;
    for (uint32_t s = 0; s < count; s++) {
        out_group[s] = 0;
        if (size[s]) keys[some++] = (longest - size[s]) << INDEX_BITS | s;
    }
    if (!some && count) out[groups++] = (groups_group){.least = 1};
    sort_u64(keys, room, some); /* the longest first; of equals in order */
    for (uint32_t i = 0; i < some; i++) {
        uint32_t s = (uint32_t)(keys[i] & ((1u << INDEX_BITS) - 1)), space = 0;
        uint32_t g = size[s] <= tokens ? bins_take(&b, (uint32_t)size[s], &space) : FCP_NONE;
        if (g == FCP_NONE) {
            uint64_t least = size[s] / tokens + (size[s] % tokens != 0);
            if (least > most) {
                *out_count = s;
                return FCP_E_VALUE;
            }
            out[g = groups++] = (groups_group){.least = (uint32_t)least};
            space = (uint32_t)(least * tokens - size[s]);
        } else {
            space -= (uint32_t)size[s];
        }
        if (space) bins_put(&b, space, g);
        out[g].tokens += size[s];
        out_group[s] = g;
    }
    *out_count = groups;
    return FCP_OK;
}
