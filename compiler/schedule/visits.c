/* visits.c: gives every tile its stage, and gathers the tiles of each rank into visits.
 *
 * Requires: the stages in which blocks arrive.
 * Gives: the order of execution, and the visits. A visit is all that one rank computes on one Q block in one stage, or
 *     in a half of it (near.c).
 * Cost: linear in tiles, visits and ranks * stages; that of away_tiles where tiles run anywhere.
 *
 * Where tiles run anywhere, stages_away.c gives stages to all tiles. Otherwise a rank's tiles get their stages in this
 * order:
 * 1. Tiles that need something from another rank: stages_home.c or stages_by_phase.c has chosen.
 * 2. Tiles that need nothing (*local* tiles), of Q blocks that have tiles of the first kind. They run in the block's
 *    first visit at the rank, which costs no further visit.
 * 3. Local tiles of the other Q blocks. They fill the rank's stages to an even load: stage 0 first, to hide the first
 *    rounds and the reshuffle; then the stages after the last arrival; then the last stage, if results must be
 *    reshuffled back; then the stage with least work.
 * 4. If all this gives stage 0 too little work, local tiles of step 2 move there, at the price of a visit each.
 */
#include <string.h>

#include "compiler/base/group.h"
#include "compiler/planning/pair.h"
#include "compiler/schedule/schedule_parts.h"

/* Returns tile number i of a row. `anywhere` is a constant where this is called, so the loops over tiles are compiled
 * twice: once for plans whose tiles all run at home, which is faster, and once for the others. */
static inline uint32_t tile_at(const rank_rows *here, uint32_t i, bool anywhere) {
    return anywhere ? here->tiles[i] : i;
}

/* Gives stages to the local tiles of the rows that have none yet, so that the rank's load is even. */
static void fill_stages(const builder *b, rank_rows *here, uint64_t share) {
    const bool back = b->p->program->layout != FCP_LAYOUT_PLANNED;
    uint32_t last = b->stages - 1, after = b->arrivals;
    uint64_t *load = here->load;
    for (int moved = 0; moved < 2; moved++) /* what the reshuffle does not move goes first */
        for (uint32_t i = 0; i < here->count; i++) {
            row *r = &here->rows[here->which[i]];
            uint32_t to = 0;
            if (r->local_stage != FCP_NONE || b->r->moved[r->q] != (moved == 1)) continue;
            if (load[0] >= share) {
                while (after < b->stages && load[after] >= share) after++;
                to = after < b->stages ? after : last;
                if (after == b->stages && (!back || load[last] >= share))
                    for (uint32_t s = last; s-- > 0;)
                        if (load[s] < load[to]) to = s;
            }
            r->local_stage = to;
            load[to] += r->local;
        }
}

/* Chooses the stage of every row's local tiles: see the head comment. */
static void place_local(const builder *b, rank_rows *here) {
    uint64_t *load = here->load;
    memset(load, 0, b->stages * sizeof *load);
    if (here->tiles && !b->where->phase) {
        away_tiles(b, here);
        return;
    }
    const uint64_t share = (b->where->phase ? phase_tiles(b, here) : home_tiles(b, here)) / b->stages;
    fill_stages(b, here, share);
    for (uint32_t i = 0; !here->tiles && i < here->count && load[0] < share; i++) {
        row *r = &here->rows[here->which[i]];
        if (!r->local_stage || r->local == r->work || !r->local) continue; /* no tile of it, or nothing was short */
        load[r->local_stage] -= r->local;
        load[0] += r->local;
        r->local_stage = 0;
    }
}

/* May this row run before the reshuffle is done? It runs in stage 0, and nothing it reads moves. */
static bool is_early(const builder *b, const rank_rows *here, const row *r) {
    if (b->p->program->layout == FCP_LAYOUT_PLANNED || r->local_stage || b->r->moved[r->q]) return false;
    for (uint32_t i = r->first; i < r->end; i++) {
        uint32_t t = tile_at(here, i, here->tiles);
        if (b->t->tile_kv[t] == FCP_NONE && b->r->moved[b->p->tile_k[t]]) return false;
    }
    return true;
}

/* The rows of all ranks; returns how many. */
static uint32_t make_rows(const builder *b, rank_rows *here) {
    const problem *p = b->p;
    uint32_t count = 0;
    if (!here->tiles) {
        for (uint32_t q = 0; q < p->block_count; q++)
            if (p->tile_start[q] < p->tile_start[q + 1])
                here->rows[count++] = (row){.q = q, .first = p->tile_start[q], .end = p->tile_start[q + 1],
                                            .rank = b->where->home[q], .hop = FCP_NONE};
        return count;
    }
    for (uint32_t i = 0, next; i < p->tile_count; i = next) {
        uint32_t t = here->tiles[i], q = p->tile_q[t], rank = b->where->exec[t];
        for (next = i + 1; next < p->tile_count && p->tile_q[here->tiles[next]] == q &&
                           b->where->exec[here->tiles[next]] == rank;)
            next++;
        here->rows[count++] = (row){.q = q, .first = i, .end = next, .rank = rank, .hop = b->t->tile_q[t]};
    }
    return count;
}

/* A tile and where in a rank's order it comes: key 2 s: early in stage s; 2 s + 1: in stage s. */
typedef struct keyed {
    uint32_t tile, q, key;
} keyed;

/* Where the next visit and the next tile are put. */
typedef struct cursor {
    uint32_t visit, tile;
} cursor;

/* Adds the rank's tiles, sorted by key, to the order of execution, and its visits: runs of one Q block and key. */
static void add_visits(const builder *b, const keyed *sorted, uint32_t n, cursor *at) {
    schedule *out = b->out;
    for (uint32_t i = 0, next; i < n; i = next) {
        const keyed *x = &sorted[i];
        const uint32_t stage = x->key / 2, v = at->visit++, first = at->tile;
        for (next = i; next < n && sorted[next].q == x->q && sorted[next].key == x->key; next++)
            out->order[at->tile++] = sorted[next].tile;
        out->visit_stage[v] = stage;
        out->visit_early[v] = x->key % 2 == 0;
        if (b->t->tile_q) out->visit_hop[v] = b->t->tile_q[x->tile];
        out->visits[v] = (fcp_visit){.q_block = x->q, .first_tile = first, .tiles = next - i, .state_slot = FCP_NONE};
        if (stage > out->block_last[x->q]) out->block_last[x->q] = stage;
    }
}

/* Marks the rank's first and last visit to each Q block. The rank's visits are `first` to `end` - 1. newest[q]:
 * FCP_NONE, or any visit before `first`. */
static void mark_ends(schedule *out, uint32_t first, uint32_t end, uint32_t *newest) {
    for (uint32_t v = first; v < end; v++) {
        uint32_t q = out->visits[v].q_block, before = newest[q];
        if (before == FCP_NONE || before < first) out->visits[v].flags = FCP_VISIT_FIRST;
        else out->visits[before].flags &= ~(uint32_t)FCP_VISIT_LAST;
        out->visits[v].flags |= FCP_VISIT_LAST;
        newest[q] = v;
    }
}

/* Remembers that something is used in a stage. */
static inline void note_use(uint32_t *first, uint32_t *last, uint32_t stage) {
    if (stage < *first) *first = stage;
    if (stage > *last) *last = stage;
}

/* Does a hop bring its block over net in this stage? */
static inline bool comes_over_net(const builder *b, uint32_t f, uint32_t stage) {
    return f != FCP_NONE && b->t->hops[f].fabric == FCP_NET && b->out->last_stage[f] == stage;
}

/* Lists a rank's tiles with their keys, and counts keys (at key + 1); returns how many tiles. */
static inline uint32_t list_tiles(const builder *b, const rank_rows *here, uint32_t rank, keyed *todo, uint32_t *bucket,
                                  bool anywhere) {
    const bool divides = b->near_first && b->near_first[rank];
    schedule *out = b->out;
    uint32_t n = 0;
    for (uint32_t i = 0; i < here->count; i++) {
        const row *x = &here->rows[here->which[i]];
        bool early = is_early(b, here, x), each = anywhere && !b->where->phase;
        for (uint32_t j = x->first; j < x->end; j++) {
            uint32_t t = tile_at(here, j, anywhere), f = b->t->tile_kv[t];
            const uint32_t stage = f == FCP_NONE && !each ? x->local_stage : here->stage_of[t];
            const bool near = divides && !comes_over_net(b, x->hop, stage) && !comes_over_net(b, f, stage);
            const uint32_t key = 2 * stage + !(stage ? near : early);
            todo[n++] = (keyed){t, x->q, key};
            bucket[key + 1]++;
            if (f != FCP_NONE) note_use(&out->use_first[f], &out->use_last[f], stage);
            if (!anywhere) continue;
            if (x->hop != FCP_NONE) note_use(&out->use_first[x->hop], &out->use_last[x->hop], stage);
            else note_use(&out->home_first[x->q], &out->home_last[x->q], stage);
        }
    }
    return n;
}

/* Gets memory for the visits, and the stages of tiles at home; lists tiles by rank where they run anywhere. */
static fcp_code open_visits(builder *b, rank_rows *here, size_t rows) {
    const problem *p = b->p;
    schedule *out = b->out;
    uint32_t ranks = p->ranks, blocks = p->block_count, tiles = p->tile_count;
    here->rows = ARENA_NEW(b->scratch, row, rows);
    out->order = ARENA_NEW(b->work, uint32_t, tiles + (size_t)1);
    out->visits = ARENA_NEW(&b->x->memory, fcp_visit, tiles + (size_t)1);
    out->visit_stage = ARENA_NEW(b->work, uint32_t, tiles + (size_t)1);
    out->visit_early = ARENA_ZNEW(b->work, bool, tiles + (size_t)1);
    out->rank_visit = ARENA_NEW(b->work, uint32_t, ranks + (size_t)1);
    out->block_last = ARENA_ZNEW(b->work, uint32_t, blocks);
    if (!here->rows || !out->order || !out->visits || !out->visit_stage || !out->visit_early ||
        !out->rank_visit || !out->block_last)
        return FCP_E_NO_MEMORY;
    if (!b->where->exec) return even_stages(b, &here->stage_of);
    here->stage_of = ARENA_NEW(b->scratch, uint32_t, tiles + (size_t)1);
    out->visit_hop = ARENA_NEW(b->work, uint32_t, tiles + (size_t)1);
    out->home_first = ARENA_NEW(b->work, uint32_t, blocks);
    out->home_last = ARENA_ZNEW(b->work, uint32_t, blocks);
    if (!here->stage_of || !out->visit_hop || !out->home_first || !out->home_last)
        return FCP_E_NO_MEMORY;
    memset(out->home_first, 0xff, blocks * sizeof *out->home_first);
    uint32_t *start, *list;
    fcp_code code = group_new(b->scratch, b->where->exec, sizeof *b->where->exec, tiles, ranks, b->x->stop, &start,
                              &list);
    here->tiles = list;
    return code;
}

/* The visits of ranks `first` to `end` - 1. */
typedef struct visiting {
    const builder *b;
    rank_rows here;
    const uint32_t *start, *which; /* rows by rank */
    uint32_t *newest;              /* per Q block; FCP_NONE at first */
    uint32_t first, end, tiles;    /* tiles: of the rank with most */
    cursor from, at;               /* of these ranks' first visit and tile, and after their last */
} visiting;

static fcp_code visit_ranks(planning *x, void *given) {
    visiting *v = given;
    const builder *b = v->b;
    rank_rows *here = &v->here;
    arena *scratch = &x->scratch;
    const size_t buckets = 2 * (size_t)b->stages;
    uint32_t *bucket = ARENA_NEW(scratch, uint32_t, buckets + 1);
    keyed *todo = ARENA_NEW(scratch, keyed, v->tiles + (size_t)1);
    keyed *sorted = ARENA_NEW(scratch, keyed, v->tiles + (size_t)1);
    here->load = ARENA_NEW(scratch, uint64_t, b->stages);
    here->next = ARENA_NEW(scratch, uint32_t, b->stages);
    if (!bucket || !todo || !sorted || !here->load || !here->next) return FCP_E_NO_MEMORY;
    v->at = v->from;
    for (uint32_t r = v->first; r < v->end; r++) {
        if (planning_stopped(x)) return FCP_E_INTERRUPTED;
        here->which = v->which + v->start[r];
        here->count = v->start[r + 1] - v->start[r];
        place_local(b, here);
        memset(bucket, 0, (buckets + 1) * sizeof *bucket);
        uint32_t n = here->tiles ? list_tiles(b, here, r, todo, bucket, true)
                                 : list_tiles(b, here, r, todo, bucket, false);
        group_starts(bucket, (uint32_t)buckets);
        for (uint32_t i = 0; i < n; i++) sorted[bucket[todo[i].key]++] = todo[i];
        const uint32_t rank_visit = b->out->rank_visit[r] = v->at.visit;
        add_visits(b, sorted, n, &v->at);
        mark_ends(b->out, rank_visit, v->at.visit, v->newest);
    }
    return FCP_OK;
}

/* Moves the visits of the later ranks up to those of the earlier ones. */
static void join_visits(schedule *out, const visiting *earlier, const visiting *later) {
    const uint32_t from = later->from.visit, to = earlier->at.visit, gap = from - to;
    const size_t count = later->at.visit - from;
    out->visit_count = later->at.visit - gap;
    for (uint32_t r = later->first; r < later->end; r++) out->rank_visit[r] -= gap;
    out->rank_visit[later->end] = out->visit_count;
    if (!gap || !count) return;
    memmove(out->visits + to, out->visits + from, count * sizeof *out->visits);
    memmove(out->visit_stage + to, out->visit_stage + from, count * sizeof *out->visit_stage);
    memmove(out->visit_early + to, out->visit_early + from, count * sizeof *out->visit_early);
    if (out->visit_hop) memmove(out->visit_hop + to, out->visit_hop + from, count * sizeof *out->visit_hop);
}

/* Divides the ranks into two shares, for two threads. If all tiles run at home, ranks have no block and no hop in
 * common, and each share gets about half of the tiles; else the second share is empty. If T tiles are in the first
 * share, it makes at most T visits. So the second share writes its visits from place T on, and join_visits closes the
 * gap. */
static void share_ranks(const builder *b, visiting *earlier, visiting *later) {
    const problem *p = b->p;
    uint32_t before = 0;
    for (uint32_t r = 0; r < p->ranks; r++) {
        uint32_t sum = 0;
        for (uint32_t i = earlier->start[r]; i < earlier->start[r + 1]; i++) {
            const row *x = &earlier->here.rows[earlier->which[i]];
            sum += x->end - x->first;
        }
        if (sum > earlier->tiles) earlier->tiles = sum;
        if (!b->where->exec && before >= p->tile_count / 2) continue;
        before += sum;
        earlier->end = r + 1;
    }
    *later = *earlier;
    later->first = earlier->end;
    later->end = p->ranks;
    later->from = (cursor){before, before};
}

fcp_code make_visits(builder *b) {
    const problem *p = b->p;
    schedule *out = b->out;
    const uint32_t ranks = p->ranks, blocks = p->block_count;
    const size_t room = (b->where->exec ? p->tile_count : blocks) + (size_t)1;
    uint32_t *start, *which, *newest = ARENA_NEW(b->scratch, uint32_t, blocks);
    rank_rows here = {0};
    if (!newest) return FCP_E_NO_MEMORY;
    fcp_code code = open_visits(b, &here, room);
    if (code) return code;
    memset(newest, 0xff, blocks * sizeof *newest);
    uint32_t count = make_rows(b, &here);
    code = group_new(b->scratch, &here.rows->rank, sizeof *here.rows, count, ranks, b->x->stop, &start, &which);
    if (code) return code;
    visiting earlier = {.b = b, .here = here, .start = start, .which = which, .newest = newest}, later;
    share_ranks(b, &earlier, &later);
    code = pair_make(b->x, !b->where->exec && p->tile_count >= PAIR_FROM, (pair_piece){visit_ranks, &earlier},
                     (pair_piece){visit_ranks, &later});
    if (code) return code;
    join_visits(out, &earlier, &later);
    arena_trim(&b->x->memory, out->visits, (p->tile_count + (size_t)1) * sizeof *out->visits,
               out->visit_count * sizeof *out->visits);
    return FCP_OK;
}
