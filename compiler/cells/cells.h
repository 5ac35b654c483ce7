/* cells.h: from a mask to cells: which 128 x 128 cells of a piece pair are NONE, FULL or PARTIAL, and how many pairs
 * are allowed, exactly, without looking at all pairs.
 *
 * An object remembers what it has answered (per diagonal, per residual expression, per grid), so use one per program
 * and batch. Not thread-safe. Shapes are shared: equal runs for equal piece lengths have one number.
 */
#ifndef FCPC_CELLS_CELLS_H
#define FCPC_CELLS_CELLS_H
#include "runtime/plan/plan.h"

typedef struct cells cells;

/* The mask is borrowed. `heads`: the range of h, used only if the mask names h (then pairs are summed over heads, a
 * cell is FULL if it is for every head and NONE if it is for every head). NULL when out of memory. */
cells *cells_new(mc_code mask, uint32_t heads);
void cells_free(cells *c);

/* `stop`, when not NULL, is polled: a non-zero value ends the call under way with FCP_E_INTERRUPTED. */
void cells_set_stop(cells *c, const volatile int *stop);

/* How many threads may look at pairs one by one, where a mask leaves nothing else: 0, as at first, is as many as there
 * are processors. Answers do not depend on it. */
void cells_set_threads(cells *c, unsigned threads);
/* *done (may be NULL) grows by the pairs that were looked at one by one, while a call is under way, by atomic additions
 * (other threads may read it). */
void cells_set_done(cells *c, uint64_t *done);

/* A reachable fault: which node, and one (n, q, k, h) that reaches it. */
typedef struct cells_fault {
    mc_fault kind; /* MC_OK: none */
    uint32_t node;
    int64_t n, q, k, h;
} cells_fault;

/* One piece pair with at least one allowed pair. */
typedef struct cell_entry {
    uint32_t q_piece, k_piece; /* indices into the cuts given */
    uint32_t shape;
} cell_entry;

/* A sequence cut for queries at q_cuts[0] < ... < q_cuts[q_pieces], which count from its first query, and for keys
 * likewise (the first cut need not be 0 nor the last the length): all piece pairs with an allowed pair, in order of
 * (q_piece, k_piece). *out_entries stays
 * valid until the next call or cells_free. Errors: FCP_E_NO_MEMORY; FCP_E_MASK_DIV_ZERO, _OVERFLOW, _INDEX with *fault
 * filled (a fault is found wherever it is reachable in the given box, and only then); FCP_E_PLAN_SIZE when a number of
 * pairs does not fit 64 bits or a piece is of 2^32 tokens or more. */
fcp_code cells_grid(cells *c, const mc_env *env, const uint64_t *q_cuts, uint32_t q_pieces, const uint64_t *k_cuts,
                    uint32_t k_pieces, const cell_entry **out_entries, size_t *out_count, cells_fault *fault);

/* The shapes made so far and their runs (fcp_shape_rec.first_run indexes runs). Valid until the next cells_grid. */
const fcp_shape_rec *cells_shapes(const cells *c, uint32_t *out_count, const fcp_run **out_runs,
                                  uint32_t *out_run_count);

/* Counts cells and pairs of all queries and keys without making lists: memory follows the boundary. */
typedef struct cells_counts {
    uint64_t full, partial, none; /* cells, counted from the first query and key */
    uint64_t pairs;
} cells_counts;
fcp_code cells_count(cells *c, const mc_env *env, cells_counts *out, cells_fault *fault);

/* What answering cost. `elements` counts pairs that fell back to evaluating single elements. */
typedef struct cells_stats {
    uint64_t boxes, rows, elements, memo_hits, bytes;
} cells_stats;
void cells_get_stats(const cells *c, cells_stats *out);
#endif
