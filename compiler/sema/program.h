/* program.h: a checked program: all that planning has to know of the text. */
#ifndef FCPC_SEMA_PROGRAM_H
#define FCPC_SEMA_PROGRAM_H
#include "compiler/base/arena.h"
#include "compiler/base/diag.h"
#include "compiler/fcpc.h"
#include "runtime/plan/plan_arrays.h"
#include "runtime/plan/plan_cluster.h"
#include "runtime/plan/recurrent.h"

enum { BLOCK_AUTO = 0, BLOCK_USUAL = 4096 };
#define MARGIN_AUTO UINT32_MAX

/* How fcp places blocks, and how ring and zigzag send keys. */
typedef enum fcp_placing { PLACE_NEAR, PLACE_LPT, FCP_PLACINGS } fcp_placing;
typedef enum ring_send { RING_AROUND, RING_DIRECT, RING_SENDS } ring_send;
/* How groups cuts a sequence over the ranks of its group. */
typedef enum groups_shape { GROUPS_ZIGZAG, GROUPS_RING, GROUPS_SHAPES } groups_shape;

/* Where cad takes homes from: the caller's ranks, or those that another strategy would choose. */
#define CAD_BASES(X) X(CALLER, "caller") X(FCP, "fcp") X(RING, "ring") X(ZIGZAG, "zigzag")
typedef enum cad_base {
#define X(id, name) CAD_BASE_##id,
    CAD_BASES(X)
#undef X
    CAD_BASE_COUNT
} cad_base;

/* A number that a mask of the prelude takes, and that is computed for each sequence, as n - 60. */
typedef struct program_count {
    mc_code code;   /* of n and fields over sequences; empty: the mask does not read such a field after all */
    mc_code guard;  /* where it is reached, by q, k, n and h; empty: everywhere */
    const char *of; /* "w of 'window'" */
    span at;
    struct program_count *next;
} program_count;

/* Some sequences of the batch, in order, whose tokens ranks first to end - 1 hold: lengths = file("a") on 0..32. */
typedef struct program_part {
    size_t count; /* sequences */
    uint32_t first, end;
} program_part;

/* A field or table. The values of a field belong to the program's own batch. If they come with each batch, data is
 * NULL. */
typedef struct program_array {
    const char *name, *file; /* as the program names it; file NULL: none */
    fcp_array record;        /* lo and hi are those of the values, or as declared; name, file and offset are not set */
    bool declared;           /* the program states a range, and the values of every batch must be inside it */
    int64_t declared_lo, declared_hi;
    const char *run_of;      /* it is run(...) of the field of that name, or NULL */
    const char
        *count_of; /* a mask of the prelude takes its elements as "w of 'window'", so none may be negative; or NULL */
    const void *data;        /* record.count * max(1, columns) values of record.width */
    span at;
} program_array;

/* The slices of one call, as they were given. Their union is in program.slices, under the same number. */
typedef struct program_slices {
    const char *file;               /* "": written out */
    uint64_t count;
    uint64_t overlapping, overlaps; /* how many slices share pairs with others; how many pairs of slices do */
    bool at_least;                  /* there may be more */
    int64_t reach;                  /* one more than the last position in any of them, */
    uint32_t reach_line;            /* which is in this one: its line, or its number */
    span at;
} program_slices;

/* A call exact(a, b), and its two numbers if they are constants and b does not divide a. Otherwise divisor is 0. */
typedef struct program_exact {
    span at;
    int64_t dividend, divisor;
} program_exact;

/* One of the masks of `layers`. */
typedef struct program_layer {
    uint32_t times;        /* how many layers have it */
    fcpc_program *program; /* with this mask; NULL: of the first one, which is the program itself */
} program_layer;

/* What errors and warnings of a batch point to in the source. */
typedef enum program_place {
    AT_MASK,
    AT_SCORE, /* the calls in `plan` */
    AT_BLOCK,
    AT_RANKS,
    AT_LENGTHS,
    AT_MEMORY,
    AT_LAYOUT,
    AT_STRATEGY,
    AT_EPSILON,
    AT_TOKENS,
    AT_DOCUMENTS, /* values of keys */
    AT_RECURRENT, /* the first layers that recur */
    PROGRAM_PLACES
} program_place;

struct fcpc_program {
    arena arena; /* owns everything below */
    program_layer *layers;
    uint32_t layer_count; /* 0: the plan names one mask */
    uint32_t layer;       /* which of them this program's mask is */
    /* The kinds of layers that recur, each once, as the program states them: what planning finds is 0. Of several masks
     * the plan of the first has their tables. */
    const fcp_recurrent *recurrent;
    uint32_t recurrent_count;

    /* model */
    uint32_t heads, kv_heads;
    uint32_t head_dim, value_dim; /* numbers of a head of Q and K; of V and O */
    bool values_in_keys;          /* V is the first value_dim numbers of each key */
    fcp_dtype dtype;
    double scale;
    /* What linear layers between two attentions take for a token, in picoseconds; and what they keep of it until the
     * backward pass, in bytes, all layers together. 0: the program does not say. */
    uint64_t linear[FCP_PASSES], linear_memory;

    /* cluster */
    uint32_t nodes, gpus;
    fcp_topology topology;
    fcp_cluster cluster;
    uint64_t memory_cap; /* bytes per rank */

    /* batch */
    const uint64_t *lengths; /* keys of each sequence; NULL when the program has none */
    const uint64_t *queries; /* of each sequence; NULL: as many as keys */
    size_t length_count;
    const program_part *parts; /* of the lengths, in order */
    uint32_t part_count;       /* 0: all ranks hold all sequences */
    uint32_t documents;        /* the number of the field that tells documents apart, or FCP_NONE */
    fcp_align align;

    /* mask: the call in `plan`, inlined, its parameters constant */
    mc_code mask;
    const span *mask_spans; /* per node: the sub-expression it came from */
    const char *mask_name;  /* "lambda(sink = 64, window = 8192)" */
    bool mask_own;          /* it is defined in the program, not in the prelude */
    /* of the call */
    const struct program_param { const char *name; int64_t value; bool is_number; span at; } *mask_params;
    uint32_t mask_param_count;

    program_count *counts; /* in the mask */

    /* what mask, score and documents read, by number */
    const program_array *arrays;
    uint32_t array_count;
    uint32_t unread_count; /* fields behind these that nothing reads, without values: a batch may bring some for them */
    const mc_bands *slices;
    const program_slices *slices_about;
    uint32_t slices_count;

    const char *const *fields; /* names of all declared */
    uint32_t field_count;

    /* score: empty where it is s. slope: its derivative by s. Reads arrays and slices as the mask does. */
    mc_code score, slope;
    const span *score_spans; /* per node of score */
    const char *score_name;  /* "softcap(c = 50.0)", NULL: the plan has none */
    /* The mask, with nodes added that fault where the score would fault for a pair that the mask allows. If the score
     * cannot fault, it is the mask. */
    mc_code check;
    const span *check_spans;
    const double *sink; /* per query head, or NULL */
    /* The calls exact(a, b) of mask and score, which say that b divides a. Each becomes a node that divides a by (if
     * a % b == 0 then b else 0). So it divides by zero, which is a fault, where b does not divide a. */
    program_exact *exact;
    uint32_t exact_count;

    /* plan */
    uint32_t block;   /* tokens, or BLOCK_AUTO */
    bool block_found, strategy_found; /* auto has found it; the program does not state it */
    fcp_strategy strategy;      /* or STRATEGY_AUTO */
    uint32_t coalesce, buffers; /* 0: auto decides */
    uint32_t margin; /* MARGIN_AUTO: not stated; before the program is handed out it gets the least of `margins` */
    /* not stated: each plan gets that of these with which it is fastest; NULL: it is as `margin` says */
    const struct sim_margins *margins;
    uint32_t tolerance; /* how far a rank's work may be over the mean, in millionths */
    uint32_t place;     /* fcp: an fcp_placing */
    uint32_t split;     /* fcp: 1: blocks that are too heavy for one rank are computed by several */
    /* auto, groups, and who chooses a margin, judge by it (simulate/profile.h); NULL: by that of cluster.gpu */
    const struct sim_profile *profile;
    bool profile_steers; /* there is one, and the program leaves something open that is chosen by it */
    uint32_t budget; /* auto: microseconds of work that trying candidates may take (auto/budget.c); 0: not stated */
    uint32_t effort, among; /* auto: 1 to 3; a bit for each strategy that it may try */
    uint32_t base, servers, shard; /* cad: a cad_base; ranks without tokens; where rows may be cut */
    uint32_t send;                 /* ring, zigzag: a ring_send */
    uint32_t tokens, shape;        /* groups: the most tokens of a rank; a groups_shape */
    uint32_t pingpong;  /* cad: 1: the batch moves in two halves, one of which is computed while the other moves */
    bool equal;         /* every rank is home to as many tokens as any other, or to one more */
    /* ulysses and upipe: how many ranks share heads; how many heads are computed at a time; and, if there are several
     * groups of such ranks, BETWEEN(the strategy that divides the batch among them), else 0. */
    uint32_t inside, together, between;
    /* dcp: how far a rank's tokens may be over the mean, in millionths; stages in which tiles run, where `coalesce` is 0
     * (schedule/schedule.c). 0: no limit is stated, as for other strategies */
    uint32_t epsilon_memory, divisions;
    uint32_t epsilon_nodes; /* dcp: how far a node's work may be over the mean of nodes, in millionths; then `tolerance`
                             * is over the mean of a rank's node. 0: nodes have none of their own */
    bool relay;         /* blocks that many nodes read are passed on from node to node */
    bool passes[FCP_PASSES];
    fcp_layout layout;
    uint32_t layout_group; /* neighbouring ranks over which the layout is made; 0: all ranks */
    bool deterministic;
    fcp_dtype wire;     /* of partial results as they travel: FCP_FP32 or FCP_BF16 */
    bool lse_gradient;  /* the backward pass takes a gradient of LSE; false where there is no backward pass */
    span at[PROGRAM_PLACES]; /* SPAN_NONE where the program does not state it */

    const char *canonical;    /* printed program, overrides applied */
    const char *plan_source;  /* the same without the batch, which plans keep as tables; plans store this text */
    /* the files that it names, as seen from the current folder, also those that an option replaced or that nothing
     * reads */
    struct program_file { struct program_file *next; const char *path; span at; } *files;
    double parse_seconds;
    /* the sources that its spans refer to, so that another diagnostics object can show them */
    const struct program_source { const char *name, *text; size_t size; uint32_t line, column; bool builtin; } *sources;
    uint32_t source_count;
    struct workspace *workspace; /* memory that fcpc_plan uses again for the next batch: workspace.h */
};

/* The tokens of a block. If the size is still to be chosen, or the strategy cuts no blocks of one size, it is the usual
 * size. */
static inline uint32_t program_block(const struct fcpc_program *p) {
    return p->block == BLOCK_AUTO ? BLOCK_USUAL : p->block;
}

/* How far a rank's work may be over the mean of all ranks, in millionths. Where nodes have a tolerance of their own,
 * both come together. Example: 0.1 inside nodes and 0.4 between them are 1.1 x 1.4 - 1 = 0.54. At most UINT32_MAX. */
static inline uint32_t program_rank_tolerance(const struct fcpc_program *p) {
    const uint64_t both =
        (1000000 + (uint64_t)p->tolerance) * (1000000 + (uint64_t)p->epsilon_nodes) / 1000000 - 1000000;
    return !p->epsilon_nodes || p->nodes == 1 ? p->tolerance : both < UINT32_MAX ? (uint32_t)both : UINT32_MAX;
}

/* What the program's `between` holds for a strategy: its number plus 1, because 0 means that there is none. */
#define BETWEEN(strategy) ((uint32_t)(strategy) + 1)
static inline uint32_t program_layout_group(const struct fcpc_program *p) {
    return p->layout_group ? p->layout_group : p->nodes * p->gpus;
}

struct sema;
/* Ends a parse: gives s->out its canonical text, and copies of the sources that its spans refer to. Their numbers
 * begin at s->main_source; afterwards the program's spans count from 0. False: no memory, reported. */
bool program_finish(struct sema *s);

/* Registers the program's sources in `d`, unless `d` has them already, as after parsing the program with it. Returns
 * what must be added to the source number of a span of the program, so that `d` can show it. */
uint32_t program_attach(const fcpc_program *program, diags *d);

/* An empty program; NULL: no memory. */
fcpc_program *program_new(void);
/* Frees a program, but not its workspace: fcpc_program_free does both. */
void program_free(fcpc_program *program);
#endif
