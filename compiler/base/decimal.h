/* decimal.h: reads decimal text as whole numbers of a unit: 1.5 GB as 1500000000 bytes. */
#ifndef FCPC_BASE_DECIMAL_H
#define FCPC_BASE_DECIMAL_H
#include <stdbool.h>
#include <stdint.h>

/* Reads the text "ddd.ddd", perhaps with an exponent, as mantissa * 10^exponent. False: it has more than 18 significant
 * digits. */
bool decimal_parse(const char *digits, uint64_t *mantissa, int *exponent);
/* mantissa * 10^exponent, rounded to the nearest whole number, halves up. False: it does not fit 63 bits. */
bool decimal_scale(uint64_t mantissa, int exponent, uint64_t *out);
#endif
