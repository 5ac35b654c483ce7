/* parse.c: drives the scanner and the grammar, filters the tokens between them, and words syntax errors.
 *
 * The filter decides which newlines end a statement. Such a newline becomes the token SEP; the grammar sees no others.
 * A newline does not end a statement inside ( ) or [ ]; after an operator, a comma, `=` or an opening bracket; before
 * a closing brace; and before a token that cannot begin a statement (`where then else and or`, an operator, a comma,
 * `=`, `{`).
 *
 * The filter also watches brackets. A bracket that is still open where a new section begins, or at the end, is
 * reported where it was opened. The filter then closes it, so that the rest is parsed as it was meant.
 *
 * After a syntax error, everything up to the next SEP on the same level is skipped.
 *
 * Requires: a registered source of at most SOURCE_MAX bytes.
 * Gives:    a tree, complete if no error was reported.
 * Cost:     O(size).
 */
#include <stdlib.h>
#include <string.h>

#include "compiler/fcpc.h"
#include "compiler/syntax/parse.h"
#include "compiler/syntax/tree.h"
#include "fcp.tab.h"
#include "runtime/base/stop.h"
#define YYSTYPE LANG_STYPE
#define YYLTYPE LANG_LTYPE
#include "fcp.lex.h"

enum { POOL = 1024, AHEAD = 2 };

int fcp_scan_token(LANG_STYPE *value, LANG_LTYPE *at, yyscan_t scanner);
int lang_lex(LANG_STYPE *value, LANG_LTYPE *at, parse *p);

typedef struct token {
    int kind;
    bool newline; /* first on its line */
    bool bad;     /* the scanner reported an error in it, or right before it */
    span at;
    LANG_STYPE value;
} token;

typedef struct bracket {
    char open;
    span at;
} bracket;

struct parse {
    tree tree; /* what the grammar builds */
    yyscan_t scanner;
    struct scan scan;
    _Alignas(16) char pool[POOL]; /* the scanner's */
    size_t pool_used;

    token ahead[AHEAD]; /* read from the scanner, not yet delivered: ahead_count of them, in a ring */
    unsigned ahead_first, ahead_count;
    int start;          /* first token to deliver; 0 once done */
    int last;           /* kind of the last token delivered */
    span last_at, before_at; /* of the last token, and of the one before it */
    span joined;        /* a token after which a newline was passed over in this statement; SPAN_NONE: none */
    bool lone_value;    /* what is parsed is a value, not a program */
    bool closing;       /* the filter is closing brackets: no further errors until SEP */
    bool bad;           /* the scanner reported an error in this statement: a syntax error in it is no news */
    bool recovering;    /* after a syntax error, until SEP: then every newline outside brackets separates */
    bool stopped;       /* nested too deep, or asked to stop: the rest is not read */
    const volatile int *stop; /* NULL: nobody asks */
    uint32_t delivered; /* tokens */
    bracket brackets[NEST_MAX];
    unsigned depth;
    unsigned inner;     /* how many brackets were open when the last token came; the last of them is still there */

    token_list *tokens; /* keeps the tokens, unless NULL */
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

int parse_word(parse *p, const char *word, size_t size, const char **out_name) {
    const keyword *k = words_find_keyword(word, size);
    if (!k) *out_name = parse_name(p, word, size);
    else if (k->name) *out_name = k->spelling;
    return k ? k->token : T_NAME;
}

const char *parse_name(parse *p, const char *word, size_t size) {
    const char *name = arena_copy(p->tree.arena, word, size);
    if (!name) p->tree.no_memory = true;
    return name ? name : "";
}

const char *parse_string(parse *p, span at, const char *word, size_t size) {
    char *out = arena_copy(p->tree.arena, word + 1, size - 2);
    if (!out) {
        p->tree.no_memory = true;
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
                diag_error(p->tree.d, FCP_E_LEX, escape, "an escape that strings do not have");
                diag_hint(p->tree.d, "the escapes are \\\" \\\\ \\n \\t \\r");
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
    diag_error(p->tree.d, FCP_E_NUMBER, at, "a number larger than 2^63 - 1");
    return 1;
}

/* --- the token filter --------------------------------------------------------------------------------------------- */

/* The token `index` places ahead of the parser. Newlines become a flag of the token after them. */
static token *peek(parse *p, unsigned index) {
    while (p->ahead_count <= index) {
        token *t = &p->ahead[(p->ahead_first + p->ahead_count) % AHEAD];
        t->kind = 0;
        t->newline = false;
        size_t errors = diag_errors(p->tree.d);
        do {
            t->newline |= t->kind == '\n';
            t->kind = fcp_scan_token(&t->value, &t->at, p->scanner);
        } while (t->kind == '\n');
        t->bad = diag_errors(p->tree.d) > errors;
        p->ahead_count++;
    }
    return &p->ahead[(p->ahead_first + index) % AHEAD];
}

static void drop(parse *p) {
    p->ahead_first = (p->ahead_first + 1) % AHEAD;
    p->ahead_count--;
}

/* After this token the statement goes on, even on the next line. */
static bool goes_on_after(int kind) {
    switch (kind) {
    case T_AND: case T_OR: case T_NOT: case T_IF: case T_THEN: case T_ELSE: case T_WHERE: case T_REPEAT: case T_DOTS:
    case T_ON:
    case T_OVER:
    case T_LE:
    case T_GE:
    case T_EQ:
    case T_NE:
    case '<': case '>': case '+': case '-': case '*': case '/': case '%':
    case '=': case ',': case ':': case '(': case '[': return true;
    default: return false;
    }
}

/* This token cannot begin a statement, so it continues the one before. */
static bool goes_on_before(int kind) {
    switch (kind) {
    case T_AND: case T_OR: case T_THEN: case T_ELSE: case T_WHERE: case T_DOTS: case T_LE: case T_GE: case T_EQ:
    case T_NE: case '<': case '>': case '+': case '-': case '*': case '/': case '%': case '=': case ',': case ':':
    case '{':
        return true;
    default: return false;
    }
}

static bool ends_operand(int kind) {
    return kind == T_INT || kind == T_FLOAT || kind == T_UNIT || kind == T_NAME || kind == T_STRING || kind == T_TRUE ||
           kind == T_FALSE || kind == ')' || kind == ']';
}

/* Does a section or mask begin here? If so, brackets that are still open were forgotten. */
static bool begins_item(parse *p, const token *t) {
    if (!t->newline) return false;
    int kind = t->kind;
    if (kind == T_MODEL || kind == T_CLUSTER || kind == T_BATCH || kind == T_PLAN) return peek(p, 1)->kind == '{';
    if (kind == T_MASK || kind == T_SCORE) return words_names(peek(p, 1)->kind);
    return false;
}

static char closer_of(char open) { return open == '(' ? ')' : open == '[' ? ']' : '}'; }

/* Adds a delivered token to p->tokens. */
static void keep_token(parse *p, int kind, span at) {
    token_list *l = p->tokens;
    parsed_token *grown = arena_grow(p->tree.arena, l->at, l->count, &l->room, sizeof *grown);
    if (!grown) {
        p->tree.no_memory = true;
        return;
    }
    l->at = grown;
    l->at[l->count++] = (parsed_token){kind, at};
}

static int deliver(parse *p, int kind, span at, LANG_STYPE *value_out, const LANG_STYPE *value, LANG_LTYPE *at_out) {
    if (value) *value_out = *value;
    *at_out = at;
    p->last = kind;
    p->before_at = p->last_at;
    p->last_at = at;
    if (p->tokens) keep_token(p, kind, at);
    return kind;
}

/* Delivers a closing bracket that the source lacks: that of the innermost open bracket. */
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

/* Keeps the stack of open brackets. A closing bracket that does not match the innermost open one is an error, which the
 * grammar reports. The stack must go on all the same. The closing bracket then takes off the nearest open bracket of
 * its own kind with all that are inside of it, as in `( [ )`. If there is none inside the same braces, it takes off the
 * innermost open bracket. */
static void track_bracket(parse *p, const token *t) {
    if (t->kind == '(' || t->kind == '[' || t->kind == '{') {
        if (p->depth == NEST_MAX) {
            diag_error(p->tree.d, FCP_E_DEPTH, t->at, "brackets nested more than %d deep", NEST_MAX);
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
    if (++p->delivered % 65536 == 0 && !p->stopped && fcp_stop_asked(p->stop)) {
        diag_error(p->tree.d, FCP_E_INTERRUPTED, SPAN_NONE, "interrupted");
        p->stopped = true;
    }
    if (p->stopped) return deliver(p, T_END, p->last_at, value, NULL, at);
    if (p->closing && p->depth) return close_bracket(p, value, at);

    token *t = peek(p, 0);
    bool inside = p->depth && p->brackets[p->depth - 1].open != '{';
    if (p->depth && (t->kind == T_END || begins_item(p, t))) {
        bracket b = p->brackets[p->depth - 1];
        p->inner = p->depth;
        if (p->start == 0 && !p->closing) {
            diag_error(p->tree.d, FCP_E_SYNTAX, b.at, "this '%c' is never closed", b.open);
            if (t->kind != T_END) diag_also(p->tree.d, t->at, "a new section begins here");
            p->closing = true;
        }
        return close_bracket(p, value, at);
    }
    p->inner = p->depth;
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
    p->bad = t->bad || (p->bad && p->last != T_SEP);
    if (t->kind == T_NAME && ends_operand(p->last) && words_same(t->value.name, "x")) t->kind = T_REPEAT;
    if (t->kind == T_NAME && ends_operand(p->last) && words_same(t->value.name, "on")) t->kind = T_ON;
    if (t->kind == T_NAME && ends_operand(p->last) && words_same(t->value.name, "over")) t->kind = T_OVER;
    track_bracket(p, t);
    if (p->stopped) t->kind = T_END;
    const int kind = deliver(p, t->kind, t->at, value, &t->value, at);
    drop(p);
    return kind;
}

/* --- syntax errors ------------------------------------------------------------------------------------------------ */

static bool is_among(const parse_expected *e, int kind) {
    for (unsigned i = 0; i < e->count; i++)
        if (e->tokens[i] == kind) return true;
    return false;
}

static bool is_comparison(int kind) {
    return kind == '<' || kind == '>' || kind == T_LE || kind == T_GE || kind == T_EQ || kind == T_NE;
}

/* Does this token stand between two values? */
static bool is_infix(int kind) {
    switch (kind) {
    case T_AND:
    case T_OR:
    case T_DOTS:
    case T_ON:
    case T_OVER:
    case ':':
    case '+':
    case '-':
    case '*':
    case '/':
    case '%': return true;
    default: return is_comparison(kind);
    }
}

static bool begins_expression(int kind) {
    switch (kind) {
    case T_FLOAT: case T_STRING: case T_INT: case T_NOT: case T_IF: case T_TRUE: case T_FALSE: case '(': case '[':
    case '-': return true;
    default: return false;
    }
}

/* Says in few words what was expected: an expression, an operator, a key, ... At most `room` of them. */
static unsigned in_words(const parse *p, const parse_expected *e, const char **words, unsigned room) {
    unsigned used = 0;
    bool expression = is_among(e, T_INT), operators = is_among(e, '*');
    bool any_name = is_among(e, T_NAME), line_end = is_among(e, T_SEP);
    if (expression) words[used++] = "an expression";
    else if (any_name) {
        bool item = p->last == T_SEP || p->last == T_PROGRAM;
        if (item && !p->depth) words[used++] = "a section or a mask";
        else if ((item || p->last == '{') && p->depth) words[used++] = "a key";
        else words[used++] = "a name";
    }
    if (operators) words[used++] = "an operator";
    for (unsigned i = 0; i < e->count && used < room; i++) {
        int kind = e->tokens[i];
        if (line_end && kind == T_END) continue;
        if (operators && is_infix(kind)) continue;
        if (operators && (kind == '(' || kind == '[' || kind == T_UNIT)) continue;
        if (expression && begins_expression(kind)) continue;
        if (any_name && words_names(kind)) continue;
        words[used++] = p->lone_value && kind == T_END ? "the end" : e->names[i];
    }
    return used;
}

/* Does a percent sign stand before `here`, with a digit before it? */
static bool is_percent(const char *begin, const char *here) {
    while (here > begin && here[-1] == ' ') here--;
    return here - begin >= 2 && here[-1] == '%' && here[-2] >= '0' && here[-2] <= '9';
}

/* Is the token before the last one this word? */
static bool comes_after(const parse *p, const char *word) {
    size_t size = strlen(word);
    const span at = p->before_at;
    return at.source == p->scan.source && at.end - at.begin == size && at.begin >= p->scan.shift &&
           !memcmp(p->scan.text + (at.begin - p->scan.shift), word, size);
}

/* The word before the `=` that stands before a bracket, as `window_size` in `window_size = (64, 0)`; "": there is
 * none. */
static void word_before(const parse *p, span open, char word[40]) {
    const char *from = p->scan.text;
    size_t end = open.begin - p->scan.shift, begin;
    *word = 0;
    if (open.source != p->scan.source || open.begin < p->scan.shift) return;
    while (end && from[end - 1] == ' ') end--;
    if (!end || from[--end] != '=') return;
    while (end && from[end - 1] == ' ') end--;
    for (begin = end; begin && (from[begin - 1] == '_' || (from[begin - 1] >= 'a' && from[begin - 1] <= 'z') ||
                                (from[begin - 1] >= '0' && from[begin - 1] <= '9'));)
        begin--;
    if (end - begin >= 40) return;
    memcpy(word, from + begin, end - begin);
    word[end - begin] = 0;
}

/* The text from a bracket to the ')' that closes it, as `(64, 0)`; "": it is long, or goes on in another line. It is
 * taken from the source, because the scanner has marked its own copy. */
static void bracketed(const parse *p, span open, char out[40]) {
    const char *name, *bytes;
    size_t size;
    bool builtin;
    *out = 0;
    diag_source_get(p->tree.d, open.source, &name, &bytes, &size, &builtin);
    for (size_t i = 0; i + 1 < 40 && open.begin + i < size && bytes[open.begin + i] != '\n'; i++) {
        if (bytes[open.begin + i] != ')') continue;
        memcpy(out, bytes + open.begin, i + 1);
        out[i + 1] = 0;
        return;
    }
}

/* What begins a statement outside of sections in other languages, and what to write here. */
static const struct {
    const char *words; /* separated by blanks */
    const char *write;
} outside[] = {
    {"table", "a table belongs to the model: model { table name = [0.5, 0.25] }"},
    {"field", "a field belongs to the batch: batch { field name = given }"},
    {"def lambda fn function", "a mask is written: mask name = condition; in Python, fcpc.program takes a function"},
    {"let const var", "a number that a mask needs is a parameter of it: mask near(w = 64) = abs(q - k) < w"},
    {"import from include use", "a program is one file; the masks of the prelude are known in every one"},
};

/* Adds a hint about the word that a statement outside of sections begins with. False: there is none. */
static bool hint_outside(parse *p, bool set) {
    const span at = p->before_at;
    char word[40] = "";
    if (at.source != p->scan.source || at.begin < p->scan.shift || at.end - at.begin >= sizeof word) return false;
    memcpy(word, p->scan.text + (at.begin - p->scan.shift), at.end - at.begin);
    if (set && (words_same(word, "mask") || words_same(word, "score"))) {
        diag_hint(p->tree.d, "a %s has a name: %s mine = ...; which one to use is a key: plan { %s = mine }", word,
                  word, word);
        return true;
    }
    for (int k = 0; set && k < KEY_COUNT; k++) {
        if (!words_same(words_keys[k].name, word)) continue;
        const char *in = words_sections[words_keys[k].section];
        diag_hint(p->tree.d, "'%s' is a key of %s: %s { %s = ... }", word, in, in, word);
        return true;
    }
    for (size_t i = 0; !set && i < sizeof outside / sizeof *outside; i++) {
        const char *found = strstr(outside[i].words, word);
        const size_t size = strlen(word);
        if (!found || (found > outside[i].words && found[-1] != ' ') || (found[size] && found[size] != ' ')) continue;
        diag_hint(p->tree.d, "%s", outside[i].write);
        return true;
    }
    return false;
}

/* Adds a hint to a syntax error: what the user may have meant. `here`: the unexpected token, which has `length` bytes;
 * `left` bytes are left from there to the end of the text. */
static void hint_at_syntax_error(parse *p, const char *here, uint32_t length, uint32_t left,
                                 const parse_expected *expected) {
    const char open = p->inner ? p->brackets[p->inner - 1].open : 0;
    const bool operators = is_among(expected, '*'), name = words_names(p->last), key = is_among(expected, '=');
    const bool statements = open == '{' && is_among(expected, T_SEP);
    const char *say = NULL;
    switch (p->last) {
    case ':':
        if (key && open == '(')
            say = "a parameter has no type: mask near(w) = q - k < w, or with a default near(w = 64)";
        else if (key) say = open ? "a key is set with '='" : "a mask is written: mask name = condition";
        else if (is_among(expected, '{')) say = "a section is written: model { key = value }";
        else if (is_among(expected, T_THEN) || is_among(expected, T_ELSE)) say = "write: if c then a else b";
        else if (open == '[' || open == '{')
            say = "QUERIES:KEYS is one value of a list of lengths: [100:4096, 1:8192 x 64]";
        break;
    case '=':
        if (operators && p->joined.source != UINT32_MAX) {
            diag_also(p->tree.d, p->joined, "a line that ends like this goes on in the next");
            return;
        }
        if (operators && p->lone_value) say = "an override sets one thing; give another -D for the next";
        else if (operators && statements && is_among(expected, ','))
            say = "keys are separated by ';' or a new line; equality is written '=='";
        else if (operators) say = "equality is written '=='";
        else if (is_among(expected, '{') && hint_outside(p, true)) return;
        else if (is_among(expected, '{'))
            say = "keys stand in a section: model, cluster, batch or plan { key = value }; a mask begins with 'mask'";
        break;
    case ',':
        if (operators && statements) say = "definitions are separated by ';' or a new line";
        else if (open == '(' && is_among(expected, ')')) {
            char word[40], value[40];
            word_before(p, p->brackets[p->inner - 1].at, word);
            bracketed(p, p->brackets[p->inner - 1].at, value);
            char *usual = fcpc_foreign_word(word, FCPC_FOREIGN_KEY, value);
            if (usual) diag_hint(p->tree.d, "%s", usual);
            else say = "a list stands in [ ]";
            free(usual);
        }
        break;
    case ')': case ']': case '}':
        if (is_among(expected, T_INT) && comes_after(p, ",")) say = "there is no comma after the last";
        break;
    case '{':
        if (key && !open) say = "a mask is written: mask name = condition";
        else if (!key && !open && is_among(expected, T_NAME)) say = "a section has a name: plan { mask = causal }";
        break;
    case '-':
        if (key) say = "names consist of letters, digits and '_'";
        break;
    case T_IF:
        if (operators) say = "write: if c then a else b";
        break;
    case T_WHERE:
        if (is_among(expected, T_INT)) say = "a choice is written: if c then a else b";
        break;
    case T_STRING:
        if (open == '{' && is_among(expected, T_NAME)) say = "a key is written without quotes: mask = causal";
        break;
    case T_ON: say = "'on' gives lengths their ranks: lengths = file(\"a.lengths\") on 0..32"; break;
    case T_OVER: say = "'over' stands behind the values of a field: field prefix = [10, 20] over sequences"; break;
    case T_REPEAT: say = "'x' repeats between two values of a list: [8192 x 32]"; break;
    default: break;
    }
    if (!say && comes_after(p, "over"))
        say = "what a field is over: given(over = heads, keys), or given over heads, keys";
    if (!say && is_percent(p->scan.text, here)) say = "'%' is the remainder of a division: 5 percent is 0.05";
    if (!say && is_comparison(p->last) && !operators) say = "a comparison stands between two expressions";
    if (!say && name && operators && length == 2 && !memcmp(here, "in", 2))
        say = "there is no 'in': write k == 0 or k == 5, or 0 <= k and k < 5";
    if (!say && name && operators && length == 3 && !memcmp(here, "xor", 3))
        say = "there is no 'xor': write a and not b or b and not a";
    if (!say && name && is_among(expected, '{') && hint_outside(p, false)) return;
    if (!say && name && is_among(expected, '{'))
        say = comes_after(p, "where") ? "definitions stand in braces: where { name = expression }"
                                      : "a program consists of model, cluster, batch and plan { ... }, and of definitions "
                                        "that begin with 'mask' or 'score'";
    if (!say && p->last == T_NAME && operators && is_among(expected, T_UNIT)) {
        while (length < left && (here[length] == '/' || (here[length] >= 'a' && here[length] <= 'z'))) length++;
        const char *nearest = words_nearest_unit(here, length);
        if (words_counts_bits(here, length)) say = "bandwidths count bytes: 400 Gb/s are 50 GB/s";
        else if (nearest) {
            diag_hint(p->tree.d, "the nearest unit is '%s'", nearest);
            return;
        }
    }
    if (!say && name && operators && peek(p, 0)->kind == '=')
        say = is_among(expected, ',') ? "keys are separated by ';' or a new line"
                                      : "definitions are separated by ';' or a new line";
    if (say) diag_hint(p->tree.d, "%s", say);
}

void parse_syntax_error(parse *p, span at, int got, const parse_expected *expected) {
    p->recovering = true;
    if (p->closing || p->stopped || p->bad || p->tree.no_memory) return; /* names may be missing */
    enum { WORDS = 5 };
    const char *words[WORDS + 1];
    unsigned used = in_words(p, expected, words, WORDS + 1);
    text message = {0};
    bool end = got == T_END;
    if (end) at.begin = at.end = p->before_at.end; /* not on some empty line far below */
    const char *here = p->scan.text + (at.begin - p->scan.shift); /* the token's text */
    uint32_t left = p->scan.size - (at.begin - p->scan.shift), length = at.end - at.begin;
    if (got == T_SEP || end) {
        bool semicolon = !end && left && *here == ';';
        const char *what = !end ? "end of line" : p->lone_value ? "end of the value" : "end of file";
        text_printf(&message, "unexpected %s", semicolon ? "';'" : what);
    } else if (got == T_STRING) text_puts(&message, "unexpected string");
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
        p->tree.no_memory = true;
        return;
    }
    diag_error(p->tree.d, FCP_E_SYNTAX, at, "%s", line);
    free(line);

    const char open = p->inner ? p->brackets[p->inner - 1].open : 0;
    if (open) {
        bool misfit = (p->last == ')' || p->last == ']' || p->last == '}') && p->last != closer_of(open);
        if ((open != '{' || misfit) && is_among(expected, closer_of(open)))
            diag_also(p->tree.d, p->brackets[p->inner - 1].at, "to close this '%c'", open);
    }
    hint_at_syntax_error(p, here, length, left, expected);
}

void parse_exhausted(parse *p) {
    if (p->stopped) return;
    p->stopped = true;
    if (!p->tree.no_memory) diag_error(p->tree.d, FCP_E_DEPTH, p->last_at, "nested too deep to parse");
}

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
        p->tree.d = d;
        p->tree.arena = a;
        p->start = start;
        p->lone_value = start == T_VALUE;
        p->joined = SPAN_NONE;
        p->scan = (struct scan){.text = buffer, .size = (uint32_t)size, .source = number, .shift = begin, .d = d};
        if (fcp_scan_lex_init_extra(p, &p->scanner) || !fcp_scan__scan_buffer(buffer, size + 2, p->scanner))
            p->tree.no_memory = true;
        else if (lang_parse(p, &p->tree) == 2 && !p->stopped) p->tree.no_memory = true;
    }
    free(buffer);
    if (buffer && !p->tree.no_memory) return true;
    diag_error(d, FCP_E_NO_MEMORY, SPAN_NONE, "out of memory while parsing '%s'", name);
    return false;
}

bool parse_tokens(diags *d, arena *a, uint32_t number, const volatile int *stop, ast *out, token_list *tokens) {
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
    p->tree.program = out;
    p->tokens = tokens;
    p->stop = stop;
    bool ok = run(p, d, a, number, 0, (uint32_t)size, T_PROGRAM);
    free(p);
    for (mask *m = out->masks; m; m = m->next) m->builtin = builtin;
    return ok;
}

bool parse_program(diags *d, arena *a, uint32_t number, const volatile int *stop, ast *out) {
    return parse_tokens(d, a, number, stop, out, NULL);
}

/* A parse whose tree goes into *out. NULL: out of memory, which was reported. */
static parse *begin_parse(diags *d, ast *out) {
    parse *p = calloc(1, sizeof *p);
    if (p) p->tree.program = out;
    else diag_error(d, FCP_E_NO_MEMORY, SPAN_NONE, "out of memory");
    return p;
}

mask *parse_mask(diags *d, arena *a, uint32_t number, uint32_t begin, uint32_t end) {
    ast item = {0};
    parse *p = begin_parse(d, &item);
    size_t before = diag_errors(d);
    bool ok = p && run(p, d, a, number, begin, end, T_PROGRAM) && diag_errors(d) == before;
    free(p);
    return ok && !item.sections && item.masks == item.last_mask ? item.masks : NULL;
}

expr *parse_value(diags *d, arena *a, uint32_t number, uint32_t begin, uint32_t end) {
    ast none = {0};
    parse *p = begin_parse(d, &none);
    size_t before = diag_errors(d);
    bool ok = p && run(p, d, a, number, begin, end, T_VALUE) && diag_errors(d) == before;
    expr *value = ok ? p->tree.value : NULL;
    free(p);
    return value;
}
