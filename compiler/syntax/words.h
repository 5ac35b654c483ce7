/* words.h: the words of the language, one table for each kind: keywords, operators, units, sections and keys, and the
 * names that every mask and score knows.
 *
 * The scanner, the parser, the printer, sema and the syntax files of editors (grammar/editors) all read these tables.
 * So a new word is added here, and in the one place that gives it its meaning.
 */
#ifndef FCPC_SYNTAX_WORDS_H
#define FCPC_SYNTAX_WORDS_H
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Are two words the same? The function is inline because lists of words are searched for every token, and nearly always
 * the first bytes tell. */
static inline bool words_same(const char *a, const char *b) {
    while (*a == *b && *a) a++, b++;
    return *a == *b;
}
/* The number of `name` among `count` names; -1: it is none of them. */
int words_find(const char *const *names, int count, const char *name);

/* --- keywords ----------------------------------------------------------------------------------------------------- */

/* name: the keyword may also be a name where no section or mask can begin. A parameter may be called `plan`. */
typedef struct keyword {
    const char *spelling;
    int token; /* of grammar/fcp.y */
    bool name;
} keyword;
enum { KEYWORD_COUNT = 17 };
extern const keyword words_keywords[KEYWORD_COUNT];
const keyword *words_find_keyword(const char *word, size_t size); /* NULL: not a keyword */
bool words_names(int token); /* may this token of the grammar be a name? */

/* --- operators ---------------------------------------------------------------------------------------------------- */

/* id, spelling, precedence (higher binds tighter) */
#define EXPR_OPS(X)                                                                                                    \
    X(OR, "or", 2)                                                                                                     \
    X(AND, "and", 3)                                                                                                   \
    X(NOT, "not", 4)                                                                                                   \
    X(LT, "<", 5)                                                                                                      \
    X(LE, "<=", 5)                                                                                                     \
    X(GT, ">", 5)                                                                                                      \
    X(GE, ">=", 5)                                                                                                     \
    X(EQ, "==", 5)                                                                                                     \
    X(NE, "!=", 5)                                                                                                     \
    X(ADD, "+", 6)                                                                                                     \
    X(SUB, "-", 6)                                                                                                     \
    X(MUL, "*", 7)                                                                                                     \
    X(DIV, "/", 7)                                                                                                     \
    X(MOD, "%", 7)                                                                                                     \
    X(NEG, "-", 8)
enum { PREC_IF = 1, PREC_NOT = 4, PREC_COMPARE = 5, PREC_NEG = 8, PREC_PRIMARY = 9 };

typedef enum expr_op {
#define X(id, spelling, precedence) OP_##id,
    EXPR_OPS(X)
#undef X
    OP_COUNT
} expr_op;
const char *words_op_spelling(expr_op op);
int words_op_precedence(expr_op op);

/* --- units -------------------------------------------------------------------------------------------------------- */

/* spelling, dimension, power of ten. Times are in ns; everything else is in its base unit. */
#define UNITS(X)                                                                                                       \
    X("B", UNIT_BYTES, 0) X("kB", UNIT_BYTES, 3) X("MB", UNIT_BYTES, 6) X("GB", UNIT_BYTES, 9) X("TB", UNIT_BYTES, 12) \
    X("B/s", UNIT_BANDWIDTH, 0) X("kB/s", UNIT_BANDWIDTH, 3) X("MB/s", UNIT_BANDWIDTH, 6)                              \
    X("GB/s", UNIT_BANDWIDTH, 9) X("TB/s", UNIT_BANDWIDTH, 12)                                                         \
    X("ns", UNIT_TIME, 0) X("us", UNIT_TIME, 3) X("ms", UNIT_TIME, 6) X("s", UNIT_TIME, 9)                             \
    X("GFLOP/s", UNIT_FLOPS, 9) X("TFLOP/s", UNIT_FLOPS, 12) X("PFLOP/s", UNIT_FLOPS, 15)
typedef enum unit_dimension { UNIT_BYTES, UNIT_BANDWIDTH, UNIT_TIME, UNIT_FLOPS } unit_dimension;
typedef struct unit {
    const char *spelling;
    unit_dimension dimension;
    int power;
} unit;
enum {
#define X(spelling, dimension, power) +1
    UNIT_COUNT = 0 UNITS(X)
#undef X
};
extern const unit words_units[UNIT_COUNT];
int words_find_unit(const char *word, size_t size); /* index into words_units, -1 for none */
const char *words_nearest_unit(const char *word, size_t size);
bool words_counts_bits(const char *word, size_t size); /* as Gb/s does: of eight of these the nearest unit is one */
/* What to write instead of the character, beyond ASCII, with which these bytes begin. NULL: nothing comes near. */
const char *words_for_character(const char *bytes);

/* --- sections and keys -------------------------------------------------------------------------------------------- */

/* The sections and their keys, in printed order. */
#define SECTIONS(X) X(MODEL, "model") X(CLUSTER, "cluster") X(BATCH, "batch") X(PLAN, "plan")
/* clang-format off */
#define KEYS(X)                                                                                                        \
    X(MODEL, HEADS, "heads") X(MODEL, KV_HEADS, "kv_heads") X(MODEL, HEAD_DIM, "head_dim")                             \
    X(MODEL, VALUE_DIM, "value_dim") X(MODEL, VALUES, "values") X(MODEL, DTYPE, "dtype") X(MODEL, SCALE, "scale")      \
    X(MODEL, LINEAR, "linear") X(MODEL, LINEAR_MEMORY, "linear_memory")                                                \
    X(CLUSTER, NODES, "nodes") X(CLUSTER, GPUS, "gpus") X(CLUSTER, GPU, "gpu") X(CLUSTER, INTRA, "intra")              \
    X(CLUSTER, INTER, "inter") X(CLUSTER, LATENCY, "latency") X(CLUSTER, FLOPS, "flops")                               \
    X(CLUSTER, MEMORY, "memory") X(CLUSTER, MEMORY_BANDWIDTH, "memory_bandwidth") X(CLUSTER, FABRIC, "fabric")         \
    X(CLUSTER, OVERSUBSCRIPTION, "oversubscription")                                                                   \
    X(BATCH, LENGTHS, "lengths") X(BATCH, TICK, "tick") X(BATCH, DOCUMENTS, "documents") X(BATCH, ALIGN, "align")      \
    X(PLAN, MASK, "mask") X(PLAN, LAYERS, "layers") X(PLAN, SCORE, "score") X(PLAN, SINK, "sink")                      \
    X(PLAN, BLOCK, "block")                                                                                            \
    X(PLAN, STRATEGY, "strategy") X(PLAN, PASSES, "passes") X(PLAN, LAYOUT, "layout") X(PLAN, TOKENS, "tokens")        \
    X(PLAN, RELAY, "relay") X(PLAN, MARGIN, "margin") X(PLAN, DETERMINISTIC, "deterministic")                          \
    X(PLAN, WIRE, "wire") X(PLAN, LSE_GRADIENT, "lse_gradient")
/* clang-format on */
typedef enum section_id {
#define X(id, name) SECTION_##id,
    SECTIONS(X)
#undef X
    SECTION_COUNT
} section_id;
typedef enum key_id {
#define X(section_name, id, name) KEY_##id,
    KEYS(X)
#undef X
    KEY_COUNT
} key_id;
typedef struct key_info {
    const char *name;
    section_id section;
} key_info;
extern const char *const words_sections[SECTION_COUNT];
extern const key_info words_keys[KEY_COUNT];
section_id words_find_section(const char *name);            /* SECTION_COUNT: none */
key_id words_find_key(section_id where, const char *name);  /* KEY_COUNT: none */

/* --- names in masks and scores ------------------------------------------------------------------------------------ */

/* q k n h, and s of scores */
enum { MASK_VARIABLES = 4, VARIABLE_S = MASK_VARIABLES, SCORE_VARIABLES };
extern const char *const words_variables[SCORE_VARIABLES];
/* The functions of masks and scores, then those of scores alone. */
enum { BUILTIN_MIN = 0, BUILTIN_MAX, BUILTIN_ABS, BUILTIN_EXACT, BUILTIN_RUN, BUILTIN_RECT, BUILTIN_SLICES,
       MASK_BUILTINS,
       BUILTIN_EXP = MASK_BUILTINS, BUILTIN_EXP2, BUILTIN_LOG, BUILTIN_LOG2, BUILTIN_TANH,
       BUILTIN_TANH_APPROX, BUILTIN_SQRT, BUILTIN_FLOOR, SCORE_BUILTINS };
extern const char *const words_functions[SCORE_BUILTINS];
/* What makes the values of lengths, fields, tables, slices, sinks and `linear`: file("..."), lognormal(...),
 * given(...), cumulative([...]), dense(...), pipeline(...). */
enum { SOURCE_FILE, SOURCE_LOGNORMAL, SOURCE_GIVEN, SOURCE_CUMULATIVE, SOURCE_DENSE, SOURCE_PIPELINE, SOURCE_COUNT };
extern const char *const words_sources[SOURCE_COUNT];
/* What `layers` has beside masks: kinds of layers that recur, in the order of fcp_layer_kind. */
enum { LAYER_KINDS = 2 };
extern const char *const words_layers[LAYER_KINDS];
/* heads and kv_heads are figures of the model, unless the program gives these names to something else. */
enum { MODEL_FIGURES = 2 };
extern const char *const words_figures[MODEL_FIGURES];
/* What a field may be over, and the word that makes it one of reals. */
enum { OVER_SEQUENCES, OVER_HEADS, OVER_KV_HEADS, OVER_QUERIES, OVER_KEYS, OVER_COUNT };
extern const char *const words_over[OVER_COUNT];
extern const char words_real[];
#endif
