/* schedule.c: decides when each block arrives, when each tile runs, and when results go back.
 *
 * slots.c then finds places for what arrives, and rounds.c makes the rounds of each pass.
 *
 * Requires: traffic, with at most one hop of KV and one of Q for each block and rank; which blocks the reshuffle moves.
 * Gives: the order of independent units; the stages in which forwards and returns travel; for each tile a stage in
 *     which its Q and its KV are there; the order of execution, and the visits.
 * Keeps: independent units take exactly Delta rounds on each fabric.
 * Cost: that of the colouring (colour.c) or of stages_away.c, then linear.
 *
 * Stages. Stage 0 computes what needs nothing from other ranks. Independent round i belongs to stage 1 + i / coalesce.
 * What arrives in stage s is computed in stage s, or later, beside the rounds of later stages. A forward may leave one
 * stage after the hop that it passes on. A return may leave `buffers` stages after the last stage that added to it: its
 * launch then waits for nothing that it would not wait for anyway. A whole result that is passed on may leave one stage
 * after it came.
 *
 * Where work is done away from home, the forward pass ends with results that come home, some of them by way of a rank
 * that merges them first. So there a return leaves SOON stages after what added to it, however large `buffers` is, and
 * its launch waits for that stage. *What breaks with less*: a rank would compute nothing while it waits for the launch
 * of what it has just computed. In one stage the forward pass takes 5 % longer, in two up to 3 % less than in three.
 *
 * Levels. Where all tiles run at home, forwards and returns leave as soon as they may, unless keys go along trees from
 * node to node (relays.c). There, and where tiles run elsewhere, most units are
 * dependent, and stages are given to all units alike (stages_away.c); there are no independent rounds then.
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
 * Where all tiles run at home, ranks keep pace, and tiles wait for later stages: see even_stages.c.
 *
 * Where tiles run anywhere, each rank has its arrivals in other stages, and ranks wait for each other in every round.
 * So a rank that has much of its work in one stage delays all. Each tile therefore goes to the first stage with less
 * than the rank's mean, from the stage on in which its Q and KV are there. Tiles of other ranks' blocks choose first,
 * since their results are waited for; of them, those whose results are merged with others', since these go two ways.
 * Local tiles choose last, one by one. HIDING stages follow the last arrival and hide returns. *What breaks otherwise*:
 * if they are twice `buffers`, as they once were, more buffers mean more launches and more waits. With blocks of 4K and
 * fcp, wlbllm-64 then took 94 ms with eight buffers, and 82 with three.
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
#include "compiler/schedule/stages_away.h"
#include "compiler/schedule/near.h"
#include "compiler/schedule/even_stages.h"
#include "compiler/planning/pair.h"
#include "compiler/schedule/rounds.h"

enum { SOON = 2, HIDING = 8 };

typedef struct builder {
    planning *x;
    const problem *p;
    const placement *where;
    const traffic *t;
    const reshuffle *r;
    uint32_t coalesce;
    arena *work, *scratch;
    schedule *out;
    size_t units;     /* that have a place in unit_round */
    uint32_t stages;  /* last stage in which tiles can run + 1 */
    uint32_t arrivals; /* last stage in which something can arrive for them + 1 */
    levels levels;     /* where units are levelled */
    bool *near_first;      /* per rank: near.c; NULL: none */
    uint32_t *phase_start; /* per phase: its first stage; NULL: there are no phases */
} builder;

static inline uint32_t later(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* --- independent rounds ------------------------------------------------------------------------------------------ */

/* Colours the independent units of one fabric, and puts the colours in order: fills unit_round. */
static fcp_code independent(const builder *b, fcp_fabric fabric, uint32_t *out_rounds) {
    const traffic *t = b->t;
    edges units, *e = &units;
    if (!edges_new(e, b->scratch, b->units)) return FCP_E_NO_MEMORY;
    for (uint32_t f = 0; f < t->count; f++) {
        const hop *x = &t->hops[f];
        if (!hop_is_independent(x) || x->fabric != fabric) continue;
        for (uint32_t u = 0; u < x->units; u++)
            edges_add(e, x->src, x->dst, unit_size(b->p, x->cls, unit_tokens(b->p, x, (fcp_class)x->cls, u)));
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

static fcp_code over(planning *x, const builder *of, fcp_fabric fabric) {
    builder b = *of;
    b.x = x;
    b.scratch = &x->scratch;
    return independent(&b, fabric, &b.out->independent[fabric]);
}
static fcp_code over_net(planning *x, void *given) { return over(x, given, FCP_NET); }
static fcp_code over_local(planning *x, void *given) { return over(x, given, FCP_LOCAL); }

/* --- arrivals ----------------------------------------------------------------------------------------------------- */

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

/* With phases: all units of a hop travel in the stage of its leg. */
static fcp_code arrivals_by_phase(builder *b) {
    const traffic *t = b->t;
    schedule *out = b->out;
    uint32_t *leg_of = ARENA_NEW(b->scratch, uint32_t, t->count + (size_t)1);
    if (!leg_of || !(b->phase_start = phase_starts(b, leg_of))) return FCP_E_NO_MEMORY;
    for (uint32_t f = 0; f < t->count; f++) {
        const hop *x = &t->hops[f];
        uint32_t stage = b->phase_start[b->where->phase[b->p->blocks[x->block].heads]] + leg_of[f];
        if (planning_stopped_at(b->x, f)) return FCP_E_INTERRUPTED;
        if (stage > FCP_MAX_STAGES / 4) return FCP_E_PLAN_SIZE;
        for (uint32_t u = 0; u < x->units; u++) out->unit_round[out->unit_start[f] + u] = stage;
        out->first_stage[f] = out->last_stage[f] = stage;
    }
    return FCP_OK;
}

/* All run at home: decides when each block arrives. Its units differ at most in size, so they take the rounds of the
 * hop in order. */
static fcp_code arrivals_at_home(builder *b) {
    const traffic *t = b->t;
    schedule *out = b->out;
    for (uint32_t f = 0; f < t->count; f++) { /* a parent comes before its forwards */
        const hop *x = &t->hops[f];
        uint32_t *slot = out->unit_round + out->unit_start[f];
        if (!hop_is_independent(x)) {
            out->first_stage[f] = out->last_stage[f] = out->last_stage[x->parent] + 1;
            continue;
        }
        if (x->units > 1) {
            uint64_t *keys = ARENA_NEW(b->scratch, uint64_t, 2 * (size_t)x->units);
            if (!keys) return FCP_E_NO_MEMORY;
            for (uint32_t u = 0; u < x->units; u++) keys[u] = slot[u];
            sort_u64(keys, keys + x->units, x->units);
            for (uint32_t u = 0; u < x->units; u++) slot[u] = (uint32_t)keys[u];
        }
        out->first_stage[f] = 1 + slot[0] / b->coalesce;
        out->last_stage[f] = 1 + slot[x->units - 1] / b->coalesce;
    }
    return FCP_OK;
}

/* Which hops are of the second half. All units wait for a stage then, also those that leave from home. Where work moves
 * they do anyway, and other plannings may share the hops. */
static fcp_code find_halves(builder *b) {
    uint8_t *tiles = ARENA_NEW(b->scratch, uint8_t, b->p->tile_count + (size_t)1);
    b->out->second = ARENA_NEW(b->work, bool, b->t->count + (size_t)1);
    if (!tiles || !b->out->second) return FCP_E_NO_MEMORY;
    hop *hops = b->x->traffic->hops;
    for (uint32_t f = 0; !b->where->exec && f < b->t->count; f++) hops[f].waits = hops[f].parent == FCP_NONE;
    return halves_find(b->x, tiles, b->out->second);
}

/* The rounds of a stage if so many are to take `divisions` stages, with stage 0, which has none. */
static uint32_t divided(uint32_t rounds, uint32_t divisions) {
    return rounds ? (rounds + divisions - 2) / (divisions - 1) : 1;
}

/* Makes the order of independent units, and decides when each block arrives. */
static fcp_code plan_arrivals(builder *b) {
    planning *x = b->x;
    schedule *out = b->out;
    const uint32_t divisions = b->p->program->divisions;
    fcp_code code = x->program->pingpong ? find_halves(b) : FCP_OK;
    if (out->levelled) {
        if (!code && !x->coalesce) code = levels_busiest(x, &x->coalesce);
        if (!code && !b->coalesce) x->coalesce = LEVELS_PART * divided(x->coalesce, divisions);
        if (!code) code = b->where->phase ? arrivals_by_phase(b) : levels_arrivals(x, out, &b->levels);
    } else {
        uint32_t *rounds = out->independent;
        if (!code)
            code = pair_make(x, b->units >= PAIR_FROM, (pair_piece){over_local, b}, (pair_piece){over_net, b});
        if (!x->coalesce) x->coalesce = divided(later(rounds[FCP_NET], rounds[FCP_LOCAL]), divisions);
        b->coalesce = x->coalesce;
        if (!code) code = arrivals_at_home(b);
    }
    if (code) return code;
    b->stages = 1;
    for (uint32_t f = 0; f < b->t->count; f++) b->stages = later(b->stages, out->last_stage[f] + 1);
    b->arrivals = b->stages;
    if (out->levelled && b->t->keys < b->t->count) b->stages += b->where->phase ? b->p->program->buffers : HIDING;
    return b->stages > FCP_MAX_STAGES / 4 ? FCP_E_PLAN_SIZE : FCP_OK;
}

/* --- tiles and visits -------------------------------------------------------------------------------------------- */

/* Tiles of one Q block that run at one rank: numbers `first` to `end` - 1 of bench.tiles. */
typedef struct row {
    uint32_t q, first, end;
    uint32_t rank;
    uint32_t hop;         /* that brings Q; FCP_NONE: Q is at home there */
    uint32_t local_stage; /* in which those run, or the first, whose KV is at home there; FCP_NONE: not chosen yet */
    uint64_t work, local; /* pairs: of all of them, and of those */
} row;

/* One rank's rows, by Q block: rows[which[0]] to rows[which[count - 1]]. */
typedef struct bench {
    row *rows;
    const uint32_t *tiles; /* by rank and Q block; NULL: in the problem's order */
    const uint32_t *which;
    uint32_t count;
    uint64_t *load; /* per stage: pairs computed */
    uint32_t *stage_of; /* per tile: the stage of those whose KV comes from elsewhere; NULL: that in which it comes.
                         * Where tiles run anywhere, without phases: of all */
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

/* Gives a tile the first stage with room from `ready` on; if there is none, the last of all. */
static uint32_t take_stage(const builder *b, bench *here, uint32_t tile, uint32_t ready, uint64_t share) {
    uint32_t s = stage_with_room(b, here, ready, share);
    if (s == b->stages) s--;
    here->stage_of[tile] = s;
    here->load[s] += b->p->tile_pairs[tile];
    return s;
}

/* Tiles run anywhere: chooses all their stages: first of rows from elsewhere, those of which several ranks have a part
 * before the others; then of own rows with KV from elsewhere, then of local tiles. */
static void place_anywhere(const builder *b, bench *here) {
    enum { SHARED, ALONE, OWN, LOCAL, TURNS };
    const uint32_t *hop_of = b->t->tile_kv, *last = b->out->last_stage;
    uint64_t total = 0;
    for (uint32_t s = 0; s < b->stages; s++) here->next[s] = s + 1;
    for (uint32_t i = 0; i < here->count; i++) {
        row *r = &here->rows[here->which[i]];
        r->local_stage = FCP_NONE;
        for (uint32_t j = r->first; j < r->end; j++) total += b->p->tile_pairs[here->tiles[j]];
    }
    for (int turn = 0; turn < TURNS; turn++)
        for (uint32_t i = 0; i < here->count; i++) {
            row *r = &here->rows[here->which[i]];
            const bool guest = r->hop != FCP_NONE;
            if (guest != (turn <= ALONE)) continue;
            if (guest && traffic_is_shared(b->t, r->q) != (turn == SHARED)) continue;
            uint32_t floor = r->hop == FCP_NONE ? 0 : last[r->hop];
            for (uint32_t j = r->first; j < r->end; j++) {
                uint32_t t = here->tiles[j], f = hop_of[t];
                if (!guest && (turn == LOCAL) != (f == FCP_NONE)) continue;
                uint32_t ready = f != FCP_NONE && last[f] > floor ? last[f] : floor;
                uint32_t s = take_stage(b, here, t, ready, total / b->stages);
                if (f == FCP_NONE && s < r->local_stage) r->local_stage = s;
            }
        }
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
    if (here->tiles && !b->where->phase) {
        place_anywhere(b, here);
        return;
    }
    const uint64_t share = (b->where->phase ? load_by_phase(b, here) : load_at_home(b, here)) / b->stages;
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

/* Which visit of a Q block is the rank's first, and which its last. The rank's visits are `first` to `end` - 1;
 * newest[q]: FCP_NONE, or any visit before `first`. */
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
static inline uint32_t list_tiles(const builder *b, const bench *here, uint32_t rank, keyed *todo, uint32_t *bucket,
                                  bool anywhere) {
    const bool divides = b->near_first && b->near_first[rank];
    schedule *out = b->out;
    uint32_t n = 0;
    for (uint32_t i = 0; i < here->count; i++) {
        const row *x = &here->rows[here->which[i]];
        bool early = is_early(b, here, x), each = anywhere && !b->where->phase;
        for (uint32_t j = x->first; j < x->end; j++) {
            uint32_t t = tile_at(here, j, anywhere), f = b->t->tile_kv[t];
            uint32_t stage = f == FCP_NONE && !each ? x->local_stage
                             : here->stage_of       ? here->stage_of[t]
                                                    : out->last_stage[f];
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

/* Memory for visits, and lists of tiles by rank where tiles run anywhere. */
static fcp_code open_visits(builder *b, bench *here, size_t rows) {
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
    if (!b->where->exec) return pace_tiles(b->x, out, b->stages, &here->stage_of);
    uint32_t *list = ARENA_NEW(b->scratch, uint32_t, tiles + (size_t)1);
    uint32_t *start = ARENA_NEW(b->scratch, uint32_t, ranks + (size_t)2);
    here->stage_of = ARENA_NEW(b->scratch, uint32_t, tiles + (size_t)1);
    out->visit_hop = ARENA_NEW(b->work, uint32_t, tiles + (size_t)1);
    out->home_first = ARENA_NEW(b->work, uint32_t, blocks);
    out->home_last = ARENA_ZNEW(b->work, uint32_t, blocks);
    if (!list || !start || !here->stage_of || !out->visit_hop || !out->home_first || !out->home_last)
        return FCP_E_NO_MEMORY;
    memset(out->home_first, 0xff, blocks * sizeof *out->home_first);
    if (!group_by(b->where->exec, sizeof *b->where->exec, tiles, ranks, start, list, b->x->stop))
        return FCP_E_INTERRUPTED;
    here->tiles = list;
    return FCP_OK;
}

/* The visits of ranks `first` to `end` - 1. */
typedef struct visiting {
    const builder *b;
    bench here;
    const uint32_t *start, *which; /* rows by rank */
    uint32_t *newest;              /* per Q block; FCP_NONE at first */
    uint32_t first, end, tiles;    /* tiles: of the rank with most */
    cursor from, at;               /* of these ranks' first visit and tile, and after their last */
} visiting;

static fcp_code visit_ranks(planning *x, void *given) {
    visiting *v = given;
    const builder *b = v->b;
    bench *here = &v->here;
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
        uint32_t n = here->tiles ? list_tiles(b, here, r, todo, bucket, true) : list_tiles(b, here, r, todo, bucket, false);
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

/* Sets up two shares of the ranks. Where all tiles run at home, ranks have no block and no hop in common, and each
 * share has about half of the tiles; else the second is empty. There are at most as many visits as tiles, so the number
 * of tiles before it is a free place for the second's first visit. */
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

/* Gives every tile its stage, sorts the tiles of each rank by stage, and makes the visits. */
static fcp_code visits(builder *b) {
    const problem *p = b->p;
    schedule *out = b->out;
    const uint32_t ranks = p->ranks, blocks = p->block_count;
    const size_t room = (b->where->exec ? p->tile_count : blocks) + (size_t)1;
    uint32_t *start = ARENA_NEW(b->scratch, uint32_t, ranks + (size_t)2);
    uint32_t *which = ARENA_NEW(b->scratch, uint32_t, room);
    uint32_t *newest = ARENA_NEW(b->scratch, uint32_t, blocks);
    bench here = {0};
    if (!start || !which || !newest) return FCP_E_NO_MEMORY;
    fcp_code code = open_visits(b, &here, room);
    if (code) return code;
    memset(newest, 0xff, blocks * sizeof *newest);
    uint32_t count = make_rows(b, &here);
    if (!group_by(&here.rows->rank, sizeof *here.rows, count, ranks, start, which, b->x->stop))
        return FCP_E_INTERRUPTED;
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

/* --- results ------------------------------------------------------------------------------------------------------ */

/* All run at home, or with phases: results leave as soon as they may, a forward's before that of the hop it passed
 * on. */
static fcp_code returns_at_once(builder *b, fcp_pass pass, uint32_t first, returns *back) {
    const traffic *t = b->t;
    uint32_t units = 0;
    for (uint32_t f = t->count; f-- > first;) {
        const hop *x = &t->hops[f];
        if (planning_stopped_at(b->x, f)) return FCP_E_INTERRUPTED;
        bool passed_on = x->whole && t->maker[x->block] != f;
        back->last[f] += passed_on ? 1 : b->out->after;
        if (back->start) {
            uint32_t count = return_units(b->p, x, traffic_return(x, pass));
            back->start[f] = units;
            for (uint32_t u = 0; u < count; u++) back->unit_stage[units++] = back->last[f];
            back->first[f] = back->last[f];
        }
        if (x->parent != FCP_NONE && back->last[f] > back->last[x->parent]) back->last[x->parent] = back->last[f];
    }
    return FCP_OK;
}

/* Decides when what is made of a block goes back along its hops. */
static fcp_code returns_of(builder *b, fcp_pass pass) {
    const traffic *t = b->t;
    schedule *out = b->out;
    returns *back = &out->back[pass];
    uint32_t first = pass == FCP_FORWARD ? t->keys : 0;
    size_t n = t->count + (size_t)1;
    back->last = ARENA_NEW(b->work, uint32_t, n);
    back->first = out->levelled ? ARENA_NEW(b->work, uint32_t, n) : back->last;
    back->start = out->levelled ? ARENA_NEW(b->work, uint32_t, n) : NULL;
    back->unit_stage = out->levelled ? ARENA_NEW(b->work, uint32_t, t->returned + 1) : NULL;
    if (!back->last || !back->first || (out->levelled && (!back->start || !back->unit_stage))) return FCP_E_NO_MEMORY;
    /* before it is a hop's turn: the last stage that adds to its result */
    for (uint32_t f = 0; f < t->count; f++) back->last[f] = f < first ? 0 : out->use_last[f];
    return out->levelled && !b->where->phase ? levels_returns(b->x, out, &b->levels, pass, first, back)
                                             : returns_at_once(b, pass, first, back);
}

/* When results are made: after the last tile, and the last partial that comes, of whoever makes them. */
static fcp_code find_finish(builder *b, fcp_pass pass) {
    const traffic *t = b->t;
    schedule *out = b->out;
    const uint32_t *arrived = out->back[pass].last, blocks = b->p->block_count;
    uint32_t *finish = out->finish[pass] = ARENA_NEW(b->work, uint32_t, blocks);
    if (!finish) return FCP_E_NO_MEMORY;
    for (uint32_t i = 0; i < blocks; i++)
        finish[i] = t->maker[i] == FCP_NONE ? out->home_last[i] : out->use_last[t->maker[i]];
    for (uint32_t f = t->keys; f < t->count; f++) {
        const hop *x = &t->hops[f];
        if (x->parent == t->maker[x->block] && arrived[f] > finish[x->block]) finish[x->block] = arrived[f];
    }
    return FCP_OK;
}

static fcp_code returns_on(planning *x, const builder *of, fcp_pass pass) {
    builder b = *of;
    b.x = x;
    b.work = &x->work;
    b.scratch = &x->scratch;
    fcp_code code = returns_of(&b, pass);
    return code || !x->placement->exec ? code : find_finish(&b, pass);
}
/* In the forward pass something goes back where tiles run away from home. */
static fcp_code returns_ahead(planning *x, void *given) {
    return x->placement->exec ? returns_on(x, given, FCP_FORWARD) : FCP_OK;
}
static fcp_code returns_back(planning *x, void *given) {
    return x->program->passes[FCP_BACKWARD] ? returns_on(x, given, FCP_BACKWARD) : FCP_OK;
}

/* What visits are the ends of, where several ranks compute a block: none of them is the last, and none the first where
 * a partial result from elsewhere came before. */
static fcp_code mark_partials(builder *b) {
    const traffic *t = b->t;
    schedule *out = b->out;
    const uint32_t *arrived = out->back[FCP_FORWARD].last, blocks = b->p->block_count;
    uint32_t *at_hop = ARENA_NEW(b->scratch, uint32_t, t->count + (size_t)1); /* the stage of the first partial there */
    uint32_t *at_home = ARENA_NEW(b->scratch, uint32_t, blocks);
    if (!at_hop || !at_home) return FCP_E_NO_MEMORY;
    memset(at_hop, 0xff, (t->count + (size_t)1) * sizeof *at_hop);
    memset(at_home, 0xff, blocks * sizeof *at_home);
    for (uint32_t f = t->keys; f < t->count; f++) {
        const hop *x = &t->hops[f];
        uint32_t *first = x->parent == FCP_NONE ? &at_home[x->block] : &at_hop[x->parent];
        if (arrived[f] < *first) *first = arrived[f];
    }
    for (uint32_t v = 0; v < out->visit_count; v++) {
        fcp_visit *w = &out->visits[v];
        uint32_t f = out->visit_hop[v];
        if (!traffic_is_shared(t, w->q_block)) continue;
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

fcp_code schedule_build(planning *x) {
    const problem *p = x->problem;
    const traffic *t = x->traffic;
    arena *work = &x->work;
    schedule *out = ARENA_ZNEW(work, schedule, 1);
    if (!out) return FCP_E_NO_MEMORY;
    builder b = {.x = x, .p = p, .where = x->placement, .t = t, .r = x->reshuffle, .coalesce = x->coalesce,
                 .work = work, .scratch = &x->scratch, .out = out};
    size_t n = t->count + (size_t)1, units = 0;
    out->levelled = x->placement->exec || x->program->pingpong || t->trees;
    out->after = x->program->buffers;
    if (out->levelled && !x->placement->phase && out->after > SOON) out->after = SOON;
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
    b.units = units;
    out->unit_round = ARENA_NEW(work, uint32_t, units + 1);
    if (!out->unit_round) return FCP_E_NO_MEMORY;

    fcp_code code = plan_arrivals(&b);
    if (!code) code = near_first(x, b.stages, &b.near_first);
    if (!code) code = visits(&b);
    if (!code) code = pair_make(x, units >= PAIR_FROM && x->placement->exec && p->program->passes[FCP_BACKWARD],
                                (pair_piece){returns_back, &b}, (pair_piece){returns_ahead, &b});
    if (!code && x->placement->exec) code = mark_partials(&b);
    if (code) return code;
    count_stages(&b);
    x->schedule = out;
    return FCP_OK;
}
