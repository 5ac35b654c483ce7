/* two_tolerances.c: divides a batch under two tolerances on work: a wide one between nodes, and a narrow one inside.
 *
 * Requires: what dcp.h says of a dcp_input, with node_pair_cap; nodes of `gpus` ranks each.
 * Gives: a home for every block and a rank for every tile. No node has more pairs than node_pair_cap. No rank has more
 *     pairs than `within` over the mean of its node's ranks, nor more tokens than token_cap. As everywhere in dcp,
 *     single blocks or tiles may be too large for that.
 * Cost: that of a placement on as many ranks as there are nodes, and of one in each node. If a node's tokens then do
 *     not fit on its ranks, up to three times as much.
 * Memory: O(blocks + tiles).
 * Units: pairs, tokens, bytes; tolerances in millionths.
 * Source: the DCP paper, 4.2: a batch is partitioned among machines, and then each part among the GPUs of its machine.
 *
 * Example: two nodes of two ranks, 80 and 120 million pairs where a node's tolerance is 0.4 and a rank's 0.1. The mean
 * of nodes is 100, so a node may have 140. Ranks of the second node have 60 in the mean, and may have 66.
 *
 *   1. Among nodes. A node counts as one rank, which has all of its tokens and all of its ranks' room.
 *   2. In each node. What it got is a batch of its own (node_batches.c), and is divided like any other.
 *
 * Nothing moves between nodes afterwards, because that would change the mean that a node's ranks are measured by.
 */
#include <string.h>

#include "compiler/base/integers.h"
#include "compiler/place/dcp/dcp.h"

/* Divides the batch among nodes. percent: what nodes use of the ranks' room for tokens beyond the mean. */
static fcp_code divide_among_nodes(const dcp_input *in, uint64_t tokens, uint32_t percent, arena *scratch,
                                   dcp_by_node *x) {
    dcp_input nodes = *in;
    uint32_t *fixed = in->fixed ? ARENA_NEW(scratch, uint32_t, in->blocks + (size_t)1) : NULL;
    nodes.ranks = in->ranks / in->gpus;
    nodes.gpus = nodes.net = 1;
    nodes.pair_cap = in->node_pair_cap;
    nodes.token_cap = max_u64(dcp_node_cap(in, in->token_cap, tokens, percent), dcp_cap_of(tokens, nodes.ranks, 0));
    nodes.node_pair_cap = 0;
    if ((in->fixed && !fixed) || !dcp_open_partition(&nodes, scratch, &x->at)) return FCP_E_NO_MEMORY;
    for (uint32_t b = 0; fixed && b < in->blocks; b++) fixed[b] = in->fixed[b] / in->gpus;
    nodes.fixed = fixed;
    fcp_code code = dcp_partition_batch(&nodes, scratch, x->at.home, x->at.exec);
    return code ? code : dcp_list_by_node(in, nodes.ranks, scratch, x);
}

/* Where homes are given: the rank of each block of a node's batch. Rows of other nodes begin anywhere; one after the
 * other, they fill the ranks to the mean. */
static fcp_code fix_homes(const dcp_input *in, const dcp_by_node *x, uint32_t node, uint64_t mean, arena *scratch,
                          dcp_derived *part) {
    const uint32_t n = part->in.blocks;
    uint32_t *fixed = ARENA_NEW(scratch, uint32_t, n + (size_t)1), to = 0;
    uint8_t *guest = ARENA_ZNEW(scratch, uint8_t, n + (size_t)1);
    uint64_t *load = ARENA_ZNEW(scratch, uint64_t, in->gpus);
    if (!fixed || !guest || !load) return FCP_E_NO_MEMORY;
    for (int guests = 0; guests < 2; guests++)
        for (uint32_t b = 0; b < n; b++) {
            guest[b] = x->at.home[part->block[b]] != node;
            if (guest[b] != guests) continue;
            while (guests && to + 1 < in->gpus && load[to] >= mean) to++;
            fixed[b] = guests ? to : in->fixed[part->block[b]] % in->gpus;
            for (uint32_t t = part->in.tile_start[b]; t < part->in.tile_start[b + 1]; t++)
                load[fixed[b]] += part->in.tile_pairs[t];
        }
    part->in.fixed = fixed;
    part->in.guest = guest;
    return FCP_OK;
}

/* Divides what a node got among its ranks. */
static fcp_code divide_in_node(const dcp_input *in, dcp_by_node *x, uint32_t node, arena *scratch, dcp_partition *out) {
    const uint32_t first = node * in->gpus;
    dcp_derived part;
    uint64_t pairs = 0;
    fcp_code code = dcp_batch_of_node(in, x, node, scratch, &part);
    if (code) return code;
    const uint32_t tiles = part.in.tile_start[part.in.blocks];
    for (uint32_t t = 0; t < tiles; t++) pairs += part.in.tile_pairs[t];
    part.in.node_pair_cap = 0;
    part.in.pair_cap = dcp_cap_of(pairs, in->gpus, in->within);
    if (in->fixed) code = fix_homes(in, x, node, pairs / in->gpus, scratch, &part);
    uint32_t *home = ARENA_NEW(scratch, uint32_t, part.in.blocks + (size_t)1);
    uint32_t *exec = ARENA_NEW(scratch, uint32_t, tiles + (size_t)1);
    if (!code && (!home || !exec)) code = FCP_E_NO_MEMORY;
    if (!code) code = dcp_partition_batch(&part.in, scratch, home, exec);
    if (code) return code;
    for (uint32_t b = 0; b < part.in.blocks; b++) {
        if (x->at.home[part.block[b]] != node) continue;
        out->home[part.block[b]] = first + home[b];
        out->held[first + home[b]] += part.made[b].tokens;
    }
    for (uint32_t t = 0; t < tiles; t++) out->exec[part.tile[t]] = first + exec[t];
    return FCP_OK;
}

/* Divides the batch once. *out_most: tokens of the rank that has most. */
static fcp_code divide_once(const dcp_input *in, uint64_t tokens, uint32_t percent, arena *all, arena *one,
                            dcp_partition *out, uint64_t *out_most) {
    dcp_by_node x;
    fcp_code code = divide_among_nodes(in, tokens, percent, all, &x);
    memset(out->held, 0, in->ranks * sizeof *out->held);
    for (uint32_t v = 0; v < in->ranks / in->gpus && !code; v++) {
        code = divide_in_node(in, &x, v, one, out);
        arena_reset(one);
    }
    *out_most = 0;
    for (uint32_t r = 0; r < in->ranks; r++) *out_most = max_u64(*out_most, out->held[r]);
    return code;
}

fcp_code dcp_divide_twice(const dcp_input *in, arena *scratch, uint32_t *out_home, uint32_t *out_exec) {
    static const uint32_t percent[] = {DCP_NODE_SLACK, DCP_NODE_SLACK / 2, 0};
    arena all = {.pool = scratch->pool}, one = all;
    dcp_partition p;
    uint64_t tokens = 0, least = UINT64_MAX, most = UINT64_MAX;
    fcp_code code = dcp_open_partition(in, scratch, &p) ? FCP_OK : FCP_E_NO_MEMORY;
    for (uint32_t b = 0; b < in->blocks; b++) tokens += in->block[b].tokens;
    for (size_t i = 0; i < sizeof percent / sizeof *percent && !code && least > in->token_cap; i++) {
        code = divide_once(in, tokens, percent[i], &all, &one, &p, &most);
        arena_reset(&all);
        if (code || most >= least) continue;
        least = most;
        memcpy(out_home, p.home, in->blocks * sizeof *out_home);
        memcpy(out_exec, p.exec, in->tile_start[in->blocks] * sizeof *out_exec);
    }
    arena_free(&all);
    arena_free(&one);
    return code;
}
