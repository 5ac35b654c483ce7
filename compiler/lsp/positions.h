/* positions.h: places of a text as editors count them: a line, and a character in it, both from 0. */
#ifndef FCPC_LSP_POSITIONS_H
#define FCPC_LSP_POSITIONS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a character is: a code unit of UTF-16 (two for what is beyond U+FFFF), or a byte of UTF-8. */
typedef enum lsp_encoding { LSP_UTF16, LSP_UTF8 } lsp_encoding;

typedef struct lsp_position {
    uint32_t line, character;
} lsp_position;

/* Where the lines of a text begin. Lines end with \n, \r\n or \r, as the protocol says. Zero-initialised, it is that of
 * no text. The text is borrowed. */
typedef struct lsp_lines {
    const char *bytes;
    uint32_t size, count;
    uint32_t *begin; /* malloc'd */
    lsp_encoding encoding;
} lsp_lines;

/* Makes it anew; false: no memory. */
bool lsp_lines_make(lsp_lines *l, const char *bytes, size_t size, lsp_encoding encoding);
void lsp_lines_free(lsp_lines *l);
lsp_position lsp_lines_position(const lsp_lines *l, size_t offset);
/* The byte at a position. A character beyond the end of its line is that end, a line beyond the last the end of the
 * text. A position inside a character of several units is where the character begins. */
size_t lsp_lines_offset(const lsp_lines *l, lsp_position at);
#endif
