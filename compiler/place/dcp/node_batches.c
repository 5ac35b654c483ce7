/* node_batches.c: the batch of a node: once a batch is divided among nodes, what each of them got is a batch of its own.
 *
 * Requires: a node for each block and tile.
 * Gives: per node a batch with the node's blocks, and with the blocks of other nodes whose keys or rows its tiles use.
 * Cost: linear in the node's blocks and tiles. Memory: the same.
 *
 * Blocks of other nodes have no tokens here, and their home does not count: one copy comes from another node to
 * whichever rank is cheapest, and goes on from there.
 */
#include <string.h>

#include "compiler/base/group.h"
#include "compiler/base/sort.h"
#include "compiler/place/dcp/dcp.h"

fcp_code dcp_list_by_node(const dcp_input *in, uint32_t nodes, arena *scratch, dcp_by_node *x) {
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

static void list_block(dcp_by_node *x, uint32_t b, uint64_t *list, uint32_t *count) {
    if (x->name[b] != FCP_NONE) return;
    x->name[b] = 0;
    list[(*count)++] = b;
}

/* Numbers the blocks of a node's batch, in ascending order: those of the node, and those that its tiles use. They are
 * found by the node's lists, since looks at all blocks for each node would take nodes x blocks steps. *out_list: these
 * blocks. */
static fcp_code number_node_blocks(const dcp_input *in, dcp_by_node *x, uint32_t node, arena *scratch,
                                   uint64_t **out_list, uint32_t *out_blocks) {
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

fcp_code dcp_batch_of_node(const dcp_input *in, dcp_by_node *x, uint32_t node, arena *scratch, dcp_derived *out) {
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
