/* bench_drawn.c: checks the goals of group `move` on batches that are drawn at random.
 *
 * Requires: the lists that the shared batches are from; where they are missing, lists with the same kind of tail.
 * Gives: a row for each goal, list and number of ranks. It has the worst of ten batches (of three for 1,024 ranks); its
 *     note says which of them miss the goal.
 * Cost: about as many plans as there are batches, 129.
 * Source: our own. A batch is drawn sequence by sequence (workload_sample) until its ranks have 32,768 tokens each.
 *
 * The shared batches meet all of these goals. Drawn ones miss some:
 *
 *   bytes   in batches without a sequence longer than a few ranks' tokens. There most ranks lack a little work, and
 *           some have too much. A rank takes work of several sequences to have enough, and needs the keys of each of
 *           them. The bound is below that: it lets each rank get all that it lacks from one sequence, as long as the
 *           longest.
 *   wires   in batches with a sequence that fills a whole node. It has far more work than the node may do. So Q of
 *           nearly all its rows leaves the node at least once, in any placement that leaves tokens where they are.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/plan/plan.h"
#include "runtime/plan/plan_summary.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_move.h"
#include "tests/bench/workload.h"

enum { BATCHES = 10, FEW = 3 /* of many ranks */ };

/* Of some batches: the worst, their mean, and which of them miss the goal. */
typedef struct tally {
    const char *name;
    double goal, worst, sum;
    int count, missed;
    char which[64]; /* the numbers of those that miss it */
} tally;

static void add(tally *t, int batch, double value) {
    if (!t->count++ || value > t->worst) t->worst = value;
    t->sum += value;
    if (value <= t->goal) return;
    const size_t at = strlen(t->which);
    snprintf(t->which + at, sizeof t->which - at, "%s%d", t->missed++ ? ", " : "", batch);
}

static void print(const tally *t, const char *of) {
    char row[128], goal[32], note[160];
    if (!t->count) return;
    snprintf(row, sizeof row, "drawn: %s, %s", t->name, of);
    snprintf(goal, sizeof goal, "<= %.4g", t->goal);
    snprintf(note, sizeof note, "worst of %d, mean %.3f%s%s", t->count, t->sum / t->count,
             t->missed ? "; missed by batch " : "", t->which);
    bench_row(row, t->worst, "x", goal, !t->missed, note);
}

static void list_rows(const char *list, uint32_t ranks, uint32_t heads) {
    size_t pool_count;
    bool synthetic;
    const uint64_t tokens = (uint64_t)ranks * BENCH_TOKENS;
    const bool wires = ranks > 64 && heads == 64;
    tally bytes = {"bytes / bound", heads == 64 ? 1.4 : 1.6}, rounds = {"rounds / bound", 1.25};
    tally sent = {"busiest net sender / mean compute", ranks > 256 ? 0.9 : 0.6};
    tally kv = {"KV's busiest net sender / max(receiver, copy)", 1.3}, time = {"simulated time / largest bound", 1.3};
    char of[64];
    uint64_t *pool = workload_lengths(list, tokens, &pool_count, &synthetic);
    for (int i = 1; pool && i <= (ranks > 256 ? FEW : BATCHES); i++) {
        size_t count;
        bench_moved s;
        sim_pass pass;
        fcp_error err;
        uint64_t *lengths = workload_sample(pool, pool_count, tokens, (uint64_t)i, &count);
        fcp_plan *plan = lengths ? bench_cad(lengths, count, ranks, heads, "0.005", false, &s) : NULL;
        free(lengths);
        if (!plan) continue; /* said on stderr */
        double compute;
        add(&bytes, i, (s.relayed.kv + s.relayed.rows) / (double)s.bound);
        if (wires) {
            const fcp_summary *y = plan->summary;
            add(&sent, i, bench_sent(&s, ranks, heads, &compute));
            add(&kv, i, bench_kv_sent(&s.relayed));
            add(&rounds, i, (double)(y->rounds + y->rounds_dependent) / (double)y->rounds_bound);
            if (!bench_forward(plan, &pass, &err))
                add(&time, i, (double)pass.makespan / (double)sim_largest_bound(&pass));
        }
        fcp_plan_free(plan);
    }
    free(pool);
    snprintf(of, sizeof of, "%s-%u, %u:8 at 1.005", list, ranks, heads);
    print(&bytes, of);
    print(&sent, of);
    print(&kv, of);
    print(&rounds, of);
    print(&time, of);
}

void bench_drawn(void) {
    static const char *const lists[] = {"wlbllm", "prolong", "wikipedia"};
    static const struct { uint32_t ranks, heads; } sizes[] = {{64, 64}, {256, 64}, {1024, 64}, {64, 32}, {256, 32}};
    for (size_t z = 0; z < sizeof sizes / sizeof *sizes; z++)
        for (size_t l = 0; l < sizeof lists / sizeof *lists; l++) list_rows(lists[l], sizes[z].ranks, sizes[z].heads);
}
