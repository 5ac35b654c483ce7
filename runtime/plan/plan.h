/* plan.h: the tables of a plan. FORMAT.md beside this file says what they mean. */
#ifndef FCP_PLAN_PLAN_H
#define FCP_PLAN_PLAN_H
#include "codegen/mask/code.h"
#include "runtime/plan/records.h"

enum { FCP_PLAN_VERSION = 7 };

/* Records of the tables that few files read: plan_cluster.h, plan_summary.h, instructions.h, plan_arrays.h. */
typedef struct fcp_cluster fcp_cluster;
typedef struct fcp_summary fcp_summary;
typedef struct fcp_round fcp_round;
typedef struct fcp_stream fcp_stream;
typedef struct fcp_instr fcp_instr;
typedef struct fcp_transfer fcp_transfer;
typedef struct fcp_array fcp_array;
typedef struct fcp_slices fcp_slices;
typedef struct fcp_extract fcp_extract;
typedef struct fcp_recurrent fcp_recurrent; /* these four: recurrent.h */
typedef struct fcp_step_stream fcp_step_stream;
typedef struct fcp_step fcp_step;
typedef struct fcp_halo_rows fcp_halo_rows;

/* Sections in file order: name, record type, member of fcp_plan. */
#define FCP_SECTIONS(X)                                                                                                \
    X(SOURCE, char, source) /* canonical source, no NUL */                                                             \
    X(PROBLEM, fcp_problem, problem)                                                                                   \
    X(CLUSTER, fcp_cluster, cluster)                                                                                   \
    X(SUMMARY, fcp_summary, summary)                                                                                   \
    X(SEQUENCES, fcp_sequence, sequences)                                                                              \
    X(PIECES, fcp_piece, pieces)                                                                                       \
    X(DEALS, fcp_deal, deals)  /* of contiguous and zigzag; empty: planned */                                          \
    X(HEADS, fcp_heads, heads) /* ranges of heads */                                                                   \
    X(BLOCKS, fcp_block, blocks)                                                                                       \
    X(TILES, fcp_tile, tiles)                                                                                          \
    X(PARTS, fcp_part, parts)                                                                                          \
    X(SHAPES, fcp_shape_rec, shapes)                                                                                   \
    X(RUNS, fcp_run, runs)                                                                                             \
    X(VISITS, fcp_visit, visits)                                                                                       \
    X(ROUNDS, fcp_round, rounds)            /* of the forward pass, then of the backward pass */                       \
    X(ROUND_STARTS, uint32_t, round_starts) /* FCP_PASSES + 1 offsets into rounds */                                   \
    X(STREAMS, fcp_stream, streams)         /* [(pass * ranks + rank) * FCP_QUEUES + queue] */                         \
    X(INSTRS, fcp_instr, instrs)                                                                                       \
    X(TRANSFERS, fcp_transfer, transfers)                                                                              \
    X(MASK, mc_node, mask)                                                                                             \
    X(SCORE, mc_node, score) /* empty: the score is s */                                                               \
    X(SLOPE, mc_node, slope) /* its derivative by s; follows from it: mc_slope in codegen/mask/code.h */               \
    X(SINK, double, sink)    /* per query head: a logit in the denominator; empty: none */                             \
    X(NAMES, char, names)                                                                                              \
    X(ARRAYS, fcp_array, arrays)                                                                                       \
    X(DATA, uint8_t, data)                                                                                             \
    X(SLICES, fcp_slices, slices)                                                                                      \
    X(BAND_ROWS, mc_band_rows, band_rows)                                                                              \
    X(BANDS, mc_band, bands)                                                                                           \
    X(HEAD_CLASSES, uint32_t, head_classes) /* per query head of the model; a file has it if the mask names h */       \
    X(RECURRENT, fcp_recurrent, recurrent)  /* this and those below: empty without layers that recur */                \
    X(STEP_STREAMS, fcp_step_stream, step_streams)                                                                     \
    X(STEPS, fcp_step, steps)                                                                                          \
    X(HALO_ROWS, fcp_halo_rows, halo_rows)

enum fcp_section_id {
#define X(id, type, member) FCP_SECTION_##id,
    FCP_SECTIONS(X)
#undef X
    FCP_SECTION_COUNT
};

/* The tables. Every pointer has `<member>_count` records. */
struct fcp_plan {
#define X(id, type, member)                                                                                            \
    const type *member;                                                                                                \
    uint64_t member##_count;
    FCP_SECTIONS(X)
#undef X
    /* who owns the tables: fcp_plan_free calls release(owner) if release is not NULL, and then frees the plan
     * itself, which is malloc'd */
    void *owner;
    void (*release)(void *owner);
    fcp_extract *extract; /* malloc'd: this is one rank's extract of a plan (extract.h); NULL: a whole plan */
    /* derived from the tables by fcp_plan_index */
    uint64_t *sequence_offsets; /* malloc'd: prefix sums of queries, sequences_count + 1 of them, and then of keys */
    uint64_t *rank_tokens;      /* malloc'd: how many queries the caller holds at each rank, and then keys; an extract
                                 * has the two numbers of its rank. NULL: what the problem says of the layout is
                                 * nonsense, and fcp_plan_check refuses it */
    /* malloc'd, for the layout `planned` alone: the blocks, by home and then by number. Those of rank r are
     * home_blocks[home_starts[r]] to home_blocks[home_starts[r + 1] - 1] */
    uint32_t *home_starts, *home_blocks;
    /* malloc'd, NULL if head_classes is empty. For each range in `heads`: what fcp_class_count says, then what
     * fcp_class_of says of each of its query heads, then what fcp_class_size says of each of as many classes */
    uint32_t *range_classes;
    uint64_t *documents;        /* malloc'd: the row in the packed batch where each document begins, and the number of
                                 * all tokens; NULL: sequences are the documents, or fcp_plan_check refuses the field */
    uint64_t documents_count;   /* of documents; of sequences that have queries, where those are the documents */
    bool split;                 /* queries and keys are in blocks of their own */
    bool self;                  /* every sequence has as many queries as keys, and token i is the same on both sides */
    /* malloc'd: for each array, where each sequence's values begin among its own, and behind them how many there are in
     * all; NULL for tables, and for fields with a value for each key or each query, whose values begin where tokens
     * do */
    uint64_t **array_starts;
    uint64_t file_size;         /* bytes that saving writes */
};
static inline bool fcp_plan_split(const fcp_plan *p) { return p->split; }

/* The first of a shape's runs that is in `row` or a later one; the end of its runs if there is none. */
static inline uint32_t fcp_run_of_row(const fcp_plan *plan, const fcp_shape_rec *shape, uint32_t row) {
    uint32_t low = shape->first_run, high = shape->first_run + shape->runs;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (plan->runs[middle].row < row) low = middle + 1;
        else high = middle;
    }
    return low;
}
#endif
