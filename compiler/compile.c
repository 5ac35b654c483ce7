/* compile.c: program and batch to verified plan: the list of passes, and what happens around each of them.
 *
 * A pass reads what earlier ones left in the planning (planning.h) and adds its part. Errors of the batch are the
 * user's and are reported where they are found. A plan that does not verify is a bug of ours: FCP_E_INTERNAL.
 */
#include "compiler/compile.h"

#include <stdlib.h>

#include "compiler/auto/auto.h"
#include "compiler/blocks.h"
#include "compiler/capacity.h"
#include "compiler/lower/lower.h"
#include "compiler/place/strategies.h"
#include "compiler/price.h"
#include "compiler/problem/warn.h"
#include "compiler/workspace.h"
#include "runtime/base/clock.h"
#include "runtime/base/sized.h"

typedef struct pass {
    fcp_code (*run)(planning *x);
    size_t time;  /* the member of fcpc_times that its seconds are added to */
    bool advises; /* it only warns: left out when a candidate is tried */
} pass;

static fcp_code own(planning *x);
static fcp_code verify(planning *x);

#define TIME(member) offsetof(fcpc_times, member)
static const pass passes[] = {
    /* The problem: which tokens, in which blocks, and which blocks see which. */
    {bind_lengths, TIME(classify)},         /* the batch's lengths, or the program's                  */
    {problem_check_slices, TIME(classify)}, /* slices reach no further than the longest sequence      */
    {bind_batch, TIME(classify)},           /* -> binding: fields and tables, laid out for this batch */
    {blocks_choose, TIME(classify)},        /* -> block: tokens of a block, where the program says auto */
    {problem_open, TIME(classify)},         /* -> problem: sequences                                  */
    {strategy_cut, TIME(classify)},         /*             pieces and blocks                          */
    {problem_tiles, TIME(classify)},        /*             tiles: pairs of blocks with allowed pairs  */
    {problem_check_score, TIME(classify)},  /* the score faults for no pair                           */
    {blocks_warn_heavy, TIME(classify), true},    /* warnings: a block that no placement can balance,       */
    {warn_batch, TIME(classify), true},           /*           what the mask does to this batch,            */

    /* The placement: who owns each block and computes each tile; and so, what has to travel. */
    {strategy_place, TIME(place)},     /* -> placement                                      */
    {blocks_warn_idle, TIME(place), true},   /* warning: ranks without tokens                     */
    {traffic_build, TIME(schedule)},   /* -> traffic: which KV block goes to which rank     */
    {reshuffle_build, TIME(schedule)}, /* -> reshuffle: the caller's layout to homes and back */
    {price_warn, TIME(schedule), true},      /* warning: what the layout costs                  */

    /* The schedule: when, and into which slot. */
    {schedule_build, TIME(schedule)}, /* -> schedule: arrivals, stages, visits          */
    {slots_build, TIME(schedule)},    /* -> slots: a place for everything that arrives  */
    {rounds_build, TIME(schedule)},   /* rounds of both passes, into the schedule       */
    {capacity_check, TIME(schedule)}, /* the fullest rank's memory is within the cap    */

    /* The plan. */
    {lower, TIME(schedule)}, /* -> plan: tables, instructions, summary */
    {own, TIME(schedule)},   /* the plan owns the memory of its tables */
    {verify, TIME(verify)},  /* and is proven right from the tables    */
};
enum { PASSES = sizeof passes / sizeof *passes };

/* Where strategy = auto looks at a candidate: after these, and after `own`. */
static fcp_code (*const looks[])(planning *x) = {
    [AUTO_PLACE] = strategy_place, [AUTO_ROUTE] = reshuffle_build, [AUTO_PLAN] = own};

static fcp_code own(planning *x) {
    fcp_error err = {0};
    if (!workspace_own(x->program->workspace, &x->memory, x->plan)) return FCP_E_NO_MEMORY;
    return fcp_plan_index(x->plan, &err);
}

static fcp_code verify(planning *x) {
    fcp_error err = {0};
    fcp_code code = fcp_plan_check_until(x->plan, x->stop, &err);
    if (!code) code = fcp_plan_verify(x->plan, x->stop, NULL, &err);
    if (!code || code == FCP_E_INTERRUPTED || code == FCP_E_NO_MEMORY) return code;
    return planning_fail(x, FCP_E_INTERNAL, SPAN_NONE, "the plan does not verify (%s): %s", fcp_code_name(err.code),
                         err.message);
}

/* Runs a pass. Colouring has a time of its own, which passes add to themselves. */
static fcp_code run(planning *x, const pass *p) {
    double start = fcp_clock(), coloured = x->times.colour;
    fcp_code code = planning_stopped(x) ? FCP_E_INTERRUPTED : p->run(x);
    arena_reset(&x->scratch);
    *(double *)((char *)&x->times + p->time) += fcp_clock() - start - (x->times.colour - coloured);
    return code;
}

static void begin(planning *x, const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                  diags *d) {
    *x = (planning){.program = program, .batch = batch, .stop = stop, .d = d, .shift = program_attach(program, d),
                    .block = program->block, .coalesce = program->coalesce, .times.parse = program->parse_seconds};
    x->memory = workspace_take(program->workspace, WORKSPACE_PLAN);
    x->work = workspace_take(program->workspace, WORKSPACE_WORK);
    x->scratch = workspace_take(program->workspace, WORKSPACE_SCRATCH);
}

/* Frees all but the plan. */
static void end(planning *x) {
    cells_free(x->cells);
    workspace_give(x->program->workspace, WORKSPACE_PLAN, &x->memory);
    workspace_give(x->program->workspace, WORKSPACE_WORK, &x->work);
    workspace_give(x->program->workspace, WORKSPACE_SCRATCH, &x->scratch);
}

/* The passes of a stretch, for a candidate. */
static fcp_code run_stretch(planning *x, auto_stretch which) {
    int i = 0;
    fcp_code code = FCP_OK;
    if (which)
        while (passes[i++].run != looks[which - 1]) {}
    for (bool last = false; !last && !code; i++) {
        last = passes[i].run == looks[which];
        if (!passes[i].advises) code = run(x, &passes[i]);
    }
    return code;
}

static void end_candidate(planning *x) {
    fcp_plan_free(x->plan);
    end(x);
}

/* One strategy. */
static fcp_code compile_one(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                            fcpc_diagnostics *d, const compile_watch *watch, fcpc_times *out_times,
                            fcp_plan **out_plan) {
    double start = fcp_clock();
    planning x;
    begin(&x, program, batch, stop, d);
    x.strategy = watch ? watch->strategy : NULL;
    fcp_code code = FCP_OK;
    for (int i = 0; i < PASSES && !code; i++) code = run(&x, &passes[i]);
    if (batch->bound && x.placement) { /* for those who want figures: nothing is planned by it */
        double before = fcp_clock();
        fcp_code bound = strategy_bound(&x, &x.times.bytes_lower_bound);
        if (!code) code = bound;
        start += fcp_clock() - before;
    }
    if (code && diag_first_code(d) == FCP_OK) diag_error(d, code, SPAN_NONE, "%s", fcp_code_text(code));
    if (watch && watch->see) watch->see(watch->context, &x);
    if (!code) *out_plan = x.plan;
    else fcp_plan_free(x.plan);
    end(&x);
    x.times.total = x.times.parse + fcp_clock() - start;
    if (out_times) *out_times = x.times;
    return code;
}

fcp_code compile_batch(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                       fcpc_diagnostics *d, const compile_watch *watch, fcpc_times *out_times, fcp_plan **out_plan) {
    static const auto_passes lent = {begin, run_stretch, end_candidate};
    if (program->strategy != (fcp_strategy)STRATEGY_AUTO)
        return compile_one(program, batch, stop, d, watch, out_times, out_plan);
    const double start = fcp_clock();
    struct fcpc_program settings;
    auto_report own_report = {.count = 0}, *report = watch && watch->tried ? watch->tried : &own_report;
    fcp_code code = auto_choose(&lent, program, batch, stop, d, &settings, report);
    const double chosen = fcp_clock() - start;
    if (code && diag_first_code(d) == FCP_OK) diag_error(d, code, SPAN_NONE, "%s", fcp_code_text(code));
    if (!code) code = compile_one(&settings, batch, stop, d, watch, out_times, out_plan);
    if (!code && out_times) {
        out_times->choose = chosen;
        out_times->total += chosen;
    }
    auto_report_free(&own_report);
    return code;
}

fcp_code compile_count(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                       fcpc_diagnostics *d, uint64_t *out_pairs) {
    planning x;
    fcp_code code = FCP_OK;
    begin(&x, program, batch, stop, d);
    for (int i = 0; !code && !(i && passes[i - 1].run == problem_tiles); i++) code = run(&x, &passes[i]);
    if (!code) *out_pairs = x.problem->pairs;
    end(&x);
    return code;
}

fcp_code fcpc_plan_batch(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                         fcpc_diagnostics *d, fcpc_times *out_times, fcp_plan **out_plan) {
    fcpc_diagnostics *unheard = d ? NULL : fcpc_diagnostics_new();
    if (!d && !unheard) return FCP_E_NO_MEMORY;
    fcpc_batch own;
    fcp_error err;
    fcp_code code = fcp_sized_read(&own, sizeof own, batch, "fcpc_batch", &err);
    if (code) diag_error(d ? d : unheard, code, SPAN_NONE, "%s", err.message);
    else code = compile_batch(program, &own, stop, d ? d : unheard, NULL, out_times, out_plan);
    fcpc_diagnostics_free(unheard);
    return code;
}

fcp_code fcpc_plan(const fcpc_program *program, const uint64_t *lengths, size_t count, const volatile int *stop,
                   fcpc_diagnostics *d, fcpc_times *out_times, fcp_plan **out_plan) {
    const fcpc_batch batch = {.size = sizeof batch, .lengths = lengths, .count = count};
    return fcpc_plan_batch(program, &batch, stop, d, out_times, out_plan);
}
