/* renumber_ranks.c: renumbers ranks so that those that read the same KV blocks share a node.
 *
 * Requires: a placement.
 * Gives: the same placement with other rank numbers. Only what crosses between nodes changes.
 * Cost: O(blocks + ranks).
 *
 * What several ranks of a node read crosses to the node once, so a node pays for the union of what its ranks read.
 *   1. Each rank is counted to one cluster (a sequence, see fcp.c): that of its block with most reads.
 *   2. Ranks of one cluster get neighbouring numbers, those that read most of it first.
 * Under a causal mask ranks read prefixes of the cluster, and a node pays for the longest prefix among its ranks. The
 * sum of these is least if ranks are grouped in order of the length of their prefixes.
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
