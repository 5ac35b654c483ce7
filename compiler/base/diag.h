/* diag.h: collects errors and warnings, each with its place in a source; the caller decides whether to print them. */
#ifndef FCPC_BASE_DIAG_H
#define FCPC_BASE_DIAG_H
#include "runtime/fcp.h"

/* The bytes [begin, end) of source number `source` of a diagnostics object. */
typedef struct span {
    uint32_t source, begin, end;
} span;
#define SPAN_NONE ((span){UINT32_MAX, 0, 0})
static inline bool diag_same_span(span a, span b) {
    return a.source == b.source && a.begin == b.begin && a.end == b.end;
}

typedef struct fcpc_diagnostics diags; /* public name in fcpc.h */

/* Registers a copy of a text under the name that errors show. `builtin` marks the prelude. Returns its number;
 * UINT32_MAX: no memory. */
uint32_t diag_source(diags *d, const char *name, const char *text, size_t size, bool builtin);
/* The same for a part of a text, whose first byte is at this line and column, counted from 0. If the part begins or
 * ends within a line, it should have 160 bytes of that line before and behind the place that is to be shown. */
uint32_t diag_excerpt(diags *d, const char *name, const char *text, size_t size, uint32_t line, uint32_t column);

/* The sources that are registered, numbered from 0. Names and texts belong to `d`. */
uint32_t diag_source_count(const diags *d);
void diag_source_get(const diags *d, uint32_t source, const char **name, const char **text, size_t *size,
                     bool *builtin);
/* The line and column of its first byte, from 0. */
void diag_source_begin(const diags *d, uint32_t source, uint32_t *line, uint32_t *column);

/* Adds an error or warning at a place. After DIAG_MAX_ERRORS errors, further ones are counted but not kept. */
enum { DIAG_MAX_ERRORS = 20 };
void diag_error(diags *d, fcp_code code, span at, const char *format, ...) __attribute__((format(printf, 4, 5)));
void diag_warning(diags *d, span at, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Add to the newest diagnostic: a second place with a text of its own ("defined here"), or a line with a hint. */
void diag_also(diags *d, span at, const char *format, ...) __attribute__((format(printf, 3, 4)));
void diag_hint(diags *d, const char *format, ...) __attribute__((format(printf, 2, 3)));

size_t diag_errors(const diags *d);
fcp_code diag_first_code(const diags *d); /* FCP_OK when there is no error */
/* The code of the first error that was reported since fcpc_diagnostics_count was `count`. If that error is not kept
 * (there were too many before it), the code of the very first. */
fcp_code diag_code_since(const diags *d, size_t count);

/* The place of diagnostic number i of fcpc_diagnostics_get. */
span diag_at(const diags *d, size_t i);
/* Note number n of that diagnostic, from 0: a second place, or a hint, whose place is SPAN_NONE. False: there are
 * fewer. */
bool diag_note(const diags *d, size_t i, size_t n, span *out_at, const char **out_text);

/* Where a span begins: the name of its source ("": it has none), line and column, both from 1. */
void diag_place(const diags *d, span at, const char **file, uint32_t *line, uint32_t *column);

/* The same as fcpc_diagnostics_render, but only for the diagnostics from number `first` on. */
char *diag_render(const diags *d, size_t first, bool colour);

/* The one of `names` that `name` may be a misspelling of: the nearest, if their edit distance is at most a third of the
 * length of `name`; else NULL. */
const char *diag_nearest(const char *name, size_t length, const char *const *names, size_t count);
#endif
