/* even_stages.c: spreads each rank's work evenly over the stages, where all tiles run at home.
 *
 * Requires: the stages in which blocks arrive.
 * Gives: for each tile whose KV comes from another rank a stage, not before the one in which the KV comes.
 * Cost: O(tiles + ranks stages).
 *
 * Example: two ranks exchange blocks in six stages. Rank 0 has its work in the first three stages, rank 1 in the last
 * three. The rounds of a stage reuse slots, so they wait until all ranks have computed the stage `buffers` stages
 * before. In the first half rank 1 therefore waits while rank 0 computes, and in the second half rank 0 waits for rank
 * 1: the pass takes twice as long as either rank computes. If rank 0 leaves half of its tiles for the last three
 * stages, the first half takes half as long, and both ranks end together.
 *
 * The rule: after stage s of S stages, a rank has done no more than s + 1 of S equal parts of its work, except for the
 * tile that it is at. Tiles run in the order in which their KV comes. The price: KV that waits keeps its slot, and its
 * gradients leave later. So the rule is not for rings, in which gradients go on from rank to rank with the keys, and
 * each rank would delay all that follow: there a tile runs in the stage in which its KV comes.
 *
 * Tried before: tiles waited only where ranks were far apart in their work, measured over `buffers` stages. The forward
 * pass of prolong-64 (blocks of 2K, coalesce = 4, ports of 25 GB/s) took, in ms:
 *
 *     buffers      2      3      4
 *     before    58.8   70.1   65.0
 *     now       62.1   58.3   55.3
 */
#include <string.h>

#include "compiler/base/group.h"
#include "compiler/schedule/schedule_parts.h"

typedef struct evening {
    const problem *p;
    const uint32_t *hop_of, *arrival; /* of tiles: the hop that brings KV, or FCP_NONE; of hops: its stage */
    uint32_t stages;
    uint32_t *start, *blocks; /* Q blocks by home: blocks[start[r]] to blocks[start[r + 1] - 1] */
} evening;

/* A tile whose KV comes from another rank, and its Q block. */
typedef struct late_tile {
    uint32_t tile, q;
} late_tile;

/* Sorts the tiles of a rank that need KV of other ranks by the stage of arrival: `order`, where the tiles of stages
 * after s begin at bucket[s]. local[q]: the work of Q block q that needs no other rank. Returns all the rank's work. */
static uint64_t by_arrival(const evening *c, uint32_t rank, uint32_t *bucket, late_tile *order, uint64_t *local) {
    const problem *p = c->p;
    uint64_t work = 0;
    memset(bucket, 0, (c->stages + (size_t)1) * sizeof *bucket);
    for (int fill = 0; fill < 2; fill++) {
        for (uint32_t i = c->start[rank]; i < c->start[rank + 1]; i++) {
            const uint32_t q = c->blocks[i];
            if (!fill) local[q] = 0;
            for (uint32_t t = p->tile_start[q]; t < p->tile_start[q + 1]; t++) {
                uint32_t f = c->hop_of[t];
                if (fill) {
                    if (f != FCP_NONE) order[bucket[c->arrival[f]]++] = (late_tile){t, q};
                    continue;
                }
                work += p->tile_pairs[t];
                if (f == FCP_NONE) local[q] += p->tile_pairs[t];
                else bucket[c->arrival[f] + 1]++;
            }
        }
        if (!fill) group_starts(bucket, c->stages);
    }
    return work;
}

/* Gives the tiles of a rank their stages. A stage that has too little work is filled with local tiles of Q blocks that
 * come later. Otherwise a Q block's local tiles run with the first of its other tiles. */
static void spread_tiles(const evening *c, const uint32_t *bucket, const late_tile *order, uint64_t *local,
                         uint64_t work, uint32_t *stage_of) {
    const uint64_t part = work / c->stages;
    uint64_t done = 0, filled = 0; /* filled: by local tiles of blocks whose turn has not come */
    uint32_t at = 0;
    for (uint32_t s = 0; s < c->stages; s++) {
        const bool last = s + 1 == c->stages;
        const uint64_t until = part * (s + 1);
        while (at < bucket[s] && (last || done < until)) {
            const late_tile *x = &order[at++];
            stage_of[x->tile] = s;
            const uint64_t before = local[x->q] < filled ? local[x->q] : filled;
            done += c->p->tile_pairs[x->tile] + local[x->q] - before;
            filled -= before;
            local[x->q] = 0;
        }
        if (done >= until) continue;
        filled += until - done;
        done = until;
    }
}

fcp_code even_stages(const builder *b, uint32_t **out) {
    planning *x = b->x;
    const problem *p = b->p;
    arena *scratch = b->scratch;
    evening c = {.p = p, .hop_of = b->t->tile_kv, .arrival = b->out->last_stage, .stages = b->stages};
    uint32_t *bucket = ARENA_NEW(scratch, uint32_t, c.stages + (size_t)1);
    uint32_t *stage_of = ARENA_NEW(scratch, uint32_t, p->tile_count + (size_t)1);
    uint64_t *local = ARENA_NEW(scratch, uint64_t, p->block_count);
    late_tile *order = ARENA_NEW(scratch, late_tile, p->tile_count + (size_t)1);
    if (!bucket || !stage_of || !local || !order) return FCP_E_NO_MEMORY;
    *out = stage_of;
    for (uint32_t t = 0; b->t->around && t < p->tile_count; t++)
        if (c.hop_of[t] != FCP_NONE) stage_of[t] = c.arrival[c.hop_of[t]];
    if (b->t->around) return FCP_OK;
    fcp_code code = group_new(scratch, b->where->home, sizeof *b->where->home, p->block_count, p->ranks, x->stop,
                              &c.start, &c.blocks);
    if (code) return code;
    for (uint32_t r = 0; r < p->ranks; r++) {
        if (planning_stopped(x)) return FCP_E_INTERRUPTED;
        uint64_t work = by_arrival(&c, r, bucket, order, local);
        spread_tiles(&c, bucket, order, local, work, stage_of);
    }
    return FCP_OK;
}
