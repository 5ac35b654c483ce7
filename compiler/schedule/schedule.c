/* schedule.c: decides in which stage each unit travels, each tile runs and each result goes back.
 *
 * slots.c then finds places for what arrives, and rounds.c makes the rounds of each pass.
 *
 * Requires: traffic, with at most one hop of KV and one of Q for each block and rank; which blocks the reshuffle moves.
 * Gives: the order of independent units; the stages in which forwards and results travel; for each tile a stage in
 *     which its Q and its KV are there; the order of execution, and the visits.
 * Cost: that of the colouring (colour.c) or of stages_away.c, then linear.
 *
 * A pass is a sequence of stages. What arrives in the rounds of stage s is computed in stage s or later, while the
 * rounds of later stages are under way. Stage 0 has no rounds: its tiles need nothing from other ranks. When something
 * may leave:
 *
 * - A block that a rank passes on: one stage after it came.
 * - A result that a rank makes: `buffers` stages after the last tile that added to it, because the launches of that
 *   stage wait for this tile anyway. (Where units are given stages one by one, at most RESULT_DELAY stages after it.)
 * - A whole result that a rank only passes on: one stage after it came.
 *
 * There are three ways to give stages to units, of which each plan uses one:
 *
 *   stages_home.c      All tiles run at the homes of their queries. Most units leave from home and depend on nothing.
 *                      They take exactly Delta rounds on each fabric, and `coalesce` rounds make a stage.
 *   stages_away.c      Tiles run elsewhere, or keys go along trees, or there are two halves. Then most units depend on
 *                      others, and each unit is given a stage by itself (schedule.staged).
 *   stages_by_phase.c  Heads are computed in phases. All that a phase needs arrives together.
 *
 * With pingpong, halves.c first divides what travels into two half batches, the second of which begins with a stage of
 * its own. visits.c then gives stages to tiles, and result_stages.c to what goes back.
 */
#include "compiler/schedule/schedule.h"

#include <string.h>

#include "compiler/planning/pair.h"
#include "compiler/schedule/schedule_parts.h"
#include "compiler/schedule/schedule_tuning.h"

/* With pingpong: says of each hop whether it is in the second half. Units that leave from home have no stage otherwise,
 * but here each unit waits for the stage of its half (hop.waits). Where work moves all units wait for stages anyway,
 * and the hops are not changed, because other plannings may share them. */
static fcp_code divide_in_halves(builder *b) {
    uint8_t *tiles = ARENA_NEW(b->scratch, uint8_t, b->p->tile_count + (size_t)1);
    b->out->second = ARENA_NEW(b->work, bool, b->t->count + (size_t)1);
    if (!tiles || !b->out->second) return FCP_E_NO_MEMORY;
    hop *hops = b->x->traffic->hops;
    for (uint32_t f = 0; !b->where->exec && f < b->t->count; f++) hops[f].waits = hops[f].parent == FCP_NONE;
    return halves_find(b->x, tiles, b->out->second);
}

/* Returns how many rounds a stage has if `rounds` rounds are to make `divisions` stages in all. One of these is stage
 * 0, which has no rounds. Example: 20 rounds and 6 divisions: 4 rounds in each of 5 stages. */
static uint32_t rounds_to_a_stage(uint32_t rounds, uint32_t divisions) {
    return rounds ? (rounds + divisions - 2) / (divisions - 1) : 1;
}

/* The stage in which the last block arrives. */
static uint32_t last_arrival(const builder *b) {
    uint32_t last = 0;
    for (uint32_t f = 0; f < b->t->count; f++)
        if (b->out->last_stage[f] > last) last = b->out->last_stage[f];
    return last;
}

/* Finds how many rounds make a stage if all tiles run at home, where the program does not say it. stated: how many
 * stages there are at most, unless a way has as many hops; 0: DIVISIONS_USUAL, and more for what is passed on after the
 * last of them. */
static fcp_code divide_home(builder *b, uint32_t stated) {
    const uint32_t *rounds = b->out->independent;
    const uint32_t most = rounds[FCP_NET] > rounds[FCP_LOCAL] ? rounds[FCP_NET] : rounds[FCP_LOCAL];
    b->coalesce = rounds_to_a_stage(most, stated ? stated : DIVISIONS_USUAL);
    fcp_code code = home_arrivals(b);
    while (!code && stated && b->coalesce < most && last_arrival(b) >= stated) {
        b->coalesce += 1 + b->coalesce / 8;
        code = home_arrivals(b);
    }
    b->x->coalesce = b->coalesce;
    return code;
}

/* In a ring a step is a stage. */
static fcp_code step_home(builder *b) {
    const uint32_t *rounds = b->out->independent;
    const uint32_t most = rounds[FCP_NET] > rounds[FCP_LOCAL] ? rounds[FCP_NET] : rounds[FCP_LOCAL];
    b->x->coalesce = b->coalesce = most ? most : 1;
    return home_arrivals(b);
}

/* Decides when each block arrives. If the program does not state `coalesce`, finds it from `divisions`. */
static fcp_code choose_arrivals(builder *b) {
    planning *x = b->x;
    schedule *out = b->out;
    const bool staged = out->staged && !b->where->phase, away = b->t->keys < b->t->count;
    const uint32_t stated = b->coalesce ? 0 : b->p->program->divisions;
    fcp_code code = x->program->pingpong ? divide_in_halves(b) : FCP_OK;
    if (out->staged && b->where->phase) {
        if (!code) code = phase_arrivals(b);
    } else if (out->staged && stated) {
        if (!code) code = away_divided(x, out, stated, &b->taken);
    } else if (out->staged) {
        if (!code && !x->coalesce) {
            code = away_busiest(x, &x->coalesce);
            x->coalesce = STAGE_PART * rounds_to_a_stage(x->coalesce, DIVISIONS_USUAL);
        }
        if (!code) code = away_arrivals(x, out, &b->taken);
    } else {
        if (!code) code = home_rounds(b);
        if (!code) code = b->coalesce ? home_arrivals(b) : b->where->around ? step_home(b) : divide_home(b, stated);
    }
    if (code) return code;
    b->arrivals = b->stages = last_arrival(b) + 1;
    if (staged && stated) {
        if (away && b->stages < stated) b->stages = stated;
    } else if (out->staged && away) {
        b->stages += b->where->phase ? b->p->program->buffers : STAGES_AFTER_ARRIVALS;
    }
    return b->stages > FCP_MAX_STAGES / 4 ? FCP_E_PLAN_SIZE : FCP_OK;
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
    out->staged = x->placement->exec || x->program->pingpong || t->trees;
    out->after = t->around ? 1 : x->program->buffers;
    if (out->staged && !x->placement->phase && out->after > RESULT_DELAY) out->after = RESULT_DELAY;
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
        if (out->staged || hop_is_independent(&t->hops[f])) units += t->hops[f].units;
    }
    b.units = units;
    out->unit_round = ARENA_NEW(work, uint32_t, units + 1);
    if (!out->unit_round) return FCP_E_NO_MEMORY;

    fcp_code code = choose_arrivals(&b);
    if (!code) code = near_first(x, b.stages, &b.near_first);
    if (!code) code = make_visits(&b);
    if (!code) code = result_stages(&b);
    if (code) return code;
    count_stages(&b);
    x->schedule = out;
    return FCP_OK;
}
