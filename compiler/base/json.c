/* json.c: writes JSON text into memory.
 *
 * Requires: calls in the order of the text; json_end for every json_object and json_array.
 * Gives:    one line of text, members separated by ", ".
 * Cost:     linear in the text.
 * Source:   RFC 8259. A number is printed with enough digits to read back as the same double.
 */
#include "compiler/base/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put_string(json *j, const char *string) {
    text_add(&j->out, "\"", 1);
    const char *s = string, *end = string + strlen(string);
    while (s < end) {
        char escape[8];
        size_t n = text_utf8(s, (size_t)(end - s));
        if (n == 0) {
            text_add(&j->out, "\\ufffd", 6);
            n = 1;
        } else if (*s == '"' || *s == '\\') {
            text_add(&j->out, (char[]){'\\', *s}, 2);
        } else if ((unsigned char)*s < 0x20 || *s == 0x7F) {
            snprintf(escape, sizeof escape, "\\u%04x", *s);
            text_add(&j->out, escape, 6);
        } else {
            text_add(&j->out, s, n);
        }
        s += n;
    }
    text_add(&j->out, "\"", 1);
}

/* Writes what comes before a value: a comma, if something is before it, and the key. */
static void begin_value(json *j, const char *key) {
    if (j->depth > 0) {
        if (j->filled[j->depth - 1]) text_add(&j->out, ", ", 2);
        j->filled[j->depth - 1] = true;
    }
    if (key) {
        put_string(j, key);
        text_add(&j->out, ": ", 2);
    }
}

static void open(json *j, const char *key, char bracket, char close) {
    begin_value(j, key);
    text_add(&j->out, &bracket, 1);
    if (j->depth == JSON_MAX_DEPTH) {
        j->wrong = true;
        return;
    }
    j->filled[j->depth] = false;
    j->close[j->depth++] = close;
}

void json_object(json *j, const char *key) { open(j, key, '{', '}'); }
void json_array(json *j, const char *key) { open(j, key, '[', ']'); }

void json_end(json *j) {
    if (j->depth == 0) {
        j->wrong = true;
        return;
    }
    text_add(&j->out, &j->close[--j->depth], 1);
}

void json_u64(json *j, const char *key, uint64_t value) {
    begin_value(j, key);
    text_number(&j->out, value);
}

void json_i64(json *j, const char *key, int64_t value) {
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%" PRId64, value);
    begin_value(j, key);
    text_add(&j->out, digits, (size_t)n);
}

void json_double(json *j, const char *key, double value) {
    if (!(value - value == 0)) { /* NaN or infinite */
        json_null(j, key);
        return;
    }
    char digits[40];
    int n = 0;
    for (int precision = 6; precision <= 17; precision++) { /* the shortest of a few that reads back the same */
        n = snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (strtod(digits, NULL) == value) break;
    }
    for (int i = 0; i < n; i++)
        if (digits[i] == ',') digits[i] = '.'; /* a locale's decimal comma */
    begin_value(j, key);
    text_add(&j->out, digits, (size_t)n);
}

void json_bool(json *j, const char *key, bool value) {
    begin_value(j, key);
    text_add(&j->out, value ? "true" : "false", value ? 4 : 5);
}

void json_null(json *j, const char *key) {
    begin_value(j, key);
    text_add(&j->out, "null", 4);
}

void json_string(json *j, const char *key, const char *string) {
    if (!string) {
        json_null(j, key);
        return;
    }
    begin_value(j, key);
    put_string(j, string);
}

const char *json_text(json *j) {
    text_add(&j->out, "", 1);
    return j->out.failed || j->wrong || j->depth != 0 ? NULL : j->out.at;
}

void json_free(json *j) {
    text_free(&j->out);
    *j = (json){0};
}

fcp_code json_hand_over(json *j, fcp_code code, char **out_text, fcp_error *err) {
    j->out.failed |= j->wrong || j->depth != 0;
    code = text_hand_over(&j->out, code, out_text, err);
    json_free(j);
    return code;
}
