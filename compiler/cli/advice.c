/* advice.c: warnings of `fcpc sim` that name a setting by which the plan would take less time or memory.
 *
 * Example: a rank waits 0.8 of 6.1 ms while the caller's contiguous layout is turned into blocks. With layout = planned
 *          the plan takes 5.3 ms. So the warning names that key, and 13 %.
 * Method:  1. Look at figures of the plan that are known already. If they are good, there is no warning.
 *          2. Plan and predict the program once more with another setting.
 *          3. If that gains something, the warning says how much. If not, there is none, except about memory that is
 *             nearly full.
 * Cost:    at most eight more plans.
 */
#include <inttypes.h>
#include <stdarg.h>

#include "compiler/base/diag.h"
#include "compiler/cli/candidate.h"
#include "compiler/simulate/margin.h"
#include "runtime/plan/enum_names.h"
#include "runtime/plan/fabrics.h"
#include "runtime/plan/plan.h"

#define WORTH_IT 0.02  /* the least gain that is reported, as a part of the time */
#define IDLE 0.05      /* how much more than the mean the busiest rank may compute, as a part of the time */
#define NEAR_CAP 0.9   /* memory that is nearly full, as a part of it */
#define LESS 0.98      /* what counts as less memory */

typedef struct advice {
    const candidate_how *how;
    const cmd_input *opened;
    const fcp_plan *plan;
    const candidate *own;
    fcpc_diagnostics *d;
} advice;

static double seconds(uint64_t picoseconds) { return (double)picoseconds / (double)SIM_SECOND; }

/* The time of both passes together, in seconds. */
static double time_of(const candidate *c) {
    return seconds(c->pass[FCP_FORWARD].sim.makespan) + seconds(c->pass[FCP_BACKWARD].sim.makespan);
}
static double exposed(const candidate *c, sim_reason reason) {
    return seconds(c->pass[FCP_FORWARD].sim.exposed[reason]) + seconds(c->pass[FCP_BACKWARD].sim.exposed[reason]);
}

/* Predicts the program with one more setting. *out_there: it could be planned. */
static fcp_code try_setting(const advice *a, const char *name, uint64_t number, const char *word, candidate *out,
                            bool *out_there, fcp_error *err) {
    char value[32];
    sim_profile profile;
    snprintf(value, sizeof value, "%" PRIu64, number);
    const char *const setting[1][2] = {{name, word ? word : value}};
    candidate_how plain = {.line = a->how->line, .options = a->how->options};
    *out = (candidate){0};
    fcp_code code = candidate_try(&plain, a->opened, setting, 1, &profile, out, err);
    *out_there = !code && !out->error.code;
    fcpc_diagnostics_free(out->diagnostics);
    return code;
}

/* Adds a warning: what is bad, and what the setting gains. */
__attribute__((format(printf, 4, 5))) static void warn(const advice *a, const char *setting, const candidate *other,
                                                       const char *format, ...) {
    char what[256];
    va_list args;
    double own = time_of(a->own), with = time_of(other);
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    diag_warning(a->d, SPAN_NONE, "%s; with %s all takes %.4g ms instead of %.4g, %.1f %% less", what, setting,
                 1e3 * with, 1e3 * own, 100 * (own - with) / own);
}

static bool worth(const advice *a, const candidate *other) { return time_of(other) < (1 - WORTH_IT) * time_of(a->own); }

static fcp_code about_layout(const advice *a, fcp_error *err) {
    double waits = exposed(a->own, SIM_RESHUFFLE);
    if (waits < WORTH_IT * time_of(a->own) || a->plan->problem->layout == FCP_LAYOUT_PLANNED) return FCP_OK;
    candidate other;
    bool there;
    fcp_code code = try_setting(a, "plan.layout", 0, fcp_layout_names[FCP_LAYOUT_PLANNED], &other, &there, err);
    if (code || !there || !worth(a, &other)) return code;
    warn(a, "layout = planned", &other,
         "the reshuffle is not hidden: a rank waits %.4g ms for the caller's layout, %s, to become blocks and back",
         1e3 * waits, fcp_layout_names[a->plan->problem->layout]);
    return FCP_OK;
}

static fcp_code about_blocks(const advice *a, fcp_error *err) {
    double idle = 0;
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        const uint64_t *bound = a->own->pass[pass].sim.bound;
        idle += seconds(bound[SIM_BOUND_COMPUTE]) - seconds(bound[SIM_BOUND_MEAN]);
    }
    if (idle < IDLE * time_of(a->own)) return FCP_OK;
    candidate best = {0};
    uint64_t least = 0;
    for (uint64_t block = a->plan->problem->block / 2; block >= FCP_CELL && block >= a->plan->problem->block / 4;
         block /= 2) {
        candidate other;
        bool there;
        fcp_code code = try_setting(a, "plan.block", block, NULL, &other, &there, err);
        if (code) return code;
        if (!there || !worth(a, &other) || (least && time_of(&other) >= time_of(&best))) continue;
        best = other;
        least = block;
    }
    if (!least) return FCP_OK;
    char setting[40];
    snprintf(setting, sizeof setting, "block = %" PRIu64, least);
    warn(a, setting, &best,
         "blocks of %u tokens leave ranks idle: the busiest rank computes %.4g ms more than the mean",
         a->plan->problem->block, 1e3 * idle);
    return FCP_OK;
}

static fcp_code about_margin(const advice *a, const sim_profile *profile, fcp_error *err) {
    const fcp_problem *p = a->plan->problem;
    const uint64_t moved = sim_margin_moves(p->margin, fcp_two_fabrics(p), profile), inter = a->plan->cluster->inter;
    const sim_options brief = {.brief = true};
    sim_margins margins;
    sim_result result;
    arena memory = {0};
    uint32_t best;
    sim_margins_list(p->nodes, p->gpus, a->plan->cluster, profile, &margins);
    fcp_code code = sim_choose_margin(a->plan, &margins, profile, &brief, &memory, &result, &best, err);
    arena_free(&memory);
    if (code || !profile->channel || best == p->margin) return code;
    candidate other;
    bool there;
    code = try_setting(a, "plan.margin", best, NULL, &other, &there, err);
    if (code || !there || !worth(a, &other)) return code;
    char setting[40];
    snprintf(setting, sizeof setting, "margin = %" PRIu32, best);
    if (best < p->margin)
        warn(a, setting, &other, "margin = %u leaves attention fewer multiprocessors than the network is worth",
             p->margin);
    else warn(a, setting, &other,
              "margin = %u is too small for the network: it moves about %.4g of the %.4g GB/s that a port has",
              p->margin, 1e-9 * (double)(moved < inter ? moved : inter), 1e-9 * (double)inter);
    return FCP_OK;
}

static fcp_code about_memory(const advice *a, fcp_error *err) {
    const fcp_problem *p = a->plan->problem;
    const double peak = (double)a->own->summary.memory_peak_bytes, cap = (double)p->memory_cap;
    if (peak < NEAR_CAP * cap) return FCP_OK;
    const struct { const char *name; uint64_t value; bool can; } settings[] = {
        {"coalesce", p->coalesce / 2, p->coalesce > 1}, {"buffers", p->buffers - 1, p->buffers > 1},
        {"plan.block", p->block / 2, p->block >= 2 * FCP_CELL}};
    char helps[120] = "";
    for (size_t i = 0; i < sizeof settings / sizeof *settings && !*helps; i++) {
        candidate other;
        bool there = false;
        fcp_code code =
            settings[i].can ? try_setting(a, settings[i].name, settings[i].value, NULL, &other, &there, err) : FCP_OK;
        if (code) return code;
        if (there && (double)other.summary.memory_peak_bytes < LESS * peak)
            snprintf(helps, sizeof helps,
                     "; with %s = %" PRIu64 " it is %.4g GB, and all takes %.4g ms instead of %.4g", settings[i].name,
                     settings[i].value, 1e-9 * (double)other.summary.memory_peak_bytes, 1e3 * time_of(&other),
                     1e3 * time_of(a->own));
    }
    diag_warning(a->d, SPAN_NONE, "the largest rank needs %.4g of %.4g GB, %.0f %%%s", 1e-9 * peak, 1e-9 * cap,
                 100 * peak / cap, helps);
    return FCP_OK;
}

fcp_code candidate_advise(const candidate_how *how, const cmd_input *opened, const fcp_plan *plan,
                          const sim_profile *profile, const candidate *own, fcpc_diagnostics *d, fcp_error *err) {
    const advice a = {how, opened, plan, own, d};
    if (plan->problem->ranks < 2) return FCP_OK;
    fcp_code code = about_layout(&a, err);
    if (!code) code = about_blocks(&a, err);
    if (!code) code = about_margin(&a, profile, err);
    return code ? code : about_memory(&a, err);
}
