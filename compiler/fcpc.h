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

/* The version that this header is of, and that of the library, which may be another one. */
#define FCPC_VERSION "0.1.0"
const char *fcpc_version(void);

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

/* Structures of options begin with their size, so that later versions can add members: set it to sizeof(the type), as
 * FCPC_OPTIONS_INIT and its like do. Members that an older caller does not know have their default; a structure that is
 * newer than the library is accepted as long as what the library does not know is 0, and refused with FCP_E_ARGUMENT else
 * (or where size is 0). In C a designated initialiser does it all: fcpc_options o = {.size = sizeof o, .defines = ...}. */
typedef struct fcpc_options {
    size_t size;                 /* sizeof(fcpc_options) */
    const char *const *defines;  /* "cluster.nodes=32", as after -D; applied in order, a later one wins */
    size_t define_count;
    const char *lengths_file;    /* replaces the batch's lengths; NULL: none. A length a line, or QUERIES:KEYS */
    const char *const *fields;   /* "doc=FILE", as after --field: the values of field doc are those of the file */
    size_t field_count;
    bool need_lengths;           /* a program without a batch is an error (off: lengths come with fcpc_plan) */
} fcpc_options;
#define FCPC_OPTIONS_INIT {sizeof(fcpc_options)}

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
/* A file that the program names: of lengths, a field, a table or slices, in the source or in the options; as a path seen
 * from the current folder. Numbers count from 0, in no order, and a file may come twice. Files that an option replaced or
 * that nothing reads are among them. NULL: there is no such number. The text is the program's. */
const char *fcpc_program_file(const fcpc_program *program, size_t number);

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
    size_t size;                   /* sizeof(fcpc_batch) */
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
#define FCPC_BATCH_INIT {sizeof(fcpc_batch)}

/* Plans a batch: blocks, tiles, placement, rounds, schedule, slots, instructions, then the verifier. The plan belongs
 * to the caller (fcp_plan_free) and refers neither to the program nor to the batch. `d` and `out_times` may be NULL.
 * `stop`, when not NULL, is polled: a non-zero value ends planning with FCP_E_INTERRUPTED.
 * Errors of the batch: FCP_E_MISSING (no lengths here nor in the program), FCP_E_LENGTHS, FCP_E_FIELD (values missing,
 * too many or few, out of their range, twice, or of no field), FCP_E_SLICES (beyond the longest sequence), FCP_E_MASK_*
 * (a fault of mask or score that some pair reaches); of what it needs: FCP_E_RANKS, FCP_E_MEMORY_CAP,
 * FCP_E_PLAN_SIZE. */
fcp_code fcpc_plan_batch(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                         fcpc_diagnostics *d, fcpc_times *out_times, fcp_plan **out_plan);

/* The same of lengths alone: a batch without values of fields, with as many queries as keys (`lengths` NULL: the
 * program's own batch). */
fcp_code fcpc_plan(const fcpc_program *program, const uint64_t *lengths, size_t count, const volatile int *stop,
                   fcpc_diagnostics *d, fcpc_times *out_times, fcp_plan **out_plan);

/* --- looking at plans --------------------------------------------------------------------------------------------- */

/* These functions make text, put it in *out_text, NUL-terminated and malloc'd (the caller frees it with free()), and give
 * the same bytes for the same arguments on every machine. A plan must have come from fcpc_plan* or fcp_plan_load*. All
 * fail with FCP_E_NO_MEMORY, and those with options with FCP_E_ARGUMENT; *out_text is then as it was. `err` may be NULL. */

/* What compiling prints: five lines on work, traffic, memory and time. `name` begins the first; `written` is the path of
 * the plan file, NULL if there is none; `times` NULL: all 0. README.md explains the lines word by word. */
fcp_code fcpc_summary_text(const fcp_plan *plan, const fcpc_times *times, const char *name, const char *written,
                           char **out_text, fcp_error *err);
/* The same and more as a JSON object: counts are of blocks, tiles, pairs or tokens, sizes in bytes, times in seconds. */
fcp_code fcpc_summary_json(const fcp_plan *plan, const fcpc_times *times, char **out_text, fcp_error *err);

/* How a picture is drawn: of a whole plan, or of a part of one sequence's mask. Zeros draw the whole plan in ASCII, 80
 * columns wide. */
typedef struct fcpc_show_options {
    size_t size;             /* sizeof(fcpc_show_options) */
    uint32_t width;          /* of text: columns; 0: 80. Pictures use 64 to 160, parts 40 to 160 */
    bool colour, unicode;    /* of text: ANSI escapes; shades and bars beyond ASCII */
    bool part;               /* draw a part of a mask: the members below say which */
    bool choose_sequence;    /* of sequence number `sequence` of the batch; else of the longest */
    uint32_t sequence;
    /* queries [row, row_end), counted from the sequence's first, and keys [col, col_end); an end of 0: to the last */
    uint64_t row, row_end, col, col_end;
} fcpc_show_options;
#define FCPC_SHOW_OPTIONS_INIT {sizeof(fcpc_show_options)}

/* The mask, who owns which tokens, and the pipeline; or the part of a mask: as lines for a terminal, as an SVG image, as an
 * HTML page (of a whole plan only: FCP_E_ARGUMENT else), as a JSON object (of a part only: its exact counts). `options` may
 * be NULL. FCP_E_VALUE: a sequence or range that the batch does not have. */
fcp_code fcpc_show_text(const fcp_plan *plan, const fcpc_show_options *options, char **out_text, fcp_error *err);
fcp_code fcpc_show_svg(const fcp_plan *plan, const fcpc_show_options *options, char **out_text, fcp_error *err);
fcp_code fcpc_show_html(const fcp_plan *plan, const fcpc_show_options *options, char **out_text, fcp_error *err);
fcp_code fcpc_show_json(const fcp_plan *plan, const fcpc_show_options *options, char **out_text, fcp_error *err);

/* A pair of positions in one sequence, and what is asked about it. */
typedef struct fcpc_question {
    size_t size;          /* sizeof(fcpc_question) */
    int64_t q, k;         /* positions; q may be negative where a sequence has more queries than keys */
    uint64_t length;      /* of the sequence, in keys; 0: the longest of the batch that has both positions, or without a batch
                           * as long as the positions need */
    bool choose_sequence; /* sequence number `sequence` of the batch is meant */
    uint32_t sequence;
    uint32_t head;        /* the query head, for a mask that names h */
    double logit;         /* what the plan's score is given, if there is a score */
    const fcp_plan *plan; /* explain this plan's program, with its lengths and fields; NULL: the text given */
    uint32_t width;       /* of text: columns; 0: 80 */
    bool colour;          /* of text: ANSI escapes */
} fcpc_question;
#define FCPC_QUESTION_INIT {sizeof(fcpc_question)}

/* Why query q sees key k, or does not: the value of every sub-expression of the mask, and of the score if the pair is
 * allowed; as lines of text or as a JSON object. `name`, `text`, `size` and `options` are those of fcpc_parse_text (`text`
 * is not read where the question has a plan). Errors are in `d`, which may be NULL, as for fcpc_parse_text; FCP_E_VALUE: the
 * sequence does not have these positions. */
fcp_code fcpc_explain_text(const char *name, const char *text, size_t size, const fcpc_options *options,
                           const fcpc_question *question, fcpc_diagnostics *d, char **out_text);
fcp_code fcpc_explain_json(const char *name, const char *text, size_t size, const fcpc_options *options,
                           const fcpc_question *question, fcpc_diagnostics *d, char **out_text);

#ifdef __cplusplus
}
#endif
#endif
