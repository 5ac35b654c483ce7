/* errors.c: the names and texts of error codes, from the one table in errors.def; and functions that fill errors. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "runtime/fcp.h"

static const struct { const char *name, *text; } table[] = {
    [FCP_OK] = {"ok", "no error"},
#define FCP_ERROR(symbol, code, text) [FCP_E_##symbol] = {code, text},
#include "runtime/errors.def"
#undef FCP_ERROR
};

const char *fcp_code_name(fcp_code code) { return (unsigned)code < FCP_CODE_COUNT ? table[code].name : "E???"; }
const char *fcp_code_text(fcp_code code) {
    return (unsigned)code < FCP_CODE_COUNT ? table[code].text : "unknown error";
}

int fcp_code_exit(fcp_code code) {
    if (code == FCP_OK) return 0;
    if (code == FCP_E_USAGE) return 2;
    return code == FCP_E_INTERNAL ? 3 : 1;
}

/* The arguments may be parts of *err itself, so the message is made before *err is overwritten. */
__attribute__((format(printf, 4, 0)))
static void fill(fcp_error *err, fcp_code code, fcp_where where, const char *format, va_list args) {
    if (!err) return;
    fcp_error made = {.code = code, .where = where};
    vsnprintf(made.message, sizeof made.message, format, args);
    *err = made;
}

fcp_code fcp_fail(fcp_error *err, fcp_code code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fill(err, code, FCP_WHERE_NONE, format, args);
    va_end(args);
    return code;
}

fcp_code fcp_fail_at(fcp_error *err, fcp_code code, fcp_where where, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fill(err, code, where, format, args);
    va_end(args);
    return code;
}

fcp_code fcp_fail_in(fcp_error *err, fcp_code code, const char *file, uint32_t line, uint32_t column,
                     const char *format, ...) {
    fcp_error made; /* `file` too may be a part of *err */
    va_list args;
    va_start(args, format);
    fill(&made, code, FCP_WHERE_NONE, format, args);
    va_end(args);
    snprintf(made.file, sizeof made.file, "%s", file);
    made.line = line;
    made.column = column;
    if (err) *err = made;
    return code;
}

size_t fcp_dtype_size(fcp_dtype t) { return t == FCP_FP32 ? 4 : 2; }
