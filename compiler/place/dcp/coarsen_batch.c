/* coarsen_batch.c: coarsening of the batch: where a sequence has more tiles than are needed to divide it among its
 * ranks, neighbouring blocks become one.
 *
 * Requires: what dcp.h says of a dcp_input, without given homes.
 * Gives: the same batch in fewer and larger blocks, and which of them each block and tile is part of.
 * Cost: linear in blocks and tiles. Memory: the same.
 * Units: pairs, tokens, bytes.
 *
 * Example: a causal sequence of 160 blocks takes most of 64 ranks. It has 12,880 tiles, 250 for each of its ranks. In
 * blocks of twice the size it has 3,240. A rank's share is then a patch of about 8 x 8 tiles. What can still be saved
 * at the edge of a patch is found by refinement on the original tiles.
 */
#include "compiler/place/dcp/dcp.h"

/* How many neighbouring blocks of a component (a sequence) become one: 1 if it fits on a rank, or has few tiles. */
static uint32_t contraction_of(const dcp_input *in, const dcp_columns *c, uint32_t component) {
    uint64_t tiles;
    const uint64_t ranks = (dcp_share_of(in, c, component, &tiles) + DCP_ONE - 1) / DCP_ONE;
    uint32_t size = 1;
    while (ranks > 1 && size < DCP_CONTRACT && tiles >= DCP_PATCH * ranks * 4 * size * size) size *= 2;
    return size;
}

/* May block b become one with the block before it? Not in two cases: one has queries or keys and the other has none; or
 * one is read by far more blocks. problem/few_rows.c has divided such blocks so that they can travel apart. */
static bool is_alike(const dcp_input *in, const dcp_columns *c, uint32_t b) {
    const uint32_t a = c->start[b] - c->start[b - 1], own = c->start[b + 1] - c->start[b];
    return !in->block[b].kv == !in->block[b - 1].kv && !in->block[b].whole == !in->block[b - 1].whole &&
           a / DCP_READERS <= own && own / DCP_READERS <= a;
}

/* Numbers the blocks of the coarser batch; returns how many there are. */
static uint32_t number_coarse_blocks(const dcp_input *in, const dcp_columns *c, uint32_t *component, uint8_t *size,
                                     uint32_t *out_block) {
    uint32_t count = 0, joined = 0;
    for (uint32_t i = 0; i < c->components; i++) {
        size[i] = (uint8_t)contraction_of(in, c, i);
        for (uint32_t k = c->first[i]; k < c->first[i + 1]; k++) component[c->member[k]] = i;
    }
    for (uint32_t b = 0; b < in->blocks; b++) {
        const bool joins = b && component[b] == component[b - 1] && joined < size[component[b]] && is_alike(in, c, b);
        joined = joins ? joined + 1 : 1;
        count += !joins;
        out_block[b] = count - 1;
    }
    return count;
}

/* Merges the rows of blocks `first` to `end` - 1 into one row. *count: the tiles so far. */
static void merge_rows(const dcp_input *in, uint32_t first, uint32_t end, dcp_derived *out, uint32_t *count) {
    uint32_t at[DCP_CONTRACT];
    for (uint32_t b = first; b < end; b++) at[b - first] = in->tile_start[b];
    for (;;) {
        uint32_t k = FCP_NONE;
        for (uint32_t b = first; b < end; b++) {
            if (at[b - first] == in->tile_start[b + 1]) continue;
            const uint32_t own = out->block[in->tile_k[at[b - first]]];
            if (own < k) k = own;
        }
        if (k == FCP_NONE) return;
        out->tile_k[*count] = k;
        out->tile_pairs[*count] = 0;
        for (uint32_t b = first; b < end; b++) {
            uint32_t *t = &at[b - first];
            for (; *t < in->tile_start[b + 1] && out->block[in->tile_k[*t]] == k; ++*t) {
                out->tile[*t] = *count;
                out->tile_pairs[*count] += in->tile_pairs[*t];
            }
        }
        ++*count;
    }
}

fcp_code dcp_coarsen_batch(const dcp_input *in, const dcp_columns *c, arena *scratch, dcp_derived *out) {
    const uint32_t n = in->blocks;
    uint32_t *component = ARENA_NEW(scratch, uint32_t, n + (size_t)1), count = 0;
    uint8_t *size = ARENA_NEW(scratch, uint8_t, n + (size_t)1);
    uint32_t *block = out->block = ARENA_NEW(scratch, uint32_t, n + (size_t)1);
    if (!component || !size || !block) return FCP_E_NO_MEMORY;
    const uint32_t blocks = number_coarse_blocks(in, c, component, size, block);
    out->in = *in;
    if (blocks == n) return FCP_OK;
    if (!dcp_open_derived(in, blocks, in->tile_start[n], scratch, out)) return FCP_E_NO_MEMORY;
    for (uint32_t b = 0; b < n; b++) {
        dcp_block *to = &out->made[block[b]];
        to->tokens += in->block[b].tokens;
        to->kv += in->block[b].kv;
        to->whole += in->block[b].whole;
        to->part += in->block[b].part;
    }
    for (uint32_t b = 0, end; b < n; b = end) {
        for (end = b + 1; end < n && block[end] == block[b]; end++) {}
        out->tile_start[block[b]] = count;
        merge_rows(in, b, end, out, &count);
    }
    out->tile_start[blocks] = count;
    return FCP_OK;
}
