/* format.h: a program laid out in one way, its comments kept. */
#ifndef FCPC_SYNTAX_FORMAT_H
#define FCPC_SYNTAX_FORMAT_H
#include "compiler/base/diag.h"
#include "compiler/base/text.h"

/* Lays out a program that parses (it need not check): one statement a line, four spaces a level, one space where the
 * layout has one. Order, spelling of numbers, parentheses and comments are the author's. Formatting the result gives it
 * again, and its tree is that of the source. Adds to *out. On failure the code of the first error, and `d` holds them.
 * */
fcp_code format_source(const char *name, const char *bytes, size_t size, diags *d, text *out);
#endif
