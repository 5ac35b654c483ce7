/* result_stages.c: decides when results go back along the hops, and when they are made.
 *
 * Requires: visits, and the stages in which tiles use what each hop brings.
 * Gives: schedule.back and schedule.finish of each pass; and which visits are the first and the last of a row that
 *     several ranks compute.
 * Cost: linear in hops and visits; where results are given stages, that of stages_away.c.
 */
#include <string.h>

#include "compiler/planning/pair.h"
#include "compiler/schedule/schedule_parts.h"

/* Lets results leave as soon as they may: in plans whose tiles all run at home, and in plans with phases. Children come
 * before their parents, because a parent's result is complete when its children's have come. */
static fcp_code returns_at_once(builder *b, fcp_pass pass, uint32_t first, returns *back) {
    const traffic *t = b->t;
    uint32_t units = 0;
    for (uint32_t f = first; t->onward && f < t->count; f++) { /* a rank adds what comes from the one before it */
        const hop *x = &t->hops[f];
        if (planning_stopped_at(b->x, f)) return FCP_E_INTERRUPTED;
        if (x->bare) continue;
        back->last[f] += b->out->after;
        if (x->onto != FCP_NONE && back->last[f] > back->last[x->onto]) back->last[x->onto] = back->last[f];
    }
    for (uint32_t f = t->count; !t->onward && f-- > first;) {
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
    back->first = out->staged ? ARENA_NEW(b->work, uint32_t, n) : back->last;
    back->start = out->staged ? ARENA_NEW(b->work, uint32_t, n) : NULL;
    back->unit_stage = out->staged ? ARENA_NEW(b->work, uint32_t, t->returned + 1) : NULL;
    if (!back->last || !back->first || (out->staged && (!back->start || !back->unit_stage))) return FCP_E_NO_MEMORY;
    /* until a hop's result has its stages: the last stage that adds to it */
    for (uint32_t f = 0; f < t->count; f++) back->last[f] = f < first ? 0 : out->use_last[f];
    return out->staged && !b->where->phase ? away_results(b->x, out, &b->taken, pass, first, back)
                                           : returns_at_once(b, pass, first, back);
}

/* Finds the stage in which each result is made: that of the last tile of the rank that makes it, or of the last partial
 * result that comes to this rank. */
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
    builder b = builder_of(of, x);
    fcp_code code = returns_of(&b, pass);
    return code || !x->placement->exec ? code : find_finish(&b, pass);
}
/* In the forward pass only results of tiles that run away from home go back. */
static fcp_code returns_ahead(planning *x, void *given) {
    return x->placement->exec ? returns_on(x, given, FCP_FORWARD) : FCP_OK;
}
static fcp_code returns_back(planning *x, void *given) {
    return x->program->passes[FCP_BACKWARD] ? returns_on(x, given, FCP_BACKWARD) : FCP_OK;
}

/* Corrects the flags of visits to Q blocks that several ranks compute: no visit is the last, because the result is made
 * after it; and none is the first if a partial result from elsewhere came before it. */
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

fcp_code result_stages(builder *b) {
    const bool large = b->units >= PAIR_FROM && b->where->exec && b->p->program->passes[FCP_BACKWARD];
    fcp_code code = pair_make(b->x, large, (pair_piece){returns_back, b}, (pair_piece){returns_ahead, b});
    return code || !b->where->exec ? code : mark_partials(b);
}
