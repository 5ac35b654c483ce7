/* real.c: decimal to double and back, exactly.
 *
 * Requires: text of the scanner's shape (digits, at most one point, at most one exponent); finite doubles.
 * Gives: the double nearest to the text, ties to even; the shortest text that reads back as the double.
 * Method: the text is a fraction N / D of big integers. N 2^shift / D is divided by shifting and subtracting to 64 bits
 *      or more and a rest, and rounded once, at the bit where a normal or subnormal number ends. Up to 2^53 and 10^22
 *      both sides are doubles, and one IEEE division or product is already correctly rounded.
 * Cost: constant for short numbers, else O(digits + 64 * words), words being at most 200. More than 800 digits never
 *      matter but for whether any of the rest is not 0: a double, or the middle between two, has fewer than 800.
 */
#include "compiler/base/real.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 200, DIGITS_MAX = 800, LARGEST = 310, SMALLEST = -345 };

typedef unsigned __int128 wide;

/* Little-endian; words from `count` on are not valid. */
typedef struct big {
    uint32_t word[WORDS];
    uint32_t count;
} big;

static void big_scale(big *x, uint32_t by, uint32_t plus) {
    uint64_t carry = plus;
    for (uint32_t i = 0; i < x->count; i++) {
        carry += (uint64_t)x->word[i] * by;
        x->word[i] = (uint32_t)carry;
        carry >>= 32;
    }
    if (carry && x->count < WORDS) x->word[x->count++] = (uint32_t)carry;
}

static void big_shift(big *x, uint32_t bits) {
    uint32_t words = bits / 32;
    bits %= 32;
    if (bits) big_scale(x, (uint32_t)1 << bits, 0);
    if (!words || !x->count || x->count + words > WORDS) return;
    memmove(x->word + words, x->word, x->count * sizeof *x->word);
    memset(x->word, 0, words * sizeof *x->word);
    x->count += words;
}

static int32_t big_bits(const big *x) {
    return x->count ? (int32_t)(x->count * 32) - __builtin_clz(x->word[x->count - 1]) : 0;
}

static bool big_less(const big *x, const big *y) {
    if (x->count != y->count) return x->count < y->count;
    for (uint32_t i = x->count; i-- > 0;)
        if (x->word[i] != y->word[i]) return x->word[i] < y->word[i];
    return false;
}

static void big_subtract(big *x, const big *y) {
    int64_t borrow = 0;
    for (uint32_t i = 0; i < x->count; i++) {
        int64_t d = (int64_t)x->word[i] - (i < y->count ? y->word[i] : 0) + borrow;
        x->word[i] = (uint32_t)d;
        borrow = d < 0 ? -1 : 0;
    }
    while (x->count && !x->word[x->count - 1]) x->count--;
}

/* n / d as quotient * 2^-*shift, of 64 bits or 65; *rest: it leaves one. */
static wide big_divide(big *n, big *d, int32_t *shift, bool *rest) {
    wide q = 0;
    *shift = 64 - (big_bits(n) - big_bits(d));
    if (*shift > 0) big_shift(n, (uint32_t)*shift);
    else big_shift(d, (uint32_t)-*shift);
    big_shift(d, 65);
    for (int i = 65;; i--) {
        q <<= 1;
        if (!big_less(n, d)) {
            big_subtract(n, d);
            q |= 1;
        }
        if (i == 0) break;
        uint32_t carry = 0; /* d / 2: exact, it was shifted */
        for (uint32_t w = d->count; w-- > 0;) {
            uint32_t word = d->word[w];
            d->word[w] = word >> 1 | carry << 31;
            carry = word & 1;
        }
        while (d->count && !d->word[d->count - 1]) d->count--;
    }
    *rest = n->count != 0;
    return q;
}

/* quotient * 2^-shift, and a little more if `rest`, to the nearest double. */
static bool round_to_double(wide q, int32_t shift, bool rest, double *out) {
    int32_t bits = 0;
    while (bits < 128 && q >> bits) bits++;
    int32_t top = bits - 1 - shift, lowest = top - 52 > -1074 ? top - 52 : -1074, drop = lowest + shift;
    uint64_t kept = drop < 128 ? (uint64_t)(q >> drop) : 0; /* drop >= 11: q has 64 bits at least */
    wide low = drop < 128 ? q & (((wide)1 << drop) - 1) : q;
    if (drop <= 128) {
        wide half = (wide)1 << (drop - 1);
        if (low > half || (low == half && (rest || (kept & 1)))) kept++;
    }
    if (kept >> 53) kept >>= 1, lowest++;
    if (lowest > 1023 - 52) return false;
    /* the exponent's bits: a number without its 53rd bit is subnormal */
    uint64_t image = kept >> 52 ? (uint64_t)(lowest + 1075) << 52 | (kept & ((UINT64_C(1) << 52) - 1)) : kept;
    memcpy(out, &image, sizeof image);
    return true;
}

bool real_parse(const char *digits, double *out) {
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    big n = {.count = 0}, d = {.word = {1}, .count = 1};
    uint64_t mantissa = 0;
    int64_t exponent = 0, written = 0;
    uint32_t used = 0;
    bool point = false, more = false, minus = false;
    for (; *digits && *digits != 'e' && *digits != 'E'; digits++) {
        if (*digits == '.') {
            point = true;
            continue;
        }
        uint32_t digit = (uint32_t)(*digits - '0');
        exponent -= point;
        if (!used && !digit) continue;
        if (used == DIGITS_MAX) {
            more |= digit != 0;
            exponent++;
            continue;
        }
        used++;
        if (used <= 18) mantissa = mantissa * 10 + digit;
        big_scale(&n, 10, digit);
    }
    if (*digits) {
        digits++;
        minus = *digits == '-';
        if (*digits == '-' || *digits == '+') digits++;
        for (; *digits; digits++)
            if (written < 1000000000) written = written * 10 + (*digits - '0');
    }
    exponent += minus ? -written : written;
    *out = 0;
    if (!used || exponent + (int64_t)used < SMALLEST) return true;
    if (exponent + (int64_t)used > LARGEST) return false;
    if (used <= 18 && mantissa <= UINT64_C(1) << 53 && exponent >= -22 && exponent <= 22) {
        *out = exponent < 0 ? (double)mantissa / powers[-exponent] : (double)mantissa * powers[exponent];
        return true;
    }
    for (int64_t i = 0; i < exponent; i++) big_scale(&n, 10, 0);
    for (int64_t i = exponent; i < 0; i++) big_scale(&d, 10, 0);
    int32_t shift;
    bool rest;
    wide q = big_divide(&n, &d, &shift, &rest);
    return round_to_double(q, shift, rest || more, out);
}

/* In at most `most` digits. */
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
