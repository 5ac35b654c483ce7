/* auto.c: lists candidates, rules out what cannot win, and has the others planned and predicted.
 *
 * Requires: a program with strategy = auto, and a batch.
 * Gives: the settings of the candidate that is predicted to be fastest; of equals the first.
 * Cost: a planning without proof and a prediction for each candidate that is not ruled out. One candidate is in memory
 *     at a time.
 *
 * A candidate is a strategy, one setting of it, and a size of blocks. Three things rule one out:
 *   1. Its bounds. Once its homes and routes are known, so are the work of each rank and the bytes of each port. If
 *      these alone take longer than the best prediction so far, its schedule is not made. Strategies that cut every
 *      sequence evenly are judged before anything is cut (bounds.c).
 *   2. Effort 1 tries every strategy with one setting at the middle size first. A strategy that then takes NEAR times
 *      as long as the best gets no further tries, and of the other sizes only those of the best setting are tried.
 *   3. The planner itself: too little memory, too many blocks.
 *
 * Nothing looks at a clock: the same program and batch try the same candidates in the same order.
 */
#include "compiler/auto/auto.h"

#include <stdio.h>
#include <string.h>

#include "compiler/problem/problem.h"

enum {
    SIZES = 3,
    LARGEST = 4096,    /* tokens of a block */
    LEAST = 128,
    ROOM = 8,          /* blocks of the largest size that a rank has at least */
    NEAR_PERCENT = 125, /* of the best time: who takes longer is far */
    LONG_RING = 8 /* nodes: planning more takes seconds, because every head's keys pass through all of them */
};

/* The candidates: strategies in the order in which they are tried. A setting is of strategy_params, by name and value;
 * NULL: all parameters have their usual values. The first line of a strategy is tried first. */
static const struct line {
    fcp_strategy strategy;
    const char *param;
    uint32_t value;
    uint32_t even; /* chunks a rank, of strategies that cut every sequence evenly; else 0 */
    bool ring;     /* of strategies that share heads: inside nodes, with a ring through them */
} lines[] = {
    {FCP_STRATEGY_FCP, NULL, 0, 0},
    {FCP_STRATEGY_CAD, "tolerance", 20000, 0},
    {FCP_STRATEGY_CAD, "tolerance", 50000, 0},
    {FCP_STRATEGY_CAD, "tolerance", 100000, 0},
    {FCP_STRATEGY_CAD, "tolerance", 10000, 0},
    {FCP_STRATEGY_FCP, "split", 0, 0},
    {FCP_STRATEGY_DCP, NULL, 0, 0},
    {FCP_STRATEGY_RING, NULL, 0, 1},
    {FCP_STRATEGY_ZIGZAG, NULL, 0, 2},
    {FCP_STRATEGY_ULYSSES, NULL, 0, 0},
    {FCP_STRATEGY_ULYSSES, NULL, 0, 0, true},
    {FCP_STRATEGY_UPIPE, NULL, 0, 0},
    {FCP_STRATEGY_UPIPE, NULL, 0, 0, true},
    {FCP_STRATEGY_GROUPS, "tokens", 1 << 16, 0},
    {FCP_STRATEGY_GROUPS, "tokens", 1 << 17, 0},
};
enum { LINES = sizeof lines / sizeof *lines };

typedef struct choosing {
    const auto_passes *passes;
    const struct fcpc_program *program;
    const fcpc_batch *batch;
    const volatile int *stop;
    struct cells **kept; /* what the mask has answered */
    sim_profile profile;
    auto_report *report;
    auto_pairs pairs; /* of NULL: not known yet */
    uint32_t sizes[SIZES], size_count;
    uint32_t best;    /* FCP_NONE: none has been predicted */
} choosing;

/* --- the list ----------------------------------------------------------------------------------------------------- */

/* The program with the candidate's settings. False: its heads do not divide among the ranks. */
static bool apply(const struct fcpc_program *g, const auto_candidate *c, struct fcpc_program *out) {
    *out = *g;
    out->strategy = c->strategy;
    out->coalesce = 1; /* of those that do not take it */
    for (uint32_t i = 0; i < STRATEGY_PARAMS; i++)
        if (strategy_takes(c->strategy, i)) *strategy_param_of(out, i) = strategy_params[i].usual;
    if (g->coalesce && strategy_find_param(c->strategy, "coalesce") < STRATEGY_PARAMS) out->coalesce = g->coalesce;
    if (g->buffers) out->buffers = g->buffers;
    if (c->param < STRATEGY_PARAMS) *strategy_param_of(out, c->param) = c->value;
    if (c->block) out->block = c->block;
    if (!strategy_shares_heads(c->strategy)) return true;
    out->ring = c->ring; /* as sema/sharing.c has it */
    out->inside = c->ring ? g->gpus : g->nodes * g->gpus;
    out->together = c->strategy == FCP_STRATEGY_ULYSSES ? g->heads : out->inside;
    return g->heads % out->inside == 0;
}

static bool by_block(const struct fcpc_program *g, const auto_candidate *c) {
    struct fcpc_program settings;
    apply(g, c, &settings);
    const planning x = {.program = &settings};
    return strategy_of(&x)->by_block;
}

/* The sizes of blocks, the middle one first: that of the program; where auto decides, 2K, 4K and 1K, or as much less as
 * gives every rank ROOM blocks of the largest. */
static void choose_sizes(choosing *c) {
    const struct fcpc_program *g = c->program;
    const uint64_t *lengths = c->batch->lengths ? c->batch->lengths : g->lengths;
    const size_t count = c->batch->lengths ? c->batch->count : g->length_count;
    uint64_t tokens = 0, ranks = (uint64_t)g->nodes * g->gpus;
    uint32_t most = LARGEST;
    if (g->block != BLOCK_AUTO) {
        c->sizes[c->size_count++] = g->block;
        return;
    }
    for (size_t i = 0; lengths && i < count; i++)
        if (__builtin_add_overflow(tokens, lengths[i], &tokens)) tokens = UINT64_MAX; /* refused when it is planned */
    while (most > 4 * LEAST && tokens / ranks / most < ROOM) most /= 2;
    c->sizes[c->size_count++] = most / 2;
    c->sizes[c->size_count++] = most;
    c->sizes[c->size_count++] = most / 4;
}

static fcp_code list(choosing *c) {
    auto_report *r = c->report;
    r->at = ARENA_ZNEW(&r->memory, auto_candidate, LINES * SIZES);
    if (!r->at) return FCP_E_NO_MEMORY;
    for (int l = 0; l < LINES; l++) {
        if (!(c->program->among >> lines[l].strategy & 1)) continue;
        if (lines[l].ring && c->program->nodes == 1) continue; /* the same as without */
        auto_candidate made = {.strategy = lines[l].strategy, .even = lines[l].even, .ring = lines[l].ring,
                               .end = AUTO_FAR,
                               .value = lines[l].value, .param = STRATEGY_PARAMS};
        if (made.ring && c->program->effort == 1 && c->program->nodes > LONG_RING) made.end = AUTO_LONG;
        if (lines[l].param) made.param = strategy_find_param(made.strategy, lines[l].param);
        const uint32_t sizes = by_block(c->program, &made) ? c->size_count : 1;
        for (uint32_t i = 0; i < sizes; i++) {
            r->at[r->count] = made;
            if (sizes > 1 || by_block(c->program, &made)) r->at[r->count].block = c->sizes[i];
            r->count++;
        }
    }
    return FCP_OK;
}

/* --- one candidate ------------------------------------------------------------------------------------------------ */

static uint64_t best_time(const choosing *c) {
    return c->best == FCP_NONE ? UINT64_MAX : c->report->at[c->best].makespan;
}

static fcp_code predict(const choosing *c, const planning *x, uint64_t *out) {
    const sim_options options = {.stop = c->stop};
    arena memory = {0};
    sim_result result;
    fcp_error err = {0};
    fcp_code code = simulate(x->plan, &c->profile, &options, &memory, &result, &err);
    if (!code) *out = result.pass[FCP_FORWARD].makespan + result.pass[FCP_BACKWARD].makespan;
    arena_free(&memory);
    return code;
}

/* Is it worth scheduling, now that its routes are known? */
static fcp_code judge(choosing *c, planning *x, auto_candidate *made, bool *out_worth) {
    uint64_t memory;
    uint32_t rank;
    fcp_code code = auto_bound_routes(x, &c->profile, &made->bound, &memory, &rank);
    if (code) return code;
    *out_worth = made->bound.all < best_time(c);
    if (!*out_worth) made->end = AUTO_BOUND;
    if (memory <= x->program->memory_cap) return FCP_OK;
    *out_worth = false;
    made->end = AUTO_REFUSED;
    snprintf(made->why, sizeof made->why, "rank %u needs at least %llu bytes, cluster.memory allows %llu", rank,
             (unsigned long long)memory, (unsigned long long)x->program->memory_cap);
    return FCP_OK;
}

static fcp_code plan(choosing *c, planning *x, auto_candidate *made) {
    bool worth = false;
    fcp_code code = c->passes->run(x, AUTO_PLACE);
    if (!code && !c->pairs.of) code = auto_count_pairs(x, &c->report->memory, &c->pairs);
    if (!code) code = c->passes->run(x, AUTO_ROUTE);
    if (!code) code = judge(c, x, made, &worth);
    if (code || !worth) return code;
    code = c->passes->run(x, AUTO_PLAN);
    if (!code) code = predict(c, x, &made->makespan);
    if (!code) made->end = AUTO_SLOWER;
    return code;
}

/* Is it the candidate that the planner refuses, and not the batch? */
static bool of_candidate(fcp_code code) {
    return code == FCP_E_MEMORY_CAP || code == FCP_E_PLAN_SIZE || code == FCP_E_VALUE || code == FCP_E_HEADS;
}

/* Plans and predicts candidate number n, unless its bounds rule it out. */
static fcp_code try(choosing *c, uint32_t n) {
    auto_candidate *made = &c->report->at[n];
    struct fcpc_program settings;
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    if (!d) return FCP_E_NO_MEMORY;
    if (!apply(c->program, made, &settings)) {
        made->end = AUTO_REFUSED;
        snprintf(made->why, sizeof made->why, "%u heads do not divide among %u ranks", settings.heads, settings.inside);
        fcpc_diagnostics_free(d);
        return FCP_OK;
    }
    if (made->even && c->pairs.of) {
        auto_bound_even(&settings, &c->profile, &c->pairs, made->even, &made->bound);
        made->end = AUTO_BOUND;
        if (made->bound.all >= best_time(c)) {
            fcpc_diagnostics_free(d);
            return FCP_OK;
        }
    }
    planning x;
    c->passes->begin(&x, &settings, c->batch, c->stop, d);
    x.trial = true;
    x.kept = c->kept;
    fcp_code code = plan(c, &x, made);
    c->passes->end(&x);
    if (of_candidate(code)) {
        fcpc_diagnostic first = {.message = fcp_code_text(code)};
        if (fcpc_diagnostics_count(d)) fcpc_diagnostics_get(d, 0, &first);
        made->end = AUTO_REFUSED;
        snprintf(made->why, sizeof made->why, "%s", first.message);
        code = FCP_OK;
    }
    if (!code && made->makespan && made->makespan < best_time(c)) c->best = n;
    fcpc_diagnostics_free(d);
    return code;
}

/* --- all of them -------------------------------------------------------------------------------------------------- */

static bool is_first(const auto_report *r, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (r->at[i].strategy == r->at[n].strategy) return false;
    return true;
}

/* May candidate n, whose strategy has been tried, be among the best? */
static bool is_near(const choosing *c, uint32_t n) {
    const auto_report *r = c->report;
    uint64_t best = UINT64_MAX;
    bool refused = true;
    for (uint32_t i = 0; i < r->count; i++) {
        if (r->at[i].strategy != r->at[n].strategy) continue;
        if (r->at[i].makespan && r->at[i].makespan < best) best = r->at[i].makespan;
        if (i < n && r->at[i].end != AUTO_REFUSED && r->at[i].end != AUTO_FAR && r->at[i].end != AUTO_LONG)
            refused = false;
    }
    if (best == UINT64_MAX) return refused; /* its bound was too large; of refused ones another setting may do */
    return (unsigned __int128)best * 100 <= (unsigned __int128)best_time(c) * NEAR_PERCENT;
}

static bool same_setting(const auto_candidate *a, const auto_candidate *b) {
    return a->strategy == b->strategy && a->param == b->param && a->value == b->value && a->ring == b->ring;
}

static fcp_code try_all(choosing *c) {
    auto_report *r = c->report;
    bool tried[LINES * SIZES] = {false};
    fcp_code code = FCP_OK;
    enum { FIRST, SETTINGS, SIZE, REST };
    for (int step = FIRST; step <= REST; step++)
        for (uint32_t n = 0; n < r->count && !code; n++) {
            const bool middle = !r->at[n].block || r->at[n].block == c->sizes[0];
            bool wanted = !tried[n] && (r->at[n].end != AUTO_LONG || step == REST);
            if (step == FIRST) wanted &= is_first(r, n);
            else if (step == SETTINGS) wanted &= middle && (c->program->effort > 1 || is_near(c, n));
            else if (step == SIZE) wanted &= c->best != FCP_NONE && same_setting(&r->at[n], &r->at[c->best]);
            else wanted &= c->program->effort > 1 || c->best == FCP_NONE;
            if (!wanted) continue;
            tried[n] = true;
            code = try(c, n);
        }
    return code;
}

fcp_code auto_choose(const auto_passes *passes, const struct fcpc_program *program, const fcpc_batch *batch,
                     const volatile int *stop, diags *d, struct cells **kept, struct fcpc_program *out_settings,
                     auto_report *report) {
    choosing c = {.passes = passes, .program = program, .batch = batch, .stop = stop, .kept = kept,
                  .report = report, .best = FCP_NONE};
    fcp_error err = {0};
    char gpu[sizeof program->cluster.gpu + 1] = "";
    memcpy(gpu, program->cluster.gpu, sizeof program->cluster.gpu);
    fcp_code code = FCP_OK;
    if (program->profile) c.profile = *program->profile;
    else code = sim_profile_find(gpu, &c.profile, &err);
    if (code) {
        diag_error(d, code, SPAN_NONE, "%s", err.message);
        return code;
    }
    memcpy(report->profile, c.profile.name, sizeof report->profile);
    choose_sizes(&c);
    code = list(&c);
    if (code) return code;
    apply(program, &report->at[0], out_settings);
    code = try_all(&c);
    if (code == FCP_E_NO_MEMORY || code == FCP_E_INTERRUPTED || code == FCP_E_PROFILE) return code;
    if (code || c.best == FCP_NONE) return FCP_OK; /* the batch's error, or the first candidate's: planning it tells */
    report->chosen = c.best;
    report->at[c.best].end = AUTO_CHOSEN;
    apply(program, &report->at[c.best], out_settings);
    return FCP_OK;
}
