/* ast.h: the syntax tree of a program, how it is built by the grammar, and how it is printed.
 *
 * The grammar knows no meanings: every value is an expression, every `name { ... }` a section; sema decides what fits
 * where. Nodes live in the arena of the parse and are never freed singly. A builder that runs out of memory returns
 * NULL and sets parse.no_memory; builders pass NULL operands on, so the grammar need not look.
 */
#ifndef FCPC_SYNTAX_AST_H
#define FCPC_SYNTAX_AST_H
#include "compiler/base/arena.h"
#include "compiler/base/diag.h"
#include "compiler/base/text.h"

/* Levels of nesting that a source may have; everything that recurses over the tree goes no deeper. */
enum { NEST_MAX = 200 };
/* Bytes that a source may have. */
enum { SOURCE_MAX = 16 << 20 };

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
const char *ast_op_spelling(expr_op op);
int ast_op_precedence(expr_op op);

/* spelling, dimension, power of ten (times in ns, everything else in its base unit) */
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
extern const unit ast_unit_table[];
int ast_find_unit(const char *word, size_t size); /* index into ast_unit_table, -1 for none */
const char *ast_nearest_unit(const char *word, size_t size);

typedef enum expr_kind {
    EXPR_INT,      /* integer */
    EXPR_BOOL,     /* integer */
    EXPR_FLOAT,    /* name: as written */
    EXPR_QUANTITY, /* a (INT or FLOAT), integer: unit */
    EXPR_STRING,   /* name, unescaped */
    EXPR_NAME,     /* name */
    EXPR_CALL,     /* name, args */
    EXPR_INDEX,    /* a[b], or a[b, c] */
    EXPR_UNARY,    /* op a */
    EXPR_BINARY,   /* a op b */
    EXPR_IF,       /* a then b else c */
    EXPR_RANGE,    /* a..b */
    EXPR_REPEAT,   /* a x b */
    EXPR_PAIR,     /* a:b */
    EXPR_LIST,     /* args, unnamed */
    EXPR_TUPLE     /* args, unnamed: a, b, c without brackets */
} expr_kind;

typedef struct expr expr;
typedef struct arg arg;

/* What a key or parameter is declared as. */
typedef enum declared_as { IS_VALUE, IS_FIELD, IS_TABLE } declared_as;

/* An argument of a call, an element, or a parameter (value NULL: without a default). */
struct arg {
    arg *next;
    const char *name; /* NULL: positional */
    span name_at;
    expr *value;
    declared_as as; /* of parameters */
};
typedef struct arg_list {
    arg *first, *last;
    uint32_t count, depth;
} arg_list;

struct expr {
    uint8_t kind, op;
    bool parens;    /* was written in parentheses */
    uint8_t ref;    /* sema: what a name means (expr/expr.c) */
    uint32_t depth; /* of nesting, not counting down the left side of binary operators: walk that with `up` */
    span at;
    expr *up;       /* of a binary operator's left operand: that operator */
    uint32_t place; /* expr/expr.c: number of its span */
    uint32_t index; /* sema: of a parameter */
    const char *name;
    span name_at; /* CALL: of the name */
    int64_t integer;
    union {
        struct { expr *a, *b, *c; };
        struct { arg *args; uint32_t arg_count; const void *target; /* sema: what a name means */ };
    };
};

/* key = value, field key = value or table key = value */
typedef struct entry {
    struct entry *next;
    const char *key;
    span key_at;
    expr *value;
    declared_as as;
} entry;
typedef struct entry_list {
    entry *first, *last;
} entry_list;

typedef struct section {
    struct section *next;
    const char *name;
    span name_at;
    entry *entries, *last;
} section;

/* name = body, or name(params) = body, in a `where`. */
typedef struct definition {
    struct definition *next;
    const char *name;
    span name_at;
    arg *params;
    uint32_t param_count, number; /* number: from 0, in order */
    bool function, broken;        /* broken (sema): has an error of its own */
    expr *body;
} definition;
typedef struct definition_list {
    definition *first, *last;
} definition_list;

typedef struct mask {
    struct mask *next;
    const char *name;
    span name_at;
    arg *params;
    uint32_t param_count;
    bool score;   /* is a score: later */
    bool builtin; /* of the prelude: its names mean the prelude's */
    bool adopted; /* was of the prelude until a -D set a default */
    uint8_t state; /* sema: unchecked, being checked, checked, broken */
    expr *body;
    definition *definitions;
} mask;

typedef struct ast {
    section *sections, *last_section;
    mask *masks, *last_mask;
    span end; /* of the source */
} ast;

/* The program in canonical form: sections and keys in a fixed order, one layout. `batch` off leaves the batch out. */
void ast_print(const ast *program, bool batch, text *out);
void ast_print_expr(const expr *e, text *out);
/* The sections and their keys, in printed order. */
#define SECTIONS(X) X(MODEL, "model") X(CLUSTER, "cluster") X(BATCH, "batch") X(PLAN, "plan")
#define KEYS(X)                                                                                                        \
    X(MODEL, HEADS, "heads") X(MODEL, KV_HEADS, "kv_heads") X(MODEL, HEAD_DIM, "head_dim") X(MODEL, DTYPE, "dtype")    \
    X(MODEL, SCALE, "scale")                                                                                           \
    X(CLUSTER, NODES, "nodes") X(CLUSTER, GPUS, "gpus") X(CLUSTER, GPU, "gpu") X(CLUSTER, INTRA, "intra")              \
    X(CLUSTER, INTER, "inter") X(CLUSTER, LATENCY, "latency") X(CLUSTER, FLOPS, "flops")                               \
    X(CLUSTER, MEMORY, "memory") X(CLUSTER, MEMORY_BANDWIDTH, "memory_bandwidth") X(CLUSTER, FABRIC, "fabric")         \
    X(CLUSTER, OVERSUBSCRIPTION, "oversubscription")                                                                   \
    X(BATCH, LENGTHS, "lengths") X(BATCH, ALIGN, "align")                                                              \
    X(PLAN, MASK, "mask") X(PLAN, SCORE, "score") X(PLAN, SINK, "sink") X(PLAN, BLOCK, "block")                        \
    X(PLAN, STRATEGY, "strategy") X(PLAN, PASSES, "passes") X(PLAN, LAYOUT, "layout") X(PLAN, MARGIN, "margin")        \
    X(PLAN, DETERMINISTIC, "deterministic")
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
extern const char *const ast_section_names[SECTION_COUNT];
extern const struct key_info {
    const char *name;
    section_id section;
} ast_key_table[KEY_COUNT];
section_id ast_find_section(const char *name);            /* SECTION_COUNT: none */
key_id ast_find_key(section_id where, const char *name);  /* KEY_COUNT: none */

/* --- parsing ------------------------------------------------------------------------------------------------------ */

/* Parses source `number` of d, a program, into *out. False: no memory (reported); syntax errors are reported in d. */
bool parse_program(diags *d, arena *a, uint32_t number, ast *out);
/* The same, and the tokens as the grammar got them (kinds are those of fcp.tab.h; T_SEP where a statement ends), in
 * a. */
typedef struct parsed_token {
    int kind;
    span at;
} parsed_token;
typedef struct token_list {
    parsed_token *at;
    size_t count, room;
} token_list;
bool parse_tokens(diags *d, arena *a, uint32_t number, ast *out, token_list *tokens);
/* Parses [begin, end) of it, a value as it stands after `key =`. NULL: an error, reported in d. */
expr *parse_value(diags *d, arena *a, uint32_t number, uint32_t begin, uint32_t end);

/* --- for the grammar ---------------------------------------------------------------------------------------------- */

typedef struct parse parse;

/* Scanner's side: the text being scanned begins at `text`, which is byte `shift` of the source. */
struct scan {
    const char *text;
    uint32_t size, source, shift;
    diags *d;
};
const struct scan *parse_scan(parse *p);
void *parse_pool(parse *p, size_t size);                      /* the scanner's memory; small and fixed */
const char *parse_name(parse *p, const char *word, size_t size);
const char *parse_string(parse *p, span at, const char *word, size_t size);                  /* with its quotes */
int64_t parse_integer(parse *p, span at, const char *digits, size_t size, unsigned shift);   /* times 2^shift */

void parse_syntax_error(parse *p, span at, const char *got, const char *const *expected, unsigned count);
void parse_exhausted(parse *p); /* the parser's stack is at its limit, or there is no memory */

/* Results of the two start rules. */
void parse_result(parse *p, expr *value);

expr *ast_make_leaf(parse *p, span at, expr_kind kind, const char *name, int64_t integer);
expr *ast_make_quantity(parse *p, span at, expr *number, int64_t unit_index);
expr *ast_make_unary(parse *p, span at, expr_op op, expr *a);
expr *ast_make_binary(parse *p, span at, expr_op op, expr *a, expr *b);
expr *ast_make_node(parse *p, span at, expr_kind kind, expr *a, expr *b, expr *c);
expr *ast_make_call(parse *p, span at, const char *name, span name_at, arg_list args);
expr *ast_make_list(parse *p, span at, expr_kind kind, arg_list elements);
expr *ast_make_parens(expr *e, span at);
arg_list ast_make_arg(parse *p, const char *name, span name_at, expr *value);
arg_list ast_make_array_param(parse *p, declared_as as, const char *name, span name_at, expr *value);
arg_list ast_join_args(arg_list list, arg_list more);
entry_list ast_make_entry(parse *p, declared_as as, const char *key, span key_at, expr *value);
entry_list ast_join_entries(entry_list list, entry_list more);
definition_list ast_make_definition(parse *p, const char *name, span name_at, bool function, arg_list params, expr *body);
definition_list ast_join_definitions(definition_list list, definition_list more);
void ast_add_section(parse *p, const char *name, span name_at, entry_list entries);
void ast_add_mask(parse *p, bool score, const char *name, span name_at, arg_list params, expr *body, definition_list where);
#endif
