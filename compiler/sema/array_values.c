/* array_values.c: reads the values of fields and tables, from a list or from a file.
 *
 * A file is .npy if its first bytes or its name say so; otherwise it is text. In a text, a field has one number on each
 * line, or any number of them if it has several dimensions. A table has one number on each line, or rows of equally
 * many numbers. Numbers on a line are separated by blanks or commas. '#' begins a comment. Numbers are reals if one of
 * them has a point.
 *
 * Requires: a declaration in which arrays.c found no error.
 * Gives:    the values in the narrowest type that holds them, the least and the greatest, and the SHA-256 of the file.
 * Cost:     O(bytes): a file is read once, and its values are looked at twice.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/grow.h"
#include "runtime/base/npy.h"
#include "compiler/base/real.h"
#include "compiler/base/text.h"
#include "compiler/sema/array_values.h"
#include "compiler/sema/arrays.h"
#include "compiler/sema/data_file.h"
#include "compiler/sema/files.h"
#include "compiler/sema/lengths.h"
#include "compiler/sema/names.h"
#include "runtime/base/read_file.h"
#include "runtime/base/sha256.h"
#include "compiler/sema/values.h"

#define FILE_MOST (UINT64_C(1) << 36)
#define ROW_MOST ((size_t)64 << 20)
#define SOME 1024 /* numbers that are looked at together; it divides the 2^20 between two looks at a stop */
#define VALUES_MOST (UINT64_C(1) << 28) /* written out in a program or text, unless the batch has more tokens */

/* The numbers that were read so far, malloc'd; or those of a .npy file, in place. */
typedef struct numbers {
    int64_t *ints;
    double *reals; /* all of them, once a number with a point came; then ints is NULL */
    uint64_t count, room, columns;
    bool too_many; /* more than asked for: those are counted, and not kept */
    bool cut;      /* not even counted to the end */
    fcp_npy npy;
    bool from_npy;
} numbers;

/* What is being read, and where errors of it are shown. */
typedef struct reading {
    sema *s;
    const char *what;
    const expr *value;
    program_array *out;
    bool table, keep;
    bool rows;       /* several numbers may stand on a line */
    uint64_t tokens; /* how many values a field must have; ANY_TOKENS: any number, or a table */
    uint64_t most;   /* more values are not kept; UINT64_MAX: as many as there are, of a text VALUES_MOST */
    char *path;
    data_file *file; /* NULL: they are written out */
    span path_at;
    bool kv; /* the heads of a field are KV heads */
} reading;

static bool no_room(const reading *r) {
    diag_error(r->s->d, FCP_E_NO_MEMORY, SPAN_NONE, "out of memory for %s", r->what);
    return false;
}

/* Polls for an interruption, once in about a million numbers. i: the number of the one that is being read. */
static bool is_stopped(const reading *r, uint64_t i) { return !(i & 0xfffff) && sema_stopped(r->s); }

/* May values have a point? Those of a field with a range may not. */
static bool takes_reals(const reading *r) { return !r->out->declared; }

/* --- collecting --------------------------------------------------------------------------------------------------- */

static bool reserve(const reading *r, numbers *n, uint64_t more) {
    if (n->too_many || n->room - n->count >= more) return true;
    const uint64_t need = n->count + more;
    return (n->reals ? FCP_GROW(n->reals, n->room, need) : FCP_GROW(n->ints, n->room, need)) || no_room(r);
}

static void put_int(numbers *n, int64_t v) {
    if (n->too_many) n->count++;
    else if (n->reals) n->reals[n->count++] = (double)v;
    else n->ints[n->count++] = v;
}

static void put_real(numbers *n, double v) {
    if (n->too_many) {
        n->count++;
        return;
    }
    if (!n->reals) { /* in the same memory, number by number */
        for (uint64_t i = 0; i < n->count; i++) {
            double d = (double)n->ints[i];
            memcpy(&n->ints[i], &d, sizeof d);
        }
        n->reals = (double *)(void *)n->ints;
        n->ints = NULL;
    }
    n->reals[n->count++] = v;
}

static void free_numbers(numbers *n) {
    free(n->ints);
    free(n->reals);
}

/* Reads digits, perhaps with a point and an exponent, as a double. */
static bool decimal(const char *digits, bool negative, double *out) {
    if (!real_parse(digits, out)) return false;
    if (negative) *out = -*out;
    return true;
}

/* --- lists -------------------------------------------------------------------------------------------------------- */

static bool times_of(const reading *r, const expr *e, int64_t *out) {
    *out = 1;
    if (e->kind != EXPR_REPEAT) return true;
    if (!sema_eval_constant(r->s, e->b, "a count", out)) return false;
    if (*out >= 1) return true;
    diag_error(r->s->d, FCP_E_FIELD, e->b->at, "a count must be at least 1, this is %" PRId64, *out);
    return false;
}

static bool read_number(const reading *r, numbers *n, const expr *e) {
    int64_t times, v;
    double real;
    const expr *number = e->kind == EXPR_REPEAT ? e->a : e, *digits = number;
    bool negative = number->kind == EXPR_UNARY && number->op == OP_NEG;
    if (negative) digits = number->a;
    if (!times_of(r, e, &times)) return false;
    if (takes_reals(r) && digits->kind == EXPR_FLOAT) {
        if (!decimal(digits->name, negative, &real)) {
            diag_error(r->s->d, FCP_E_NUMBER, number->at, "a number beyond the largest, 1.8e308");
            return false;
        }
        for (int64_t i = 0; i < times; i++) {
            if (is_stopped(r, n->count)) return false;
            put_real(n, real);
        }
        return true;
    }
    if (!sema_eval_constant(r->s, number, r->what, &v)) return false;
    for (int64_t i = 0; i < times; i++) {
        if (is_stopped(r, n->count)) return false;
        put_int(n, v);
    }
    return true;
}

/* Reports that there are `count` numbers (or, if `more`, more than that), where the sequences of the batch need another
 * number of them. */
static bool wrong_length(const reading *r, uint64_t count, bool more, span at) {
    const sema_batch batch = sema_own_batch(r->s);
    sema_wrong_count(r->s->d, at, r->what, r->out->name, &r->out->record, r->kv, count, more, &batch);
    return false;
}

/* Counts the numbers of a list before memory is taken for them. */
static bool count_list(const reading *r, const expr *list, uint64_t *out) {
    const uint64_t most = r->tokens != ANY_TOKENS && r->tokens > VALUES_MOST ? r->tokens : VALUES_MOST;
    int64_t times;
    *out = 0;
    for (const arg *a = list->args; a; a = a->next) {
        if (!times_of(r, a->value, &times)) return false;
        if ((uint64_t)times > most - *out) {
            diag_error(r->s->d, FCP_E_TOO_LARGE, a->value->at, "%s has more than %" PRIu64 " values written out",
                       r->what, most);
            return false;
        }
        *out += (uint64_t)times;
    }
    if (*out || !r->tokens) return true;
    diag_error(r->s->d, FCP_E_FIELD, list->at, "%s has no values", r->what);
    return false;
}

static bool read_row(const reading *r, numbers *n, const expr *list) {
    uint64_t count;
    if (!count_list(r, list, &count)) return false;
    if (r->tokens != ANY_TOKENS && count != r->tokens) return wrong_length(r, count, false, list->at);
    if (!reserve(r, n, count)) return false;
    for (const arg *a = list->args; a; a = a->next)
        if (!read_number(r, n, a->value)) return false;
    return true;
}

static bool read_list(const reading *r, numbers *n) {
    const arg *first = r->value->args;
    if (!first || first->value->kind != EXPR_LIST) return read_row(r, n, r->value);
    if (!r->table) {
        diag_error(r->s->d, FCP_E_TYPE, first->value->at, "the values of a field stand in one list");
        diag_hint(r->s->d, "sequences end to end, and in each of them the last dimension fastest");
        return false;
    }
    for (const arg *a = first; a; a = a->next) {
        uint64_t before = n->count;
        if (a->value->kind != EXPR_LIST) {
            diag_error(r->s->d, FCP_E_TYPE, a->value->at, "the rows before this are lists");
            return false;
        }
        if (!read_row(r, n, a->value)) return false;
        if (n->columns && n->count - before != n->columns) {
            diag_error(r->s->d, FCP_E_FIELD, a->value->at, "this row has %" PRIu64 " number%s, the one before %" PRIu64,
                       n->count - before, text_plural(n->count - before), n->columns);
            return false;
        }
        n->columns = n->count - before;
    }
    return true;
}

/* The place of element i in a list of one dimension. */
static span list_place(const reading *r, uint64_t i) {
    for (const arg *a = r->value->args; a; a = a->next) {
        int64_t times = 1;
        if (a->value->kind == EXPR_REPEAT) sema_eval_constant(r->s, a->value->b, "a count", &times);
        if (i < (uint64_t)times) return a->value->at;
        i -= (uint64_t)times;
    }
    return r->value->at;
}

/* --- text --------------------------------------------------------------------------------------------------------- */

static bool is_outside(const reading *r, int64_t v) {
    return r->out->declared && (v < r->out->declared_lo || v > r->out->declared_hi);
}

static bool refuse_element(const reading *r, uint64_t i, int64_t v, span at, bool fits);

/* Reports an error about the bytes [begin, end), which lie in the line that was read last. */
static bool refuse_text(const reading *r, const char *begin, const char *end, fcp_code code, const char *message) {
    const char *line = r->file->bytes + r->file->line;
    diag_error(r->s->d, code, sema_data_span(r->file, (size_t)(begin - line), (size_t)(end - line)), "%s", message);
    if (code == FCP_E_FIELD_FILE && r->table)
        diag_hint(r->s->d, "a file of a table has one number a line, or rows of as many; '#' begins a comment");
    else if (code == FCP_E_FIELD_FILE)
        diag_hint(r->s->d, r->rows
                               ? "a file of a field has numbers, in the order of its dimensions; '#' begins a comment"
                               : "a file of a field has one number a line; '#' begins a comment");
    diag_also(r->s->d, r->path_at, "the file is named here");
    return false;
}

static uint64_t text_most(const reading *r) { return r->most == UINT64_MAX ? VALUES_MOST : r->most; }

/* Reads the word [word, end) of a line as a number. */
static bool read_word(const reading *r, numbers *n, const char *word, const char *end) {
    size_t size = (size_t)(end - word), at = 0, digits = 0;
    bool negative = word[0] == '-', over = false, whole = true;
    int64_t v = 0;
    char copy[64];
    at += word[0] == '-' || word[0] == '+';
    for (; at < size && word[at] >= '0' && word[at] <= '9'; at++, digits++) {
        over |= __builtin_mul_overflow(v, 10, &v);
        over |= negative ? __builtin_sub_overflow(v, word[at] - '0', &v)
                         : __builtin_add_overflow(v, word[at] - '0', &v);
    }
    if (takes_reals(r) && digits && at + 1 < size && word[at] == '.' && word[at + 1] >= '0' && word[at + 1] <= '9') {
        whole = false;
        for (at++; at < size && word[at] >= '0' && word[at] <= '9';) at++;
    }
    if (takes_reals(r) && digits && at + 1 < size && (word[at] == 'e' || word[at] == 'E')) {
        size_t power = at + 1 + (word[at + 1] == '-' || word[at + 1] == '+'), from = power;
        while (power < size && word[power] >= '0' && word[power] <= '9') power++;
        if (power > from) whole = false, at = power;
    }
    if (!digits || at < size)
        return refuse_text(r, word, end, FCP_E_FIELD_FILE,
                           takes_reals(r) ? "this is not a finite number" : "this is not a whole number");
    n->too_many = n->count >= text_most(r);
    if (!reserve(r, n, 1)) return false;
    if (whole) {
        if (over) return refuse_text(r, word, end, FCP_E_FIELD, "this does not fit 64 bits");
        if (is_outside(r, v)) {
            const char *line = r->file->bytes + r->file->line;
            const span place = sema_data_span(r->file, (size_t)(word - line), (size_t)(end - line));
            return refuse_element(r, n->count, v, place, true);
        }
        put_int(n, v);
        return true;
    }
    size_t sign = word[0] == '-' || word[0] == '+';
    double real = 0;
    if (size - sign < sizeof copy) {
        memcpy(copy, word + sign, size - sign);
        copy[size - sign] = 0;
    }
    if (size - sign >= sizeof copy || !decimal(copy, negative, &real))
        return refuse_text(r, word, end, FCP_E_FIELD,
                           "a number of more than 63 characters, or beyond the largest, 1.8e308");
    put_real(n, real);
    return true;
}

static const char *skip_blanks(const char *at, const char *end) {
    while (at < end && text_is_blank(*at)) at++;
    return at;
}

/* Reads the numbers of a line. */
static bool read_line(const reading *r, numbers *n, const char *at, const char *end) {
    const char *comment = memchr(at, '#', (size_t)(end - at));
    if (comment) end = comment;
    while (end > at && text_is_blank(end[-1])) end--;
    const char *begin = at = skip_blanks(at, end);
    const uint64_t before = n->count;
    while (at < end) {
        const char *word = at;
        while (at < end && !(r->rows && (text_is_blank(*at) || *at == ','))) at++;
        if (!read_word(r, n, word, at)) return false;
        at = skip_blanks(at, end);
        if (at < end && *at == ',') at = skip_blanks(at + 1, end);
    }
    if (n->count == before) return true;
    if (r->table && before && n->count - before != n->columns)
        return refuse_text(r, begin, end, FCP_E_FIELD, "this row has not as many numbers as those before it");
    n->columns = n->count - before;
    return true;
}

/* Reads the lines that come next while each is a whole number and nothing else, as nearly all lines are, and lies in
 * the buffer. read_line takes what follows, and finds what is wrong with it: this is the same, only faster. */
static bool read_plain_lines(const reading *r, numbers *n) {
    data_file *f = r->file;
    if (n->reals || (r->table && n->count && n->columns != 1)) return true;
    const char *at = f->bytes + f->begin, *const end = f->bytes + f->end;
    const uint64_t before = n->count, most = text_most(r);
    while (n->count < most) {
        const bool negative = at < end && *at == '-';
        const char *digits = at + negative, *stop = digits;
        uint64_t v = 0;
        for (unsigned digit; stop < end && (digit = (unsigned)*stop - '0') <= 9; stop++) v = v * 10 + digit;
        if (stop == digits || stop - digits > 18 || stop == end || *stop != '\n') break; /* 18 digits fit int64 */
        const int64_t value = negative ? -(int64_t)v : (int64_t)v;
        if (is_outside(r, value)) break;
        if (n->count == n->room && !reserve(r, n, 1)) return false;
        n->ints[n->count++] = value;
        at = stop + 1;
    }
    if (n->count == before) return true;
    f->begin = (size_t)(at - f->bytes);
    f->number += (uint32_t)(n->count - before);
    n->columns = 1;
    return true;
}

static bool read_text(const reading *r, numbers *n) {
    data_file *f = r->file;
    if (r->rows) f->line_most = ROW_MOST;
    const char *line;
    size_t size;
    /* Where there are too many, they are counted as far as the right number could reach: most errors say how many. */
    while (!n->cut) {
        if (!read_plain_lines(r, n)) return false;
        if (!sema_data_line(f, n->count, &line, &size)) break;
        if (!read_line(r, n, line, line + size)) return false;
        n->cut = n->too_many && (r->most == UINT64_MAX || f->taken > fcp_numbers_most(r->most));
    }
    if (n->columns == 1 || !r->table) n->columns = 0;
    return !f->wrong;
}

/* --- .npy --------------------------------------------------------------------------------------------------------- */

/* The shape of a sequence's values of a field, of at most three dimensions. */
static uint32_t sequence_shape(const reading *r, size_t sequence, uint64_t shape[3]) {
    const fcp_array *field = &r->out->record;
    const mc_env env = sema_sequence_env(r->s, sequence);
    const mc_array part = fcp_array_part(field, NULL, 0, &env);
    const uint32_t dims = fcp_array_dims(field);
    if (dims == 3) *shape++ = part.planes;
    if (dims >= 1) *shape++ = (uint64_t)part.count;
    if (dims >= 2) *shape++ = (uint64_t)part.columns;
    return dims;
}

static void put_shape(const uint64_t *shape, uint32_t dims, text *out) {
    text_puts(out, "(");
    for (uint32_t i = 0; i < dims; i++) text_printf(out, "%s%" PRIu64, i ? ", " : "", shape[i]);
    text_puts(out, ")");
}

/* Checks the shape of a file of a field. It is flat; or it is the shape of the values of the batch's one sequence; or,
 * if the values of all sequences have one shape, that behind the number of sequences. Without a batch only the number
 * of dimensions can be checked. */
static bool check_shape(const reading *r, const fcp_npy *npy) {
    uint64_t need[4] = {batch_count(r->s)}, other[3] = {0};
    const uint32_t dims = fcp_array_dims(&r->out->record);
    if (npy->dims == 1) return true;
    const bool batched = npy->dims == dims + 1, flat = npy->dims < 1 || (npy->dims != dims && !batched);
    bool alike = true, same = !flat;
    if (!r->tokens && !npy->elements && !flat) return true; /* no values, whatever their shape */
    text t = {0};
    for (size_t i = 0; r->tokens != ANY_TOKENS && i < need[0] && alike; i++) {
        sequence_shape(r, i, i ? other : need + 1);
        alike = !i || !memcmp(other, need + 1, dims * sizeof *need);
    }
    if (flat) text_printf(&t, "%u dimensions", npy->dims);
    else text_puts(&t, "shape "), put_shape(npy->shape, npy->dims, &t);
    if (!flat && r->tokens != ANY_TOKENS) {
        same = alike && (batched || need[0] == 1) && !memcmp(npy->shape, need + !batched, npy->dims * sizeof *need);
        if (alike)
            text_puts(&t, ", which is not "),
                put_shape(need + (need[0] == 1 && !batched), dims + (need[0] != 1 || batched), &t);
        else text_puts(&t, ", and the batch's sequences are not alike");
    }
    text_add(&t, "", 1);
    if (!same) {
        diag_error(r->s->d, FCP_E_FIELD, r->path_at, "'%s' has %s", r->path, t.failed ? "another shape" : t.at);
        diag_hint(r->s->d, "a file of one dimension always fits: all values, sequences end to end");
    }
    text_free(&t);
    return same;
}

static bool read_npy(const reading *r, numbers *n) {
    if (!sema_data_npy(r->file, &n->npy)) return false;
    if (r->table && (n->npy.dims < 1 || n->npy.dims > 2)) {
        diag_error(r->s->d, FCP_E_FIELD, r->path_at, "'%s' has %u dimensions, a table has one or two", r->path,
                   n->npy.dims);
        return false;
    }
    if (!r->table && !check_shape(r, &n->npy)) return false;
    if (!takes_reals(r) && fcp_npy_is_real(n->npy.type)) {
        diag_error(r->s->d, FCP_E_FIELD, r->path_at, "%s needs integers, '%s' holds %s", r->what, r->path,
                   fcp_npy_type_name(n->npy.type));
        return false;
    }
    n->from_npy = true;
    n->count = n->npy.elements;
    n->columns = r->table && n->npy.dims == 2 ? n->npy.shape[1] : 0;
    /* judged by the header, before memory is taken: it may be larger than that */
    if (r->tokens != ANY_TOKENS && n->count && n->count != r->tokens)
        return wrong_length(r, n->count, false, r->path_at);
    n->too_many = n->count > r->most;
    return n->too_many || sema_data_elements(r->file, &n->npy);
}

/* --- the values --------------------------------------------------------------------------------------------------- */

static inline bool int_at(const numbers *n, uint64_t i, int64_t *out) {
    if (n->from_npy) return fcp_npy_int(&n->npy, i, out);
    *out = n->ints[i];
    return true;
}

static bool is_real(const numbers *n) { return n->from_npy ? fcp_npy_is_real(n->npy.type) : n->reals != NULL; }

/* Adds to an error which position of which sequence element i belongs to. */
static void place_element(const reading *r, uint64_t i) {
    const fcp_array *field = &r->out->record;
    const char *word = fcp_array_is_over(field, FCP_QUERIES) ? "query"
                       : fcp_array_is_over(field, FCP_KEYS)  ? "position"
                                                             : "value";
    if (r->file && !r->file->npy) diag_also(r->s->d, r->path_at, "the file is named here");
    uint64_t first = 0, size;
    for (size_t s = 0; r->tokens != ANY_TOKENS && s < batch_count(r->s); first += size, s++) {
        const mc_env env = sema_sequence_env(r->s, s);
        size = sema_field_values(field, &env);
        if (i - first >= size) continue;
        if (fcp_array_dims(field))
            diag_hint(r->s->d, "it belongs to %s %" PRIu64 " of sequence %zu", word, i - first, s);
        else diag_hint(r->s->d, "it belongs to sequence %zu", s);
        return;
    }
}

static bool refuse_element(const reading *r, uint64_t i, int64_t v, span at, bool fits) {
    if (fits)
        diag_error(r->s->d, FCP_E_FIELD, at, "element %" PRIu64 " of %s is %" PRId64 ", outside %" PRId64 "..%" PRId64,
                   i, r->what, v, r->out->declared_lo, r->out->declared_hi + 1);
    else diag_error(r->s->d, FCP_E_FIELD, at, "element %" PRIu64 " of %s does not fit 64 bits with a sign", i, r->what);
    place_element(r, i);
    return false;
}

/* Numbers [from, from + count), at most SOME: in place if they are int64 already, else in `room`. If one does not fit
 * int64, *out_good is how many do before it. */
static const int64_t *some_ints(const numbers *n, uint64_t from, uint32_t count, int64_t room[SOME],
                                uint32_t *out_good) {
    *out_good = n->from_npy ? fcp_npy_ints(&n->npy, from, count, room) : count;
    return n->from_npy ? room : n->ints + from;
}

/* Finds the least and the greatest number, and that each is within its range. */
static bool check_ints(const reading *r, const numbers *n, int64_t *out_lo, int64_t *out_hi) {
    int64_t lo = INT64_MAX, hi = INT64_MIN, room[SOME];
    for (uint64_t from = 0; from < n->count; from += SOME) {
        const uint32_t count = n->count - from < SOME ? (uint32_t)(n->count - from) : SOME;
        uint32_t good;
        const int64_t *v = some_ints(n, from, count, room, &good);
        for (uint32_t i = 0; i < good; i++) {
            lo = v[i] < lo ? v[i] : lo;
            hi = v[i] > hi ? v[i] : hi;
        }
        const bool all = good == count && (!r->out->declared || !good || (!is_outside(r, lo) && !is_outside(r, hi)));
        for (uint32_t i = 0; i < count && !all; i++) { /* the first one that is wrong */
            const uint64_t at = from + i;
            if (i < good && !is_outside(r, v[i])) continue;
            return refuse_element(r, at, i < good ? v[i] : 0, r->file ? r->path_at : list_place(r, at), i < good);
        }
        if (is_stopped(r, from)) return false;
    }
    *out_lo = n->count ? lo : 0;
    *out_hi = n->count ? hi : 0;
    return true;
}

static bool keep_ints(const reading *r, const numbers *n) {
    program_array *a = r->out;
    int64_t lo = 0, hi = 0, room[SOME];
    if (!check_ints(r, n, &lo, &hi)) return false;
    if (!r->keep) return true;
    mc_width width = values_width(lo, hi);
    void *data = arena_alloc(&r->s->out->arena, n->count, (size_t)width, 64);
    if (!data) return no_room(r);
    for (uint64_t from = 0; from < n->count; from += SOME) {
        const uint32_t count = n->count - from < SOME ? (uint32_t)(n->count - from) : SOME;
        uint32_t good;
        if (is_stopped(r, from)) return false;
        values_put_some(data, width, from, some_ints(n, from, count, room, &good), count);
    }
    a->record.width = width;
    a->record.lo = lo;
    a->record.hi = hi;
    a->data = data;
    return true;
}

static double real_at(const numbers *n, uint64_t i) {
    int64_t v = 0;
    if (is_real(n)) return n->from_npy ? fcp_npy_real(&n->npy, i) : n->reals[i];
    int_at(n, i, &v);
    return (double)v;
}

static bool keep_reals(const reading *r, const numbers *n) {
    double *data = r->keep ? ARENA_NEW(&r->s->out->arena, double, n->count) : NULL;
    if (r->keep && !data) return no_room(r);
    for (uint64_t i = 0; i < n->count; i++) {
        const double x = real_at(n, i);
        if (data) data[i] = x;
        if (is_stopped(r, i)) return false;
        if (isfinite(x)) continue;
        diag_error(r->s->d, FCP_E_FIELD, r->path_at, "element %" PRIu64 " of %s is not finite", i, r->what);
        return false;
    }
    r->out->record.width = MC_F64;
    r->out->data = data;
    return true;
}

static bool keep(const reading *r, const numbers *n) {
    span at = r->file ? r->path_at : r->value->at;
    if (!n->count && r->tokens) {
        diag_error(r->s->d, FCP_E_FIELD, at, "'%s' holds no values", r->path);
        return false;
    }
    if (r->tokens != ANY_TOKENS && n->count != r->tokens)
        return wrong_length(r, n->cut ? r->tokens : n->count, n->cut, at);
    if (n->cut) {
        diag_error(r->s->d, r->most == UINT64_MAX ? FCP_E_TOO_LARGE : FCP_E_FIELD, at,
                   "%s has more than %" PRIu64 " values in a text", r->what, text_most(r));
        return false;
    }
    if (n->columns > UINT32_MAX || n->count > LENGTHS_SUM_MAX) {
        diag_error(r->s->d, FCP_E_TOO_LARGE, at, "%s has more than 2^40 values, or 2^32 columns", r->what);
        return false;
    }
    r->out->record.columns = n->columns;
    r->out->record.count = n->columns ? n->count / n->columns : n->count;
    if (n->too_many) return true;
    return is_real(n) || r->out->record.width == MC_F64 ? keep_reals(r, n) : keep_ints(r, n);
}

static bool read_file(reading *r, numbers *n) {
    const arg *path = r->value->args;
    while (path->name) path = path->next;
    r->path_at = path->value->at;
    r->path = sema_path(r->s, path->value);
    if (!r->path || !sema_data_open(r->file, r->s, r->path, r->path_at, FILE_MOST, FCP_E_FIELD_FILE, true) ||
        !(r->file->npy ? read_npy(r, n) : read_text(r, n)))
        return false;
    sema_data_hash(r->file, r->out->record.hash);
    r->out->file = arena_copy(&r->s->out->arena, path->value->name, strlen(path->value->name));
    return r->out->file || no_room(r);
}

static bool read_array(reading *r) {
    numbers n = {0};
    data_file file = {.fd = -1};
    if (r->value->kind == EXPR_CALL) r->file = &file;
    bool good = (r->file ? read_file(r, &n) : read_list(r, &n)) && keep(r, &n);
    free_numbers(&n);
    sema_data_close(&file);
    free(r->path);
    return good;
}

bool sema_read_table(sema *s, const char *what, const expr *value, uint64_t most, bool keep, program_array *out) {
    reading r = {.s = s,
                 .what = what,
                 .value = value,
                 .out = out,
                 .table = true,
                 .rows = true,
                 .keep = keep,
                 .most = most,
                 .tokens = ANY_TOKENS,
                 .path_at = value->at};
    out->record.kind = FCP_TABLE;
    return read_array(&r);
}

bool sema_read_field(sema *s, const char *what, const expr *value, bool kv, uint64_t tokens, bool keep,
                     program_array *out) {
    reading r = {.s = s,
                 .what = what,
                 .value = value,
                 .kv = kv,
                 .out = out,
                 .tokens = tokens,
                 .keep = keep,
                 .most = tokens,
                 .path_at = value->at,
                 .rows = fcp_array_dims(&out->record) > 1};
    return read_array(&r);
}

bool sema_read_runs(sema *s, const program_array *of, program_array *out) {
    const mc_array field = {.data = of->data, .width = (mc_width)of->record.width};
    const size_t count = batch_count(s), parts = count ? count : 1; /* without a batch, all values are one sequence */
    int64_t hi = 0;
    for (uint64_t i = 0, first = 0, size; i < parts; first += size, i++) {
        size = count ? batch_length(s, i, FCP_KEYS) : of->record.count;
        int64_t greatest = values_runs(&field, first, size, NULL, MC_I64);
        if (greatest > hi) hi = greatest;
    }
    out->record.width = values_width(0, hi);
    out->record.count = of->record.count;
    out->record.hi = hi;
    void *data = arena_alloc(&s->out->arena, of->record.count, out->record.width, 64);
    if (!data) return sema_no_memory(s);
    for (uint64_t i = 0, first = 0, size; i < parts; first += size, i++) {
        size = count ? batch_length(s, i, FCP_KEYS) : of->record.count;
        values_runs(&field, first, size, data, (mc_width)out->record.width);
    }
    out->data = data;
    return true;
}
