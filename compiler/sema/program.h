/* program.h: a checked program: what sema makes of a source, and everything later passes need of it. */
#ifndef FCPC_SEMA_PROGRAM_H
#define FCPC_SEMA_PROGRAM_H
#include "runtime/plan/plan.h"
#include "compiler/base/arena.h"
#include "compiler/base/diag.h"
#include "compiler/fcpc.h"

enum { BLOCK_AUTO = 0 };

/* A field or table. A field is over the program's own batch, unless its values come with each batch: then data is
 * NULL. */
typedef struct program_array {
    const char *name, *file; /* as the program names it; file NULL: none */
    fcp_array record;        /* name, file and offset unset; lo and hi: of the values, or as declared */
    bool declared;           /* lo and hi were stated: values of another batch must keep to them */
    int64_t declared_lo, declared_hi;
    const char *run_of;      /* it is run(...) of the field of that name, or NULL */
    const void *data;        /* record.count * max(1, columns) values of record.width */
    span at;
} program_array;

/* Slices as they were given; their union is in program.slices under the same number. */
typedef struct program_slices {
    const char *file;               /* "": written out */
    uint64_t count;
    uint64_t overlapping, overlaps; /* slices that share pairs with others; pairs of such */
    bool at_least;                  /* there may be more */
    int64_t reach;                  /* the position after the last that one of them holds, */
    uint32_t reach_line;            /* this one: by its line, or its number */
    span at;
} program_slices;

struct fcpc_program {
    arena arena; /* owns everything below */

    /* model */
    uint32_t heads, kv_heads, head_dim;
    fcp_dtype dtype;
    double scale;

    /* cluster */
    uint32_t nodes, gpus;
    fcp_topology topology;
    fcp_cluster cluster;
    uint64_t memory_cap; /* bytes per rank */

    /* batch */
    const uint64_t *lengths; /* keys of each sequence; NULL when the program has none */
    const uint64_t *queries; /* of each sequence; NULL: as many as keys */
    size_t length_count;
    fcp_align align;

    /* mask: the call in `plan`, inlined, its parameters constant */
    mc_code mask;
    const span *mask_spans; /* per node: the sub-expression it came from */
    const char *mask_name;  /* "lambda(sink = 64, window = 8192)" */
    span mask_span;         /* of the call */
    bool mask_own;          /* it is defined in the program, not in the prelude */
    /* of the call */
    const struct program_param { const char *name; int64_t value; bool is_number; span at; } *mask_params;
    uint32_t mask_param_count;

    /* what mask and score read, by number */
    const program_array *arrays;
    uint32_t array_count;
    const mc_bands *slices;
    const program_slices *slices_about;
    uint32_t slices_count;

    const char *const *fields; /* names of all declared */
    uint32_t field_count;

    /* score: empty where it is s. slope: its derivative by s. Reads arrays and slices as the mask does. */
    mc_code score, slope;
    const span *score_spans; /* per node of score */
    const char *score_name;  /* "softcap(c = 50.0)", NULL: the plan has none */
    span score_span;         /* of the call */
    /* the mask, but that it also faults where the score would, for a pair that the mask allows: the mask's own nodes
     * where the score cannot fault */
    mc_code check;
    const span *check_spans;
    const double *sink; /* per query head, or NULL */

    /* plan */
    uint32_t block; /* tokens, or BLOCK_AUTO */
    fcp_strategy strategy;
    uint32_t coalesce, buffers, margin;
    bool passes[FCP_PASSES];
    fcp_layout layout;
    bool deterministic;
    span block_span, ranks_span, lengths_span, memory_span, strategy_span; /* where stated; SPAN_NONE for a default */

    const char *canonical;    /* printed program, overrides applied */
    const char *plan_source;  /* the same without its batch: what a plan stores (its lengths are a table) */
    /* the files that it names, as seen from the current folder; also those that an option replaced or nothing reads */
    struct program_file { struct program_file *next; const char *path; } *files;
    double parse_seconds;
    /* the sources its spans refer to, so that another diagnostics object can show them */
    const struct program_source { const char *name, *text; size_t size; bool builtin; } *sources;
    uint32_t source_count;
    struct workspace *workspace; /* what fcpc_plan keeps between batches: workspace.h; released with the program */
};

/* Registers the program's sources in `d` so that its spans (shifted by the result) can be shown there; when `d` already
 * holds them (it was used to parse this program) the shift is 0. Returns the shift to add to span.source. */
uint32_t program_attach(const fcpc_program *program, diags *d);

/* An empty program; NULL: no memory. */
fcpc_program *program_new(void);
/* Frees a program, but not its workspace, which is fcpc_program_free's. */
void program_free(fcpc_program *program);
#endif
