/* rect_slices.c: expands rect(...) and reads slices(...) in masks.
 *
 * rect(q0..q1, k0..k1, causal) is short for comparisons, and is expanded to them: q >= q0 and q < q1 and so on.
 * slices(...) may have millions of rectangles. They are read from the file or the arguments when the plan's mask is
 * lowered, and become bands (slice_bands.c), which the program owns and mask code names by number. A file that is named
 * twice is read once.
 *
 * Requires: trees from syntax/parse.c. Cost: of rect O(1); of slices that of reading them and of bands_of_slices.
 * Units: positions count tokens in a sequence. The same slices hold for every sequence.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/sema/data_file.h"
#include "compiler/sema/files.h"
#include "compiler/sema/names.h"
#include "compiler/expr/slice_sources.h"
#include "runtime/plan/plan.h"

enum { FILE_MAX = 1 << 30, FIELDS = 5 };
#define POSITION_MAX (INT64_C(1) << SLICE_POSITION_BITS)

/* --- rect --------------------------------------------------------------------------------------------------------- */

/* The kind that a name means; SLICE_KINDS: none, which was reported. */
static uint32_t kind_of(sema *s, const expr *e) {
    int kind = e->kind == EXPR_NAME ? words_find(bands_kinds, SLICE_KINDS, e->name) : -1;
    if (kind >= 0) return (uint32_t)kind;
    if (e->kind == EXPR_NAME) diag_error(s->d, FCP_E_ARGUMENT, e->at, "'%s' is not a kind of piece", e->name);
    else diag_error(s->d, FCP_E_ARGUMENT, e->at, "this is not a kind of piece");
    const char *nearest =
        e->kind == EXPR_NAME ? diag_nearest(e->name, strlen(e->name), bands_kinds, SLICE_KINDS) : NULL;
    if (nearest) diag_hint(s->d, "did you mean '%s'?", nearest);
    else diag_hint(s->d, "the kinds are full, causal, inverse and both");
    return SLICE_KINDS;
}

static expr *variable(sema *s, const char *name, span at) {
    expr *e = sema_new_expr(s, EXPR_NAME, at);
    if (e) e->name = name;
    return e;
}

static expr *binary(sema *s, expr_op op, expr *a, expr *b, span at) {
    expr *e = a && b ? sema_new_expr(s, EXPR_BINARY, at) : NULL;
    if (!e) return NULL;
    e->op = (uint8_t)op;
    e->name = words_functions[BUILTIN_RECT]; /* what was written */
    e->a = a;
    e->b = b;
    a->up = e;
    return e;
}

/* Builds `left and name >= range.a and name < range.b`; left may be NULL. */
static expr *within(sema *s, expr *left, const char *name, const expr *range, span at) {
    expr *lo = binary(s, OP_GE, variable(s, name, at), range->a, at),
         *hi = binary(s, OP_LT, variable(s, name, at), range->b, at);
    if (left) lo = binary(s, OP_AND, left, lo, at);
    return binary(s, OP_AND, lo, hi, at);
}

/* Builds `k - k_bound op q - q_bound`: on which side of a diagonal of the rectangle a pair lies. */
static expr *diagonal(sema *s, expr_op op, expr *k_bound, expr *q_bound, span at) {
    return binary(s, op, binary(s, OP_SUB, variable(s, "k", at), k_bound, at),
                  binary(s, OP_SUB, variable(s, "q", at), q_bound, at), at);
}

expr *expr_expand_rect(sema *s, expr *e) {
    if (e->target) return (expr *)e->target;
    const expr *range[2];
    uint32_t kind = SLICE_FULL, i = 0;
    bool good = e->arg_count == 2 || e->arg_count == 3;
    for (const arg *a = e->args; a && good; a = a->next, i++) {
        good = !a->name && (i == 2 || a->value->kind == EXPR_RANGE);
        if (i < 2) range[i] = a->value;
        else if (good && (kind = kind_of(s, a->value)) == SLICE_KINDS) return NULL;
    }
    if (!good) {
        diag_error(s->d, FCP_E_ARGUMENT, e->at, "'rect' takes a range of queries, one of keys and perhaps a kind");
        diag_hint(s->d, "rect(0..1024, 0..4096) or rect(0..1024, 0..4096, causal)");
        return NULL;
    }
    expr *all = within(s, NULL, "q", range[0], e->at);
    if (all) all = within(s, all, "k", range[1], e->at);
    if (kind & SLICE_CAUSAL)
        all = binary(s, OP_AND, all, diagonal(s, OP_LE, range[1]->b, range[0]->b, e->at), e->at);
    if (kind & SLICE_INVERSE)
        all = binary(s, OP_AND, all, diagonal(s, OP_GE, range[1]->a, range[0]->a, e->at), e->at);
    if (!all) sema_no_memory(s);
    e->target = all;
    return all;
}

/* --- slices, as they are read ------------------------------------------------------------------------------------- */

static bool add_slice(sema *s, slice_source *to, const slice *new) {
    slice *grown = arena_grow(s->scratch, to->at, to->count, &to->room, sizeof *grown);
    if (!grown) return sema_no_memory(s);
    to->at = grown;
    to->at[to->count++] = *new;
    return true;
}

/* Says what is wrong with q0, q1, k0, k1 and a kind; NULL: they are a slice. */
static const char *make_slice(const int64_t v[FIELDS], uint32_t line, slice *out) {
    for (int i = 0; i < 4; i++) {
        if (v[i] < 0) return "a slice has no negative positions";
        if (v[i] > POSITION_MAX) return "a slice reaches to 2^40 at most";
    }
    if (v[1] <= v[0]) return "this slice has no queries: q1 must be larger than q0";
    if (v[3] <= v[2]) return "this slice has no keys: k1 must be larger than k0";
    if (v[4] < 0 || v[4] >= SLICE_KINDS) return "the kinds are 0 to 3: full, causal, inverse, both";
    *out = (slice){v[0], v[1], v[2], v[3], (uint32_t)v[4], line};
    return NULL;
}

static bool too_many(sema *s, span at) {
    diag_error(s->d, FCP_E_TOO_LARGE, at, "more than %d slices", SLICES_MAX);
    return false;
}

/* --- text --------------------------------------------------------------------------------------------------------- */

static bool is_separator(char c) { return c == ' ' || c == '\t' || c == '\r' || c == ','; }

/* Reads [begin, end) as a whole number or the name of a kind. False: it is neither, or far too large. */
static bool read_word(const char *begin, const char *end, int64_t *out) {
    size_t size = (size_t)(end - begin);
    for (int i = 0; i < SLICE_KINDS; i++)
        if (strlen(bands_kinds[i]) == size && !memcmp(bands_kinds[i], begin, size)) {
            *out = i;
            return true;
        }
    bool negative = size > 1 && *begin == '-';
    int64_t value = 0;
    for (const char *c = begin + negative; c < end; c++) {
        if (*c < '0' || *c > '9') return false;
        if (value <= POSITION_MAX) value = value * 10 + (*c - '0');
    }
    *out = negative ? -value : value;
    return true;
}

/* Does a word consist of digits, after an optional sign? */
static bool is_number(const char *begin, const char *end) {
    begin += begin < end && *begin == '-';
    for (const char *c = begin; c < end; c++)
        if (*c < '0' || *c > '9') return false;
    return begin < end;
}

/* Reports an error about the bytes [begin, end), which lie in the line that was read last. */
static bool line_error(data_file *f, fcp_code code, const char *begin, const char *end, const char *what) {
    const char *line = f->bytes + f->line;
    diag_error(f->s->d, code, sema_data_span(f, (size_t)(begin - line), (size_t)(end - line)), "%s", what);
    if (code == FCP_E_FIELD_FILE)
        diag_hint(f->s->d, "a line is q0 q1 k0 k1 and a kind: 0 1024 0 4096 causal; '#' begins a comment");
    diag_also(f->s->d, f->at, "the file is named here");
    return false;
}

static bool word_error(data_file *f, const char *begin, const char *end, bool last) {
    sema *s = f->s;
    line_error(f, last ? FCP_E_SLICES : FCP_E_FIELD_FILE, begin, end,
               last ? "this is not a kind of piece" : "this is not a position");
    if (!last) return false;
    char word[32];
    size_t size = (size_t)(end - begin) < sizeof word ? (size_t)(end - begin) : sizeof word - 1;
    memcpy(word, begin, size);
    const char *nearest = diag_nearest(word, size, bands_kinds, SLICE_KINDS);
    if (nearest) diag_hint(s->d, "did you mean '%s'?", nearest);
    else diag_hint(s->d, "the kinds are full, causal, inverse and both, or 0 to 3");
    return false;
}

/* Reads one line, [i, end). */
static bool read_line(data_file *f, const char *i, const char *end, slice_source *out) {
    int64_t v[FIELDS] = {0};
    int words = 0;
    const char *hash = memchr(i, '#', (size_t)(end - i));
    if (hash) end = hash;
    while (i < end && is_separator(*i)) i++;
    while (i < end && is_separator(end[-1])) end--;
    const char *begin = i;
    while (i < end) {
        const char *word = i;
        while (i < end && !is_separator(*i)) i++;
        if (words == FIELDS) return line_error(f, FCP_E_FIELD_FILE, word, end, "more than a slice needs");
        if (!read_word(word, i, &v[words]) || (words < 4 && !is_number(word, i)))
            return word_error(f, word, i, words == 4);
        words++;
        while (i < end && is_separator(*i)) i++;
    }
    if (!words) return true;
    if (words < 4) return line_error(f, FCP_E_FIELD_FILE, begin, end, "less than a slice needs");
    slice new;
    const char *wrong = make_slice(v, f->number, &new);
    if (wrong) return line_error(f, FCP_E_SLICES, begin, end, wrong);
    if (out->count == SLICES_MAX) return too_many(f->s, f->at);
    return add_slice(f->s, out, &new);
}

static bool read_text(data_file *f, slice_source *out) {
    const char *line;
    size_t size;
    while (sema_data_line(f, FIELDS * out->count, &line, &size))
        if (!read_line(f, line, line + size, out)) return false;
    return !f->wrong;
}

/* --- .npy --------------------------------------------------------------------------------------------------------- */

static bool read_npy(data_file *f, slice_source *out) {
    sema *s = f->s;
    fcp_npy npy;
    if (!sema_data_npy(f, &npy)) return false;
    if (fcp_npy_is_real(npy.type)) {
        diag_error(s->d, FCP_E_FIELD_FILE, f->at, "'%s' is of %s; slices are whole numbers", f->path,
                   fcp_npy_type_name(npy.type));
        return false;
    }
    if (npy.dims != 2 || (npy.shape[1] != 4 && npy.shape[1] != FIELDS)) {
        diag_error(s->d, FCP_E_FIELD_FILE, f->at, "'%s' is not of shape [slices, 4] or [slices, 5]", f->path);
        diag_hint(s->d, "the columns are q0 q1 k0 k1 and perhaps the kind: 0 full, 1 causal, 2 inverse, 3 both");
        return false;
    }
    if (npy.shape[0] > SLICES_MAX) return too_many(s, f->at);
    if (!sema_data_elements(f, &npy)) return false;
    for (uint64_t i = 0; i < npy.shape[0]; i++) {
        int64_t v[FIELDS] = {0};
        bool fits = true;
        for (uint64_t j = 0; j < npy.shape[1]; j++) fits &= fcp_npy_int(&npy, i * npy.shape[1] + j, &v[j]);
        slice new;
        const char *wrong = fits ? make_slice(v, (uint32_t)i + 1, &new) : "a slice reaches to 2^40 at most";
        if (wrong) {
            diag_error(s->d, FCP_E_SLICES, f->at, "slice %" PRIu64 " of '%s': %s", i + 1, f->path, wrong);
            return false;
        }
        if (!add_slice(s, out, &new)) return false;
    }
    return true;
}

/* --- written out -------------------------------------------------------------------------------------------------- */

static bool read_element(sema *s, const expr *e, slice_source *out) {
    int64_t v[FIELDS] = {0};
    int i = 0;
    if (e->kind != EXPR_LIST || (e->arg_count != 4 && e->arg_count != FIELDS)) {
        diag_error(s->d, FCP_E_ARGUMENT, e->at, "'slices' takes a file, or slices written out");
        diag_hint(s->d, "slices(file(\"a.slices\")) or slices([0, 1024, 0, 4096, causal], ...)");
        return false;
    }
    for (const arg *a = e->args; a; a = a->next, i++) {
        if (i == 4 && a->value->kind == EXPR_NAME) {
            uint32_t kind = kind_of(s, a->value);
            if (kind == SLICE_KINDS) return false;
            v[i] = kind;
        } else if (!sema_eval_constant(s, a->value, "a slice's position", &v[i])) return false;
    }
    slice new;
    const char *wrong = make_slice(v, (uint32_t)out->count + 1, &new);
    if (wrong) diag_error(s->d, FCP_E_SLICES, e->at, "%s", wrong);
    return !wrong && add_slice(s, out, &new);
}

bool expr_check_slices_call(sema *s, const expr *e) {
    const arg *a = e->args;
    bool file = e->arg_count == 1 && !a->name && ast_is_call(a->value, words_sources[SOURCE_FILE]);
    if (file) {
        const expr *f = a->value;
        if (f->arg_count == 1 && !f->args->name && f->args->value->kind == EXPR_STRING) return true;
        diag_error(s->d, FCP_E_ARGUMENT, f->at, "file takes one path: file(\"a.slices\")");
        return false;
    }
    bool lists = a != NULL;
    for (; a; a = a->next) lists &= !a->name && a->value->kind == EXPR_LIST;
    if (lists) return true;
    diag_error(s->d, FCP_E_ARGUMENT, e->at, "'slices' takes a file, or slices written out");
    if (e->args && e->args->value->kind == EXPR_STRING)
        diag_hint(s->d, "a path stands in file(...): slices(file(\"%s\"))", e->args->value->name);
    else diag_hint(s->d, "slices(file(\"a.slices\")) or slices([0, 1024, 0, 4096, causal], ...)");
    return false;
}

/* --- a source of slices ------------------------------------------------------------------------------------------- */

/* Warns of slices that overlap. `f` is the text file that they are from; NULL: they are from no text. */
static void warn_overlaps(sema *s, const slice_source *from, const slices_overlap *o, data_file *f, span at) {
    const slice *a = &from->at[o->first], *b = &from->at[o->second];
    const char *least = o->at_least ? "at least " : "";
    span where = f ? sema_data_line_again(f, b->line) : at;
    char pairs[64] = "", which[64];
    if (o->pairs > 1) snprintf(pairs, sizeof pairs, ", in %s%" PRIu64 " pairs; the first", least, o->pairs);
    if (where.source != at.source) snprintf(which, sizeof which, "this one with that of line %u", a->line);
    else if (f) snprintf(which, sizeof which, "line %u with line %u", a->line, b->line);
    else snprintf(which, sizeof which, "number %u with number %u", a->line, b->line);
    diag_warning(s->d, where, "%s%" PRIu64 " of %zu slices overlap%s: %s", least, o->slices, from->count, pairs, which);
    if (where.source != at.source) diag_also(s->d, at, "the file is named here");
    diag_hint(s->d, "a pair that several slices allow counts once");
}

/* Gives the program the bands of a source's slices, and the source their number. */
static bool keep_union(sema *s, slice_source *from, data_file *f, span at) {
    struct fcpc_program *p = s->out;
    mc_bands *bands = ARENA_NEW(&p->arena, mc_bands, p->slices_count + (size_t)1);
    program_slices *about = ARENA_NEW(&p->arena, program_slices, p->slices_count + (size_t)1);
    if (!bands || !about) return sema_no_memory(s);
    if (p->slices_count) {
        memcpy(bands, p->slices, p->slices_count * sizeof *bands);
        memcpy(about, p->slices_about, p->slices_count * sizeof *about);
    }
    slices_overlap overlap;
    fcp_code code = bands_of_slices(from->at, from->count, s->stop, &p->arena, &bands[p->slices_count], &overlap);
    if (code == FCP_E_NO_MEMORY) return sema_no_memory(s);
    if (code == FCP_E_INTERRUPTED) {
        diag_error(s->d, code, SPAN_NONE, "%s", fcp_code_text(code));
        return false;
    }
    if (code != FCP_OK) {
        diag_error(s->d, code, at, "these slices cross in too many places: their union needs more than %d bands",
                   SLICE_BANDS_MAX);
        diag_hint(s->d, "slices that lie over each other in many layers cut each other up; merge them first");
        return false;
    }
    if (overlap.pairs) warn_overlaps(s, from, &overlap, f, at);
    program_slices *new = &about[p->slices_count];
    *new = (program_slices){.count = from->count, .overlapping = overlap.slices, .overlaps = overlap.pairs,
                            .at_least = overlap.at_least, .file = "", .at = at};
    if (from->path && !(new->file = arena_copy(&p->arena, from->path, strlen(from->path)))) return sema_no_memory(s);
    for (size_t i = 0; i < from->count; i++) {
        int64_t reach = from->at[i].q1 > from->at[i].k1 ? from->at[i].q1 : from->at[i].k1;
        if (reach > new->reach) new->reach = reach, new->reach_line = from->at[i].line;
    }
    from->number = p->slices_count;
    p->slices = bands;
    p->slices_about = about;
    p->slices_count++;
    return true;
}

static bool read_file(sema *s, slice_source *from, const expr *string) {
    data_file f;
    bool good = sema_data_open(&f, s, from->path, string->at, FILE_MAX, FCP_E_FIELD_FILE, true) &&
                (f.npy ? read_npy(&f, from) : read_text(&f, from));
    if (good && !from->count) {
        diag_error(s->d, FCP_E_SLICES, string->at, "'%s' holds no slices", from->path);
        good = false;
    }
    good = good && keep_union(s, from, f.npy ? NULL : &f, string->at);
    sema_data_close(&f);
    return good;
}

/* Takes the bands of a source from the plan that is being read back. A plan has the bands of its slices, but no longer
 * the slices. */
static bool keep_plans(sema *s, slice_source *from) {
    struct fcpc_program *p = s->out;
    const uint32_t number = p->slices_count;
    mc_bands *bands = ARENA_NEW(&p->arena, mc_bands, number + (size_t)1);
    program_slices *about = ARENA_ZNEW(&p->arena, program_slices, number + (size_t)1);
    if (!bands || !about) return sema_no_memory(s);
    for (uint32_t i = 0; i <= number; i++) {
        const fcp_slices *x = &s->plan->slices[i];
        bands[i] = (mc_bands){s->plan->band_rows + x->first_row, s->plan->bands + x->first_band, x->rows, x->bands};
        about[i] = (program_slices){.file = "", .at = SPAN_NONE};
    }
    p->slices = bands;
    p->slices_about = about;
    p->slices_count++;
    from->number = number;
    return true;
}

/* Returns the source of slices that a call names. If it has not been read yet, it is read now. */
static slice_source *source_of(sema *s, const expr *e) {
    bool file = e->args->value->kind == EXPR_CALL;
    char *path = file ? sema_path(s, e->args->value->args->value) : NULL;
    if (file && !path) return NULL;
    for (slice_source *x = s->slices; x && file; x = x->next)
        if (x->path && !strcmp(x->path, path)) {
            free(path);
            return x;
        }
    slice_source *new = ARENA_ZNEW(s->scratch, slice_source, 1);
    if (new && file) new->path = arena_copy(s->scratch, path, strlen(path));
    free(path);
    if (!new || (file && !new->path)) {
        sema_no_memory(s);
        return NULL;
    }
    bool good = true, of_plan = s->plan && s->out->slices_count < s->plan->slices_count;
    if (of_plan) good = keep_plans(s, new);
    else if (file) good = read_file(s, new, e->args->value->args->value);
    for (const arg *a = e->args; a && !file && good && !of_plan; a = a->next) good = read_element(s, a->value, new);
    if (good && !file && !of_plan) good = keep_union(s, new, NULL, e->at);
    new->wrong = !good;
    new->next = s->slices;
    s->slices = new;
    return new;
}

const slice_source *expr_load_slices(sema *s, expr *e) {
    if (!e->target) e->target = source_of(s, e);
    const slice_source *from = e->target;
    return from && !from->wrong ? from : NULL;
}
