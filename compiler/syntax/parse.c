/* parse.c: drives scanner and grammar: a token filter between them, syntax errors in words, and the tree's builders.
 *
 * The filter decides what newlines mean, so that the grammar sees only SEP: a newline separates unless it is inside ( )
 * or [ ], after an operator, comma, `=` or opening bracket, before a closing brace, or before a token that can only
 * continue (`where then else and or`, an operator, a comma, `=`, `{`). It also watches brackets: one that is still open
 * where a new section begins, or at the end, is reported at its opening and closed, so that the rest is parsed as
 * meant.
 *
 * Requires: a registered source of at most SOURCE_MAX bytes. Gives: a tree, complete if no error was reported.
 * Cost: O(size). Recovery is at statements: after an error everything up to the next SEP on the same level is skipped.
 */
#include <stdlib.h>
#include <string.h>

#include "compiler/syntax/ast.h"
#include "fcp.tab.h"
#define YYSTYPE LANG_STYPE
#define YYLTYPE LANG_LTYPE
#include "fcp.lex.h"

enum { POOL = 1024, AHEAD = 2 };

int fcp_scan_token(LANG_STYPE *value, LANG_LTYPE *at, yyscan_t scanner);
int lang_lex(LANG_STYPE *value, LANG_LTYPE *at, parse *p);

typedef struct token {
    int kind;
    bool newline; /* first on its line */
    bool bad;     /* the scanner complained about it, or right before it */
    span at;
    LANG_STYPE value;
} token;

typedef struct bracket {
    char open;
    span at;
} bracket;

struct parse {
    diags *d;
    arena *arena;
    yyscan_t scanner;
    struct scan scan;
    _Alignas(16) char pool[POOL]; /* the scanner's */
    size_t pool_used;

    token ahead[AHEAD]; /* read from the scanner, not yet delivered */
    unsigned ahead_count;
    int start;          /* first token to deliver; 0 once done */
    int last;           /* kind of the last token delivered */
    span last_at, before_at; /* of the last token, and of the one before it */
    span joined;        /* a token after which a newline was passed over in this statement; SPAN_NONE: none */
    bool lone_value;    /* what is parsed is a value, not a program */
    bool closing;       /* brackets are being closed on the user's behalf: no further complaints until SEP */
    bool bad;           /* the scanner complained in this statement: what does not parse is no news */
    bool recovering;    /* after a syntax error, until SEP: then every newline outside brackets separates */
    bool stopped;       /* nesting limit: the rest is not read */
    bracket brackets[NEST_MAX];
    unsigned depth;
    bracket inner;      /* the innermost bracket as the last token came, open 0: none */

    token_list *tokens; /* NULL: nobody wants them */
    ast *program;
    expr *value;
    bool no_memory, too_deep;
};

/* --- scanner's services ------------------------------------------------------------------------------------------- */

const struct scan *parse_scan(parse *p) { return &p->scan; }

void *parse_pool(parse *p, size_t size) {
    size = (size + 15) & ~(size_t)15;
    if (size > POOL - p->pool_used) return NULL;
    void *at = p->pool + p->pool_used;
    p->pool_used += size;
    return at;
}

const char *parse_name(parse *p, const char *word, size_t size) {
    const char *name = arena_copy(p->arena, word, size);
    if (!name) p->no_memory = true;
    return name ? name : "";
}

const char *parse_string(parse *p, span at, const char *word, size_t size) {
    char *out = arena_copy(p->arena, word + 1, size - 2);
    if (!out) {
        p->no_memory = true;
        return "";
    }
    size_t used = 0;
    for (size_t i = 1; i + 1 < size; i++) {
        char c = word[i];
        if (c == '\\') {
            c = word[++i];
            if (c == 'n') c = '\n';
            else if (c == 't') c = '\t';
            else if (c == 'r') c = '\r';
            else if (c != '"' && c != '\\') {
                span escape = {at.source, at.begin + (uint32_t)i - 1, at.begin + (uint32_t)i + 1};
                diag_error(p->d, FCP_E_LEX, escape, "an escape that strings do not have");
                diag_hint(p->d, "the escapes are \\\" \\\\ \\n \\t \\r");
            }
        }
        out[used++] = c;
    }
    out[used] = 0;
    return out;
}

int64_t parse_integer(parse *p, span at, const char *digits, size_t size, unsigned shift) {
    int64_t value = 0;
    bool over = false;
    for (size_t i = 0; i < size; i++)
        over |= __builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, digits[i] - '0', &value);
    over |= __builtin_mul_overflow(value, INT64_C(1) << shift, &value);
    if (!over) return value;
    diag_error(p->d, FCP_E_NUMBER, at, "a number larger than 2^63 - 1");
    return 1;
}

/* --- the token filter --------------------------------------------------------------------------------------------- */

/* The token `index` places ahead of the parser. Newlines become a flag of the token after them. */
static token *peek(parse *p, unsigned index) {
    while (p->ahead_count <= index) {
        token *t = &p->ahead[p->ahead_count];
        *t = (token){0};
        size_t errors = diag_errors(p->d);
        do {
            t->newline |= t->kind == '\n';
            t->kind = fcp_scan_token(&t->value, &t->at, p->scanner);
        } while (t->kind == '\n');
        t->bad = diag_errors(p->d) > errors;
        p->ahead_count++;
    }
    return &p->ahead[index];
}

static void drop(parse *p) {
    for (unsigned i = 1; i < p->ahead_count; i++) p->ahead[i - 1] = p->ahead[i];
    p->ahead_count--;
}

/* After this the statement goes on, whatever the line does. */
static bool goes_on_after(int kind) {
    switch (kind) {
    case T_AND: case T_OR: case T_NOT: case T_IF: case T_THEN: case T_ELSE: case T_WHERE: case T_REPEAT: case T_DOTS:
    case T_LE: case T_GE: case T_EQ: case T_NE: case '<': case '>': case '+': case '-': case '*': case '/': case '%':
    case '=': case ',': case ':': case '(': case '[': return true;
    default: return false;
    }
}

/* This cannot begin a statement: it continues the one before. */
static bool goes_on_before(int kind) {
    switch (kind) {
    case T_AND: case T_OR: case T_THEN: case T_ELSE: case T_WHERE: case T_DOTS: case T_LE: case T_GE: case T_EQ:
    case T_NE: case '<': case '>': case '+': case '-': case '*': case '/': case '%': case '=': case ',': case ':':
    case '{':
        return true;
    default: return false;
    }
}

static bool is_name(int kind) {
    return kind == T_NAME || kind == T_MODEL || kind == T_CLUSTER || kind == T_BATCH || kind == T_MASK ||
           kind == T_PLAN || kind == T_SCORE || kind == T_FIELD || kind == T_TABLE;
}

static bool ends_operand(int kind) {
    return kind == T_INT || kind == T_FLOAT || kind == T_UNIT || kind == T_NAME || kind == T_STRING || kind == T_TRUE ||
           kind == T_FALSE || kind == ')' || kind == ']';
}

/* Does a section or mask begin here? Certain enough to close brackets that are still open. */
static bool begins_item(parse *p, const token *t) {
    if (!t->newline) return false;
    int kind = t->kind;
    if (kind == T_MODEL || kind == T_CLUSTER || kind == T_BATCH || kind == T_PLAN) return peek(p, 1)->kind == '{';
    if (kind == T_MASK || kind == T_SCORE) return is_name(peek(p, 1)->kind);
    return false;
}

static char closer_of(char open) { return open == '(' ? ')' : open == '[' ? ']' : '}'; }

/* Keeps a delivered token for who asked for them. */
static void keep(parse *p, int kind, span at) {
    token_list *l = p->tokens;
    if (l->count == l->room) {
        size_t room = l->room ? l->room * 2 : 256;
        parsed_token *grown = ARENA_NEW(p->arena, parsed_token, room);
        if (!grown) {
            p->no_memory = true;
            return;
        }
        if (l->count) memcpy(grown, l->at, l->count * sizeof *grown);
        l->at = grown;
        l->room = room;
    }
    l->at[l->count++] = (parsed_token){kind, at};
}

static int deliver(parse *p, int kind, span at, LANG_STYPE *value_out, const LANG_STYPE *value, LANG_LTYPE *at_out) {
    if (value) *value_out = *value;
    *at_out = at;
    p->last = kind;
    p->before_at = p->last_at;
    p->last_at = at;
    if (p->tokens) keep(p, kind, at);
    return kind;
}

/* A bracket's closer, on behalf of the user. */
static int close_bracket(parse *p, LANG_STYPE *value, LANG_LTYPE *at) {
    span here = {p->last_at.source, p->last_at.end, p->last_at.end};
    return deliver(p, closer_of(p->brackets[--p->depth].open), here, value, NULL, at);
}

static int separate(parse *p, span where, LANG_STYPE *value, LANG_LTYPE *at) {
    p->closing = p->recovering = false;
    p->bad = peek(p, 0)->bad;
    p->joined = SPAN_NONE;
    return deliver(p, T_SEP, where, value, NULL, at);
}

/* An opening or closing bracket: keeps the stack. A closer that does not fit is left to the grammar to complain about:
 * it closes its own opener if that lies deeper in the same braces, else the innermost one. */
static void track(parse *p, const token *t) {
    if (t->kind == '(' || t->kind == '[' || t->kind == '{') {
        if (p->depth == NEST_MAX) {
            diag_error(p->d, FCP_E_DEPTH, t->at, "brackets nested more than %d deep", NEST_MAX);
            p->stopped = true;
            return;
        }
        p->brackets[p->depth++] = (bracket){(char)t->kind, t->at};
    } else if (t->kind == ')' || t->kind == ']' || t->kind == '}') {
        unsigned i = p->depth;
        while (i > 0 && closer_of(p->brackets[i - 1].open) != t->kind && p->brackets[i - 1].open != '{') i--;
        if (i > 0 && closer_of(p->brackets[i - 1].open) == t->kind) p->depth = i - 1;
        else if (p->depth && p->brackets[p->depth - 1].open != '{') p->depth--;
    }
}

/* The grammar's next token. */
int lang_lex(LANG_STYPE *value, LANG_LTYPE *at, parse *p) {
    if (p->start) {
        int kind = p->start;
        p->start = 0;
        p->last_at = (span){p->scan.source, p->scan.shift, p->scan.shift};
        return deliver(p, kind, p->last_at, value, NULL, at);
    }
    if (p->stopped) return deliver(p, T_END, p->last_at, value, NULL, at);
    if (p->closing && p->depth) return close_bracket(p, value, at);

    token *t = peek(p, 0);
    bool inside = p->depth && p->brackets[p->depth - 1].open != '{';
    if (p->depth && (t->kind == T_END || begins_item(p, t))) {
        bracket b = p->brackets[p->depth - 1];
        p->inner = b;
        if (p->start == 0 && !p->closing) {
            diag_error(p->d, FCP_E_SYNTAX, b.at, "this '%c' is never closed", b.open);
            if (t->kind != T_END) diag_also(p->d, t->at, "a new section begins here");
            p->closing = true;
        }
        return close_bracket(p, value, at);
    }
    p->inner = p->depth ? p->brackets[p->depth - 1] : (bracket){0};
    if (!inside) {
        bool semicolon = false, newline = t->newline;
        span where = {p->last_at.source, p->last_at.end, p->last_at.end + 1};
        while (t->kind == ';') {
            if (!semicolon) where = t->at;
            semicolon = true;
            drop(p);
            t = peek(p, 0);
        }
        bool wanted = p->last != T_SEP && p->last != '{' && p->last != T_PROGRAM && t->kind != '}' && t->kind != T_END;
        bool after = goes_on_after(p->last) && !p->recovering && !begins_item(p, t), before = goes_on_before(t->kind);
        if (wanted && (semicolon || (newline && !after && !before))) return separate(p, where, value, at);
        if (newline && after) p->joined = p->last_at;
    }
    token now = *t;
    drop(p);
    p->bad = now.bad || (p->bad && p->last != T_SEP);
    if (now.kind == T_NAME && ends_operand(p->last) && !strcmp(now.value.name, "x")) now.kind = T_REPEAT;
    track(p, &now);
    if (p->stopped) now.kind = T_END;
    return deliver(p, now.kind, now.at, value, &now.value, at);
}

/* --- syntax errors ------------------------------------------------------------------------------------------------ */

static bool has(const char *const *names, unsigned count, const char *name) {
    for (unsigned i = 0; i < count; i++)
        if (!strcmp(names[i], name)) return true;
    return false;
}

static bool is_operator_text(const char *name) {
    static const char *const all[] = {"'and'", "'or'", "'<'", "'<='", "'>'", "'>='", "'=='",
                                      "'!='",  "'+'",  "'-'", "'*'",  "'/'", "'%'",  "'..'", "':'"};
    return has(all, sizeof all / sizeof *all, name);
}

/* The expected tokens in a person's words, at most `room` of them: an expression, an operator, a key, ... */
static unsigned in_words(const parse *p, const char *const *names, unsigned count, const char **words, unsigned room) {
    unsigned used = 0;
    bool expression = has(names, count, "a number"), operators = has(names, count, "'*'");
    bool any_name = has(names, count, "a name"), line_end = has(names, count, "end of line");
    if (expression) words[used++] = "an expression";
    else if (any_name) {
        bool item = p->last == T_SEP || p->last == T_PROGRAM;
        if (item && !p->depth) words[used++] = "a section or a mask";
        else if ((item || p->last == '{') && p->depth) words[used++] = "a key";
        else words[used++] = "a name";
    }
    if (operators) words[used++] = "an operator";
    for (unsigned i = 0; i < count && used < room; i++) {
        const char *n = names[i];
        if (line_end && !strcmp(n, "end of file")) continue;
        if (operators && is_operator_text(n)) continue;
        if (operators && (!strcmp(n, "'('") || !strcmp(n, "'['") || !strcmp(n, "a unit"))) continue;
        if (expression && (!strcmp(n, "a float") || !strcmp(n, "a string") || !strcmp(n, "a number") ||
                           !strcmp(n, "'('") || !strcmp(n, "'['") || !strcmp(n, "'-'") || !strcmp(n, "'not'") ||
                           !strcmp(n, "'if'") || !strcmp(n, "'true'") || !strcmp(n, "'false'")))
            continue;
        if (any_name && (!strcmp(n, "a name") || !strcmp(n, "'model'") || !strcmp(n, "'cluster'") ||
                         !strcmp(n, "'batch'") || !strcmp(n, "'mask'") || !strcmp(n, "'plan'") ||
                         !strcmp(n, "'score'") || !strcmp(n, "'field'") || !strcmp(n, "'table'")))
            continue;
        words[used++] = p->lone_value && !strcmp(n, "end of file") ? "the end" : n;
    }
    return used;
}

static bool is_comparison(int kind) {
    return kind == '<' || kind == '>' || kind == T_LE || kind == T_GE || kind == T_EQ || kind == T_NE;
}

void parse_syntax_error(parse *p, span at, const char *got, const char *const *expected, unsigned count) {
    p->recovering = true;
    if (p->closing || p->stopped || p->bad) return;
    enum { WORDS = 5 };
    const char *words[WORDS + 1];
    unsigned used = in_words(p, expected, count, words, WORDS + 1);
    text message = {0};
    bool end = !strcmp(got, "end of file");
    if (end) at.begin = at.end = p->before_at.end; /* not on some empty line far below */
    const char *here = p->scan.text + (at.begin - p->scan.shift); /* the token's text */
    uint32_t left = p->scan.size - (at.begin - p->scan.shift), length = at.end - at.begin;
    if (!strcmp(got, "end of line") || end) {
        bool semicolon = !end && left && *here == ';';
        text_printf(&message, "unexpected %s", semicolon ? "';'" : end && p->lone_value ? "end of the value" : got);
    } else if (!strcmp(got, "a string")) text_puts(&message, "unexpected string");
    else {
        text_puts(&message, "unexpected '");
        text_add(&message, here, length < 40 ? length : 40);
        text_puts(&message, length < 40 ? "'" : "...'");
    }
    if (used && used <= WORDS) {
        text_puts(&message, ", expected ");
        for (unsigned i = 0; i < used; i++)
            text_printf(&message, "%s%s", i == 0 ? "" : i + 1 < used ? ", " : " or ", words[i]);
    }
    char *line = text_take(&message);
    if (!line) {
        p->no_memory = true;
        return;
    }
    diag_error(p->d, FCP_E_SYNTAX, at, "%s", line);
    free(line);

    char open = p->inner.open;
    if (open) {
        const char close[] = {'\'', closer_of(open), '\'', 0};
        bool misfit = (p->last == ')' || p->last == ']' || p->last == '}') && p->last != closer_of(open);
        if ((open != '{' || misfit) && has(expected, count, close))
            diag_also(p->d, p->inner.at, "to close this '%c'", open);
    }
    if (length == 1 && left && *here == ':') {
        if (has(expected, count, "'='")) diag_hint(p->d, "a key is set with '='");
        else diag_hint(p->d, "QUERIES:KEYS is one value of a list of lengths: [100:4096, 1:8192 x 64]");
        return;
    }
    bool operators = has(expected, count, "'*'");
    if (p->last == '=' && operators && p->joined.source != UINT32_MAX)
        diag_also(p->d, p->joined, "a line that ends like this goes on in the next");
    else if (p->last == '=' && operators) diag_hint(p->d, "equality is written '=='");
    else if (p->last == '=' && has(expected, count, "'{'"))
        diag_hint(p->d,
                  "keys stand in a section: model, cluster, batch or plan { key = value }; a mask begins with 'mask'");
    else if (p->last == T_REPEAT) diag_hint(p->d, "'x' repeats between two values of a list: [8192 x 32]");
    else if (is_comparison(p->last) && !operators) diag_hint(p->d, "a comparison stands between two expressions");
    else if (p->last == T_NAME && operators && has(expected, count, "a unit")) {
        while (length < left && (here[length] == '/' || (here[length] >= 'a' && here[length] <= 'z'))) length++;
        const char *nearest = ast_nearest_unit(here, length);
        if (nearest) diag_hint(p->d, "the nearest unit is '%s'", nearest);
        else if (peek(p, 0)->kind == '=') diag_hint(p->d, "keys are separated by ';' or a new line");
    }
}

void parse_exhausted(parse *p) {
    if (p->stopped) return;
    p->stopped = true;
    if (!p->no_memory) diag_error(p->d, FCP_E_DEPTH, p->last_at, "nested too deep to parse");
}

/* --- builders ----------------------------------------------------------------------------------------------------- */

static void *fresh(parse *p, size_t size) {
    void *at = arena_zalloc(p->arena, 1, size, _Alignof(max_align_t));
    if (!at) p->no_memory = true;
    return at;
}

/* A new node over children whose depth is known; too deep a one is reported once, and then kept flat. */
static expr *make(parse *p, span at, expr_kind kind, uint32_t depth) {
    expr *e = fresh(p, sizeof *e);
    if (!e) return NULL;
    e->kind = (uint8_t)kind;
    e->at = at;
    e->depth = depth;
    if (depth > NEST_MAX && !p->too_deep) {
        diag_error(p->d, FCP_E_DEPTH, at, "an expression nested more than %d deep", NEST_MAX);
        p->too_deep = true;
    }
    return e;
}

static uint32_t deeper(uint32_t a, uint32_t b) { return a > b ? a : b; }

expr *ast_make_leaf(parse *p, span at, expr_kind kind, const char *name, int64_t integer) {
    expr *e = make(p, at, kind, 1);
    if (!e) return NULL;
    e->name = name;
    e->integer = integer;
    return e;
}

expr *ast_make_quantity(parse *p, span at, expr *number, int64_t unit_index) {
    expr *e = number ? make(p, at, EXPR_QUANTITY, number->depth + 1) : NULL;
    if (!e) return NULL;
    e->a = number;
    e->integer = unit_index;
    return e;
}

expr *ast_make_unary(parse *p, span at, expr_op op, expr *a) {
    expr *e = a ? make(p, at, EXPR_UNARY, a->depth + 1) : NULL;
    if (!e) return NULL;
    e->op = (uint8_t)op;
    e->a = a;
    return e;
}

expr *ast_make_binary(parse *p, span at, expr_op op, expr *a, expr *b) {
    expr *e = a && b ? make(p, at, EXPR_BINARY, deeper(a->kind == EXPR_BINARY ? a->depth : a->depth + 1, b->depth + 1))
                     : NULL;
    if (!e) return NULL;
    e->op = (uint8_t)op;
    e->a = a;
    e->b = b;
    a->up = e;
    if (ast_op_precedence(op) == PREC_COMPARE && a->kind == EXPR_BINARY && !a->parens &&
        ast_op_precedence((expr_op)a->op) == PREC_COMPARE) {
        diag_error(p->d, FCP_E_SYNTAX, at, "comparisons do not chain");
        diag_hint(p->d, "write both: a < b and b < c");
    }
    return e;
}

expr *ast_make_node(parse *p, span at, expr_kind kind, expr *a, expr *b, expr *c) {
    if (!a || !b || (kind == EXPR_IF && !c)) return NULL;
    expr *e = make(p, at, kind, 1 + deeper(deeper(a->depth, b->depth), c ? c->depth : 0));
    if (!e) return NULL;
    e->a = a;
    e->b = b;
    e->c = c;
    return e;
}

expr *ast_make_call(parse *p, span at, const char *name, span name_at, arg_list args) {
    expr *e = make(p, at, EXPR_CALL, args.depth + 1);
    if (!e) return NULL;
    e->name = name;
    e->name_at = name_at;
    e->args = args.first;
    e->arg_count = args.count;
    return e;
}

expr *ast_make_list(parse *p, span at, expr_kind kind, arg_list elements) {
    expr *e = make(p, at, kind, elements.depth + 1);
    if (!e) return NULL;
    e->args = elements.first;
    e->arg_count = elements.count;
    return e;
}

expr *ast_make_parens(expr *e, span at) {
    if (!e) return NULL;
    e->parens = true;
    e->at = at;
    return e;
}

arg_list ast_make_arg(parse *p, const char *name, span name_at, expr *value) {
    arg *a = fresh(p, sizeof *a);
    if (!a) return (arg_list){0};
    a->name = name;
    a->name_at = name_at;
    a->value = value;
    return (arg_list){a, a, 1, value ? value->depth : 0};
}

arg_list ast_make_array_param(parse *p, declared_as as, const char *name, span name_at, expr *value) {
    arg_list one = ast_make_arg(p, name, name_at, value);
    if (one.first) one.first->as = as;
    return one;
}

arg_list ast_join_args(arg_list list, arg_list more) {
    if (!list.first) return more;
    if (!more.first) return list;
    list.last->next = more.first;
    return (arg_list){list.first, more.last, list.count + more.count, deeper(list.depth, more.depth)};
}

entry_list ast_make_entry(parse *p, declared_as as, const char *key, span key_at, expr *value) {
    entry *e = value ? fresh(p, sizeof *e) : NULL;
    if (!e) return (entry_list){0};
    *e = (entry){.key = key, .key_at = key_at, .value = value, .as = as};
    return (entry_list){e, e};
}

entry_list ast_join_entries(entry_list list, entry_list more) {
    if (!list.first) return more;
    if (!more.first) return list;
    list.last->next = more.first;
    return (entry_list){list.first, more.last};
}

definition_list ast_make_definition(parse *p, const char *name, span name_at, bool function, arg_list params, expr *body) {
    definition *e = body ? fresh(p, sizeof *e) : NULL;
    if (!e) return (definition_list){0};
    *e = (definition){.name = name, .name_at = name_at, .function = function, .params = params.first,
                      .param_count = params.count, .body = body};
    return (definition_list){e, e};
}

definition_list ast_join_definitions(definition_list list, definition_list more) {
    if (!list.first) return more;
    if (!more.first) return list;
    list.last->next = more.first;
    return (definition_list){list.first, more.last};
}

void ast_add_section(parse *p, const char *name, span name_at, entry_list entries) {
    section *s = fresh(p, sizeof *s);
    if (!s) return;
    *s = (section){.name = name, .name_at = name_at, .entries = entries.first, .last = entries.last};
    if (p->program->last_section) p->program->last_section->next = s;
    else p->program->sections = s;
    p->program->last_section = s;
}

void ast_add_mask(parse *p, bool score, const char *name, span name_at, arg_list params, expr *body,
              definition_list where) {
    mask *m = body ? fresh(p, sizeof *m) : NULL;
    if (!m) return;
    *m = (mask){.name = name, .name_at = name_at, .params = params.first, .param_count = params.count, .score = score,
                .body = body, .definitions = where.first};
    uint32_t number = 0;
    for (definition *e = where.first; e; e = e->next) e->number = number++;
    if (p->program->last_mask) p->program->last_mask->next = m;
    else p->program->masks = m;
    p->program->last_mask = m;
}

void parse_result(parse *p, expr *value) { p->value = value; }

/* --- entry points ------------------------------------------------------------------------------------------------- */

/* Runs the parser over [begin, end) of a source. False: out of memory, reported. */
static bool run(parse *p, diags *d, arena *a, uint32_t number, uint32_t begin, uint32_t end, int start) {
    const char *name, *bytes;
    size_t size;
    bool builtin;
    diag_source_get(d, number, &name, &bytes, &size, &builtin);
    size = end - begin;
    char *buffer = malloc(size + 2);
    if (buffer) {
        memcpy(buffer, bytes + begin, size);
        buffer[size] = buffer[size + 1] = 0;
        p->d = d;
        p->arena = a;
        p->start = start;
        p->lone_value = start == T_VALUE;
        p->joined = SPAN_NONE;
        p->scan = (struct scan){.text = buffer, .size = (uint32_t)size, .source = number, .shift = begin, .d = d};
        if (fcp_scan_lex_init_extra(p, &p->scanner) || !fcp_scan__scan_buffer(buffer, size + 2, p->scanner))
            p->no_memory = true;
        else if (lang_parse(p) == 2 && !p->stopped) p->no_memory = true;
    }
    free(buffer);
    if (buffer && !p->no_memory) return true;
    diag_error(d, FCP_E_NO_MEMORY, SPAN_NONE, "out of memory while parsing '%s'", name);
    return false;
}

bool parse_tokens(diags *d, arena *a, uint32_t number, ast *out, token_list *tokens) {
    const char *name, *bytes;
    size_t size;
    bool builtin;
    diag_source_get(d, number, &name, &bytes, &size, &builtin);
    size_t end = size;
    while (end > 0 && strchr(" \t\r\n", bytes[end - 1]) && bytes[end - 1]) end--;
    *out = (ast){.end = {number, (uint32_t)end, (uint32_t)end}};
    if (size > SOURCE_MAX) {
        diag_error(d, FCP_E_TOO_LARGE, (span){number, 0, 0}, "a program of more than %d MiB", SOURCE_MAX >> 20);
        return true;
    }
    size_t at;
    const char *foreign = text_foreign(bytes, size, &at);
    if (foreign) {
        const span place = {number, (uint32_t)at, (uint32_t)at + 1};
        diag_error(d, FCP_E_LEX, place, "this is not text: %s", foreign);
        diag_hint(d, "a program is text in UTF-8");
        return true;
    }
    parse *p = calloc(1, sizeof *p);
    if (!p) {
        diag_error(d, FCP_E_NO_MEMORY, SPAN_NONE, "out of memory while parsing '%s'", name);
        return false;
    }
    p->program = out;
    p->tokens = tokens;
    bool ok = run(p, d, a, number, 0, (uint32_t)size, T_PROGRAM);
    free(p);
    for (mask *m = out->masks; m; m = m->next) m->builtin = builtin;
    return ok;
}

bool parse_program(diags *d, arena *a, uint32_t number, ast *out) { return parse_tokens(d, a, number, out, NULL); }

expr *parse_value(diags *d, arena *a, uint32_t number, uint32_t begin, uint32_t end) {
    parse *p = calloc(1, sizeof *p);
    if (!p) {
        diag_error(d, FCP_E_NO_MEMORY, SPAN_NONE, "out of memory");
        return NULL;
    }
    ast none = {0};
    p->program = &none;
    size_t before = diag_errors(d);
    bool ok = run(p, d, a, number, begin, end, T_VALUE);
    expr *value = ok && diag_errors(d) == before ? p->value : NULL;
    free(p);
    return value;
}
