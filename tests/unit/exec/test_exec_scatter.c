/* test_exec_scatter.c: runs plans in which everything is drawn at random (tests/support/scatter.h) on the host backend,
 * and compares the results with the definition of attention. SCATTER_RUNS is the number of plans, SCATTER_SEED the
 * first seed. */
#include "tests/oracle/random_program.h"
#include "tests/support/amount.h"
#include "tests/support/judge_plan.h"
#include "tests/support/plain.h"
#include "tests/support/scatter.h"

typedef struct seen {
    unsigned long plans, partial, whole, ranges, relays;
} seen;

/* What the plan has of everything. */
static void count(seen *s, const fcp_plan *plan) {
    uint64_t merges = 0, whole = 0, relays = 0;
    for (uint64_t i = 0; i < plan->instrs_count; i++) merges += plan->instrs[i].op == FCP_OP_MERGE;
    for (uint64_t b = 0; b < plan->blocks_count; b++) whole += plan->blocks[b].flags & FCP_BLOCK_WHOLE;
    for (uint32_t r = 0; r < plan->problem->ranks; r++) {
        const fcp_stream *queue = fcp_stream_of(plan, FCP_FORWARD, r, FCP_COMM);
        for (uint32_t i = queue->first; i < queue->first + queue->count; i++)
            for (uint32_t j = 0; plan->instrs[i].op == FCP_OP_LAUNCH && j < plan->instrs[i].b; j++) {
                const fcp_transfer *t = &plan->transfers[plan->instrs[i].a + j];
                relays += t->cls == FCP_Q && t->dir == FCP_SEND && plan->blocks[t->block].home != r;
            }
    }
    s->plans++;
    s->partial += merges != 0;
    s->whole += whole != 0;
    s->relays += relays != 0;
    s->ranges += plan->heads_count > 1;
}

#ifdef PLAIN_TESTS
enum { QUICK = 20, LONG = 60 };
#else
enum { QUICK = 120, LONG = 700 };
#endif
Test(scatter, host) {
    const char *runs = getenv("SCATTER_RUNS"), *from = getenv("SCATTER_SEED");
    uint64_t first = from ? strtoul(from, NULL, 10) : 1,
             end = first + (runs ? strtoul(runs, NULL, 10) : amount(QUICK, LONG));
    seen s = {0};
    random_program *p = calloc(1, sizeof *p);
    cr_assert_not_null(p);
    for (uint64_t seed = first; seed < end; seed++) {
        dice d = dice_of(seed, 77);
        draw_program(p, &d, 40000);
        const scatter by = scatter_new(seed);
        fcp_plan *plan = NULL;
        char *picture;
        fcp_code code = scatter_try(p->text, &by, &plan, &picture); /* a drawn mask may fault */
        cr_assert(code != FCP_E_INTERNAL, "scatter(seed = %lu): %s\n%s", (unsigned long)seed, picture, p->text);
        if (plan) {
            char what[200];
            snprintf(what, sizeof what, "scatter(seed = %lu), SCATTER_SEED=%lu SCATTER_RUNS=1", (unsigned long)seed,
                     (unsigned long)seed);
            count(&s, plan);
            judge_plan_by(plan, &fcp_backend_host, 4, seed, seed % 4 == 0, what);
        }
        free(picture);
        fcp_plan_free(plan);
    }
    free(p);
    fprintf(
        stderr,
        "scatter: %lu plans, %lu with merges, %lu with whole blocks, %lu with ranges of heads, %lu with relays of Q\n",
        s.plans, s.partial, s.whole, s.ranges, s.relays);
    cr_assert(s.plans && s.partial && s.whole && s.ranges && s.relays);
}
