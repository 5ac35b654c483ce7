/* decimal.c: reads decimal text as whole numbers of a unit: 1.5 GB as 1500000000 bytes. See real.c for
 * doubles. */
#include "compiler/base/decimal.h"

typedef unsigned __int128 wide;

bool decimal_parse(const char *digits, uint64_t *mantissa, int *exponent) {
    uint64_t m = 0;
    int e = 0, zeros = 0; /* zeros: how many were read last, by which m is not multiplied yet */
    bool point = false, good = true;
    const char *c = digits;
    for (; (*c >= '0' && *c <= '9') || *c == '.'; c++) {
        if (*c == '.') {
            point = true;
            continue;
        }
        if (point && e > -1000) e--;
        if (*c == '0') {
            if (m && zeros < 1000) zeros++;
            continue;
        }
        for (; zeros >= 0; zeros--) {
            if (m > UINT64_C(100000000000000000)) good = false;
            else m *= 10;
        }
        m += (uint64_t)(*c - '0');
        zeros = 0;
    }
    if (m) e += zeros;
    else e = 0;
    if (*c == 'e' || *c == 'E') {
        bool negative = c[1] == '-';
        c += 1 + (c[1] == '-' || c[1] == '+');
        int power = 0;
        for (; *c >= '0' && *c <= '9'; c++)
            if (power < 10000) power = power * 10 + (*c - '0');
        e += negative ? -power : power;
    }
    *mantissa = m;
    *exponent = m ? e : 0;
    return good;
}

bool decimal_scale(uint64_t mantissa, int exponent, uint64_t *out) {
    wide v = mantissa;
    for (; exponent > 0 && v <= INT64_MAX; exponent--) v *= 10;
    wide divisor = 1;
    for (; exponent < 0 && divisor <= UINT64_MAX; exponent++) divisor *= 10;
    if (exponent < 0) v = 0;
    else v = (v + divisor / 2) / divisor;
    if (v > INT64_MAX) return false;
    *out = (uint64_t)v;
    return true;
}
