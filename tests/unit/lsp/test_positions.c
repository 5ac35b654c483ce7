/* test_positions.c: tests places of the language server against their definition: units of UTF-16 or UTF-8, counted one
 * by one. */
#include <criterion/criterion.h>
#include <string.h>

#include "compiler/lsp/positions.h"

/* One byte, two, three and four; all ends of lines, and an empty last line. */
static const char all[] = "a\u00e9\u20ac\U0001F600b\n\r\nx\r\u00fcy\r\r\n\U0001F600\n";

static size_t bytes_of(unsigned char first) { return first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4; }

/* Counts from the beginning of the text to `offset`, which begins a character. */
static lsp_position counted(const char *bytes, size_t offset, lsp_encoding encoding) {
    lsp_position at = {0, 0};
    for (size_t i = 0; i < offset;) {
        const size_t size = bytes_of((unsigned char)bytes[i]);
        const bool ends = bytes[i] == '\n' || (bytes[i] == '\r' && bytes[i + 1] != '\n');
        at.character += encoding == LSP_UTF8 ? (uint32_t)size : size == 4 ? 2 : 1;
        if (ends) at = (lsp_position){at.line + 1, 0};
        i += size;
    }
    return at;
}

Test(positions, of_every_character) {
    for (int encoding = LSP_UTF16; encoding <= LSP_UTF8; encoding++) {
        lsp_lines l = {0};
        cr_assert(lsp_lines_make(&l, all, strlen(all), (lsp_encoding)encoding));
        for (size_t i = 0; i <= strlen(all); i += i < strlen(all) ? bytes_of((unsigned char)all[i]) : 1) {
            const lsp_position right = counted(all, i, (lsp_encoding)encoding), at = lsp_lines_position(&l, i);
            cr_expect(at.line == right.line && at.character == right.character, "%zu: %u:%u", i, at.line, at.character);
            /* between \r and \n is the end of the line */
            if (i && all[i - 1] == '\r' && all[i] == '\n') continue;
            cr_expect_eq(lsp_lines_offset(&l, right), i);
        }
        lsp_lines_free(&l);
    }
}

Test(positions, beyond_and_inside) {
    lsp_lines l = {0};
    cr_assert(lsp_lines_make(&l, all, strlen(all), LSP_UTF16));
    const size_t smile = strlen("a\u00e9\u20ac");
    cr_expect_eq(lsp_lines_offset(&l, (lsp_position){0, 4}), smile); /* half of it */
    cr_expect_eq(lsp_lines_offset(&l, (lsp_position){0, 5}), smile + 4);
    cr_expect_eq(lsp_lines_offset(&l, (lsp_position){0, 99}), smile + 5);
    cr_expect_eq(lsp_lines_offset(&l, (lsp_position){1, UINT32_MAX}), smile + 6);
    cr_expect_eq(lsp_lines_offset(&l, (lsp_position){99, 0}), strlen(all));
    cr_assert(lsp_lines_make(&l, all, strlen(all), LSP_UTF8));
    cr_expect_eq(lsp_lines_offset(&l, (lsp_position){0, (uint32_t)smile + 3}), smile);
    cr_assert(lsp_lines_make(&l, "", 0, LSP_UTF8));
    cr_expect_eq(lsp_lines_offset(&l, (lsp_position){0, 1}), 0);
    cr_expect_eq(lsp_lines_position(&l, 5).line, 0);
    lsp_lines_free(&l);
}
