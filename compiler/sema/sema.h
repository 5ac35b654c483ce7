/* sema.h: the state of one parse, which front.c creates and hands from step to step, and what the files of this room
 * offer: override.c (-D), names.c (names, constants, arguments), arrays.c and array_values.c (fields and tables),
 * lengths.c (batches), files.c (files that a program names), unused.c (warnings). keys.c has a header of its own. */
#ifndef FCPC_SEMA_SEMA_H
#define FCPC_SEMA_SEMA_H
#include "compiler/syntax/ast.h"
#include "compiler/sema/program.h"

/* A name in a scope. Scopes are told apart by address: an ast (its masks), a mask (parameters and definitions), a
 * definition (parameters). */
typedef struct symbol {
    const void *scope;
    const char *name;
    void *target;   /* mask, definition, or NULL for a parameter */
    uint32_t index; /* of a parameter */
    span at;
} symbol;

/* What was inlined before: see expr/inline.c. */
typedef struct inlined inlined;

typedef struct sema {
    diags *d;
    arena *scratch;            /* of this parse */
    struct fcpc_program *out;
    ast program, prelude;
    uint32_t main_source;
    const char *folder;        /* "dir/" of the main source, or "" */

    symbol *symbols; /* open addressing, malloc'd */
    size_t symbol_count, symbol_room;

    struct array_decl **arrays; /* fields and tables, by number: arrays.c */
    uint32_t array_count, array_room;
    const fcp_plan *plan;       /* whose arrays stand for those of the same name; or NULL */
    struct slice_source *slices; /* read so far: expr/rect_slices.c */

    /* lowering: expr/expr.c */
    struct mc_builder *builder; /* NULL: only checking */
    inlined *memos;             /* malloc'd */
    size_t memo_count, memo_room;
    span *places;               /* malloc'd; number 0 is unused */
    uint32_t place_count, place_room;
    uint32_t depth, steps, in_index; /* in_index: what is lowered is written inside [ ] */
    uint64_t guarded;           /* how many nodes were made or reused whose meaning depends on their guard */
    bool failed;                /* too large, or out of memory: reported */
    mask *plan_mask;            /* once it is lowered, with its parameters' values */
    const int64_t *plan_values;
    mask *plan_score;
    const struct figure *plan_numbers; /* of its parameters; a condition's as an integer, an array's number */
} sema;

void sema_free(sema *s); /* names.c: frees what is malloc'd in it */

/* override.c: applies -D, --lengths and --field to the tree, in this order. False: no memory, reported; what is wrong
 * with an option is reported too. */
bool sema_override(sema *s, const fcpc_options *options);
expr *sema_new_expr(sema *s, expr_kind kind, span at);

/* names.c */
enum { MASK_NEW, MASK_BUSY, MASK_GOOD, MASK_BROKEN }; /* mask.state: being checked, checked */
enum { MASK_VARIABLES = 4, VARIABLE_S = MASK_VARIABLES, SCORE_VARIABLES };
enum { BUILTIN_MIN = 0, BUILTIN_MAX, BUILTIN_ABS, BUILTIN_EXACT, BUILTIN_RUN, BUILTIN_RECT, BUILTIN_SLICES,
       MASK_BUILTINS,
       BUILTIN_EXP = MASK_BUILTINS, BUILTIN_EXP2, BUILTIN_LOG, BUILTIN_LOG2, BUILTIN_TANH, BUILTIN_SQRT, BUILTIN_FLOOR,
       SCORE_BUILTINS };
enum { MODEL_FIGURES = 2 };
extern const char *const sema_mask_variables[SCORE_VARIABLES]; /* q k n h, and s of scores */
/* min max abs exact run rect slices, and the functions of scores */
extern const char *const sema_mask_builtins[SCORE_BUILTINS];
extern const char *const sema_model_figures[MODEL_FIGURES];    /* heads kv_heads: names that a program may give to others */
int sema_find_word(const char *const *names, int count, const char *name); /* -1: none */
bool sema_no_memory(sema *s);                              /* reports it, once; false */
bool sema_declare_masks(sema *s);                          /* names of masks, parameters, definitions; false: no memory */
mask *sema_find_mask(const sema *s, const ast *where, const char *name);
/* The program's, else the prelude's; of the kind if there is one of that kind. */
typedef enum mask_kind { KIND_ANY, KIND_MASK, KIND_SCORE } mask_kind;
mask *sema_visible_mask(const sema *s, const char *name, mask_kind kind);
const symbol *sema_find_symbol(const sema *s, const void *scope, const char *name);
const char *sema_nearest_mask(const sema *s, const char *name, mask_kind kind);
/* As seen from the body of m, or from def in it. */
const char *sema_nearest_name(sema *s, const char *name, const mask *m, const definition *def);
/* A constant whole number. `what` is its name in messages. */
bool sema_eval_constant(sema *s, const expr *e, const char *what, int64_t *out);
/* Gives each parameter of m its argument in `out` (NULL: the default): names, doubles, missing. After the param_count
 * of them stands the argument of a score that says what its s is, or NULL. */
bool sema_bind_args(sema *s, const mask *m, const arg *args, span call, arg **out);
/* expr.c: what a name means, in expr.ref: a variable or builtin `index`, a parameter `index` of the mask or of the
 * definition, the definition or mask `target`, the array `index`. */
enum { REF_NONE, REF_VAR, REF_PARAM, REF_DEF_PARAM, REF_DEF, REF_MASK, REF_SCORE, REF_MODEL, REF_BUILTIN, REF_ARRAY,
       REF_WRONG };

/* arrays.c: fields and tables, declared and read. Numbers count declarations from 0. */
#define ARRAY_ANY UINT32_MAX /* one that is not known yet, or none */
typedef struct array_decl {
    const char *name;
    span at;
    const expr *value;      /* NULL: of a plan, or derived */
    bool table, given;      /* given: its values come with each batch */
    bool loaded, wrong;     /* wrong: reported */
    uint32_t run_of;        /* is run(...) of that array; else ARRAY_ANY */
    program_array array;    /* its type and values, once loaded */
} array_decl;
/* Declares the fields and tables of the program. False: no memory. */
bool sema_declare_arrays(sema *s);
uint32_t sema_find_array(const sema *s, const char *name); /* ARRAY_ANY: there is none */
/* Of a plan's program: a field that it names and the plan does not hold, as nothing reads it; ARRAY_ANY: of no plan. */
uint32_t sema_unread_array(sema *s, const char *name);
const char *sema_array_word(const sema *s, uint32_t array); /* "field" or "table" */
/* What reads array[...] as expression e indexes it; in masks arrays of integers only. False: reported. */
bool sema_index_array(sema *s, uint32_t array, const expr *e, bool score, mc_op *out_op);
uint32_t sema_derive_run(sema *s, uint32_t array); /* run(field); ARRAY_ANY: no memory, reported */
/* An argument that is a field or table, of a parameter; ARRAY_ANY: reported. */
uint32_t sema_array_argument(sema *s, const arg *param, const expr *e);
bool sema_fits_param(sema *s, const arg *param, uint32_t array, span at);
/* Reads the values of an array, once. Fields are read after the lengths. False: reported. */
bool sema_load_array(sema *s, uint32_t array);
/* After lowering: numbers what the code reads in order of first use, and gives the program its arrays. Fields and
 * tables that it does not read are checked and not kept. */
void sema_finish_arrays(sema *s);

/* array_values.c: what a field or table is made of, read from its declaration or file. */
/* Reads a table: numbers in one or two dimensions, from a list or file(...). Fills record, data and file of *out, in
 * the program's memory; `keep` off: only checks them, and leaves data NULL. `what` is what messages call it: "table
 * 'bias'". False: reported. */
bool sema_read_table(sema *s, const char *what, const expr *value, bool keep, program_array *out);
/* Reads a field of `tokens` integers (0: of any number) from a list or file(...); record.kind and the range are set. */
bool sema_read_field(sema *s, const char *what, const expr *value, uint64_t tokens, bool keep, program_array *out);
/* The starts of runs of a field, by sequence; without lengths its values are those of one sequence. */
bool sema_read_runs(sema *s, const program_array *of, program_array *out);

/* program.c: gives the program its canonical text and the sources that its spans refer to, which are numbered from
 * s->main_source on; its spans then count from the first of them. False: no memory, reported. */
bool sema_finish_program(sema *s);

/* unused.c: warns of definitions and parameters of the program's masks that nothing uses. */
void sema_warn_unused(sema *s);

/* files.c */
/* Adds every file that the program names by file("...") to out->files, also those that nothing reads. */
void sema_list_files(sema *s);
/* The path of file("name"), a string of expression e: relative to what names it. malloc'd; NULL: no memory,
 * reported. */
char *sema_path(sema *s, const expr *e);
/* Reads a whole file of `most` bytes at most, or 256 MiB if it is no regular file; malloc'd. NULL: reported at `at`. */
char *sema_read_file(sema *s, const char *path, span at, size_t most, size_t *out_size);
/* Removes the byte-order mark at the beginning of a text file. False: it is no text in UTF-8, reported with `code`. */
bool sema_plain_text(sema *s, const char *path, span at, fcp_code code, char *bytes, size_t *size);
/* Registers a file's text so that an error in it can be shown, and gives the span of [begin, end). */
span sema_file_span(sema *s, const char *path, const char *bytes, size_t size, size_t begin, size_t end, span fallback);
/* Is a file .npy: by its first bytes, or by its name? */
bool sema_is_npy(const char *path, const char *bytes, size_t size);

/* lengths.c */
typedef struct lengths {
    uint64_t *at; /* keys of each sequence; malloc'd */
    uint64_t *queries; /* of each; NULL while all have as many as keys; malloc'd */
    size_t count, room;
    uint64_t sum, query_sum;
} lengths;
enum { LENGTHS_MAX = 1 << 24 };
#define LENGTHS_SUM_MAX (UINT64_C(1) << 40)
/* Evaluates the value of batch.lengths; false: reported. out->at and out->queries are the caller's to free in any
 * case. */
bool sema_eval_lengths(sema *s, const expr *value, lengths *out);
/* What lognormal(...) says: see lengths.c. */
typedef struct lognormal {
    uint64_t median, min, max, seed;
    uint64_t sigma; /* times 2^32 */
} lognormal;
/* Draws `count` lengths (when count > 0), else lengths until they sum to `tokens`, the last cut to fit. False: no
 * memory, or beyond the limits of LENGTHS_MAX or LENGTHS_SUM_MAX. */
bool sema_draw_lognormal(const lognormal *l, uint64_t count, uint64_t tokens, lengths *out);

/* Decimal text "ddd.ddd", perhaps with an exponent, as mantissa * 10^exponent; false: more than 18 digits. */
bool sema_parse_decimal(const char *digits, uint64_t *mantissa, int *exponent);
/* mantissa * 10^(exponent + power), rounded half up; false: does not fit in 63 bits. */
bool sema_scale_decimal(uint64_t mantissa, int exponent, uint64_t *out);
/* The batch that fields are of: the program's own, or that of the plan they come from. How many sequences, and how many
 * queries or keys sequence i has. */
static inline size_t batch_count(const sema *s) {
    return s->plan ? (size_t)s->plan->sequences_count : s->out->length_count;
}
static inline uint64_t batch_length(const sema *s, size_t i, fcp_side side) {
    const struct fcpc_program *p = s->out;
    if (s->plan) return side == FCP_KEYS ? s->plan->sequences[i].keys : s->plan->sequences[i].queries;
    return side == FCP_QUERIES && p->queries ? p->queries[i] : p->lengths[i];
}
#endif
