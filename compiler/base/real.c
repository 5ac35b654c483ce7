/* real.c: decimal text to double and back.
 *
 * The C library reads decimals to the nearest double, ties to even, whatever their length; but it expects the decimal
 * point of the process's locale. strtod_l reads with the point of the "C" locale instead. Printing asks for more and
 * more digits until they read back as the same double.
 */
#define _GNU_SOURCE /* strtod_l */
#include "compiler/base/real.h"

#include <locale.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool real_parse(const char *digits, double *out) {
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* a constant of the C library: it cannot fail */
    *out = strtod_l(digits, NULL, c);
    freelocale(c);
    return isfinite(*out);
}

/* Prints x with the fewest digits that read back as x, but with at most `most` significant digits. */
static void print(double x, int most, text *out) {
    char made[40], digits[20], again[64];
    int count = 0, exponent = 0;
    for (int precision = 0; precision < most; precision++) {
        snprintf(made, sizeof made, "%.*e", precision, x < 0 ? -x : x);
        const char *c = made; /* d.ddde+dd, where the point is whatever the locale has */
        count = 0;
        for (; *c != 'e'; c++)
            if (*c >= '0' && *c <= '9') digits[count++] = *c;
        exponent = atoi(c + 1);
        digits[count] = 0;
        snprintf(again, sizeof again, "%se%d", digits, exponent - (count - 1));
        double back;
        if (real_parse(again, &back) && back == (x < 0 ? -x : x)) break;
    }
    while (count > 1 && digits[count - 1] == '0') count--;
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (bits >> 63) text_puts(out, "-");
    if (exponent < -5 || exponent > 15) {
        text_printf(out, "%c.%.*se%d", digits[0], count > 1 ? count - 1 : 1, count > 1 ? digits + 1 : "0", exponent);
        return;
    }
    for (int i = 0; i > exponent; i--) text_puts(out, i == 0 ? "0." : "0");
    for (int i = 0; i < count || i <= exponent + 1; i++) {
        if (i == exponent + 1 && exponent >= 0) text_puts(out, ".");
        text_add(out, i < count ? &digits[i] : "0", 1);
    }
}

void real_print(double x, text *out) { print(x, 17, out); }

void real_print_short(double x, text *out) {
    if (isnan(x)) text_puts(out, "nan");
    else if (isinf(x)) text_puts(out, x > 0 ? "inf" : "-inf");
    else print(x, 6, out);
}
