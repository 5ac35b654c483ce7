/* choose.c: strategy = auto and block = auto: lends auto/ the list of passes, and compiles what it chooses. Also counts
 * pairs alone.
 *
 * Requires: what compile.c requires.
 * Gives: the plan by what the program states, and by what auto/ chose of the rest.
 * Cost: that of the candidates, and of one plan.
 */
#include "compiler/compile.h"

#include <string.h>

#include "compiler/auto/auto.h"
#include "compiler/place/strategy_table.h"
#include "compiler/problem/problem.h"
#include "compiler/schedule/reshuffle.h"
#include "runtime/base/both.h"
#include "runtime/base/clock.h"

/* Where auto/ looks at a candidate: after these. */
static compile_pass *const looks[] = {
    [AUTO_CUT] = problem_check_score, [AUTO_PLACE] = strategy_place, [AUTO_ROUTE] = reshuffle_build,
    [AUTO_PLAN] = planning_own};

static fcp_code run_stretch(planning *x, auto_stretch which) {
    return compile_stretch(x, which ? looks[which - 1] : NULL, looks[which], false);
}

static void end_candidate(planning *x) {
    fcp_plan_free(x->plan);
    planning_end(x);
}

/* A strategy whose placement auto/ has changed. */
typedef struct moved {
    strategy strategy; /* first: planning.strategy points to it */
    const auto_moves *moves;
} moved;

static fcp_code place_moved(planning *x, const place_input *in, uint32_t *home) {
    const auto_moves *m = ((const moved *)x->strategy)->moves;
    (void)in;
    if (m->blocks != x->problem->block_count || m->tiles != x->problem->tile_count)
        return planning_fail(x, FCP_E_INTERNAL, SPAN_NONE, "auto moved other blocks than there are");
    memcpy(home, m->home, m->blocks * sizeof *home);
    return FCP_OK;
}

static fcp_code exec_moved(planning *x, const uint32_t *home, uint32_t *exec) {
    const auto_moves *m = ((const moved *)x->strategy)->moves;
    (void)home;
    memcpy(exec, m->exec, m->tiles * sizeof *exec);
    return FCP_OK;
}

static moved as_moved(const struct fcpc_program *settings, const auto_moves *moves) {
    const planning x = {.program = settings};
    moved by = {.strategy = *strategy_of(&x), .moves = moves};
    by.strategy.place = place_moved;
    by.strategy.given = true;
    by.strategy.exec = moves->exec ? exec_moved : NULL;
    return by;
}

fcp_code compile_look_ahead(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                            fcpc_diagnostics *d, const compile_watch *watch, problem_kept *kept) {
    planning x;
    planning_begin(&x, program, batch, stop, d);
    x.kept = kept;
    x.soon = watch ? watch->soon : NULL;
    x.soon_context = watch ? watch->context : NULL;
    fcp_code code = compile_stretch(&x, NULL, problem_check_time, true);
    planning_end(&x);
    return code;
}

fcp_code compile_batch(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                       fcpc_diagnostics *d, const compile_watch *watch, fcpc_times *out_times, fcp_plan **out_plan) {
    static const auto_passes lent = {planning_begin, run_stretch, planning_rest, end_candidate};
    const planning asked = {.program = program};
    const bool any = program->strategy == (fcp_strategy)STRATEGY_AUTO;
    if (!any && (program->block != BLOCK_AUTO || !strategy_of(&asked)->by_block))
        return compile_one(program, batch, stop, d, watch, out_times, out_plan);
    const double start = fcp_clock();
    struct fcpc_program settings;
    problem_kept kept = {0};
    auto_report own_report = {.count = 0}, *report = watch && watch->tried ? watch->tried : &own_report;
    fcp_both_begin(); /* one second thread for all candidates */
    fcp_code code = compile_look_ahead(program, batch, stop, d, watch, &kept);
    if (!code)
        code = (any ? auto_choose : auto_choose_block)(&lent, program, batch, stop, d, &kept, &settings, report);
    const double chosen = fcp_clock() - start;
    if (code && diag_first_code(d) == FCP_OK) diag_error(d, code, SPAN_NONE, "%s", fcp_code_text(code));
    compile_watch how = watch ? *watch : (compile_watch){.see = NULL};
    moved by;
    how.kept = &kept;
    if (!code && report->moves.kept) {
        by = as_moved(&settings, &report->moves);
        how.strategy = &by.strategy;
    }
    if (!code) {
        code = compile_one(&settings, batch, stop, d, &how, out_times, out_plan);
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

fcp_code compile_count(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                       fcpc_diagnostics *d, uint64_t *out_pairs) {
    planning x;
    planning_begin(&x, program, batch, stop, d);
    fcp_code code = compile_stretch(&x, NULL, problem_tiles, true);
    if (!code) *out_pairs = x.problem->pairs;
    planning_end(&x);
    return code;
}
