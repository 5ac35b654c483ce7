/* ast.h: the syntax tree of a program, and how it is printed.
 *
 * The tree says how a program is written, not what it means: every value is an expression, every `name { ... }` a
 * section, whatever their names. sema decides what fits where. Nodes live in the arena of the parse and are never freed
 * one by one.
 */
#ifndef FCPC_SYNTAX_AST_H
#define FCPC_SYNTAX_AST_H
#include "compiler/base/arena.h"
#include "compiler/base/diag.h"
#include "compiler/base/text.h"
#include "compiler/syntax/words.h"

/* How deep brackets and expressions may nest. Whatever recurses over the tree goes no deeper. */
enum { NEST_MAX = 200 };
/* How many bytes a source may have. */
enum { SOURCE_MAX = 16 << 20 };

typedef enum expr_kind {
    EXPR_INT,      /* integer */
    EXPR_BOOL,     /* integer */
    EXPR_FLOAT,    /* name: as written */
    EXPR_QUANTITY, /* a (INT or FLOAT), integer: unit */
    EXPR_STRING,   /* name, unescaped */
    EXPR_NAME,     /* name */
    EXPR_CALL,     /* name, args */
    EXPR_INDEX,    /* a[b], a[b, c] or a[b, c, d]; integer: how many indices there were, perhaps more */
    EXPR_UNARY,    /* op a */
    EXPR_BINARY,   /* a op b */
    EXPR_IF,       /* a then b else c */
    EXPR_RANGE,    /* a..b */
    EXPR_REPEAT,   /* a x b */
    EXPR_ON,       /* a on b, where b is a RANGE */
    EXPR_OVER,     /* a over b, where b is a TUPLE */
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
    uint32_t depth; /* of nesting. A chain of binary operators, a + b + c, counts once: walk it with `up` */
    span at;
    expr *up;       /* for the left operand of a binary operator: that operator */
    uint32_t place; /* expr/expr.c: number of its span */
    uint32_t index; /* sema: of a parameter */
    const char *name;
    span name_at; /* CALL: of the name */
    int64_t integer;
    union {
        struct {
            expr *a, *b, *c, *d;
        };
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
    bool score;   /* a score, not a mask */
    bool builtin; /* of the prelude, so its names mean those of the prelude */
    bool adopted; /* was of the prelude until a -D set a default */
    uint8_t state; /* MASK_NEW ... of sema/names.h */
    expr *body;
    definition *definitions;
} mask;

typedef struct ast {
    section *sections, *last_section;
    mask *masks, *last_mask;
    span end; /* of the source */
} ast;

/* Prints the program in canonical form to *out, which is empty. If `batch` is not NULL, the section batch lies in the
 * bytes from batch[0] to batch[1]; without these bytes the text is the program without that section. */
void ast_print(const ast *program, text *out, size_t batch[2]);
void ast_print_expr(const expr *e, text *out);

/* Is it a call of that name: name(...)? */
bool ast_is_call(const expr *e, const char *name);
#endif
