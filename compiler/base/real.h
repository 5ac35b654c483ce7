/* real.h: real numbers between text and double, the same on every machine and in every locale. */
#ifndef FCPC_BASE_REAL_H
#define FCPC_BASE_REAL_H
#include <stdbool.h>

#include "compiler/base/text.h"

/* Decimal text "ddd", "ddd.ddd", perhaps with e+dd, E-dd, to the nearest double, ties to even. False: beyond the
 * largest. */
bool real_parse(const char *digits, double *out);
/* The fewest digits that real_parse reads back as x, as the language writes a number: 0.5, 30.0, 1.0e-30. x is
 * finite. */
void real_print(double x, text *out);
/* The same to six digits, for people; "nan", "inf" and "-inf" as well. */
void real_print_short(double x, text *out);
#endif
