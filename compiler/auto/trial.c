/* trial.c: plans and predicts candidates, one or two at a time.
 *
 * Requires: candidates in the report.
 * Gives: in the report, the outcome of each candidate and which one is the best so far. The planning of the best one is
 *     kept, because its neighbours are derived from it.
 * Cost: a planning without proof and a prediction for each candidate that its bounds do not rule out.
 *
 * How two candidates are tried at the same time:
 *   1. Their blocks are cut one after the other, each with both threads. The reason is the mask: its answers for the
 *      first candidate are kept, and the second uses them again. With tokens = equal the placement asks the mask, too,
 *      so it also belongs to this step.
 *   2. They are placed, routed, scheduled and predicted at the same time, each on one thread.
 *   3. Both are compared with the candidate that was best before. So nothing depends on which is ready first, or on
 *      whether there is a second thread.
 */
#include "compiler/auto/auto.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/passes/pass_list.h"
#include "compiler/problem/problem.h"
#include "compiler/schedule/reshuffle.h"
#include "runtime/base/both.h"

uint32_t auto_value(const struct fcpc_program *g, const auto_candidate *c, uint32_t param) {
    const fcp_strategy by = auto_divides_by(c);
    const bool coalesce = param == strategy_find_param(by, "coalesce"),
               buffers = param == strategy_find_param(by, "buffers");
    const uint32_t usual = strategy_params[param].usual;
    for (uint32_t i = 0; i < c->settings; i++)
        if (c->set[i].param == param) return c->set[i].value;
    if (coalesce && g->coalesce) return g->coalesce;
    if (buffers && g->buffers) return g->buffers;
    return coalesce && auto_has_groups(c) ? program_rounds_between(usual, g->gpus) : usual;
}

bool auto_apply(const struct fcpc_program *g, const auto_candidate *c, struct fcpc_program *out) {
    *out = *g;
    if (c->block) out->block_found = g->block == BLOCK_AUTO, out->block = c->block;
    if (g->strategy != (fcp_strategy)STRATEGY_AUTO) return true; /* the program says all the rest */
    out->strategy = c->strategy;
    out->strategy_found = true;
    out->coalesce = 1; /* of those that do not take it */
    for (uint32_t i = 0; i < STRATEGY_PARAMS; i++)
        if (strategy_takes(auto_divides_by(c), i)) *strategy_param_of(out, i) = auto_value(g, c, i);
    if (c->no_relay) out->relay = false;
    if (!strategy_shares_heads(c->strategy)) return true;
    out->between = c->between; /* as sema/sharing.c has it */
    out->inside = c->between ? g->gpus : g->nodes * g->gpus;
    out->together = strategy_heads_together(out);
    return g->heads % out->inside == 0;
}

uint64_t auto_best_time(const auto_job *j) {
    return j->best == FCP_NONE ? UINT64_MAX : j->report->at[j->best].makespan;
}

bool auto_is_hasty(const auto_job *j, uint32_t effort) {
    return effort == 1 && j->base->x.problem->tile_count >= HEAVY_TILES;
}

/* --- what ends last ----------------------------------------------------------------------------------------------- */

auto_resource auto_keeps(const sim_rank *r) {
    static const auto_resource ports[FCP_FABRICS][2] = {
        [FCP_NET] = {[FCP_SEND] = AUTO_NET_SEND, [FCP_RECV] = AUTO_NET_RECEIVE},
        [FCP_LOCAL] = {[FCP_SEND] = AUTO_LOCAL_SEND, [FCP_RECV] = AUTO_LOCAL_RECEIVE}};
    auto_resource found = AUTO_ROUNDS;
    uint64_t most = r->end / 2;
    if (r->compute >= r->end - r->end / 10) return AUTO_COMPUTING;
    for (int fabric = 0; fabric < FCP_FABRICS; fabric++)
        for (int way = 0; way < 2; way++)
            if (r->busy[fabric][way] > most) {
                most = r->busy[fabric][way];
                found = ports[fabric][way];
            }
    return found;
}

/* Finds the rank that ends last, and what it mostly does. */
static auto_last ends_last(const sim_pass *pass, uint32_t ranks) {
    auto_last last = {.rank = 0};
    for (uint32_t r = 1; r < ranks; r++)
        if (pass->ranks[r].end > pass->ranks[last.rank].end) last.rank = r;
    last.what = auto_keeps(&pass->ranks[last.rank]);
    return last;
}

uint64_t auto_time(const struct fcpc_program *program, const sim_result *r) {
    const uint64_t layers = program->layer_count ? program->layers[program->layer].times : 1;
    uint64_t time = 0;
    for (int pass = 0; pass < FCP_PASSES; pass++)
        time += (r->pass[pass].layer ? r->pass[pass].layer : r->pass[pass].makespan) + r->pass[pass].recurrent / layers;
    return time;
}

/* --- one candidate ------------------------------------------------------------------------------------------------ */

/* Is the candidate's bound below the time to beat? If not, its outcome is AUTO_BOUND. */
static bool is_below(const auto_trial *t) {
    if (t->made->bound.all >= t->limit) t->made->end = AUTO_BOUND;
    return t->made->bound.all < t->limit;
}

/* Is the candidate worth scheduling? Finds its bounds, now that its routes are known. It is not if its bound is too
 * large or a rank would need more than the memory. */
static bool is_worth(auto_trial *t) {
    auto_candidate *made = t->made;
    uint64_t memory;
    uint32_t rank;
    t->code = auto_bound_routes(&t->x, &t->job->profile, t->counts, &made->bound, &memory, &rank);
    if (t->code) return false;
    if (memory > t->settings.memory_cap) {
        made->end = AUTO_REFUSED;
        snprintf(made->why, sizeof made->why, "rank %u needs at least %llu bytes, cluster.memory allows %llu", rank,
                 (unsigned long long)memory, (unsigned long long)t->settings.memory_cap);
        return false;
    }
    return is_below(t);
}

static void predict(void *context) {
    auto_trial *t = context;
    const uint64_t *linear = t->settings.linear;
    const sim_options options = {.stop = t->job->stop,
                                 .brief = true,
                                 .recurrent = true,
                                 .room = t->room,
                                 .counts = t->counts,
                                 .linear = {linear[FCP_FORWARD], linear[FCP_BACKWARD]}};
    fcp_error err = {0};
    if (!t->placed) t->code = passes_run(&t->x, problem_check_score, strategy_place);
    if (!t->code) t->made->whole = !t->x.placement->exec;
    strategy_bare bare = {0};
    if (!t->code && t->x.problem->block_count < t->x.problem->ranks) t->code = strategy_count_bare(&t->x, &bare);
    t->made->bare = bare.idle + bare.helping;
    if (!t->code && !t->routed) t->code = passes_run(&t->x, strategy_place, reshuffle_build);
    if (t->code || !(t->routed ? is_below(t) : is_worth(t))) return;
    t->code = passes_run(&t->x, reshuffle_build, planning_own);
    const sim_margins stated = {1, {t->settings.margin}},
                      *margins = t->settings.margins ? t->settings.margins : &stated;
    if (!t->code)
        t->code = sim_choose_margin(t->x.plan, margins, &t->job->profile, &options, &t->memory, &t->result,
                                    &t->made->margin, &err);
    if (t->code) return;
    t->made->makespan = auto_time(&t->settings, &t->result);
    t->made->last = ends_last(auto_longer(&t->result), t->x.problem->ranks);
    t->made->end = AUTO_SLOWER;
}

void auto_predict(auto_trial *t, uint32_t count) {
    if (count == 2 && t[0].placed && t[1].placed) {
        fcp_both(predict, &t[0], &t[1]);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        if (t[i].placed) predict(&t[i]);
}

static bool begin_trial(auto_job *j, auto_trial *t) {
    if (!(t->d = fcpc_diagnostics_new())) {
        t->code = FCP_E_NO_MEMORY;
        return false;
    }
    planning_begin(&t->x, &t->settings, j->batch, j->stop, t->d);
    arena_pool *pool = t->x.work.pool;
    t->memory.pool = t->own.memory.pool = t->room->scratch.pool = t->room->walks.pool = pool;
    j->kept.memory.pool = j->kept.memory_second.pool = pool;
    t->x.trial = true;
    t->x.kept = &j->kept;
    t->counts = &t->own;
    return true;
}

void auto_derive(auto_job *j, auto_trial *t, const auto_trial *of) {
    const planning *from = &of->x;
    if (!begin_trial(j, t)) return;
    const planning own = t->x;
    planning *x = &t->x;
    *x = *from;
    t->counts = of->counts;
    x->program = own.program, x->d = own.d, x->times = own.times, x->coalesce = own.coalesce;
    x->memory = own.memory, x->work = own.work, x->scratch = own.scratch, x->aside = own.aside;
    x->cells = NULL; /* that planning has them; and what it made after its placement is not this one's */
    x->traffic = NULL, x->reshuffle = NULL, x->schedule = NULL, x->slots = NULL, x->plan = NULL;
    t->problem = *from->problem;
    t->problem.program = &t->settings;
    t->problem.blocks = ARENA_NEW(&x->memory, fcp_block, t->problem.block_count); /* lowering writes to them */
    if (!t->problem.blocks) {
        t->code = FCP_E_NO_MEMORY;
        return;
    }
    memcpy(t->problem.blocks, from->problem->blocks, t->problem.block_count * sizeof *t->problem.blocks);
    t->placement = *from->placement;
    t->placement.relay &= t->settings.relay;
    x->problem = &t->problem;
    x->placement = &t->placement;
    t->placed = true;
}

/* Would `t`, with its settings, get the same placement as `of`? Only settings that the schedule alone reads may
 * differ. */
static bool has_placement(auto_trial *of, auto_trial *t) {
    struct fcpc_program *a = &t->settings, *b = of ? &of->settings : NULL;
    if (!b || a->strategy != b->strategy || a->block != b->block || a->between != b->between || (a->relay && !b->relay))
        return false;
    for (uint32_t i = 0; i < STRATEGY_PARAMS; i++)
        if (!strategy_params[i].schedules && strategy_takes(program_divides_by(a), i) &&
            *strategy_param_of(a, i) != *strategy_param_of(b, i))
            return false;
    return true;
}

/* Gives `t` the routes and bounds of `of`, whose placement it has, unless a setting differs that changes the routes.
 * There are two such settings: relay; and the length of stages, because relays depend on it (schedule/ways.c). */
static void share_routes(const auto_trial *of, auto_trial *t) {
    const struct fcpc_program *a = &t->settings, *b = &of->settings;
    if (a->relay != b->relay) return;
    if (a->relay && a->nodes > 1 && (a->coalesce != b->coalesce || a->divisions != b->divisions)) return;
    t->x.traffic = of->x.traffic;
    t->x.reshuffle = of->x.reshuffle;
    t->made->bound = of->made->bound;
    t->routed = true;
}

/* Does placing ask the mask once more? So it does where it cuts the blocks again, with tokens = equal, and where it
 * divides the heads between groups, if the mask tells heads apart. Two candidates share what the mask has answered
 * (problem_kept), so they are not placed at the same time then. */
static bool asks_again(const auto_trial *t) {
    const struct fcpc_program *settings = &t->settings;
    const bool divides = program_has_groups(settings) && t->x.problem->class_count;
    return divides || (settings->equal && !strategy_keeps_homes(settings));
}

/* May the candidate take less than the time to beat? This is asked before its blocks are cut. Two kinds can be judged
 * so early, by what the mask allows in each sequence: even cuts, and the strategy groups. All others may win. */
static bool may_win(const auto_job *j, auto_trial *t) {
    auto_candidate *made = t->made;
    if (made->even) auto_bound_even(&t->settings, &j->profile, &j->pairs, made->even, &made->bound);
    else if (!strategy_facts_of[made->strategy].packs_sequences) return true;
    else t->code = auto_bound_groups(&t->settings, &j->profile, &j->pairs, &made->bound);
    return !t->code && is_below(t);
}

/* Is the outcome of the candidate known without planning it? It is for fcp with split = off, if fcp may split blocks
 * but did not split any: both settings make the same plan. Then the outcome is copied. */
static bool is_known(const auto_report *r, auto_candidate *made) {
    const auto_setting off = {strategy_find_param(made->strategy, "split"), 0};
    if (made->settings != 1 || memcmp(&made->set[0], &off, sizeof off)) return false;
    for (const auto_candidate *c = r->at; c < r->at + r->count; c++)
        if (c->strategy == made->strategy && !c->settings && c->block == made->block && c->whole && c->bound.all) {
            made->end = c->end, made->bound = c->bound, made->makespan = c->makespan, made->last = c->last;
            made->margin = c->margin;
            return made->spread = true;
        }
    return false;
}

/* Does the budget allow the candidate, beside the *work of others? Adds its own to *work. One that would take far
 * longer than the best, or than the one beside which it would be the first, is passed over. */
static bool is_affordable(auto_job *j, auto_trial *t, const auto_trial *of, uint64_t *work) {
    if (!j->report->budget) return true;
    const uint64_t own = of ? of->made->late : auto_estimate(j, t->made);
    const bool beside = *work > 0;
    const uint64_t usual = j->base ? j->base->made->work : *work;
    if (!of && usual && own > WORK_TOO_LONG && own / TOO_LONG_TIMES > usual) {
        t->made->end = AUTO_OVER;
        return false;
    }
    *work += own;
    return auto_may_spend(j, *work, beside);
}

/* Plans a candidate as far as the mask is asked: up to blocks and tiles; with tokens = equal, also the placement. If
 * the base or the rival has the same placement, that is taken over instead. Nothing is done if the budget does not
 * allow it, beside the *work of others that has not been counted yet. */
static void cut_trial(auto_job *j, auto_trial *t, uint64_t *work) {
    if (is_known(j->report, t->made)) return;
    if (!auto_apply(j->program, t->made, &t->settings)) {
        t->made->end = AUTO_REFUSED;
        snprintf(t->made->why, sizeof t->made->why, "%u head%s not divide among %u ranks", t->settings.heads,
                 t->settings.heads == 1 ? " does" : "s do", t->settings.inside);
        return;
    }
    if (j->pairs.of && !may_win(j, t)) return;
    auto_trial *of = has_placement(j->base, t) ? j->base : has_placement(j->rival, t) ? j->rival : NULL;
    if (!is_affordable(j, t, of, work)) return;
    if (of) {
        auto_derive(j, t, of);
        t->of = of;
        t->ready = t->placed;
        if (t->ready) share_routes(of, t);
        return;
    }
    if (!begin_trial(j, t)) return;
    t->x.alone = true;
    t->code = passes_run(&t->x, NULL, problem_check_score);
    if (!t->code) {
        const problem *p = t->x.problem;
        t->made->tiles = p->tile_count;
        t->made->heavy = (unsigned __int128)p->heaviest * program_places(&t->settings) > p->pairs;
    }
    if (!t->code && asks_again(t)) {
        t->code = passes_run(&t->x, problem_check_score, strategy_place);
        t->placed = !t->code;
    }
    t->x.alone = false;
    t->ready = !t->code;
}

/* Does the error belong to this candidate alone, so that others may still be planned? So do a plan that is too large,
 * heads that do not divide, and memory that is foreseen not to do. FCP_E_NO_MEMORY without a message is an error of the
 * batch. */
static bool of_candidate(const auto_trial *t) {
    return t->code == FCP_E_MEMORY_CAP || t->code == FCP_E_PLAN_SIZE || t->code == FCP_E_VALUE ||
           t->code == FCP_E_HEADS || (t->code == FCP_E_NO_MEMORY && t->d && fcpc_diagnostics_count(t->d));
}

static void forgive(auto_trial *t) {
    if (!t->code || !of_candidate(t)) return;
    fcpc_diagnostic first = {.message = fcp_code_text(t->code)};
    if (fcpc_diagnostics_count(t->d)) fcpc_diagnostics_get(t->d, 0, &first);
    t->made->end = AUTO_REFUSED;
    snprintf(t->made->why, sizeof t->made->why, "%s", first.message);
    t->code = FCP_OK;
}

void auto_finish(auto_trial *t) {
    if (t->d) {
        fcp_plan_free(t->x.plan);
        passes_end(&t->x);
        fcpc_diagnostics_free(t->d);
    }
    arena_free(&t->memory);
    arena_free(&t->own.memory);
    t->d = NULL;
}

static void forget_trial(auto_trial **t) {
    if (*t) auto_finish(*t);
    free(*t);
    *t = NULL;
}

void auto_forget(auto_job *j, problem_kept *out_kept) {
    forget_trial(&j->base);
    forget_trial(&j->rival);
    arena_free(&j->memory);
    *out_kept = j->kept;
    j->kept = (problem_kept){0};
    for (int i = 0; i < 2; i++) sim_room_free(&j->room[i]);
}

/* Moves the planning of a trial to *out, so that later candidates can share its placement. */
static fcp_code keep_planning(auto_trial *t, auto_trial **out) {
    auto_trial *kept = malloc(sizeof *kept);
    if (!kept) return FCP_E_NO_MEMORY;
    *kept = *t;
    kept->memory = (arena){0};
    kept->counts = &kept->own;
    t->own = (sim_counts){0};
    kept->x.program = &kept->settings;
    kept->x.problem->program = &kept->settings;
    planning_rest(&kept->x);
    t->d = NULL;
    forget_trial(out);
    *out = kept;
    return FCP_OK;
}

bool auto_is_rival(const auto_job *j, const auto_candidate *c) {
    return c->makespan && !auto_is_like(c, &j->report->at[j->best]) &&
           c->makespan / RIVAL_PERCENT * 100 <= auto_best_time(j);
}

/* Notes that candidate n, planned by t, is the best now. The job's base becomes the planning whose placement n has: t's
 * own, or the one from which t was derived. The base before it stays as the rival if it belongs to another strategy and
 * is nearly as fast. */
static fcp_code take_best(auto_job *j, auto_trial *t, uint32_t n) {
    j->best = n;
    arena_free(&j->memory);
    j->memory = t->memory;
    j->result = t->result;
    t->memory = (arena){0};
    if (t->of == j->base && j->base) return FCP_OK;
    auto_trial *before = j->base;
    if (t->of) {
        j->base = j->rival;
        j->rival = before;
        return FCP_OK;
    }
    if (before && auto_is_rival(j, before->made)) {
        forget_trial(&j->rival);
        j->rival = before;
        j->base = NULL;
    }
    return keep_planning(t, &j->base);
}

/* Keeps the planning of a candidate that is not the best as the rival, if it is one, has a placement of its own, and is
 * faster than the rival so far. */
static fcp_code keep_rival(auto_job *j, auto_trial *t) {
    if (j->best == FCP_NONE || t->of || !auto_is_rival(j, t->made)) return FCP_OK;
    const auto_candidate *known = j->rival ? j->rival->made : NULL;
    if (known && auto_is_rival(j, known) && known->makespan <= t->made->makespan) return FCP_OK;
    return keep_planning(t, &j->rival);
}

fcp_code auto_try(auto_job *j, const uint32_t *n, uint32_t count) {
    auto_trial t[2] = {{.job = j, .room = &j->room[0]}, {.job = j, .room = &j->room[1]}};
    fcp_code code = FCP_OK;
    uint64_t work = 0;
    for (uint32_t i = 0; i < count; i++) {
        t[i].made = &j->report->at[n[i]];
        t[i].limit = auto_best_time(j);
        if (t[i].made->found) t[i].limit -= t[i].limit / GAIN_PART;
    }
    for (uint32_t i = 0; i < count && !j->report->spent; i++) cut_trial(j, &t[i], &work);
    if (count == 2 && t[0].ready && t[1].ready) {
        fcp_both(predict, &t[0], &t[1]);
    } else {
        for (uint32_t i = 0; i < count; i++) {
            if (!t[i].ready) continue;
            t[i].x.alone = true;
            predict(&t[i]);
            t[i].x.alone = false;
        }
    }
    for (uint32_t i = 0; i < count && !code && !j->pairs.of; i++)
        if (t[i].ready && !t[i].code) code = auto_count_pairs(&t[i].x, &j->report->memory, &j->pairs);
    const uint64_t before = auto_best_time(j);
    uint32_t best = FCP_NONE;
    for (uint32_t i = 0; i < count && !code; i++) {
        auto_count_work(&t[i]);
        forgive(&t[i]);
        code = t[i].code;
        if (!code && t[i].made->makespan && t[i].made->makespan < (best == FCP_NONE ? before : t[best].made->makespan))
            best = i;
    }
    if (!code && best != FCP_NONE) code = take_best(j, &t[best], n[best]);
    if (!code && best != FCP_NONE && before == UINT64_MAX) auto_note_first(j);
    for (uint32_t i = 0; i < count && !code; i++)
        if (i != best) code = keep_rival(j, &t[i]);
    for (uint32_t i = 0; i < count; i++) auto_finish(&t[i]);
    return code;
}
