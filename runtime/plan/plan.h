/* plan.h: the plan: its records, as they lie in memory and in the file, and what they mean.
 *
 * A plan is one set of flat tables for all ranks. Records have a fixed size, refer to each other by index, and are used
 * straight from the mapped file. The compiler fills the same tables in memory; saving is writing them out.
 *
 *   sequences   how many queries and keys each has, and where its queries begin
 *   pieces      (sequence, start, length), grouped by block
 *   blocks      runs of pieces; what they hold of them; a home rank and a home slot
 *   tiles       (Q block, KV block, head group), in the order they are executed: by rank, stage, Q block
 *   parts       per tile: which Q piece meets which KV piece, in which shape
 *   shapes      shared: runs of FULL and PARTIAL cells
 *   visits      one stage's tiles of one Q block on one rank
 *   rounds      per pass: what each round is
 *   streams     per pass, rank and queue: instructions
 *   transfers   what a LAUNCH sends and receives, what a COPY copies
 *   layout      per rank: which tokens the caller holds there, in which order; key_layout the same of keys
 *
 * SIDES. A sequence has queries and keys. Its keys are at positions 0 .. keys - 1, its queries at q_first .. q_first +
 * queries - 1; q_first is keys - queries (aligned at the bottom right: the last query is at the last key's position) or
 * 0 (at the top left). Where every sequence has as many queries as keys, token i of one side is token i of the other:
 * each block holds Q and KV of its tokens, and there is one layout. Where some sequence has not, the plan is split:
 * each block, of whatever sequences, holds Q or KV alone, and queries and keys have a layout each, with tokens and
 * places of their own. Starts of pieces and of the layouts' runs count tokens of their own side, from the sequence's
 * first.
 *
 * SLOTS. Each rank has, per class, slots numbered from 0, each large enough for the largest block. In the classes KV, Q
 * and DKV the slots 0 .. homes-1 hold the rank's own blocks (a block's home_slot); those from homes on are transient. A
 * block that does not hold a class has a home slot of it all the same, of no size, which nothing may name.
 * Class STATE (the running m, l, O of a Q block that is visited more than once) has transient slots only.
 * Before a pass a rank's home slots hold what reshuffle IN and COPY bring; a transient slot holds nothing.
 *
 * PASSES. Both passes use the same tiles, visits, KV slots and stages.
 *   forward:   KV of a block travels home -> ranks that need it, once per node over net, then fans out over local.
 *   backward:  the same, and fp32 dKV partials return: rank -> the node's representative (local, REDUCE there) ->
 *              home (net, REDUCE there). A tile adds its dK, dV to DKV slot `dkv_slot`: the home slot if the tile runs
 *              at the KV block's home, else a transient accumulator, zeroed when the first tile in execution order
 *              (of those that share the slot since the last send from it) adds to it. dQ adds to the Q block's home.
 *
 * QUEUES. Each rank has a compute and a communication queue, in order, one instruction at a time; WAIT n blocks until
 * the other queue has completed its first n instructions. A LAUNCH is a rank's share of one round: it starts when the
 * queue reaches it and completes when all its sends and receives have, as a whole.
 *
 * RECEIVED PARTIALS. A received DKV block lies in a transient slot until REDUCE adds it to an accumulator: the home
 * slot at home; at a representative its own transient accumulator, where the first contribution (a tile's or a
 * REDUCE's) initialises. After a send of class DKV from a transient slot that slot is empty. REDUCE empties its source.
 *
 * FINER POINTS, which the verifier holds plans to.
 *   Rounds are numbered from 0 within a pass: a LAUNCH's c is rounds[round_starts[pass] + c]. A rank launches the
 *   rounds it has a share in, once each, in increasing order; a LAUNCH's stage is its round's.
 *   Stages never decrease along a queue, nor along a pass's rounds. Transfers between ranks, IN and OUT included, are
 *   no larger than `unit`. What a block does not hold is not moved: a KV block has no OUT in the forward pass.
 *   IN rounds hold IN, OUT rounds OUT, INDEPENDENT rounds KV sent from home slots, DEPENDENT rounds other KV, and DKV.
 *   A home block is ready (to read, send, copy out) once all its tokens are in; DELTA needs all home blocks of a rank.
 *   A LAUNCH of an INDEPENDENT or DEPENDENT round of stage t follows (by WAIT) every ATTEND of stage <= t - buffers.
 *   Stages of a pass: 1 + the largest stage of an ATTEND or of an INDEPENDENT or DEPENDENT round, at least 1.
 *   Nothing is of a later stage than that number, which is what follows the last stage.
 *   REDUCEs into one accumulator go in order of (round in which the partial's last unit arrived, sender). A partial is
 *   received whole from one sender, and reduced before it travels on. Transient slot numbers of a class have no gaps.
 *   Two accesses of a slot in different queues, one of them a write, are ordered by WAITs of that rank.
 *   Operands an instruction does not use, and pads, are 0. A pass the plan does not have has no rounds and no
 *   instructions, and zeros in the summary. summary.positions saturates at UINT64_MAX.
 *
 * Function bytes: see fcp_class_bytes. All sizes are per token and all heads of the class's head group (one group
 * today: group = 0, all heads).
 */
#ifndef FCP_PLAN_PLAN_H
#define FCP_PLAN_PLAN_H
#include "codegen/mask/code.h"
#include "runtime/fcp.h"

#define FCP_NONE UINT32_MAX
enum { FCP_CELL = 128 };
enum { FCP_PLAN_VERSION = 2 };

/* The sides of a sequence, and the bits that say which of them a block holds. */
typedef enum fcp_side { FCP_QUERIES, FCP_KEYS, FCP_SIDES } fcp_side;
enum { FCP_HOLDS_Q = 1 << FCP_QUERIES, FCP_HOLDS_KV = 1 << FCP_KEYS, FCP_HOLDS_BOTH = FCP_HOLDS_Q | FCP_HOLDS_KV };

/* Enums with names. Each list gives the values in order; the enum is made of it here, and its table of names in names.c.
 * A name is the word that programs, dumps and JSON use. Queues and classes have a second one, for sentences. */
#define FCP_ID(id, ...) id,
#define FCP_ALIGN_LIST(X) X(FCP_BOTTOM_RIGHT, "bottom_right") X(FCP_TOP_LEFT, "top_left")
#define FCP_STRATEGY_LIST(X) X(FCP_STRATEGY_FCP, "fcp") X(FCP_STRATEGY_RING, "ring") X(FCP_STRATEGY_ZIGZAG, "zigzag")
#define FCP_FABRIC_LIST(X) X(FCP_NET, "net") X(FCP_LOCAL, "local")
#define FCP_TOPOLOGY_LIST(X) X(FCP_FAT_TREE, "fat_tree") X(FCP_RAIL, "rail")
#define FCP_QUEUE_LIST(X) X(FCP_COMPUTE, "compute", "compute") X(FCP_COMM, "comm", "communication")
/* What a transfer carries. IN and OUT move between the caller's layout and home blocks:
 * forward IN = Q K V, OUT = O LSE; backward IN = Q K V O LSE dO, OUT = dQ dK dV. */
#define FCP_CLASS_LIST(X)                                                                                              \
    X(FCP_KV, "kv", "KV")                                                                                              \
    X(FCP_Q, "q", "Q")                                                                                                 \
    X(FCP_DKV, "dkv", "dKV")                                                                                           \
    X(FCP_STATE, "state", "state")                                                                                     \
    X(FCP_IN, "in", "inputs")                                                                                          \
    X(FCP_OUT, "out", "outputs")
#define FCP_CELL_LIST(X) X(FCP_CELL_NONE, "none") X(FCP_CELL_FULL, "full") X(FCP_CELL_PARTIAL, "partial")
#define FCP_DIRECTION_LIST(X) X(FCP_SEND, "send") X(FCP_RECV, "recv")
#define FCP_ROUND_LIST(X)                                                                                             \
    X(FCP_ROUND_IN, "in")                                                                                              \
    X(FCP_ROUND_INDEPENDENT, "independent")                                                                            \
    X(FCP_ROUND_DEPENDENT, "dependent")                                                                                \
    X(FCP_ROUND_OUT, "out")

typedef enum fcp_align { FCP_ALIGN_LIST(FCP_ID) FCP_ALIGN_COUNT } fcp_align;
typedef enum fcp_strategy { FCP_STRATEGY_LIST(FCP_ID) FCP_STRATEGY_COUNT } fcp_strategy;
typedef enum fcp_fabric { FCP_FABRIC_LIST(FCP_ID) FCP_FABRICS } fcp_fabric;
typedef enum fcp_queue { FCP_QUEUE_LIST(FCP_ID) FCP_QUEUES } fcp_queue;
typedef enum fcp_topology { FCP_TOPOLOGY_LIST(FCP_ID) FCP_TOPOLOGY_COUNT } fcp_topology;
typedef enum fcp_class { FCP_CLASS_LIST(FCP_ID) FCP_CLASSES } fcp_class;
typedef enum fcp_cell_class { FCP_CELL_LIST(FCP_ID) FCP_CELL_CLASS_COUNT } fcp_cell_class;
typedef enum fcp_direction { FCP_DIRECTION_LIST(FCP_ID) FCP_DIRECTION_COUNT } fcp_direction;
typedef enum fcp_round_kind { FCP_ROUND_LIST(FCP_ID) FCP_ROUND_KIND_COUNT } fcp_round_kind;

/* Section PROBLEM: one record. */
typedef struct fcp_problem {
    uint32_t ranks, nodes, gpus; /* ranks = nodes * gpus; rank r is GPU r % gpus of node r / gpus */
    uint32_t heads, kv_heads, head_dim, head_groups;
    uint32_t dtype, layout, strategy, topology;
    uint32_t block;              /* tokens; the block size asked for */
    uint32_t max_block;          /* tokens of the largest block that holds KV: what a KV or DKV slot holds */
    uint32_t max_q_block;        /* tokens of the largest block that holds Q: what a STATE slot holds */
    uint32_t unit;               /* tokens: no transfer is larger */
    uint32_t coalesce, buffers, margin;
    uint32_t passes;             /* bit per fcp_pass */
    uint32_t deterministic;
    uint32_t mask_uses;          /* MC_USES_* of the mask */
    uint32_t align;              /* fcp_align: where the queries are; bottom right in a plan that is not split */
    uint64_t tokens, key_tokens; /* of queries, of keys: the same in a plan that is not split */
    uint64_t memory_cap;         /* bytes per rank */
    double scale;
} fcp_problem;

/* Section CLUSTER: one record; what the simulator will need. Bandwidths in bytes per second per GPU. */
typedef struct fcp_cluster {
    char gpu[16];                /* profile name, NUL-padded */
    uint64_t intra, inter;       /* bytes/s */
    uint64_t latency_ns;
    uint64_t flops;              /* dense, at the model's dtype, per second */
    uint64_t memory_bandwidth;   /* bytes/s */
    uint64_t oversubscription_milli; /* 1000 = none */
} fcp_cluster;

/* Section SUMMARY: one record; everything in it follows from the tables, and the verifier checks that it does. */
typedef struct fcp_summary {
    uint64_t sequences, blocks, tiles;
    uint64_t pairs;              /* allowed pairs, counted per head only if the mask uses h */
    /* sum of queries * keys (times heads if the mask uses h): density = pairs / positions */
    uint64_t positions;
    uint64_t pairs_max_rank;     /* compute_max_over_mean = pairs_max_rank * ranks / pairs */
    uint64_t pairs_max_block;    /* heaviest Q block: compute_floor = max(1, pairs_max_block * ranks / pairs) */
    uint64_t tokens_max_rank, key_tokens_max_rank; /* home tokens, of queries and of keys */
    uint64_t bytes_total;        /* forward, both fabrics, without the reshuffle */
    uint64_t bytes_inter_node;   /* the part of it on net */
    uint64_t send_max, recv_max; /* the rank that sends, receives most, both fabrics: bytes */
    uint64_t bytes_reshuffle;    /* forward, IN and OUT, between ranks */
    uint64_t rounds, rounds_lower_bound, rounds_dependent; /* forward */
    uint64_t rounds_reshuffle;   /* forward, IN and OUT */
    uint64_t stages;             /* forward: the number of the last stage + 1 */
    uint64_t slots_max;          /* forward: most transient KV slots of a rank */
    uint64_t state_bytes;        /* forward: bytes of running state read and written, all ranks */
    uint64_t memory_peak_bytes;  /* the largest rank's, over the plan's passes: fcp_rank_memory */
    /* the backward pass; 0 where the plan has none */
    uint64_t backward_bytes_total, backward_bytes_inter_node;
    uint64_t backward_rounds, backward_rounds_dependent, backward_rounds_reshuffle, backward_stages;
    uint64_t backward_slots_max; /* most transient KV + DKV slots of a rank */
} fcp_summary;

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

typedef struct fcp_block {
    uint32_t first_piece, pieces;
    uint32_t tokens;
    uint32_t home, home_slot; /* home slots of a rank are 0, 1, 2, ... in block order */
    uint32_t holds;           /* FCP_HOLDS_* */
} fcp_block;

typedef struct fcp_tile {
    uint32_t q_block, k_block;
    uint32_t first_part, parts;
    uint32_t kv_slot;  /* of class KV */
    uint32_t dkv_slot; /* of class DKV; FCP_NONE when the plan has no backward pass */
    uint64_t pairs;
} fcp_tile;

/* A Q piece (of a block that holds Q) against a KV piece of the same sequence. Parts of a tile are in order of
 * (q_piece, k_piece). */
typedef struct fcp_part {
    uint32_t q_piece, k_piece; /* indices of pieces */
    uint32_t shape;
} fcp_part;

/* Runs in order of (row, col); a row is a row of cells, from the start of the Q piece; cells that no run names are
 * NONE. The last row and column of cells may be cut short by the pieces' ends. */
typedef struct fcp_shape_rec {
    uint32_t first_run, runs;
    uint32_t q_length, k_length; /* of the pieces it is for */
    uint64_t pairs;              /* in it, counted as fcp_summary.pairs is */
} fcp_shape_rec;

typedef struct fcp_run {
    uint32_t row, col;
    uint32_t count : 30, cls : 2; /* `count` cells of class `cls` from column col on */
} fcp_run;

enum { FCP_VISIT_FIRST = 1, FCP_VISIT_LAST = 2 };
typedef struct fcp_visit {
    uint32_t q_block;
    uint32_t first_tile, tiles;
    uint32_t state_slot; /* FCP_NONE for a single visit (FIRST and LAST) */
    uint32_t q_slot;     /* of class Q, at the executing rank */
    uint16_t flags, group;
} fcp_visit;

/* A round of a pass. Rounds of a pass are numbered in the order in which every rank launches its share of them. */
typedef struct fcp_round {
    uint32_t kind;
    uint32_t stage; /* IN: 0. OUT: for blocks done before the last stage its number (they move beside it), for the
                     * others that number + 1. Dependent rounds of a stage come before its independent ones. */
} fcp_round;

/* compute queue: WAIT COPY DELTA ATTEND REDUCE.  communication queue: WAIT LAUNCH. */
#define FCP_OP_LIST(X)                                                                                                 \
    X(FCP_OP_WAIT, "wait")     /* a = instructions of the other queue of this rank that must be complete */                  \
    X(FCP_OP_COPY, "copy")     /* transfers [a, a + b), peer = self, class IN or OUT: caller's layout <-> home slot */         \
    X(FCP_OP_DELTA, "delta")   /* backward: delta = sum(dO * O) over every home block of this rank */                         \
    X(FCP_OP_ATTEND, "attend") /* visits [a, a + b), as one fused launch */                                                   \
    X(FCP_OP_REDUCE, "reduce") /* class DKV: block a, add slot b into slot c (first contribution to c: copy) */               \
    X(FCP_OP_LAUNCH, "launch") /* transfers [a, a + b) of round c, as one group */
typedef enum fcp_op { FCP_OP_LIST(FCP_ID) FCP_OP_COUNT } fcp_op;

/* The tables of names, indexed by the enum's value. */
extern const char *const fcp_dtype_names[FCP_DTYPES], *const fcp_pass_names[FCP_PASSES], *const fcp_layout_names[FCP_LAYOUTS];
extern const char *const fcp_align_names[FCP_ALIGN_COUNT], *const fcp_strategy_names[FCP_STRATEGY_COUNT];
extern const char *const fcp_fabric_names[FCP_FABRICS], *const fcp_topology_names[FCP_TOPOLOGY_COUNT];
extern const char *const fcp_queue_names[FCP_QUEUES], *const fcp_queue_texts[FCP_QUEUES];
extern const char *const fcp_class_names[FCP_CLASSES], *const fcp_class_texts[FCP_CLASSES];
extern const char *const fcp_cell_names[FCP_CELL_CLASS_COUNT], *const fcp_direction_names[FCP_DIRECTION_COUNT];
extern const char *const fcp_round_names[FCP_ROUND_KIND_COUNT], *const fcp_op_names[FCP_OP_COUNT];

typedef struct fcp_instr {
    uint32_t op : 8, stage : 24;
    uint32_t a, b, c;
} fcp_instr;
enum { FCP_MAX_STAGES = (1 << 24) - 2 };

typedef struct fcp_stream {
    uint32_t first, count; /* instructions */
} fcp_stream;

/* One side of a transfer, seen from the rank whose stream names it; in a COPY, both sides.
 * The tokens are [first, first + tokens) of the block. KV and DKV name a slot of their class; the home's side of IN and
 * OUT names the home slot, and the caller's side (IN sent, OUT received: fcp_at_caller) the token of the caller's local
 * tensors where the run begins. A COPY is listed as the caller's side: its other side is the block's home slot. A unit
 * of KV or DKV begins at a multiple of the problem's `unit` and is `unit` long or ends the block; the units of a block
 * arrive in a slot in order. */
typedef struct fcp_transfer {
    uint32_t peer : 24, cls : 4, fabric : 2, dir : 2;
    uint32_t block, first, tokens;
    union {
        uint32_t slot;
        uint32_t place; /* token offset in the caller's tensors of this rank */
    };
} fcp_transfer;
enum { FCP_MAX_RANKS = 1 << 24 };
static inline bool fcp_at_caller(const fcp_transfer *t) {
    return t->cls == FCP_IN ? t->dir == FCP_SEND : t->cls == FCP_OUT && t->dir == FCP_RECV;
}

/* What mask and score read: a field (an integer for each token of the batch, over keys or over queries) or a table of
 * the model. The values lie in DATA from `offset` on (a multiple of 64), count * max(1, columns) of them. */
typedef enum fcp_array_kind { FCP_FIELD_KEYS, FCP_FIELD_QUERIES, FCP_TABLE, FCP_ARRAY_KINDS } fcp_array_kind;
typedef struct fcp_array {
    /* where in NAMES each begins, NUL-terminated; file, as the program names it: FCP_NONE if none */
    uint32_t name, file;
    uint32_t kind;
    uint32_t width;      /* mc_width; MC_F64 in tables only */
    uint64_t count, columns; /* columns: 0 for one dimension; a field has one */
    uint64_t offset;
    int64_t lo, hi;      /* least and greatest value of integers; 0 for reals */
    uint8_t hash[32];    /* SHA-256 of the file; 0 if none */
} fcp_array;

/* A union of slices: rows and bands (mc_bands) of it lie together. */
typedef struct fcp_slices {
    uint32_t first_row, rows, first_band, bands;
} fcp_slices;

/* Sections in file order: name, record type, member of fcp_plan. */
#define FCP_SECTIONS(X)                                                                                                \
    X(SOURCE, char, source)            /* canonical source, no NUL */                                                  \
    X(PROBLEM, fcp_problem, problem)                                                                                   \
    X(CLUSTER, fcp_cluster, cluster)                                                                                   \
    X(SUMMARY, fcp_summary, summary)                                                                                   \
    X(SEQUENCES, fcp_sequence, sequences)                                                                               \
    X(PIECES, fcp_piece, pieces)                                                                                       \
    X(BLOCKS, fcp_block, blocks)                                                                                       \
    X(TILES, fcp_tile, tiles)                                                                                          \
    X(PARTS, fcp_part, parts)                                                                                          \
    X(SHAPES, fcp_shape_rec, shapes)                                                                                   \
    X(RUNS, fcp_run, runs)                                                                                             \
    X(VISITS, fcp_visit, visits)                                                                                       \
    X(ROUNDS, fcp_round, rounds)       /* of the forward pass, then of the backward pass */                            \
    X(ROUND_STARTS, uint32_t, round_starts) /* FCP_PASSES + 1 offsets into rounds */                                   \
    X(STREAMS, fcp_stream, streams)    /* [(pass * ranks + rank) * FCP_QUEUES + queue] */                              \
    X(INSTRS, fcp_instr, instrs)                                                                                       \
    X(TRANSFERS, fcp_transfer, transfers)                                                                              \
    X(LAYOUT_STARTS, uint32_t, layout_starts) /* ranks + 1 offsets into layout */                                      \
    X(LAYOUT, fcp_span, layout)        /* of queries; and of keys, where the plan is not split */                      \
    X(KEY_LAYOUT_STARTS, uint32_t, key_layout_starts) /* likewise, of a split plan; else empty */                      \
    X(KEY_LAYOUT, fcp_span, key_layout)                                                                                \
    X(MASK, mc_node, mask)                                                                                             \
    X(SCORE, mc_node, score)           /* empty: the score is s */                                                     \
    X(SLOPE, mc_node, slope)           /* the score's derivative by s */                                               \
    X(SINK, double, sink)              /* per query head: a logit in the denominator; empty: none */                   \
    X(NAMES, char, names)                                                                                              \
    X(ARRAYS, fcp_array, arrays)                                                                                       \
    X(DATA, uint8_t, data)                                                                                             \
    X(SLICES, fcp_slices, slices)                                                                                      \
    X(BAND_ROWS, mc_band_rows, band_rows)                                                                              \
    X(BANDS, mc_band, bands)

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
    /* who owns the tables: release(owner) is called by fcp_plan_free, which then frees the plan itself (malloc'd) */
    void *owner;
    void (*release)(void *owner);
    /* prefix sums, sequences_count + 1 of queries and then of keys, malloc'd by fcp_plan_index */
    uint64_t *sequence_offsets;
    uint64_t file_size;         /* what saving writes: set by fcp_plan_index */
};

/* Fills what is derived from the tables (sequence_offsets, file_size). Called by the loader and the compiler. */
fcp_code fcp_plan_index(fcp_plan *plan, fcp_error *err);

/* Whose positions index an array that is a field. */
static inline fcp_side fcp_array_side(const fcp_array *array) {
    return array->kind == FCP_FIELD_QUERIES ? FCP_QUERIES : FCP_KEYS;
}
/* The size of its values. */
static inline uint64_t fcp_array_bytes(const fcp_array *array) {
    return array->count * (array->columns ? array->columns : 1) * (array->width == MC_F64 ? 8 : array->width);
}
/* What a sequence sees of an array whose values begin at `data`: a table whole; of a field its part, first[side] being
 * the sequence's first query or key in the batch, and its q_first, queries and n those of `env`. */
mc_array fcp_array_part(const fcp_array *array, const void *data, const uint64_t first[FCP_SIDES], const mc_env *env);
/* What mask and score see of a sequence. `arrays` has arrays_count and `bands` slices_count records, filled; *out_env
 * points to them. */
void fcp_plan_env(const fcp_plan *plan, uint32_t sequence, mc_array *arrays, mc_bands *bands, mc_env *out_env);

/* The verifier: proves, from the tables alone, what verify/verify.c and verify_*.c list. What it found is in *out_report when
 * not NULL. The tables must have passed fcp_plan_check. Linear in the plan. `stop` may be NULL; otherwise it is read again
 * and again, and as soon as it is not 0 the verifier returns FCP_E_INTERRUPTED. */
typedef struct fcp_verify_report {
    uint64_t tiles, transfers; /* transfers: between ranks, in all passes */
    uint64_t rounds[FCP_PASSES], delta[FCP_PASSES][FCP_FABRICS]; /* of the independent units */
    uint64_t instructions;
} fcp_verify_report;
fcp_code fcp_plan_check(const fcp_plan *plan, fcp_error *err);  /* every index, count and enum in range; format only */
fcp_code fcp_plan_verify(const fcp_plan *plan, const volatile int *stop, fcp_verify_report *out_report, fcp_error *err);

/* Writes the bytes of a plan file to a descriptor. 0, or an errno value; EOVERFLOW: the tables are larger than any file. */
int fcp_plan_write(const fcp_plan *plan, int fd);

/* The plan as text, a line per record, comparable line by line; or as one JSON object. `emit` gets successive
 * chunks. */
typedef void fcp_emit(void *context, const char *text, size_t size);
fcp_code fcp_plan_dump(const fcp_plan *plan, bool json, fcp_emit *emit, void *context, fcp_error *err);

static inline uint32_t fcp_node_of(const fcp_problem *p, uint32_t rank) { return rank / p->gpus; }
static inline const fcp_stream *fcp_stream_of(const fcp_plan *p, fcp_pass pass, uint32_t rank, fcp_queue queue) {
    return &p->streams[((uint64_t)pass * p->problem->ranks + rank) * FCP_QUEUES + queue];
}

/* The place of an instruction, for fcp_fail_at: `index` counts from 0 in that queue, which has that instruction. */
static inline fcp_where fcp_where_of(const fcp_plan *p, fcp_pass pass, uint32_t rank, fcp_queue queue, uint32_t index) {
    const fcp_instr *x = &p->instrs[fcp_stream_of(p, pass, rank, queue)->first + index];
    return (fcp_where){.rank = rank, .pass = pass, .stage = x->stage, .queue = queue, .instruction = index};
}

static inline bool fcp_plan_split(const fcp_plan *p) { return p->key_layout_starts_count != 0; }
/* Prefix sums of a side's tokens over the sequences, sequences_count + 1. */
static inline const uint64_t *fcp_offsets(const fcp_plan *p, fcp_side side) {
    return p->sequence_offsets + (side == FCP_KEYS ? p->sequences_count + 1 : 0);
}
static inline uint64_t fcp_side_length(const fcp_sequence *s, fcp_side side) {
    return side == FCP_KEYS ? s->keys : s->queries;
}
/* The side whose tokens a block's are, and whose layout its IN and OUT refer to. */
static inline fcp_side fcp_side_of(const fcp_block *b) { return b->holds & FCP_HOLDS_Q ? FCP_QUERIES : FCP_KEYS; }
/* The layout of a side: spans, and ranks + 1 offsets into them. */
static inline const fcp_span *fcp_side_layout(const fcp_plan *p, fcp_side side, const uint32_t **out_starts) {
    bool keys = side == FCP_KEYS && fcp_plan_split(p);
    *out_starts = keys ? p->key_layout_starts : p->layout_starts;
    return keys ? p->key_layout : p->layout;
}

/* The first of a shape's runs in `row` or later. */
static inline uint32_t fcp_run_of_row(const fcp_plan *plan, const fcp_shape_rec *shape, uint32_t row) {
    uint32_t low = shape->first_run, high = shape->first_run + shape->runs;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (plan->runs[middle].row < row) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Bytes of one token of a class, in a slot or on the wire (the same), of a block that holds both sides: with e =
 * dtype size,
 *   KV     2 * kv_heads * head_dim * e
 *   DKV    2 * kv_heads * head_dim * 4
 *   STATE  heads * (head_dim + 2) * 4
 *   Q      heads * head_dim * e
 *   IN     forward: Q + KV;  backward: 3 Q (Q, O, dO) + KV + heads * 4 (LSE)
 *   OUT    forward: Q + heads * 4 (O, LSE);  backward: Q + KV (dQ, dK, dV) */
uint64_t fcp_class_bytes(const fcp_problem *p, fcp_class cls, fcp_pass pass);
/* The same of a block that holds `holds`: of IN and OUT the part with Q (Q, O, LSE, dO, dQ), with KV (K, V, dK, dV), or
 * all. */
uint64_t fcp_held_bytes(const fcp_problem *p, uint32_t holds, fcp_class cls, fcp_pass pass);

/* A rank's arena in a pass, in bytes: resident tensors of its homes (tokens * per-token), accumulators, and slots. With
 * q_tokens and kv_tokens the tokens of its home blocks that hold Q, and KV,
 *   forward:  q_tokens * (Q + O + LSE) + kv_tokens * KV + kv_slots * max_block * KV + state_slots * max_q_block * STATE
 *   backward: q_tokens * (3 Q + 2 * heads * 4 [LSE, delta] + heads * head_dim * 4 [dQ] + Q [output])
 *             + kv_tokens * (KV + DKV + KV [outputs]) + kv_slots * max_block * KV + dkv_slots * max_block * DKV
 * (O and the outputs dQ, dK, dV count in the dtype; slots counted are the transient ones). */
uint64_t fcp_rank_memory(const fcp_problem *p, fcp_pass pass, uint64_t q_tokens, uint64_t kv_tokens, uint64_t kv_slots,
                         uint64_t state_slots, uint64_t dkv_slots);
#endif
