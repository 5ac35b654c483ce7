/* real.h: decimal text to double and back, the same on every machine and in every locale. */
#ifndef FCPC_BASE_REAL_H
#define FCPC_BASE_REAL_H
#include <stdbool.h>

#include "compiler/base/text.h"

/* The double nearest to the text "ddd" or "ddd.ddd", perhaps with an exponent e+dd; ties go to even. False: it is
 * beyond the largest double. */
bool real_parse(const char *digits, double *out);
/* Writes a finite x as the language writes numbers (0.5, 30.0, 1.0e-30), with the fewest digits that real_parse reads
 * back as x. */
void real_print(double x, text *out);
/* The same with six digits at most, for people. x may also be infinite or NaN: "inf", "-inf", "nan". */
void real_print_short(double x, text *out);
#endif
