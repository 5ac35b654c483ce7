/* halves.c: divides the tiles that wait for other ranks into two halves, so that one is computed while the other
 * travels.
 *
 * Requires: traffic; which rank computes each tile.
 * Gives: the half of every tile that needs something from another rank, and the half of every hop.
 * Keeps: at each rank the two halves differ in work by no more than its heaviest such tile. All that a tile of the
 *     first half needs travels in the first half.
 * Cost: linear in tiles and hops.
 *
 * Example: a rank has six tiles of equal work that need keys from other ranks: two of Q block 3, two of block 7, two of
 * block 8. The two tiles of block 3 and the first of block 7 are its first half.
 *
 * Tiles that need nothing from other ranks are in neither half: they run while the first half travels, or where there
 * is room. The others are taken in order of (Q block, KV block), up to half of their work. This order has two
 * advantages:
 * - Most rows have all their tiles in one half, so the results of the first half travel home while the second is
 *   computed.
 * - Q blocks are in order of sequence and position. So of a causal sequence the first half has the earlier rows, and
 *   keys that only later rows see travel with the second half.
 *
 * Source: the ping-pong execution of "Core attention disaggregation" (DistCA, 2025), which halves the batch.
 */
#include "compiler/schedule/schedule_parts.h"

#include "compiler/base/group.h"

static inline uint32_t hop_of_q(const traffic *t, uint32_t tile) { return t->tile_q ? t->tile_q[tile] : FCP_NONE; }

/* Halves the tiles of one rank, in their order. The tile across the middle goes to the half with more of its work. */
static void halve(const uint64_t *pairs, const uint32_t *tiles, uint32_t count, uint8_t *out_tile) {
    uint64_t total = 0, done = 0;
    for (uint32_t i = 0; i < count; i++)
        if (out_tile[tiles[i]] != HALF_NEITHER) total += pairs[tiles[i]];
    const uint64_t middle = total / 2;
    for (uint32_t i = 0; i < count; i++) {
        if (out_tile[tiles[i]] == HALF_NEITHER) continue;
        uint64_t end = done + pairs[tiles[i]];
        bool second = done >= middle || (end > middle && end - middle > middle - done);
        out_tile[tiles[i]] = second ? HALF_SECOND : HALF_FIRST;
        done = end;
    }
}

fcp_code halves_find(planning *x, uint8_t *out_tile, bool *out_second) {
    const problem *p = x->problem;
    const traffic *t = x->traffic;
    uint32_t *rank = ARENA_NEW(&x->scratch, uint32_t, p->tile_count + (size_t)1);
    uint32_t *start, *list;
    if (!rank) return FCP_E_NO_MEMORY;
    for (uint32_t i = 0; i < p->tile_count; i++) {
        rank[i] = placement_exec(x->placement, i);
        out_tile[i] = t->tile_kv[i] == FCP_NONE && hop_of_q(t, i) == FCP_NONE ? HALF_NEITHER : HALF_FIRST;
    }
    fcp_code code = group_new(&x->scratch, rank, sizeof *rank, p->tile_count, p->ranks, x->stop, &start, &list);
    if (code) return code;
    for (uint32_t r = 0; r < p->ranks; r++) halve(p->tile_pairs, list + start[r], start[r + 1] - start[r], out_tile);
    for (uint32_t f = 0; f < t->count; f++) out_second[f] = true;
    for (uint32_t i = 0; i < p->tile_count; i++) {
        if (out_tile[i] != HALF_FIRST) continue;
        if (t->tile_kv[i] != FCP_NONE) out_second[t->tile_kv[i]] = false;
        if (hop_of_q(t, i) != FCP_NONE) out_second[hop_of_q(t, i)] = false;
    }
    for (uint32_t f = t->count; f-- > 0;) /* a parent comes before its forwards */
        if (t->hops[f].parent != FCP_NONE && !out_second[f]) out_second[t->hops[f].parent] = false;
    return FCP_OK;
}
