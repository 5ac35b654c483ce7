/* auto.c: lists candidates, and in which order they are tried.
 *
 * Requires: a program with strategy = auto, and a batch.
 * Gives: the settings of the candidate that is predicted to be fastest; of equals the first. Then the search (search.c)
 *     tries neighbours of it, and moves (local_search.c) what ends last.
 * Cost: a planning without proof and a prediction for each candidate that is not ruled out.
 *
 * A candidate is a strategy, one setting of it, and a size of blocks. Four things rule one out:
 *   1. Its bounds. Once its homes and routes are known, so are the work of each rank and the bytes of each port. If
 *      these alone take longer than the best prediction so far, its schedule is not made. Strategies that cut every
 *      sequence evenly, and groups, are judged before anything is cut (time_bounds.c). Neighbours that could gain next to
 *      nothing are ruled out as well.
 *   2. Every effort begins with what effort 1 does: each strategy with one setting at the middle size. A strategy that
 *      then takes NEAR times as long as the best gets no further tries. Other sizes are tried of the best setting only.
 *      If its blocks have no size, as where ranks share heads, they are tried of a setting that is close to it and has
 *      sizes. Tokens of a stated layout are not brought to homes elsewhere if that alone takes as long as the best
 *      does. Larger efforts then try the rest.
 *   3. With effort 1 what takes long is tried less. In a large batch no larger size is tried, because it seldom gains.
 *      Of three settings in ascending order the last one is left out if the second was hardly better than the first, or
 *      if ranks wait little. And the search has a smaller budget where a plan has many tiles. It gets the rest of it
 *      step by step, as long as its steps gain: so the time is spent on batches where much is left to be gained.
 *      Where a plan takes longest (AUTO_HEAVY), moves and neighbours that seldom gain there are left out, and gains buy
 *      no more tries.
 *   4. The planner itself: too little memory, too many blocks.
 *
 * Nothing looks at a clock: the same program and batch try the same candidates in the same order.
 */
#include "compiler/auto/auto.h"

#include <string.h>

#include "compiler/problem/problem.h"

enum {
    NEAR_PERCENT = 125, /* of the best time: who takes longer is far */
    CLOSE_PERCENT = 110, /* of the best time: who takes no longer may win with other blocks */
    EQUAL_PERCENT = 103, /* of a setting's time: another one that takes more than that part less is better */
    WAITS_PERCENT = 165, /* of its bound: who takes longer may win with half again the work at one rank */
    MANY_BLOCKS = 4096, /* take long to cut */
    HEAVY = 8 << 10,    /* tiles: with so many more, as much less is tried where nothing gains */
    SEARCHED_LEAST = 4, /* neighbours and moved placements that are tried however many tiles there are */
    MOVED_LEAST = 2,
    MANY_TILES = 20 << 10, /* take long to cut */
    JOINED_TIMES = 4,   /* a group of ranks has blocks so many times as large, for it works on each with all of them */
    LONG_RING = 8       /* nodes: planning more takes seconds, because every head's keys pass through all of them */
};

/* Neighbours and moved placements that each effort adds to those of the effort before it. It goes on where that one
 * ends, so it is never worse. */
enum { EFFORTS = 3 };
static const uint32_t searched[EFFORTS + 1] = {[1] = 10, [2] = 40, [3] = 160},
                      moved[EFFORTS + 1] = {[1] = 8, [2] = 16, [3] = 64};

/* The candidates: strategies in the order in which they are tried. A setting is of strategy_params, by name and value;
 * what a line does not set has its usual value. The first line of a strategy is tried first.
 *
 * Of dcp there are two pairs of lines. Where it chooses homes, few bytes travel, and four divisions hide them. A small
 * tolerance is better in most batches, because what a rank computes beyond the mean is never hidden, and what travels
 * mostly is. But where few placements are within it, it moves far too much, so one that is safe comes first. Where
 * tokens stay, the queries and results of much of the work travel anyway. The results of a division go home while the
 * next one is computed, so with sixteen divisions little is left to be sent in the end.
 *
 * Where nodes share heads, another strategy divides the batch among them. dcp then begins with 0.02: there are few
 * groups, and so placements within it are found. upipe with two buffers takes more memory, and often less time. */
typedef enum where { ANYWHERE, IN_PLACE, CHOSEN } where; /* tokens stay at home, or homes are chosen */
enum { SET = 2 };
static const struct line {
    fcp_strategy strategy;
    where where;
    struct { const char *param; uint32_t value; } set[SET];
    bool spare;    /* it needs less memory and seldom wins: effort 1 tries it only if nothing else can be planned */
    uint32_t even; /* chunks a rank, of strategies that cut every sequence evenly; else 0 */
    uint32_t between; /* of strategies that share heads: inside nodes, and BETWEEN(who divides the batch among them) */
} lines[] = {
    {FCP_STRATEGY_FCP},
    {FCP_STRATEGY_CAD, .set = {{"tolerance", 20000}}},
    {FCP_STRATEGY_CAD, .set = {{"tolerance", 100000}}},
    {FCP_STRATEGY_CAD, .set = {{"tolerance", 500000}}},
    {FCP_STRATEGY_FCP, .set = {{"split", 0}}},
    {FCP_STRATEGY_DCP, CHOSEN, {{"epsilon_compute", 50000}}},
    {FCP_STRATEGY_DCP, CHOSEN, {{"epsilon_compute", 20000}}},
    {FCP_STRATEGY_DCP, CHOSEN, {{"epsilon_compute", 100000}}, .spare = true},
    {FCP_STRATEGY_DCP, IN_PLACE, {{"epsilon_compute", 20000}, {"divisions", 16}}},
    {FCP_STRATEGY_DCP, IN_PLACE, {{"epsilon_compute", 50000}, {"divisions", 8}}},
    {FCP_STRATEGY_DCP, IN_PLACE, {{"epsilon_compute", 100000}, {"divisions", 8}}},
    {FCP_STRATEGY_RING, .even = 1},
    {FCP_STRATEGY_ZIGZAG, .even = 2},
    {FCP_STRATEGY_ULYSSES},
    {FCP_STRATEGY_ULYSSES, .between = BETWEEN(FCP_STRATEGY_RING)},
    {FCP_STRATEGY_UPIPE},
    {FCP_STRATEGY_UPIPE, .set = {{"buffers", 2}}},
    {FCP_STRATEGY_UPIPE, .between = BETWEEN(FCP_STRATEGY_RING)},
    {FCP_STRATEGY_ULYSSES, .between = BETWEEN(FCP_STRATEGY_FCP)},
    {FCP_STRATEGY_ULYSSES, CHOSEN, {{"epsilon_compute", 20000}}, .between = BETWEEN(FCP_STRATEGY_DCP)},
    {FCP_STRATEGY_ULYSSES, IN_PLACE, {{"epsilon_compute", 20000}}, .between = BETWEEN(FCP_STRATEGY_DCP)},
    {FCP_STRATEGY_GROUPS, .set = {{"tokens", 1 << 16}}},
    {FCP_STRATEGY_GROUPS, .set = {{"tokens", 1 << 17}}},
};
enum { LINES = sizeof lines / sizeof *lines };

/* --- the list ----------------------------------------------------------------------------------------------------- */

/* The sizes of blocks: that of the program; where auto decides, three. Returns how many. */
static uint32_t choose_sizes(const auto_job *j, uint32_t out[AUTO_SIZES]) {
    out[AUTO_MIDDLE] = j->program->block;
    if (out[AUTO_MIDDLE] != BLOCK_AUTO) return 1;
    out[AUTO_MIDDLE] = auto_middle_size(j->program, j->batch);
    out[AUTO_TWICE] = out[AUTO_MIDDLE] * 2;
    out[AUTO_HALF] = out[AUTO_MIDDLE] / 2;
    return AUTO_SIZES;
}

/* Do tokens stay where the caller holds them? */
static bool keeps_homes(const auto_job *j, const auto_candidate *c) {
    struct fcpc_program settings;
    auto_apply(j->program, c, &settings);
    return strategy_keeps_homes(&settings);
}

/* What the program states stays as it is. */
static bool is_stated(const struct fcpc_program *g, const char *param) {
    if (!strcmp(param, "buffers")) return g->buffers;
    return g->coalesce && (!strcmp(param, "coalesce") || !strcmp(param, "divisions"));
}

static void set(auto_candidate *c, const struct fcpc_program *g, const char *param, uint32_t value) {
    if (is_stated(g, param)) return;
    c->set[c->settings++] = (auto_setting){strategy_find_param(auto_divides_by(c), param), value};
}

/* The candidate of a line with blocks of size[n]. Smaller ones of cad have twice as many rounds to a stage: each round
 * carries half of the bytes, and a row that is relayed waits a stage for each step of its way. */
static auto_candidate make(const auto_job *j, uint32_t l, const uint32_t *size, uint32_t n) {
    const struct fcpc_program *g = j->program;
    const bool has_ring = lines[l].between == BETWEEN(FCP_STRATEGY_RING);
    auto_candidate made = {.strategy = lines[l].strategy, .line = l, .even = lines[l].even, .between = lines[l].between,
                           .end = has_ring && g->nodes > LONG_RING ? AUTO_LONG : AUTO_FAR};
    for (int i = 0; i < SET && lines[l].set[i].param; i++) set(&made, g, lines[l].set[i].param, lines[l].set[i].value);
    const uint32_t times = g->block == BLOCK_AUTO && auto_has_groups(&made) ? JOINED_TIMES : 1;
    if (auto_divider(&made)->by_block) made.block = size[n] * times, made.size = (auto_size)n;
    if (made.strategy == FCP_STRATEGY_CAD && n == AUTO_HALF)
        set(&made, g, "coalesce", 2 * auto_value(g, &made, strategy_find_param(FCP_STRATEGY_CAD, "coalesce")));
    return made;
}

static fcp_code list(auto_job *j, const uint32_t *size, uint32_t sizes) {
    auto_report *r = j->report;
    uint32_t room = 2 * LINES * AUTO_SIZES; /* a partner for each */
    for (uint32_t effort = 1; effort <= j->program->effort; effort++) room += searched[effort];
    r->at = ARENA_ZNEW(&r->memory, auto_candidate, room);
    if (!r->at) return FCP_E_NO_MEMORY;
    const bool stated = j->program->layout != FCP_LAYOUT_PLANNED;
    for (uint32_t i = 0; i < 2 * LINES; i++) { /* who leaves tokens at home comes first with a layout, else last */
        const uint32_t l = i % LINES;
        const auto_candidate of = make(j, l, size, 0);
        const bool keeps = keeps_homes(j, &of);
        if (!(j->program->among >> of.strategy & j->program->among >> auto_divides_by(&of) & 1)) continue;
        if ((keeps == stated) != (i < LINES)) continue;
        if (lines[l].where && keeps != (lines[l].where == IN_PLACE)) continue;
        if (of.between && j->program->nodes == 1) continue; /* the same as without */
        if (auto_has_groups(&of) && j->program->gpus == 1) continue; /* the same as the strategy between groups */
        for (uint32_t n = 0; n < (of.block ? sizes : 1); n++) {
            if (n == AUTO_HALF && auto_has_groups(&of)) break; /* they make many tiles, and never gained */
            r->at[r->count++] = make(j, l, size, n);
        }
    }
    return FCP_OK;
}

/* --- all of them -------------------------------------------------------------------------------------------------- */

static bool is_first(const auto_report *r, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (auto_is_like(&r->at[i], &r->at[n])) return false;
    return true;
}

/* May candidate n, whose strategy has been tried, be among the best? */
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

/* Is it one of a batch that takes long to cut? */
static bool takes_long(const auto_job *j, const auto_candidate *c) {
    return j->base && j->base->x.problem->tokens / MANY_BLOCKS >= c->block / 2;
}

/* With a layout, strategies that choose homes bring all tokens there and back. If one is too slow or far behind for
 * that, so are the others. Without a layout, a strategy that leaves tokens in place moves more than one that chooses
 * homes. That can only gain if the best plan takes more than twice its bound. */
static bool moves_too_much(const auto_job *j, uint32_t n) {
    const auto_report *r = j->report;
    const fcp_strategy of = r->at[n].strategy;
    const bool keeps = keeps_homes(j, &r->at[n]);
    if (j->best == FCP_NONE) return false;
    if (j->program->layout == FCP_LAYOUT_PLANNED)
        return keeps && !strategy_shares_heads(of) &&
               (r->at[j->best].last.what == AUTO_COMPUTING || r->at[j->best].makespan / 2 <= r->at[j->best].bound.all);
    if (keeps && of != FCP_STRATEGY_GROUPS) return false;
    if (auto_homecoming(&j->base->x, &j->profile) >= auto_best_time(j)) return true;
    if (keeps || auto_has_groups(&r->at[n])) return false; /* what it moves behind that is far less than theirs */
    for (uint32_t i = 0; i < n; i++) {
        const auto_candidate *c = &r->at[i];
        const bool far = c->end == AUTO_BOUND || c->makespan / NEAR_PERCENT * 100 > auto_best_time(j);
        if (!keeps_homes(j, c) && !c->even && !c->between && far) return true;
    }
    return false;
}

/* The candidate of the list whose setting is tried with other sizes of blocks; FCP_NONE: there is none. */
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

/* Does its setting take nearly as little time as the best one with blocks of the middle size? With smaller ones it may
 * be the best, whatever its strategy. But another strategy's small blocks are not tried where there are many tiles. */
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
    return own && own / AUTO_RIVAL_PERCENT * 100 <= least;
}

/* By how much less is tried where the best candidate has many tiles, and so takes long to plan; 1: by nothing. Larger
 * efforts do not ask. */
static uint32_t weigh(const auto_job *j, uint32_t effort) {
    if (effort > 1) return 1;
    const uint32_t weight = 1 + j->base->x.problem->tile_count / HEAVY;
    return weight < 1 << 10 ? weight : 1 << 10;
}

/* Of settings in ascending order, is the one of candidate n too large? In a large batch it is if the one before it was
 * hardly better than the one before that. In every batch it is if ranks wait little: half again the work at one rank
 * pays only if that shortens long waits. */
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

/* Has it blocks below the middle size, and the best setting or one that is close to it? */
static bool may_shrink(const auto_job *j, const auto_candidate *c, uint32_t best, uint32_t middle) {
    return c->size == AUTO_HALF && (c->line == j->report->at[best].line || is_close(j, c, middle));
}

/* In a large batch with many tiles, one setting of a strategy is tried with smaller blocks: the first that may. Smaller
 * blocks fill ranks more evenly, which is what a small tolerance asks for, and small ones come first. Is another one
 * tried in its place? dcp is not tried at all: half the size makes up to four times as many tiles, and it takes longer
 * for each than all passes behind it. */
static bool comes_later(const auto_job *j, const auto_candidate *c, uint32_t best, uint32_t middle) {
    if (!takes_long(j, c) || j->base->x.problem->tile_count < MANY_TILES) return false;
    if (auto_divides_by(c) == FCP_STRATEGY_DCP) return true;
    for (const auto_candidate *i = j->report->at; i < c; i++)
        if (auto_is_like(i, c) && i->block == c->block && may_shrink(j, i, best, middle)) return true;
    return false;
}

/* Which candidates are tried in a step. */
typedef enum step { FIRST, SETTINGS, SIZE, REST, STEPS } step;

static bool is_wanted(const auto_job *j, bool all, step s, uint32_t middle, uint32_t n) {
    const auto_candidate *c = &j->report->at[n];
    if (c->end != AUTO_FAR && (c->end != AUTO_LONG || s != REST)) return false; /* it has been tried, or is too long */
    switch (s) {
    case FIRST: return is_first(j->report, n) && (all || !moves_too_much(j, n));
    case SETTINGS:
        return c->size == AUTO_MIDDLE && (all || !lines[c->line].spare) &&
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

/* Is it planned before it is judged? Others cannot be planned, or are judged by what the mask allows in each sequence,
 * once that is known; they seldom win. */
static bool is_planned(const auto_job *j, const auto_candidate *c) {
    struct fcpc_program settings;
    return auto_apply(j->program, c, &settings) &&
           (!j->pairs.of || (!c->even && c->strategy != FCP_STRATEGY_GROUPS));
}

/* Of the candidates of a step, the first one but n that is planned; FCP_NONE: there is none. *count: how many there
 * are. */
static uint32_t find_wanted(const auto_job *j, bool all, step s, uint32_t middle, uint32_t n, uint32_t *count) {
    uint32_t found = FCP_NONE;
    *count = 0;
    for (uint32_t i = 0; i < j->report->count; i++) {
        if (i == n || !is_planned(j, &j->report->at[i]) || !is_wanted(j, all, s, middle, i)) continue;
        if (!(*count)++) found = i;
    }
    return found;
}

/* One of an odd number of sizes, of which the others are tried in pairs. FCP_NONE: their number is even. */
static uint32_t find_odd_size(const auto_job *j, bool all, uint32_t middle, uint32_t n) {
    uint32_t count;
    const uint32_t found = find_wanted(j, all, SIZE, middle, n, &count);
    return count % 2 ? found : FCP_NONE;
}

/* A candidate that is tried together with n. Two that are planned to the end make good use of two threads, most of all
 * if both take as long. So where tokens stay, the first one of all comes with its next setting: of cad the second is
 * better in every other batch. dcp comes with the third, if that is tried. Else it is the next one of this step, or a
 * size that would be tried alone. In a large batch the size comes first, because the next one is often ruled out by its
 * bound. Once all settings have been tried, it is a neighbour of the best one, which the search would try later.
 * FCP_NONE: there is none. */
static uint32_t find_partner(auto_job *j, bool all, step s, uint32_t middle, uint32_t n) {
    const auto_report *r = j->report;
    uint32_t count, found;
    if (!is_planned(j, &r->at[n])) return FCP_NONE;
    if (s == FIRST && !strategy_shares_heads(r->at[n].strategy) && keeps_homes(j, &r->at[n]))
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

/* Those of the list that are worth it; `all`: all that have not been tried. */
static fcp_code try_list(auto_job *j, bool all, uint32_t middle) {
    fcp_code code = FCP_OK;
    for (int s = FIRST; s < STEPS; s++)
        for (uint32_t n = 0; n < j->report->count && !code; n++) {
            if (!is_wanted(j, all, (step)s, middle, n)) continue;
            const uint32_t pair[] = {n, find_partner(j, all, (step)s, middle, n)};
            code = auto_try(j, pair, pair[1] == FCP_NONE ? 1 : 2);
        }
    return code;
}

/* What may be tried without a gain: with effort 1 less where a plan takes long. A gain adds to it, but in no heavy
 * batch. */
static uint32_t search_budget(const auto_job *j, uint32_t effort) {
    const uint32_t part = searched[effort] / weigh(j, effort);
    return part > SEARCHED_LEAST ? part : SEARCHED_LEAST;
}

/* The moves' budget shrinks faster than the search's, because moves gain less. Where tokens stay, in a heavy batch,
 * they gain next to nothing. */
static uint32_t move_budget(const auto_job *j, uint32_t effort) {
    const uint32_t weight = weigh(j, effort), part = moved[effort] / (weight * weight);
    if (auto_is_hasty(j, effort) && keeps_homes(j, &j->report->at[j->best])) return 0;
    return part > MOVED_LEAST ? part : MOVED_LEAST;
}

static fcp_code try_all(auto_job *j, uint32_t middle) {
    fcp_code code = FCP_OK;
    for (uint32_t effort = 1; effort <= j->program->effort && !code; effort++) {
        if (effort < EFFORTS) code = try_list(j, effort > 1, middle);
        if (!code && j->best != FCP_NONE) {
            const uint32_t budget = search_budget(j, effort);
            code = auto_search(j, effort, budget, auto_is_hasty(j, effort) ? budget : searched[effort]);
        }
        if (!code && j->best != FCP_NONE) code = auto_move(j, move_budget(j, effort), moved[effort]);
    }
    return code;
}

/* Where no candidate could be planned, the first whose heads divide is, and its error is shown. There is one: of a
 * program that names only strategies with heads that do not, sema/sharing.c has said so. */
static void take_first(auto_job *j, struct fcpc_program *out_settings) {
    auto_report *r = j->report;
    while (!auto_apply(j->program, &r->at[r->chosen], out_settings) && r->chosen + 1 < r->count) r->chosen++;
}

fcp_code auto_choose(const auto_passes *passes, const struct fcpc_program *program, const fcpc_batch *batch,
                     const volatile int *stop, diags *d, problem_kept *kept, struct fcpc_program *out_settings,
                     auto_report *report) {
    auto_job j;
    fcp_code code = auto_open(&j, passes, program, batch, stop, d, kept, report);
    if (code) return code;
    uint32_t size[AUTO_SIZES];
    code = list(&j, size, choose_sizes(&j, size));
    if (code) return code;
    take_first(&j, out_settings);
    code = try_all(&j, size[AUTO_MIDDLE]);
    if (!code && j.best != FCP_NONE) { /* else it is the batch's error, or that of this candidate: planning it tells */
        if (report->moves.makespan >= auto_best_time(&j)) report->moves.kept = 0;
        auto_take(&j, report->moves.kept ? report->moves.of : j.best, out_settings);
    }
    return auto_close(&j, code, kept);
}
