/* listing.c: reads the text of the disassembler: kernels, instructions, where branches go, and the
 * marks of source lines.
 *
 * Requires: text as `nvdisasm -c -gi` prints it. A kernel begins with its section. Then come lines of four kinds:
 *
 *               .section .text.NAME,"ax",@progbits
 *           .L_x_3:                                                          a place that branches go to
 *               //## File "/a/forward.h", line 40 inlined at "/a/forward.h", line 90
 *                   /0100/   @!P0 BRA `(.L_x_3) ;                            an instruction (with stars at the slashes)
 *
 *           A line with //## says of which source line the instructions after it are, up to the next such line. If
 *           several follow each other, they are one chain of calls: line 40, which was inlined at line 90, and so on.
 * Gives:    cost_list (cost_parts.h).
 * Cost:     O(text x marks).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/cost/cost_parts.h"

/* --- marks of the source ------------------------------------------------------------------------------------------ */

typedef struct mark {
    char file[48];
    uint32_t first, last; /* lines */
    unsigned bits;
} mark;
enum { MARKS = 256 };
typedef struct marks {
    mark all[MARKS];
    uint32_t count;
} marks;

/* The marks of words up to the end of a line. */
static unsigned bits_of(const char *at) {
    static const struct {
        const char *word;
        unsigned bit;
    } words[] = {{"step", COST_MARK_STEP}, {"FULL", COST_MARK_FULL}, {"PARTIAL", COST_MARK_PARTIAL},
                 {"elements", COST_MARK_ELEMENTS}, {"seldom", COST_MARK_SELDOM}};
    unsigned bits = 0;
    while (*at && *at != '\n') {
        size_t length = strcspn(at, " \n");
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            if (strlen(words[i].word) == length && memcmp(at, words[i].word, length) == 0) bits |= words[i].bit;
        at += length;
        at += *at == ' ';
    }
    return bits;
}

/* How many parentheses are open after a line, if `open` are before it. Those in comments and in quotes do not count. */
static uint32_t open_after(const char *at, uint32_t open, bool *comment) {
    char quote = 0;
    for (; *at && *at != '\n'; at++) {
        if (*comment) {
            if (at[0] == '*' && at[1] == '/') *comment = false, at++;
        } else if (quote) {
            if (*at == '\\' && at[1] && at[1] != '\n') at++;
            else if (*at == quote) quote = 0;
        } else if (at[0] == '/' && at[1] == '/') break;
        else if (at[0] == '/' && at[1] == '*') *comment = true, at++;
        else if (*at == '"' || *at == '\'') quote = *at;
        else if (*at == '(') open++;
        else if (*at == ')' && open) open--;
    }
    return open;
}

/* Finds the marks of the source. A line `#line 1 "name"` begins a file. A mark in a call that is written on several
 * lines covers all of them, since the compiler says of an instruction of the call where the call begins. false: there
 * are too many marks. */
static bool find_marks(const char *source, marks *out) {
    char file[48] = "";
    uint32_t line = 0, open = 0, opened = 0, within = 0; /* within: marks before the call that is open */
    bool comment = false;
    out->count = 0;
    for (const char *at = source; *at; line++) {
        size_t length = strcspn(at, "\n");
        const char *said = strstr(at, "// cost: ");
        unsigned number;
        char name[48];
        if (sscanf(at, "#line %9u \"%47[^\"]\"", &number, name) == 2) {
            memcpy(file, name, sizeof file);
            line = number - 1; /* the next line has this number: the loop adds 1 */
            open = 0;
        } else {
            if (!open) opened = line, within = out->count;
            open = *at == '}' ? 0 : open_after(at, open, &comment); /* a function has ended */
            if (said && said < at + length && bits_of(said + 9)) {
                if (out->count == MARKS) return false;
                mark *m = &out->all[out->count++];
                memcpy(m->file, file, sizeof file);
                m->first = opened;
                m->bits = bits_of(said + 9);
            }
            for (uint32_t i = within; i < out->count; i++) out->all[i].last = line;
        }
        at += length;
        if (*at) at++;
    }
    return true;
}

static unsigned marks_at(const marks *m, const char *path, size_t size, unsigned line) {
    unsigned bits = 0;
    for (uint32_t i = 0; i < m->count; i++) {
        size_t length = strlen(m->all[i].file);
        if (line < m->all[i].first || line > m->all[i].last) continue;
        if (length > size || memcmp(path + size - length, m->all[i].file, length)) continue;
        if (length == size || path[size - length - 1] == '/') bits |= m->all[i].bits;
    }
    return bits;
}

/* The marks of the one or two places that a //## line names. */
static unsigned marks_of_line(const marks *m, const char *at, const char *end) {
    unsigned bits = 0;
    while ((at = memchr(at, '"', (size_t)(end - at))) != NULL) {
        const char *path = at + 1, *close = memchr(path, '"', (size_t)(end - path));
        unsigned line = 0;
        if (!close) break;
        if (sscanf(close, "\", line %9u", &line) == 1) bits |= marks_at(m, path, (size_t)(close - path), line);
        at = close + 1;
    }
    return bits;
}

/* --- kernels ------------------------------------------------------------------------------------------------------ */

typedef struct label {
    char name[64];
    uint32_t at;
} label;

typedef struct reader {
    marks marks;
    cost_code *codes;
    uint32_t count, code_room;
    /* of the kernel under way */
    bool inside, chained; /* chained: the line before was a //## line */
    unsigned now;         /* marks that hold */
    uint32_t room;
    char (*targets)[64];  /* for each instruction the name of its target, or "" */
    label *labels;
    uint32_t label_count, label_room;
    char *wrong;
} reader;

static bool fail(reader *r, const char *what, const char *name) {
    snprintf(r->wrong, 160, "%s %.64s", what, name);
    return false;
}

/* Makes room for one more element. */
static bool grow(void *array, uint32_t *room, uint32_t count, size_t size) {
    void **at = array;
    if (count < *room) return true;
    uint32_t more = *room ? *room * 2 : 64;
    void *larger = more > *room ? realloc(*at, more * size) : NULL;
    if (!larger) return false;
    *at = larger;
    *room = more;
    return true;
}

static bool begin_kernel(reader *r, const char *name, size_t length) {
    if (!grow(&r->codes, &r->code_room, r->count, sizeof *r->codes)) return fail(r, "out of memory", "");
    cost_code *c = &r->codes[r->count++];
    *c = (cost_code){0};
    memcpy(c->name, name, length < sizeof c->name ? length : sizeof c->name - 1);
    r->inside = true;
    r->chained = false;
    r->now = 0;
    r->room = r->label_count = 0;
    free(r->targets);
    r->targets = NULL;
    return true;
}

static bool is_stem(const char *name, const char *stem) {
    size_t length = strlen(stem);
    return strncmp(name, stem, length) == 0 && (!name[length] || name[length] == '.');
}

/* How an instruction goes on, by its name, its guard, and what stands before the target. A branch of which only lanes
 * that strayed from their warp take part (BRA.DIV) counts as not taken. */
static cost_flow flow_of(const cost_instruction *x, bool has_target) {
    bool sure = !*x->guard || strcmp(x->guard, "PT") == 0;
    if (is_stem(x->name, "EXIT") || is_stem(x->name, "RET") || is_stem(x->name, "BRX") || is_stem(x->name, "KILL"))
        return sure ? COST_END : COST_NEXT;
    if (!has_target) return COST_NEXT;
    if (is_stem(x->name, "BSSY")) return COST_REGION;
    if (is_stem(x->name, "BRA") || is_stem(x->name, "UBRA") || is_stem(x->name, "JMP")) {
        if (strstr(x->name, ".DIV")) return COST_NEXT;
        bool plain = !strchr(x->name, '.') || strcmp(x->name, "BRA.U") == 0;
        return sure && plain && x->operands[0] == '`' ? COST_ALWAYS : COST_MAYBE;
    }
    return COST_NEXT;
}

/* The text between stars and the semicolon: "@!P0 BRA `(.L_x_1) ". */
static bool add_instruction(reader *r, const char *text, const char *end) {
    cost_code *c = &r->codes[r->count - 1];
    uint32_t old = r->room;
    const char *semicolon = memchr(text, ';', (size_t)(end - text)), *target;
    if (!semicolon) return fail(r, "an instruction without an end in", c->name);
    if (!grow(&c->all, &r->room, c->count, sizeof *c->all)) return fail(r, "out of memory", "");
    if (r->room != old) {
        void *larger = realloc(r->targets, r->room * sizeof *r->targets);
        if (!larger) return fail(r, "out of memory", "");
        r->targets = larger;
    }
    cost_instruction *x = &c->all[c->count];
    *x = (cost_instruction){.marks = r->now, .target = COST_NOWHERE};
    char line[320], *at = line;
    snprintf(line, sizeof line, "%.*s", (int)(semicolon - text < 300 ? semicolon - text : 300), text);
    at += strspn(at, " \t{");
    if (*at == '@') {
        snprintf(x->guard, sizeof x->guard, "%.*s", (int)strcspn(at + 1, " \t"), at + 1);
        at += strcspn(at, " \t");
        at += strspn(at, " \t");
    }
    size_t length = strcspn(at, " \t");
    if (!length) return fail(r, "an instruction without a name in", c->name);
    snprintf(x->name, sizeof x->name, "%.*s", (int)length, at);
    at += length;
    at += strspn(at, " \t");
    /* "BRA.U !UP0, `(.L_x_1)" has its guard among the operands */
    size_t guard = strcmp(x->name, "BRA.U") == 0 && *at != '`' ? strcspn(at, ",") : 0;
    if (guard) {
        snprintf(x->guard, sizeof x->guard, "%.*s", (int)guard, at);
        at += guard;
        at += strspn(at, ", \t");
    }
    snprintf(x->operands, sizeof x->operands, "%s", at);
    target = strstr(at, "`(");
    char *name = r->targets[c->count];
    name[0] = 0;
    if (target) snprintf(name, 64, "%.*s", (int)strcspn(target + 2, ")"), target + 2);
    x->flow = flow_of(x, target != NULL);
    c->count++;
    return true;
}

static bool add_label(reader *r, const char *name, size_t length) {
    if (!grow(&r->labels, &r->label_room, r->label_count, sizeof *r->labels)) return fail(r, "out of memory", "");
    label *l = &r->labels[r->label_count++];
    snprintf(l->name, sizeof l->name, "%.*s", (int)length, name);
    l->at = r->codes[r->count - 1].count;
    return true;
}

static int by_name(const void *a, const void *b) { return strcmp(((const label *)a)->name, ((const label *)b)->name); }

/* Ends a kernel: looks up where its branches go. If its last instruction is neither a jump nor an exit, the listing was
 * cut off. */
static bool end_kernel(reader *r) {
    if (!r->inside) return true;
    r->inside = false;
    cost_code *c = &r->codes[r->count - 1];
    if (r->label_count) qsort(r->labels, r->label_count, sizeof *r->labels, by_name);
    for (uint32_t i = 0; i < c->count; i++) {
        cost_instruction *x = &c->all[i];
        if (x->flow != COST_MAYBE && x->flow != COST_ALWAYS && x->flow != COST_REGION) continue;
        label key;
        memcpy(key.name, r->targets[i], sizeof key.name);
        const label *l = r->label_count ? bsearch(&key, r->labels, r->label_count, sizeof *r->labels, by_name) : NULL;
        if (!l || l->at >= c->count)
            return fail(r, "the listing ends early: it lacks the place of a branch of", c->name);
        x->target = l->at;
    }
    uint32_t last = c->count;
    while (last && is_stem(c->all[last - 1].name, "NOP")) last--;
    if (last && c->all[last - 1].flow != COST_ALWAYS && c->all[last - 1].flow != COST_END)
        return fail(r, "the listing ends early: in the middle of", c->name);
    return true;
}

static bool read_line(reader *r, const char *line, const char *end) {
    static const char section[] = ".section", text[] = ".text.";
    while (line < end && (*line == ' ' || *line == '\t')) line++;
    size_t length = (size_t)(end - line);
    if (length > sizeof section && memcmp(line, section, sizeof section - 1) == 0 &&
        strchr(" \t", line[sizeof section - 1])) {
        if (!end_kernel(r)) return false;
        line += sizeof section - 1;
        while (line < end && (*line == ' ' || *line == '\t')) line++;
        if ((size_t)(end - line) < sizeof text || memcmp(line, text, sizeof text - 1)) return true;
        line += sizeof text - 1;
        size_t name = 0;
        while (line + name < end && line[name] != ',') name++;
        return begin_kernel(r, line, name);
    }
    if (!r->inside || length < 2) return true;
    if (memcmp(line, "//", 2) == 0) {
        if (length < 4 || memcmp(line, "//##", 4)) return true;
        r->now = marks_of_line(&r->marks, line, end) | (r->chained ? r->now : 0);
        r->chained = true;
        return true;
    }
    if (memcmp(line, "/*", 2) == 0) {
        const char *close = line + 2;
        while (close + 1 < end && !(close[0] == '*' && close[1] == '/')) close++;
        r->chained = false;
        if (close + 1 >= end) return fail(r, "an instruction without an end in", r->codes[r->count - 1].name);
        return add_instruction(r, close + 2, end);
    }
    if (end[-1] == ':') return add_label(r, line, length - 1);
    return true;
}

bool cost_list(const char *source, const char *listing, cost_code **out, uint32_t *out_count, char wrong[160]) {
    reader r = {.wrong = wrong};
    bool good = true;
    if (!find_marks(source, &r.marks)) good = fail(&r, "too many marks in the source", "");
    for (const char *at = listing; good && *at;) {
        const char *end = at + strcspn(at, "\n");
        good = read_line(&r, at, end > at && end[-1] == '\r' ? end - 1 : end);
        at = *end ? end + 1 : end;
    }
    good = good && end_kernel(&r);
    if (good && !r.count) good = fail(&r, "the listing has no kernel", "");
    free(r.targets);
    free(r.labels);
    if (good) {
        *out = r.codes;
        *out_count = r.count;
    } else cost_list_free(r.codes, r.count);
    return good;
}

void cost_list_free(cost_code *codes, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) free(codes[i].all);
    free(codes);
}
