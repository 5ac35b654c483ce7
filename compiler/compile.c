/* compile.c: program and batch to verified plan: the list of passes, and what happens around each of them.
 *
 * A pass reads what earlier ones left in the planning (planning.h) and adds its part. Errors of the batch are the
 * user's and are reported where they are found. A plan that does not verify is a bug of ours: FCP_E_INTERNAL.
 */
#include "compiler/compile.h"
#include "runtime/plan/plan_check.h"
#include "runtime/verify/verify.h"

#include "compiler/blocks.h"
#include "compiler/capacity.h"
#include "compiler/lower/lower.h"
#include "compiler/choose_margin.h"
#include "compiler/place/place.h"
#include "compiler/place/strategy_table.h"
#include "compiler/price.h"
#include "compiler/problem/problem.h"
#include "compiler/problem/warn.h"
#include "runtime/base/both.h"
#include "runtime/base/clock.h"

typedef struct pass {
    fcp_code (*run)(planning *x);
    size_t time;  /* the member of fcpc_times that its seconds are added to */
    bool advises; /* it only warns: left out when a candidate is tried */
} pass;

static fcp_code verify(planning *x);

#define TIME(member) offsetof(fcpc_times, member)
static const pass passes[] = {
    /* The problem: which tokens, in which blocks, and which blocks see which. */
    {bind_lengths, TIME(classify)},         /* the batch's lengths, or the program's                  */
    {problem_check_slices, TIME(classify)}, /* slices reach no further than the longest sequence      */
    {bind_batch, TIME(classify)},           /* -> binding: fields and tables, laid out for this batch */
    {problem_check_time, TIME(classify)},   /* the mask takes no longer than the caller allows        */
    {problem_open, TIME(classify)},         /* -> problem: sequences                                  */
    {strategy_cut, TIME(classify)},         /*             pieces and blocks                          */
    {problem_tiles, TIME(classify)},        /*             tiles: pairs of blocks with allowed pairs  */
    {strategy_divide, TIME(classify)},      /*             blocks of which few rows are read by many  */
    {problem_check_score, TIME(classify)},  /* the score faults for no pair                           */
    {blocks_warn_heavy, TIME(classify), true}, /* warnings: a block that no placement can balance     */
    {warn_batch, TIME(classify), true},        /*           and what the mask does to this batch      */

    /* The placement: who owns each block and computes each tile; and so, what has to travel. */
    {strategy_place, TIME(place)},         /* -> placement                                         */
    {blocks_warn_idle, TIME(place), true}, /* warning: ranks without tokens                        */
    {place_warn_tolerance, TIME(place), true}, /* warning: work that is not as even as was asked   */
    {traffic_build, TIME(schedule)},       /* -> traffic: which block goes to which rank, and back */
    {reshuffle_build, TIME(schedule)},     /* -> reshuffle: the caller's layout to homes and back  */
    {price_warn, TIME(schedule), true},    /* warning: what the layout costs                       */

    /* The schedule: when, and into which slot. */
    {schedule_build, TIME(schedule)}, /* -> schedule: arrivals, stages, visits          */
    {slots_build, TIME(schedule)},    /* -> slots: a place for everything that arrives  */
    {capacity_check, TIME(schedule)}, /* the fullest rank's memory is within the cap    */
    {rounds_build, TIME(schedule)},   /* rounds of both passes, into the schedule       */

    /* The plan. */
    {lower, TIME(schedule)},        /* -> plan: tables, instructions, summary */
    {planning_own, TIME(schedule)}, /* the plan owns the memory of its tables */
    {verify, TIME(verify)},         /* ranks do what they must: it is proven  */
    {margin_choose, TIME(schedule)}, /* with which it is fastest; the proof does not depend on it */
};
enum { PASSES = sizeof passes / sizeof *passes };

static fcp_code verify(planning *x) {
    fcp_error err = {0};
    fcp_code code = fcp_plan_check_until(x->plan, x->stop, &err);
    if (!code) code = fcp_plan_verify(x->plan, x->stop, NULL, &err);
    if (!code || code == FCP_E_INTERRUPTED || code == FCP_E_NO_MEMORY) return code;
    return planning_fail(x, FCP_E_INTERNAL, SPAN_NONE, "the plan does not verify (%s): %s", fcp_code_name(err.code),
                         err.message);
}

/* Runs a pass. *now: when it begins, and then when it ended. Colouring has a time of its own, which passes add to
 * themselves. */
static fcp_code run(planning *x, const pass *p, double *now) {
    const double start = *now, coloured = x->times.colour;
    fcp_code code = planning_stopped(x) ? FCP_E_INTERRUPTED : p->run(x);
    arena_reset(&x->scratch);
    *now = fcp_clock();
    *(double *)((char *)&x->times + p->time) += *now - start - (x->times.colour - coloured);
    return code;
}

fcp_code compile_stretch(planning *x, compile_pass *after, compile_pass *last, bool advises) {
    int i = 0;
    double now = fcp_clock();
    fcp_code code = FCP_OK;
    if (after)
        while (passes[i++].run != after) {}
    for (bool done = false; i < PASSES && !done && !code; i++) {
        done = passes[i].run == last;
        if (advises || !passes[i].advises) code = run(x, &passes[i], &now);
    }
    return code;
}

fcp_code compile_one(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                     fcpc_diagnostics *d, const compile_watch *watch, fcpc_times *out_times, fcp_plan **out_plan) {
    double start = fcp_clock();
    planning x;
    fcp_both_begin(); /* one second thread for all passes */
    planning_begin(&x, program, batch, stop, d);
    x.strategy = watch ? watch->strategy : NULL;
    x.kept = watch ? watch->kept : NULL;
    x.soon = watch ? watch->soon : NULL;
    x.soon_context = watch ? watch->context : NULL;
    fcp_code code = compile_stretch(&x, NULL, NULL, true);
    if (batch->bound && x.placement) { /* for those who want figures: nothing is planned by it */
        double before = fcp_clock();
        fcp_code bound = strategy_bound(&x, &x.times.bytes_lower_bound);
        if (!code) code = bound;
        /* Blocks may be too heavy for the tolerance. Then the bound, which is of plans that keep to it, is not this
         * plan's. */
        if (!code && x.times.bytes_lower_bound > x.plan->summary->bytes_total) x.times.bytes_lower_bound = 0;
        start += fcp_clock() - before;
    }
    if (code && diag_first_code(d) == FCP_OK) diag_error(d, code, SPAN_NONE, "%s", fcp_code_text(code));
    if (watch && watch->see) watch->see(watch->context, &x);
    if (!code) *out_plan = x.plan;
    else fcp_plan_free(x.plan);
    planning_end(&x);
    fcp_both_end();
    x.times.total = x.times.parse + fcp_clock() - start;
    if (out_times) *out_times = x.times;
    return code;
}
