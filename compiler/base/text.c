/* text.c: a growing string, and reading files into one. Its room grows by half when it is full, so adding n bytes
 * costs O(n). */
#include "compiler/base/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/grow.h"
#include "runtime/base/read_file.h"

enum { CHUNK = 1 << 14 }; /* the least that is read of a file at once */

/* Makes room for `more` bytes and a NUL. */
static bool reserve(text *t, size_t more) {
    t->failed |= more > SIZE_MAX / 4 || !FCP_GROW(t->at, t->room, t->size + more + 1);
    return !t->failed;
}

void text_add(text *t, const char *bytes, size_t size) {
    if (!size || !reserve(t, size)) return;
    memcpy(t->at + t->size, bytes, size);
    t->size += size;
}

void text_number(text *t, uint64_t value) {
    char digits[20];
    size_t at = sizeof digits;
    do digits[--at] = (char)('0' + value % 10);
    while (value /= 10);
    text_add(t, digits + at, sizeof digits - at);
}

void text_pad(text *t, char c, size_t count) {
    if (!count || !reserve(t, count)) return;
    memset(t->at + t->size, c, count);
    t->size += count;
}

void text_printf(text *t, const char *format, ...) {
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    if (reserve(t, 0)) { /* what there is room for is printed once */
        const size_t left = t->room - t->size;
        const int size = vsnprintf(t->at + t->size, left, format, args);
        if (size < 0) t->failed = true;
        else if ((size_t)size < left) t->size += (size_t)size;
        else if (reserve(t, (size_t)size)) {
            vsnprintf(t->at + t->size, (size_t)size + 1, format, again);
            t->size += (size_t)size;
        }
    }
    va_end(args);
    va_end(again);
}

/* Tells lack of memory from other failures: sets t->failed and returns 0 if `why` is ENOMEM, else returns `why`. */
static int failure(text *t, int why) {
    if (why == ENOMEM) t->failed = true;
    return why == ENOMEM ? 0 : why;
}

int text_read(text *t, const char *path, bool regular, size_t most) {
    int fd;
    uint64_t size;
    int why = fcp_read_open(path, regular, &fd, &size);
    if (why) return failure(t, why);
    for (ssize_t got = 1; got > 0 && t->size <= most && reserve(t, CHUNK);) {
        const size_t left = t->room - t->size - 1, wanted = left > most - t->size ? most - t->size + 1 : left;
        got = fcp_read_some(fd, t->at + t->size, wanted);
        if (got < 0) why = failure(t, errno);
        else t->size += (size_t)got;
    }
    close(fd);
    return why;
}

const char *text_foreign(const char *bytes, size_t size, size_t *out_at) {
    *out_at = 0;
    bool marked = size >= 2 && (!memcmp(bytes, "\xff\xfe", 2) || !memcmp(bytes, "\xfe\xff", 2));
    bool every_other = size >= 2 && !bytes[0] != !bytes[1]; /* as ASCII characters are in UTF-16 */
    if (marked || every_other) return "it is UTF-16";
    const char *zero = memchr(bytes, 0, size);
    if (!zero) return NULL;
    *out_at = (size_t)(zero - bytes);
    return "it holds a NUL byte";
}

size_t text_utf8(const char *bytes, size_t left) {
    const unsigned char *s = (const unsigned char *)bytes;
    size_t n = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf5 ? 4 : 0;
    if (!n || n > left) return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
        (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return n;
}

char *text_take(text *t) {
    if (!reserve(t, 0)) {
        text_free(t);
        return NULL;
    }
    char *at = t->at;
    at[t->size] = 0;
    *t = (text){0};
    return at;
}

void text_free(text *t) {
    free(t->at);
    *t = (text){0};
}

fcp_code text_hand_over(text *t, fcp_code code, char **out_text, fcp_error *err) {
    char *made = code ? NULL : text_take(t);
    text_free(t);
    if (!code && !made) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    if (made) *out_text = made;
    return code;
}
