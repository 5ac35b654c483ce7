/* traffic.c: tiles and homes to fetches.
 *
 * requires  tiles by Q block; a home for every block.
 * gives     for every (KV block, rank that reads it and is not its home) exactly one fetch to that rank. A block crosses
 *           to another node once: to that node's representative, which forwards it to the others inside.
 * cost      O(tiles + blocks + ranks).
 *
 * The representative: on a fat tree the reader in that node that has received least over net so far (ties: lowest rank);
 * on rails the rank with the home's own index in its node, reader or not, so that nothing leaves its rail.
 */
#include "compiler/schedule/traffic.h"

#include <string.h>

#include "compiler/base/group.h"

typedef struct state {
    const problem *p;
    const uint32_t *home;
    traffic *out;
    uint32_t *readers;   /* distinct ranks that read the block at hand, by node once grouped */
    uint64_t *work;      /* per rank: pairs of its tiles on the block at hand */
    uint64_t *received;  /* per rank: tokens received over net */
    uint32_t *rank_fetch; /* per rank: its fetch of the block at hand */
    uint32_t *node_first, *next; /* readers of a node, as lists */
    uint32_t *nodes;     /* nodes with readers */
    uint64_t *seen;      /* a bit per rank, all 0 between uses */
} state;

static uint32_t add_fetch(state *s, uint32_t block, uint32_t src, uint32_t dst, uint32_t parent, fcp_fabric fabric) {
    const problem *p = s->p;
    uint32_t units = (p->blocks[block].tokens + p->unit - 1) / p->unit, at = s->out->count++;
    s->out->fetches[at] = (fetch){block, src, dst, parent, s->work[dst], units, (uint8_t)fabric};
    s->out->units += units;
    s->rank_fetch[dst] = at;
    if (parent != FCP_NONE) s->out->fetches[parent].work += s->work[dst];
    return at;
}

static void fetch_block(state *s, uint32_t block, uint32_t readers) {
    const problem *p = s->p;
    uint32_t gpus = p->program->gpus, home = s->home[block], home_node = home / gpus, nodes = 0;
    bool rail = p->program->topology == FCP_RAIL;
    for (uint32_t i = 0; i < readers; i++) { /* readers come in ascending order: lists are made from the back */
        uint32_t r = s->readers[readers - 1 - i], v = r / gpus;
        if (s->node_first[v] == FCP_NONE) s->nodes[nodes++] = v;
        s->next[r] = s->node_first[v];
        s->node_first[v] = r;
    }
    if (s->node_first[home_node] != FCP_NONE)
        for (uint32_t r = s->node_first[home_node]; r != FCP_NONE; r = s->next[r])
            add_fetch(s, block, home, r, FCP_NONE, FCP_LOCAL);
    for (uint32_t i = nodes; i-- > 0;) { /* ascending again */
        uint32_t v = s->nodes[i], best = s->node_first[v];
        s->node_first[v] = FCP_NONE;
        if (v == home_node) continue;
        if (rail)
            best = v * gpus + home % gpus;
        else
            for (uint32_t r = s->next[best]; r != FCP_NONE; r = s->next[r])
                if (s->received[r] < s->received[best]) best = r;
        s->received[best] += p->blocks[block].tokens;
        uint32_t parent = add_fetch(s, block, home, best, FCP_NONE, FCP_NET);
        for (uint32_t r = v * gpus; r < (v + 1) * gpus; r++)
            if (s->work[r] && r != best) add_fetch(s, block, best, r, parent, FCP_LOCAL);
    }
}

/* Sorts the readers of a block by rank. Few are sorted by insertion, many by way of a bit for each rank. */
static void sort_readers(const state *s, uint32_t readers) {
    if (readers < 64) {
        for (uint32_t i = 1; i < readers; i++) {
            uint32_t r = s->readers[i], j = i;
            for (; j > 0 && s->readers[j - 1] > r; j--) s->readers[j] = s->readers[j - 1];
            s->readers[j] = r;
        }
        return;
    }
    for (uint32_t i = 0; i < readers; i++) s->seen[s->readers[i] / 64] |= UINT64_C(1) << s->readers[i] % 64;
    uint32_t at = 0;
    for (uint32_t w = 0; w <= (s->p->ranks - 1) / 64; w++)
        for (uint64_t *word = &s->seen[w]; *word; *word &= *word - 1)
            s->readers[at++] = w * 64 + (uint32_t)__builtin_ctzll(*word);
}

fcp_code traffic_build(planning *x) {
    const problem *p = x->problem;
    const placement *where = x->placement;
    uint32_t ranks = p->ranks, blocks = p->block_count, tiles = p->tile_count;
    arena *scratch = &x->scratch;
    traffic *out = ARENA_ZNEW(&x->work, traffic, 1);
    if (!out) return FCP_E_NO_MEMORY;
    out->block_start = ARENA_NEW(&x->work, uint32_t, blocks + (size_t)1);
    out->tile_fetch = ARENA_NEW(&x->work, uint32_t, tiles + (size_t)1);
    uint32_t *start = ARENA_NEW(scratch, uint32_t, blocks + (size_t)2);
    uint32_t *tile = ARENA_NEW(scratch, uint32_t, tiles + (size_t)1); /* by KV block, in order of Q block */
    state s = {.p = p, .home = where->home, .out = out};
    s.readers = ARENA_NEW(scratch, uint32_t, ranks);
    s.work = ARENA_ZNEW(scratch, uint64_t, ranks);
    s.received = ARENA_ZNEW(scratch, uint64_t, ranks);
    s.rank_fetch = ARENA_NEW(scratch, uint32_t, ranks);
    s.next = ARENA_NEW(scratch, uint32_t, ranks);
    s.node_first = ARENA_NEW(scratch, uint32_t, p->program->nodes);
    s.nodes = ARENA_NEW(scratch, uint32_t, p->program->nodes);
    s.seen = ARENA_ZNEW(scratch, uint64_t, ranks / 64 + 1);
    if (!out->block_start || !out->tile_fetch || !start || !tile || !s.readers || !s.work || !s.received ||
        !s.rank_fetch || !s.next || !s.node_first || !s.nodes || !s.seen)
        return FCP_E_NO_MEMORY;
    memset(s.node_first, 0xff, p->program->nodes * sizeof *s.node_first);
    if (!group_by(p->tile_k, sizeof *p->tile_k, tiles, blocks, start, tile, x->stop)) return FCP_E_INTERRUPTED;

    /* at most one fetch per tile that is not at its KV block's home, and on rails one more for each of their nodes */
    size_t most = 0;
    for (uint32_t t = 0; t < tiles; t++) most += placement_exec(where, t) != where->home[p->tile_k[t]];
    if (p->program->topology == FCP_RAIL) most *= 2;
    out->fetches = ARENA_NEW(&x->work, fetch, most + 1);
    if (!out->fetches) return FCP_E_NO_MEMORY;

    for (uint32_t b = 0; b < blocks; b++) {
        uint32_t readers = 0, home = where->home[b];
        if (planning_stopped(x)) return FCP_E_INTERRUPTED;
        out->block_start[b] = out->count;
        for (uint32_t i = start[b]; i < start[b + 1]; i++) {
            uint32_t r = placement_exec(where, tile[i]);
            if (r == home) continue;
            if (!s.work[r]) s.readers[readers++] = r;
            s.work[r] += p->tile_pairs[tile[i]];
        }
        sort_readers(&s, readers);
        if (readers) fetch_block(&s, b, readers);
        for (uint32_t i = start[b]; i < start[b + 1]; i++) {
            uint32_t r = placement_exec(where, tile[i]);
            out->tile_fetch[tile[i]] = r == home ? FCP_NONE : s.rank_fetch[r];
        }
        for (uint32_t i = 0; i < readers; i++) s.work[s.readers[i]] = 0;
    }
    out->block_start[blocks] = out->count;
    if (out->units > UINT32_MAX / 4) return FCP_E_PLAN_SIZE;
    x->traffic = out;
    return FCP_OK;
}
