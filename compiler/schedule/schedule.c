/* schedule.c: when fetches arrive and tiles run; slots.c then finds their places, and moves.c the rounds of each pass.
 *
 * requires  fetches, at most one per (block, rank); segments of the reshuffle.
 * gives     every independent unit's place in the order of such rounds; the stages of forwards and returns; each tile's
 *           stage, not before its KV is there; execution order and visits.
 * keeps     independent units in exactly Delta rounds per fabric.
 * cost      the colouring (colour.c), then linear.
 *
 * Stages. Stage 0 computes what needs nothing from elsewhere. Independent round i belongs to stage 1 + i / coalesce. What
 * arrives in stage s is computed in stage s, beside the rounds of the stages after it. A forward leaves one stage after the
 * fetch it passes on arrived; a return leaves `buffers` stages after the last stage that added to it, for then its launch
 * waits for nothing that launching in time would not wait for anyway.
 *
 * Order of rounds. A colouring leaves the order of its colours free. On each fabric the rounds that enable most work (pairs
 * of the tiles that read what they bring, forwards included) go first: then work that could run is there early.
 *
 * Local work. A Q block that also reads remote KV does its local tiles in its first visit, which costs no visit. Q blocks
 * that read nothing remote fill the rank's stages to an even load: stage 0 first, to hide the first rounds and the
 * reshuffle, then the last one if results must be reshuffled back, then the lightest. If they are too few to give stage 0
 * its share, local tiles of other blocks go there at the price of a visit.
 */
#include "compiler/schedule/schedule.h"

#include <string.h>

#include "compiler/schedule/rounds.h"
#include "compiler/base/sort.h"

typedef struct builder {
    const problem *p;
    const uint32_t *home;
    const traffic *t;
    const reshuffle *r;
    uint32_t coalesce, buffers;
    arena *plan, *memory, *scratch;
    schedule *out;
    edges edges;      /* room for a fabric's units */
    uint32_t stages;  /* last stage in which tiles can run + 1 */
} builder;

/* --- independent rounds ------------------------------------------------------------------------------------------- */

/* Colours the independent units of one fabric and orders the colours; fills unit_round. */
static fcp_code independent(builder *b, fcp_fabric fabric, uint32_t *out_rounds) {
    const traffic *t = b->t;
    edges *e = &b->edges;
    e->count = 0;
    for (uint32_t f = 0; f < t->count; f++) {
        const fetch *x = &t->fetches[f];
        if (x->parent != FCP_NONE || x->fabric != fabric) continue;
        for (uint32_t u = 0; u < x->units; u++) edges_add(e, x->src, x->dst, unit_tokens(b->p, x->block, u));
    }
    fcp_code code = edges_colour(e, b->p->ranks, b->scratch);
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
        for (uint32_t u = 0; u < x->units; u++) b->out->unit_round[b->out->unit_start[f] + u] = position[e->colour[at++]];
    }
    return FCP_OK;
}

/* When each fetch arrives. Units of one fetch are alike but for the last one's size: they take its rounds in order. */
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

/* --- tiles and visits --------------------------------------------------------------------------------------------- */

enum { FILLER = 1, SPLIT = 2 }; /* of a Q block: reads nothing remote; its local tiles go to stage 0 */

/* Where the local tiles of one rank's Q blocks run: local_stage[block]. */
static void place_local(builder *b, const uint32_t *blocks, uint32_t count, uint32_t *local_stage, uint64_t *load) {
    const problem *p = b->p;
    uint32_t last = b->stages - 1;
    uint64_t total = 0;
    memset(load, 0, b->stages * sizeof *load);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t q = blocks[i], first = FCP_NONE;
        uint64_t local = 0;
        for (uint32_t t = p->tile_start[q]; t < p->tile_start[q + 1]; t++) {
            uint32_t f = b->t->tile_fetch[t];
            if (f == FCP_NONE) {
                local += p->tile_pairs[t];
                continue;
            }
            uint32_t s = b->out->last_stage[f];
            load[s] += p->tile_pairs[t];
            if (s < first) first = s;
        }
        total += p->work[q];
        local_stage[q] = first;
        if (first != FCP_NONE) load[first] += local;
    }
    uint64_t share = total / b->stages;
    bool back = p->program->layout != FCP_LAYOUT_PLANNED;
    for (int pass = 0; pass < 2; pass++) /* what the reshuffle does not move goes first */
        for (uint32_t i = 0; i < count; i++) {
            uint32_t q = blocks[i], to = 0;
            if (local_stage[q] != FCP_NONE || b->r->moved[q] != (pass == 1)) continue;
            if (load[0] >= share) {
                to = last;
                if (!back || load[last] >= share)
                    for (uint32_t s = last; s-- > 0;)
                        if (load[s] < load[to]) to = s;
            }
            local_stage[q] = to;
            load[to] += p->work[q];
        }
    for (uint32_t i = 0; i < count && load[0] < share; i++) {
        uint32_t q = blocks[i];
        uint64_t local = 0;
        if (!local_stage[q]) continue;
        for (uint32_t t = p->tile_start[q]; t < p->tile_start[q + 1]; t++)
            if (b->t->tile_fetch[t] == FCP_NONE) local += p->tile_pairs[t];
        if (local == p->work[q] || !local) continue; /* a filler elsewhere: nothing was short */
        load[local_stage[q]] -= local;
        load[0] += local;
        local_stage[q] = 0;
    }
}

/* Stages of tiles; tiles of each rank sorted by stage; visits. */
static fcp_code visits(builder *b) {
    const problem *p = b->p;
    const traffic *t = b->t;
    schedule *out = b->out;
    uint32_t ranks = p->ranks, blocks = p->block_count, tiles = p->tile_count, most = 0;
    uint32_t *start = ARENA_ZNEW(b->scratch, uint32_t, ranks + (size_t)2), *mine = ARENA_NEW(b->scratch, uint32_t, blocks);
    uint32_t *local_stage = ARENA_NEW(b->scratch, uint32_t, blocks);
    uint64_t *load = ARENA_NEW(b->scratch, uint64_t, b->stages);
    uint32_t *bucket = ARENA_NEW(b->scratch, uint32_t, b->stages + (size_t)3);
    out->order = ARENA_NEW(b->memory, uint32_t, tiles + (size_t)1);
    out->visits = ARENA_NEW(b->plan, fcp_visit, tiles + (size_t)1);
    out->visit_stage = ARENA_NEW(b->memory, uint32_t, tiles + (size_t)1);
    out->visit_early = ARENA_ZNEW(b->memory, bool, tiles + (size_t)1);
    out->rank_visit = ARENA_NEW(b->memory, uint32_t, ranks + (size_t)1);
    out->block_last = ARENA_ZNEW(b->memory, uint32_t, blocks);
    if (!start || !mine || !local_stage || !load || !bucket || !out->order || !out->visits || !out->visit_stage ||
        !out->visit_early || !out->rank_visit || !out->block_last)
        return FCP_E_NO_MEMORY;
    for (uint32_t q = 0; q < blocks; q++) start[b->home[q] + 2]++;
    for (uint32_t r = 0; r < ranks; r++) start[r + 2] += start[r + 1];
    for (uint32_t q = 0; q < blocks; q++) mine[start[b->home[q] + 1]++] = q;
    for (uint32_t r = 0; r < ranks; r++) {
        uint32_t sum = 0;
        for (uint32_t i = start[r]; i < start[r + 1]; i++) sum += p->tile_start[mine[i] + 1] - p->tile_start[mine[i]];
        if (sum > most) most = sum;
    }
    struct keyed { uint32_t tile, q, key; } *todo = arena_alloc(b->scratch, most + (size_t)1, sizeof *todo, 8), *sorted =
        arena_alloc(b->scratch, most + (size_t)1, sizeof *sorted, 8);
    if (!todo || !sorted) return FCP_E_NO_MEMORY;

    uint32_t done = 0;
    for (uint32_t r = 0; r < ranks; r++) {
        out->rank_visit[r] = out->visit_count;
        place_local(b, mine + start[r], start[r + 1] - start[r], local_stage, load);
        uint32_t n = 0;
        memset(bucket, 0, (b->stages + (size_t)3) * sizeof *bucket);
        for (uint32_t i = start[r]; i < start[r + 1]; i++) {
            uint32_t q = mine[i];
            bool early = b->p->program->layout != FCP_LAYOUT_PLANNED && !local_stage[q] && !b->r->moved[q];
            for (uint32_t x = p->tile_start[q]; early && x < p->tile_start[q + 1]; x++)
                if (t->tile_fetch[x] == FCP_NONE && b->r->moved[p->tile_k[x]]) early = false;
            for (uint32_t x = p->tile_start[q]; x < p->tile_start[q + 1]; x++) {
                uint32_t f = t->tile_fetch[x], stage = f == FCP_NONE ? local_stage[q] : out->last_stage[f];
                uint32_t key = stage ? stage + 1 : !early; /* 0: early, 1: stage 0, s + 1: stage s */
                todo[n++] = (struct keyed){x, q, key};
                bucket[key + 1]++;
                if (f != FCP_NONE) {
                    if (stage < out->use_first[f]) out->use_first[f] = stage;
                    if (stage > out->use_last[f]) out->use_last[f] = stage;
                }
            }
        }
        for (uint32_t k = 0; k <= b->stages; k++) bucket[k + 1] += bucket[k];
        for (uint32_t i = 0; i < n; i++) sorted[bucket[todo[i].key]++] = todo[i];
        for (uint32_t i = 0; i < n; i++) {
            const struct keyed *x = &sorted[i];
            uint32_t stage = x->key ? x->key - 1 : 0, v = out->visit_count;
            bool fresh = v == out->rank_visit[r] || out->visits[v - 1].q_block != x->q || sorted[i - 1].key != x->key;
            if (fresh) {
                out->visit_stage[v] = stage;
                out->visit_early[v] = !x->key;
                out->visits[out->visit_count++] = (fcp_visit){.q_block = x->q, .first_tile = done, .state_slot = FCP_NONE};
                out->block_last[x->q] = stage;
            }
            out->visits[out->visit_count - 1].tiles++;
            out->order[done++] = x->tile;
        }
    }
    out->rank_visit[ranks] = out->visit_count;

    /* first and last visits of each block: visits of a rank are in order of stage */
    uint32_t *previous = ARENA_NEW(b->scratch, uint32_t, blocks);
    if (!previous) return FCP_E_NO_MEMORY;
    memset(previous, 0xff, blocks * sizeof *previous);
    for (uint32_t v = 0; v < out->visit_count; v++) {
        uint32_t q = out->visits[v].q_block;
        if (previous[q] == FCP_NONE)
            out->visits[v].flags = FCP_VISIT_FIRST;
        else
            out->visits[previous[q]].flags &= ~(uint32_t)FCP_VISIT_LAST;
        out->visits[v].flags |= FCP_VISIT_LAST;
        previous[q] = v;
    }
    return FCP_OK;
}

/* When the dKV partials of fetches leave: children before parents. */
static void returns(builder *b) {
    const traffic *t = b->t;
    schedule *out = b->out;
    uint32_t *ready = out->return_stage; /* until a fetch's turn: the last stage that adds to its partial */
    for (uint32_t f = 0; f < t->count; f++) ready[f] = out->use_last[f];
    for (uint32_t f = t->count; f-- > 0;) {
        out->return_stage[f] = ready[f] + b->buffers;
        uint32_t parent = t->fetches[f].parent;
        if (parent != FCP_NONE && out->return_stage[f] > ready[parent]) ready[parent] = out->return_stage[f];
    }
}

fcp_code schedule_build(const problem *p, const uint32_t *home, const traffic *t, const reshuffle *r, uint32_t coalesce,
                        arena *plan, arena *memory, arena *scratch, double *colour_seconds, schedule *out) {
    *out = (schedule){0};
    builder b = {.p = p, .home = home, .t = t, .r = r, .coalesce = coalesce, .buffers = p->program->buffers,
                 .plan = plan, .memory = memory, .scratch = scratch, .out = out};
    bool backward = p->program->passes[FCP_BACKWARD];
    size_t n = t->count + (size_t)1, units = 0;
    out->first_stage = ARENA_NEW(memory, uint32_t, n);
    out->last_stage = ARENA_NEW(memory, uint32_t, n);
    out->use_first = ARENA_NEW(memory, uint32_t, n);
    out->use_last = ARENA_ZNEW(memory, uint32_t, n);
    out->return_stage = backward ? ARENA_NEW(memory, uint32_t, n) : NULL;
    out->unit_start = ARENA_NEW(memory, uint32_t, n);
    if (!out->first_stage || !out->last_stage || !out->use_first || !out->use_last || (backward && !out->return_stage) ||
        !out->unit_start)
        return FCP_E_NO_MEMORY;
    memset(out->use_first, 0xff, n * sizeof *out->use_first);
    for (uint32_t f = 0; f < t->count; f++) {
        out->unit_start[f] = (uint32_t)units;
        if (t->fetches[f].parent == FCP_NONE) units += t->fetches[f].units;
    }
    out->unit_round = ARENA_NEW(memory, uint32_t, units + 1);
    if (!out->unit_round || !edges_new(&b.edges, scratch, units)) return FCP_E_NO_MEMORY;

    fcp_code code = independent(&b, FCP_NET, &out->independent[FCP_NET]);
    if (!code) code = independent(&b, FCP_LOCAL, &out->independent[FCP_LOCAL]);
    if (!code) code = arrivals(&b);
    if (!code && b.stages > FCP_MAX_STAGES / 4) code = FCP_E_PLAN_SIZE;
    out->tile_stages = b.stages;
    if (!code) code = visits(&b);
    if (!code && backward) returns(&b);
    if (p->program->passes[FCP_FORWARD]) out->pass[FCP_FORWARD].stages = b.stages;
    if (backward) out->pass[FCP_BACKWARD].stages = b.stages;
    for (uint32_t f = 0; backward && !code && f < t->count; f++)
        if (out->return_stage[f] + 1 > out->pass[FCP_BACKWARD].stages)
            out->pass[FCP_BACKWARD].stages = out->return_stage[f] + 1;
    *colour_seconds += b.edges.seconds;
    return code;
}
