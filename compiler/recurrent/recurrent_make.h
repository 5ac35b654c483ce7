/* recurrent_make.h: what layers beside attention need of other ranks, over the placement that attention has chosen:
 * rows for halos, and networks of messages for scans. recurrent.h in runtime/plan has the tables and the words. */
#ifndef FCPC_RECURRENT_MAKE_H
#define FCPC_RECURRENT_MAKE_H
#include "compiler/base/arena.h"
#include "compiler/planning/planning.h"
#include "compiler/simulate/recurrent_walk.h"
#include "runtime/plan/plan_cluster.h"
#include "runtime/plan/recurrent.h"
#include "runtime/plan/layout.h"

/* The pass: adds the tables to x->plan, if the program has such layers. FCP_E_LENGTHS: sequences whose queries and keys
 * differ in number; FCP_E_PLAN_SIZE: more steps than a plan may have. */
fcp_code recurrent_build(planning *x);

/* The tables of one plan. Pointers are into an arena. */
typedef struct recurrent_tables {
    fcp_recurrent *recurrent;
    fcp_step_stream *step_streams;
    fcp_step *steps;
    fcp_halo_rows *halo_rows;
    uint64_t recurrent_count, step_streams_count, steps_count, halo_rows_count;
} recurrent_tables;
/* Makes them for an indexed plan whose sequences have as many queries as keys. `layers`: what a program states of them;
 * scans with `parts` that are not 0 keep them, and then also a `shape` that is not FCP_SCAN_NONE; else both are chosen.
 * memory: for the tables; scratch: may be reset afterwards. Cost: linear in the stretches of documents that are cut,
 * the messages and the ranks, but for sorts. FCP_E_NO_MEMORY, FCP_E_INTERRUPTED, FCP_E_PLAN_SIZE. */
fcp_code recurrent_make(const fcp_plan *plan, const fcp_recurrent *layers, uint32_t count, arena *memory,
                        arena *scratch, const volatile int *stop, recurrent_tables *out);

/* --- inside the room ---------------------------------------------------------------------------------------------- */

/* A stretch of a document that several stretches share. */
typedef struct cut_stretch {
    fcp_stretch at;
    uint32_t rank, number; /* its number among its rank's */
} cut_stretch;

/* A way to scan (scan_shapes.h): FCP_SCAN_MIXED, or one shape for all documents for which it makes sense; and the
 * number of parts. */
typedef struct scan_way {
    fcp_scan_shape shape;
    uint32_t parts;
} scan_way;

/* What all layers of a plan share. */
typedef struct recurrent_batch {
    const fcp_plan *plan;
    const fcp_recurrent *asked; /* what is asked of the layer under way */
    uint32_t ranks, gpus;
    cut_stretch *cut; /* in order of the packed batch; so the stretches of a document are neighbours */
    uint32_t cut_count;
    uint32_t *rank_counts;  /* how many stretches each rank has, whole documents among them */
    const sim_model *links; /* what messages take */
    uint64_t *ports;        /* scratch: for each rank, fabric and direction */
    scan_way way;           /* by which the scan under way goes in its first pass */
    arena *scratch;
    const volatile int *stop;
} recurrent_batch;
static inline fcp_fabric recurrent_fabric(const recurrent_batch *b, uint32_t from, uint32_t to) {
    return from / b->gpus == to / b->gpus ? FCP_LOCAL : FCP_NET;
}
/* Do two neighbours of the list belong to one document? */
static inline bool recurrent_follows(const cut_stretch *x, const cut_stretch *next) {
    return x->at.document == next->at.document;
}

/* Steps as passes make them, in any order; recurrent_write sorts them into streams. */
typedef struct placed_step {
    fcp_step step;
    uint32_t rank;
    uint32_t when; /* 2 round + 1 of a message, 2 n of what needs the first n rounds */
} placed_step;
typedef struct step_list {
    placed_step *at;
    uint32_t count;
    size_t room;
    uint32_t rounds, bound;
    uint32_t *temporaries; /* per rank; NULL: none */
} step_list;
/* Predicts a layer with these steps. */
fcp_code recurrent_time(recurrent_batch *b, const fcp_recurrent *layer, const step_list *list, uint64_t *out);
/* Adds a step; false: no memory. */
bool recurrent_add(recurrent_batch *b, step_list *list, uint32_t rank, uint32_t when, fcp_step step);

/* halo.c: the steps of a halo, and rows for them, which are added to `rows`. */
typedef struct rows_list {
    fcp_halo_rows *at;
    uint32_t count;
    size_t room;
    arena *memory;
} rows_list;
fcp_code recurrent_halo(recurrent_batch *b, const fcp_recurrent *layer, rows_list *rows, step_list *out);

/* scan.c: the steps of a scan in one direction. Sets layer->parts, and with the forward pass layer->shape. */
fcp_code recurrent_scan(recurrent_batch *b, fcp_recurrent *layer, fcp_pass pass, step_list *out);

/* A scan before it has rounds: operations on values, each of which lies at one rank and is of one part of the heads. An
 * operation comes behind those whose values it uses. */
enum { VALUE_TEMPORARY = UINT32_MAX };
typedef struct scan_op {
    uint8_t op; /* FCP_STEP_SEND (a message), COMBINE or COPY */
    uint8_t whole;
    uint32_t part;
    uint32_t rank, to; /* where it is done; of a message: the sender and the receiver */
    uint32_t a, b; /* operations that make its operands, or, with the top bit, registers that are there at the start */
    uint32_t out;  /* the register of its result at its rank (a message: at `to`); VALUE_TEMPORARY: any */
} scan_op;
#define SCAN_GIVEN (UINT32_C(1) << 31)
typedef struct scan_ops {
    scan_op *at;
    uint32_t count;
    size_t room;
} scan_ops;
/* scan_rounds.c: gives messages rounds, and temporaries places. */
fcp_code recurrent_rounds(recurrent_batch *b, const scan_ops *ops, step_list *out);
#endif
