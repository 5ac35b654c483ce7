/* bench_move.h: plans batches by cad, which moves work and leaves tokens where the caller has them, in a contiguous
 * layout. The groups `move` and `drawn` of the benchmarks share it.
 *
 * Requires: lengths, at 32,768 tokens a rank, in nodes of 8.
 * Gives:    what has to travel, by tests/support/moved.h; the lower bound of its bytes; the plan, and what is predicted
 *           of it.
 * Cost:     a planning; if asked for, 15 more placements to measure how long one takes.
 * Source:   our own; bench_move.c says with which goals its figures are compared.
 */
#ifndef FCPC_BENCH_MOVE_H
#define FCPC_BENCH_MOVE_H
#include "compiler/simulate/simulate.h"
#include "tests/support/moved.h"

typedef struct bench_moved {
    bool all;        /* `place` is asked for, too */
    bool good;
    moved relayed;
    uint64_t bound;  /* bytes that any placement moves at least */
    double place;    /* seconds of processor time */
} bench_moved;

/* Plans the forward pass of a causal batch with blocks of 2K; heads: of Q, beside 8 of K and V. The caller frees the
 * plan. NULL: what is wrong is on stderr. */
fcp_plan *bench_cad(const uint64_t *lengths, size_t count, uint32_t ranks, uint32_t heads, const char *tolerance,
                    bool all, bench_moved *out);
/* How long the rank that sends most over net sends, over how long the mean rank computes (*out_compute, seconds). */
double bench_sent(const bench_moved *s, uint32_t ranks, uint32_t heads, double *out_compute);
/* K and V over net: what the busiest sender sends, over the larger of what the busiest receiver gets and one copy of
 * what a home has to send. */
double bench_kv_sent(const moved *m);
/* What the simulator says of the plan's forward pass. */
fcp_code bench_forward(const fcp_plan *plan, sim_pass *out, fcp_error *err);
#endif
