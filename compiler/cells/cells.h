/* cells.h: from a mask to cells: which cells of 128 x 128 pairs are NONE, FULL or PARTIAL, and how many pairs are
 * allowed.
 *
 * Answers are exact, and are found without looking at all pairs (README.md explains how). For example, causal over 1M
 * tokens has 33,550,336 FULL and 8192 PARTIAL cells, which takes microseconds to say.
 *
 * An object remembers what it has answered, so use one for all sequences of a batch. It must not be used by two threads
 * at a time.
 */
#ifndef FCPC_CELLS_CELLS_H
#define FCPC_CELLS_CELLS_H
#include "codegen/mask/code.h"
#include "compiler/base/arena.h"
#include "runtime/plan/records.h"

typedef struct cells cells;

/* The mask is borrowed. `heads` matters only if the mask names h: then pairs are summed over this many heads, and a
 * cell is FULL, or NONE, if it is so for every head. NULL when out of memory. */
cells *cells_new(mc_code mask, uint32_t heads);
void cells_free(cells *c);

/* What it remembers lies in memory of `pool`, which outlives it; NULL: in the system's. */
void cells_set_pool(cells *c, arena_pool *pool);

/* If `stop` is not NULL, calls look at it many times a second and end with FCP_E_INTERRUPTED once it is not 0. */
void cells_set_stop(cells *c, const volatile int *stop);

/* *done (may be NULL) grows by the pairs that were looked at one by one, while a call is under way, by atomic additions
 * (other threads may read it). */
void cells_set_done(cells *c, uint64_t *done);

/* Says that grids will be asked for again, so that each is kept from the first time on. Otherwise a grid is kept only
 * when it is asked for a second time. */
void cells_keep_grids(cells *c);

/* An estimate of what the cells of a batch will cost: the pairs that will be evaluated one by one, and the work, as
 * cells_stats counts it. Both are 0 for a batch that takes less than a second anyway. */
typedef struct cells_outlook {
    uint64_t pairs, work;
} cells_outlook;

/* The sequences of a batch, numbered from 0; an environment is valid until the next is asked for. */
typedef struct cells_batch {
    uint32_t count;
    uint64_t piece; /* cells on a side of a piece pair, at least 1 */
    mc_env (*env)(const void *of, uint32_t sequence);
    const void *of;
} cells_batch;

/* Estimates from a sample, at a cost that is bounded (outlook.c); the same batch always gives the same numbers. Use an
 * object of its own, which is asked nothing else. FCP_E_NO_MEMORY, FCP_E_INTERRUPTED. */
fcp_code cells_look_ahead(cells *c, const cells_batch *batch, cells_outlook *out);

/* A fault: which node, and the n, q, k and h of one pair that reaches it. */
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

/* Lists the piece pairs of a sequence that have an allowed pair, in order of (q_piece, k_piece). Piece i of the queries
 * is [q_cuts[i], q_cuts[i + 1]), counted from the first query; keys likewise. Cuts ascend; they need not begin at 0 nor
 * end at the length. If a side has no pieces, nothing is listed. *out_entries is valid until the next call.
 * Errors: FCP_E_MASK_DIV_ZERO, _OVERFLOW or _INDEX if some pair of these pieces reaches a fault, and *fault is then
 * filled in; FCP_E_PLAN_SIZE if a number of pairs does not fit 64 bits or a piece has 2^32 tokens or more;
 * FCP_E_NO_MEMORY. */
fcp_code cells_grid(cells *c, const mc_env *env, const uint64_t *q_cuts, uint32_t q_pieces, const uint64_t *k_cuts,
                    uint32_t k_pieces, const cell_entry **out_entries, size_t *out_count, cells_fault *fault);

/* As cells_grid, but gives the number of allowed pairs of each entry instead of its shape: (*out_pairs)[i] belongs to
 * entry i, whose `shape` means nothing. That is less work, because most piece pairs then need no cells. The answer is
 * not kept as a grid. */
fcp_code cells_pairs(cells *c, const mc_env *env, const uint64_t *q_cuts, uint32_t q_pieces, const uint64_t *k_cuts,
                     uint32_t k_pieces, const cell_entry **out_entries, const uint64_t **out_pairs, size_t *out_count,
                     cells_fault *fault);

/* The shapes made so far, and their runs, which fcp_shape_rec.first_run indexes. Pieces of equal lengths with equal
 * cells and pairs have one shape. Valid until the next cells_grid. */
const fcp_shape_rec *cells_shapes(const cells *c, uint32_t *out_count, const fcp_run **out_runs,
                                  uint32_t *out_run_count);

/* Adds a shape that `from` has made to the shapes of c, unless c has it already; *out becomes its number in c. So two
 * threads can share a batch: c is asked about the first sequences and `from`, of the same mask, about the others. Once
 * all shapes of `from` have been added in their order, c has the same shapes as if it had been asked about all
 * sequences. FCP_E_NO_MEMORY, FCP_E_PLAN_SIZE. */
fcp_code cells_join(cells *c, const cells *from, uint32_t shape, uint32_t *out);

/* Counts the cells and pairs of all queries and keys, without making lists. Memory grows with the boundary of the mask
 * only. */
typedef struct cells_counts {
    uint64_t full, partial, none; /* cells; the first begins at the first query and key */
    uint64_t pairs;
} cells_counts;
fcp_code cells_count(cells *c, const mc_env *env, cells_counts *out, cells_fault *fault);

/* What the answers have cost so far. elements: pairs that were evaluated one by one. memo_hits: answers that were found
 * in memory. bytes: memory in use. work: an estimate of the nanoseconds that all of it takes on one processor. It is
 * computed from these counts and not measured, so it is the same on every machine. */
typedef struct cells_stats {
    uint64_t boxes, rows, elements, memo_hits, bytes, work;
} cells_stats;
void cells_get_stats(const cells *c, cells_stats *out);
#endif
