/* test_real.c: tests the conversion of reals from text to double and back against the C library. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/base/real.h"

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

static void same(const char *digits) {
    double got, wanted = strtod(digits, NULL);
    bool fits = real_parse(digits, &got);
    cr_assert(fits ? got == wanted : isinf(wanted), "%s: %a, not %a", digits, fits ? got : INFINITY, wanted);
}

Test(real, parses) {
    static const char *const hard[] = {
        "0", "0.0", "1", "00001.5", "0.1", "9007199254740993", "9007199254740992.5", "9007199254740993.0000000000000001",
        "1.7976931348623157e308", "1.7976931348623158e308", "1.7976931348623159e308", "1.0e309", "4.9e-324", "2.47e-324",
        "2.4703282292062327e-324", "2.4703282292062328e-324", "2.2250738585072011e-308", "2.2250738585072014e-308", "1.0e-400",
        "1.0e999999999999999999", "0.0e999999999999", "1.0e-999999999999999999", "6.02214076e+23", "123456789012345678901234567890.5",
        "8.5e22", "8.41e21", "1.0e23", "5.0E-1"};
    for (size_t i = 0; i < sizeof hard / sizeof *hard; i++) same(hard[i]);
    uint64_t state = 88172645463325252;
    char digits[3000];
    for (int i = 0; i < 20000; i++) {
        uint64_t r = next(&state);
        snprintf(digits, sizeof digits, "%llu.%llue%d", (unsigned long long)(r >> (r % 60)), (unsigned long long)(r * 77),
                 (int)(r % 700) - 360);
        same(digits);
    }
    /* exactly between two doubles, and a little above: in all of its digits */
    for (int i = 0; i < 300; i++) {
        uint64_t bits = next(&state) >> 2;
        double x;
        memcpy(&x, &bits, sizeof x);
        if (!isfinite(x)) continue;
        long double middle = ((long double)x + nextafter(x, INFINITY)) / 2;
        int size = snprintf(digits, sizeof digits, "%.1200Lf", middle);
        same(digits);
        digits[size - 1] = '1';
        same(digits);
    }
}

Test(real, prints) {
    uint64_t state = 5;
    for (int i = 0; i < 20000; i++) {
        uint64_t bits = next(&state);
        if (i % 5 == 0) bits &= UINT64_C(0x800fffffffffffff);
        double x, back;
        memcpy(&x, &bits, sizeof x);
        if (i % 3 == 0) x = (double)(int64_t)(bits % 200000) / (double)(1 + (bits >> 60));
        if (!isfinite(x)) continue;
        text t = {0};
        real_print(x, &t);
        char *made = text_take(&t);
        back = strtod(made, NULL);
        cr_assert(!memcmp(&back, &x, sizeof x), "%a prints as %s", x, made);
        cr_assert(real_parse(made[0] == '-' ? made + 1 : made, &back) && back == fabs(x), "%s", made);
        const char *point = strchr(made, '.');
        cr_assert(point && point > made && point[1] >= '0' && point[1] <= '9', "%s", made);
        free(made);
    }
    static const struct { double x; const char *text; } known[] = {
        {0, "0.0"}, {-0.0, "-0.0"}, {30, "30.0"}, {0.1, "0.1"}, {-2.5, "-2.5"}, {1e15, "1000000000000000.0"}, {1e16, "1.0e16"},
        {0.00001, "0.00001"}, {1e-6, "1.0e-6"}, {123456.75, "123456.75"}, {5e-324, "5.0e-324"}, {1.0 / 3, "0.3333333333333333"},
        {1.7976931348623157e308, "1.7976931348623157e308"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        text t = {0};
        real_print(known[i].x, &t);
        char *made = text_take(&t);
        cr_expect_str_eq(made, known[i].text);
        free(made);
    }
}
