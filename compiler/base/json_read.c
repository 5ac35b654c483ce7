/* json_read.c: reads JSON text from memory.
 *
 * Requires: any bytes.
 * Gives:    values, or the first place at which the text is not what the caller expects.
 * Cost:     linear in the text. Nothing here is recursive: the caller enters nested values by itself.
 * Source:   RFC 8259; strings must be UTF-8 (RFC 3629).
 */
#include "compiler/base/json_read.h"

#include <string.h>

#include "compiler/base/real.h"

bool json_fault(json_reader *r, const char *why) {
    if (!r->why) r->why = why;
    return false;
}

bool json_no_memory(json_reader *r) {
    r->no_memory |= !r->why;
    return json_fault(r, "out of memory");
}

char json_peek(json_reader *r) {
    while (r->at < r->end && (text_is_blank(*r->at) || *r->at == '\n')) r->at++;
    return r->at < r->end ? *r->at : 0;
}

bool json_enter(json_reader *r, char bracket) {
    if (r->why) return false;
    if (json_peek(r) != bracket) return json_fault(r, bracket == '{' ? "expected an object" : "expected an array");
    r->at++;
    return r->fresh = true;
}

bool json_more(json_reader *r, char close) {
    if (r->why) return false;
    const bool first = r->fresh;
    const char c = json_peek(r);
    r->fresh = false;
    if (c == close) return r->at++, false;
    if (first) return true;
    if (c != ',') return json_fault(r, close == '}' ? "expected , or }" : "expected , or ]");
    r->at++;
    return true;
}

/* Reads four hexadecimal digits of a \u escape. */
static bool read_unit(json_reader *r, uint32_t *out) {
    *out = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        static const char digits[] = "0123456789abcdef";
        const char *digit = r->at < r->end && *r->at ? strchr(digits, *r->at | (*r->at >= 'A' ? 0x20 : 0)) : NULL;
        if (!digit) return json_fault(r, "expected four hexadecimal digits");
        *out = *out * 16 + (uint32_t)(digit - digits);
    }
    return true;
}

/* Reads what follows "\u", both halves if it is the first of a pair, and adds the character as UTF-8. */
static bool read_escaped(json_reader *r, text *out) {
    uint32_t c, low = 0;
    if (!read_unit(r, &c)) return false;
    if (c >= 0xD800 && c < 0xDC00) {
        if (r->end - r->at < 2 || r->at[0] != '\\' || r->at[1] != 'u') return json_fault(r, "half a character");
        r->at += 2;
        if (!read_unit(r, &low)) return false;
        if (low < 0xDC00 || low >= 0xE000) return json_fault(r, "half a character");
        c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
    } else if (c >= 0xDC00 && c < 0xE000) return json_fault(r, "half a character");
    if (!c) return json_fault(r, "a string must not hold a NUL");
    const int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const uint8_t lead[] = {0, 0xC0, 0xE0, 0xF0};
    char bytes[4] = {(char)(lead[more] | c >> 6 * more)};
    for (int i = 1; i <= more; i++) bytes[i] = (char)(0x80 | (c >> 6 * (more - i) & 0x3F));
    text_add(out, bytes, 1 + (size_t)more);
    return true;
}

static bool read_escape(json_reader *r, text *out) {
    static const char letters[] = "\"\\/bfnrt", bytes[] = "\"\\/\b\f\n\r\t";
    const char letter = r->at < r->end ? *r->at : 0;
    const char *known = letter ? strchr(letters, letter) : NULL;
    if (letter != 'u' && !known) return json_fault(r, "no such escape");
    r->at++;
    if (letter == 'u') return read_escaped(r, out);
    text_add(out, &bytes[known - letters], 1);
    return true;
}

bool json_read_string(json_reader *r, text *out) {
    if (r->why) return false;
    if (json_peek(r) != '"') return json_fault(r, "expected a string");
    r->at++;
    out->size = 0;
    while (r->at < r->end && *r->at != '"') {
        const char *run = r->at;
        while (r->at < r->end && *r->at != '"' && *r->at != '\\') {
            const size_t size = text_utf8(r->at, (size_t)(r->end - r->at));
            if (!size) return json_fault(r, "not UTF-8");
            if ((unsigned char)*r->at < 0x20) return json_fault(r, "a control character in a string: write it escaped");
            r->at += size;
        }
        text_add(out, run, (size_t)(r->at - run));
        if (r->at < r->end && *r->at == '\\') {
            r->at++;
            if (!read_escape(r, out)) return false;
        }
    }
    if (r->at == r->end) return json_fault(r, "a string without its end");
    r->at++;
    text_add(out, "", 1);
    if (!out->failed) out->size--;
    return !out->failed || json_no_memory(r);
}

bool json_key(json_reader *r, text *out) {
    if (!json_read_string(r, out)) return false;
    if (json_peek(r) != ':') return json_fault(r, "expected :");
    r->at++;
    return true;
}

/* Reads the digits of a whole number that may be at most `most`. A sign has been read already. */
static bool read_whole(json_reader *r, uint64_t most, uint64_t *out) {
    const char *digits = r->at;
    *out = 0;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++)
        if (__builtin_mul_overflow(*out, 10, out) || __builtin_add_overflow(*out, (uint64_t)(*r->at - '0'), out) ||
            *out > most)
            return json_fault(r, "a number out of range");
    const size_t count = (size_t)(r->at - digits);
    const bool goes_on = r->at < r->end && strchr(".eE", *r->at) && *r->at;
    if (!count || goes_on || (count > 1 && *digits == '0')) return json_fault(r, "expected a whole number");
    return true;
}

bool json_read_u64(json_reader *r, uint64_t *out) {
    if (r->why) return false;
    json_peek(r);
    return read_whole(r, UINT64_MAX, out);
}

bool json_read_i64(json_reader *r, int64_t *out) {
    if (r->why) return false;
    uint64_t size;
    const bool negative = json_peek(r) == '-';
    if (negative) r->at++;
    if (!read_whole(r, (uint64_t)INT64_MAX + negative, &size)) return false;
    *out = negative ? (int64_t)-size : (int64_t)size;
    return true;
}

static const char *skip_digits(const char *at) {
    while (*at >= '0' && *at <= '9') at++;
    return at;
}

/* Is this, behind a sign, a number as JSON writes it? It ends with a NUL. */
static bool is_number(const char *begin) {
    const char *at = skip_digits(begin);
    if (at == begin || (*begin == '0' && at - begin > 1)) return false;
    if (*at == '.') {
        const char *digits = at + 1;
        at = skip_digits(digits);
        if (at == digits) return false;
    }
    if (*at == 'e' || *at == 'E') {
        const char *digits = at + 1 + (at[1] == '+' || at[1] == '-');
        at = skip_digits(digits);
        if (at == digits) return false;
    }
    return !*at;
}

bool json_read_number(json_reader *r, json_number *out) {
    enum { LONGEST = 64 };
    if (r->why) return false;
    char copy[LONGEST] = "";
    const bool negative = json_peek(r) == '-';
    const char *from = r->at + negative, *to = from;
    while (to < r->end && *to && strchr("0123456789.eE+-", *to)) to++;
    const size_t size = (size_t)(to - from);
    *out = (json_number){.is_real = memchr(from, '.', size) || memchr(from, 'e', size) || memchr(from, 'E', size)};
    if (!out->is_real) return json_read_i64(r, &out->whole);
    if (size >= LONGEST) return json_fault(r, "a number of more than 63 characters");
    memcpy(copy, from, size);
    if (!is_number(copy)) return json_fault(r, "expected a number");
    if (!real_parse(copy, &out->real)) return json_fault(r, "a number out of range");
    if (negative) out->real = -out->real;
    r->at = to;
    return true;
}

/* Reads a word such as null. */
static bool read_word(json_reader *r, const char *word) {
    const size_t size = strlen(word);
    if (r->why) return false;
    json_peek(r);
    if ((size_t)(r->end - r->at) < size || memcmp(r->at, word, size)) return json_fault(r, "expected a value");
    r->at += size;
    return true;
}

bool json_read_bool(json_reader *r, bool *out) {
    const bool yes = !r->why && json_peek(r) == 't';
    if (!read_word(r, yes ? "true" : "false")) return false;
    *out = yes;
    return true;
}

/* Reads a value that is no object and no array. */
static bool skip_leaf(json_reader *r, text *room) {
    json_number number;
    bool condition;
    switch (json_peek(r)) {
    case '"': return json_read_string(r, room);
    case 't':
    case 'f': return json_read_bool(r, &condition);
    case 'n': return read_word(r, "null");
    default: return json_read_number(r, &number);
    }
}

bool json_skip(json_reader *r, text *room) {
    char close[JSON_SKIP_DEPTH];
    size_t depth = 0;
    do {
        if (depth && !json_more(r, close[depth - 1])) {
            if (r->why) return false;
            depth--;
            continue;
        }
        if (depth && close[depth - 1] == '}' && !json_key(r, room)) return false;
        const char c = json_peek(r);
        if (c != '{' && c != '[') {
            if (!skip_leaf(r, room)) return false;
            continue;
        }
        if (depth == JSON_SKIP_DEPTH) return json_fault(r, "nested too deep");
        if (!json_enter(r, c)) return false;
        close[depth++] = c == '{' ? '}' : ']';
    } while (depth);
    return !r->why;
}

bool json_finish(json_reader *r) {
    if (r->why) return false;
    json_peek(r);
    return r->at == r->end || json_fault(r, "the value has ended, and something follows");
}
