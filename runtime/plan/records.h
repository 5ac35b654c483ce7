/* records.h: the records of a plan that say what is computed, and where. FORMAT.md says what they mean. */
#ifndef FCP_PLAN_RECORDS_H
#define FCP_PLAN_RECORDS_H
#include "runtime/plan/enums.h"

/* Section PROBLEM: one record. */
typedef struct fcp_problem {
    uint32_t ranks, nodes, gpus; /* ranks = nodes * gpus; rank r is GPU r % gpus of node r / gpus */
    uint32_t heads, kv_heads;
    uint32_t head_dim, value_dim; /* numbers of a head of Q and K; of V and O */
    uint32_t range_kv, range_sub; /* of each range of heads: KV heads, and query heads of each KV head */
    uint16_t dtype;               /* an fcp_dtype: of the tensors */
    uint16_t wire;                /* FCP_FP32 or FCP_BF16: of partial results as they travel; see WIRE */
    uint16_t values_in_keys;      /* 1: V is the first value_dim numbers of each row of K; there is no V and no dV */
    uint16_t lse_gradient;        /* 1: the backward pass takes a gradient of LSE */
    uint32_t layout, strategy, topology;
    uint32_t layout_group; /* neighbouring ranks over which a layout is made; `ranks`: all those of a deal */
    uint32_t block;        /* tokens; the block size asked for */
    uint32_t max_block;    /* tokens of the largest block that holds KV; a KV or DKV slot has room for it */
    uint32_t max_q_block;  /* tokens of the largest block that holds Q; a STATE slot has room for it */
    uint32_t unit;         /* tokens of KV; of other classes a unit has as many bytes, or more: fcp_unit_tokens */
    uint32_t coalesce, buffers, margin;
    uint32_t passes; /* bit per fcp_pass */
    uint32_t deterministic;
    uint32_t mask_uses; /* MC_USES_* of the mask */
    uint32_t align;     /* an fcp_align; bottom right if every sequence has as many queries as keys */
    uint32_t documents; /* the array that tells documents apart; FCP_NONE: sequences are the documents */
    uint32_t pad;
    uint64_t tokens, key_tokens; /* how many queries and how many keys; equal if the plan is not split */
    uint64_t memory_cap;         /* bytes per rank */
    double scale;
} fcp_problem;
typedef struct fcp_sequence {
    uint64_t queries, keys;
    int64_t q_first; /* position of its first query */
} fcp_sequence;

typedef struct fcp_piece {
    uint32_t sequence;
    uint32_t length;
    uint64_t start;  /* counted from the sequence's first token of the side that the block holds */
    uint32_t offset; /* of its first token in the block: the sum of the lengths before it */
    uint32_t block;
} fcp_piece;

/* A deal says which neighbouring ranks' callers hold some neighbouring sequences of the batch. Only a plan whose layout
 * is a rule (contiguous or zigzag) has deals; layout.h states the rules. The sequences of one deal follow those of the
 * deal before it; the ranks of deals may overlap. */
typedef struct fcp_deal {
    uint32_t first_sequence, sequences, first_rank, ranks;
} fcp_deal;

/* A range of heads: query heads sub_first to sub_first + sub_count - 1 of each of the KV heads kv_first to kv_first +
 * kv_count - 1.
 *
 * Example: a model has 4 query heads for each KV head. The range {kv_first, kv_count, sub_first, sub_count} = {2, 2, 0,
 * 2} has the first two query heads of KV heads 2 and 3, which are heads 8, 9, 12 and 13 of the model.
 *
 * In general, with G = heads / kv_heads, query head sub_first + j of KV head kv_first + i is head (kv_first + i) * G +
 * sub_first + j of the model. The heads of a range are in order of (i, j). */
typedef struct fcp_heads {
    uint32_t kv_first, kv_count, sub_first, sub_count;
} fcp_heads;

enum { FCP_BLOCK_WHOLE = 1 }; /* none of its tiles runs at its home, and its results come home finished */
typedef struct fcp_block {
    uint32_t first_piece, pieces;
    uint32_t tokens;
    uint32_t home, home_slot; /* home slots of a rank are 0, 1, 2, ... in block order */
    uint32_t heads;           /* an index into heads */
    uint16_t holds, flags;    /* FCP_HOLDS_*, FCP_BLOCK_* */
} fcp_block;

typedef struct fcp_tile {
    uint32_t q_block, k_block;
    uint32_t first_part, parts;
    uint32_t kv_slot;  /* of class KV */
    uint32_t dkv_slot; /* of class DKV; FCP_NONE when the plan has no backward pass */
    uint64_t pairs;    /* allowed in it, counted as in fcp_summary.pairs: over its range's heads, if at all */
} fcp_tile;

/* A Q piece against a KV piece of the same sequence. Parts of a tile are in order of (q_piece, k_piece). */
typedef struct fcp_part {
    uint32_t q_piece, k_piece; /* indices of pieces */
    uint32_t shape;            /* the first of its shapes: one for each class of heads */
} fcp_part;

/* The mask between a Q piece and a KV piece, in cells of FCP_CELL x FCP_CELL pairs. Runs are in order of (row, col),
 * where rows of cells count from the start of the Q piece. In a cell that no run names, no pair is allowed. The ends
 * of the pieces may cut the cells of the last row and column short. A shape has no runs if it is for a class of
 * heads that sees nothing here, while other classes do. */
typedef struct fcp_shape_rec {
    uint32_t first_run, runs;
    uint32_t q_length, k_length; /* of the pieces that it lies between */
    uint64_t pairs;              /* allowed in it, for one head */
} fcp_shape_rec;

typedef struct fcp_run {
    uint32_t row, col;
    uint32_t count : 30, cls : 2; /* `count` cells of class `cls` from column col on */
} fcp_run;

enum { FCP_VISIT_FIRST = 1, FCP_VISIT_LAST = 2 };
typedef struct fcp_visit {
    uint32_t q_block;
    uint32_t first_tile, tiles;
    uint32_t state_slot; /* FCP_NONE if this visit is the only one (FIRST and LAST) */
    uint32_t q_slot;     /* of class Q, at the rank that executes it */
    uint32_t o_slot;     /* of class O, where a visit with LAST writes; FCP_NONE without LAST */
    uint32_t dq_slot;    /* of class DQ; FCP_NONE when the plan has no backward pass */
    uint16_t flags, pad;
} fcp_visit;

static inline uint32_t fcp_node_of(const fcp_problem *p, uint32_t rank) { return rank / p->gpus; }
#endif
