/* problem.h: a program bound to a batch: blocks, and the tiles the mask leaves between them. */
#ifndef FCPC_PROBLEM_H
#define FCPC_PROBLEM_H
#include "bind.h"
#include "cells.h"

typedef struct problem {
    const struct fcpc_program *program;
    const uint64_t *lengths;
    const binding *binding; /* NULL: the program reads no arrays */
    uint32_t sequences;
    uint32_t sequence;  /* being classified, or where the mask faults */
    uint64_t tokens;
    uint32_t ranks;
    uint32_t block;     /* the size asked for or chosen */
    uint32_t max_block; /* tokens of the largest block */
    uint32_t unit;      /* tokens of the largest transfer */

    fcp_piece *pieces;  /* by block */
    uint32_t piece_count;
    fcp_block *blocks;  /* homes not set */
    uint32_t block_count;
    uint32_t *chunk;          /* ring, zigzag: which chunk a block is; NULL for fcp */
    uint32_t *sequence_piece; /* the pieces of sequence s, in order of start: sequence_piece[piece_start[s] .. ] */
    uint32_t *piece_start;    /* sequences + 1 */

    /* tiles in order of (Q block, KV block) */
    uint32_t tile_count;
    uint32_t *tile_start; /* per Q block, block_count + 1 */
    uint32_t *tile_k;
    uint32_t *tile_part;  /* first part of a tile, tile_count + 1 */
    uint64_t *tile_pairs;
    fcp_part *parts;
    uint32_t part_count;
    const fcp_shape_rec *shapes;
    const fcp_run *runs;
    uint32_t shape_count, run_count;

    uint64_t *work; /* per Q block: its pairs */
    uint64_t pairs, positions, heaviest;
} problem;

/* Checks lengths (FCP_E_LENGTHS), cuts blocks of `block` tokens as the program's strategy has it (FCP_E_RANKS when some
 * rank would get none), and classifies the mask. Pieces, blocks and parts, which a plan keeps, are in `plan`; shapes and runs stay
 * with `mask`; all else is in `memory`. On a mask fault: FCP_E_MASK_* and *fault.
 * Cost: O(tokens / block + parts + boundary of the mask). */
fcp_code problem_build(const struct fcpc_program *program, const uint64_t *lengths, size_t count,
                       const binding *bound, uint32_t block, cells *mask, arena *plan, arena *memory, arena *scratch, problem *out, cells_fault *fault,
                       fcp_error *err);
#endif
