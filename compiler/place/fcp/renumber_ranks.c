/* renumber_ranks.c: renumbers ranks so that those that read the same KV blocks share a node.
 *
 * Requires: a placement.
 * Gives: the same placement with other rank numbers. Only what crosses between nodes changes.
 * Cost: O(blocks + ranks).
 *
 * What several ranks of a node read crosses to the node once, so a node pays for the union of what its ranks read. So
 * ranks that work on the same cluster (blocks that read one another, such as a long sequence: fcp.c) get neighbouring
 * numbers. A rank may have blocks of several clusters; the one of its block that reads most blocks decides. Within a
 * cluster the rank whose block reads most comes first.
 *
 * Why in this order: under a causal mask a rank reads a prefix of the sequence, and a node pays for the longest prefix
 * among its ranks. Say four ranks read 16, 12, 8 and 4 blocks, on nodes of two. In this order the nodes pay for 16 and
 * 8. With 16 beside 4 and 12 beside 8 they would pay for 16 and 12.
 */
#include "compiler/place/fcp/fcp_parts.h"
#include "compiler/base/sort.h"

fcp_code place_group_nodes(const place_state *s, arena *scratch) {
    const place_input *in = s->in;
    uint32_t ranks = in->ranks;
    if (in->gpus <= 1 || ranks <= in->gpus) return FCP_OK;
    uint32_t *cluster = ARENA_ZNEW(scratch, uint32_t, ranks), *most = ARENA_ZNEW(scratch, uint32_t, ranks);
    uint32_t *by_reads = ARENA_NEW(scratch, uint32_t, ranks), *number = ARENA_NEW(scratch, uint32_t, ranks);
    uint64_t *keys = ARENA_NEW(scratch, uint64_t, ranks), *other = ARENA_NEW(scratch, uint64_t, ranks);
    if (!cluster || !most || !by_reads || !number || !keys || !other) return FCP_E_NO_MEMORY;
    for (uint32_t b = 0; b < in->blocks; b++) {
        uint32_t reads = in->reads_start[b + 1] - in->reads_start[b], r = s->home[b];
        if (reads <= most[r]) continue;
        most[r] = reads;
        cluster[r] = s->cluster[b];
    }
    for (uint32_t r = 0; r < ranks; r++) keys[r] = most[r];
    order_falling(keys, other, ranks);
    for (uint32_t i = 0; i < ranks; i++) {
        by_reads[i] = (uint32_t)keys[i];
        keys[i] = cluster[by_reads[i]];
    }
    order_rising(keys, other, ranks);
    for (uint32_t i = 0; i < ranks; i++) number[by_reads[keys[i]]] = i;
    for (uint32_t b = 0; b < in->blocks; b++) s->home[b] = number[s->home[b]];
    return FCP_OK;
}
