/* budget.c: how much work trying candidates may be, and when it ends.
 *
 * Requires: the lengths of the batch, and the outcome of earlier candidates.
 * Gives: an estimate of the work of a candidate before it is planned; its work, counted, once it has been.
 * Cost: O(sequences) for an estimate.
 *
 * Work is counted, and no clock is read. So the same program ends at the same candidate on every machine, and with any
 * number of threads. The unit is a nanosecond of one processor, as of the estimate for masks (problem/mask_time.c). The
 * mask's own work is not counted: every plan needs it, and only the first candidate asks.
 *
 * The order of candidates does not depend on the budget. The first one that is estimated to exceed what is left ends
 * it. So a larger budget tries the same candidates and more, and its plan is never slower.
 */
#include "compiler/auto/auto.h"

#include "compiler/schedule/traffic.h"

#define SECOND UINT64_C(1000000000)
typedef unsigned __int128 wide;

static uint64_t narrow(wide x) { return x < UINT64_MAX / 4 ? (uint64_t)x : UINT64_MAX / 4; }

/* The work of placing blocks and tiles, where `sharing` ranks are one place. */
static wide place_work(const auto_candidate *c, wide blocks, wide tiles, uint32_t sharing) {
    return WORK_OF_BLOCK * blocks +
           (strategy_facts_of[auto_divides_by(c)].slow_tiles ? WORK_OF_PLACING : 0) * tiles / sharing;
}

/* The work of a schedule with so many instructions, and of predicting it with each margin. */
static wide schedule_work(const struct fcpc_program *g, wide instrs) {
    return instrs * (WORK_OF_INSTR + WORK_OF_MARGIN * (g->margins ? g->margins->count : 1));
}

/* The tokens of a piece of a sequence of this length, in a batch of `tokens`. */
static uint64_t piece_of(const struct fcpc_program *g, const auto_candidate *c, uint64_t length, uint64_t tokens) {
    const uint64_t ranks = (uint64_t)g->nodes * g->gpus;
    const uint64_t pieces = c->even ? c->even * ranks : program_has_ring(g) ? ranks / g->inside : 0;
    const uint64_t size = c->block ? c->block : pieces ? length / pieces : tokens / ranks;
    return size ? size : 1;
}

/* An estimate from lengths alone, as if the mask were causal. 0: the candidate cannot be planned. */
static uint64_t guess(const auto_job *j, const auto_candidate *c) {
    struct fcpc_program g;
    size_t count;
    const uint64_t *keys = auto_lengths(j->program, j->batch, FCP_KEYS, &count),
                   *queries = auto_lengths(j->program, j->batch, FCP_QUERIES, &count);
    wide tokens = 0, blocks = 0, tiles = 0;
    if (!auto_apply(j->program, c, &g)) return 0;
    for (size_t i = 0; i < count; i++) tokens += keys[i];
    for (size_t i = 0; i < count; i++) {
        const uint64_t size = piece_of(&g, c, keys[i], narrow(tokens)), rows = queries[i] / size + 1,
                       columns = keys[i] / size + 1;
        tiles += ((wide)rows * columns + 1) / 2;
        blocks += c->block ? 0 : columns;
    }
    if (c->block) blocks = tokens / c->block + 1;
    const uint32_t sharing = strategy_shares_heads(c->strategy) ? g.inside : 1; /* each range of heads has its tiles */
    blocks *= sharing, tiles *= sharing;
    return narrow(WORK_OF_PART * tiles + place_work(c, blocks, tiles, sharing) + WORK_OF_TILE * tiles +
                  schedule_work(&g, INSTRS_OF_BLOCK * blocks) + 1);
}

/* The candidate by which a guess is corrected: the last one of the same strategy that was planned from its lengths to
 * its prediction, or else the one whose planning is the base. NULL: there is none yet. */
static const auto_candidate *like(const auto_job *j, const auto_candidate *c) {
    const auto_report *r = j->report;
    for (const auto_candidate *i = r->at + r->count; i-- > r->at;)
        if (i->makespan && i->work > i->late && auto_is_like(i, c)) return i;
    return j->base ? j->base->made : NULL;
}

uint64_t auto_estimate(const auto_job *j, const auto_candidate *c) {
    const auto_candidate *known = like(j, c);
    const uint64_t own = guess(j, c), other = known ? guess(j, known) : 0;
    return known && known->work && other ? narrow((wide)own * known->work / other) : own;
}

void auto_count_work(auto_trial *t) {
    const problem *p = t->x.problem;
    auto_candidate *made = t->made;
    if (!t->d || !p) return;
    const bool own = p != &t->problem; /* else it has the blocks and the placement of another trial */
    const uint32_t sharing = strategy_shares_heads(made->strategy) ? t->settings.inside : 1;
    wide early = own ? (wide)WORK_OF_PART * p->part_count : 0, late = 0;
    if (own && t->x.placement) early += place_work(made, p->block_count, p->tile_count, sharing);
    if (!t->routed && t->x.traffic)
        late += (wide)WORK_OF_TILE * p->tile_count + (wide)WORK_OF_HOP * t->x.traffic->count;
    if (t->x.plan) late += schedule_work(&t->settings, t->x.plan->instrs_count);
    made->late = narrow(late);
    made->work = narrow(early + late);
    t->job->report->work += made->work;
}

void auto_set_budget(auto_job *j) {
    const struct fcpc_program *g = j->program;
    j->report->budget = g->budget * UINT64_C(1000);
    for (uint32_t e = 1; e <= g->effort && !g->budget; e++)
        j->report->budget += (uint64_t)SECONDS_A_TRY * searched_of_effort[e] * SECOND;
}

void auto_note_first(auto_job *j) {
    auto_report *r = j->report;
    const uint64_t work = r->at[j->best].work;
    if (r->budget && !j->program->budget && r->budget / FIRST_TIMES < work) r->budget = FIRST_TIMES * work;
    r->spent |= j->beside > r->budget; /* what did not fit beside it ends the trying, as it would behind it */
    if (!j->program->budget || work <= r->budget) return;
    span at = j->program->at[AT_STRATEGY];
    if (at.source != SPAN_NONE.source) at.source += program_attach(j->program, j->d);
    diag_warning(j->d, at, "the budget is %.4g s, and one candidate takes %.4g s of work", (double)r->budget / 1e9,
                 (double)work / 1e9);
    diag_hint(j->d, "so no other was tried; budget = %.2g s would try some more", FIRST_TIMES * (double)work / 1e9);
}

bool auto_may_spend(auto_job *j, uint64_t work, bool beside) {
    auto_report *r = j->report;
    const bool fits = !r->budget || (r->work <= r->budget && work <= r->budget - r->work);
    if (j->best == FCP_NONE) { /* until one is planned, nothing is spent for good */
        if (!fits && beside) j->beside = work;
        return fits || !beside;
    }
    r->spent |= !fits;
    return !r->spent;
}

void auto_order(auto_job *j, uint32_t first, uint32_t end) {
    auto_candidate *at = j->report->at;
    uint64_t work[AUTO_LISTED];
    for (uint32_t n = first; n < end; n++)
        work[n] = n > first && at[n].line == at[n - 1].line ? work[n - 1]
                  : auto_is_judged(&at[n])                  ? UINT64_MAX /* mostly ruled out, for nothing */
                                                            : guess(j, &at[n]);
    if (first == end || work[first] <= WORK_IN_ORDER) return;
    for (uint32_t n = first + 1; n < end; n++) {
        const auto_candidate own = at[n];
        const uint64_t of = work[n];
        uint32_t i = n;
        for (; i > first && work[i - 1] > of; i--) at[i] = at[i - 1], work[i] = work[i - 1];
        at[i] = own, work[i] = of;
    }
}
