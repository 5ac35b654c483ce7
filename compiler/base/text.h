/* text.h: a growing string. It is zero-initialised. If an allocation fails, `failed` is set, and whatever is added
 * later is dropped; so it is enough to look at `failed` in the end. */
#ifndef FCPC_BASE_TEXT_H
#define FCPC_BASE_TEXT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "runtime/fcp.h"

typedef struct text {
    char *at;
    size_t size, room;
    bool failed;
} text;

void text_add(text *t, const char *bytes, size_t size);
static inline void text_puts(text *t, const char *string) { text_add(t, string, strlen(string)); }
void text_number(text *t, uint64_t value); /* in decimal, ten times as fast as text_printf */
void text_pad(text *t, char c, size_t count);
void text_printf(text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Adds the contents of a file, but stops when t has `most` + 1 bytes, by which the caller knows that it is too large.
 * `regular`, and the result: as of fcp_read_open; but where memory ran out 0, and t->failed is set. */
int text_read(text *t, const char *path, bool regular, size_t most);
/* How many bytes the UTF-8 character at `bytes` has, of which `left` are there; 0: it is none (RFC 3629: no overlong
 * forms, no surrogates). */
size_t text_utf8(const char *bytes, size_t left);
static inline bool text_is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }
/* Looks for what shows that bytes are no UTF-8 text: a NUL byte, or UTF-16. Says what it found ("it is UTF-16"),
 * and where; NULL: nothing. */
const char *text_foreign(const char *bytes, size_t size, size_t *out_at);
/* Hands the bytes over, NUL-terminated and malloc'd (caller frees), and empties t. NULL if anything failed. */
char *text_take(text *t);
void text_free(text *t);
/* The end of a function that makes a string for its caller: hands it over as text_take does, if `code` is FCP_OK; else
 * frees it. Returns `code`, or FCP_E_NO_MEMORY. */
fcp_code text_hand_over(text *t, fcp_code code, char **out_text, fcp_error *err);
/* The ending of a noun: "" for 1, else "s". */
static inline const char *text_plural(uint64_t count) { return count == 1 ? "" : "s"; }
#endif
