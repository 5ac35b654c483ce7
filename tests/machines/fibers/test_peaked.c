/* test_peaked.c: the kernels on fibers, in programs whose softmax is flat or peaked, with scales of both signs and
 * small and large sinks: what the kernels round must be within what the judge allows. FIBER_RUNS: how many are drawn.
 */
#include "tests/machines/fibers/programs.h"
#include "tests/oracle/peaked.h"

Test(kernels, peaked_programs) {
    static const fcp_backend *const backends[] = {&fibers_backend, &fibers_ordered_backend, &fibers_unordered_backend};
    const unsigned draws = draws_of(600);
    unsigned run = 0;
    for (unsigned seed = 1; seed <= draws; seed++) {
        peaked_text text;
        peaked_program(seed, &text);
        fcp_plan *plan = plan_of(text.at);
        const fcp_problem *p = plan->problem;
        const uint64_t cost = p->heads * plan->sequences_count * p->ranks * (p->head_dim / 16);
        if (cost <= 24 && fibers_kernels_of(plan)) {
            judge_plan(plan, backends[seed % 3], seed, false, text.at);
            run++;
        }
        fcp_plan_free(plan);
    }
    fprintf(stderr, "fibers: %u peaked programs drawn, %u run\n", draws, run);
    cr_assert(run >= draws / 12, "too few programs were run for this test to mean anything");
}
