/* positions.c: finds the byte of a position, and the position of a byte.
 *
 * Requires: a text in UTF-8 of less than 4 GiB.
 * Cost:     a map of the lines is O(text); a position then takes O(log lines + its line).
 * Source:   Language Server Protocol 3.17, "Position".
 */
#include "compiler/lsp/positions.h"

#include <stdlib.h>

#include "compiler/base/bisect.h"
#include "compiler/base/text.h"

/* Does a line begin behind byte i? */
static bool ends_line(const char *bytes, size_t size, size_t i) {
    return bytes[i] == '\n' || (bytes[i] == '\r' && (i + 1 == size || bytes[i + 1] != '\n'));
}

bool lsp_lines_make(lsp_lines *l, const char *bytes, size_t size, lsp_encoding encoding) {
    uint32_t count = 1;
    for (size_t i = 0; i < size; i++) count += ends_line(bytes, size, i);
    uint32_t *begin = malloc(count * sizeof *begin);
    lsp_lines_free(l);
    if (!begin) return false;
    *l = (lsp_lines){bytes, (uint32_t)size, 0, begin, encoding};
    begin[l->count++] = 0;
    for (size_t i = 0; i < size; i++)
        if (ends_line(bytes, size, i)) begin[l->count++] = (uint32_t)i + 1;
    return true;
}

void lsp_lines_free(lsp_lines *l) {
    free(l->begin);
    *l = (lsp_lines){0};
}

/* The bytes of the character at `at`, and how many units it has. */
static size_t step(const lsp_lines *l, size_t at, uint32_t *units) {
    const size_t size = text_utf8(l->bytes + at, l->size - at);
    *units = l->encoding == LSP_UTF8 ? (uint32_t)(size ? size : 1) : size == 4 ? 2 : 1;
    return size ? size : 1;
}

lsp_position lsp_lines_position(const lsp_lines *l, size_t offset) {
    uint32_t next = 1, end = l->count, units;
    if (offset > l->size) offset = l->size;
    if (!l->count) return (lsp_position){0, 0};
    BISECT(next, end, i, l->begin[i] <= offset)
    lsp_position at = {next - 1, 0};
    for (size_t i = l->begin[next - 1], size; i < offset; i += size) {
        size = step(l, i, &units);
        if (i + size <= offset) at.character += units;
    }
    return at;
}

size_t lsp_lines_offset(const lsp_lines *l, lsp_position at) {
    if (at.line >= l->count) return l->size;
    const size_t end = at.line + 1 < l->count ? l->begin[at.line + 1] : l->size;
    size_t i = l->begin[at.line];
    for (uint32_t left = at.character, units; i < end && l->bytes[i] != '\n' && l->bytes[i] != '\r'; left -= units) {
        const size_t size = step(l, i, &units);
        if (left < units) break;
        i += size;
    }
    return i;
}
