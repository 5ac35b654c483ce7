/* format.c: lays out programs for `fcpc fmt`.
 *
 * It takes the tokens as the grammar got them, and the comments in the gaps between them, and writes both anew:
 *
 * - The head of a section, each statement, and a closing brace have a line each. A mask has one line if it fits, else
 *   its head, its condition and its `where` stand below each other.
 * - A line that is too long is broken where the expression binds most loosely.
 * - A comment at the end of a line stays behind the same token, so the line ends there. A comment on a line of its own
 *   keeps its own line. Comments behind consecutive lines are aligned.
 * - Blank lines between statements are kept, but never two in a row. A statement of several lines has one on
 *   either side.
 *
 * The result is parsed again, and its tree is compared with the source's, so that a mistake here cannot change a
 * program.
 *
 * Requires: bytes. Gives: the text, or the errors of parsing it. Cost: O(source).
 */
#include "compiler/syntax/format.h"

#include <string.h>

#include "compiler/syntax/parse.h"
#include "fcp.tab.h"
#include "compiler/fcpc.h"

enum { WIDTH = 110, STEP = 4, NO_RANK = INT32_MAX };

typedef struct comment {
    uint32_t begin, end;
    bool own_line, blank; /* it has a line of its own; it is after a blank line */
} comment;

/* A token, and what stands before it. */
typedef struct piece {
    int kind;
    uint32_t begin, end;
    uint32_t depth;                        /* how many ( and [ are open around it */
    uint32_t first_comment, comments;      /* the comments in the gap before it */
    bool starts, blank;                    /* it begins a statement; it is after a blank line in the source */
} piece;

typedef struct line {
    size_t code, size;    /* where its code is in `codes` */
    uint32_t indent;
    uint32_t begin, end;  /* its comment; begin == end: none */
    bool blank;           /* a blank line before it */
} line;

/* A section, mask or score, as lines of the output: the lines of the comments before it are [gap, first), and its own
 * lines are [first, end). */
typedef struct item {
    uint32_t gap, first, end;
} item;

typedef struct format {
    const char *source;
    arena *arena;
    piece *pieces;
    uint32_t count; /* pieces[count] is the end of file */
    comment *comments;
    size_t comment_count, comment_room;
    line *lines;
    size_t line_count, line_room;
    item *items;
    size_t item_count, item_room;
    text codes;
    bool failed;
} format;

/* --- the gaps between tokens -------------------------------------------------------------------------------------- */

static void add_comment(format *f, comment new) {
    comment *grown = arena_grow(f->arena, f->comments, f->comment_count, &f->comment_room, sizeof *grown);
    f->failed |= !grown;
    if (!grown) return;
    f->comments = grown;
    f->comments[f->comment_count++] = new;
}

/* Finds the comments in source bytes [begin, end), and whether a blank line is before the piece that follows. */
static void read_gap(format *f, uint32_t begin, uint32_t end, piece *next) {
    uint32_t newlines = begin == 0; /* since the last token or comment; a file's first line is one of its own */
    bool first = begin == 0;
    next->first_comment = f->comment_count;
    for (uint32_t i = begin; i < end; i++) {
        char c = f->source[i];
        if (c == '\n') newlines++;
        if (c != '#') continue;
        const char *stop = memchr(f->source + i, '\n', end - i);
        uint32_t to = stop ? (uint32_t)(stop - f->source) : end;
        comment new = {i, to, newlines > 0, newlines > 1 && !first};
        while (new.end > new.begin && strchr(" \t\r\f\v", f->source[new.end - 1]) && f->source[new.end - 1]) new.end--;
        add_comment(f, new);
        newlines = 0;
        first = false;
        i = to - 1;
    }
    next->comments = f->comment_count - next->first_comment;
    next->blank = newlines > 1 && !first;
}

static void read_pieces(format *f, const token_list *tokens, uint32_t size) {
    f->pieces = ARENA_NEW(f->arena, piece, tokens->count + 1);
    if (!f->pieces) {
        f->failed = true;
        return;
    }
    uint32_t last = 0, depth = 0;
    bool starts = true;
    for (size_t i = 0; i < tokens->count && !f->failed; i++) {
        parsed_token t = tokens->at[i];
        if (t.kind == T_SEP) starts = true;
        if (t.kind == T_SEP || t.kind == T_PROGRAM || t.kind == T_END) continue;
        if (t.kind == ')' || t.kind == ']') depth--;
        piece *p = &f->pieces[f->count];
        *p = (piece){.kind = t.kind, .begin = t.at.begin, .end = t.at.end, .depth = depth, .starts = starts};
        read_gap(f, last, t.at.begin, p);
        starts = t.kind == '{';
        if (t.kind == '(' || t.kind == '[') depth++;
        last = t.at.end;
        f->count++;
    }
    if (f->failed) return;
    f->pieces[f->count] = (piece){.kind = T_END, .begin = size, .end = size, .starts = true};
    read_gap(f, last, size, &f->pieces[f->count]);
}

/* --- spaces and breaks -------------------------------------------------------------------------------------------- */

static bool ends_operand(int kind) {
    return words_names(kind) || kind == T_INT || kind == T_FLOAT || kind == T_UNIT || kind == T_STRING ||
           kind == T_TRUE || kind == T_FALSE || kind == ')' || kind == ']';
}

/* Is piece i a minus sign with one operand? */
static bool is_sign(const format *f, uint32_t i) {
    return f->pieces[i].kind == '-' && (i == 0 || !ends_operand(f->pieces[i - 1].kind));
}

/* Does the layout put a space between pieces i - 1 and i of a statement? */
static bool space_before(const format *f, uint32_t i) {
    int a = f->pieces[i - 1].kind, b = f->pieces[i].kind;
    if (a == '(' || a == '[' || a == T_DOTS || b == ')' || b == ']' || b == ',' || b == T_DOTS || a == ':' || b == ':')
        return false;
    if ((b == '(' && words_names(a)) || (b == '[' && ends_operand(a))) return false;
    return !is_sign(f, i - 1);
}

/* Where a line that is too long is best broken: before the piece with the least value. First come places outside of
 * brackets. Among places of equal depth these come first to last: after a comma; before then and else; before or;
 * before and; before comparisons; before + and -; before * / %. */
static int32_t break_rank(const format *f, uint32_t i) {
    int32_t rank = NO_RANK;
    if (f->pieces[i - 1].kind == ',') rank = 0;
    else if (!ends_operand(f->pieces[i - 1].kind)) return NO_RANK;
    switch (f->pieces[i].kind) {
    case T_THEN: case T_ELSE: rank = 1; break;
    case T_OR: rank = 2; break;
    case T_AND: rank = 3; break;
    case '<': case '>': case T_LE: case T_GE: case T_EQ: case T_NE: rank = 4; break;
    case '+': case '-': if (rank) rank = 5; break;
    case '*': case '/': case '%': rank = 6; break;
    default: break;
    }
    return rank == NO_RANK ? NO_RANK : (int32_t)f->pieces[i].depth * 8 + rank;
}

/* --- lines -------------------------------------------------------------------------------------------------------- */

static void add_line(format *f, line new) {
    line *grown = arena_grow(f->arena, f->lines, f->line_count, &f->line_room, sizeof *grown);
    f->failed |= !grown;
    if (!grown) return;
    f->lines = grown;
    f->lines[f->line_count++] = new;
}

/* Writes the comments that stand before piece i. A comment at the end of a line stays on the line that was written
 * last; the others get lines of their own. `blanks`: blank lines before them are kept. */
static void write_comments(format *f, uint32_t i, uint32_t indent, bool blanks) {
    const piece *p = &f->pieces[i];
    for (uint32_t c = p->first_comment; c < p->first_comment + p->comments && !f->failed; c++) {
        const comment *k = &f->comments[c];
        if (!k->own_line && f->line_count) {
            f->lines[f->line_count - 1].begin = k->begin;
            f->lines[f->line_count - 1].end = k->end;
        } else {
            add_line(f, (line){.code = f->codes.size, .indent = indent, .begin = k->begin, .end = k->end,
                               .blank = blanks && k->blank && f->line_count});
        }
    }
}

/* Puts pieces [first, end) on one line. */
static void put_code(format *f, uint32_t first, uint32_t end, uint32_t indent, bool blank) {
    size_t code = f->codes.size;
    for (uint32_t i = first; i < end; i++) {
        if (i > first && space_before(f, i)) text_puts(&f->codes, " ");
        text_add(&f->codes, f->source + f->pieces[i].begin, f->pieces[i].end - f->pieces[i].begin);
    }
    add_line(f, (line){.code = code, .size = f->codes.size - code, .indent = indent, .blank = blank && f->line_count});
}

/* Where the line that begins with piece `first` ends: before a comment, at `end`, or where it must be broken. */
static uint32_t line_end(const format *f, uint32_t first, uint32_t end, uint32_t indent) {
    uint32_t best = 0;
    int32_t best_rank = NO_RANK;
    size_t width = indent;
    for (uint32_t i = first; i < end; i++) {
        if (i > first) {
            if (f->pieces[i].comments) return i;
            int32_t rank = break_rank(f, i);
            if (rank != NO_RANK && width > WIDTH) return best ? best : i;
            if (rank <= best_rank && rank != NO_RANK) best = i, best_rank = rank;
            width += space_before(f, i);
        }
        width += f->pieces[i].end - f->pieces[i].begin;
        if (width > WIDTH && best) return best;
    }
    return end;
}

/* Puts pieces [first, end), on as many lines as they need. The comments before `first` have been put already. */
static void put_filled(format *f, uint32_t first, uint32_t end, uint32_t indent, bool blank) {
    for (uint32_t at = first, now = indent; at < end && !f->failed; now = indent + STEP) {
        uint32_t stop = line_end(f, at, end, now);
        put_code(f, at, stop, now, blank && at == first);
        if (stop < end) write_comments(f, stop, indent + STEP, false);
        at = stop;
    }
}

/* --- structure ---------------------------------------------------------------------------------------------------- */

/* Puts a statement: its comments, then itself. */
static void put_statement(format *f, uint32_t first, uint32_t end, uint32_t indent, bool after_open) {
    uint32_t lines = f->line_count;
    write_comments(f, first, indent, true);
    if (after_open && f->line_count > lines) f->lines[lines].blank = false;
    put_filled(f, first, end, indent, f->pieces[first].blank && !(after_open && f->line_count == lines));
}

/* Puts the statements from piece i on, up to the brace that closes them, and the brace. Returns the piece after it. */
static uint32_t put_block(format *f, uint32_t i, uint32_t indent) {
    bool after_open = true;
    while (f->pieces[i].kind != '}' && i < f->count && !f->failed) {
        uint32_t end = i + 1;
        while (end < f->count && !f->pieces[end].starts && f->pieces[end].kind != '}') end++;
        put_statement(f, i, end, indent + STEP, after_open);
        after_open = false;
        i = end;
    }
    uint32_t lines = f->line_count;
    write_comments(f, i, indent + STEP, true);
    if (after_open && f->line_count > lines) f->lines[lines].blank = false;
    put_code(f, i, i + 1, indent, false);
    return i + 1;
}

static uint32_t put_section(format *f, uint32_t i) {
    put_filled(f, i, i + 2, 0, f->pieces[i].blank);
    if (f->failed) return f->count;
    return put_block(f, i + 2, 0);
}

static uint32_t put_mask(format *f, uint32_t i) {
    uint32_t end = i + 1, body = 0;
    size_t width = f->pieces[i].end - f->pieces[i].begin;
    bool comments = false;
    while (end < f->count && !f->pieces[end].starts && f->pieces[end].kind != T_WHERE) {
        if (!body && f->pieces[end].kind == '=' && !f->pieces[end].depth) body = end + 1;
        width += space_before(f, end) + f->pieces[end].end - f->pieces[end].begin;
        comments |= f->pieces[end].comments > 0;
        end++;
    }
    bool where = end < f->count && f->pieces[end].kind == T_WHERE;
    if (!where && !comments && width <= WIDTH) {
        put_code(f, i, end, 0, f->pieces[i].blank);
        return end;
    }
    put_filled(f, i, body, 0, f->pieces[i].blank);
    write_comments(f, body, STEP, false);
    put_filled(f, body, end, STEP, false);
    if (!where || f->failed) return end;
    write_comments(f, end, STEP, false);
    put_filled(f, end, end + 2, STEP, false);
    return f->failed ? f->count : put_block(f, end + 2, STEP);
}

static void add_item(format *f, item new) {
    item *grown = arena_grow(f->arena, f->items, f->item_count, &f->item_room, sizeof *grown);
    f->failed |= !grown;
    if (!grown) return;
    f->items = grown;
    f->items[f->item_count++] = new;
}

static void put_items(format *f) {
    uint32_t i = 0;
    while (i < f->count && !f->failed) {
        item new = {.gap = f->line_count};
        const piece *p = &f->pieces[i];
        write_comments(f, i, 0, true);
        new.first = f->line_count;
        i = (p->kind == T_MASK || p->kind == T_SCORE) && p[1].kind != '{' ? put_mask(f, i) : put_section(f, i);
        new.end = f->line_count;
        add_item(f, new);
    }
    if (!f->failed) write_comments(f, f->count, 0, true);
    /* what takes several lines has a blank one on either side */
    for (uint32_t n = 1; n < f->item_count; n++) {
        const item *a = &f->items[n - 1], *b = &f->items[n];
        bool blank = a->end - a->first <= 1 && b->end - b->first <= 1;
        for (uint32_t l = b->gap; l <= b->first; l++) blank |= f->lines[l].blank;
        if (!blank) f->lines[b->gap].blank = true;
    }
}

/* --- the text ----------------------------------------------------------------------------------------------------- */

static void write_lines(format *f, text *out) {
    size_t column = 0;
    for (uint32_t i = 0; i < f->line_count; i++) {
        const line *l = &f->lines[i];
        if (l->blank) text_puts(out, "\n");
        bool both = l->size && l->begin < l->end;
        if (both && (i == 0 || l->blank || !l[-1].size || l[-1].begin == l[-1].end)) { /* the first of some: align */
            column = 0;
            for (uint32_t j = i; j < f->line_count; j++) {
                const line *m = &f->lines[j];
                if (!m->size || m->begin == m->end || (j > i && m->blank)) break;
                if (m->indent + m->size > column) column = m->indent + m->size;
            }
        }
        text_pad(out, ' ', l->indent);
        if (l->size) text_add(out, f->codes.at + l->code, l->size);
        if (both) text_pad(out, ' ', column - l->indent - l->size + 2);
        text_add(out, f->source + l->begin, l->end - l->begin);
        text_puts(out, "\n");
    }
}

/* Does the text that was made mean what the program does? */
static bool means_the_same(const ast *program, const text *made, const char *name) {
    diags *d = fcpc_diagnostics_new();
    arena a = {0};
    ast again;
    text one = {0}, two = {0};
    uint32_t number = d ? diag_source(d, name, made->at ? made->at : "", made->size, false) : UINT32_MAX;
    bool same = number != UINT32_MAX && parse_program(d, &a, number, NULL, &again) && !diag_errors(d);
    if (same) {
        ast_print(program, &one, NULL);
        ast_print(&again, &two, NULL);
        same = !one.failed && !two.failed && one.size == two.size && (!one.size || !memcmp(one.at, two.at, one.size));
    }
    text_free(&one);
    text_free(&two);
    arena_free(&a);
    fcpc_diagnostics_free(d);
    return same;
}

fcp_code format_source(const char *name, const char *bytes, size_t size, diags *d, text *out) {
    arena a = {0};
    ast program;
    token_list tokens = {0};
    size_t errors = diag_errors(d);
    uint32_t number = diag_source(d, name, bytes, size, false);
    text made = {0};
    bool failed = number == UINT32_MAX;
    if (!failed && parse_tokens(d, &a, number, NULL, &program, &tokens) && diag_errors(d) == errors) {
        format f = {.source = bytes, .arena = &a};
        read_pieces(&f, &tokens, (uint32_t)size);
        if (!f.failed) put_items(&f);
        if (!f.failed) write_lines(&f, &made);
        failed = f.failed || f.codes.failed || made.failed;
        text_free(&f.codes);
        if (!failed && !means_the_same(&program, &made, name))
            diag_error(d, FCP_E_INTERNAL, SPAN_NONE, "'%s' would mean something else when laid out", name);
    }
    if (failed) diag_error(d, FCP_E_NO_MEMORY, SPAN_NONE, "out of memory laying out '%s'", name);
    if (diag_errors(d) == errors) text_add(out, made.at ? made.at : "", made.size);
    text_free(&made);
    arena_free(&a);
    return diag_errors(d) > errors ? diag_first_code(d) : FCP_OK;
}
