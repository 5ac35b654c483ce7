/* problem.h: a program bound to a batch: blocks, and the tiles the mask leaves between them. */
#ifndef FCPC_PROBLEM_PROBLEM_H
#define FCPC_PROBLEM_PROBLEM_H
#include "compiler/problem/bind.h"
#include "compiler/cells/cells.h"

typedef struct problem problem;
struct problem {
    const struct fcpc_program *program;
    const uint64_t *lengths; /* keys of each sequence */
    const uint64_t *queries; /* the same array unless the plan is split */
    const binding *binding;  /* NULL: the program reads no arrays */
    uint32_t sequences;
    uint32_t sequence;       /* being classified, or where the mask faults */
    bool split;              /* some sequence has more or fewer queries than keys: blocks hold one side each (runtime/plan/plan.h) */
    uint64_t tokens, key_tokens; /* of queries, of keys */
    uint32_t ranks;
    uint32_t block;     /* the size asked for or chosen */
    uint32_t max_block[FCP_SIDES]; /* tokens of the largest block that holds it */
    uint32_t unit;      /* tokens of the largest transfer */

    fcp_piece *pieces;  /* by block */
    uint32_t piece_count;
    fcp_block *blocks;  /* homes not set */
    uint32_t block_count;
    uint32_t *chunk;          /* ring, zigzag: which chunk a block is; NULL for fcp */
    /* the pieces of sequence s, in order of start: sequence_piece[side][piece_start[side][s] .. ]; unless the plan is
     * split both sides are the same arrays */
    uint32_t *sequence_piece[FCP_SIDES];
    uint32_t *piece_start[FCP_SIDES]; /* sequences + 1 */

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
};

/* The position of a sequence's first query. */
static inline int64_t problem_q_first(const problem *p, uint32_t sequence) {
    return p->program->align == FCP_TOP_LEFT ? 0 : (int64_t)p->lengths[sequence] - (int64_t)p->queries[sequence];
}
static inline uint64_t problem_length(const problem *p, uint32_t sequence, fcp_side side) {
    return side == FCP_KEYS ? p->lengths[sequence] : p->queries[sequence];
}
/* A plan has at most this many blocks. */
enum { PROBLEM_BLOCKS_MAX = 1 << 22 };
/* Blocks of `block` tokens that the batch fills at least, without what is left over. */
static inline uint64_t problem_least_blocks(const problem *p, uint64_t block) {
    return p->tokens / block + (p->split ? p->key_tokens / block : 0);
}
/* What a sequence sees; valid until the next call. */
static inline mc_env problem_env(const problem *p, uint32_t sequence) {
    const binding bare = {.program = p->program, .lengths = p->lengths, .queries = p->queries};
    return bind_sequence(p->binding ? p->binding : &bare, sequence);
}

/* `queries` NULL: as many as keys. Checks lengths (FCP_E_LENGTHS), cuts blocks of `block` tokens as the program's
 * strategy has it (FCP_E_RANKS when some rank would get none), and classifies the mask. Pieces, blocks and parts, which
 * a plan keeps, are in `plan`; shapes and runs stay with `mask`; all else is in `memory`. On a mask fault: FCP_E_MASK_*
 * and *fault.
 * Cost: O(tokens / block + parts + boundary of the mask). */
fcp_code problem_build(const struct fcpc_program *program, const uint64_t *lengths, const uint64_t *queries,
                       size_t count, const binding *bound, uint32_t block, cells *mask, arena *plan, arena *memory,
                       arena *scratch, problem *out, cells_fault *fault, fcp_error *err);

/* problem_split.c: the blocks of the fcp strategy where the plan is split. Errors as above; FCP_E_NO_MEMORY without
 * words. */
fcp_code problem_cut_split(problem *p, arena *plan, arena *memory, arena *scratch, fcp_error *err);
#endif
