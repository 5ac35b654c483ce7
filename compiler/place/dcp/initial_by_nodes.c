/* initial_by_nodes.c: an initial partition that divides the batch among nodes first.
 *
 * Requires: several nodes of `gpus` ranks each, and no fixed homes.
 * Gives: a home for every block and a rank for every tile.
 * Cost: that of an initial partition on as many ranks as there are nodes, refined, and of one in each node.
 * Memory: O(blocks + tiles).
 * Units: pairs, tokens, bytes.
 *
 * Example: two sequences of 12 blocks, two nodes of two ranks. The partition of initial_partition.c gives a rank a
 * strip and then the next rank what is left. So a sequence may lie on the second rank of one node and the first of the
 * next. Here each node takes a sequence, and then divides it.
 *
 *   1. Among nodes. A node counts as one rank. Its caps are those of its ranks together, less a little: if it were
 *      filled completely, its part would not fit on its ranks. All bytes between such ranks cross nodes; those inside a
 *      node cost nothing.
 *   2. In each node. What it got is a batch of its own. It has the node's blocks, and also the blocks of other nodes
 *      whose keys or rows its tiles use. These have no tokens here, and their home does not count: one copy comes from
 *      another node to whichever rank is cheapest, and goes on from there.
 *
 * Refinement over all ranks comes afterwards (dcp.c).
 */
#include <string.h>

#include "compiler/place/dcp/dcp.h"

/* Numbers the blocks of a node's batch. name: the number of each block there, or FCP_NONE. Returns how many there are;
 * *out_tiles: how many tiles there are. */
static uint32_t number_node_blocks(const dcp_input *in, const dcp_partition *at, uint32_t node, uint32_t *name,
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

/* Makes a batch of what a node got. at: the node of each block and tile. name: an array for as many numbers as there
 * are blocks. out->block and out->tile lead back to the numbers of the whole batch. */
static fcp_code batch_of_node(const dcp_input *in, const dcp_partition *at, uint32_t node, arena *scratch,
                              uint32_t *name, dcp_derived *out) {
    uint32_t tiles, count = 0;
    const uint32_t blocks = number_node_blocks(in, at, node, name, &tiles);
    out->block = ARENA_NEW(scratch, uint32_t, blocks + (size_t)1);
    if (!out->block || !dcp_open_derived(in, blocks, tiles, scratch, out)) return FCP_E_NO_MEMORY;
    out->in.ranks = in->gpus;
    out->in.net = 1;
    for (uint32_t b = 0; b < in->blocks; b++) {
        const uint32_t to = name[b];
        if (to == FCP_NONE) continue;
        out->block[to] = b;
        out->made[to] = in->block[b];
        if (at->home[b] != node) out->made[to].tokens = 0;
        out->tile_start[to] = count;
        for (uint32_t t = in->tile_start[b]; t < in->tile_start[b + 1]; t++) {
            if (at->exec[t] != node) continue;
            out->tile[count] = t;
            out->tile_k[count] = name[in->tile_k[t]];
            out->tile_pairs[count++] = in->tile_pairs[t];
        }
    }
    out->tile_start[blocks] = count;
    return FCP_OK;
}

/* Divides what a node got among its ranks, and writes the result into the partition of the whole batch. */
static fcp_code divide_node(const dcp_input *in, const dcp_partition *at, uint32_t node, arena *scratch, uint32_t *name,
                            dcp_partition *out) {
    const uint32_t first = node * in->gpus;
    dcp_derived part;
    dcp_partition own;
    fcp_code code = batch_of_node(in, at, node, scratch, name, &part);
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

/* A node's cap on pairs or tokens: that of its ranks together, less a part of what each rank may have over the mean. */
static uint64_t node_cap(const dcp_input *in, uint64_t cap, uint64_t sum) {
    const uint64_t mean = sum / in->ranks;
    return in->gpus * (cap > mean ? mean + (cap - mean) / 100 * DCP_NODE_SLACK : cap);
}

fcp_code dcp_initial_by_nodes(const dcp_input *in, arena *scratch, arena *step, dcp_partition *out) {
    uint64_t pairs = 0, tokens = 0;
    uint32_t *name = ARENA_NEW(scratch, uint32_t, in->blocks + (size_t)1);
    dcp_partition at;
    dcp_input nodes = *in;
    for (uint32_t t = 0; t < in->tile_start[in->blocks]; t++) pairs += in->tile_pairs[t];
    for (uint32_t b = 0; b < in->blocks; b++) tokens += in->block[b].tokens;
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
