/* pass_list.c: lists the passes and runs them. One of them proves that the plan is right.
 *
 * Requires: a checked program and a batch.
 * Gives: a verified plan. Each pass reads what earlier ones have left in the planning (planning.h), adds its part,
 *     and reports errors of the batch. A plan that does not verify is a mistake of the compiler: FCP_E_INTERNAL.
 */
#include "compiler/passes/pass_list.h"

#include "compiler/lower/lower.h"
#include "compiler/passes/strategy_table.h"
#include "compiler/problem/problem.h"
#include "compiler/recurrent/recurrent_make.h"
#include "runtime/base/clock.h"
#include "runtime/plan/plan_check.h"
#include "runtime/verify/verify.h"

typedef struct entry {
    pass_function *run;
    size_t time; /* the member of fcpc_times that its seconds are added to */
} entry;

static fcp_code verify(planning *x);

#define TIME(member) offsetof(fcpc_times, member)
static const entry passes[] = {
    /* The problem: which tokens, in which blocks, and which blocks see which. */
    {bind_lengths, TIME(classify)},         /* the batch's lengths, or the program's                  */
    {problem_check_slices, TIME(classify)}, /* slices reach no further than the longest sequence      */
    {bind_batch, TIME(classify)},           /* -> binding: fields and tables, laid out for this batch */
    {problem_check_time, TIME(classify)},   /* the mask takes no longer than the caller allows        */
    {problem_open, TIME(classify)},         /* -> problem: sequences                                  */
    {strategy_cut, TIME(classify)},         /*             pieces and blocks                          */
    {problem_tiles, TIME(classify)},        /*             tiles: pairs of blocks with allowed pairs  */
    {strategy_divide, TIME(classify)},      /*             blocks of which few rows are read by many  */
    {masks_divide, TIME(classify)},         /*             the same for the other masks of `layers`   */
    {problem_check_score, TIME(classify)},  /* the score faults for no pair                           */

    /* The placement: who owns each block and computes each tile; and so, what has to travel. */
    {masks_find_work, TIME(place)},    /* -> other_work: of each block under other masks       */
    {strategy_place, TIME(place)},     /* -> placement                                         */
    {traffic_build, TIME(schedule)},   /* -> traffic: which block goes to which rank, and back */
    {reshuffle_build, TIME(schedule)}, /* -> reshuffle: the caller's layout to homes and back  */

    /* The schedule: when, and into which slot. */
    {schedule_build, TIME(schedule)}, /* -> schedule: arrivals, stages, visits          */
    {slots_build, TIME(schedule)},    /* -> slots: a place for everything that arrives  */
    {capacity_check, TIME(schedule)}, /* the fullest rank's memory is within the cap    */
    {rounds_build, TIME(schedule)},   /* rounds of both passes, into the schedule       */

    /* The plan. */
    {lower, TIME(schedule)},           /* -> plan: tables, instructions, summary                        */
    {recurrent_build, TIME(schedule)}, /*       what layers that recur need of other ranks              */
    {planning_own, TIME(schedule)},    /* the plan owns the memory of its tables                        */
    {verify, TIME(verify)},            /* ranks do what they must: it is proven                         */
    {margin_choose, TIME(schedule)},   /* with which it is fastest; the proof does not depend on it     */
};
enum { PASSES = sizeof passes / sizeof *passes };

static fcp_code verify(planning *x) {
    fcp_error err = {0};
    fcp_code code = fcp_plan_check(x->plan, x->stop, &err);
    if (!code) code = fcp_plan_verify(x->plan, x->stop, NULL, &err);
    if (!code || code == FCP_E_INTERRUPTED || code == FCP_E_NO_MEMORY) return code;
    return planning_fail(x, FCP_E_INTERNAL, SPAN_NONE, "the plan does not verify (%s): %s", fcp_code_name(err.code),
                         err.message);
}

/* Runs a pass and adds its seconds to the given field of x->times. Edge colouring is timed by itself (times.colour), so
 * its part is left out of the pass that calls it. */
static fcp_code run_timed(planning *x, pass_function *run, size_t time) {
    const double start = fcp_clock(), coloured = x->times.colour;
    fcp_code code = planning_stopped(x) ? FCP_E_INTERRUPTED : run(x);
    arena_reset(&x->scratch);
    *(double *)((char *)&x->times + time) += fcp_clock() - start - (x->times.colour - coloured);
    return code;
}

static int find_pass(pass_function *which) {
    int i = 0;
    while (passes[i].run != which) i++;
    return i;
}

fcp_code passes_run(planning *x, pass_function *after, pass_function *last) {
    const int end = last ? find_pass(last) + 1 : PASSES;
    fcp_code code = FCP_OK;
    for (int i = after ? find_pass(after) + 1 : 0; i < end && !code; i++)
        code = run_timed(x, passes[i].run, passes[i].time);
    return code;
}

fcp_code passes_advise(planning *x, pass_function *after, pass_function *advice) {
    return run_timed(x, advice, passes[find_pass(after)].time);
}

void passes_end(planning *x) {
    problem_close_mask(x, &x->cells);
    planning_end(x);
}
