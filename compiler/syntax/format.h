/* format.h: lays out a program and keeps its comments. */
#ifndef FCPC_SYNTAX_FORMAT_H
#define FCPC_SYNTAX_FORMAT_H
#include "compiler/base/diag.h"
#include "compiler/base/text.h"

/* Lays out a program, and adds the text to *out. The program must parse; its names and types are not checked. There is
 * one statement on a line, four spaces before each level, and one space wherever there is space. The author's order,
 * spelling of numbers, parentheses and comments stay. The result has the tree of the source, and laying it out again
 * changes nothing. On failure, returns the code of the first error; `d` has them all. */
fcp_code format_source(const char *name, const char *bytes, size_t size, diags *d, text *out);
#endif
