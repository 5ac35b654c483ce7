/* hops.c: counts how often a partial result is rounded on its way. The sender rounds it for each hop.
 *
 * Example:  rank 3 sends a partial dK to rank 2, which adds its own and sends the sum to rank 0. The part of rank 3 was
 *           rounded twice.
 * Requires: a verified plan.
 * Method:   goes through the transfers of each block's partial results in the order of their rounds. A rank sends a
 *           partial result on after it has received all that it adds. So what it sends has made one hop more than what
 *           it has received.
 * Cost:     sorts the transfers of partial results.
 */
#include "runtime/judge/judge_parts.h"
#include "runtime/plan/instructions.h"

#include <math.h>
#include <stdlib.h>

typedef struct hop {
    uint32_t cls, block, round, from, to;
} hop;

static int by_round(const void *a, const void *b) {
    const hop *x = a, *y = b;
    if (x->cls != y->cls) return x->cls < y->cls ? -1 : 1;
    if (x->block != y->block) return x->block < y->block ? -1 : 1;
    if (x->round != y->round) return x->round < y->round ? -1 : 1;
    return x->to < y->to ? -1 : x->to > y->to;
}

/* The partials that a rank receives in a pass, behind those that there are. */
static void list_rank(const fcp_plan *plan, fcp_pass pass, uint32_t rank, hop *hops, uint64_t *count) {
    const fcp_stream *comm = fcp_stream_of(plan, pass, rank, FCP_COMM);
    for (uint32_t i = 0; i < comm->count; i++) {
        const fcp_instr *x = &plan->instrs[comm->first + i];
        for (uint32_t j = x->a; x->op == FCP_OP_LAUNCH && j < x->a + x->b; j++) {
            const fcp_transfer *t = &plan->transfers[j];
            if (t->dir == FCP_RECV && fcp_is_partial((fcp_class)t->cls))
                hops[(*count)++] = (hop){t->cls, t->block, x->c, t->peer, rank};
        }
    }
}

/* The most hops of each class. `depth`, per rank, is 0 before and after. */
static void measure_ways(const hop *hops, uint64_t count, uint32_t *depth, uint32_t out_most[FCP_CLASSES]) {
    for (uint64_t i = 0, first = 0; i < count; i++) {
        const hop *x = &hops[i];
        const uint32_t come = depth[x->from] + 1;
        if (come > depth[x->to]) depth[x->to] = come;
        if (come > out_most[x->cls]) out_most[x->cls] = come;
        if (i + 1 < count && hops[i + 1].cls == x->cls && hops[i + 1].block == x->block) continue;
        for (; first <= i; first++) depth[hops[first].to] = 0;
    }
}

bool check_hops(const fcp_plan *plan, double out_error[FCP_CLASSES]) {
    const uint32_t ranks = plan->problem->ranks;
    uint32_t most[FCP_CLASSES] = {0};
    uint64_t count = 0;
    for (int cls = 0; cls < FCP_CLASSES; cls++) out_error[cls] = 0;
    if (plan->problem->wire == FCP_FP32) return true;
    hop *hops = calloc(plan->transfers_count + 1, sizeof *hops);
    uint32_t *depth = calloc(ranks, sizeof *depth);
    const bool ok = hops && depth;
    for (int pass = 0; ok && pass < FCP_PASSES; pass++)
        for (uint32_t r = 0; r < ranks; r++) list_rank(plan, (fcp_pass)pass, r, hops, &count);
    if (ok) qsort(hops, count, sizeof *hops, by_round);
    if (ok) measure_ways(hops, count, depth, most);
    for (int cls = 0; cls < FCP_CLASSES; cls++) out_error[cls] = expm1(most[cls] * log1p(0x1p-8));
    free(hops);
    free(depth);
    return ok;
}
