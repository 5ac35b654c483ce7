/* sema.h: the state of one parse. front.c creates it and hands it from step to step. */
#ifndef FCPC_SEMA_SEMA_H
#define FCPC_SEMA_SEMA_H
#include "compiler/sema/program.h"
#include "compiler/syntax/ast.h"

typedef struct sema {
    diags *d;
    arena *scratch;            /* memory of this parse */
    struct fcpc_program *out;
    ast program;
    uint32_t main_source;      /* number of the program's source in d */
    uint32_t prelude_source;   /* names.c: the prelude's, once something in it was read; before that 0 */
    mask *given;               /* names.c: masks and scores of the prelude that were read and declared */
    const char *folder;        /* "dir/" of the main source, or "" */
    const volatile int *stop;  /* not 0: end with FCP_E_INTERRUPTED; or NULL */
    bool regular_files;        /* no pipes and devices are read */
    uint32_t layer;            /* which of the plan's layers this parse is of: layer_masks.c */
    entry *layers_entry;       /* NULL: the plan names one mask */
    expr *layers_value, *layer_mask;
    struct layer_element *recurrent; /* recurrent_layers.c: elements of `layers` that are no masks */
    uint32_t recurrent_count;
    const fcp_plan *plan;      /* its arrays stand for the fields and tables of the same names; or NULL */

    struct symbol *symbols;    /* names.c: a hash table with open addressing, malloc'd */
    size_t symbol_count, symbol_room;
    struct array_decl **arrays; /* arrays.c: fields and tables, by number */
    uint32_t array_count;
    size_t array_room;
    const struct entry *documents; /* keys.c: the entry that names a field of documents, or NULL */
    struct slice_source *slices; /* expr/rect_slices.c: slices that were read so far */

    /* expr/expr.c: while expressions become mask code */
    struct mc_builder *builder; /* NULL: only checking */
    struct inlined *memos;      /* expr/inline.c: what was inlined before; malloc'd */
    size_t memo_count, memo_room;
    span *places;               /* the spans that nodes refer to by number; malloc'd; number 0 is unused */
    uint32_t place_count, place_room;
    bool names_h;               /* what was lowered so far names h */
    uint32_t depth, steps;      /* of calls that are being expanded; of all expansion, which is limited */
    uint32_t in_index;          /* what is lowered is written inside [ ] */
    uint64_t guarded;           /* how many nodes were made or reused whose meaning depends on their guard */
    bool failed;                /* too large, or out of memory; reported */
    bool no_memory;             /* out of memory: what is not found may be there */
    mask *plan_mask;            /* once it is lowered, with its parameters' values */
    const struct figure *plan_values;
    mask *plan_score;
    const struct figure *plan_numbers; /* of its parameters; a condition's as an integer, an array's number */
} sema;

void sema_free(sema *s); /* frees what is malloc'd in it */
/* Reports that memory ran out; returns false. */
bool sema_no_memory(sema *s);
/* Has the caller asked for the end? Then it is reported. To be asked where something may take more than a second. */
bool sema_stopped(sema *s);
/* Finds the arguments of a call whose parameters are all named: given[i] becomes that of names[i], or NULL. False: a name
 * is unknown, missing or given twice, which is reported. `example` is such a call, for a hint. */
bool sema_arguments(sema *s, const expr *call, const char *const *names, int count, const char *example,
                    const arg **given);
/* A new node of the tree, of depth 1; NULL: out of memory, which was reported. */
expr *sema_new_expr(sema *s, expr_kind kind, span at);
#endif
