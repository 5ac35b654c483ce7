/* slots.c: gives a place in a rank's memory to everything that arrives there or is added up there.
 *
 * Requires: a schedule; it may lack the rounds of its passes.
 * Gives: for every transient block a slot that nothing else uses during its life. A rank has as many slots of a class
 *     as lives of that class overlap at most; no assignment has fewer.
 * Cost: linear in hops, visits, and ranks * stages.
 *
 * This is interval colouring: lives are taken in order of birth, and each gets the lowest free slot. A life is a range
 * of stages, from its birth to the stage before its end. What is born in stage s may take a slot whose last life ended
 * at s or before. Two rules say when a life ends:
 *
 * - What is read last in stage u may be overwritten by launches of stage u + buffers, because the launches of stage s
 *   wait for the computing of stage s - buffers. Example: with two buffers, KV that comes in stage 3 and is read last
 *   in stage 5 lives from 3 to 6, and its slot is free from stage 7 on.
 * - What is sent last in stage f may be overwritten by launches of stage f + 1, because a queue is in order.
 *
 * The classes of slots (runtime/plan/FORMAT.md has them all), and how long a block of each lives:
 *
 *   KV, Q  lives from the stage in which its first unit arrives until it has been read and sent for the last time.
 *   DKV,   An accumulator lives from the first stage that adds to it until after the stage in which its last unit
 *   DQ     leaves, or until ROUND empties it. A gradient that is received lives from the arrival of its first unit
 *          until `buffers` stages after its last unit, in whose stage it is added. (The computing of a stage comes
 *          after its launches, so what computing makes never needs a slot earlier than what arrives in the same stage.)
 *   STATE  lives from a Q block's first visit, or from the first partial that is merged. If one rank computes the
 *          block, it lives until after the last visit. If several do, it lives until FINISH has made the result at the
 *          rank that merges, and until its last unit has left at the others. A received state lives as a received
 *          gradient does.
 *   O, DQW lives from the last visit, from FINISH or ROUND, or from the arrival at a rank that passes it on, until its
 *          last unit has left.
 *
 * Slots of STATE and DQ that computing empties in stage u are free from u + buffers on at ranks that receive partials
 * of Q blocks. At other ranks only computing takes such slots, so they are free from u + 1 on.
 *
 * With phases, what leaves in a stage has left before that stage computes. Therefore O, DQW, DKV and DQ end a stage
 * earlier there, so that a phase's results take the place of the results of the phase before.
 */
#include "compiler/schedule/slots.h"

#include <string.h>

#include "compiler/base/group.h"
#include "compiler/planning/pair.h"

typedef struct life {
    uint32_t rank, birth, end; /* stages */
    uint32_t *slot;            /* gets the slot */
} life;

/* Gives slots to lives, which come in any order. base[rank]: the first number; count[rank] gets how many slots it
 * takes. */
static fcp_code colour_lives(planning *x, const life *lives, uint32_t n, uint32_t stages, const uint32_t *base,
                             uint32_t *count) {
    uint32_t ranks = x->problem->ranks;
    arena *scratch = &x->scratch;
    uint32_t *by_birth = ARENA_NEW(scratch, uint32_t, n + (size_t)1);
    uint32_t *sorted = ARENA_NEW(scratch, uint32_t, n + (size_t)1), *next = ARENA_NEW(scratch, uint32_t, n + (size_t)1);
    uint32_t *start = ARENA_NEW(scratch, uint32_t, stages + (size_t)3);
    uint32_t *rank_start = ARENA_ZNEW(scratch, uint32_t, ranks + (size_t)2);
    uint32_t *ends = ARENA_NEW(scratch, uint32_t, stages + (size_t)2);
    uint64_t *room = ARENA_NEW(scratch, uint64_t, n / 64 + 2);
    if (!by_birth || !sorted || !start || !rank_start || !ends || !next || !room) return FCP_E_NO_MEMORY;
    /* by rank, and those of a rank by birth: grouped by birth first, for the second grouping keeps that order */
    if (!group_by(&lives->birth, sizeof *lives, n, stages + 1, start, by_birth, x->stop)) return FCP_E_INTERRUPTED;
    for (uint32_t i = 0; i < n; i++) rank_start[lives[i].rank + 1]++;
    group_starts(rank_start, ranks);
    for (uint32_t i = 0; i < n; i++) {
        if (!(i & 0xfffff) && planning_stopped(x)) return FCP_E_INTERRUPTED;
        sorted[rank_start[lives[by_birth[i]].rank]++] = by_birth[i];
    }
    for (uint32_t r = 0, at = 0; r < ranks; r++) { /* rank_start[r] is now the end of rank r */
        uint32_t used = 0, now = 0, words = (rank_start[r] - at) / 64 + 1, w = 0; /* no word before w has room */
        if (planning_stopped_at(x, (uint64_t)r * 16)) return FCP_E_INTERRUPTED;
        if (at == rank_start[r]) {
            count[r] = 0;
            continue;
        }
        memset(ends, 0xff, (stages + (size_t)2) * sizeof *ends);
        memset(room, 0, words * sizeof *room);
        for (; at < rank_start[r]; at++) {
            const life *l = &lives[sorted[at]];
            for (; now <= l->birth; now++) /* free what has ended by then */
                for (uint32_t i = ends[now]; i != FCP_NONE; i = next[i]) {
                    uint32_t slot = *lives[i].slot - base[r];
                    room[slot / 64] |= UINT64_C(1) << slot % 64;
                    if (slot / 64 < w) w = slot / 64;
                }
            uint32_t slot;
            while (w < words && !room[w]) w++;
            if (w < words) {
                slot = w * 64 + (uint32_t)__builtin_ctzll(room[w]);
                room[w] &= room[w] - 1;
            } else {
                slot = used++;
            }
            *l->slot = base[r] + slot;
            uint32_t end = l->end <= stages ? l->end : stages + 1;
            next[sorted[at]] = ends[end];
            ends[end] = sorted[at];
        }
        count[r] = used;
    }
    return FCP_OK;
}

static uint32_t later(uint32_t a, uint32_t b) { return a > b ? a : b; }
static uint32_t sooner(uint32_t a, uint32_t b) { return a < b ? a : b; }

typedef struct builder {
    planning *x;
    const problem *p;
    const traffic *t;
    const schedule *s;
    slots *out;
    const uint32_t *none; /* per rank: 0 */
    bool *lands;          /* per rank: partial results of Q blocks are received there; NULL: nowhere */
    uint32_t buffers, stages;
} builder;

/* Returns the stage from which on a slot of STATE or DQ is free again, if computing needs it last in `stage`. */
static uint32_t free_after(const builder *b, uint32_t rank, uint32_t stage) {
    return stage + (b->lands && b->lands[rank] ? b->buffers : 1);
}

/* Slots of received blocks of class cls (KV or Q), which hops `first` to `end` - 1 bring. */
static fcp_code held_slots(const builder *b, fcp_class cls, uint32_t first, uint32_t end) {
    const schedule *s = b->s;
    life *lives = ARENA_NEW(&b->x->scratch, life, end - first + (size_t)1);
    if (!lives) return FCP_E_NO_MEMORY;
    for (uint32_t f = first; f < end; f++) {
        const hop *of = &b->t->hops[f];
        lives[f - first] = (life){of->dst, s->first_stage[f],
                                  s->use_first[f] == FCP_NONE ? 0 : s->use_last[f] + b->buffers, &b->out->held[f]};
        if (of->parent != FCP_NONE)
            lives[of->parent - first].end = later(lives[of->parent - first].end, s->last_stage[f] + 1);
    }
    return colour_lives(b->x, lives, end - first, b->stages, b->out->homes, b->out->count[cls]);
}

/* Does hop f lead to the rank that makes the result of its block? */
static inline bool leads_to_maker(const builder *b, uint32_t f) {
    return b->t->hops[f].whole && b->t->maker[b->t->hops[f].block] == f;
}

/* May computing put a new result into the slot of one that leaves in the same stage? Only where heads are computed in
 * phases, because there computing waits for what leaves in its own stage (lower/streams.c). And only if no result of
 * hops `first` to `end` - 1 is passed on by another rank: if one is, a result may be received into that slot in this
 * stage. */
static bool leaves_before(const builder *b, uint32_t first, uint32_t end) {
    if (!b->x->placement->phase) return false;
    for (uint32_t f = first; f < end; f++)
        if (b->t->hops[f].parent != FCP_NONE) return false;
    return true;
}

/* Gives slots to n lives: the first `made` of them begin by computing, the others by arrival. apart: the two kinds
 * share no slots, because something might arrive in the very stage in which the slot's content leaves. */
static fcp_code colour_sums(const builder *b, const life *lives, uint32_t made, uint32_t n, bool apart,
                            uint32_t *count) {
    if (!apart) return colour_lives(b->x, lives, n, b->stages, b->out->homes, count);
    const uint32_t ranks = b->x->problem->ranks;
    uint32_t *base = ARENA_NEW(&b->x->scratch, uint32_t, ranks), *landing = ARENA_NEW(&b->x->scratch, uint32_t, ranks);
    if (!base || !landing) return FCP_E_NO_MEMORY;
    fcp_code code = colour_lives(b->x, lives, made, b->stages, b->out->homes, count);
    for (uint32_t r = 0; !code && r < ranks; r++) base[r] = b->out->homes[r] + count[r];
    if (!code) code = colour_lives(b->x, lives + made, n - made, b->stages, base, landing);
    for (uint32_t r = 0; !code && r < ranks; r++) count[r] += landing[r];
    return code;
}

/* Slots of DKV or DQ of hops `first` to `end` - 1: of the accumulators, and of what is received to be added. */
static fcp_code sum_slots(const builder *b, fcp_class cls, uint32_t first, uint32_t end) {
    const schedule *s = b->s;
    const returns *back = &s->back[FCP_BACKWARD];
    back_slots *places = &b->out->back[FCP_BACKWARD];
    size_t room = 2 * (size_t)(end - first) + 1;
    life *lives = ARENA_NEW(&b->x->scratch, life, room);
    const bool some = cls == FCP_DQ || b->t->onward;                             /* not all hops have a life */
    uint32_t *life_of = some ? ARENA_NEW(&b->x->scratch, uint32_t, room) : NULL; /* per hop; else hop f has life f */
    uint32_t n = 0, made, kept = leaves_before(b, first, end) ? 0 : 1;
    if (!lives || (some && !life_of)) return FCP_E_NO_MEMORY;
    for (uint32_t f = first; f < end; f++) {
        const hop *of = &b->t->hops[f];
        if (of->bare) continue;
        if (life_of) life_of[f - first] = n;
        if (leads_to_maker(b, f))
            lives[n++] = (life){of->dst, s->use_first[f],
                                free_after(b, of->dst, s->finish[FCP_BACKWARD][of->block]), &b->out->sum_dq[of->block]};
        if (of->whole) continue;
        lives[n++] = (life){of->dst, s->use_first[f], back->last[f] + kept, &places->from[f]};
    }
    made = n;
    for (uint32_t f = first; f < end; f++) {
        const hop *of = &b->t->hops[f];
        if (of->whole || of->bare) continue;
        lives[n++] = (life){of->to, back->first[f], back->last[f] + b->buffers, &places->to[f]};
        if (of->onto == FCP_NONE) continue;
        life *into = &lives[life_of ? life_of[of->onto - first] : of->onto - first];
        into->birth = sooner(into->birth, back->last[f]); /* FCP_NONE: no tile of its own */
    }
    return colour_sums(b, lives, made, n, !kept, b->out->count[cls]);
}

/* Gives slots to O or DQW that is made away from home: at the rank that makes it and at ranks that pass it on. When it
 * has come home, it lies in the block's home slot. */
static fcp_code whole_slots(const builder *b, fcp_class cls, fcp_pass pass) {
    const schedule *s = b->s;
    const returns *back = &s->back[pass];
    back_slots *places = &b->out->back[pass];
    uint32_t first = b->t->keys, n = 0, *life_of, kept = leaves_before(b, first, b->t->count) ? 0 : 1;
    life *lives = ARENA_NEW(&b->x->scratch, life, b->t->count - first + (size_t)1);
    life_of = ARENA_NEW(&b->x->scratch, uint32_t, b->t->count - first + (size_t)1);
    if (!lives || !life_of) return FCP_E_NO_MEMORY;
    for (uint32_t f = first; f < b->t->count; f++) {
        const hop *of = &b->t->hops[f];
        if (!of->whole) continue;
        life_of[f - first] = n;
        lives[n++] = (life){of->dst, leads_to_maker(b, f) ? s->finish[pass][of->block] : FCP_NONE,
                            back->last[f] + kept, &places->from[f]};
        if (of->parent != FCP_NONE) lives[life_of[of->parent - first]].birth = back->first[f];
    }
    fcp_code code = colour_lives(b->x, lives, n, b->stages, b->out->homes, b->out->count[cls]);
    for (uint32_t f = first; !code && f < b->t->count; f++) {
        const hop *of = &b->t->hops[f];
        if (!of->whole) continue;
        places->to[f] = of->parent == FCP_NONE ? b->out->home_slot[of->block] : places->from[of->parent];
    }
    return code;
}

/* Lists the lives of STATE where several ranks compute a block: those of partial results on their way, and those of the
 * ranks that merge them into a result. Returns how many there are. */
static uint32_t partial_states(const builder *b, life *lives) {
    const traffic *t = b->t;
    const schedule *s = b->s;
    const returns *back = &s->back[FCP_FORWARD];
    back_slots *places = &b->out->back[FCP_FORWARD];
    uint32_t n = 0, hops = t->count - t->keys, *sum = b->out->sum_state;
    for (uint32_t f = t->keys; f < t->count; f++) /* life i is of hop keys + i, even if that has none */
        lives[n++] = (life){t->hops[f].dst, s->use_first[f], back->last[f] + 1, &places->from[f]};
    for (uint32_t i = 0; i < b->p->block_count; i++) {
        const uint32_t maker = t->maker[i];
        if (!traffic_is_shared(t, i)) continue;
        sum[i] = n;
        lives[n++] = (life){maker == FCP_NONE ? b->x->placement->home[i] : t->hops[maker].dst,
                            maker == FCP_NONE ? s->home_first[i] : s->use_first[maker],
                            s->finish[FCP_FORWARD][i] + b->buffers, &sum[i]};
    }
    for (uint32_t f = t->keys; f < t->count; f++) {
        const hop *of = &t->hops[f];
        if (of->whole) continue;
        life *into = &lives[of->parent == t->maker[of->block] ? sum[of->block] : of->parent - t->keys];
        into->birth = sooner(into->birth, back->last[f]);
        lives[n++] = (life){of->src, back->first[f], back->last[f] + b->buffers, &places->to[f]};
    }
    uint32_t kept = 0; /* no state goes where results do */
    for (uint32_t i = 0; i < n; i++)
        if (i >= hops || !t->hops[t->keys + i].whole) lives[kept++] = lives[i];
    return kept;
}

/* Is this the only visit of its block at the rank? Then the running state stays inside the visit, and needs no slot. */
static bool is_only_visit(const fcp_visit *v) { return v->flags == (FCP_VISIT_FIRST | FCP_VISIT_LAST); }

static fcp_code state_slots(const builder *b) {
    const traffic *t = b->t;
    const schedule *s = b->s;
    arena *scratch = &b->x->scratch;
    size_t room = s->visit_count + (t->tile_q ? 2 * (size_t)(t->count - t->keys) + b->p->block_count : 0) + 1;
    life *lives = ARENA_NEW(scratch, life, room);
    uint32_t *slot = ARENA_NEW(scratch, uint32_t, s->visit_count + (size_t)1);
    uint32_t *life_of = ARENA_NEW(scratch, uint32_t, s->visit_count + (size_t)1);
    uint32_t *newest = ARENA_NEW(scratch, uint32_t, b->p->block_count); /* per Q block: its life at the rank at hand */
    if (!lives || !slot || !life_of || !newest) return FCP_E_NO_MEMORY;
    uint32_t n = t->tile_q ? partial_states(b, lives) : 0;
    for (uint32_t r = 0; r < b->p->ranks; r++)
        for (uint32_t v = s->rank_visit[r]; v < s->rank_visit[r + 1]; v++) {
            const fcp_visit *w = &s->visits[v];
            if (is_only_visit(w) || traffic_is_shared(t, w->q_block)) continue;
            if (w->flags & FCP_VISIT_FIRST) {
                newest[w->q_block] = n;
                lives[n++] = (life){r, s->visit_stage[v], 0, &slot[v]};
            }
            life_of[v] = newest[w->q_block];
            if (w->flags & FCP_VISIT_LAST) lives[life_of[v]].end = free_after(b, r, s->visit_stage[v]);
        }
    fcp_code code = colour_lives(b->x, lives, n, b->stages, b->none, b->out->count[FCP_STATE]);
    for (uint32_t v = 0; !code && v < s->visit_count; v++) {
        fcp_visit *w = &s->visits[v];
        if (traffic_is_shared(t, w->q_block))
            w->state_slot = s->visit_hop[v] == t->maker[w->q_block] ? b->out->sum_state[w->q_block]
                                                                    : b->out->back[FCP_FORWARD].from[s->visit_hop[v]];
        else if (!is_only_visit(w))
            w->state_slot = *lives[life_of[v]].slot;
    }
    return code;
}

/* Fills in which slots of Q, O and DQ each visit uses. */
static void name_visit_slots(const builder *b) {
    const schedule *s = b->s;
    const slots *out = b->out;
    bool backward = b->p->program->passes[FCP_BACKWARD];
    for (uint32_t v = 0; v < s->visit_count; v++) {
        fcp_visit *w = &s->visits[v];
        uint32_t f = s->visit_hop ? s->visit_hop[v] : FCP_NONE, home = out->home_slot[w->q_block];
        w->q_slot = f == FCP_NONE ? home : out->held[f];
        w->o_slot = !(w->flags & FCP_VISIT_LAST) ? FCP_NONE : f == FCP_NONE ? home : out->back[FCP_FORWARD].from[f];
        w->dq_slot = !backward             ? FCP_NONE
                     : f == FCP_NONE       ? home
                     : leads_to_maker(b, f) ? out->sum_dq[w->q_block]
                                            : out->back[FCP_BACKWARD].from[f];
    }
}

static fcp_code open_slots(planning *x, slots *out) {
    const problem *p = x->problem;
    const uint32_t *home = x->placement->home;
    const size_t hops = x->traffic->count + (size_t)1;
    arena *work = &x->work;
    out->home_slot = ARENA_NEW(work, uint32_t, p->block_count);
    out->homes = ARENA_ZNEW(work, uint32_t, p->ranks);
    out->held = ARENA_NEW(work, uint32_t, hops);
    if (!out->home_slot || !out->homes || !out->held) return FCP_E_NO_MEMORY;
    for (int side = 0; side < FCP_SIDES; side++)
        if (!(out->home_tokens[side] = ARENA_ZNEW(work, uint64_t, p->ranks))) return FCP_E_NO_MEMORY;
    for (int cls = 0; cls < FCP_CLASSES; cls++)
        if (!(out->count[cls] = ARENA_ZNEW(work, uint32_t, p->ranks))) return FCP_E_NO_MEMORY;
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        if (pass == FCP_FORWARD ? !x->traffic->tile_q : !p->program->passes[pass]) continue;
        out->back[pass].from = ARENA_NEW(work, uint32_t, hops);
        out->back[pass].to = ARENA_NEW(work, uint32_t, hops);
        if (!out->back[pass].from || !out->back[pass].to) return FCP_E_NO_MEMORY;
    }
    if (x->traffic->tile_q) {
        out->sum_dq = ARENA_NEW(work, uint32_t, p->block_count);
        out->sum_state = ARENA_NEW(work, uint32_t, p->block_count);
        if (!out->sum_dq || !out->sum_state) return FCP_E_NO_MEMORY;
    }
    for (uint32_t b = 0; b < p->block_count; b++) {
        out->home_slot[b] = out->homes[home[b]]++;
        for (int side = 0; side < FCP_SIDES; side++)
            if (problem_holds(p, b, (fcp_side)side)) out->home_tokens[side][home[b]] += p->blocks[b].tokens;
    }
    return FCP_OK;
}

/* Slots of what both passes receive, and of the results of the forward pass. */
static fcp_code slots_ahead(planning *x, void *given) {
    builder b = *(const builder *)given;
    const traffic *t = b.t;
    b.x = x;
    fcp_code code = held_slots(&b, FCP_KV, 0, t->keys);
    if (!code && t->tile_q) code = held_slots(&b, FCP_Q, t->keys, t->count);
    if (!code) code = state_slots(&b);
    if (!code && t->tile_q) code = whole_slots(&b, FCP_O, FCP_FORWARD);
    return code;
}

/* Slots of the gradients. */
static fcp_code slots_back(planning *x, void *given) {
    builder b = *(const builder *)given;
    const traffic *t = b.t;
    b.x = x;
    if (!b.p->program->passes[FCP_BACKWARD]) return FCP_OK;
    fcp_code code = sum_slots(&b, FCP_DKV, 0, t->keys);
    if (!code && t->tile_q) code = sum_slots(&b, FCP_DQ, t->keys, t->count);
    if (!code && t->tile_q) code = whole_slots(&b, FCP_DQW, FCP_BACKWARD);
    return code;
}

fcp_code slots_build(planning *x) {
    const problem *p = x->problem;
    const traffic *t = x->traffic;
    const schedule *s = x->schedule;
    slots *out = ARENA_ZNEW(&x->work, slots, 1);
    if (!out) return FCP_E_NO_MEMORY;
    fcp_code code = open_slots(x, out);
    if (code) return code;
    builder b = {.x = x, .p = p, .t = t, .s = s, .out = out, .buffers = p->program->buffers,
                 .stages = later(s->pass[FCP_FORWARD].stages, s->pass[FCP_BACKWARD].stages),
                 .none = ARENA_ZNEW(&x->scratch, uint32_t, p->ranks)};
    if (t->tile_q) b.lands = ARENA_ZNEW(&x->scratch, bool, p->ranks);
    if (!b.none || (t->tile_q && !b.lands)) return FCP_E_NO_MEMORY;
    for (uint32_t f = t->keys; f < t->count; f++)
        if (!t->hops[f].whole) b.lands[t->hops[f].src] = true;
    const bool large = t->units >= PAIR_FROM && p->program->passes[FCP_BACKWARD];
    if ((code = pair_make(x, large, (pair_piece){slots_back, &b}, (pair_piece){slots_ahead, &b}))) return code;
    name_visit_slots(&b);
    x->slots = out;
    return FCP_OK;
}
