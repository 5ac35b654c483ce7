/* halves.c: divides the tiles that wait for other ranks into two halves, so that one is computed while the other
 * travels.
 *
 * Requires: traffic; which rows are in which half, and which rank computes each tile (place/cad/cad_halves.c).
 * Gives: the half of every tile that needs something from another rank, and the half of every hop.
 * Keeps: all that a tile of the first half needs travels in the first half. Nothing of it is a row of the second.
 * Cost: linear in tiles and hops.
 *
 * Example: of a causal sequence of 1000 tokens rows before 700 are in the first half. Keys before 700 travel with it,
 * also those that rows from 700 on see, too; queries and keys from 700 on travel with the second half.
 *
 * Tiles that need nothing from other ranks are in neither half: they run while the first half travels, or where there
 * is room.
 *
 * Source: the ping-pong execution of "Core attention disaggregation" (DistCA, 2025).
 */
#include "compiler/schedule/schedule_parts.h"

static inline uint32_t hop_of_q(const traffic *t, uint32_t tile) { return t->tile_q ? t->tile_q[tile] : FCP_NONE; }

fcp_code halves_find(planning *x, uint8_t *out_tile, bool *out_second) {
    const problem *p = x->problem;
    const traffic *t = x->traffic;
    const uint64_t *half = x->second_half; /* NULL: the strategy has made no halves */
    for (uint32_t i = 0; i < p->tile_count; i++) {
        const fcp_piece *q = &p->pieces[p->parts[p->tile_part[i]].q_piece];
        out_tile[i] = t->tile_kv[i] == FCP_NONE && hop_of_q(t, i) == FCP_NONE ? HALF_NEITHER
                      : !half || q->start < half[q->sequence]                 ? HALF_FIRST
                                                                              : HALF_SECOND;
    }
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
