/* cursor.c: finds out what may be written at a place, from the words and brackets before it.
 *
 * The parser cannot say: in the statement that is being written it finds an error, and leaves the statement out. So this
 * is a scanner of its own, which knows words, brackets, strings, comments and the ends of statements, and no more. It
 * goes on behind the cursor to the end of the mask, because definitions of a `where` stand there.
 * Cost: O(text).
 */
#include "compiler/lsp/cursor.h"

#include <string.h>

enum { DEEPEST = 64 };
typedef enum item { NO_ITEM, SECTION, MASK } item;

typedef struct bracket {
    char open;
    bool declares; /* its names are new: parameters */
    char call[CURSOR_WORD], argument[CURSOR_WORD];
} bracket;

typedef struct scan {
    const char *bytes;
    size_t size, at, cursor;
    bool found; /* the cursor was passed, and *out filled */
    lsp_cursor *out;

    item item, before;           /* before: the one that has just ended, and may go on in the next line */
    bool score, named, in_where; /* named: the mask has its name */
    bool body;                   /* behind the '=' of the statement */
    bool fresh;                  /* nothing of the statement was read yet */
    bool open_end;               /* the last token cannot end a statement */
    char word[CURSOR_WORD];      /* the last token, if it is a word */
    char section[CURSOR_WORD], key[CURSOR_WORD];
    bracket stack[DEEPEST];
    size_t depth;
    text names;
} scan;

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
static bool is_part(char c) { return is_letter(c) || (c >= '0' && c <= '9'); }

static bool is_among(const char *const *words, const char *word) {
    while (*words && strcmp(*words, word)) words++;
    return *words != NULL;
}
static const char *const joining[] = {"and", "or", "not", "if", "then", "else", "where", NULL};
static const char *const going_on[] = {"and", "or", "then", "else", "where", NULL};

static bracket *top(scan *s) { return s->depth && s->depth <= DEEPEST ? &s->stack[s->depth - 1] : NULL; }

/* The statement has no bracket open but those that hold statements. */
static bool at_statement(scan *s) { return !s->depth || (top(s) && top(s)->open == '{'); }

static void begin_statement(scan *s) {
    s->fresh = true;
    s->body = false;
    s->key[0] = 0;
}

static void begin_item(scan *s, item what) {
    s->item = what;
    s->named = s->in_where = s->body = false;
    s->fresh = true;
    s->names.size = 0;
}

/* --- at the cursor ------------------------------------------------------------------------------------------------ */

static cursor_place place_here(scan *s) {
    const bracket *b = top(s);
    if (s->depth > DEEPEST) return CURSOR_NOWHERE;
    if (s->item == NO_ITEM) return s->word[0] && !s->fresh ? CURSOR_NOWHERE : CURSOR_ITEM;
    if (b && b->declares) return b->argument[0] ? CURSOR_BODY : CURSOR_NOWHERE;
    if (s->item == SECTION) return s->body ? CURSOR_VALUE : s->fresh && s->depth == 1 ? CURSOR_KEY : CURSOR_NOWHERE;
    return s->body ? CURSOR_BODY : CURSOR_NOWHERE;
}

static void note_cursor(scan *s, cursor_place place) {
    const bracket *b = top(s);
    s->found = true;
    s->out->place = place;
    s->out->score = s->score;
    memcpy(s->out->section, s->section, CURSOR_WORD);
    memcpy(s->out->key, s->key, CURSOR_WORD);
    if (!b || b->open != '(' || b->declares) return;
    memcpy(s->out->call, b->call, CURSOR_WORD);
    memcpy(s->out->argument, b->argument, CURSOR_WORD);
}

/* --- tokens ------------------------------------------------------------------------------------------------------- */

static void add_name(scan *s, const char *word, size_t at) {
    if (at != s->out->begin) text_add(&s->names, word, strlen(word) + 1);
}

/* False: the item of the cursor has ended. */
static bool take_word(scan *s, size_t at) {
    bracket *b = top(s);
    if (!s->depth && s->item == NO_ITEM && s->fresh && is_among(going_on, s->word)) s->item = s->before, s->body = true;
    if (!s->depth && s->item == NO_ITEM && s->fresh) {
        if (s->found) return false;
        const bool score = !strcmp(s->word, "score");
        if (score || !strcmp(s->word, "mask")) {
            begin_item(s, MASK);
            s->score = score;
        }
    } else if (s->item == MASK && !s->named) s->named = true;
    else if (s->item == MASK && !s->depth && !strcmp(s->word, "where")) s->in_where = true;
    else if (s->item == MASK && b && b->declares && strcmp(s->word, "field") && strcmp(s->word, "table")) {
        if (!b->argument[0]) add_name(s, s->word, at);
    } else if (s->item == MASK && b && b->open == '{' && s->fresh) add_name(s, s->word, at);
    else if (s->item == SECTION && s->depth == 1 && s->fresh) memcpy(s->key, s->word, CURSOR_WORD);
    s->fresh = false;
    return true;
}

static void open_bracket(scan *s, char c) {
    if (c == '{' && s->item == NO_ITEM) {
        begin_item(s, SECTION);
        memcpy(s->section, s->word, CURSOR_WORD);
    }
    if (s->depth++ < DEEPEST) {
        bracket *b = top(s);
        *b = (bracket){.open = c};
        /* the parameters of a mask or of a definition */
        b->declares = c == '(' && s->item == MASK && !s->body && s->word[0];
        if (c == '(') memcpy(b->call, s->word, CURSOR_WORD);
    }
    if (c == '{') begin_statement(s);
}

static void close_bracket(scan *s, char c) {
    if (!s->depth) return;
    s->depth--;
    if (c != '}' || s->depth) return;
    s->before = s->item == SECTION ? NO_ITEM : s->item;
    s->item = NO_ITEM;
    s->fresh = true;
    s->word[0] = 0;
}

static void take_sign(scan *s, char c) {
    bracket *b = top(s);
    const bool compares = c == '=' && s->at < s->size && s->bytes[s->at] == '=';
    if (c == '(' || c == '[' || c == '{') open_bracket(s, c);
    else if (c == ')' || c == ']' || c == '}') close_bracket(s, c);
    else if (compares) s->at++;
    else if (c == '=' && b && b->open == '(') memcpy(b->argument, s->word, CURSOR_WORD);
    else if (c == '=' && at_statement(s)) s->body = true;
    else if (c == ',' && b && b->open == '(') b->argument[0] = 0;
    if (c != '{' && c != '}') s->fresh = false;
}

/* A newline or ';'. */
static void end_statement(scan *s, char c) {
    if ((c == '\n' && s->open_end) || !at_statement(s)) return;
    if (!s->depth && s->item == MASK && s->body) {
        s->before = s->item;
        s->item = NO_ITEM;
    }
    begin_statement(s);
    s->word[0] = 0;
}

bool lsp_cursor_find(const char *bytes, size_t size, size_t at, lsp_cursor *out) {
    *out = (lsp_cursor){.begin = at};
    while (out->begin && is_part(bytes[out->begin - 1])) out->begin--;
    scan s = {.bytes = bytes, .size = size, .cursor = at, .out = out, .fresh = true};
    while (s.at < size) {
        const char c = bytes[s.at];
        const size_t begin = s.at;
        if (!s.found && begin >= out->begin) note_cursor(&s, place_here(&s));
        if (c == '#' || c == '"') {
            for (s.at++; s.at < size && bytes[s.at] != '\n' && !(c == '"' && bytes[s.at] == '"'); s.at++)
                if (c == '"' && bytes[s.at] == '\\' && s.at + 1 < size && bytes[s.at + 1] != '\n') s.at++;
            const bool closed = c == '"' && s.at < size && bytes[s.at] == '"';
            if (!s.found && out->begin > begin && out->begin <= s.at) note_cursor(&s, CURSOR_NOWHERE);
            s.at += closed;
            if (c == '"') s.word[0] = 0, s.open_end = s.fresh = false;
        } else if (is_part(c)) {
            while (s.at < size && is_part(bytes[s.at])) s.at++;
            const size_t length = s.at - begin < CURSOR_WORD ? s.at - begin : CURSOR_WORD - 1;
            memcpy(s.word, bytes + begin, length);
            s.word[length] = 0;
            s.open_end = is_among(joining, s.word);
            if (!take_word(&s, begin)) break;
        } else {
            s.at++;
            if (c == '\n' || c == ';') end_statement(&s, c);
            else if (!text_is_blank(c)) {
                if (s.item == NO_ITEM && !s.depth && s.fresh && strchr("{=,<>!+-*/%", c) && s.before == MASK)
                    s.item = MASK, s.body = true;
                take_sign(&s, c);
                s.open_end = strchr("=,<>!+-*/%", c) != NULL;
                s.word[0] = 0;
            }
        }
    }
    if (!s.found) note_cursor(&s, place_here(&s));
    out->names = s.names;
    return !s.names.failed;
}
