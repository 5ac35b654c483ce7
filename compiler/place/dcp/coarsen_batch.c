/* coarsen_batch.c: a coarser batch, where a sequence has more tiles than dividing it among its ranks takes.
 *
 * Requires: what dcp.h says of a dcp_input, without given homes.
 * Gives: the same batch in fewer and larger blocks, and which of them each block and tile is part of.
 * Cost: linear in blocks and tiles. Memory: the same.
 * Units: pairs, tokens, bytes.
 *
 * Example: a causal sequence of 160 blocks takes most of 64 ranks. It has 12,880 tiles, 250 for each of its ranks. In
 * blocks of twice the size it has 3,240. A rank's share is then a patch of about 8 x 8 tiles, and what remains to be
 * done at its edge is for refinement on the tiles themselves.
 */
#include "compiler/place/dcp/dcp.h"

enum {
    PATCH = 64, /* tiles that a rank of a sequence has at least, after blocks are joined */
    MOST = 4,   /* blocks that become one, at most */
    FAR = 4     /* blocks of which one has more than so many times the readers of the other stay apart */
};

/* How many neighbours become one in a component; 1: it fits on a rank, or has few tiles. */
static uint32_t blocks_of_one(const dcp_input *in, const dcp_columns *c, uint32_t component) {
    uint64_t tiles;
    const uint64_t ranks = (dcp_share_of(in, c, component, &tiles) + DCP_ONE - 1) / DCP_ONE;
    uint32_t size = 1;
    while (ranks > 1 && size < MOST && tiles >= (uint64_t)PATCH * ranks * (2 * size) * (2 * size)) size *= 2;
    return size;
}

/* Can a block be joined to the one before it? Not if one of them has queries or keys and the other has none. Nor if one
 * is read by far more blocks: then it was divided from the other so that it can travel alone (problem/few_rows.c). */
static bool is_alike(const dcp_input *in, const dcp_columns *c, uint32_t b) {
    const uint32_t a = c->start[b] - c->start[b - 1], own = c->start[b + 1] - c->start[b];
    return !in->kv[b] == !in->kv[b - 1] && !in->whole[b] == !in->whole[b - 1] && a / FAR <= own && own / FAR <= a;
}

/* Numbers the blocks of the coarser batch; returns how many there are. */
static uint32_t name_blocks(const dcp_input *in, const dcp_columns *c, uint32_t *component, uint8_t *size,
                            uint32_t *out_block) {
    uint32_t count = 0, joined = 0;
    for (uint32_t i = 0; i < c->components; i++) {
        size[i] = (uint8_t)blocks_of_one(in, c, i);
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

/* Joins the rows of blocks `first` to `end` - 1, by going through all of them at once; *count: the tiles so far. */
static void join_rows(const dcp_input *in, uint32_t first, uint32_t end, dcp_coarse_batch *out, uint32_t *tile_k,
                      uint64_t *pairs, uint32_t *count) {
    uint32_t at[MOST];
    for (uint32_t b = first; b < end; b++) at[b - first] = in->tile_start[b];
    for (;;) {
        uint32_t k = FCP_NONE;
        for (uint32_t b = first; b < end; b++) {
            if (at[b - first] == in->tile_start[b + 1]) continue;
            const uint32_t own = out->block[in->tile_k[at[b - first]]];
            if (own < k) k = own;
        }
        if (k == FCP_NONE) return;
        tile_k[*count] = k;
        pairs[*count] = 0;
        for (uint32_t b = first; b < end; b++) {
            uint32_t *t = &at[b - first];
            for (; *t < in->tile_start[b + 1] && out->block[in->tile_k[*t]] == k; ++*t) {
                out->tile[*t] = *count;
                pairs[*count] += in->tile_pairs[*t];
            }
        }
        ++*count;
    }
}

fcp_code dcp_coarsen_batch(const dcp_input *in, const dcp_columns *c, arena *scratch, dcp_coarse_batch *out) {
    const uint32_t n = in->blocks, tiles = in->tile_start[n];
    uint32_t *component = ARENA_NEW(scratch, uint32_t, n + (size_t)1), count = 0;
    uint8_t *size = ARENA_NEW(scratch, uint8_t, n + (size_t)1);
    out->block = ARENA_NEW(scratch, uint32_t, n + (size_t)1);
    if (!component || !size || !out->block) return FCP_E_NO_MEMORY;
    const uint32_t blocks = name_blocks(in, c, component, size, out->block);
    out->in = *in;
    if (blocks == n) return FCP_OK;
    uint32_t *start = ARENA_NEW(scratch, uint32_t, blocks + (size_t)1);
    uint32_t *tokens = ARENA_ZNEW(scratch, uint32_t, blocks + (size_t)1);
    uint64_t *kv = ARENA_ZNEW(scratch, uint64_t, blocks + (size_t)1);
    uint64_t *whole = ARENA_ZNEW(scratch, uint64_t, blocks + (size_t)1);
    uint64_t *part = ARENA_ZNEW(scratch, uint64_t, blocks + (size_t)1);
    uint32_t *tile_k = ARENA_NEW(scratch, uint32_t, tiles + (size_t)1);
    uint64_t *pairs = ARENA_NEW(scratch, uint64_t, tiles + (size_t)1);
    out->tile = ARENA_NEW(scratch, uint32_t, tiles + (size_t)1);
    if (!start || !tokens || !kv || !whole || !part || !tile_k || !pairs || !out->tile) return FCP_E_NO_MEMORY;
    for (uint32_t b = 0; b < n; b++) {
        const uint32_t to = out->block[b];
        tokens[to] += in->tokens[b];
        kv[to] += in->kv[b];
        whole[to] += in->whole[b];
        part[to] += in->part[b];
    }
    for (uint32_t b = 0, end; b < n; b = end) {
        for (end = b + 1; end < n && out->block[end] == out->block[b]; end++) {}
        start[out->block[b]] = count;
        join_rows(in, b, end, out, tile_k, pairs, &count);
    }
    start[blocks] = count;
    out->in.blocks = blocks;
    out->in.tokens = tokens;
    out->in.tile_start = start;
    out->in.tile_k = tile_k;
    out->in.tile_pairs = pairs;
    out->in.kv = kv;
    out->in.whole = whole;
    out->in.part = part;
    return FCP_OK;
}
