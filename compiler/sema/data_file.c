/* data_file.c: reads a file of numbers piece by piece.
 *
 * Requires: any path and any bytes; the file may change meanwhile.
 * Gives:    the lines of a text, or the elements of a .npy file; or what is wrong with it.
 * Cost:     O(bytes that are read). Memory for the longest line of a text, or for the elements of a .npy file. An
 *           endless or sparse file costs no more than a MiB beyond the numbers that were found in it.
 */
#include "compiler/sema/data_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compiler/base/text.h"
#include "compiler/sema/files.h"
#include "runtime/base/grow.h"
#include "runtime/base/read_file.h"

enum { CHUNK = 1 << 17, PIECE = 16 << 20, LINE_MOST = 1 << 20, AROUND = 320 };
_Static_assert((int)CHUNK >= (int)FCP_NPY_START, "the first piece holds a whole header");

/* --- what is wrong ------------------------------------------------------------------------------------------------ */

static bool is_wrong(data_file *f) {
    f->wrong = true;
    return false;
}

static bool refuse_reading(data_file *f, int why) {
    char room[128];
    if (!f->quiet) diag_error(f->s->d, FCP_E_READ, f->at, "cannot read '%s': %s", f->path, fcp_read_reason(why, room));
    if (!f->quiet && why == FCP_NOT_REGULAR) diag_hint(f->s->d, "write what it gives to a file first");
    return is_wrong(f);
}

static bool refuse_memory(data_file *f) {
    if (!f->quiet) diag_error(f->s->d, FCP_E_NO_MEMORY, SPAN_NONE, "out of memory reading '%s'", f->path);
    return is_wrong(f);
}

static bool refuse_size(data_file *f) {
    if (!f->quiet) diag_error(f->s->d, FCP_E_READ, f->at, "'%s' has more than %" PRIu64 " GiB", f->path, f->most >> 30);
    return is_wrong(f);
}

static bool refuse_text(data_file *f, const char *foreign, uint64_t where) {
    if (!f->quiet) diag_error(f->s->d, f->malformed, f->at, "'%s' is not text: %s, at byte %" PRIu64, f->path, foreign,
                              where);
    if (!f->quiet) diag_hint(f->s->d, "a text file is in UTF-8; numbers in binary are read from .npy");
    return is_wrong(f);
}

static bool refuse_spare(data_file *f, uint64_t bytes, uint64_t numbers) {
    if (!f->quiet) diag_error(f->s->d, f->malformed, f->at, "the first %" PRIu64 " bytes of '%s' hold %" PRIu64
                              " number%s: that is too much of something else", bytes, f->path, numbers,
                              text_plural(numbers));
    if (!f->quiet) diag_hint(f->s->d, "a text has at most 256 bytes for each number, with its comment, and 1 MiB");
    return is_wrong(f);
}

static bool refuse_line(data_file *f) {
    if (!f->quiet) diag_error(f->s->d, f->malformed, f->at, "line %" PRIu32 " of '%s' has more than %zu MiB",
                              f->number + 1, f->path, f->line_most >> 20);
    return is_wrong(f);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* Reads what there is room for. A NUL byte of a text is wrong at once: a sparse file has no end of them. */
static bool fill(data_file *f) {
    if (sema_stopped(f->s)) return is_wrong(f);
    const uint64_t left = f->size - f->taken, free_bytes = f->room - f->end;
    const uint64_t room = free_bytes < PIECE ? free_bytes : PIECE; /* so that a stop is soon noticed */
    char *to = f->bytes + f->end;
    const ssize_t got = fcp_read_some(f->fd, to, room < left ? room : left);
    if (got < 0) return refuse_reading(f, errno);
    const char *zero = f->taken >= CHUNK && !f->npy ? memchr(to, 0, (size_t)got) : NULL;
    if (zero) return refuse_text(f, "it holds a NUL byte", f->taken + (uint64_t)(zero - to));
    fcp_sha256_add(&f->hash, to, (size_t)got);
    f->last = got == 0;
    f->end += (size_t)got;
    f->taken += (uint64_t)got;
    return f->taken <= f->most || refuse_size(f);
}

static bool reserve(data_file *f, size_t room) { return FCP_GROW(f->bytes, f->room, room) || refuse_memory(f); }

/* Looks at the first piece: is it .npy, or text? */
static bool begin(data_file *f) {
    f->begin = f->end = f->line = f->line_size = 0;
    f->taken = f->number = 0;
    f->last = false;
    f->hash = fcp_sha256_begin();
    while (f->end < CHUNK && !f->last)
        if (!fill(f)) return false;
    f->npy = f->may_be_npy && sema_is_npy(f->path, f->bytes, f->end);
    if (f->npy) return true;
    size_t where;
    const char *foreign = text_foreign(f->bytes, f->end, &where);
    if (foreign) return refuse_text(f, foreign, where);
    if (f->end >= 3 && !memcmp(f->bytes, "\xef\xbb\xbf", 3)) f->begin = 3; /* the byte-order mark */
    return true;
}

bool sema_data_open(data_file *f, sema *s, const char *path, span at, uint64_t most, fcp_code malformed,
                    bool may_be_npy) {
    *f = (data_file){.s = s, .path = path, .at = at, .most = most, .malformed = malformed, .may_be_npy = may_be_npy,
                     .line_most = LINE_MOST, .fd = -1};
    const int why = fcp_read_open(path, s->regular_files, &f->fd, &f->size);
    if (why) return refuse_reading(f, why);
    if (f->size > most && f->size != UINT64_MAX) return refuse_size(f);
    return reserve(f, CHUNK) && begin(f);
}

void sema_data_close(data_file *f) {
    if (f->fd >= 0) close(f->fd);
    free(f->bytes);
    f->bytes = NULL;
    f->fd = -1;
}

void sema_data_hash(data_file *f, uint8_t out[FCP_SHA256_BYTES]) { fcp_sha256_end(&f->hash, out); }

/* --- text --------------------------------------------------------------------------------------------------------- */

bool sema_data_line(data_file *f, uint64_t numbers, const char **out, size_t *out_size) {
    const uint64_t used = f->taken - (f->end - f->begin);
    if (used > fcp_numbers_most(numbers)) return refuse_spare(f, used, numbers);
    const char *newline;
    for (size_t looked = f->begin;;) {
        newline = memchr(f->bytes + looked, '\n', f->end - looked);
        if (newline || f->last) break;
        f->end -= f->begin;
        memmove(f->bytes, f->bytes + f->begin, f->end);
        f->begin = 0;
        looked = f->end;
        if (looked >= f->line_most) return refuse_line(f);
        if ((f->end == f->room && !reserve(f, f->room + 1)) || !fill(f)) return false;
    }
    if (f->begin == f->end) return false;
    f->line = f->begin;
    f->line_size = newline ? (size_t)(newline - f->bytes) - f->begin : f->end - f->begin;
    f->begin += f->line_size + (newline != NULL);
    f->number++;
    *out = f->bytes + f->line;
    *out_size = f->line_size;
    return true;
}

span sema_data_span(data_file *f, size_t begin, size_t end) {
    const size_t from = begin > AROUND ? begin - AROUND : 0;
    const size_t to = f->line_size - begin > AROUND ? begin + AROUND : f->line_size;
    const uint32_t number =
        diag_excerpt(f->s->d, f->path, f->bytes + f->line + from, to - from, f->number - 1, (uint32_t)from);
    if (number == UINT32_MAX) return f->at;
    return (span){number, (uint32_t)(begin - from), (uint32_t)((end < to ? end : to) - from)};
}

span sema_data_line_again(data_file *f, uint32_t number) {
    const char *line;
    size_t size, first = 0;
    f->quiet = true;
    if (lseek(f->fd, 0, SEEK_SET) != 0 || !begin(f)) return f->at;
    while (f->number < number)
        if (!sema_data_line(f, UINT64_MAX, &line, &size)) return f->at;
    while (first < size && (text_is_blank(line[first]) || line[first] == ',')) first++;
    while (first < size && (text_is_blank(line[size - 1]) || line[size - 1] == ',')) size--;
    return sema_data_span(f, first, size);
}

/* --- .npy --------------------------------------------------------------------------------------------------------- */

bool sema_data_npy(data_file *f, fcp_npy *out) {
    fcp_error err = {0};
    const uint64_t size = f->size != UINT64_MAX ? f->size : f->last ? f->taken : UINT64_MAX;
    if (fcp_npy_header(f->path, f->bytes, size < f->end ? f->end : size, out, &f->npy_size, &err) == FCP_OK) {
        if (f->npy_size > f->most) return refuse_size(f);
        return true;
    }
    diag_error(f->s->d, f->malformed, f->at, "%s", err.message);
    return is_wrong(f);
}

bool sema_data_elements(data_file *f, fcp_npy *out) {
    fcp_error err = {0};
    /* Room for one byte more, by which it is seen to be too long. What only its header says is not allocated. */
    while (!f->last && f->end <= f->npy_size) {
        const size_t want = f->size != UINT64_MAX || f->npy_size < 2 * f->room ? f->npy_size + 1 : 2 * f->room;
        if ((f->end == f->room && !reserve(f, want)) || !fill(f)) return false;
    }
    if (fcp_npy_view(f->path, f->bytes, f->end, out, &err) == FCP_OK) return true;
    diag_error(f->s->d, f->malformed, f->at, "%s", err.message);
    return is_wrong(f);
}
