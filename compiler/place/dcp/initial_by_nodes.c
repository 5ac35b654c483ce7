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

/* Divides what a node got among its ranks, and writes the result into the partition of the whole batch. */
static fcp_code divide_node(const dcp_input *in, dcp_by_node *x, uint32_t node, arena *scratch, dcp_partition *out) {
    const uint32_t first = node * in->gpus;
    dcp_derived part;
    dcp_partition own;
    fcp_code code = dcp_batch_of_node(in, x, node, scratch, &part);
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

uint64_t dcp_node_cap(const dcp_input *in, uint64_t cap, uint64_t sum, uint32_t percent) {
    const uint64_t mean = sum / in->ranks;
    return in->gpus * (cap > mean ? mean + (cap - mean) / 100 * percent : cap);
}

fcp_code dcp_initial_by_nodes(const dcp_input *in, arena *scratch, arena *step, dcp_partition *out) {
    uint64_t pairs = 0, tokens = 0;
    dcp_by_node x;
    dcp_input nodes = *in;
    for (uint32_t t = 0; t < in->tile_start[in->blocks]; t++) pairs += in->tile_pairs[t];
    for (uint32_t b = 0; b < in->blocks; b++) tokens += in->block[b].tokens;
    nodes.ranks = in->ranks / in->gpus;
    nodes.gpus = 1;
    nodes.net = 1;
    nodes.pair_cap = dcp_node_cap(in, in->pair_cap, pairs, DCP_NODE_SLACK);
    nodes.token_cap = dcp_node_cap(in, in->token_cap, tokens, DCP_NODE_SLACK);
    if (!dcp_open_partition(&nodes, scratch, &x.at)) return FCP_E_NO_MEMORY;
    fcp_code code = dcp_initial_partition(&nodes, step, scratch, &x.at);
    if (!code) code = dcp_list_by_node(in, nodes.ranks, scratch, &x);
    for (uint32_t v = 0; v < nodes.ranks && !code; v++) {
        code = divide_node(in, &x, v, step, out);
        arena_reset(step);
    }
    return code;
}
