/* schedule.c: decides when each fetch arrives and when each tile runs.
 *
 * slots.c then finds places for what arrives, and rounds.c makes the rounds of each pass.
 *
 * Requires: traffic, with at most one fetch for each block and rank; which blocks the reshuffle moves.
 * Gives: the order of independent units; the stages in which forwards and returns travel; for each tile a stage in
 *     which its KV is there; the order of execution, and the visits.
 * Keeps: independent units take exactly Delta rounds on each fabric.
 * Cost: that of the colouring (colour.c), then linear.
 *
 * Stages. Stage 0 computes what needs nothing from other ranks. Independent round i belongs to stage 1 + i /
 * coalesce. What arrives in stage s is computed in stage s, beside the rounds of later stages. A forward leaves one
 * stage after the fetch that it passes on. A return leaves `buffers` stages after the last stage that added to it:
 * its launch then waits for nothing that it would not wait for anyway.
 *
 * Order of rounds. A colouring may be put in any order. On each fabric those rounds go first that bring what most work
 * needs, forwards included. So work that could run finds its data early.
 *
 * Local work: tiles whose KV is at home where they run. A Q block that also reads remote KV does its local tiles in
 * its first visit, which costs no further visit. Q blocks that read nothing remote fill the rank's stages to an even
 * load: stage 0 first, to hide the first rounds and the reshuffle; then the last stage, if results must be reshuffled
 * back; then the lightest. If they are too few to give stage 0 its share, local tiles of other blocks go there, at
 * the price of a visit.
 */
#include "compiler/schedule/schedule.h"

#include <string.h>

#include "compiler/base/group.h"
#include "compiler/base/sort.h"
#include "compiler/schedule/rounds.h"

typedef struct builder {
    planning *x;
    const problem *p;
    const placement *where;
    const traffic *t;
    const reshuffle *r;
    uint32_t coalesce;
    arena *work, *scratch;
    schedule *out;
    edges edges;      /* room for a fabric's units */
    uint32_t stages;  /* last stage in which tiles can run + 1 */
} builder;

/* --- independent rounds
 * ---------------------------------------------------------------------------------------------- */

/* Colours the independent units of one fabric, and puts the colours in order: fills unit_round. */
static fcp_code independent(builder *b, fcp_fabric fabric, uint32_t *out_rounds) {
    const traffic *t = b->t;
    edges *e = &b->edges;
    e->count = 0;
    for (uint32_t f = 0; f < t->count; f++) {
        const fetch *x = &t->fetches[f];
        if (x->parent != FCP_NONE || x->fabric != fabric) continue;
        for (uint32_t u = 0; u < x->units; u++) edges_add(e, x->src, x->dst, unit_tokens(b->p, x->block, u));
    }
    fcp_code code = edges_colour(e, b->x);
    if (code) return code;
    *out_rounds = e->colours;

    uint64_t *work = ARENA_ZNEW(b->scratch, uint64_t, e->colours + (size_t)1);
    uint64_t *keys = ARENA_NEW(b->scratch, uint64_t, e->colours + (size_t)1);
    uint64_t *room = ARENA_NEW(b->scratch, uint64_t, e->colours + (size_t)1);
    uint32_t *position = ARENA_NEW(b->scratch, uint32_t, e->colours + (size_t)1);
    if (!work || !keys || !room || !position) return FCP_E_NO_MEMORY;
    uint32_t at = 0;
    for (uint32_t f = 0; f < t->count; f++) {
        const fetch *x = &t->fetches[f];
        if (x->parent != FCP_NONE || x->fabric != fabric) continue;
        for (uint32_t u = 0; u < x->units; u++) work[e->colour[at++]] += x->units == 1 ? x->work : x->work / x->units;
    }
    uint64_t most = 0;
    unsigned shift = 0;
    for (uint32_t c = 0; c < e->colours; c++)
        if (work[c] > most) most = work[c];
    while (most >> shift >= UINT64_C(1) << 31) shift++;
    for (uint32_t c = 0; c < e->colours; c++) keys[c] = ((most - work[c]) >> shift) << 32 | c;
    sort_u64(keys, room, e->colours);
    for (uint32_t i = 0; i < e->colours; i++) position[(uint32_t)keys[i]] = i;
    at = 0;
    for (uint32_t f = 0; f < t->count; f++) {
        const fetch *x = &t->fetches[f];
        if (x->parent != FCP_NONE || x->fabric != fabric) continue;
        uint32_t *round = b->out->unit_round + b->out->unit_start[f];
        for (uint32_t u = 0; u < x->units; u++) round[u] = position[e->colour[at++]];
    }
    return FCP_OK;
}

/* Decides when each fetch arrives. Its units differ at most in size, so they take the rounds of the fetch in order. */
static fcp_code arrivals(builder *b) {
    const traffic *t = b->t;
    schedule *out = b->out;
    b->stages = 1;
    for (uint32_t f = 0; f < t->count; f++) { /* a parent comes before its forwards */
        const fetch *x = &t->fetches[f];
        if (x->parent == FCP_NONE) {
            uint32_t *slot = out->unit_round + out->unit_start[f];
            if (x->units > 1) {
                uint64_t *keys = ARENA_NEW(b->scratch, uint64_t, 2 * (size_t)x->units);
                if (!keys) return FCP_E_NO_MEMORY;
                for (uint32_t u = 0; u < x->units; u++) keys[u] = slot[u];
                sort_u64(keys, keys + x->units, x->units);
                for (uint32_t u = 0; u < x->units; u++) slot[u] = (uint32_t)keys[u];
            }
            out->first_stage[f] = 1 + slot[0] / b->coalesce;
            out->last_stage[f] = 1 + slot[x->units - 1] / b->coalesce;
        } else {
            out->first_stage[f] = out->last_stage[f] = out->last_stage[x->parent] + 1;
        }
        if (out->last_stage[f] + 1 > b->stages) b->stages = out->last_stage[f] + 1;
    }
    return FCP_OK;
}

/* --- tiles and visits
 * ------------------------------------------------------------------------------------------------ */

/* Tiles of one Q block that run at one rank: `first` to `end` - 1. */
typedef struct row {
    uint32_t q, first, end;
    uint32_t rank;
    uint32_t local_stage; /* in which those run whose KV is at home there; FCP_NONE: some tile has KV from elsewhere */
    uint64_t work;        /* pairs of all of them */
} row;

/* One rank's rows, by Q block: rows[which[0]] to rows[which[count - 1]]. */
typedef struct bench {
    row *rows;
    const uint32_t *which;
    uint32_t count;
    uint64_t *load; /* per stage: pairs computed */
} bench;

static uint64_t local_work(const builder *b, const row *r) {
    uint64_t work = 0;
    for (uint32_t t = r->first; t < r->end; t++)
        if (b->t->tile_fetch[t] == FCP_NONE) work += b->p->tile_pairs[t];
    return work;
}

/* Chooses the stage of every row's local tiles: see the head comment. */
static void place_local(const builder *b, bench *here) {
    const problem *p = b->p;
    const uint32_t *fetch_of = b->t->tile_fetch;
    const uint64_t *pairs = p->tile_pairs;
    uint32_t last = b->stages - 1;
    uint64_t total = 0, *load = here->load;
    memset(load, 0, b->stages * sizeof *load);
    for (uint32_t i = 0; i < here->count; i++) {
        row *r = &here->rows[here->which[i]];
        uint64_t local = 0, remote = 0;
        uint32_t first = FCP_NONE;
        for (uint32_t t = r->first; t < r->end; t++) {
            uint32_t f = fetch_of[t];
            if (f == FCP_NONE) {
                local += pairs[t];
                continue;
            }
            uint32_t s = b->out->last_stage[f];
            load[s] += pairs[t];
            remote += pairs[t];
            if (s < first) first = s;
        }
        r->local_stage = first;
        r->work = local + remote;
        total += r->work;
        if (first != FCP_NONE) load[first] += local;
    }
    uint64_t share = total / b->stages;
    bool back = p->program->layout != FCP_LAYOUT_PLANNED;
    for (int moved = 0; moved < 2; moved++) /* what the reshuffle does not move goes first */
        for (uint32_t i = 0; i < here->count; i++) {
            row *r = &here->rows[here->which[i]];
            uint32_t to = 0;
            if (r->local_stage != FCP_NONE || b->r->moved[r->q] != (moved == 1)) continue;
            if (load[0] >= share) {
                to = last;
                if (!back || load[last] >= share)
                    for (uint32_t s = last; s-- > 0;)
                        if (load[s] < load[to]) to = s;
            }
            r->local_stage = to;
            load[to] += r->work;
        }
    for (uint32_t i = 0; i < here->count && load[0] < share; i++) {
        row *r = &here->rows[here->which[i]];
        if (!r->local_stage) continue;
        uint64_t local = local_work(b, r);
        if (local == r->work || !local) continue; /* all of it is local and was put elsewhere: nothing was short */
        load[r->local_stage] -= local;
        load[0] += local;
        r->local_stage = 0;
    }
}

/* May this row run before the reshuffle is done? It runs in stage 0, and nothing it reads moves. */
static bool is_early(const builder *b, const row *r) {
    if (b->p->program->layout == FCP_LAYOUT_PLANNED || r->local_stage || b->r->moved[r->q]) return false;
    for (uint32_t t = r->first; t < r->end; t++)
        if (b->t->tile_fetch[t] == FCP_NONE && b->r->moved[b->p->tile_k[t]]) return false;
    return true;
}

/* The rows of all ranks, in order of tile; returns how many. */
static uint32_t make_rows(const builder *b, row *rows) {
    const problem *p = b->p;
    uint32_t count = 0;
    for (uint32_t q = 0; q < p->block_count; q++)
        for (uint32_t t = p->tile_start[q], end = p->tile_start[q + 1], next; t < end; t = next) {
            uint32_t rank = placement_exec(b->where, t);
            for (next = b->where->exec ? t + 1 : end; next < end && b->where->exec[next] == rank;) next++;
            rows[count++] = (row){.q = q, .first = t, .end = next, .rank = rank};
        }
    return count;
}

/* A tile and where in a rank's order it comes: key 0: early in stage 0; 1: in stage 0; s + 1: in stage s. */
typedef struct keyed {
    uint32_t tile, q, key;
} keyed;

/* Adds the rank's tiles, sorted by key, to the order of execution, and its visits: runs of one Q block and key. */
static void add_visits(builder *b, uint32_t rank, const keyed *sorted, uint32_t n, uint32_t *done) {
    schedule *out = b->out;
    for (uint32_t i = 0; i < n; i++) {
        const keyed *x = &sorted[i];
        uint32_t stage = x->key ? x->key - 1 : 0, v = out->visit_count;
        bool fresh = v == out->rank_visit[rank] || out->visits[v - 1].q_block != x->q || sorted[i - 1].key != x->key;
        if (fresh) {
            out->visit_stage[v] = stage;
            out->visit_early[v] = !x->key;
            out->visits[out->visit_count++] = (fcp_visit){.q_block = x->q, .first_tile = *done, .state_slot = FCP_NONE};
            if (stage > out->block_last[x->q]) out->block_last[x->q] = stage;
        }
        out->visits[out->visit_count - 1].tiles++;
        out->order[(*done)++] = x->tile;
    }
}

/* Which visit of a Q block is the rank's first, and which its last; newest[q]: FCP_NONE, or any visit before
 * `first`. */
static void mark_ends(schedule *out, uint32_t first, uint32_t *newest) {
    for (uint32_t v = first; v < out->visit_count; v++) {
        uint32_t q = out->visits[v].q_block, before = newest[q];
        if (before == FCP_NONE || before < first) out->visits[v].flags = FCP_VISIT_FIRST;
        else out->visits[before].flags &= ~(uint32_t)FCP_VISIT_LAST;
        out->visits[v].flags |= FCP_VISIT_LAST;
        newest[q] = v;
    }
}

/* Gives every tile its stage, sorts the tiles of each rank by stage, and makes the visits. */
static fcp_code visits(builder *b) {
    const problem *p = b->p;
    schedule *out = b->out;
    uint32_t ranks = p->ranks, blocks = p->block_count, tiles = p->tile_count, most = 0;
    size_t room = (b->where->exec ? tiles : blocks) + (size_t)1;
    uint32_t *start = ARENA_NEW(b->scratch, uint32_t, ranks + (size_t)2);
    uint32_t *which = ARENA_NEW(b->scratch, uint32_t, room); /* rows by rank */
    uint32_t *bucket = ARENA_NEW(b->scratch, uint32_t, b->stages + (size_t)3);
    uint32_t *newest = ARENA_NEW(b->scratch, uint32_t, blocks);
    bench here = {.rows = ARENA_NEW(b->scratch, row, room), .load = ARENA_NEW(b->scratch, uint64_t, b->stages)};
    out->order = ARENA_NEW(b->work, uint32_t, tiles + (size_t)1);
    out->visits = ARENA_NEW(&b->x->memory, fcp_visit, tiles + (size_t)1);
    out->visit_stage = ARENA_NEW(b->work, uint32_t, tiles + (size_t)1);
    out->visit_early = ARENA_ZNEW(b->work, bool, tiles + (size_t)1);
    out->rank_visit = ARENA_NEW(b->work, uint32_t, ranks + (size_t)1);
    out->block_last = ARENA_ZNEW(b->work, uint32_t, blocks);
    if (!start || !which || !bucket || !newest || !here.rows || !here.load || !out->order || !out->visits ||
        !out->visit_stage || !out->visit_early || !out->rank_visit || !out->block_last)
        return FCP_E_NO_MEMORY;
    memset(newest, 0xff, blocks * sizeof *newest);
    uint32_t count = make_rows(b, here.rows);
    if (!group_by(&here.rows->rank, sizeof *here.rows, count, ranks, start, which, b->x->stop))
        return FCP_E_INTERRUPTED;
    for (uint32_t r = 0; r < ranks; r++) {
        uint32_t sum = 0;
        for (uint32_t i = start[r]; i < start[r + 1]; i++) sum += here.rows[which[i]].end - here.rows[which[i]].first;
        if (sum > most) most = sum;
    }
    keyed *todo = ARENA_NEW(b->scratch, keyed, most + (size_t)1);
    keyed *sorted = ARENA_NEW(b->scratch, keyed, most + (size_t)1);
    if (!todo || !sorted) return FCP_E_NO_MEMORY;

    uint32_t done = 0;
    for (uint32_t r = 0; r < ranks; r++) {
        uint32_t n = 0;
        if (planning_stopped(b->x)) return FCP_E_INTERRUPTED;
        here.which = which + start[r];
        here.count = start[r + 1] - start[r];
        place_local(b, &here);
        memset(bucket, 0, (b->stages + (size_t)3) * sizeof *bucket);
        for (uint32_t i = 0; i < here.count; i++) {
            const row *x = &here.rows[here.which[i]];
            bool early = is_early(b, x);
            for (uint32_t t = x->first; t < x->end; t++) {
                uint32_t f = b->t->tile_fetch[t], stage = f == FCP_NONE ? x->local_stage : out->last_stage[f];
                uint32_t key = stage ? stage + 1 : !early;
                todo[n++] = (keyed){t, x->q, key};
                bucket[key + 1]++;
                if (f == FCP_NONE) continue;
                if (stage < out->use_first[f]) out->use_first[f] = stage;
                if (stage > out->use_last[f]) out->use_last[f] = stage;
            }
        }
        group_starts(bucket, b->stages + 1);
        for (uint32_t i = 0; i < n; i++) sorted[bucket[todo[i].key]++] = todo[i];
        out->rank_visit[r] = out->visit_count;
        add_visits(b, r, sorted, n, &done);
        mark_ends(out, out->rank_visit[r], newest);
    }
    out->rank_visit[ranks] = out->visit_count;
    return FCP_OK;
}

/* Decides when the dKV partials of fetches leave: a forward's before that of the fetch it passed on. */
static void returns(builder *b) {
    const traffic *t = b->t;
    schedule *out = b->out;
    uint32_t *ready = out->return_stage; /* before it is a fetch's turn: the last stage that adds to its partial */
    for (uint32_t f = 0; f < t->count; f++) ready[f] = out->use_last[f];
    for (uint32_t f = t->count; f-- > 0;) {
        out->return_stage[f] = ready[f] + b->p->program->buffers;
        uint32_t parent = t->fetches[f].parent;
        if (parent != FCP_NONE && out->return_stage[f] > ready[parent]) ready[parent] = out->return_stage[f];
    }
}

fcp_code schedule_build(planning *x) {
    const problem *p = x->problem;
    const traffic *t = x->traffic;
    arena *work = &x->work;
    schedule *out = ARENA_ZNEW(work, schedule, 1);
    if (!out) return FCP_E_NO_MEMORY;
    builder b = {.x = x, .p = p, .where = x->placement, .t = t, .r = x->reshuffle, .coalesce = x->coalesce,
                 .work = work, .scratch = &x->scratch, .out = out};
    bool backward = p->program->passes[FCP_BACKWARD];
    size_t n = t->count + (size_t)1, units = 0;
    out->first_stage = ARENA_NEW(work, uint32_t, n);
    out->last_stage = ARENA_NEW(work, uint32_t, n);
    out->use_first = ARENA_NEW(work, uint32_t, n);
    out->use_last = ARENA_ZNEW(work, uint32_t, n);
    out->return_stage = backward ? ARENA_NEW(work, uint32_t, n) : NULL;
    out->unit_start = ARENA_NEW(work, uint32_t, n);
    if (!out->first_stage || !out->last_stage || !out->use_first || !out->use_last || !out->unit_start ||
        (backward && !out->return_stage))
        return FCP_E_NO_MEMORY;
    memset(out->use_first, 0xff, n * sizeof *out->use_first);
    for (uint32_t f = 0; f < t->count; f++) {
        out->unit_start[f] = (uint32_t)units;
        if (t->fetches[f].parent == FCP_NONE) units += t->fetches[f].units;
    }
    out->unit_round = ARENA_NEW(work, uint32_t, units + 1);
    if (!out->unit_round || !edges_new(&b.edges, b.scratch, units)) return FCP_E_NO_MEMORY;

    fcp_code code = independent(&b, FCP_NET, &out->independent[FCP_NET]);
    if (!code) code = independent(&b, FCP_LOCAL, &out->independent[FCP_LOCAL]);
    if (!code) code = arrivals(&b);
    if (!code && b.stages > FCP_MAX_STAGES / 4) code = FCP_E_PLAN_SIZE;
    out->tile_stages = b.stages;
    if (!code) code = visits(&b);
    if (code) return code;
    if (backward) returns(&b);
    if (p->program->passes[FCP_FORWARD]) out->pass[FCP_FORWARD].stages = b.stages;
    if (backward) out->pass[FCP_BACKWARD].stages = b.stages;
    for (uint32_t f = 0; backward && f < t->count; f++)
        if (out->return_stage[f] + 1 > out->pass[FCP_BACKWARD].stages)
            out->pass[FCP_BACKWARD].stages = out->return_stage[f] + 1;
    x->schedule = out;
    return FCP_OK;
}
