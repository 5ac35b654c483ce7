/* test_decimal.c: tests decimal text as whole numbers of a unit: how it is rounded, and what is too large. */
#include <criterion/criterion.h>
#include <inttypes.h>

#include "compiler/base/decimal.h"

Test(decimal, scaled) {
    static const struct { const char *text; int power; bool good; uint64_t value; } cases[] = {
                 {"1.5", 9, true, 1500000000},
                 {"0.5", 0, true, 1},
                 {"0.49", 0, true, 0},
                 {"2.5", 0, true, 3},
                 {"0.000", 3, true, 0},
                 {"100.250", 3, true, 100250},
                 {"1.0e3", 0, true, 1000},
                 {"1.0e-3", 3, true, 1},
                 {"9.9e99", 0, false, 0},
                 {"1.0e-99", 3, true, 0},
                 {"123456789012345678.0", 0, true, 123456789012345678},
                 {"1.2345678901234567891", 0, false, 0},
                 {"9223372036854775.807", 3, false, 0},
                 {"922337203685477.5807", 3, false, 0},
                 {"90071992547.40993", 5, true, 9007199254740993},
                 {"0.00000000000000000001234", 23, true, 1234}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t mantissa, value = 0;
        int exponent;
        bool good = decimal_parse(cases[i].text, &mantissa, &exponent) &&
                    decimal_scale(mantissa, exponent + cases[i].power, &value);
        cr_expect_eq(good, cases[i].good, "%s", cases[i].text);
        if (good) cr_expect_eq(value, cases[i].value, "%s: %" PRIu64, cases[i].text, value);
    }
}
