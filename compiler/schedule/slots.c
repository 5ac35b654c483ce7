/* slots.c: finds a place for everything that arrives or is added up.
 *
 * Requires: a schedule; it may lack the rounds of its passes.
 * Gives: for every transient block a slot that nothing else uses during its life. A rank has as many slots of a
 *     class as the largest number of lives that overlap. No assignment has fewer; taking lives in order of birth and
 *     giving each the lowest free slot reaches it.
 * Cost: linear in fetches, visits, and ranks * stages.
 *
 * Lives are in stages and half open: a slot may be taken at stage s by what is born at s, if its last tenant's end
 * is at most s.
 *   KV     begins in the stage in which its first unit arrives. The launch of stage s waits for the computing of stage
 *          s - buffers. So what tiles read last in stage u may be overwritten by launches of stage u + buffers. What is
 *          sent last in stage f may be overwritten by launches of f + 1, because a queue is in order.
 *   DKV    An accumulator lives from the first stage that adds to it until after the stage of its return. What lands
 *          lives from its arrival until it is reduced, in the same stage; + buffers is safe. Computing of stage s comes
 *          after the launches of stage s, so births by computing are no earlier than births by arrival.
 *   STATE  lives from a Q block's first visit until after its last.
 */
#include "compiler/schedule/slots.h"

#include <string.h>

#include "compiler/base/group.h"

typedef struct life {
    uint32_t rank, birth, end;
    uint32_t *slot; /* gets the number */
} life;

/* Lives in any order; count[rank] gets the peak. */
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
        uint32_t used = 0, now = 0, words = (rank_start[r] - at) / 64 + 1;
        if (planning_stopped_at(x, r * 16)) return FCP_E_INTERRUPTED;
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
                }
            uint32_t w = 0, slot;
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

static fcp_code kv_slots(planning *x, slots *out) {
    const traffic *t = x->traffic;
    const schedule *s = x->schedule;
    arena *scratch = &x->scratch;
    uint32_t buffers = x->program->buffers;
    life *lives = ARENA_NEW(scratch, life, t->count + (size_t)1);
    if (!lives) return FCP_E_NO_MEMORY;
    for (uint32_t f = 0; f < t->count; f++) {
        const fetch *of = &t->fetches[f];
        lives[f] = (life){of->dst, s->first_stage[f], s->use_first[f] == FCP_NONE ? 0 : s->use_last[f] + buffers,
                          &out->fetch[f].kv};
        if (of->parent != FCP_NONE) lives[of->parent].end = later(lives[of->parent].end, s->last_stage[f] + 1);
    }
    uint32_t stages = later(s->pass[FCP_FORWARD].stages, s->pass[FCP_BACKWARD].stages);
    return colour_lives(x, lives, t->count, stages, out->homes, out->kv_count);
}

static fcp_code dkv_slots(planning *x, slots *out) {
    const traffic *t = x->traffic;
    const schedule *s = x->schedule;
    arena *scratch = &x->scratch;
    uint32_t buffers = x->program->buffers;
    life *lives = ARENA_NEW(scratch, life, 2 * (size_t)t->count + 1);
    if (!lives) return FCP_E_NO_MEMORY;
    for (uint32_t f = 0; f < t->count; f++) {
        const fetch *of = &t->fetches[f];
        lives[f] = (life){of->dst, s->use_first[f], s->return_stage[f] + 1, &out->fetch[f].accumulator};
        lives[t->count + f] = (life){of->src, s->return_stage[f], s->return_stage[f] + buffers, &out->fetch[f].landing};
        if (of->parent != FCP_NONE && s->return_stage[f] < lives[of->parent].birth) /* FCP_NONE: no tile of its own */
            lives[of->parent].birth = s->return_stage[f];
    }
    return colour_lives(x, lives, 2 * t->count, s->pass[FCP_BACKWARD].stages, out->homes, out->dkv_count);
}

/* A block that a rank visits once needs no slot: its state stays with the visit. */
static bool is_whole(const fcp_visit *v) { return v->flags == (FCP_VISIT_FIRST | FCP_VISIT_LAST); }

static fcp_code state_slots(planning *x, slots *out) {
    const problem *p = x->problem;
    schedule *s = x->schedule;
    arena *scratch = &x->scratch;
    uint32_t stages = later(s->pass[FCP_FORWARD].stages, s->pass[FCP_BACKWARD].stages), n = 0;
    life *lives = ARENA_NEW(scratch, life, s->visit_count + (size_t)1);
    uint32_t *slot = ARENA_NEW(scratch, uint32_t, s->visit_count + (size_t)1);
    uint32_t *life_of = ARENA_NEW(scratch, uint32_t, s->visit_count + (size_t)1);
    uint32_t *newest = ARENA_NEW(scratch, uint32_t, p->block_count); /* per Q block: its life at the rank at hand */
    uint32_t *base = ARENA_ZNEW(scratch, uint32_t, p->ranks);
    if (!lives || !slot || !life_of || !newest || !base) return FCP_E_NO_MEMORY;
    for (uint32_t r = 0; r < p->ranks; r++)
        for (uint32_t v = s->rank_visit[r]; v < s->rank_visit[r + 1]; v++) {
            const fcp_visit *w = &s->visits[v];
            if (is_whole(w)) continue;
            if (w->flags & FCP_VISIT_FIRST) {
                newest[w->q_block] = n;
                lives[n] = (life){r, s->visit_stage[v], 0, &slot[n]};
                n++;
            }
            life_of[v] = newest[w->q_block];
            if (w->flags & FCP_VISIT_LAST) lives[life_of[v]].end = s->visit_stage[v] + 1;
        }
    fcp_code code = colour_lives(x, lives, n, stages, base, out->state_count);
    for (uint32_t v = 0; !code && v < s->visit_count; v++) {
        fcp_visit *w = &s->visits[v];
        w->q_slot = out->home_slot[w->q_block];
        w->o_slot = w->flags & FCP_VISIT_LAST ? w->q_slot : FCP_NONE;
        w->dq_slot = p->program->passes[FCP_BACKWARD] ? w->q_slot : FCP_NONE;
        if (!is_whole(&s->visits[v])) s->visits[v].state_slot = slot[life_of[v]];
    }
    return code;
}

fcp_code slots_build(planning *x) {
    const problem *p = x->problem;
    const uint32_t *home = x->placement->home;
    arena *work = &x->work;
    slots *out = ARENA_ZNEW(work, slots, 1);
    if (!out) return FCP_E_NO_MEMORY;
    out->home_slot = ARENA_NEW(work, uint32_t, p->block_count);
    out->homes = ARENA_ZNEW(work, uint32_t, p->ranks);
    for (int side = 0; side < FCP_SIDES; side++) out->home_tokens[side] = ARENA_ZNEW(work, uint64_t, p->ranks);
    out->fetch = ARENA_NEW(work, fetch_slots, x->traffic->count + (size_t)1);
    out->kv_count = ARENA_ZNEW(work, uint32_t, p->ranks);
    out->dkv_count = ARENA_ZNEW(work, uint32_t, p->ranks);
    out->state_count = ARENA_ZNEW(work, uint32_t, p->ranks);
    if (!out->home_slot || !out->homes || !out->home_tokens[FCP_QUERIES] || !out->home_tokens[FCP_KEYS] ||
        !out->fetch || !out->kv_count || !out->dkv_count || !out->state_count)
        return FCP_E_NO_MEMORY;
    for (uint32_t b = 0; b < p->block_count; b++) {
        out->home_slot[b] = out->homes[home[b]]++;
        for (int side = 0; side < FCP_SIDES; side++)
            if (problem_holds(p, b, (fcp_side)side)) out->home_tokens[side][home[b]] += p->blocks[b].tokens;
    }
    fcp_code code = kv_slots(x, out);
    if (!code && p->program->passes[FCP_BACKWARD]) code = dkv_slots(x, out);
    if (!code) code = state_slots(x, out);
    if (!code) x->slots = out;
    return code;
}
