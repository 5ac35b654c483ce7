/* parse.h: parses a source into its tree; and declares what the scanner and the grammar call in the parser. */
#ifndef FCPC_SYNTAX_PARSE_H
#define FCPC_SYNTAX_PARSE_H
#include "compiler/syntax/ast.h"

/* Parses source `number` of d, a program, into *out. Syntax errors are reported in d. False: out of memory, which was
 * reported. `stop` is NULL, or a number: once it is not 0, parsing ends with FCP_E_INTERRUPTED. */
bool parse_program(diags *d, arena *a, uint32_t number, const volatile int *stop, ast *out);
/* As parse_program, and also keeps in `a` the tokens that the grammar got. Their kinds are those of fcp.tab.h; T_SEP
 * ends a statement. */
typedef struct parsed_token {
    int kind;
    span at;
} parsed_token;
typedef struct token_list {
    parsed_token *at;
    size_t count, room;
} token_list;
bool parse_tokens(diags *d, arena *a, uint32_t number, const volatile int *stop, ast *out, token_list *tokens);
/* Parses bytes [begin, end) of a source, which are one mask or score. NULL: they are not, or no memory; reported. */
mask *parse_mask(diags *d, arena *a, uint32_t number, uint32_t begin, uint32_t end);
/* Parses bytes [begin, end) of a source as the value of a key. NULL: an error, reported in d. */
expr *parse_value(diags *d, arena *a, uint32_t number, uint32_t begin, uint32_t end);

/* --- for the scanner ---------------------------------------------------------------------------------------------- */

typedef struct parse parse;

/* What the scanner works on: the text begins at `text`, which is byte `shift` of the source. */
struct scan {
    const char *text;
    uint32_t size, source, shift;
    diags *d;
};
const struct scan *parse_scan(parse *p);
void *parse_pool(parse *p, size_t size);                      /* the scanner's memory; small and fixed */
/* The token of a word: that of a keyword, or T_NAME. If the word may be a name, *out_name is its text. */
int parse_word(parse *p, const char *word, size_t size, const char **out_name);
const char *parse_name(parse *p, const char *word, size_t size);
const char *parse_string(parse *p, span at, const char *word, size_t size);                  /* with its quotes */
int64_t parse_integer(parse *p, span at, const char *digits, size_t size, unsigned shift);   /* times 2^shift */

/* --- for the grammar ---------------------------------------------------------------------------------------------- */

/* The tokens that could stand where the grammar met another, and how messages name them. */
typedef struct parse_expected {
    const int *tokens;
    const char *const *names;
    unsigned count;
} parse_expected;
void parse_syntax_error(parse *p, span at, int got, const parse_expected *expected);
void parse_exhausted(parse *p); /* the parser's stack is at its limit, or there is no memory */
#endif
