/* diag.c: collects errors and warnings, and shows them: message, source line, caret, hints.
 *
 * A diagnostic keeps its place as a range of bytes of a registered source. Lines, columns and pictures are made only
 * when somebody asks for them.
 *
 * Requires: spans whose source number came from diag_source of the same object, or SPAN_NONE. Offsets are clamped.
 * Gives:    at most DIAG_MAX_ERRORS errors and DIAG_MAX_WARNINGS warnings, in the order in which they were reported.
 *           The same message at the same place is kept once. The code of the first error is known even when memory
 *           ran out.
 * Cost:     registering a source makes a map of its lines, O(size). A picture costs O(line). A line with more than
 *           WINDOW bytes is shown in part.
 * Units:    columns count bytes from 1, as editors do when they jump to a place; a picture has one column for each code
 *           point.
 */
#include "compiler/base/diag.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/base/arena.h"
#include "compiler/base/bisect.h"
#include "compiler/base/text.h"
#include "compiler/fcpc.h"
#include "runtime/base/grow.h"

enum { DIAG_MAX_WARNINGS = 20, KEPT = DIAG_MAX_ERRORS + DIAG_MAX_WARNINGS, WINDOW = 160, CHARACTER = 3,
      NAME_LIMIT = 48, LINE = 1024 };

typedef struct source {
    const char *name, *text;
    uint32_t size, line_count;
    const uint32_t *lines; /* offset of each line's first byte */
    uint32_t line, column; /* of the first byte, from 0 */
    bool builtin;
} source;

/* A second place, or a hint. */
typedef struct note {
    struct note *next;
    const char *text;
    span at; /* SPAN_NONE: a hint */
} note;

typedef struct diagnostic {
    bool warning;
    fcp_code code;
    span at;
    const char *message;
    note *first, *last;
} diagnostic;

struct fcpc_diagnostics {
    arena arena;
    source *sources;
    uint32_t source_count, source_room;
    diagnostic kept[KEPT];
    size_t count, errors, warnings, hidden;
    diagnostic *newest; /* NULL: the newest was not kept */
};

/* --- collecting --------------------------------------------------------------------------------------------------- */

uint32_t diag_source_count(const diags *d) { return d->source_count; }

void diag_source_get(const diags *d, uint32_t number, const char **name, const char **bytes, size_t *size,
                     bool *builtin) {
    const source *s = &d->sources[number];
    *name = s->name;
    *bytes = s->text;
    *size = s->size;
    *builtin = s->builtin;
}

void diag_source_begin(const diags *d, uint32_t number, uint32_t *line, uint32_t *column) {
    *line = d->sources[number].line;
    *column = d->sources[number].column;
}

/* Formats a line of text. Control characters become '?', so that hostile input cannot drive a terminal. */
static void format_line(char line[LINE], const char *format, va_list args) {
    int size = vsnprintf(line, LINE, format, args);
    if (size < 0) *line = 0;
    if (size >= LINE) memcpy(line + LINE - 4, "...", 4);
    for (char *c = line; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
}

/* Adds a diagnostic, unless the same message was reported at the same place before: a mask may be lowered several
 * times, and a program planned several times. Messages without a place are always added, because a later parse may run
 * out of memory, too. */
static void add_diagnostic(diags *d, bool warning, fcp_code code, span at, const char *format, va_list args) {
    char line[LINE];
    format_line(line, format, args);
    d->newest = NULL;
    for (size_t i = 0; i < d->count; i++) {
        const diagnostic *k = &d->kept[i];
        if (k->warning == warning && k->code == code && diag_same_span(k->at, at) && at.source != UINT32_MAX &&
            !strcmp(k->message, line))
            return;
    }
    if (warning) d->warnings++;
    else d->errors++;
    if ((warning ? d->warnings > DIAG_MAX_WARNINGS : d->errors > DIAG_MAX_ERRORS)) {
        d->hidden++;
        return;
    }
    const char *message = arena_copy(&d->arena, line, strlen(line));
    d->newest = &d->kept[d->count++];
    *d->newest = (diagnostic){.warning = warning, .code = code, .at = at,
                              .message = message && *message ? message : fcp_code_text(code)};
}

static void add_note(diags *d, span at, const char *format, va_list args) {
    if (!d->newest) return;
    char line[LINE];
    format_line(line, format, args);
    note *n = ARENA_ZNEW(&d->arena, note, 1);
    const char *message = arena_copy(&d->arena, line, strlen(line));
    if (!n || !message || !*message) return;
    n->at = at;
    n->text = message;
    if (d->newest->last) d->newest->last->next = n;
    else d->newest->first = n;
    d->newest->last = n;
}

uint32_t diag_source(diags *d, const char *name, const char *bytes, size_t size, bool builtin) {
    if (size > UINT32_MAX / 2 || d->source_count == UINT32_MAX / 2) return UINT32_MAX;
    if (!FCP_GROW(d->sources, d->source_room, d->source_count + 1)) return UINT32_MAX;
    uint32_t lines = 1;
    for (const char *p = bytes, *end = bytes + size; p < end && (p = memchr(p, '\n', (size_t)(end - p))); p++) lines++;
    uint32_t *map = ARENA_NEW(&d->arena, uint32_t, lines);
    char *copy = arena_copy(&d->arena, size ? bytes : "", size);
    char *name_copy = arena_copy(&d->arena, name, strlen(name));
    if (!map || !copy || !name_copy) return UINT32_MAX;
    uint32_t line = 0;
    map[line++] = 0;
    for (uint32_t i = 0; i < size && line < lines; i++) {
        const char *p = memchr(copy + i, '\n', size - i);
        if (!p) break;
        i = (uint32_t)(p - copy);
        map[line++] = i + 1;
    }
    for (char *c = name_copy; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
    d->sources[d->source_count] =
        (source){.name = name_copy, .text = copy, .size = (uint32_t)size, .lines = map, .line_count = lines,
                 .builtin = builtin};
    return d->source_count++;
}

uint32_t diag_excerpt(diags *d, const char *name, const char *bytes, size_t size, uint32_t line, uint32_t column) {
    const uint32_t number = diag_source(d, name, bytes, size, false);
    if (number == UINT32_MAX) return number;
    d->sources[number].line = line;
    d->sources[number].column = column;
    return number;
}

void diag_error(diags *d, fcp_code code, span at, const char *format, ...) {
    va_list args;
    va_start(args, format);
    add_diagnostic(d, false, code, at, format, args);
    va_end(args);
}

void diag_warning(diags *d, span at, const char *format, ...) {
    va_list args;
    va_start(args, format);
    add_diagnostic(d, true, FCP_OK, at, format, args);
    va_end(args);
}

void diag_also(diags *d, span at, const char *format, ...) {
    va_list args;
    va_start(args, format);
    if (at.source != UINT32_MAX) add_note(d, at, format, args);
    va_end(args);
}

void diag_hint(diags *d, const char *format, ...) {
    va_list args;
    va_start(args, format);
    add_note(d, SPAN_NONE, format, args);
    va_end(args);
}

size_t diag_errors(const diags *d) { return d->errors; }
fcp_code diag_code_since(const diags *d, size_t count) {
    for (size_t i = count; i < d->count; i++)
        if (!d->kept[i].warning) return d->kept[i].code;
    return count ? diag_code_since(d, 0) : FCP_OK;
}
fcp_code diag_first_code(const diags *d) { return diag_code_since(d, 0); }

/* --- the nearest name --------------------------------------------------------------------------------------------- */

static size_t lesser(size_t a, size_t b) { return a < b ? a : b; }

/* The edit distance of two names: how many insertions, deletions, substitutions and swaps of neighbours make one of the
 * other. Lengths are at most NAME_LIMIT.
 * Method: optimal string alignment; Damerau, "A technique for computer detection and correction of spelling errors",
 *      1964. */
static size_t distance(const char *a, size_t n, const char *b, size_t m) {
    size_t rows[3][NAME_LIMIT + 1];
    size_t *before = rows[0], *last = rows[1], *now = rows[2];
    for (size_t j = 0; j <= m; j++) last[j] = j;
    for (size_t i = 1; i <= n; i++) {
        now[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t best = lesser(lesser(last[j], now[j - 1]) + 1, last[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) best = lesser(best, before[j - 2] + 1);
            now[j] = best;
        }
        size_t *spare = before;
        before = last;
        last = now;
        now = spare;
    }
    return last[m];
}

const char *diag_nearest(const char *name, size_t length, const char *const *names, size_t count) {
    if (!length || length > NAME_LIMIT) return NULL;
    const char *nearest = NULL;
    size_t best = length / 3 + 1;
    for (size_t i = 0; i < count; i++) {
        size_t m = strlen(names[i]);
        const size_t least = m > length ? m - length : length - m; /* as many bytes are added or taken away */
        if (m > NAME_LIMIT || least >= best) continue;
        size_t edits = distance(name, length, names[i], m);
        if (edits < best) {
            best = edits;
            nearest = names[i];
        }
    }
    return nearest;
}

/* --- places ------------------------------------------------------------------------------------------------------- */

static const source *source_of(const diags *d, span at) {
    return at.source < d->source_count ? &d->sources[at.source] : NULL;
}

/* The line, counted from 0, that an offset is in. */
static uint32_t line_of(const source *s, uint32_t offset) {
    uint32_t next = 1, end = s->line_count;
    BISECT(next, end, i, s->lines[i] <= offset)
    return next - 1;
}

void diag_place(const diags *d, span at, const char **file, uint32_t *line, uint32_t *column) {
    const source *s = source_of(d, at);
    *file = s ? s->name : "";
    *line = *column = 0;
    if (!s) return;
    uint32_t begin = at.begin < s->size ? at.begin : s->size;
    const uint32_t in = line_of(s, begin);
    *line = s->line + in + 1;
    *column = begin - s->lines[in] + (in ? 0 : s->column) + 1;
}

/* --- pictures ----------------------------------------------------------------------------------------------------- */

typedef struct palette {
    const char *error, *warning, *note, *hint, *bold, *mark, *off;
} palette;
static const palette plain = {"", "", "", "", "", "", ""};
static const palette ansi = {"\033[1;31m", "\033[1;35m", "\033[1;36m", "\033[1;32m",
                             "\033[1m",    "\033[1;32m", "\033[0m"};

/* Bytes of the character at c that a terminal may get as it is; 0: it is no UTF-8, or a control character. */
static size_t shown_bytes(const char *c, size_t left) {
    const unsigned char first = (unsigned char)c[0];
    if (first < 0x20 || first == 0x7f) return 0;
    if (first == 0xc2 && left > 1 && (unsigned char)c[1] < 0xa0) return 0;
    return text_utf8(c, left);
}

static bool is_continued(const source *s, uint32_t at) { return ((unsigned char)s->text[at] & 0xc0) == 0x80; }

/* Chooses the part of a line that is shown: all of it, or a window around the primary span. A window begins and ends
 * between characters, if the text is UTF-8. It has up to CHARACTER bytes more than WINDOW. */
static void window(const source *s, uint32_t line, uint32_t focus, uint32_t *from, uint32_t *to) {
    uint32_t begin = s->lines[line];
    uint32_t end = line + 1 < s->line_count ? s->lines[line + 1] - 1 : s->size;
    if (end > begin && s->text[end - 1] == '\r') end--;
    *from = begin;
    *to = end;
    if (end - begin <= WINDOW) return;
    if (focus > end) focus = end;
    if (focus - begin > WINDOW / 2) *from = focus - WINDOW / 2;
    for (int i = 0; i < CHARACTER && *from > begin && is_continued(s, *from); i++) --*from;
    if (end - *from > WINDOW) *to = *from + WINDOW;
    for (int i = 0; i < CHARACTER && *to < end && is_continued(s, *to); i++) ++*to;
}

/* The mark that is printed below the character at `offset`: primary_mark in the primary span, '~' in the span of a note
 * (if `others`), a space elsewhere. */
static char mark_at(const diagnostic *g, span primary, char primary_mark, uint32_t offset, bool others) {
    if (offset >= primary.begin && (offset < primary.end || (offset == primary.begin && primary.end <= primary.begin)))
        return primary_mark;
    for (const note *n = others ? g->first : NULL; n; n = n->next)
        if (n->at.source == primary.source && offset >= n->at.begin &&
            (offset < n->at.end || (offset == n->at.begin && n->at.end <= n->at.begin)))
            return '~';
    return ' ';
}

/* Writes the source line of `at`, and a line of marks below it. `others`: notes on the same line are marked as well. */
static void picture(text *out, const diags *d, const diagnostic *g, span at, char primary_mark, bool others,
                    const palette *p) {
    const source *s = source_of(d, at);
    if (!s) return;
    uint32_t size = s->size;
    if (at.begin > size) at.begin = size;
    uint32_t line = line_of(s, at.begin), from, to;
    window(s, line, at.begin, &from, &to);
    if (at.begin > to) at.begin = to; /* at the line's end: one column after it */
    if (at.end < at.begin) at.end = at.begin;
    char shown[WINDOW + CHARACTER], marks[3 + WINDOW + CHARACTER + 1]; /* "...", the line, and the place behind it */
    size_t shown_size = 0, marks_size = 0;
    text_printf(out, "%5u | ", s->line + line + 1);
    if (from > s->lines[line]) {
        text_puts(out, "...");
        while (marks_size < 3) marks[marks_size++] = ' ';
    }
    for (uint32_t i = from; i < to;) {
        const char *c = s->text + i;
        const bool ascii = *c >= 0x20 && *c < 0x7f;
        const size_t bytes = ascii ? 1 : shown_bytes(c, to - i);
        marks[marks_size++] = *c == '\t' ? '\t' : mark_at(g, at, primary_mark, i, others);
        if (ascii || *c == '\t') shown[shown_size++] = *c;
        else if (!bytes) shown[shown_size++] = '?';
        else for (size_t j = 0; j < bytes; j++) shown[shown_size++] = c[j];
        i += bytes ? (uint32_t)bytes : 1;
    }
    text_add(out, shown, shown_size);
    marks[marks_size++] = mark_at(g, at, primary_mark, to, others);
    uint32_t line_end = line + 1 < s->line_count ? s->lines[line + 1] - 1 : size;
    if (to < line_end && !(to + 1 == line_end && s->text[to] == '\r')) text_puts(out, "...");
    while (marks_size && (marks[marks_size - 1] == ' ' || marks[marks_size - 1] == '\t')) marks_size--;
    text_printf(out, "\n      | %s", p->mark);
    text_add(out, marks, marks_size);
    text_printf(out, "%s\n", p->off);
}

static void place_text(text *out, const diags *d, span at, const palette *p) {
    const char *file;
    uint32_t line, column;
    diag_place(d, at, &file, &line, &column);
    if (line) text_printf(out, "%s%s:%u:%u:%s ", p->bold, file, line, column, p->off);
}

static void render_one(text *out, const diags *d, const diagnostic *g, const palette *p) {
    const char *hue = g->warning ? p->warning : p->error;
    place_text(out, d, g->at, p);
    if (g->warning) text_printf(out, "%swarning:%s ", hue, p->off);
    else text_printf(out, "%serror[%s]:%s ", hue, fcp_code_name(g->code), p->off);
    text_printf(out, "%s%s%s\n", p->bold, g->message, p->off);
    picture(out, d, g, g->at, '^', true, p);
    const source *home = source_of(d, g->at);
    uint32_t line = home ? line_of(home, g->at.begin) : 0;
    for (const note *n = g->first; n; n = n->next) {
        if (n->at.source == UINT32_MAX) continue;
        place_text(out, d, n->at, p);
        text_printf(out, "%snote:%s %s\n", p->note, p->off, n->text);
        const source *s = source_of(d, n->at);
        bool shown = s && s == home && line_of(s, n->at.begin) == line;
        if (!shown) picture(out, d, g, n->at, '~', false, p);
    }
    for (const note *n = g->first; n; n = n->next)
        if (n->at.source == UINT32_MAX) text_printf(out, "      = %shint:%s %s\n", p->hint, p->off, n->text);
}

/* --- public ------------------------------------------------------------------------------------------------------- */

fcpc_diagnostics *fcpc_diagnostics_new(void) { return calloc(1, sizeof(fcpc_diagnostics)); }

void fcpc_diagnostics_free(fcpc_diagnostics *d) {
    if (!d) return;
    free(d->sources);
    arena_free(&d->arena);
    free(d);
}

size_t fcpc_diagnostics_count(const fcpc_diagnostics *d) { return d->count; }

void fcpc_diagnostics_get(const fcpc_diagnostics *d, size_t i, fcpc_diagnostic *out) {
    *out = (fcpc_diagnostic){.message = "", .file = ""};
    if (i >= d->count) return;
    const diagnostic *g = &d->kept[i];
    out->warning = g->warning;
    out->code = g->code;
    out->message = g->message;
    diag_place(d, g->at, &out->file, &out->line, &out->column);
}

span diag_at(const diags *d, size_t i) { return i < d->count ? d->kept[i].at : SPAN_NONE; }

bool diag_note(const diags *d, size_t i, size_t number, span *out_at, const char **out_text) {
    const note *n = i < d->count ? d->kept[i].first : NULL;
    for (; n && number; number--) n = n->next;
    if (!n) return false;
    *out_at = n->at;
    *out_text = n->text;
    return true;
}

char *diag_render(const diags *d, size_t first, bool colour) {
    text out = {0};
    for (size_t i = first; i < d->count; i++) render_one(&out, d, &d->kept[i], colour ? &ansi : &plain);
    if (d->hidden) text_printf(&out, "(%zu more not shown)\n", d->hidden);
    return text_take(&out);
}

char *fcpc_diagnostics_render(const fcpc_diagnostics *d, bool colour) { return diag_render(d, 0, colour); }
