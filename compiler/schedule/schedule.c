/* schedule.c: decides when each block arrives, when each tile runs, and when results go back.
 *
 * slots.c then finds places for what arrives, and rounds.c makes the rounds of each pass.
 *
 * Requires: traffic, with at most one hop of KV and one of Q for each block and rank; which blocks the reshuffle moves.
 * Gives: the order of independent units; the stages in which forwards and returns travel; for each tile a stage in
 *     which its Q and its KV are there; the order of execution, and the visits.
 * Keeps: independent units take exactly Delta rounds on each fabric.
 * Cost: that of the colouring (colour.c), then linear; of levelling, units times the full stages that each passes over.
 *
 * Stages. Stage 0 computes what needs nothing from other ranks. Independent round i belongs to stage 1 + i / coalesce.
 * What arrives in stage s is computed in stage s, or later, beside the rounds of later stages. A forward may leave one
 * stage after the hop that it passes on. A return may leave `buffers` stages after the last stage that added to it: its
 * launch then waits for nothing that it would not wait for anyway. A whole result that is passed on may leave one stage
 * after it came.
 *
 * Levels. Where all tiles run at home, forwards and returns leave as soon as they may. Otherwise most units are
 * dependent, and the Deltas of the stages would add up to far more than the busiest rank's units, since each stage has
 * another rank that is busy. Then a dependent unit takes the earliest stage, from that one on, in which neither of its
 * ends has `coalesce` units on its fabric, nor half as many dependent ones.
 *
 * Halves. With pingpong what must travel is divided in two half batches (halves.c). The second one begins with a stage
 * of its own, after all arrivals of the first: so its rounds come after those of the first on each fabric, and the
 * first is computed while the second moves. Its units wait, though they leave from home, and so they are dependent.
 *
 * Order of rounds. A colouring may be put in any order. On each fabric those rounds go first that bring what most work
 * needs, forwards included. So work that could run finds its data early, and what must travel home is done early.
 *
 * Local work: tiles that need nothing remote. A Q block that also has other tiles at the rank does them in its first
 * visit there, which costs no further visit. Q blocks without others fill the rank's stages to an even load: stage 0
 * first, to hide the first rounds and the reshuffle; then the last stage, if results must be reshuffled back; then the
 * lightest. If they are too few to give stage 0 its share, local tiles of other blocks go there, at the price of a
 * visit.
 *
 * Where all tiles run at home but ranks are far apart, tiles wait for later stages: see pace.c.
 *
 * Where tiles run anywhere, each rank has its arrivals in other stages, and ranks wait for each other in every round: a
 * rank that has half of its work in one stage delays all. So a tile waits for a stage in which the rank has less than
 * its share, those of other ranks' blocks first, since their results are waited for; and local tiles go to any stage.
 * `buffers` stages follow the last arrival, which local tiles fill: they hide the returns.
 *
 * Phases. Where heads are computed in phases, all that a phase needs arrives in one stage, or, where blocks are
 * passed on, in one for each leg of the ways. The next phase follows. So each rank computes its heads of a phase in
 * one stage, as much as any other, and slots are free for the phase that comes `buffers` stages later.
 */
#include "compiler/schedule/schedule.h"

#include <string.h>

#include "compiler/base/group.h"
#include "compiler/base/sort.h"
#include "compiler/schedule/halves.h"
#include "compiler/schedule/pace.h"
#include "compiler/schedule/rounds.h"

/* How much room dependent units have left in the stages: of each rank, direction and fabric, which make a line. */
typedef struct levels {
    uint8_t *used;  /* [line * width + stage], of `most` */
    uint32_t *full; /* per line: the stages before this one have no room */
    uint32_t lines, width, most;
} levels;

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
    uint32_t arrivals; /* last stage in which something can arrive for them + 1 */
    levels levels;
    uint32_t *phase_start; /* per phase: its first stage; NULL: there are no phases */
} builder;

static inline uint32_t later(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* --- independent rounds ------------------------------------------------------------------------------------------ */

/* Colours the independent units of one fabric, and puts the colours in order: fills unit_round. */
static fcp_code independent(builder *b, fcp_fabric fabric, uint32_t *out_rounds) {
    const traffic *t = b->t;
    edges *e = &b->edges;
    e->count = 0;
    for (uint32_t f = 0; f < t->count; f++) {
        const hop *x = &t->hops[f];
        if (!hop_is_independent(x) || x->fabric != fabric) continue;
        for (uint32_t u = 0; u < x->units; u++)
            edges_add(e, x->src, x->dst, unit_size(b->p, x->cls, unit_tokens(b->p, x->cls, x->block, u)));
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
        const hop *x = &t->hops[f];
        if (!hop_is_independent(x) || x->fabric != fabric) continue;
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
        const hop *x = &t->hops[f];
        if (!hop_is_independent(x) || x->fabric != fabric) continue;
        uint32_t *round = b->out->unit_round + b->out->unit_start[f];
        for (uint32_t u = 0; u < x->units; u++) round[u] = position[e->colour[at++]];
    }
    return FCP_OK;
}

/* --- dependent units --------------------------------------------------------------------------------------------- */

static inline uint32_t line_of(uint32_t rank, fcp_direction dir, uint32_t fabric) {
    return (rank * FCP_DIRECTION_COUNT + dir) * FCP_FABRICS + fabric;
}

/* Makes room for a stage. */
static fcp_code levels_reach(builder *b, uint32_t stage) {
    levels *l = &b->levels;
    if (stage < l->width) return FCP_OK;
    uint32_t width = stage + stage / 2 + 16;
    uint8_t *grown = ARENA_ZNEW(b->scratch, uint8_t, (size_t)l->lines * width);
    if (!grown) return FCP_E_NO_MEMORY;
    for (uint32_t i = 0; l->width && i < l->lines; i++)
        memcpy(grown + (size_t)i * width, l->used + (size_t)i * l->width, l->width);
    l->used = grown;
    l->width = width;
    return FCP_OK;
}

static void levels_add(builder *b, uint32_t line, uint32_t stage) {
    levels *l = &b->levels;
    uint8_t *used = l->used + (size_t)line * l->width;
    used[stage]++;
    while (l->full[line] < l->width && used[l->full[line]] >= l->most) l->full[line]++;
}

/* Starts with the independent units: they leave dependent ones what is left of `coalesce`, and at most half of it. */
static fcp_code levels_open(builder *b) {
    const traffic *t = b->t;
    levels *l = &b->levels;
    l->lines = b->p->ranks * FCP_DIRECTION_COUNT * FCP_FABRICS;
    l->width = 0;
    l->most = (b->coalesce + 1) / 2;
    l->full = ARENA_NEW(b->scratch, uint32_t, l->lines);
    if (!l->full) return FCP_E_NO_MEMORY;
    for (uint32_t i = 0; i < l->lines; i++) l->full[i] = 1; /* nothing travels in stage 0 */
    uint32_t rounds = b->out->independent[FCP_NET] > b->out->independent[FCP_LOCAL] ? b->out->independent[FCP_NET]
                                                                                      : b->out->independent[FCP_LOCAL];
    fcp_code code = levels_reach(b, 4 * (rounds / b->coalesce + b->p->program->buffers) + 16);
    for (uint32_t f = 0; !code && f < t->count; f++) {
        const hop *x = &t->hops[f];
        if (!hop_is_independent(x)) continue;
        for (uint32_t u = 0; u < x->units; u++) {
            uint32_t stage = 1 + b->out->unit_round[b->out->unit_start[f] + u] / b->coalesce;
            l->used[(size_t)line_of(x->src, FCP_SEND, x->fabric) * l->width + stage]++;
            l->used[(size_t)line_of(x->dst, FCP_RECV, x->fabric) * l->width + stage]++;
        }
    }
    const uint32_t spare = b->coalesce - l->most;
    for (size_t i = 0; !code && i < (size_t)l->lines * l->width; i++)
        l->used[i] = (uint8_t)(l->used[i] > spare ? l->used[i] - spare : 0);
    return code;
}

/* Goes on from a copy of the levels. */
static fcp_code levels_copy(builder *b, const levels *of) {
    levels *l = &b->levels;
    *l = *of;
    l->used = ARENA_NEW(b->scratch, uint8_t, (size_t)l->lines * l->width);
    l->full = ARENA_NEW(b->scratch, uint32_t, l->lines);
    if (!l->used || !l->full) return FCP_E_NO_MEMORY;
    memcpy(l->used, of->used, (size_t)l->lines * l->width);
    memcpy(l->full, of->full, l->lines * sizeof *l->full);
    return FCP_OK;
}

/* Finds stages for units that go from src to dst, `release` or later, in order. */
static fcp_code level(builder *b, uint32_t src, uint32_t dst, uint32_t fabric, uint32_t release, uint32_t units,
                      uint32_t *out_stage) {
    levels *l = &b->levels;
    uint32_t send = line_of(src, FCP_SEND, fabric), receive = line_of(dst, FCP_RECV, fabric), stage = release;
    for (uint32_t u = 0; u < units; u++) {
        if (l->full[send] > stage) stage = l->full[send];
        if (l->full[receive] > stage) stage = l->full[receive];
        while (stage < l->width && (l->used[(size_t)send * l->width + stage] >= l->most ||
                                    l->used[(size_t)receive * l->width + stage] >= l->most))
            stage++;
        if (stage > FCP_MAX_STAGES / 4) return FCP_E_PLAN_SIZE;
        fcp_code code = levels_reach(b, stage);
        if (code) return code;
        levels_add(b, send, stage);
        levels_add(b, receive, stage);
        out_stage[u] = stage;
    }
    return FCP_OK;
}

/* Finds stages for dependent units from `release` on: in levels; with phases all in that stage. */
static fcp_code find_stages(builder *b, uint32_t src, uint32_t dst, uint32_t fabric, uint32_t release, uint32_t units,
                            uint32_t *out_stage) {
    if (!b->where->phase) return level(b, src, dst, fabric, release, units, out_stage);
    for (uint32_t u = 0; u < units; u++) out_stage[u] = release;
    return FCP_OK;
}

/* With phases: the first stage of each. A phase takes a stage for each leg of its ways, and begins after the one before
 * it. leg_of: per hop, how many come before it on its way. NULL: no memory. */
static uint32_t *phase_starts(const builder *b, uint32_t *leg_of) {
    const traffic *t = b->t;
    uint32_t phases = b->p->head_count; /* at most */
    uint32_t *start = ARENA_ZNEW(b->scratch, uint32_t, phases + (size_t)1);
    if (!start) return NULL;
    for (uint32_t f = 0; f < t->count; f++) {
        const hop *x = &t->hops[f];
        uint32_t *legs = &start[b->where->phase[b->p->blocks[x->block].heads] + 1];
        leg_of[f] = x->parent == FCP_NONE ? 0 : leg_of[x->parent] + 1;
        if (*legs <= leg_of[f]) *legs = leg_of[f] + 1;
    }
    start[0] = 1;
    for (uint32_t i = 0; i < phases; i++) start[i + 1] += start[i];
    return start;
}

/* Decides when the block of hop f arrives. Its units differ at most in size, so they take the rounds of the hop in
 * order. release: with phases, the stage in which it leaves. */
static fcp_code arrive(builder *b, uint32_t f, uint32_t release) {
    schedule *out = b->out;
    const hop *x = &b->t->hops[f];
    uint32_t *slot = out->unit_round + out->unit_start[f];
    if (hop_is_independent(x)) {
        if (x->units > 1) {
            uint64_t *keys = ARENA_NEW(b->scratch, uint64_t, 2 * (size_t)x->units);
            if (!keys) return FCP_E_NO_MEMORY;
            for (uint32_t u = 0; u < x->units; u++) keys[u] = slot[u];
            sort_u64(keys, keys + x->units, x->units);
            for (uint32_t u = 0; u < x->units; u++) slot[u] = (uint32_t)keys[u];
        }
        out->first_stage[f] = 1 + slot[0] / b->coalesce;
        out->last_stage[f] = 1 + slot[x->units - 1] / b->coalesce;
    } else if (!out->levelled) {
        out->first_stage[f] = out->last_stage[f] = out->last_stage[x->parent] + 1;
    } else {
        if (!b->where->phase && x->parent != FCP_NONE) release = out->last_stage[x->parent] + 1;
        if (out->second && out->second[f]) release = later(release, out->second_stage);
        fcp_code code = find_stages(b, x->src, x->dst, x->fabric, release, x->units, slot);
        if (code) return code;
        out->first_stage[f] = slot[0];
        out->last_stage[f] = slot[x->units - 1];
    }
    b->stages = later(b->stages, out->last_stage[f] + 1);
    return FCP_OK;
}

/* The hops of the second half, those first that bring what most work needs: so a parent comes before its forwards.
 * NULL: no memory. */
static uint32_t *order_second(const builder *b, uint32_t *out_count) {
    const traffic *t = b->t;
    uint64_t *keys = ARENA_NEW(b->scratch, uint64_t, 2 * (size_t)t->count + 1), most = 0;
    uint32_t *order = ARENA_NEW(b->scratch, uint32_t, t->count + (size_t)1), n = 0;
    unsigned shift = 0;
    if (!keys || !order) return NULL;
    for (uint32_t f = 0; f < t->count; f++)
        if (t->hops[f].work > most) most = t->hops[f].work;
    while (most >> shift >= UINT64_C(1) << 31) shift++;
    for (uint32_t f = 0; f < t->count; f++)
        if (b->out->second[f]) keys[n++] = ((most >> shift) - (t->hops[f].work >> shift)) << 32 | f;
    sort_u64(keys, keys + n, n);
    for (uint32_t i = 0; i < n; i++) order[i] = (uint32_t)keys[i];
    *out_count = n;
    return order;
}

/* Decides when each block arrives: first those of the first half, where there are two. */
static fcp_code arrivals(builder *b) {
    const schedule *out = b->out;
    const uint32_t *phase = b->where->phase;
    uint32_t *leg_of = phase ? ARENA_NEW(b->scratch, uint32_t, b->t->count + (size_t)1) : NULL;
    if (phase && (!leg_of || !(b->phase_start = phase_starts(b, leg_of)))) return FCP_E_NO_MEMORY;
    fcp_code code = FCP_OK;
    b->stages = 1;
    for (uint32_t f = 0; f < b->t->count && !code; f++) { /* a parent comes before its forwards */
        if (out->second && out->second[f]) continue;
        uint32_t release = phase ? b->phase_start[phase[b->p->blocks[b->t->hops[f].block].heads]] + leg_of[f] : 1;
        code = planning_stopped_at(b->x, f) ? FCP_E_INTERRUPTED : arrive(b, f, release);
    }
    if (!code && out->second) {
        uint32_t count = 0, *order = order_second(b, &count);
        if (!order) return FCP_E_NO_MEMORY;
        b->out->second_stage = b->stages;
        for (uint32_t i = 0; i < count && !code; i++)
            code = planning_stopped_at(b->x, i) ? FCP_E_INTERRUPTED : arrive(b, order[i], out->second_stage);
    }
    b->arrivals = b->stages;
    return code;
}

/* --- tiles and visits -------------------------------------------------------------------------------------------- */

/* Tiles of one Q block that run at one rank: numbers `first` to `end` - 1 of bench.tiles. */
typedef struct row {
    uint32_t q, first, end;
    uint32_t rank;
    uint32_t hop;         /* that brings Q; FCP_NONE: Q is at home there */
    uint32_t local_stage; /* in which those run whose KV is at home there; FCP_NONE: not chosen yet */
    uint64_t work, local; /* pairs: of all of them, and of those */
} row;

/* One rank's rows, by Q block: rows[which[0]] to rows[which[count - 1]]. */
typedef struct bench {
    row *rows;
    const uint32_t *tiles; /* by rank and Q block; NULL: in the problem's order */
    const uint32_t *which;
    uint32_t count;
    uint64_t *load; /* per stage: pairs computed */
    uint32_t *stage_of; /* per tile: the stage of those whose KV comes from elsewhere; NULL: that in which it comes */
    /* where tiles run anywhere */
    uint32_t *next;     /* per stage that is full: a later one, and all between are full, too */
} bench;

/* Loops over tiles are compiled twice: where tiles run anywhere, and where all run at home, which is faster. */
static inline uint32_t tile_at(const bench *here, uint32_t i, bool anywhere) { return anywhere ? here->tiles[i] : i; }

/* Puts rows' local tiles into the rank's stages, where those have no stage yet. */
static void fill_stages(const builder *b, bench *here, uint64_t share) {
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

/* All run at home: adds up the work that has its stage already; returns all work. Local tiles get the stage of the
 * row's first visit. */
static uint64_t load_at_home(const builder *b, bench *here) {
    const uint32_t *hop_of = b->t->tile_kv;
    const uint64_t *pairs = b->p->tile_pairs;
    uint64_t total = 0, *load = here->load;
    for (uint32_t i = 0; i < here->count; i++) {
        row *r = &here->rows[here->which[i]];
        uint64_t local = 0, remote = 0;
        uint32_t first = FCP_NONE;
        for (uint32_t t = r->first; t < r->end; t++) {
            uint32_t f = hop_of[t];
            if (f == FCP_NONE) {
                local += pairs[t];
                continue;
            }
            uint32_t s = here->stage_of ? here->stage_of[t] : b->out->last_stage[f];
            load[s] += pairs[t];
            remote += pairs[t];
            if (s < first) first = s;
        }
        r->local_stage = first;
        r->local = local;
        r->work = local + remote;
        total += r->work;
        if (first != FCP_NONE) load[first] += local;
    }
    return total;
}

/* The first stage from s on that has less than its share; b->stages: none. */
static uint32_t stage_with_room(const builder *b, bench *here, uint32_t s, uint64_t share) {
    uint32_t at = s;
    while (at < b->stages && here->load[at] >= share) at = here->next[at];
    for (uint32_t i = s, next; i < at; i = next) {
        next = here->next[i];
        here->next[i] = at;
    }
    return at;
}

/* Tiles run anywhere: the same, and stages for the tiles whose KV comes from elsewhere. A tile waits for a stage with
 * room, from that in which its Q and KV are there. Rows from elsewhere choose first, since somebody waits for their
 * results. */
static uint64_t load_anywhere(const builder *b, bench *here) {
    const uint32_t *hop_of = b->t->tile_kv;
    const uint64_t *pairs = b->p->tile_pairs;
    uint64_t total = 0, share, *load = here->load;
    for (uint32_t s = 0; s < b->stages; s++) here->next[s] = s + 1;
    for (uint32_t i = 0; i < here->count; i++) {
        row *r = &here->rows[here->which[i]];
        r->work = 0;
        for (uint32_t j = r->first; j < r->end; j++) r->work += pairs[here->tiles[j]];
        total += r->work;
    }
    share = total / b->stages;
    for (int own = 0; own < 2; own++)
        for (uint32_t i = 0; i < here->count; i++) {
            row *r = &here->rows[here->which[i]];
            if (own != (r->hop == FCP_NONE)) continue;
            uint32_t floor = own ? 0 : b->out->last_stage[r->hop], first = FCP_NONE;
            r->local = 0;
            for (uint32_t j = r->first; j < r->end; j++) {
                uint32_t t = here->tiles[j], f = hop_of[t];
                if (f == FCP_NONE) {
                    r->local += pairs[t];
                    continue;
                }
                uint32_t ready = b->out->last_stage[f] > floor ? b->out->last_stage[f] : floor;
                uint32_t s = stage_with_room(b, here, ready, share);
                if (s == b->stages) s = ready;
                here->stage_of[t] = s;
                load[s] += pairs[t];
                if (s < first) first = s;
            }
            if (first == FCP_NONE && floor) first = floor; /* its Q is what it needs */
            r->local_stage = first;
            if (!own) load[first] += r->local;
            else if (first != FCP_NONE && load[first] < share) load[first] += r->local; /* with the first visit */
            else r->local_stage = FCP_NONE;
        }
    return total;
}

/* With phases: tiles run as soon as they can, but no earlier than beside what brings their phase; or, where they are
 * gathered, all of a row as soon as the last can. */
static uint64_t load_by_phase(const builder *b, bench *here) {
    const uint32_t *hop_of = b->t->tile_kv, *arrival = b->out->last_stage;
    uint64_t total = 0, *load = here->load;
    for (uint32_t i = 0; i < here->count; i++) {
        row *r = &here->rows[here->which[i]];
        const uint32_t start = b->phase_start[b->where->phase[b->p->blocks[r->q].heads]];
        uint32_t first = r->hop == FCP_NONE ? start - !b->where->gather : arrival[r->hop], last = first;
        bool remote = r->hop != FCP_NONE;
        r->local = r->work = 0;
        for (uint32_t j = r->first; j < r->end; j++) {
            uint32_t t = here->tiles[j], f = hop_of[t];
            uint32_t ready = f != FCP_NONE && arrival[f] > first ? arrival[f] : first;
            here->stage_of[t] = ready;
            if (ready > last) last = ready;
            remote |= f != FCP_NONE;
            r->work += b->p->tile_pairs[t];
            if (f == FCP_NONE) r->local += b->p->tile_pairs[t];
        }
        total += r->work;
        r->local_stage = b->where->gather ? last : first;
        if (!remote) r->local_stage = FCP_NONE; /* it may run whenever there is least to do */
        for (uint32_t j = r->first; remote && j < r->end; j++) {
            uint32_t t = here->tiles[j];
            if (b->where->gather || hop_of[t] == FCP_NONE) here->stage_of[t] = r->local_stage;
            load[here->stage_of[t]] += b->p->tile_pairs[t];
        }
    }
    return total;
}

/* Chooses the stage of every row's local tiles: see the head comment. */
static void place_local(const builder *b, bench *here) {
    uint64_t *load = here->load;
    memset(load, 0, b->stages * sizeof *load);
    uint64_t total = b->where->phase ? load_by_phase(b, here)
                     : here->tiles   ? load_anywhere(b, here)
                                     : load_at_home(b, here);
    const uint64_t share = total / b->stages;
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
static bool is_early(const builder *b, const bench *here, const row *r) {
    if (b->p->program->layout == FCP_LAYOUT_PLANNED || r->local_stage || b->r->moved[r->q]) return false;
    for (uint32_t i = r->first; i < r->end; i++) {
        uint32_t t = tile_at(here, i, here->tiles);
        if (b->t->tile_kv[t] == FCP_NONE && b->r->moved[b->p->tile_k[t]]) return false;
    }
    return true;
}

/* The rows of all ranks; returns how many. */
static uint32_t make_rows(const builder *b, bench *here) {
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
            if (b->t->tile_q) out->visit_hop[v] = b->t->tile_q[x->tile];
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

/* Remembers that something is used in a stage. */
static inline void note_use(uint32_t *first, uint32_t *last, uint32_t stage) {
    if (stage < *first) *first = stage;
    if (stage > *last) *last = stage;
}

/* Lists the rank's tiles with their keys, and counts keys (at key + 1); returns how many tiles. */
static inline uint32_t list_tiles(const builder *b, const bench *here, keyed *todo, uint32_t *bucket, bool anywhere) {
    schedule *out = b->out;
    uint32_t n = 0;
    for (uint32_t i = 0; i < here->count; i++) {
        const row *x = &here->rows[here->which[i]];
        bool early = is_early(b, here, x);
        for (uint32_t j = x->first; j < x->end; j++) {
            uint32_t t = tile_at(here, j, anywhere), f = b->t->tile_kv[t];
            uint32_t stage = f == FCP_NONE ? x->local_stage : here->stage_of ? here->stage_of[t] : out->last_stage[f];
            uint32_t key = stage ? stage + 1 : !early;
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

/* Memory for visits, and lists of tiles by rank where tiles run anywhere. */
static fcp_code open_visits(builder *b, bench *here, size_t rows) {
    const problem *p = b->p;
    schedule *out = b->out;
    uint32_t ranks = p->ranks, blocks = p->block_count, tiles = p->tile_count;
    here->rows = ARENA_NEW(b->scratch, row, rows);
    here->load = ARENA_NEW(b->scratch, uint64_t, b->stages);
    out->order = ARENA_NEW(b->work, uint32_t, tiles + (size_t)1);
    out->visits = ARENA_NEW(&b->x->memory, fcp_visit, tiles + (size_t)1);
    out->visit_stage = ARENA_NEW(b->work, uint32_t, tiles + (size_t)1);
    out->visit_early = ARENA_ZNEW(b->work, bool, tiles + (size_t)1);
    out->rank_visit = ARENA_NEW(b->work, uint32_t, ranks + (size_t)1);
    out->block_last = ARENA_ZNEW(b->work, uint32_t, blocks);
    if (!here->rows || !here->load || !out->order || !out->visits || !out->visit_stage || !out->visit_early ||
        !out->rank_visit || !out->block_last)
        return FCP_E_NO_MEMORY;
    if (!b->where->exec) return pace_tiles(b->x, out, b->stages, &here->stage_of);
    uint32_t *list = ARENA_NEW(b->scratch, uint32_t, tiles + (size_t)1);
    uint32_t *start = ARENA_NEW(b->scratch, uint32_t, ranks + (size_t)2);
    here->stage_of = ARENA_NEW(b->scratch, uint32_t, tiles + (size_t)1);
    here->next = ARENA_NEW(b->scratch, uint32_t, b->stages);
    out->visit_hop = ARENA_NEW(b->work, uint32_t, tiles + (size_t)1);
    out->home_first = ARENA_NEW(b->work, uint32_t, blocks);
    out->home_last = ARENA_ZNEW(b->work, uint32_t, blocks);
    if (!list || !start || !here->stage_of || !here->next || !out->visit_hop || !out->home_first || !out->home_last)
        return FCP_E_NO_MEMORY;
    memset(out->home_first, 0xff, blocks * sizeof *out->home_first);
    if (!group_by(b->where->exec, sizeof *b->where->exec, tiles, ranks, start, list, b->x->stop))
        return FCP_E_INTERRUPTED;
    here->tiles = list;
    return FCP_OK;
}

/* Gives every tile its stage, sorts the tiles of each rank by stage, and makes the visits. */
static fcp_code visits(builder *b) {
    const problem *p = b->p;
    schedule *out = b->out;
    uint32_t ranks = p->ranks, blocks = p->block_count, most = 0;
    size_t room = (b->where->exec ? p->tile_count : blocks) + (size_t)1;
    uint32_t *start = ARENA_NEW(b->scratch, uint32_t, ranks + (size_t)2);
    uint32_t *which = ARENA_NEW(b->scratch, uint32_t, room); /* rows by rank */
    uint32_t *bucket = ARENA_NEW(b->scratch, uint32_t, b->stages + (size_t)3);
    uint32_t *newest = ARENA_NEW(b->scratch, uint32_t, blocks);
    bench here = {0};
    if (!start || !which || !bucket || !newest) return FCP_E_NO_MEMORY;
    fcp_code code = open_visits(b, &here, room);
    if (code) return code;
    memset(newest, 0xff, blocks * sizeof *newest);
    uint32_t count = make_rows(b, &here);
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
        uint32_t n;
        if (planning_stopped(b->x)) return FCP_E_INTERRUPTED;
        here.which = which + start[r];
        here.count = start[r + 1] - start[r];
        place_local(b, &here);
        memset(bucket, 0, (b->stages + (size_t)3) * sizeof *bucket);
        n = here.tiles ? list_tiles(b, &here, todo, bucket, true) : list_tiles(b, &here, todo, bucket, false);
        group_starts(bucket, b->stages + 1);
        for (uint32_t i = 0; i < n; i++) sorted[bucket[todo[i].key]++] = todo[i];
        out->rank_visit[r] = out->visit_count;
        add_visits(b, r, sorted, n, &done);
        mark_ends(out, out->rank_visit[r], newest);
    }
    out->rank_visit[ranks] = out->visit_count;
    return FCP_OK;
}

/* --- results ------------------------------------------------------------------------------------------------------ */

/* Decides when what is made of a block goes back along its hops: a forward's before that of the hop it passed on. */
static fcp_code returns_of(builder *b, fcp_pass pass) {
    const traffic *t = b->t;
    const problem *p = b->p;
    schedule *out = b->out;
    returns *back = &out->back[pass];
    uint32_t buffers = p->program->buffers, units = 0, first = pass == FCP_FORWARD ? t->keys : 0;
    size_t n = t->count + (size_t)1;
    back->last = ARENA_NEW(b->work, uint32_t, n);
    back->first = out->levelled ? ARENA_NEW(b->work, uint32_t, n) : back->last;
    back->start = out->levelled ? ARENA_NEW(b->work, uint32_t, n) : NULL;
    back->unit_stage = out->levelled ? ARENA_NEW(b->work, uint32_t, t->returned + 1) : NULL;
    if (!back->last || !back->first || (out->levelled && (!back->start || !back->unit_stage))) return FCP_E_NO_MEMORY;
    /* before it is a hop's turn: the last stage that adds to its result */
    for (uint32_t f = 0; f < t->count; f++) back->last[f] = f < first ? 0 : out->use_last[f];
    const levels common = b->levels; /* what arrives is the same in both passes */
    if (out->levelled && !b->where->phase) {
        fcp_code code = levels_copy(b, &common);
        if (code) return code;
    }
    for (uint32_t f = t->count; f-- > first;) {
        const hop *x = &t->hops[f];
        if (planning_stopped_at(b->x, f)) return FCP_E_INTERRUPTED;
        bool passed_on = out->use_first[f] == FCP_NONE && x->cls == FCP_Q &&
                         traffic_result(t, x->block) == RESULT_WHOLE;
        uint32_t release = back->last[f] + (passed_on ? 1 : buffers);
        if (!out->levelled) {
            back->last[f] = release;
        } else {
            uint32_t count = return_units(p, x, traffic_return(t, x, pass)), *stage = back->unit_stage + units;
            fcp_code code = find_stages(b, x->dst, x->src, x->fabric, release, count, stage);
            if (code) return code;
            back->start[f] = units;
            back->first[f] = stage[0];
            back->last[f] = stage[count - 1];
            units += count;
        }
        if (x->parent != FCP_NONE && back->last[f] > back->last[x->parent]) back->last[x->parent] = back->last[f];
    }
    b->levels = common;
    return FCP_OK;
}

/* What visits are the ends of, where several ranks compute a block: none of them is the last, and none the first where
 * a partial result from elsewhere came before. Also when the homes finish their blocks. */
static fcp_code mark_partials(builder *b) {
    const traffic *t = b->t;
    schedule *out = b->out;
    const uint32_t *arrived = out->back[FCP_FORWARD].last, blocks = b->p->block_count;
    uint32_t *at_hop = ARENA_NEW(b->scratch, uint32_t, t->count + (size_t)1); /* the stage of the first partial there */
    uint32_t *at_home = ARENA_NEW(b->scratch, uint32_t, blocks);
    out->finish = ARENA_NEW(b->work, uint32_t, blocks);
    if (!at_hop || !at_home || !out->finish) return FCP_E_NO_MEMORY;
    memset(at_hop, 0xff, (t->count + (size_t)1) * sizeof *at_hop);
    memset(at_home, 0xff, blocks * sizeof *at_home);
    memcpy(out->finish, out->home_last, blocks * sizeof *out->finish);
    for (uint32_t f = t->keys; f < t->count; f++) {
        const hop *x = &t->hops[f];
        uint32_t *first = x->parent == FCP_NONE ? &at_home[x->block] : &at_hop[x->parent];
        if (arrived[f] < *first) *first = arrived[f];
        if (x->parent == FCP_NONE && arrived[f] > out->finish[x->block]) out->finish[x->block] = arrived[f];
    }
    for (uint32_t v = 0; v < out->visit_count; v++) {
        fcp_visit *w = &out->visits[v];
        uint32_t f = out->visit_hop[v];
        if (traffic_result(t, w->q_block) != RESULT_PARTIAL) continue;
        w->flags &= ~(uint32_t)FCP_VISIT_LAST;
        if ((f == FCP_NONE ? at_home[w->q_block] : at_hop[f]) < out->visit_stage[v])
            w->flags &= ~(uint32_t)FCP_VISIT_FIRST;
    }
    return FCP_OK;
}

/* How many stages each pass has. */
static void count_stages(builder *b) {
    const traffic *t = b->t;
    schedule *out = b->out;
    uint32_t common = b->arrivals;
    for (uint32_t v = 0; b->stages > common && v < out->visit_count; v++)
        if (out->visit_stage[v] + 1 > common) common = out->visit_stage[v] + 1;
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        uint32_t *stages = &out->pass[pass].stages;
        if (!b->p->program->passes[pass]) continue;
        *stages = common;
        for (uint32_t f = pass == FCP_FORWARD ? t->keys : 0; f < t->count; f++)
            if (out->back[pass].last[f] + 1 > *stages) *stages = out->back[pass].last[f] + 1;
    }
}

/* The rounds of a stage if all independent ones are to take `divisions` stages, with stage 0, which has none. */
static uint32_t divided(const schedule *s, uint32_t divisions) {
    const uint32_t net = s->independent[FCP_NET], local = s->independent[FCP_LOCAL], rounds = net > local ? net : local;
    return rounds ? (rounds + divisions - 2) / (divisions - 1) : 1;
}

/* Which hops are of the second half: those that could leave home at once wait. */
static fcp_code find_halves(builder *b) {
    uint8_t *tiles = ARENA_NEW(b->scratch, uint8_t, b->p->tile_count + (size_t)1);
    b->out->second = ARENA_NEW(b->work, bool, b->t->count + (size_t)1);
    if (!tiles || !b->out->second) return FCP_E_NO_MEMORY;
    fcp_code code = halves_find(b->x, tiles, b->out->second);
    hop *hops = b->x->traffic->hops;
    for (uint32_t f = 0; f < b->t->count && !code; f++) hops[f].waits = b->out->second[f] && hops[f].parent == FCP_NONE;
    return code;
}

fcp_code schedule_build(planning *x) {
    const problem *p = x->problem;
    const traffic *t = x->traffic;
    arena *work = &x->work;
    schedule *out = ARENA_ZNEW(work, schedule, 1);
    if (!out) return FCP_E_NO_MEMORY;
    builder b = {.x = x, .p = p, .where = x->placement, .t = t, .r = x->reshuffle, .work = work, .scratch = &x->scratch,
                 .out = out};
    size_t n = t->count + (size_t)1, units = 0;
    out->levelled = x->placement->exec || x->program->pingpong;
    out->first_stage = ARENA_NEW(work, uint32_t, n);
    out->last_stage = ARENA_NEW(work, uint32_t, n);
    out->use_first = ARENA_NEW(work, uint32_t, n);
    out->use_last = ARENA_ZNEW(work, uint32_t, n);
    out->unit_start = ARENA_NEW(work, uint32_t, n);
    if (!out->first_stage || !out->last_stage || !out->use_first || !out->use_last || !out->unit_start)
        return FCP_E_NO_MEMORY;
    memset(out->use_first, 0xff, n * sizeof *out->use_first);
    for (uint32_t f = 0; f < t->count; f++) {
        out->unit_start[f] = (uint32_t)units;
        if (out->levelled || hop_is_independent(&t->hops[f])) units += t->hops[f].units;
    }
    out->unit_round = ARENA_NEW(work, uint32_t, units + 1);
    if (!out->unit_round || !edges_new(&b.edges, b.scratch, units)) return FCP_E_NO_MEMORY;

    fcp_code code = x->program->pingpong ? find_halves(&b) : FCP_OK;
    if (!code) code = independent(&b, FCP_NET, &out->independent[FCP_NET]);
    if (!code) code = independent(&b, FCP_LOCAL, &out->independent[FCP_LOCAL]);
    if (!code && !x->coalesce) x->coalesce = divided(out, p->program->divisions);
    b.coalesce = x->coalesce;
    if (!code && out->levelled && !b.where->phase) code = levels_open(&b);
    if (!code) code = arrivals(&b);
    if (!code && out->levelled && t->keys < t->count) b.stages += p->program->buffers;
    if (!code && b.stages > FCP_MAX_STAGES / 4) code = FCP_E_PLAN_SIZE;
    if (!code) code = visits(&b);
    for (int pass = 0; !code && pass < FCP_PASSES; pass++)
        if (p->program->passes[pass] && (pass == FCP_BACKWARD || x->placement->exec))
            code = returns_of(&b, (fcp_pass)pass);
    if (!code && x->placement->exec) code = mark_partials(&b);
    if (code) return code;
    count_stages(&b);
    x->schedule = out;
    return FCP_OK;
}
