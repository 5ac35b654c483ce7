/* equal_tokens.c: tokens = equal: changes homes so that every rank owns floor or ceil of the mean number of tokens.
 *
 * Requires: homes for all blocks, of one range of heads; the problem's tiles.
 * Gives: homes with floor or ceil of the mean at every rank; in a split plan this holds for queries and for keys. For
 *     that, blocks have moved, and a few were cut: fewer than there are ranks. No rank has more work than the tolerance
 *     allows, or than the busiest had. If the strategy has chosen a rank for each tile, each tile still runs there.
 * Cost: sorting the blocks of ranks that have too many tokens; and the tiles are made once more.
 *
 * Example: ranks hold 10, 7 and 7 tokens, in blocks of 5, 2 and so on. Each is to hold 8. The two tokens that leave
 * rank 0 are of the block with least work for a token, which is cut. One of them goes to rank 1, one to rank 2, for
 * which the block is cut again. Tokens stay in their node as far as ranks there lack some.
 *
 * Why blocks with least work for a token leave first: ranks with many tokens have light ones, and ranks with few have
 * heavy ones. So light tokens go where tokens are missing, and take little work along. If a rank would get too much
 * work, the heaviest blocks that came to it are still computed where they were before, and it sends their queries
 * there.
 */
#include <string.h>

#include "compiler/base/group.h"
#include "compiler/base/integers.h"
#include "compiler/base/sort.h"
#include "compiler/place/place.h"
#include "compiler/problem/problem.h"

/* A cut of a block: the tokens from `first` to the block's next cut, or to its end, are at `home`. A block with cuts
 * has one at its first token. */
typedef struct cut {
    uint32_t block, first, home;
} cut;

typedef struct equal {
    planning *x;
    const problem *p;
    uint32_t *home;    /* per block, as it was */
    uint64_t *held, *target; /* per rank: tokens */
    cut *cuts;         /* of one block in order of `first` */
    size_t count, room;
    uint32_t *start, *order; /* block b's cuts are cuts[order[start[b]]] to cuts[order[start[b + 1] - 1]] */
} equal;

fcp_code place_even_targets(planning *x, const uint64_t *held, uint64_t *out_target) {
    const uint32_t ranks = x->problem->ranks;
    uint64_t total = 0, *keys = ARENA_NEW(&x->scratch, uint64_t, 2 * (size_t)ranks);
    if (!keys) return FCP_E_NO_MEMORY;
    for (uint32_t r = 0; r < ranks; r++) { /* at most 2^31 tokens are on a rank */
        keys[r] = held[r];
        total += held[r];
    }
    order_falling(keys, keys + ranks, ranks);
    for (uint32_t i = 0; i < ranks; i++) out_target[(uint32_t)keys[i]] = total / ranks + (i < total % ranks);
    return FCP_OK;
}

/* How many tokens each rank holds, and how many it is to hold. */
static fcp_code find_targets(equal *e, fcp_side side) {
    const problem *p = e->p;
    memset(e->held, 0, p->ranks * sizeof *e->held);
    for (uint32_t b = 0; b < p->range_blocks; b++) /* those of other heads are the same tokens */
        if (problem_holds(p, b, side)) e->held[e->home[b]] += p->blocks[b].tokens;
    return place_even_targets(e->x, e->held, e->target);
}

/* A stretch of a block that leaves its rank. */
typedef struct leaving {
    uint32_t block, first, end, from;
} leaving;

/* The work of a block for each of its tokens, in 2^-16 pairs; at most 2^32 - 1. */
static uint32_t work_per_token(const problem *p, uint32_t b) {
    unsigned __int128 w = ((unsigned __int128)p->work[b] << 16) / p->blocks[b].tokens;
    return w < UINT32_MAX ? (uint32_t)w : UINT32_MAX;
}

/* Lists the tokens that leave each rank: its blocks with least work for a token. Of the last such block a part may
 * stay. */
static fcp_code find_leaving(equal *e, fcp_side side, leaving *out, uint32_t *out_count) {
    const problem *p = e->p;
    uint64_t *over = ARENA_NEW(&e->x->scratch, uint64_t, p->ranks);
    uint64_t *keys = ARENA_NEW(&e->x->scratch, uint64_t, 2 * (size_t)p->block_count + 1);
    uint32_t n = 0, found = 0;
    if (!over || !keys) return FCP_E_NO_MEMORY;
    for (uint32_t r = 0; r < p->ranks; r++) over[r] = sub_sat(e->held[r], e->target[r]);
    for (uint32_t b = 0; b < p->block_count; b++)
        if (problem_holds(p, b, side) && over[e->home[b]]) keys[n++] = (uint64_t)work_per_token(p, b) << 32 | b;
    sort_u64(keys, keys + n, n);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t b = (uint32_t)keys[i], r = e->home[b], tokens = p->blocks[b].tokens;
        if (planning_stopped_at(e->x, i)) return FCP_E_INTERRUPTED;
        if (!over[r]) continue;
        const uint32_t end = over[r] < tokens ? (uint32_t)over[r] : tokens;
        out[found++] = (leaving){b, 0, end, r};
        over[r] -= end;
    }
    *out_count = found;
    return FCP_OK;
}

static bool add_cut(equal *e, uint32_t block, uint32_t first, uint32_t home) {
    e->cuts = arena_grow(&e->x->scratch, e->cuts, e->count, &e->room, sizeof *e->cuts);
    if (e->cuts) e->cuts[e->count++] = (cut){block, first, home};
    return e->cuts;
}

/* Gives the tokens that leave to ranks that lack some, in the order of the ranks: first inside each node, then
 * anywhere. */
static fcp_code give_away(equal *e, leaving *list, uint32_t count) {
    const uint32_t ranks = e->p->ranks, gpus = e->p->program->gpus;
    for (int anywhere = 0; anywhere < 2; anywhere++) {
        uint32_t *next = ARENA_NEW(&e->x->scratch, uint32_t, ranks); /* per node: where to look for room */
        if (!next) return FCP_E_NO_MEMORY;
        for (uint32_t n = 0; n < ranks; n++) next[n] = anywhere ? 0 : n * gpus;
        for (uint32_t i = 0; i < count; i++) {
            leaving *l = &list[i];
            const uint32_t node = anywhere ? 0 : l->from / gpus, end = anywhere ? ranks : (node + 1) * gpus;
            while (l->first < l->end) {
                uint32_t *r = &next[node];
                while (*r < end && e->held[*r] >= e->target[*r]) ++*r;
                if (*r == end) break;
                uint64_t room = e->target[*r] - e->held[*r], some = l->end - l->first < room ? l->end - l->first : room;
                if (!add_cut(e, l->block, l->first, *r)) return FCP_E_NO_MEMORY;
                e->held[*r] += some;
                l->first += (uint32_t)some;
            }
        }
    }
    for (uint32_t i = 0; i < count; i++) /* the rest of a block stays */
        if (list[i].end < e->p->blocks[list[i].block].tokens &&
            !add_cut(e, list[i].block, list[i].end, list[i].from))
            return FCP_E_NO_MEMORY;
    return FCP_OK;
}

static fcp_code find_cuts(equal *e) {
    const problem *p = e->p;
    arena *scratch = &e->x->scratch;
    leaving *list = ARENA_NEW(scratch, leaving, p->block_count + (size_t)1);
    e->held = ARENA_NEW(scratch, uint64_t, p->ranks);
    e->target = ARENA_NEW(scratch, uint64_t, p->ranks);
    fcp_code code = list && e->held && e->target ? FCP_OK : FCP_E_NO_MEMORY;
    for (int side = 0; side < (p->split ? FCP_SIDES : 1) && !code; side++) {
        uint32_t count = 0;
        code = find_targets(e, (fcp_side)side);
        if (!code) code = find_leaving(e, (fcp_side)side, list, &count);
        if (!code) code = give_away(e, list, count);
    }
    if (code) return code;
    const uint32_t *blocks = e->cuts ? &e->cuts->block : NULL; /* NULL: there are none */
    return group_new(scratch, blocks, sizeof *e->cuts, (uint32_t)e->count, p->block_count, e->x->stop, &e->start,
                     &e->order);
}

/* --- blocks ------------------------------------------------------------------------------------------------------- */

/* The blocks after the cuts: for each new block, the old block that it is part of (`of`), and its home. */
typedef struct made {
    uint32_t *of, *home;
} made;

/* Cuts the blocks, and makes their tiles. */
static fcp_code make_blocks(equal *e, made *m) {
    planning *x = e->x;
    const problem *p = e->p;
    const size_t most = p->block_count + e->count;
    problem_stretch *list = ARENA_NEW(&x->scratch, problem_stretch, most);
    uint32_t n = 0;
    m->home = ARENA_NEW(&x->work, uint32_t, most);
    if (!list || !m->home) return FCP_E_NO_MEMORY;
    for (uint32_t b = 0; b < p->block_count; b++) {
        const uint32_t *cuts = e->order + e->start[b], count = e->start[b + 1] - e->start[b];
        if (planning_stopped_at(x, b)) return FCP_E_INTERRUPTED;
        for (uint32_t i = 0; i < (count ? count : 1); i++) {
            const uint32_t end = i + 1 < count ? e->cuts[cuts[i + 1]].first : p->blocks[b].tokens;
            m->home[n] = count ? e->cuts[cuts[i]].home : e->home[b];
            list[n++] = (problem_stretch){b, count ? e->cuts[cuts[i]].first : 0, end, true};
        }
    }
    return problem_cut_again(x, list, n, &m->of);
}

/* The rank that computes each new tile: the one that computed the old tile of which it is a part. */
static fcp_code carry_over(planning *x, const problem *old, const made *m, const uint32_t *exec, uint32_t **out_exec) {
    const problem *p = x->problem;
    uint32_t *to = ARENA_NEW(&x->work, uint32_t, p->tile_count + (size_t)1), last = FCP_NONE;
    uint32_t *tile_of = ARENA_NEW(&x->scratch, uint32_t, old->block_count + (size_t)1); /* of an old row, by KV block */
    if (!to || !tile_of) return FCP_E_NO_MEMORY;
    for (uint32_t t = 0; t < p->tile_count; t++) {
        const uint32_t q = m->of[p->tile_q[t]];
        if (planning_stopped_at(x, t)) return FCP_E_INTERRUPTED;
        for (uint32_t i = q == last ? 0 : old->tile_start[q]; q != last && i < old->tile_start[q + 1]; i++)
            tile_of[old->tile_k[i]] = i;
        last = q;
        to[t] = exec[tile_of[m->of[p->tile_k[t]]]];
    }
    *out_exec = to;
    return FCP_OK;
}

/* --- work --------------------------------------------------------------------------------------------------------- */

/* Chooses which rank computes the blocks that have moved, if all tiles ran at home before.
 *   - The limit on a rank's work is (1 + tolerance) times the mean, or the work that the busiest rank had before,
 *     whichever is more.
 *   - A moved block is computed at its new home, if that rank stays within the limit. If it does not, the blocks with
 *     most work for a token are computed at their old homes.
 * *out_exec stays NULL if all are computed at their new homes. */
static fcp_code leave_work(equal *e, const problem *old, const made *m, uint32_t **out_exec) {
    planning *x = e->x;
    const problem *p = x->problem;
    uint64_t *before = ARENA_ZNEW(&x->scratch, uint64_t, p->ranks), *load = ARENA_ZNEW(&x->scratch, uint64_t, p->ranks);
    uint64_t *keys = ARENA_NEW(&x->scratch, uint64_t, 2 * (size_t)p->block_count + 1), mean = p->pairs / p->ranks;
    uint64_t limit = mean + (uint64_t)((unsigned __int128)mean * x->program->tolerance / 1000000);
    uint32_t *at = ARENA_NEW(&x->scratch, uint32_t, p->block_count + (size_t)1), n = 0; /* per block: who computes it */
    bool stays = false;
    if (!before || !load || !keys || !at) return FCP_E_NO_MEMORY;
    for (uint32_t b = 0; b < old->block_count; b++) before[e->home[b]] += old->work[b];
    for (uint32_t r = 0; r < p->ranks; r++)
        if (before[r] > limit) limit = before[r];
    for (uint32_t b = 0; b < p->block_count; b++) {
        load[at[b] = m->home[b]] += p->work[b];
        if (m->home[b] != e->home[m->of[b]]) keys[n++] = (uint64_t)(UINT32_MAX - work_per_token(p, b)) << 32 | b;
    }
    sort_u64(keys, keys + n, n);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t b = (uint32_t)keys[i];
        if (load[at[b]] <= limit || !p->work[b]) continue;
        load[at[b]] -= p->work[b];
        at[b] = e->home[m->of[b]];
        stays = true;
    }
    uint32_t *exec = stays ? ARENA_NEW(&x->work, uint32_t, p->tile_count + (size_t)1) : NULL;
    if (stays && !exec) return FCP_E_NO_MEMORY;
    for (uint32_t t = 0; exec && t < p->tile_count; t++) exec[t] = at[p->tile_q[t]];
    *out_exec = exec;
    return FCP_OK;
}

fcp_code place_equal(planning *x, uint32_t **home, uint32_t **exec) {
    const problem old = *x->problem;
    equal e = {.x = x, .p = &old, .home = *home};
    made m = {0};
    fcp_code code = find_cuts(&e);
    if (code || !e.count) return code;
    code = make_blocks(&e, &m);
    if (!code) code = *exec ? carry_over(x, &old, &m, *exec, exec) : leave_work(&e, &old, &m, exec);
    *home = m.home;
    return code;
}

fcp_code place_check_equal(planning *x, const uint32_t *home) {
    const problem *p = x->problem;
    equal e = {.x = x, .p = p, .home = (uint32_t *)home, .held = ARENA_NEW(&x->scratch, uint64_t, p->ranks),
               .target = ARENA_NEW(&x->scratch, uint64_t, p->ranks)};
    static const char *const what[] = {"queries", "keys"};
    if (!e.held || !e.target) return FCP_E_NO_MEMORY;
    for (int side = 0; side < (p->split ? FCP_SIDES : 1); side++) {
        fcp_code code = find_targets(&e, (fcp_side)side);
        if (code) return code;
        for (uint32_t r = 0; r < p->ranks; r++) {
            if (e.held[r] == e.target[r]) continue;
            diag_error(x->d, FCP_E_VALUE, planning_span(x, x->program->at[AT_TOKENS]),
                       "tokens = equal: tokens stay where the caller holds them, and rank %u holds %llu %s; %llu would "
                       "be equal",
                       r, (unsigned long long)e.held[r], p->split ? what[side] : "tokens",
                       (unsigned long long)e.target[r]);
            diag_hint(x->d, "layout = contiguous, without a group, holds equally many; so do strategies that choose "
                            "homes");
            return FCP_E_VALUE;
        }
    }
    return FCP_OK;
}
