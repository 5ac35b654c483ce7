/* text.h: a growing string. Zero-initialised; after a failed allocation `failed` is set and additions do nothing. */
#ifndef FCPC_BASE_TEXT_H
#define FCPC_BASE_TEXT_H
#include <stdbool.h>
#include <stddef.h>

typedef struct text {
    char *at;
    size_t size, room;
    bool failed;
} text;

void text_add(text *t, const char *bytes, size_t size);
void text_puts(text *t, const char *string);
void text_pad(text *t, char c, size_t count);
void text_printf(text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Adds what a file holds until t has `most` + 1 bytes, which says that it is too large. Returns
 * 0, or the errno value of what failed; a failed allocation is in `failed` as always. */
int text_read(text *t, const char *path, size_t most);
/* Looks for what shows that bytes are no UTF-8 text: a NUL byte, or UTF-16. Says what it found ("it is UTF-16"),
 * and where; NULL: nothing. */
const char *text_foreign(const char *bytes, size_t size, size_t *out_at);
/* Hands the bytes over, NUL-terminated and malloc'd (caller frees), and empties t. NULL if anything failed. */
char *text_take(text *t);
void text_free(text *t);
#endif
