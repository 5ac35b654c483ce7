/* test_numeric.c: tests the number formats and the exponential against other definitions: the nearest of all
 * 65,536 numbers is searched for, and 2^x comes from the C library in float64. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "runtime/host/row_ops.h"

static uint64_t state = 1;
static uint32_t next(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 32);
}

static double value_of(fcp_dtype t, uint16_t h) {
    int exponent_bits = t == FCP_FP16 ? 5 : 8, fraction_bits = 15 - exponent_bits;
    int exponent = h >> fraction_bits & ((1 << exponent_bits) - 1), bias = (1 << (exponent_bits - 1)) - 1;
    int fraction = h & ((1 << fraction_bits) - 1);
    double sign = h & 0x8000 ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1) return fraction ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * ldexp(fraction, 1 - bias - fraction_bits);
    return sign * ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
}

static void check_to_float(fcp_dtype t) {
    for (uint32_t i = 0; i < 65536; i++) {
        uint16_t h = (uint16_t)i, back;
        float f;
        double v = value_of(t, h);
        fcp_to_float(t, &h, &f, 1);
        if (isnan(v)) {
            cr_assert(isnan(f), "%s %04x", fcp_dtype_name(t), i);
            fcp_from_float(t, &f, &back, 1);
            cr_assert(isnan(value_of(t, back)));
            continue;
        }
        cr_assert((double)f == v, "%s %04x is %a, not %a", fcp_dtype_name(t), i, v, (double)f);
        fcp_from_float(t, &f, &back, 1);
        cr_assert(back == h, "%s %04x comes back as %04x", fcp_dtype_name(t), i, back);
    }
}

Test(numeric, every_fp16_and_bf16_to_float_and_back) {
    check_to_float(FCP_FP16);
    check_to_float(FCP_BF16);
}

/* The positive numbers of a dtype are in order of their bits. */
static uint16_t nearest(fcp_dtype t, double x) {
    uint16_t sign = signbit(x) ? 0x8000 : 0, low = 0, high = t == FCP_FP16 ? 0x7c00 : 0x7f80;
    double a = fabs(x);
    while (high - low > 1) {
        uint16_t middle = (uint16_t)((low + high) / 2);
        if (value_of(t, middle) <= a) low = middle;
        else high = middle;
    }
    /* infinity lies where the next number would be */
    double below = value_of(t, low), above = t == FCP_FP16 && high == 0x7c00   ? 65536
                                             : t == FCP_BF16 && high == 0x7f80 ? ldexp(1, 128)
                                                                               : value_of(t, high);
    bool up = a - below > above - a || (a - below == above - a && low & 1);
    return (uint16_t)(sign | (up ? high : low));
}

static void check_rounding(fcp_dtype t, uint32_t bits) {
    float f = fcp_bits_float(bits);
    uint16_t got;
    if (!isfinite(f)) return;
    fcp_from_float(t, &f, &got, 1);
    cr_assert(got == nearest(t, (double)f), "%a to %s: %04x, not %04x", (double)f, fcp_dtype_name(t), got,
              nearest(t, (double)f));
}

Test(numeric, floats_round_to_the_nearest_ties_to_even) {
    for (int i = 0; i < 200000; i++) {
        check_rounding(FCP_FP16, next());
        check_rounding(FCP_BF16, next());
        check_rounding(FCP_FP16, (next() & 0x8fffffff) + 0x38000000); /* about 1 and below, where fp16 lives */
    }
    for (uint32_t h = 0; h < 0x7c00; h++) { /* ties, and their neighbours */
        float tie =
            (float)((value_of(FCP_FP16, (uint16_t)h) + (h == 0x7bff ? 65536 : value_of(FCP_FP16, (uint16_t)(h + 1)))) /
                    2);
        for (uint32_t d = 0; d < 3; d++) check_rounding(FCP_FP16, fcp_float_bits(tie) + d - 1);
    }
    for (uint32_t h = 0; h < 0x7f80; h++)
        for (uint32_t d = 0; d < 3; d++) check_rounding(FCP_BF16, (h << 16) + 0x8000 + d - 1);
}

Test(numeric, rounding_to_a_dtype_is_there_and_back) {
    for (int i = 0; i < 10000; i++) {
        float f = fcp_bits_float(next());
        if (!isfinite(f)) continue;
        uint16_t h;
        float back;
        fcp_from_float(FCP_BF16, &f, &h, 1);
        fcp_to_float(FCP_BF16, &h, &back, 1);
        cr_assert(fcp_float_bits(fcp_round_to(FCP_BF16, f)) == fcp_float_bits(back));
        cr_assert(fcp_float_bits(fcp_round_to(FCP_FP32, f)) == fcp_float_bits(f));
    }
}

Test(numeric, ulp) {
    cr_assert(fcp_ulp(FCP_FP32, 1) == ldexp(1, -23) && fcp_ulp(FCP_FP32, 1.999) == ldexp(1, -23));
    cr_assert(fcp_ulp(FCP_BF16, 2) == ldexp(1, -6) && fcp_ulp(FCP_FP16, -4) == ldexp(1, -8));
    cr_assert(fcp_ulp(FCP_FP16, 0) == ldexp(1, -24) && fcp_ulp(FCP_FP16, 1e-8) == ldexp(1, -24));
    cr_assert(fcp_ulp(FCP_FP32, 0) == ldexp(1, -149) && fcp_ulp(FCP_BF16, 0) == ldexp(1, -133));
    for (uint16_t h = 1; h < 0x7bff; h++)
        cr_assert(fcp_ulp(FCP_FP16, value_of(FCP_FP16, h)) ==
                  value_of(FCP_FP16, (uint16_t)(h + 1)) - value_of(FCP_FP16, h));
}

Test(numeric, exponential_is_near_and_ends_at_zero) {
    double worst = 0;
    for (int i = 0; i <= 4000000; i++) {
        float t = -126.0f * (float)i / 4000000.0f;
        double right = exp2((double)t), error = fabs((double)fcp_exp2_nonpositive(t) - right) / right;
        if (error > worst) worst = error;
    }
    cr_assert(worst < ldexp(1, -23), "relative error %g", worst);
    cr_assert(fcp_exp2_nonpositive(0) == 1 && fcp_exp2_nonpositive(-0.0f) == 1);
    for (int i = 0; i <= 126; i++) cr_assert(fcp_exp2_nonpositive((float)-i) == ldexpf(1, -i));
    cr_assert(fcp_exp2_nonpositive(-127) == 0 && fcp_exp2_nonpositive(-1e30f) == 0);
    cr_assert(fcp_exp2_nonpositive(-INFINITY) == 0 && isnan(fcp_exp2_nonpositive(NAN)));
}

/* --- row functions ------------------------------------------------------------------------------------------------ */

Test(numeric, rows_that_are_not_finite_are_noticed) {
    for (uint32_t width = 1; width < 40; width += 3)
        for (uint32_t at = 0; at < 3 * width; at++)
            for (int kind = 0; kind < 4; kind++) {
                float x[3 * 40], y[3 * 40];
                for (uint32_t i = 0; i < 3 * width; i++) x[i] = (float)i - 20;
                x[at] = kind == 0 ? NAN : kind == 1 ? INFINITY : kind == 2 ? -INFINITY : 3e38f;
                cr_assert(fcp_rows_load(FCP_FP32, x, width, 3, width, y) == (kind == 3));
                cr_assert(memcmp(x, y, 3 * width * sizeof *x) == 0);
            }
}

Test(numeric, a_row_that_sees_nothing_stays_empty) {
    float s[32], o[8] = {0}, m = -INFINITY, l = 0;
    for (int i = 0; i < 32; i++) s[i] = -INFINITY;
    fcp_rows_softmax(s, 32, 1, 32, &m, &l, o, 8);
    cr_assert(m == -INFINITY && l == 0);
    for (int i = 0; i < 32; i++) cr_assert(s[i] == 0);
    for (int i = 0; i < 8; i++) cr_assert(o[i] == 0);
}

Test(numeric, softmax_in_steps_is_softmax) {
    float all[96], m = -INFINITY, l = 0, o[1] = {0};
    double most = -INFINITY, sum = 0, weighted = 0;
    for (int i = 0; i < 96; i++) all[i] = (float)(int32_t)next() * 1e-8f;
    for (int i = 0; i < 96; i++) most = all[i] > most ? all[i] : most;
    for (int i = 0; i < 96; i++) sum += exp(all[i] - most), weighted += i * exp(all[i] - most);
    for (int step = 0; step < 96; step += 32) {
        float s[32];
        memcpy(s, all + step, sizeof s);
        fcp_rows_softmax(s, 32, 1, 32, &m, &l, o, 1);
        for (int i = 0; i < 32; i++) o[0] += s[i] * (float)(step + i);
    }
    cr_assert((double)m == most);
    cr_assert(fabs((double)l - sum) < 1e-5 * sum);
    cr_assert(fabs((double)o[0] - weighted) < 1e-5 * weighted);
}

Test(numeric, select_touches_only_what_is_masked) {
    fcp_mask_bits cell;
    for (uint32_t columns = 1; columns <= 128; columns += 9) {
        float s[4][128];
        for (int r = 0; r < 4; r++)
            for (int c = 0; c < 128; c++) s[r][c] = (float)(r * 128 + c);
        for (int r = 0; r < 4; r++)
            for (int w = 0; w < FCP_MASK_WORDS; w++) cell.bits[r][w] = (uint16_t)next();
        fcp_rows_select(s[0], 128, 4, columns, &cell, -1);
        for (uint32_t r = 0; r < 4; r++)
            for (uint32_t c = 0; c < 128; c++) {
                bool masked = c < columns && !(cell.bits[r][c / 16] >> c % 16 & 1);
                cr_assert(s[r][c] == (masked ? -1 : (float)(r * 128 + c)), "row %u column %u of %u", r, c, columns);
            }
    }
}
