/* slots.c: lifetimes to slots.
 *
 * requires  a schedule, but for the rounds of its passes.
 * gives     for every transient block a slot that nothing else uses during its life; as many slots per rank and class
 *           as the largest number of lives that overlap: colouring intervals greedily by birth is optimal.
 *
 * Lives, in stages, half open; a slot may be taken at stage s by what is born at s >= the end of its last tenant.
 *   KV     from the stage in which its first unit arrives. The launch of stage s waits for the computing of stage
 *          s - buffers, so what tiles read last in stage u may be overwritten by launches of stage u + buffers; what is
 *          sent last in stage f, by those of f + 1 (a queue is in order).
 *   DKV    an accumulator from the first stage that adds to it until after the stage of its return; what lands, from
 *          its arrival until its REDUCE, in the same stage, is safe: + buffers. Computing of stage s comes after the
 *          launches of stage s, so births by computing are no earlier than births by arrival.
 *   STATE  from a Q block's first visit until after its last.
 */
#include "compiler/schedule/slots.h"

#include <string.h>

typedef struct life {
    uint32_t rank, birth, end;
    uint32_t *slot; /* gets the number */
} life;

/* Lives in any order; count[rank] gets the peak. */
static fcp_code colour_lives(const life *lives, size_t n, uint32_t ranks, uint32_t stages, const uint32_t *base,
                             uint32_t *count, arena *scratch) {
    uint32_t *by_birth = ARENA_NEW(scratch, uint32_t, n + 1), *sorted = ARENA_NEW(scratch, uint32_t, n + 1);
    uint32_t *start = ARENA_ZNEW(scratch, uint32_t, stages + (size_t)2);
    uint32_t *rank_start = ARENA_ZNEW(scratch, uint32_t, ranks + (size_t)2);
    uint32_t *ends = ARENA_NEW(scratch, uint32_t, stages + (size_t)2), *next = ARENA_NEW(scratch, uint32_t, n + 1);
    uint64_t *room = ARENA_NEW(scratch, uint64_t, n / 64 + 2);
    if (!by_birth || !sorted || !start || !rank_start || !ends || !next || !room) return FCP_E_NO_MEMORY;
    for (size_t i = 0; i < n; i++) start[lives[i].birth + 1]++, rank_start[lives[i].rank + 1]++;
    for (uint32_t s = 0; s <= stages; s++) start[s + 1] += start[s];
    for (uint32_t r = 0; r < ranks; r++) rank_start[r + 1] += rank_start[r];
    for (size_t i = 0; i < n; i++) by_birth[start[lives[i].birth]++] = (uint32_t)i;
    for (size_t i = 0; i < n; i++) sorted[rank_start[lives[by_birth[i]].rank]++] = by_birth[i];
    for (uint32_t r = 0, at = 0; r < ranks; r++) { /* rank_start[r] is now the end of rank r */
        uint32_t used = 0, now = 0, words = (rank_start[r] - at) / 64 + 1;
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

static fcp_code kv_slots(const problem *p, const traffic *t, const schedule *s, arena *scratch, slots *out) {
    uint32_t buffers = p->program->buffers;
    life *lives = ARENA_NEW(scratch, life, t->count + (size_t)1);
    if (!lives) return FCP_E_NO_MEMORY;
    for (uint32_t f = 0; f < t->count; f++) {
        const fetch *x = &t->fetches[f];
        lives[f] = (life){x->dst, s->first_stage[f], s->use_first[f] == FCP_NONE ? 0 : s->use_last[f] + buffers,
                          &out->fetch[f].kv};
        if (x->parent != FCP_NONE) lives[x->parent].end = later(lives[x->parent].end, s->last_stage[f] + 1);
    }
    return colour_lives(lives, t->count, p->ranks, later(s->pass[FCP_FORWARD].stages, s->pass[FCP_BACKWARD].stages),
                        out->homes, out->kv_count, scratch);
}

static fcp_code dkv_slots(const problem *p, const traffic *t, const schedule *s, arena *scratch, slots *out) {
    uint32_t buffers = p->program->buffers;
    life *lives = ARENA_NEW(scratch, life, 2 * (size_t)t->count + 1);
    if (!lives) return FCP_E_NO_MEMORY;
    for (uint32_t f = 0; f < t->count; f++) {
        const fetch *x = &t->fetches[f];
        lives[f] = (life){x->dst, s->use_first[f], s->return_stage[f] + 1, &out->fetch[f].accumulator};
        lives[t->count + f] = (life){x->src, s->return_stage[f], s->return_stage[f] + buffers, &out->fetch[f].landing};
        if (x->parent != FCP_NONE && s->return_stage[f] < lives[x->parent].birth) /* FCP_NONE: no tile of its own */
            lives[x->parent].birth = s->return_stage[f];
    }
    return colour_lives(lives, 2 * (size_t)t->count, p->ranks, s->pass[FCP_BACKWARD].stages, out->homes, out->dkv_count,
                        scratch);
}

static fcp_code state_slots(const problem *p, schedule *s, arena *scratch, slots *out) {
    uint32_t stages = later(s->pass[FCP_FORWARD].stages, s->pass[FCP_BACKWARD].stages), n = 0;
    life *lives = ARENA_NEW(scratch, life, p->block_count);
    uint32_t *slot = ARENA_NEW(scratch, uint32_t, p->block_count), *base = ARENA_ZNEW(scratch, uint32_t, p->ranks);
    uint32_t *life_of = ARENA_NEW(scratch, uint32_t, p->block_count);
    if (!lives || !slot || !base || !life_of) return FCP_E_NO_MEMORY;
    for (uint32_t r = 0; r < p->ranks; r++)
        for (uint32_t v = s->rank_visit[r]; v < s->rank_visit[r + 1]; v++) {
            const fcp_visit *x = &s->visits[v];
            if (x->flags == (FCP_VISIT_FIRST | FCP_VISIT_LAST)) continue;
            if (x->flags & FCP_VISIT_FIRST) {
                life_of[x->q_block] = n;
                lives[n] = (life){r, s->visit_stage[v], 0, &slot[n]};
                n++;
            }
            if (x->flags & FCP_VISIT_LAST) lives[life_of[x->q_block]].end = s->visit_stage[v] + 1;
        }
    fcp_code code = colour_lives(lives, n, p->ranks, stages, base, out->state_count, scratch);
    for (uint32_t v = 0; v < s->visit_count; v++) s->visits[v].q_slot = out->home_slot[s->visits[v].q_block];
    for (uint32_t v = 0; !code && v < s->visit_count; v++)
        if (s->visits[v].flags != (FCP_VISIT_FIRST | FCP_VISIT_LAST))
            s->visits[v].state_slot = slot[life_of[s->visits[v].q_block]];
    return code;
}

fcp_code slots_build(const problem *p, const uint32_t *home, const traffic *t, schedule *s, arena *memory,
                     arena *scratch, slots *out) {
    size_t n = t->count + (size_t)1;
    bool backward = p->program->passes[FCP_BACKWARD];
    *out = (slots){0};
    out->home_slot = ARENA_NEW(memory, uint32_t, p->block_count);
    out->homes = ARENA_ZNEW(memory, uint32_t, p->ranks);
    for (int side = 0; side < FCP_SIDES; side++) out->home_tokens[side] = ARENA_ZNEW(memory, uint64_t, p->ranks);
    out->fetch = ARENA_NEW(memory, fetch_slots, n);
    out->kv_count = ARENA_ZNEW(memory, uint32_t, p->ranks);
    out->dkv_count = ARENA_ZNEW(memory, uint32_t, p->ranks);
    out->state_count = ARENA_ZNEW(memory, uint32_t, p->ranks);
    if (!out->home_slot || !out->homes || !out->home_tokens[FCP_QUERIES] || !out->home_tokens[FCP_KEYS] ||
        !out->fetch || !out->kv_count || !out->dkv_count || !out->state_count)
        return FCP_E_NO_MEMORY;
    for (uint32_t b = 0; b < p->block_count; b++) {
        out->home_slot[b] = out->homes[home[b]]++;
        for (int side = 0; side < FCP_SIDES; side++)
            if (p->blocks[b].holds >> side & 1) out->home_tokens[side][home[b]] += p->blocks[b].tokens;
    }
    fcp_code code = kv_slots(p, t, s, scratch, out);
    if (!code && backward) code = dkv_slots(p, t, s, scratch, out);
    if (!code) code = state_slots(p, s, scratch, out);
    return code;
}
