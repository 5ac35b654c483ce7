/* stages_by_phase.c: stages where heads are computed in phases.
 *
 * Requires: traffic; the phase of each range of heads (placement.phase).
 * Gives: when each block arrives, and when each tile runs.
 * Cost: linear in hops and tiles.
 *
 * All that a phase needs arrives in one stage or, where blocks are passed on, in one stage for each leg of the ways.
 * The next phase follows. Example: with two legs, phase 0 arrives in stages 1 and 2, and phase 1 in stages 3 and 4. So
 * each rank computes its heads of a phase in one stage, in which all ranks have equal work. The slots of a phase are
 * free for the phase that comes `buffers` stages later.
 */
#include "compiler/schedule/schedule_parts.h"

/* Finds the first stage of each phase. A phase takes one stage for each leg of its longest way, and begins when the
 * phase before it ends. leg_of: per hop, how many hops come before it on its way. NULL: no memory. */
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

/* All units of a hop travel in the stage of its leg. */
fcp_code phase_arrivals(builder *b) {
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

/* Gives stages to tiles: to each the first stage in which its Q and its KV are there. Tiles whose Q is at home run at
 * the earliest in the stage before their phase's first, beside the rounds that bring the phase. With placement.gather
 * all tiles of a row run in one stage, as soon as the last of them can. */
uint64_t phase_tiles(const builder *b, rank_rows *here) {
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
