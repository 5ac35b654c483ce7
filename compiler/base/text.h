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
/* Adds the contents of a file. It stops when t has `most` + 1 bytes, from which the caller sees that the file is too
 * large. `regular` and the result are those of fcp_read_open; but if memory runs out, the result is 0 and t->failed is
 * set. */
int text_read(text *t, const char *path, bool regular, size_t most);
/* The length of the UTF-8 character at `bytes`, where `left` bytes are left. 0: there is no such character, because it
 * is cut off, overlong or a surrogate (RFC 3629). */
size_t text_utf8(const char *bytes, size_t left);
static inline bool text_is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }
/* Looks for signs that bytes are no UTF-8 text: a NUL byte, or UTF-16. Returns what it found, such as "it is UTF-16",
 * and its place; NULL: nothing. */
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
