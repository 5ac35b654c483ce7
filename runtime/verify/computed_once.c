/* computed_once.c: checks that every tile is computed exactly once, and finds out at which rank.
 *
 * Requires: checked tables; the list of home blocks of each rank (verify.c).
 * Proves:   - No two tiles are of the same Q block and KV block, and every tile is in one visit.
 *           - Every visit is computed once in a pass.
 *           - A block with the flag WHOLE has no tile that runs at its home, and its result is made once. A block
 *             whose tiles all run at one other rank has the flag.
 * Gives:    how many tiles each Q block has, which of them run away from its home, and the pairs of each rank.
 * Cost:     linear in tiles, visits and compute instructions.
 */
#include <stdlib.h>

#include "runtime/base/saturate.h"
#include "runtime/base/carve.h"
#include "runtime/plan/enum_names.h"
#include "runtime/verify/verify_parts.h"

typedef unsigned long long ull;

/* No two tiles are of the same Q block and KV block, and visits hold each tile once. Sums up pairs. */
fcp_code fcp_verify_tiles(verifier *v) {
    const fcp_plan *plan = v->plan;
    size_t blocks = (size_t)plan->blocks_count, tiles = (size_t)plan->tiles_count, next = 0;
    uint32_t *first, *seen; /* seen: per KV block the last Q block that met it, + 1 */
    uint64_t *pairs;
    const fcp_carved tables[] = {
        {&first, blocks + 2, sizeof *first}, {&seen, blocks, sizeof *seen}, {&pairs, blocks, sizeof *pairs}};
    void *room = FCP_CARVE(tables);
    uint32_t *k_blocks = malloc((tiles + 1) * sizeof *k_blocks);
    fcp_code code = FCP_OK;
    if (!room || !k_blocks) {
        code = fcp_fail(v->err, FCP_E_NO_MEMORY, "out of memory to verify %zu tiles", tiles);
        goto done;
    }
    for (uint64_t i = 0; i < plan->visits_count; i++) {
        const fcp_visit *w = &plan->visits[i];
        if (w->first_tile != next) {
            code = fcp_fail(v->err, FCP_E_VERIFY_TILE,
                            "visit %llu to Q block %u begins with tile %u, where tile %zu is the next: tiles are %s",
                            (ull)i, w->q_block, w->first_tile, next,
                            w->first_tile > next ? "left out" : "computed twice");
            goto done;
        }
        next += w->tiles;
    }
    if (next != tiles) {
        code = fcp_fail(v->err, FCP_E_VERIFY_TILE, "%zu tiles, and visits hold %zu of them", tiles, next);
        goto done;
    }
    for (size_t i = 0; i < tiles; i++) {
        const fcp_tile *t = &plan->tiles[i];
        first[t->q_block + 2]++;
        pairs[t->q_block] = fcp_plus(pairs[t->q_block], t->pairs);
    }
    for (size_t q = 2; q < blocks + 2; q++) first[q] += first[q - 1];
    for (size_t i = 0; i < tiles; i++) k_blocks[first[plan->tiles[i].q_block + 1]++] = plan->tiles[i].k_block;
    for (size_t q = 0; q < blocks; q++) {
        if (q % 4096 == 0 && (code = fcp_verify_stopped(v))) goto done;
        for (uint32_t i = first[q]; i < first[q + 1]; i++) {
            if (seen[k_blocks[i]] == q + 1) {
                code = fcp_fail(v->err, FCP_E_VERIFY_TILE, "the tile of Q block %zu and KV block %u is there twice", q,
                                k_blocks[i]);
                goto done;
            }
            seen[k_blocks[i]] = (uint32_t)q + 1;
        }
        v->tiles_of[q] = first[q + 1] - first[q];
        uint64_t *rank = &v->rank_pairs[plan->blocks[q].home]; /* what runs elsewhere is moved by count_away */
        *rank = fcp_plus(*rank, pairs[q]);
        v->pairs = fcp_plus(v->pairs, pairs[q]);
        if (pairs[q] > v->pairs_max_block) v->pairs_max_block = pairs[q];
    }
done:
    free(room);
    free(k_blocks);
    return code;
}

/* A visit runs at a rank that is not its Q block's home. */
static void count_away(verifier *v, uint32_t id, uint32_t rank) {
    const fcp_plan *plan = v->plan;
    const fcp_visit *w = &plan->visits[id];
    away_work *away = &v->away[w->q_block];
    v->visit_away[id] = rank + 1;
    v->visits_away++;
    away->tiles += w->tiles;
    away->where = !away->where || away->where == rank + 1 ? rank + 1 : FCP_VERIFY_SEVERAL;
    uint64_t *home = &v->rank_pairs[plan->blocks[w->q_block].home], *here = &v->rank_pairs[rank];
    for (const fcp_tile *t = plan->tiles + w->first_tile, *end = t + w->tiles; t < end; t++) {
        *home -= *home < t->pairs ? *home : t->pairs;
        *here = fcp_plus(*here, t->pairs);
    }
}

/* Checks that every visit is computed exactly once in this pass. Counts MERGEs and how often results are made and,
 * in the forward pass, the work away from home. */
fcp_code fcp_verify_attended(verifier *v) {
    const fcp_plan *plan = v->plan;
    for (uint32_t r = 0; r < v->p->ranks; r++) {
        const fcp_stream *s = fcp_stream_of(plan, v->pass, r, FCP_COMPUTE);
        for (uint32_t i = 0; i < s->count; i++) {
            const fcp_instr *x = &plan->instrs[s->first + i];
            if (x->op == FCP_OP_MERGE) v->moves[r].merges++;
            if (x->op == FCP_OP_FINISH || x->op == FCP_OP_ROUND) v->made[x->a]++;
            if (x->op != FCP_OP_ATTEND) continue;
            for (uint32_t w = x->a; w < x->a + x->b; w++) {
                uint32_t block = plan->visits[w].q_block;
                if (v->attended[w]++)
                    return fcp_verify_fail(v, FCP_E_VERIFY_TILE, r, FCP_COMPUTE, i,
                                           "visit %u to Q block %u is computed a second time", w, block);
                if (v->pass != FCP_FORWARD) continue;
                v->made[block] += plan->visits[w].flags & FCP_VISIT_LAST ? 1 : 0;
                if (plan->blocks[block].home != r) count_away(v, w, r);
            }
        }
    }
    for (uint64_t w = 0; w < plan->visits_count; w++)
        if (!v->attended[w])
            return fcp_fail(v->err, FCP_E_VERIFY_TILE, "%s: visit %llu to Q block %u is not computed",
                            fcp_pass_names[v->pass], (ull)w, plan->visits[w].q_block);
    return FCP_OK;
}

/* Checks the blocks that are WHOLE: all tiles of one run away from its home, and its result is made once. A block
 * whose tiles all run at one other rank must be WHOLE. */
fcp_code fcp_verify_whole(const verifier *v) {
    for (uint64_t b = 0; b < v->plan->blocks_count; b++) {
        const fcp_block *k = &v->plan->blocks[b];
        const away_work *w = &v->away[b];
        bool whole = k->flags & FCP_BLOCK_WHOLE, away = w->where && w->tiles == v->tiles_of[b];
        if (whole && away && v->made[b] != 1)
            return fcp_fail(v->err, FCP_E_VERIFY_RESULT,
                            "%s: the result of block %llu, which comes home whole, is made %u times",
                            fcp_pass_names[v->pass], (ull)b, v->made[b]);
        if (whole ? away : !away || w->where == FCP_VERIFY_SEVERAL) continue;
        return fcp_fail(v->err, FCP_E_VERIFY_RESULT,
                        "block %llu is %sflagged as whole: of its %u tiles %u run away from its home, rank %u, at %s "
                        "rank",
                        (ull)b, whole ? "" : "not ", v->tiles_of[b], w->tiles, k->home,
                        !w->where                         ? "no"
                        : w->where == FCP_VERIFY_SEVERAL ? "more than one"
                                                          : "one");
    }
    return FCP_OK;
}
