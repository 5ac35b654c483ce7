/* recurrent.h: the records of layers that mix tokens other than by attention, over the placement that attention has
 * chosen. FORMAT.md, "Recurrent layers", says what they mean.
 *
 * Words.
 *   stretch     neighbouring tokens of one document that lie one behind the other in a rank's tensors (layout.h).
 *               Stretches of a rank are numbered in the order of its tensors
 *   halo        the rows before and behind each stretch that its first and last tokens read
 *   summary     what a stretch does to a state that enters it: h -> A h + b; A is the decay, b a state
 *   network     the messages and combinations of one layer in one pass, as steps of each rank
 */
#ifndef FCP_PLAN_RECURRENT_H
#define FCP_PLAN_RECURRENT_H
#include "runtime/plan/instructions.h"

/* How summaries travel. Shown to people; what is done is in the steps. */
#define FCP_SCAN_SHAPE_LIST(X)                                                                                         \
    X(FCP_SCAN_NONE, "none")     /* nothing travels: no document has stretches at two ranks; and halos */              \
    X(FCP_SCAN_CHAIN, "chain")   /* each stretch hands its state to the next */                                        \
    X(FCP_SCAN_TREE, "tree")     /* summaries are combined up a tree, and states come down (Blelloch) */               \
    X(FCP_SCAN_NODES, "nodes")   /* the same within nodes and then between them */                                     \
    X(FCP_SCAN_GATHER, "gather") /* every stretch gets the summaries of all before it */                               \
    X(FCP_SCAN_MIXED, "mixed")   /* documents differ */
typedef enum fcp_scan_shape { FCP_SCAN_SHAPE_LIST(FCP_ID) FCP_SCAN_SHAPES } fcp_scan_shape;

/* Section RECURRENT: one record for each kind of such layers, in the order of the program. */
typedef struct fcp_recurrent {
    uint32_t kind;                 /* fcp_layer_kind: FCP_HALO or FCP_SCAN */
    uint32_t times;                /* how many layers of the model are so; at least 1 */
    uint32_t before, after;        /* halo: rows that a token reads; not both 0. scan: 0 */
    uint32_t channels;             /* halo: numbers of a row, by which it is priced. scan: 0 */
    uint32_t heads, rows, columns; /* scan: the state of a head is rows x columns float32. halo: 0 */
    uint32_t decay;                /* scan: fcp_decay. halo: 0 */
    uint32_t reverse; /* scan: 1: in the forward pass states run from the end of a document to its beginning */
    uint32_t parts;   /* scan: heads travel in so many equal parts, which divide `heads`. halo: 1 */
    uint32_t shape;   /* fcp_scan_shape */
    uint32_t
        rounds[FCP_PASSES]; /* of the network of each pass; halo: the gradient goes the same ways back, so the second
                                   * is 0. 0 also for a pass that the plan does not have */
    uint32_t bound[FCP_PASSES]; /* no network of the same messages has fewer rounds: the most that a rank sends, or
                                   * receives, over a fabric; or the longest chain of messages that wait for each other
                                   * */
} fcp_recurrent;
_Static_assert(sizeof(fcp_recurrent) == 64, "format");

/* Section STEP_STREAMS: [(layer * FCP_PASSES + pass) * ranks + rank]; in an extract [layer * FCP_PASSES + pass]. The
 * steps of a rank in a network, in the order in which it does them. Streams lie one behind the other, without gaps. */
typedef struct fcp_step_stream {
    uint64_t first; /* into steps */
    uint32_t count;
    uint32_t temporaries; /* registers of the rank beyond those of its stretches */
} fcp_step_stream;
_Static_assert(sizeof(fcp_step_stream) == 16, "format");

/* Registers of a scan at a rank with S stretches:
 *   0 .. S - 1        the summaries of its stretches, which the caller brings; whole (A and b); read only
 *   S .. 2 S - 1      the states that enter its stretches, which the caller gets; b alone
 *   2 S ..            temporaries. A temporary holds one part of the heads; others hold all parts
 *
 * What a register part holds is the product of the summaries of neighbouring stretches of one document, in the order in
 * which states run. If that begins with the document's first stretch in that order, b alone is a state (the state
 * before it is 0), and A is not needed.
 *
 *   SEND     register a to `peer` in round `round`; whole: A and b, else b alone, which must be a state.
 *            halo: rows [a, a + b) of halo_rows, end to end
 *   RECV     the same into register `out`; halo: into rows [a, a + b) of halo_rows
 *   COMBINE  out = what a does, then what b does. b is whole. whole: a is whole, too, and so is out; else out is a
 *            state out.b = b.A a.b + b.b, and if whole out.A = b.A a.A
 *   COPY     scan: the b of register a, which must be a state, to register `out`
 *            halo: rows halo_rows[a] of the rank's tensors to the halo rows halo_rows[b]
 */
#define FCP_STEP_LIST(X)                                                                                               \
    X(FCP_STEP_SEND, "send") X(FCP_STEP_RECV, "recv") X(FCP_STEP_COMBINE, "combine") X(FCP_STEP_COPY, "copy")
typedef enum fcp_step_op { FCP_STEP_LIST(FCP_ID) FCP_STEP_OPS } fcp_step_op;

/* Section STEPS. Operands that a step does not use are 0. Sends and receives of a rank are in order of round; those of
 * one round follow each other, with no other step between them, and are launched together. All ranks do their rounds in
 * order. In a round a rank sends at most once and receives at most once over each fabric, and receives into nothing
 * that it sends. */
typedef struct fcp_step {
    uint8_t op, fabric; /* fcp_step_op, fcp_fabric */
    uint8_t whole;      /* scan: 1: A and b */
    uint8_t pad;
    uint32_t part; /* scan: which of the `parts` */
    uint32_t round, peer;
    uint32_t a, b, out;
} fcp_step;
_Static_assert(sizeof(fcp_step) == 28, "format");

/* Section HALO_ROWS: `count` rows from `first` on. Of SEND and COPY's a: rows of the rank's tensors. Of RECV and COPY's
 * b: rows of its halo, which has before + after rows for each stretch: those before it, in the order of the tokens,
 * then those behind it. Rows of the halo that lie beyond the document are written by no step, and are zeros. */
typedef struct fcp_halo_rows {
    uint64_t first;
    uint32_t count, pad;
} fcp_halo_rows;
_Static_assert(sizeof(fcp_halo_rows) == 16, "format");

/* In an extract the streams of other ranks are empty. */
static inline const fcp_step_stream *fcp_steps_of(const fcp_plan *p, uint32_t layer, fcp_pass pass, uint32_t rank) {
    static const fcp_step_stream nothing;
    const uint64_t network = (uint64_t)layer * FCP_PASSES + pass;
    if (!p->extract) return &p->step_streams[network * p->problem->ranks + rank];
    return rank == p->extract->about->rank ? &p->step_streams[network] : &nothing;
}
/* Do the states of a network run from the end of documents to their beginning? The gradient runs against the pass. */
static inline bool fcp_scan_descends(const fcp_recurrent *layer, fcp_pass pass) {
    return (layer->reverse != 0) != (pass == FCP_BACKWARD);
}
/* How many float32 numbers of a head A has. */
static inline uint64_t fcp_decay_numbers(const fcp_recurrent *x) {
    return x->decay == FCP_DECAY_SCALAR ? 1 : x->decay == FCP_DECAY_VECTOR ? x->rows : (uint64_t)x->rows * x->rows;
}
static inline uint64_t fcp_state_numbers(const fcp_recurrent *x) { return (uint64_t)x->rows * x->columns; }
/* How many rows a SEND or RECV of a halo moves; a message has so many, end to end. */
static inline uint64_t fcp_step_rows(const fcp_plan *plan, const fcp_step *step) {
    uint64_t rows = 0;
    for (uint32_t i = 0; i < step->b; i++) rows += plan->halo_rows[step->a + (uint64_t)i].count; /* below 2^64 */
    return rows;
}
/* The bytes of a message of a scan. */
static inline uint64_t fcp_step_bytes(const fcp_recurrent *x, const fcp_step *step) {
    return x->heads / x->parts * (fcp_state_numbers(x) + (step->whole ? fcp_decay_numbers(x) : 0)) * 4;
}
#endif
