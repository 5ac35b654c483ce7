/* test_real.c: tests the conversion of reals from text to double and back. */
#include <criterion/criterion.h>
#include <locale.h>
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

static void expect(const char *digits, double wanted) {
    double got;
    bool fits = real_parse(digits, &got);
    cr_expect(fits ? !memcmp(&got, &wanted, sizeof got) : isinf(wanted), "%s: %a, not %a", digits, got, wanted);
}

/* Against values worked out by other means: powers of two, and the rule of ties to even. */
Test(real, parses) {
    static const struct { const char *digits; double wanted; } hard[] = {
        {"0", 0}, {"0.0", 0}, {"1", 1}, {"00001.5", 1.5}, {"0.1", 0x1.999999999999ap-4}, {"5.0E-1", 0.5},
        {"9007199254740993", 0x1p53}, {"9007199254740992.5", 0x1p53},
        {"9007199254740993.0000000000000001", 0x1.0000000000001p53}, {"9007199254740995", 0x1.0000000000002p53},
        {"1.7976931348623157e308", 0x1.fffffffffffffp1023}, {"1.7976931348623158e308", 0x1.fffffffffffffp1023},
        {"1.7976931348623159e308", INFINITY}, {"1.0e309", INFINITY}, {"1.0e999999999999999999", INFINITY},
        {"4.9e-324", 0x1p-1074}, {"2.4703282292062327e-324", 0}, {"2.4703282292062328e-324", 0x1p-1074},
        {"2.2250738585072011e-308", 0x0.fffffffffffffp-1022}, {"2.2250738585072014e-308", 0x1p-1022},
        {"1.0e-400", 0}, {"0.0e999999999999", 0}, {"1.0e-999999999999999999", 0},
        {"6.02214076e+23", 0x1.fe185ca57c517p+78}, {"1.0e23", 0x1.52d02c7e14af6p76}, {"8.5e22", 0x1.1ffdbf6b2b2ebp+76}};
    for (size_t i = 0; i < sizeof hard / sizeof *hard; i++) expect(hard[i].digits, hard[i].wanted);
    /* all digits of a double; exactly between two doubles; and a little above that */
    uint64_t state = 88172645463325252;
    char digits[3000];
    for (int i = 0; i < 3000; i++) {
        uint64_t bits = next(&state) >> 2;
        double x;
        memcpy(&x, &bits, sizeof x);
        if (!isfinite(x)) continue;
        double above = nextafter(x, INFINITY);
        snprintf(digits, sizeof digits, "%.1200f", x);
        expect(digits, x);
        int size = snprintf(digits, sizeof digits, "%.1200Lf", ((long double)x + above) / 2);
        expect(digits, bits & 1 ? above : x);
        digits[size - 1] = '1';
        expect(digits, above);
    }
}

/* A locale with a decimal comma changes nothing. */
Test(real, in_any_locale) {
    static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "fr_FR"};
    bool comma = false;
    for (size_t i = 0; i < sizeof names / sizeof *names && !comma; i++)
        comma = setlocale(LC_ALL, names[i]) && !strcmp(localeconv()->decimal_point, ",");
    if (!comma) cr_skip_test("no locale with a decimal comma is installed");
    expect("1234.5e1", 12345);
    text t = {0};
    real_print(0.25, &t);
    char *made = text_take(&t);
    cr_expect_str_eq(made, "0.25");
    free(made);
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
        {0, "0.0"}, {-0.0, "-0.0"}, {30, "30.0"}, {0.1, "0.1"}, {-2.5, "-2.5"}, {1e15, "1000000000000000.0"},
        {1e16, "1.0e16"},
        {0.00001, "0.00001"}, {1e-6, "1.0e-6"}, {123456.75, "123456.75"}, {5e-324, "5.0e-324"},
        {1.0 / 3, "0.3333333333333333"},
        {1.7976931348623157e308, "1.7976931348623157e308"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        text t = {0};
        real_print(known[i].x, &t);
        char *made = text_take(&t);
        cr_expect_str_eq(made, known[i].text);
        free(made);
    }
}
