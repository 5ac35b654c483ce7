/* search.c: tries neighbours of good candidates: the same strategy with one setting changed.
 *
 * Requires: a best candidate.
 * Gives: the best candidate that was found: no neighbour of it is better, or the budget is spent.
 * Cost: that of the candidates that are tried.
 *
 * Example: cad(tolerance = 0.1) with blocks of 2K is the best of the list. Its neighbours on the axis of tolerance are
 * 0.05 and 0.2. If 0.2 is faster, 0.4 is next. Then other axes are tried, until none leads to anything better. If
 * budget is left, the neighbours of the second best candidate are tried, then those of the third.
 *
 * Which neighbours come first:
 *   - Two are tried at a time, perhaps of two axes: one thread plans coalesce = 32 while the other plans buffers = 4.
 *   - What the rank that ends last does decides the order of the axes. If it computes to the end, fewer launches or
 *     finer blocks help. If it waits, it needs its rounds in other stages, other blocks, or less traffic.
 *   - A setting that the program states is not changed.
 *   - Effort 1 leaves out what seldom gains. For example, doubling `coalesce` often helps cad, and halving it hardly
 *     ever does, so for cad only the double is tried. For fcp it is the other way round.
 *
 * Finer blocks take long to plan. Effort 1 tries them only if the batch is small and the best candidate takes half as
 * long again as its bound.
 *   - When that happens: one long sequence is at home on few ranks. All of its queries leave by the ports of these
 *     ranks, and all results come back by them.
 *   - Why finer blocks help: a result can leave only when the last keys of its row have been computed. With fine blocks
 *     that is earlier.
 *   - What else is changed: stages of fine blocks are short, and each relay costs a stage. So the stages get as many
 *     bytes as before.
 */
#include <string.h>

#include "compiler/auto/auto.h"

/* The axes: what may be changed in a candidate. A value is doubled or halved; with `by_one` it is changed by 1. BLOCK
 * and RELAY are no parameters of a strategy. in_place and homes say whether effort 1 goes up, down, both or neither:
 * the one if tokens stay in place, the other if the strategy chooses homes. */
typedef enum axis { TOLERANCE, BLOCK, COALESCE, BUFFERS, RELAY, EPSILON, DIVISIONS, TOKENS, AXES } axis;
typedef enum ways { NEITHER, DOWN, UP, BOTH } ways;
static const struct {
    const char *param;
    bool by_one, placed; /* placed: a neighbour has another placement */
    ways in_place, homes;
} axes[AXES] = {[TOLERANCE] = {"tolerance", false, true, BOTH, BOTH},
                [BLOCK] = {NULL, false, true, UP, UP}, /* with effort 1: finer() */
                [COALESCE] = {"coalesce", false, false, UP, DOWN},
                [BUFFERS] = {"buffers", true, false, UP, DOWN},
                [RELAY] = {NULL},
                [EPSILON] = {"epsilon_compute", false, true, BOTH, BOTH},
                [DIVISIONS] = {"divisions", false, false, UP, BOTH},
                [TOKENS] = {"tokens", false, true, BOTH, BOTH}};
static const axis when_computing[AXES] = {COALESCE, DIVISIONS, BLOCK, TOLERANCE, EPSILON, BUFFERS, TOKENS, RELAY},
                  when_waiting[AXES] = {COALESCE, BLOCK, BUFFERS, TOLERANCE, EPSILON, DIVISIONS, RELAY, TOKENS};

static bool set_value(auto_candidate *c, uint32_t param, uint32_t value) {
    uint32_t i = 0;
    while (i < c->settings && c->set[i].param != param) i++;
    if (i == AUTO_SETTINGS) return false;
    c->set[i] = (auto_setting){param, value};
    if (i == c->settings) c->settings++;
    return true;
}

/* Changes a value by one step, up or down: by a factor of 2, or by 1. False: the result would be outside least to
 * most. */
static bool step_value(uint32_t value, bool by_one, bool up, uint32_t least, uint32_t most, uint32_t *out) {
    if (up ? value > (by_one ? most - 1 : most / 2) : value < (by_one ? least + 1 : 2 * least)) return false;
    *out = by_one ? (up ? value + 1 : value - 1) : (up ? value * 2 : value / 2);
    return true;
}

/* Makes the neighbour of a candidate one step up or down on an axis. False: there is none. */
static bool neighbour(const struct fcpc_program *g, const auto_candidate *of, axis a, bool up, auto_candidate *out) {
    *out = (auto_candidate){.strategy = of->strategy, .line = of->line, .settings = of->settings,
                            .no_relay = of->no_relay, .found = true, .even = of->even,
                            .between = of->between, .block = of->block, .end = AUTO_FAR};
    memcpy(out->set, of->set, sizeof out->set);
    if (a == RELAY) { /* only where work moves has it a meaning */
        if (!g->relay || !strategy_named(of->strategy)->in_place || strategy_shares_heads(of->strategy) ||
            up == !of->no_relay)
            return false;
        out->no_relay = !of->no_relay;
        return true;
    }
    if (a == BLOCK)
        return g->block == BLOCK_AUTO && of->block &&
               step_value(of->block, false, up, BLOCK_LEAST, BLOCK_SEARCH_MOST, &out->block);
    const uint32_t param = strategy_find_param(auto_divides_by(of), axes[a].param);
    if (param == STRATEGY_PARAMS || (a == COALESCE && g->coalesce) || (a == BUFFERS && g->buffers)) return false;
    if (a == DIVISIONS && g->coalesce) return false;
    const strategy_param *p = &strategy_params[param];
    uint32_t value = auto_value(g, of, param);
    if (!value && p->kind == PARAM_COUNT) return false; /* a word: something else decides */
    return step_value(value, axes[a].by_one, up, p->least, p->most, &value) && set_value(out, param, value);
}

static bool alike(const struct fcpc_program *g, const auto_candidate *a, const auto_candidate *b) {
    if (a->strategy != b->strategy || a->block != b->block || a->between != b->between || a->no_relay != b->no_relay)
        return false;
    for (uint32_t i = 0; i < STRATEGY_PARAMS; i++)
        if (strategy_takes(auto_divides_by(a), i) && auto_value(g, a, i) != auto_value(g, b, i)) return false;
    return true;
}

/* Finds the candidate on the list, or adds it; *out becomes its number. False: it is on the list and has been tried. */
static bool add_candidate(auto_job *j, const auto_candidate *c, uint32_t *out) {
    auto_report *r = j->report;
    for (*out = 0; *out < r->count; ++*out)
        if (alike(j->program, &r->at[*out], c)) return r->at[*out].end == AUTO_FAR;
    r->at[r->count++] = *c;
    return true;
}

/* Makes a neighbour with finer blocks, in three steps:
 *   1. Its blocks have half of the smallest size that the list has tried.
 *   2. Its stages have twice as many units, because each unit has fewer bytes.
 *   3. The work is done in two halves, so that results of the first travel beside queries of the second.
 * Returns false if this is not worth a try, because the candidate is near its bound or the batch is large. */
static bool finer(const auto_job *j, uint32_t centre, auto_candidate *next) {
    const auto_candidate *c = &j->report->at[centre];
    auto_candidate more;
    uint32_t least = c->block;
    if (auto_has_groups(c)) return false; /* its blocks are large for the tiles that each range of heads has */
    if (!neighbour(j->program, c, BLOCK, false, next) || c->makespan / FAR_PERCENT * 100 <= c->bound.all) return false;
    for (uint32_t i = 0; i < j->report->count; i++)
        if (j->report->at[i].block && !j->report->at[i].found && j->report->at[i].block < least)
            least = j->report->at[i].block;
    next->block = least / 2;
    if (next->block < BLOCK_LEAST || next->block >= c->block) return false;
    if (j->base->x.problem->tokens / next->block > FINE_BLOCKS) return false;
    if (neighbour(j->program, next, COALESCE, true, &more)) *next = more;
    return true;
}

/* Makes the neighbour on an axis that this effort tries; effort 1 makes finer blocks by finer(). False: there is
 * none. */
static bool find_neighbour(const auto_job *j, uint32_t centre, uint32_t effort, axis a, bool up, auto_candidate *next) {
    const auto_candidate *c = &j->report->at[centre];
    if (effort > 1) return neighbour(j->program, c, a, up, next);
    const ways way = auto_keeps_homes(j, c) ? axes[a].in_place : axes[a].homes;
    if (!(way & (up ? UP : DOWN))) return false;
    return a == BLOCK ? finer(j, centre, next) : neighbour(j->program, c, a, up, next);
}

/* Chooses at most two neighbours of the candidate `centre` to be tried together, and returns how many. on[]: the axis
 * of each. Axes are looked at in the order of when_computing or when_waiting, beginning with `lead` (AXES: with the
 * first). kept: only neighbours with the placement of the centre are chosen. Finer blocks are tried alone. */
static uint32_t pick_neighbours(auto_job *j, uint32_t centre, uint32_t effort, axis lead, bool kept, uint32_t *budget,
                                uint32_t pair[2], axis on[2]) {
    const axis *order = j->report->at[centre].last.what == AUTO_COMPUTING ? when_computing : when_waiting;
    uint32_t count = 0, first = 0;
    while (lead < AXES && order[first] != lead) first++;
    for (uint32_t i = 0; i < AXES; i++) {
        const axis a = order[(first + i) % AXES];
        const uint32_t cost = axes[a].placed ? PLACED_COST : 1;
        if (axes[a].placed && (kept || (effort == 1 && centre != j->best))) continue; /* it seldom gains so much */
        for (int up = 0; up < 2 && count < 2 && cost <= *budget; up++) {
            auto_candidate next;
            if (!find_neighbour(j, centre, effort, a, up, &next)) continue;
            if (effort == 1 && a == BLOCK && count) return count;
            if (!add_candidate(j, &next, &pair[count])) continue;
            on[count++] = a;
            *budget -= cost;
            if (effort == 1 && a == BLOCK) return count;
        }
    }
    return count;
}

/* The best candidate whose neighbours have not been tried. FCP_NONE: there is none within CLOSE_PERCENT of the best
 * time. */
static uint32_t next_centre(const auto_report *r, uint32_t best) {
    uint32_t found = FCP_NONE;
    for (uint32_t n = 0; n < r->count; n++) {
        const auto_candidate *c = &r->at[n];
        if (!c->makespan || c->spread || c->makespan / CLOSE_PERCENT * 100 > r->at[best].makespan) continue;
        if (found == FCP_NONE || c->makespan < r->at[found].makespan) found = n;
    }
    return found;
}

/* Returns the rival, a candidate of another strategy that is nearly as fast as the best, or FCP_NONE if there is none
 * or planning takes too long. Two neighbours of the rival are tried before all others. If one of them becomes the best
 * candidate, the search goes on from there. */
static uint32_t find_rival(const auto_job *j, uint32_t effort) {
    if (!j->rival || !auto_is_rival(j, j->rival->made) || auto_is_hasty(j, effort)) return FCP_NONE;
    return (uint32_t)(j->rival->made - j->report->at);
}

static fcp_code try_rival(auto_job *j, uint32_t effort, uint32_t *budget) {
    const uint32_t centre = find_rival(j, effort);
    uint32_t pair[2], count;
    axis on[2];
    if (centre == FCP_NONE || !(count = pick_neighbours(j, centre, effort, AXES, true, budget, pair, on)))
        return FCP_OK;
    return auto_try(j, pair, count);
}

uint32_t auto_neighbour(auto_job *j, uint32_t effort) {
    const uint32_t rival = find_rival(j, effort);
    uint32_t budget = 1, pair[2];
    axis on[2];
    return pick_neighbours(j, rival == FCP_NONE ? j->best : rival, effort, AXES, true, &budget, pair, on)
               ? pair[0] : FCP_NONE;
}

fcp_code auto_search(auto_job *j, uint32_t effort, uint32_t budget, uint32_t most) {
    uint32_t centre, more = most - budget;
    axis lead = AXES;
    fcp_code code = try_rival(j, effort, &budget);
    while (budget && !code && !j->report->spent && (centre = next_centre(j->report, j->best)) != FCP_NONE) {
        auto_report *r = j->report;
        const uint32_t best = j->best, had = budget;
        const uint64_t before = auto_best_time(j);
        uint32_t pair[2], count;
        axis on[2];
        r->at[centre].spread = true;
        while (!code && j->best == best && !j->report->spent &&
               (count = pick_neighbours(j, centre, effort, lead, false, &budget, pair, on))) {
            code = auto_try(j, pair, count);
            for (uint32_t i = 0; i < count; i++) /* a setting that changes nothing has the same neighbours once more */
                r->at[pair[i]].spread |= r->at[pair[i]].makespan == r->at[centre].makespan;
            for (uint32_t i = 0; i < count; i++)
                if (j->best == pair[i]) lead = on[i];
        }
        if (auto_best_time(j) <= before - before / MUCH_PART) { /* such a pair costs nothing while there is more */
            const uint32_t back = had - budget < more ? had - budget : more;
            budget += back, more -= back;
        }
        if (j->best == best) lead = AXES;
        else r->at[centre].spread = false; /* a better one comes first; then it may be this one's turn again */
    }
    return code;
}
