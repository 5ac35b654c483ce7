/* initial_by_nodes.c: another first placement: nodes first.
 *
 * Requires: several nodes of `gpus` ranks each, and no fixed homes.
 * Gives: a home for every block and a rank for every tile, of its node.
 * Cost: that of a first placement on as many ranks as there are nodes, refined, and of one in each node.
 * Memory: O(blocks + tiles).
 * Units: pairs, tokens, bytes.
 *
 * Example: two sequences of 12 blocks, two nodes of two ranks. The first placement of initial_partition.c gives a rank
 * a strip and then the next rank what is left, so that a sequence may lie on the second rank of one node and the first
 * of the next. Here each node takes a sequence, and then divides it.
 *
 *   1. A node is a rank that takes as much as its ranks together, less some room, without which its part would not fit
 *      on them. All bytes between such ranks cross nodes, and those inside a node cost nothing.
 *   2. What a node got is a batch of its own: its blocks, and those that its tiles read or whose rows they belong to.
 *      The latter have no tokens there, and no home that counts: a copy comes from another node to whichever rank is
 *      cheapest, and goes on from there.
 *
 * Refining comes afterwards, over all ranks (dcp.c).
 */
#include <string.h>

#include "compiler/place/dcp/dcp.h"

enum { SLACK = 60 /* nodes take such a part, in percent, of what the caps allow over the mean */ };

/* What a node got, as a batch of its own. */
typedef struct node_part {
    dcp_input in;
    uint32_t *block, *tile; /* which block and tile of the whole batch each of its own is */
} node_part;

/* Finds the blocks of a node and numbers them. name: the number of each block; FCP_NONE: it has none. Returns how many
 * there are; *out_tiles: how many tiles. */
static uint32_t name_blocks(const dcp_input *in, const dcp_partition *at, uint32_t node, uint32_t *name,
                            uint32_t *out_tiles) {
    uint32_t blocks = 0, tiles = 0;
    for (uint32_t b = 0; b < in->blocks; b++) name[b] = at->home[b] == node ? 0 : FCP_NONE;
    for (uint32_t q = 0; q < in->blocks; q++)
        for (uint32_t t = in->tile_start[q]; t < in->tile_start[q + 1]; t++) {
            if (at->exec[t] != node) continue;
            name[q] = name[in->tile_k[t]] = 0;
            tiles++;
        }
    for (uint32_t b = 0; b < in->blocks; b++)
        if (name[b] != FCP_NONE) name[b] = blocks++;
    *out_tiles = tiles;
    return blocks;
}

/* What a node got. at: the node of each block and tile; name: room for as many numbers as there are blocks. */
static fcp_code part_of(const dcp_input *in, const dcp_partition *at, uint32_t node, arena *scratch, uint32_t *name,
                        node_part *out) {
    uint32_t tiles, count = 0;
    const uint32_t blocks = name_blocks(in, at, node, name, &tiles);
    const size_t n = blocks + (size_t)1;
    uint32_t *tokens = ARENA_NEW(scratch, uint32_t, n), *start = ARENA_NEW(scratch, uint32_t, n);
    uint32_t *tile_k = ARENA_NEW(scratch, uint32_t, tiles + (size_t)1);
    uint64_t *pairs = ARENA_NEW(scratch, uint64_t, tiles + (size_t)1), *kv = ARENA_NEW(scratch, uint64_t, n);
    uint64_t *whole = ARENA_NEW(scratch, uint64_t, n), *part = ARENA_NEW(scratch, uint64_t, n);
    out->block = ARENA_NEW(scratch, uint32_t, n);
    out->tile = ARENA_NEW(scratch, uint32_t, tiles + (size_t)1);
    if (!tokens || !start || !tile_k || !pairs || !kv || !whole || !part || !out->block || !out->tile)
        return FCP_E_NO_MEMORY;
    for (uint32_t b = 0; b < in->blocks; b++) {
        const uint32_t to = name[b];
        if (to == FCP_NONE) continue;
        out->block[to] = b;
        tokens[to] = at->home[b] == node ? in->tokens[b] : 0;
        kv[to] = in->kv[b];
        whole[to] = in->whole[b];
        part[to] = in->part[b];
        start[to] = count;
        for (uint32_t t = in->tile_start[b]; t < in->tile_start[b + 1]; t++) {
            if (at->exec[t] != node) continue;
            out->tile[count] = t;
            tile_k[count] = name[in->tile_k[t]];
            pairs[count++] = in->tile_pairs[t];
        }
    }
    start[blocks] = count;
    out->in = (dcp_input){.ranks = in->gpus, .gpus = in->gpus, .blocks = blocks, .tokens = tokens, .tile_start = start,
                          .tile_k = tile_k, .tile_pairs = pairs, .kv = kv, .whole = whole, .part = part, .net = 1,
                          .pair_cap = in->pair_cap, .token_cap = in->token_cap, .stop = in->stop};
    return FCP_OK;
}

/* Divides what a node got among its ranks, and adds that to the placement of all. */
static fcp_code divide_node(const dcp_input *in, const dcp_partition *at, uint32_t node, arena *scratch, uint32_t *name,
                            dcp_partition *out) {
    const uint32_t first = node * in->gpus;
    node_part part;
    dcp_partition own;
    fcp_code code = part_of(in, at, node, scratch, name, &part);
    if (!code && !dcp_open_partition(&part.in, scratch, &own)) code = FCP_E_NO_MEMORY;
    if (!code) code = dcp_initial_partition(&part.in, NULL, scratch, &own);
    if (code) return code;
    for (uint32_t b = 0; b < part.in.blocks; b++)
        if (at->home[part.block[b]] == node) out->home[part.block[b]] = first + own.home[b];
    for (uint32_t t = 0; t < part.in.tile_start[part.in.blocks]; t++) out->exec[part.tile[t]] = first + own.exec[t];
    memcpy(out->load + first, own.load, in->gpus * sizeof *own.load);
    memcpy(out->held + first, own.held, in->gpus * sizeof *own.held);
    return FCP_OK;
}

/* What a node takes of pairs or tokens. */
static uint64_t node_cap(const dcp_input *in, uint64_t cap, uint64_t sum) {
    const uint64_t mean = sum / in->ranks;
    return in->gpus * (cap > mean ? mean + (cap - mean) / 100 * SLACK : cap);
}

fcp_code dcp_initial_by_nodes(const dcp_input *in, arena *scratch, arena *step, dcp_partition *out) {
    uint64_t pairs = 0, tokens = 0;
    uint32_t *name = ARENA_NEW(scratch, uint32_t, in->blocks + (size_t)1);
    dcp_partition at;
    dcp_input nodes = *in;
    for (uint32_t t = 0; t < in->tile_start[in->blocks]; t++) pairs += in->tile_pairs[t];
    for (uint32_t b = 0; b < in->blocks; b++) tokens += in->tokens[b];
    nodes.ranks = in->ranks / in->gpus;
    nodes.gpus = 1;
    nodes.net = 1;
    nodes.pair_cap = node_cap(in, in->pair_cap, pairs);
    nodes.token_cap = node_cap(in, in->token_cap, tokens);
    if (!name || !dcp_open_partition(&nodes, scratch, &at)) return FCP_E_NO_MEMORY;
    fcp_code code = dcp_initial_partition(&nodes, step, scratch, &at);
    for (uint32_t v = 0; v < nodes.ranks && !code; v++) {
        code = divide_node(in, &at, v, step, name, out);
        arena_reset(step);
    }
    return code;
}
