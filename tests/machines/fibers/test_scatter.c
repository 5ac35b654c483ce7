/* test_scatter.c: runs the kernels on plans in which everything is drawn at random (tests/support/scatter.h). Rows are
 * computed at home and away from home. A kernel may go on from a state that was merged before, and leaves states that
 * are sent to other ranks. */
#include "tests/machines/fibers/programs.h"
#include "tests/support/scatter.h"

Test(scatter, random_programs_on_fibers) {
    static const fcp_backend *const backends[] = {&fibers_backend, &fibers_ordered_backend, &fibers_unordered_backend};
    const char *from = getenv("SCATTER_SEED");
    uint64_t first = from ? strtoul(from, NULL, 10) : 1, end = first + draws_of(4000);
    unsigned run = 0, merged = 0;
    random_program *p = calloc(1, sizeof *p);
    cr_assert_not_null(p);
    for (uint64_t seed = first; seed < end; seed++) {
        dice d = dice_of(seed, 77);
        draw_program(p, &d, 12000);
        if (!is_small(p)) continue;
        scatter by = scatter_new(seed);
        by.one_range = seed % 4 == 0;
        fcp_plan *plan = NULL;
        char *picture, what[100];
        fcp_code code = scatter_try(p->text, &by, &plan, &picture);
        cr_assert(code != FCP_E_INTERNAL, "scatter(seed = %lu): %s\n%s", (unsigned long)seed, picture, p->text);
        snprintf(what, sizeof what, "SCATTER_SEED=%lu FIBER_RUNS=1", (unsigned long)seed);
        if (plan && fibers_kernels_of(plan)) {
            bool merges = false;
            for (uint64_t i = 0; i < plan->instrs_count; i++) merges |= plan->instrs[i].op == FCP_OP_MERGE;
            judge_plan(plan, backends[seed % 3], seed, false, what);
            run++;
            merged += merges;
        }
        free(picture);
        fcp_plan_free(plan);
    }
    free(p);
    fprintf(stderr, "fibers: %u plans run, %u with merges\n", run, merged);
    cr_assert(run && merged);
}
