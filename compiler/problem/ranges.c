/* ranges.c: copies the blocks and tiles of one range of heads for all ranges.
 *
 * Requires: a problem with blocks, pieces and tiles that stand for all heads; range_kv and range_sub, which divide the
 *     model's heads into ranges. If several ranges share KV heads, the problem is split. If the mask uses h, tiles for
 *     each range.
 * Gives: the table of ranges, and for each range a copy of the blocks, pieces, tiles and parts. Blocks are in order of
 *     KV heads, then of query heads, then as they were. A KV block is copied once for its KV heads, for the first range
 *     of their query heads.
 * Cost: linear in what it makes.
 *
 * Example: 4 query heads and 2 KV heads; a range is one KV head and one of its two query heads. There are Q block 0 and
 * KV block 1. The copies are: Q 0 and KV 1 for range 0; Q 2 for range 1, which shares KV 1; Q 3 and KV 4 for range 2; Q
 * 5 for range 3, which shares KV 4.
 */
#include <string.h>

#include "compiler/problem/problem.h"

/* How many ranges of KV heads there are, and how many ranges of query heads each of them has. */
typedef struct counts {
    uint32_t kv, sub;
} counts;

static counts counts_of(const problem *p) {
    const struct fcpc_program *g = p->program;
    return (counts){g->kv_heads / p->range_kv, g->heads / g->kv_heads / p->range_sub};
}

fcp_code problem_make_heads(planning *x) {
    problem *p = x->problem;
    const counts n = counts_of(p);
    uint32_t shared = p->program->heads / p->program->kv_heads;
    p->heads = ARENA_NEW(&x->memory, fcp_heads, n.kv * ((size_t)n.sub + 1));
    if (!p->heads) return FCP_E_NO_MEMORY;
    for (uint32_t j = 0; j < n.kv; j++) { /* an entry for KV blocks and, if there are several, one for each range */
        p->heads[p->head_count++] = (fcp_heads){j * p->range_kv, p->range_kv, 0, shared};
        for (uint32_t i = 0; n.sub > 1 && i < n.sub; i++)
            p->heads[p->head_count++] = (fcp_heads){j * p->range_kv, p->range_kv, i * p->range_sub, p->range_sub};
    }
    return FCP_OK;
}

/* Copies block b and its pieces for the heads of one range. */
static void copy_block(problem *p, const problem *one, uint32_t b, uint32_t heads) {
    fcp_block *to = &p->blocks[p->block_count];
    *to = one->blocks[b];
    to->heads = heads;
    to->first_piece = p->piece_count;
    for (uint32_t i = 0; i < to->pieces; i++) {
        p->pieces[p->piece_count] = one->pieces[one->blocks[b].first_piece + i];
        p->pieces[p->piece_count++].block = p->block_count;
    }
    p->block_count++;
}

/* Copies the tiles of Q block b for its copy q. block_at[k]: the copy of KV block k for the same range. */
static void copy_tiles(problem *p, const problem *one, uint32_t b, uint32_t q, const uint32_t *block_at) {
    p->work[q] = one->work[b];
    for (uint32_t t = one->tile_start[b]; t < one->tile_start[b + 1]; t++) {
        uint32_t k = one->tile_k[t], at = p->tile_count++;
        p->tile_q[at] = q;
        p->tile_k[at] = block_at[k];
        p->tile_part[at] = p->part_count;
        p->tile_pairs[at] = one->tile_pairs[t];
        for (uint32_t c = one->tile_part[t]; c < one->tile_part[t + 1]; c++) {
            const fcp_part *of = &one->parts[c];
            p->parts[p->part_count++] = (fcp_part){
                of->q_piece - one->blocks[b].first_piece + p->blocks[q].first_piece,
                of->k_piece - one->blocks[k].first_piece + p->blocks[block_at[k]].first_piece, of->shape};
        }
    }
}

static fcp_code make_room(planning *x, problem *p, const problem *one, size_t all, const uint64_t sums[2]) {
    arena *keep = &x->memory, *work = &x->work;
    const size_t tiles = sums[0], parts = sums[1];
    if (all * one->block_count > PROBLEM_BLOCKS_MAX || all * one->piece_count > UINT32_MAX / 4 ||
        parts > UINT32_MAX / 4)
        return planning_fail(x, FCP_E_PLAN_SIZE, planning_size_span(x),
                             "%zu ranges of heads make more blocks or pieces than a plan holds", all);
    p->blocks = ARENA_NEW(keep, fcp_block, all * one->block_count);
    p->pieces = ARENA_NEW(keep, fcp_piece, all * one->piece_count);
    p->parts = ARENA_NEW(keep, fcp_part, parts + 1);
    p->twin = ARENA_NEW(work, uint32_t, all * one->block_count);
    p->work = ARENA_ZNEW(work, uint64_t, all * one->block_count);
    p->tile_start = ARENA_NEW(work, uint32_t, all * one->block_count + 1);
    p->tile_q = ARENA_NEW(work, uint32_t, tiles + 1);
    p->tile_k = ARENA_NEW(work, uint32_t, tiles + 1);
    p->tile_part = ARENA_NEW(work, uint32_t, tiles + 1);
    p->tile_pairs = ARENA_NEW(work, uint64_t, tiles + 1);
    p->block_count = p->piece_count = p->tile_count = p->part_count = 0;
    return p->blocks && p->pieces && p->parts && p->twin && p->work && p->tile_start && p->tile_q && p->tile_k &&
                   p->tile_part && p->tile_pairs ? FCP_OK : FCP_E_NO_MEMORY;
}

/* Adds up the counts of all ranges. */
static fcp_code add_counts(planning *x, const problem *one, const problem *of, uint32_t all) {
    problem *p = x->problem;
    p->pairs = p->heaviest = 0;
    for (uint32_t r = 0; r < all; r++) {
        const problem *range = of ? &of[r] : one;
        p->pairs += range->pairs;
        if (range->heaviest > p->heaviest) p->heaviest = range->heaviest;
    }
    if (of) return FCP_OK; /* positions are summed over heads */
    if (p->positions > INT64_MAX / all)
        return planning_fail(x, FCP_E_LENGTHS, x->program->at[AT_LENGTHS],
                             "the sequences have more than 2^63 query-key positions together in %u ranges of heads",
                             all);
    p->positions *= all;
    return FCP_OK;
}

fcp_code problem_ranges(planning *x, const problem *of) {
    problem *p = x->problem;
    const counts n = counts_of(p);
    const uint32_t all = n.kv * n.sub;
    p->range_blocks = p->block_count;
    if (all == 1) return FCP_OK;
    const problem one = *p;
    uint64_t sums[2] = {0};
    for (uint32_t r = 0; r < all; r++) {
        sums[0] += (of ? &of[r] : &one)->tile_count;
        sums[1] += (of ? &of[r] : &one)->part_count;
    }
    uint32_t *block_at = ARENA_NEW(&x->scratch, uint32_t, one.block_count);
    uint32_t *newest = ARENA_NEW(&x->scratch, uint32_t, one.block_count); /* per block: its newest copy */
    if (!block_at || !newest) return FCP_E_NO_MEMORY;
    fcp_code code = make_room(x, p, &one, all, sums);
    if (code) return code;
    memset(newest, 0xff, one.block_count * sizeof *newest);
    for (uint32_t j = 0; j < n.kv; j++)
        for (uint32_t i = 0; i < n.sub; i++) {
            uint32_t first = p->block_count, kv = n.sub == 1 ? j : j * (n.sub + 1);
            const problem *range = of ? &of[j * n.sub + i] : &one;
            for (uint32_t b = 0; b < one.block_count; b++) {
                bool queries = one.blocks[b].holds & FCP_HOLDS_Q;
                if (planning_stopped_at(x, b)) return FCP_E_INTERRUPTED;
                if (!queries && i) continue;
                block_at[b] = p->block_count;
                if (newest[b] != FCP_NONE) p->twin[newest[b]] = p->block_count;
                p->twin[newest[b] = p->block_count] = FCP_NONE;
                copy_block(p, &one, b, queries ? problem_range_heads(p, j * n.sub + i) : kv);
            }
            for (uint32_t b = 0, q = first; b < one.block_count; b++) {
                if (block_at[b] < first) continue; /* keys that an earlier range of these KV heads brought */
                p->tile_start[q] = p->tile_count;
                copy_tiles(p, range, b, q++, block_at);
            }
        }
    p->tile_start[p->block_count] = p->tile_count;
    p->tile_part[p->tile_count] = p->part_count;
    return add_counts(x, &one, of, all); /* the first range's pieces have the numbers they had */
}
