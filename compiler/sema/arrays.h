/* arrays.h: fields and tables: their declarations, by number, and what masks and scores ask of them. */
#ifndef FCPC_SEMA_ARRAYS_H
#define FCPC_SEMA_ARRAYS_H
#include "compiler/sema/field_shape.h"
#include "compiler/sema/sema.h"

/* What mask code sees of a sequence of the batch, without its arrays. */
mc_env sema_sequence_env(const sema *s, size_t sequence);
/* Where a sequence's values of a field begin; for the number of all sequences, how many values there are. */
uint64_t sema_field_start(const sema *s, const fcp_array *field, size_t sequence);
/* The batch that the program's fields belong to. */
sema_batch sema_own_batch(const sema *s);

#define ARRAY_ANY UINT32_MAX /* no array, or one that is not known yet */

/* A declaration; its number counts declarations from 0. */
typedef struct array_decl {
    const char *name;
    span at;
    const expr *value;      /* NULL: it is a plan's, or run(...) of another */
    bool table, given;      /* given: its values come with each batch */
    bool kv;                /* its heads are KV heads */
    bool unread;            /* of a plan's program, and not in the plan: of any shape and type */
    bool loaded, wrong;     /* wrong: reported */
    uint32_t run_of;        /* it is run(...) of that array; else ARRAY_ANY */
    program_array array;    /* its type and values, once loaded */
} array_decl;

/* Declares the fields and tables of the program. False: no memory. */
bool sema_declare_arrays(sema *s);
uint32_t sema_find_array(const sema *s, const char *name); /* ARRAY_ANY: none */
const char *sema_array_word(const sema *s, uint32_t array); /* "field" or "table" */
/* A plan keeps only the fields that its code reads, but the program in it may name others. Declares such a field, when
 * the program of a plan is parsed. ARRAY_ANY: the program does not come from a plan. */
uint32_t sema_unread_array(sema *s, const char *name);
/* Declares run(field), or finds it. ARRAY_ANY: out of memory, which was reported. */
uint32_t sema_derive_run(sema *s, uint32_t array);

/* The operation with which e reads the array. It is an index expression, array[i], array[i, j] or array[i, j, l], or
 * the bare name of a field over sequences. Masks read arrays of integers only. False: the expression does not fit the
 * array, which was reported. */
bool sema_index_array(sema *s, uint32_t array, const expr *e, bool score, mc_op *out_op);
/* Is it a field over sequences, which is read by its bare name? */
bool sema_is_bare(const sema *s, uint32_t array);
/* Is it known whether the array has integers or reals? Of a file this is known only once it was read. */
bool sema_is_typed(const sema *s, uint32_t array);
/* "keep[h, q / 128, k / 128]": how the array is read; in the memory of the parse. */
const char *sema_reading_text(sema *s, uint32_t array);
/* The array that an argument names, of a parameter that is a field or table. ARRAY_ANY: none, reported. */
uint32_t sema_array_argument(sema *s, const arg *param, const expr *e);
/* Is the array of the parameter's kind? False: an error was reported. */
bool sema_fits_param(sema *s, const arg *param, uint32_t array, span at);

/* Reads the values of an array, once; a field only after the lengths are known. False: an error was reported. */
bool sema_load_array(sema *s, uint32_t array);
/* To be called after lowering. Numbers the arrays that the code reads, in the order in which it first reads them, and
 * the field that `documents` names, and gives them to the program. Other fields and tables are only checked. */
void sema_finish_arrays(sema *s);
#endif
