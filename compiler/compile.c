/* compile.c: makes a plan of a program and a batch.
 *
 * Requires: a checked program.
 * Gives: a verified plan, and warnings about it. If it does not fit the memory: an error, with hints.
 * Cost: that of the passes. With strategy = auto or block = auto, also that of the candidates that are tried first.
 */
#include "compiler/compile.h"
#include "compiler/advice/advise.h"
#include "compiler/auto/auto.h"
#include "compiler/passes/given.h"
#include "compiler/passes/strategy_table.h"
#include "compiler/problem/problem.h"
#include "compiler/problem/warn.h"
#include "compiler/schedule/reshuffle.h"
#include "runtime/base/both.h"
#include "runtime/base/clock.h"
#include "runtime/plan/plan_summary.h"

/* What the user is told, as soon as the passes up to `last` have run. */
static const struct stretch {
    pass_function *last, *advice[2];
} stretches[] = {
    {problem_check_score, {advise_heavy_blocks, warn_batch}},    /* too heavy blocks; what the mask leaves out */
    {strategy_place, {advise_idle_ranks, place_warn_tolerance}}, /* ranks without tokens; work less even than asked */
    {reshuffle_build, {advise_layout}},                          /* what the layout costs */
    {NULL, {NULL}},
};
enum { STRETCHES = sizeof stretches / sizeof *stretches };

static fcp_code plan_and_advise(planning *x) {
    fcp_code code = FCP_OK;
    for (int i = 0; i < STRETCHES && !code; i++) {
        const struct stretch *s = &stretches[i];
        code = passes_run(x, i ? stretches[i - 1].last : NULL, s->last);
        for (int k = 0; k < 2 && s->advice[k] && !code; k++) code = passes_advise(x, s->last, s->advice[k]);
    }
    if (code != FCP_E_MEMORY_CAP) return code;
    code = advise_memory(x);
    return code ? code : FCP_E_MEMORY_CAP;
}

/* Finds a lower bound on the bytes that any plan of this batch moves, if the caller asks for figures. The bound holds
 * for plans whose loads stay within the tolerance. If some blocks are too heavy for that, this plan may move fewer
 * bytes than the bound, and then no bound is stated. */
static fcp_code find_bound(planning *x) {
    fcp_code code = strategy_bound(x, &x->times.bytes_lower_bound);
    if (!code && x->plan && x->times.bytes_lower_bound > x->plan->summary->bytes_total) x->times.bytes_lower_bound = 0;
    return code;
}

static void begin_planning(planning *x, const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                           fcpc_diagnostics *d, const compile_watch *watch) {
    planning_begin(x, program, batch, stop, d);
    if (!watch) return;
    x->soon = watch->soon;
    x->soon_context = watch->context;
}

/* Plans with the settings that the program states. watch may not be NULL; it may replace the strategy. */
static fcp_code compile_stated(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                               fcpc_diagnostics *d, const compile_watch *watch, problem_kept *kept,
                               fcpc_times *out_times, fcp_plan **out_plan) {
    double start = fcp_clock();
    planning x;
    fcp_both_begin(); /* one second thread for all passes */
    begin_planning(&x, program, batch, stop, d, watch);
    x.strategy = watch->strategy;
    x.others = watch->others;
    x.kept = kept;
    fcp_code code = plan_and_advise(&x);
    if (batch->bound && x.placement) {
        const double before = fcp_clock();
        fcp_code bound = find_bound(&x);
        if (!code) code = bound;
        start += fcp_clock() - before;
    }
    if (code && diag_first_code(d) == FCP_OK) diag_error(d, code, SPAN_NONE, "%s", fcp_code_text(code));
    if (watch->see) watch->see(watch->context, &x);
    if (!code) *out_plan = x.plan;
    else fcp_plan_free(x.plan);
    passes_end(&x);
    fcp_both_end();
    x.times.total = x.times.parse + fcp_clock() - start;
    if (out_times) *out_times = x.times;
    return code;
}

fcp_code compile_first(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                       fcpc_diagnostics *d, const compile_watch *watch, struct problem_kept *kept, pass_function *last,
                       uint64_t *out_pairs) {
    planning x;
    begin_planning(&x, program, batch, stop, d, watch);
    x.kept = kept;
    fcp_code code = passes_run(&x, NULL, last);
    if (!code && out_pairs) *out_pairs = x.problem->pairs;
    passes_end(&x);
    return code;
}

/* Plans with the settings that compiler/auto chooses. */
static fcp_code compile_chosen(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                               fcpc_diagnostics *d, const compile_watch *watch, fcpc_times *out_times,
                               fcp_plan **out_plan) {
    const double start = fcp_clock();
    struct fcpc_program settings;
    problem_kept kept = {0};
    auto_report own_report = {.count = 0}, *report = watch->tried ? watch->tried : &own_report;
    fcp_both_begin(); /* one second thread for all candidates */
    fcp_code code = compile_first(program, batch, stop, d, watch, &kept, problem_check_time, NULL);
    if (!code) code = auto_choose(program, batch, stop, d, &kept, &settings, report);
    const double chosen = fcp_clock() - start;
    if (code && diag_first_code(d) == FCP_OK) diag_error(d, code, SPAN_NONE, "%s", fcp_code_text(code));
    if (!code) {
        const auto_moves *m = &report->moves;
        given by;
        compile_watch how = *watch;
        if (m->kept) {
            by = given_placement(strategy_named(program_divides_by(&settings)), m->home, m->blocks, m->exec, m->tiles);
            how.strategy = &by.strategy;
        }
        code = compile_stated(&settings, batch, stop, d, &how, &kept, out_times, out_plan);
        if (code && report->at[report->chosen].end == AUTO_REFUSED) auto_hint_refused(report, d);
    }
    fcp_both_end();
    problem_kept_free(&kept);
    if (!code && out_times) {
        out_times->choose = chosen;
        out_times->total += chosen;
    }
    auto_report_free(&own_report);
    return code;
}

fcp_code compile_batch(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                       fcpc_diagnostics *d, const compile_watch *watch, fcpc_times *out_times, fcp_plan **out_plan) {
    const compile_watch none = {.see = NULL};
    if (!watch) watch = &none;
    if (program->strategy == (fcp_strategy)STRATEGY_AUTO ||
        (program->block == BLOCK_AUTO && strategy_named(program_divides_by(program))->by_block))
        return compile_chosen(program, batch, stop, d, watch, out_times, out_plan);
    return compile_stated(program, batch, stop, d, watch, NULL, out_times, out_plan);
}
