/* fcpc.h: libfcpc, the compiler: parse a program once, plan batch after batch.
 *
 * Conventions are those of fcp.h: fcp_code results, caller owns what *_new and *_parse* make, NULL is accepted by
 * *_free, nothing prints or exits or keeps global state. A program is immutable once parsed: any number of threads may
 * plan from one at the same time, each with its own diagnostics object. The same program, batch and options give the
 * same plan, byte for byte.
 */
#ifndef FCPC_H
#define FCPC_H
#include "runtime/fcp.h"
#ifdef __cplusplus
extern "C" {
#endif

/* --- diagnostics: what the compiler has to say, with places ------------------------------------------------------ */

typedef struct fcpc_diagnostics fcpc_diagnostics;
typedef struct fcpc_diagnostic {
    bool warning;
    fcp_code code;        /* FCP_OK for warnings */
    const char *message;  /* one line; owned by the diagnostics object */
    const char *file;     /* "" when there is no place */
    uint32_t line, column; /* from 1; columns count bytes; 0 when there is no place */
} fcpc_diagnostic;

fcpc_diagnostics *fcpc_diagnostics_new(void); /* NULL: out of memory */
void fcpc_diagnostics_free(fcpc_diagnostics *d);
size_t fcpc_diagnostics_count(const fcpc_diagnostics *d);
void fcpc_diagnostics_get(const fcpc_diagnostics *d, size_t i, fcpc_diagnostic *out);
/* All of them as a terminal shows them: message, source line, caret, hints. `colour`: with ANSI escapes. Returns a
 * malloc'd string (caller frees), NULL when out of memory. */
char *fcpc_diagnostics_render(const fcpc_diagnostics *d, bool colour);

/* --- programs ---------------------------------------------------------------------------------------------------- */

typedef struct fcpc_program fcpc_program;

typedef struct fcpc_options {
    const char *const *defines;  /* "cluster.nodes=32", as after -D; applied in order, a later one wins */
    size_t define_count;
    const char *lengths_file;    /* replaces the batch's lengths; NULL: none. A length a line, or QUERIES:KEYS */
    const char *const *fields;   /* "doc=FILE", as after --field: the values of field doc are those of the file */
    size_t field_count;
    bool need_lengths;           /* a program without a batch is an error (off: lengths come with fcpc_plan) */
} fcpc_options;

/* Parses and checks a file, or text under a name (paths in it are relative to the name's folder). On failure the
 * result is the code of the first error and `d` holds all of them. `options` may be NULL. */
fcp_code fcpc_parse_file(const char *path, const fcpc_options *options, fcpc_diagnostics *d,
                         fcpc_program **out_program);
fcp_code fcpc_parse_text(const char *name, const char *text, size_t size, const fcpc_options *options,
                         fcpc_diagnostics *d, fcpc_program **out_program);
void fcpc_program_free(fcpc_program *program);
/* The program in canonical form, overrides applied; parsing it gives a program that prints the same.
 * malloc'd, caller frees; NULL when out of memory. */
char *fcpc_program_print(const fcpc_program *program);
/* The batch's own lengths, NULL and 0 when the program has none; and the queries of each sequence, NULL where all have
 * as many as keys. */
const uint64_t *fcpc_program_lengths(const fcpc_program *program, size_t *out_count);
const uint64_t *fcpc_program_queries(const fcpc_program *program);

/* --- planning ---------------------------------------------------------------------------------------------------- */

/* Wall time of the phases, in seconds. */
typedef struct fcpc_times {
    double parse, classify, place, colour, schedule, verify, total;
} fcpc_times;

/* A field's values. */
typedef struct fcpc_field {
    const char *name;      /* as declared: batch { field name = ... } */
    const int64_t *values; /* [count]: one for each key of the batch, or query (over = queries), sequences end to end */
    uint64_t count;
} fcpc_field;

/* A batch. Everything is borrowed for the call. */
typedef struct fcpc_batch {
    /* [count]: keys of each sequence; NULL: the program's own, queries too (count is not read) */
    const uint64_t *lengths;
    /* [count]: queries of each sequence; NULL: as many as keys, and so where lengths is NULL */
    const uint64_t *queries;
    size_t count;
    /* Values of fields; they go before those of the program's files and lists, which are used for what is not here
     * where the batch has the program's own lengths. In any other batch every field that the mask or score reads must
     * be here. */
    const fcpc_field *fields;
    size_t field_count;
} fcpc_batch;

/* Plans a batch: blocks, tiles, placement, rounds, schedule, slots, instructions, then the verifier. The plan belongs
 * to the caller (fcp_plan_free) and refers neither to the program nor to the batch. `d` and `out_times` may be NULL.
 * `stop`, when not NULL, is polled: a non-zero value ends planning with FCP_E_INTERRUPTED.
 * Errors of the batch: FCP_E_MISSING (no lengths here nor in the program), FCP_E_LENGTHS, FCP_E_FIELD (values missing,
 * too many or few, out of their range, twice, or of no field), FCP_E_SLICES (beyond the longest sequence), FCP_E_MASK_*
 * (a fault of mask or score that some pair reaches); of what it needs: FCP_E_MEMORY_CAP, FCP_E_PLAN_SIZE. */
fcp_code fcpc_plan_batch(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                         fcpc_diagnostics *d, fcpc_times *out_times, fcp_plan **out_plan);

/* The same of lengths alone: a batch without values of fields, with as many queries as keys (`lengths` NULL: the
 * program's own batch). */
fcp_code fcpc_plan(const fcpc_program *program, const uint64_t *lengths, size_t count, const volatile int *stop,
                   fcpc_diagnostics *d, fcpc_times *out_times, fcp_plan **out_plan);

#ifdef __cplusplus
}
#endif
#endif
