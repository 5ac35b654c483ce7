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

#include "compiler/base/group.h"
#include "compiler/base/sort.h"
#include "compiler/place/dcp/dcp.h"

/* The division among nodes: the node of each block and tile, and the blocks and tiles of each node. */
typedef struct by_node {
    dcp_partition at;
    uint32_t *tile_q;               /* of each tile */
    uint32_t *block_start, *blocks; /* those of node v are blocks[block_start[v]] to blocks[block_start[v + 1] - 1] */
    uint32_t *tile_start, *tiles;
    uint32_t *name; /* per block: its number in the batch of the node at hand; FCP_NONE: it is not in that batch */
} by_node;

static fcp_code list_by_node(const dcp_input *in, uint32_t nodes, arena *scratch, by_node *x) {
    const uint32_t n = in->blocks, tiles = in->tile_start[n];
    x->tile_q = ARENA_NEW(scratch, uint32_t, tiles + (size_t)1);
    x->name = ARENA_NEW(scratch, uint32_t, n + (size_t)1);
    if (!x->tile_q || !x->name) return FCP_E_NO_MEMORY;
    memset(x->name, 0xff, n * sizeof *x->name);
    for (uint32_t q = 0; q < n; q++)
        for (uint32_t t = in->tile_start[q]; t < in->tile_start[q + 1]; t++) x->tile_q[t] = q;
    fcp_code code = group_new(scratch, x->at.home, sizeof *x->at.home, n, nodes, in->stop, &x->block_start, &x->blocks);
    return code ? code
                : group_new(scratch, x->at.exec, sizeof *x->at.exec, tiles, nodes, in->stop, &x->tile_start, &x->tiles);
}

static void list_block(by_node *x, uint32_t b, uint64_t *list, uint32_t *count) {
    if (x->name[b] != FCP_NONE) return;
    x->name[b] = 0;
    list[(*count)++] = b;
}

/* Numbers the blocks of a node's batch, in ascending order: those of the node, and those that its tiles use. They are
 * found by the node's lists, since looks at all blocks for each node would take nodes x blocks steps. *out_list: these
 * blocks. */
static fcp_code number_node_blocks(const dcp_input *in, by_node *x, uint32_t node, arena *scratch, uint64_t **out_list,
                                   uint32_t *out_blocks) {
    const uint32_t own = x->block_start[node + 1] - x->block_start[node];
    const uint32_t tiles = x->tile_start[node + 1] - x->tile_start[node];
    const size_t most = own + 2 * (size_t)tiles + 1;
    uint64_t *list = ARENA_NEW(scratch, uint64_t, most), *other = ARENA_NEW(scratch, uint64_t, most);
    uint32_t count = 0;
    if (!list || !other) return FCP_E_NO_MEMORY;
    for (uint32_t i = 0; i < own; i++) list_block(x, x->blocks[x->block_start[node] + i], list, &count);
    for (uint32_t i = 0; i < tiles; i++) {
        const uint32_t t = x->tiles[x->tile_start[node] + i];
        list_block(x, x->tile_q[t], list, &count);
        list_block(x, in->tile_k[t], list, &count);
    }
    sort_u64(list, other, count);
    for (uint32_t i = 0; i < count; i++) x->name[list[i]] = i;
    *out_list = list;
    *out_blocks = count;
    return FCP_OK;
}

/* Makes a batch of what a node got. out->block and out->tile lead back to the numbers of the whole batch. */
static fcp_code batch_of_node(const dcp_input *in, by_node *x, uint32_t node, arena *scratch, dcp_derived *out) {
    const uint32_t first = x->tile_start[node], tiles = x->tile_start[node + 1] - first;
    uint32_t blocks, count = 0;
    uint64_t *list;
    fcp_code code = number_node_blocks(in, x, node, scratch, &list, &blocks);
    if (code) return code;
    out->block = ARENA_NEW(scratch, uint32_t, blocks + (size_t)1);
    if (!out->block || !dcp_open_derived(in, blocks, tiles, scratch, out)) return FCP_E_NO_MEMORY;
    out->in.ranks = in->gpus;
    out->in.net = 1;
    for (uint32_t to = 0; to < blocks; to++) {
        const uint32_t b = (uint32_t)list[to];
        out->block[to] = b;
        out->made[to] = in->block[b];
        if (x->at.home[b] != node) out->made[to].tokens = 0;
        out->tile_start[to] = count;
        for (; count < tiles && x->tile_q[x->tiles[first + count]] == b; count++) {
            const uint32_t t = out->tile[count] = x->tiles[first + count];
            out->tile_k[count] = x->name[in->tile_k[t]];
            out->tile_pairs[count] = in->tile_pairs[t];
        }
    }
    out->tile_start[blocks] = count;
    for (uint32_t to = 0; to < blocks; to++) x->name[list[to]] = FCP_NONE;
    return FCP_OK;
}

/* Divides what a node got among its ranks, and writes the result into the partition of the whole batch. */
static fcp_code divide_node(const dcp_input *in, by_node *x, uint32_t node, arena *scratch, dcp_partition *out) {
    const uint32_t first = node * in->gpus;
    dcp_derived part;
    dcp_partition own;
    fcp_code code = batch_of_node(in, x, node, scratch, &part);
    if (!code && !dcp_open_partition(&part.in, scratch, &own)) code = FCP_E_NO_MEMORY;
    if (!code) code = dcp_initial_partition(&part.in, NULL, scratch, &own);
    if (code) return code;
    for (uint32_t b = 0; b < part.in.blocks; b++)
        if (x->at.home[part.block[b]] == node) out->home[part.block[b]] = first + own.home[b];
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
    by_node x;
    dcp_input nodes = *in;
    for (uint32_t t = 0; t < in->tile_start[in->blocks]; t++) pairs += in->tile_pairs[t];
    for (uint32_t b = 0; b < in->blocks; b++) tokens += in->block[b].tokens;
    nodes.ranks = in->ranks / in->gpus;
    nodes.gpus = 1;
    nodes.net = 1;
    nodes.pair_cap = node_cap(in, in->pair_cap, pairs);
    nodes.token_cap = node_cap(in, in->token_cap, tokens);
    if (!dcp_open_partition(&nodes, scratch, &x.at)) return FCP_E_NO_MEMORY;
    fcp_code code = dcp_initial_partition(&nodes, step, scratch, &x.at);
    if (!code) code = list_by_node(in, nodes.ranks, scratch, &x);
    for (uint32_t v = 0; v < nodes.ranks && !code; v++) {
        code = divide_node(in, &x, v, step, out);
        arena_reset(step);
    }
    return code;
}
