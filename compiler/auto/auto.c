/* auto.c: decides which candidates are tried, and in which order.
 *
 * Requires: a program with strategy = auto or block = auto, and a batch.
 * Gives: the settings of the candidate that is predicted to be fastest; of equally fast ones, the first.
 * Cost: a planning without proof and a prediction for each candidate that is not ruled out.
 *
 * A candidate is a strategy, one setting of it, and a size of blocks. Four things rule one out:
 *   1. Its bounds (time_bounds.c). The placement and the routes say how much each rank computes and how many bytes pass
 *      each port. If these alone take longer than the best time so far, no schedule is made.
 *   2. Its strategy is far behind. Each strategy is first tried with one setting and the middle size of blocks. If that
 *      takes a quarter longer than the best, its other settings are not tried. Other sizes are tried of the best
 *      setting only.
 *   3. It takes long to plan, and seldom wins: auto_tuning.h says what is left out in large batches.
 *   4. It cannot be planned: it needs too much memory or makes too many blocks.
 * Rules 2 and 3 are those of effort 1. Every effort begins with what the one before it does, so it is never worse.
 *
 * Nothing looks at a clock: the same program and batch try the same candidates in the same order.
 */
#include "compiler/auto/auto.h"

#include <string.h>

/* --- all of them -------------------------------------------------------------------------------------------------- */

static bool is_first(const auto_report *r, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (auto_is_like(&r->at[i], &r->at[n])) return false;
    return true;
}

/* Is it worth trying more settings of the strategy of candidate n? It is if the strategy's best plan so far takes at
 * most NEAR_PERCENT of the best time, or if all settings of it that were tried could not be planned. */
static bool is_near(const auto_job *j, uint32_t n) {
    const auto_report *r = j->report;
    uint64_t best = UINT64_MAX;
    bool refused = true;
    for (uint32_t i = 0; i < r->count; i++) {
        if (!auto_is_like(&r->at[i], &r->at[n])) continue;
        if (r->at[i].makespan && r->at[i].makespan < best) best = r->at[i].makespan;
        if (i < n && r->at[i].end != AUTO_REFUSED && r->at[i].end != AUTO_FAR && r->at[i].end != AUTO_LONG)
            refused = false;
    }
    if (best == UINT64_MAX) return refused; /* its bound was too large; of refused ones another setting may do */
    return (unsigned __int128)best * 100 <= (unsigned __int128)auto_best_time(j) * NEAR_PERCENT;
}

/* Does the batch have so many tokens that blocks of half this candidate's size would be more than MANY_BLOCKS? */
static bool takes_long(const auto_job *j, const auto_candidate *c) {
    return j->base && j->base->x.problem->tokens / MANY_BLOCKS >= c->block / 2;
}

/* Returns whether the candidate has to move so many bytes that it will not win. There are two cases:
 *   - The program states a layout, and the strategy chooses homes. All tokens then travel to their homes and back. The
 *     candidate is left out if this alone takes as long as the best plan, or if an earlier candidate that chooses homes
 *     was far behind.
 *   - The program states no layout, and the strategy leaves tokens in place. That moves more bytes than a strategy that
 *     chooses homes. The candidate is tried only if ranks wait much in the best plan, that is, if the best plan takes
 *     more than twice its bound and the rank that ends last does not compute to the end. */
static bool moves_too_much(const auto_job *j, uint32_t n) {
    const auto_report *r = j->report;
    const fcp_strategy of = r->at[n].strategy;
    const bool keeps = auto_keeps_homes(j, &r->at[n]);
    if (j->best == FCP_NONE) return false;
    if (j->program->layout == FCP_LAYOUT_PLANNED)
        return keeps && !strategy_shares_heads(of) &&
               (r->at[j->best].last.what == AUTO_COMPUTING || r->at[j->best].makespan / 2 <= r->at[j->best].bound.all);
    if (keeps && !strategy_facts_of[of].packs_sequences) return false;
    if (auto_homecoming(&j->base->x, &j->profile) >= auto_best_time(j)) return true;
    if (keeps || auto_has_groups(&r->at[n])) return false; /* what it moves behind that is far less than theirs */
    for (uint32_t i = 0; i < n; i++) {
        const auto_candidate *c = &r->at[i];
        const bool far = c->end == AUTO_BOUND || c->makespan / NEAR_PERCENT * 100 > auto_best_time(j);
        if (!auto_keeps_homes(j, c) && !c->even && !c->between && far) return true;
    }
    return false;
}

/* The candidate whose setting is tried with other sizes of blocks: the best one, if it has blocks of a size and is on
 * the list. Otherwise it is the fastest on the list that has blocks of a size and takes at most CLOSE_PERCENT of the
 * best time. FCP_NONE: there is none. */
static uint32_t to_resize(const auto_job *j) {
    const auto_report *r = j->report;
    uint32_t found = FCP_NONE;
    if (j->best == FCP_NONE || (r->at[j->best].block && !r->at[j->best].found)) return j->best;
    for (uint32_t n = 0; n < r->count; n++) {
        const auto_candidate *c = &r->at[n];
        if (!c->block || c->found || !c->makespan || c->makespan / CLOSE_PERCENT * 100 > auto_best_time(j)) continue;
        if (found == FCP_NONE || c->makespan < r->at[found].makespan) found = n;
    }
    return found;
}

/* Returns whether the candidate's setting is nearly as fast as the best one when both have blocks of the middle size.
 * Then it may be the fastest with smaller blocks, even if its strategy is not that of the best candidate. But if there
 * are many tiles, smaller blocks are tried for the best candidate's strategy alone. */
static bool is_close(const auto_job *j, const auto_candidate *c, uint32_t middle) {
    const auto_report *r = j->report;
    uint64_t own = 0, least = UINT64_MAX;
    const uint32_t block = j->base->settings.block; /* 0: blocks have no size */
    const uint32_t times = block && block < middle ? middle / block : 1; /* smaller blocks make more tiles */
    if (!auto_is_like(c, &r->at[j->best]) && j->base->x.problem->tile_count / times >= MANY_TILES) return false;
    for (const auto_candidate *i = r->at; i < r->at + r->count; i++) {
        if (!i->block || i->size != AUTO_MIDDLE || i->found || !i->makespan) continue;
        if (i->makespan < least) least = i->makespan;
        if (i->line == c->line) own = i->makespan;
    }
    return own && own / RIVAL_PERCENT * 100 <= least;
}

/* Effort 1 tries less where planning takes long. This is the number by which it divides its budgets: 1 for a best
 * candidate with few tiles, more for one with many. Larger efforts divide by 1. */
static uint32_t budget_divisor(const auto_job *j, uint32_t effort) {
    if (effort > 1) return 1;
    const uint32_t weight = 1 + j->base->x.problem->tile_count / WEIGHED_TILES;
    return weight < 1 << 10 ? weight : 1 << 10;
}

/* Returns whether the setting of candidate n is too large to be worth a try. The settings of a strategy are tried in
 * ascending order (tolerance = 0.02, 0.1, 0.5), so the two before n have been planned. There are two reasons:
 *   - Ranks wait little in those plans. More work on one rank pays only if it shortens long waits.
 *   - The batch is large, and the second of them was hardly faster than the first. */
static bool goes_too_far(const auto_job *j, uint32_t n) {
    const auto_candidate *c = &j->report->at[n], *before[2] = {NULL};
    for (const auto_candidate *i = j->report->at; i < c; i++)
        if (auto_is_like(i, c) && i->block == c->block && i->settings && c->settings &&
            i->set[0].param == c->set[0].param)
            before[0] = before[1], before[1] = i;
    if (!j->base || !before[0] || !before[0]->makespan) return false;
    const uint64_t first = before[0]->makespan, second = before[1]->makespan,
                   less = second && second < first ? second : first;
    if (less / WAITS_PERCENT * 100 <= before[0]->bound.all) return true;
    if (j->base->x.problem->tile_count < MANY_TILES) return false;
    return before[1]->end == AUTO_FAR || before[1]->end == AUTO_BOUND ||
           before[1]->makespan > before[0]->makespan / EQUAL_PERCENT * 100;
}

/* May the candidate be tried as one with blocks of half the middle size? Its setting must be that of candidate `best`,
 * or nearly as fast. */
static bool may_shrink(const auto_job *j, const auto_candidate *c, uint32_t best, uint32_t middle) {
    return c->size == AUTO_HALF && (c->line == j->report->at[best].line || is_close(j, c, middle));
}

/* Returns whether the candidate, which has smaller blocks, is left out. In a large batch with many tiles, only one
 * setting of each strategy is tried with smaller blocks: the first that may_shrink accepts. It has the smallest
 * tolerance, which small blocks help to keep. A strategy whose tiles are slow to place (dcp) is always left out,
 * because blocks of half the size make up to four times as many tiles. */
static bool comes_later(const auto_job *j, const auto_candidate *c, uint32_t best, uint32_t middle) {
    if (!takes_long(j, c) || j->base->x.problem->tile_count < MANY_TILES) return false;
    if (strategy_facts_of[auto_divides_by(c)].slow_tiles) return true;
    for (const auto_candidate *i = j->report->at; i < c; i++)
        if (auto_is_like(i, c) && i->block == c->block && may_shrink(j, i, best, middle)) return true;
    return false;
}

/* The steps of trying the list: the first candidate of each strategy; other settings of strategies that are not far
 * behind; other sizes of blocks for the best setting; and the rest, if nothing could be planned yet or all are to be
 * tried. */
typedef enum step { FIRST, SETTINGS, SIZE, REST, STEPS } step;

static bool is_wanted(const auto_job *j, bool all, step s, uint32_t middle, uint32_t n) {
    const auto_candidate *c = &j->report->at[n];
    if (c->end != AUTO_FAR && (c->end != AUTO_LONG || s != REST)) return false; /* it has been tried, or is too long */
    switch (s) {
    case FIRST: return is_first(j->report, n) && (all || !moves_too_much(j, n));
    case SETTINGS:
        return c->size == AUTO_MIDDLE && (all || !auto_is_spare(c)) &&
               (all || (is_near(j, n) && !moves_too_much(j, n) && !goes_too_far(j, n)));
    case SIZE: {
        const uint32_t of = to_resize(j);
        if (of == FCP_NONE) return false;
        if (c->size == AUTO_HALF) return may_shrink(j, c, of, middle) && (all || !comes_later(j, c, of, middle));
        return c->line == j->report->at[of].line && (all || !takes_long(j, c));
    }
    default: return all || j->best == FCP_NONE;
    }
}

/* Does the candidate reach the planner? Two kinds do not: those whose heads do not divide among the ranks, and those
 * that auto_bound_even or auto_bound_groups judges first, by what the mask allows in each sequence, once that is
 * known. */
static bool is_planned(const auto_job *j, const auto_candidate *c) {
    struct fcpc_program settings;
    return auto_apply(j->program, c, &settings) && (!j->pairs.of || !auto_is_judged(c));
}

/* The first candidate, other than n, that step s would try and that reaches the planner; FCP_NONE: there is none.
 * *count: how many there are. */
static uint32_t find_wanted(const auto_job *j, bool all, step s, uint32_t middle, uint32_t n, uint32_t *count) {
    uint32_t found = FCP_NONE;
    *count = 0;
    for (uint32_t i = 0; i < j->report->count; i++) {
        if (i == n || !is_planned(j, &j->report->at[i]) || !is_wanted(j, all, s, middle, i)) continue;
        if (!(*count)++) found = i;
    }
    return found;
}

/* The first of the sizes that step SIZE would try, if their number is odd, so that one would be tried without a
 * partner. FCP_NONE: the number is even. */
static uint32_t find_odd_size(const auto_job *j, bool all, uint32_t middle, uint32_t n) {
    uint32_t count;
    const uint32_t found = find_wanted(j, all, SIZE, middle, n, &count);
    return count % 2 ? found : FCP_NONE;
}

/* Returns a candidate to be tried at the same time as n, on the second thread; FCP_NONE: there is none. An odd size is
 * one that step SIZE would try without a partner. The choice is the first of these that exists:
 *   - another setting of the best strategy, if n is the first of its strategy and leaves tokens in place. Both then
 *     take about as long to plan, and cad's second setting is better than its first in half of all batches;
 *   - before step SIZE, in a large batch: an odd size, because the next candidate is often ruled out by its bound;
 *   - the next candidate of this step;
 *   - before step SIZE, in a small batch: an odd size;
 *   - from step SIZE on: a neighbour of the best candidate, which the search would try later. */
static uint32_t find_partner(auto_job *j, bool all, step s, uint32_t middle, uint32_t n) {
    const auto_report *r = j->report;
    uint32_t count, found;
    if (!is_planned(j, &r->at[n])) return FCP_NONE;
    if (s == FIRST && !strategy_shares_heads(r->at[n].strategy) && auto_keeps_homes(j, &r->at[n]))
        for (uint32_t i = 0; i < r->count; i++) {
            const auto_candidate *of = &r->at[j->best == FCP_NONE ? n : j->best];
            if (i != n && auto_is_like(&r->at[i], of) && r->at[i].block && is_planned(j, &r->at[i]) &&
                is_wanted(j, all, SETTINGS, middle, i))
                return i;
        }
    const bool size_first = s < SIZE && takes_long(j, &r->at[n]);
    if (size_first && (found = find_odd_size(j, all, middle, n)) != FCP_NONE) return found;
    if ((found = find_wanted(j, all, s, middle, n, &count)) != FCP_NONE) return found;
    if (s < SIZE) return size_first ? FCP_NONE : find_odd_size(j, all, middle, n);
    return j->best == FCP_NONE ? FCP_NONE : auto_neighbour(j, all ? EFFORTS : 1);
}

/* Goes through the steps and tries the candidates of each, two at a time. all = false: those that are worth it, as
 * effort 1 does; true: all that have not been tried. */
static fcp_code try_list(auto_job *j, bool all, uint32_t middle) {
    fcp_code code = FCP_OK;
    for (int s = FIRST; s < STEPS; s++)
        for (uint32_t n = 0; n < j->report->count && !code && !j->report->spent; n++) {
            if (!is_wanted(j, all, (step)s, middle, n)) continue;
            const uint32_t pair[] = {n, find_partner(j, all, (step)s, middle, n)};
            code = auto_try(j, pair, pair[1] == FCP_NONE ? 1 : 2);
        }
    return code;
}

/* How many neighbours the search may try without a gain. Effort 1 tries fewer if a plan takes long. */
static uint32_t search_budget(const auto_job *j, uint32_t effort) {
    const uint32_t part = searched_of_effort[effort] / budget_divisor(j, effort);
    return part > SEARCHED_LEAST ? part : SEARCHED_LEAST;
}

/* How many placements with moved work may be tried without a gain. In large batches this shrinks faster than the budget
 * of the search, because moves gain less. It is 0 in a heavy batch whose tokens stay in place: there they gain next to
 * nothing. */
static uint32_t move_budget(const auto_job *j, uint32_t effort) {
    const uint32_t weight = budget_divisor(j, effort), part = moved_of_effort[effort] / (weight * weight);
    if (auto_is_hasty(j, effort) && auto_keeps_homes(j, &j->report->at[j->best])) return 0;
    return part > MOVED_LEAST ? part : MOVED_LEAST;
}

static fcp_code try_all(auto_job *j, uint32_t middle) {
    fcp_code code = FCP_OK;
    for (uint32_t effort = 1; effort <= j->program->effort && !code; effort++) {
        if (effort < EFFORTS) code = try_list(j, effort > 1, middle);
        if (!code && j->best != FCP_NONE) {
            const uint32_t budget = search_budget(j, effort);
            code = auto_search(j, effort, budget, auto_is_hasty(j, effort) ? budget : searched_of_effort[effort]);
        }
        if (!code && j->best != FCP_NONE) code = auto_move(j, move_budget(j, effort), moved_of_effort[effort]);
    }
    return code;
}

/* Sets *out_settings for the case that no candidate can be planned: those of the first one whose heads divide among the
 * ranks. Planning it then shows its error. There is such a one: sema/sharing.c refuses a program that names only
 * strategies whose heads do not divide. */
static void take_first(auto_job *j, struct fcpc_program *out_settings) {
    auto_report *r = j->report;
    while (!auto_apply(j->program, &r->at[r->chosen], out_settings) && r->chosen + 1 < r->count) r->chosen++;
}

static fcp_code open_job(auto_job *j, const struct fcpc_program *program, const fcpc_batch *batch,
                         const volatile int *stop, diags *d, const problem_kept *kept, auto_report *report) {
    *j = (auto_job){.program = program,
                    .batch = batch,
                    .stop = stop,
                    .d = d,
                    .report = report,
                    .best = FCP_NONE,
                    .kept = {.outlook = kept->outlook}};
    fcp_error err = {0};
    fcp_code code = FCP_OK;
    if (program->profile) j->profile = *program->profile;
    else code = sim_profile_of(&program->cluster, &j->profile, &err);
    if (code) diag_error(d, code, SPAN_NONE, "%s", err.message);
    else memcpy(report->profile, j->profile.name, sizeof report->profile);
    report->layers = program->linear[FCP_FORWARD] > 0;
    report->recurrent = program->recurrent_count > 0;
    return code;
}

/* Tries what the program leaves open: only sizes of blocks if it names a strategy, otherwise everything. If nothing can
 * be planned, *out_settings has the settings whose error is to be shown. */
static fcp_code try_job(auto_job *j, struct fcpc_program *out_settings) {
    uint32_t more = 0, middle;
    if (j->program->strategy != (fcp_strategy)STRATEGY_AUTO) {
        fcp_code code = auto_try_sizes(j);
        if (j->report->at) auto_apply(j->program, &j->report->at[0], out_settings);
        return code;
    }
    auto_set_budget(j);
    for (uint32_t effort = 1; effort <= j->program->effort; effort++) more += searched_of_effort[effort];
    fcp_code code = auto_list(j, more, &middle);
    if (code) return code;
    take_first(j, out_settings);
    code = try_all(j, middle);
    for (uint32_t n = 0; n < j->report->count; n++)
        if (j->report->spent && j->report->at[n].end == AUTO_FAR) j->report->at[n].end = AUTO_OVER;
    return code;
}

fcp_code auto_choose(const struct fcpc_program *program, const fcpc_batch *batch, const volatile int *stop, diags *d,
                     problem_kept *kept, struct fcpc_program *out_settings, auto_report *report) {
    auto_job j;
    fcp_code code = open_job(&j, program, batch, stop, d, kept, report);
    if (code) return code;
    code = try_job(&j, out_settings);
    if (code != FCP_E_NO_MEMORY && code != FCP_E_INTERRUPTED && code != FCP_E_PROFILE) code = FCP_OK;
    /* if nothing could be planned, it is the batch's error: planning the first candidate tells. An error of a later one
     * does not undo what was found */
    if (!code && j.best != FCP_NONE) {
        if (report->moves.makespan >= auto_best_time(&j)) report->moves.kept = 0;
        report->chosen = report->moves.kept ? report->moves.of : j.best;
        report->at[report->chosen].end = AUTO_CHOSEN;
        auto_apply(program, &report->at[report->chosen], out_settings);
    }
    auto_forget(&j, kept);
    return code;
}
