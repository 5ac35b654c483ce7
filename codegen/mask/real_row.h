/* real_row.h: exp, log, tanh and their like in float, for loops that compilers turn into vector instructions.
 *
 * The C library's functions are not used, because their results differ between machines, and a call stops a loop from
 * becoming vectors. These are plain C without branches, calls or contraction, so every machine and every clone gives
 * the same bits. Infinities, NaN, subnormal numbers and signed zeros behave as in IEEE 754. The relative error is below
 * 2^-21 for mc_fast_exp, mc_fast_exp2 and mc_fast_tanh, and below 2^-22 for the logarithms, near 1 too.
 *
 * Method:
 * - Exponentials write the argument as a whole multiple of ln 2 plus a rest r of at most ln 2 / 2. e^r - 1 is then
 *   r + r^2 times a polynomial.
 * - tanh(x) is e / (e + 2) with e = e^2x - 1.
 * - Logarithms split off the exponent, so that the rest 1 + f is in [sqrt 1/2, sqrt 2), and use
 *   log(1 + f) = 2 artanh(f / (2 + f)).
 * - The polynomials interpolate at Chebyshev's nodes.
 */
#ifndef CODEGEN_MASK_REAL_ROW_H
#define CODEGEN_MASK_REAL_ROW_H
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline float mc_bits_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static inline uint32_t mc_float_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* c ? a : b, written so that no compiler makes a branch of it */
static inline float mc_pick(bool c, float a, float b) {
    uint32_t mask = 0u - (uint32_t)c;
    return mc_bits_float((mc_float_bits(a) & mask) | (mc_float_bits(b) & ~mask));
}

#define MC_MAGIC 12582912.0f /* 1.5 * 2^23: added, it leaves a whole number in the low bits */

/* e^r - 1, |r| <= ln 2 / 2 */
static inline float mc_expm1_rest(float r) {
    float p = r * 0.000198910798644647f + 0.0013933731243014336f;
    p = p * r + 0.00833331048488617f;
    p = p * r + 0.041666463017463684f;
    p = p * r + 0.1666666716337204f;
    p = p * r + 0.5f;
    return r + r * r * p;
}

/* p * 2^n for whole n in [-252, 254], in two steps so that subnormal numbers and infinity come out */
static inline float mc_scale_by(float p, int32_t n) {
    int32_t half = n / 2, rest = n - half;
    return p * mc_bits_float((uint32_t)(half + 127) << 23) * mc_bits_float((uint32_t)(rest + 127) << 23);
}

static inline float mc_fast_exp(float x) {
    float y = mc_pick(x < -104.0f, -104.0f, mc_pick(x > 89.0f, 89.0f, x));
    float whole = y * 1.44269504f + MC_MAGIC, n = whole - MC_MAGIC;
    float r = y - n * 0.693115234375f - n * 3.194618329871446e-05f;
    return mc_scale_by(1.0f + mc_expm1_rest(r), (int32_t)((mc_float_bits(whole) - 0x4b400000u) << 16) >> 16);
}

static inline float mc_fast_exp2(float x) {
    float y = mc_pick(x < -150.5f, -150.5f, mc_pick(x > 129.0f, 129.0f, x));
    float whole = y + MC_MAGIC, r = (y - (whole - MC_MAGIC)) * 0.69314718f;
    return mc_scale_by(1.0f + mc_expm1_rest(r), (int32_t)((mc_float_bits(whole) - 0x4b400000u) << 16) >> 16);
}

static inline float mc_fast_tanh(float x) {
    float a = fabsf(x);
    a = 2.0f * mc_pick(a > 10.0f, 10.0f, a);
    float whole = a * 1.44269504f + MC_MAGIC, n = whole - MC_MAGIC;
    float r = a - n * 0.693115234375f - n * 3.194618329871446e-05f;
    float power = mc_bits_float((mc_float_bits(whole) - 0x4b400000u + 127u) << 23);
    float e = power * mc_expm1_rest(r) + (power - 1.0f);
    return copysignf(e / (e + 2.0f), x);
}

/* log(x) is *whole times ln 2, plus the result; for positive, finite x. */
static inline float mc_log_parts(float x, float *whole) {
    bool small = x < 1.17549435e-38f; /* subnormal */
    float up = mc_pick(small, x * 33554432.0f, x), moved = mc_pick(small, -25.0f, 0.0f);
    uint32_t bits = mc_float_bits(up) - 0x3f3504f3u; /* sqrt 1/2 */
    float m = mc_bits_float((bits & 0x007fffffu) + 0x3f3504f3u);
    *whole = (float)((int32_t)bits >> 23) + moved;
    float f = m - 1.0f, s = f / (2.0f + f), z = s * s, half = 0.5f * f * f;
    float p = z * 0.29590317606925964f + 0.39988550543785095f;
    p = p * z + 0.6666668653488159f;
    return f - (half - s * (half + z * p));
}

/* A logarithm of infinity, zero, negative numbers and NaN; else `value`. */
static inline float mc_log_edges(float x, float value) {
    value = mc_pick(x == INFINITY, INFINITY, mc_pick(x == 0.0f, -INFINITY, value));
    return mc_pick(x >= 0.0f, value, NAN);
}

static inline float mc_fast_log(float x) {
    float n, rest = mc_log_parts(x, &n);
    return mc_log_edges(x, n * 0.693115234375f + (n * 3.194618329871446e-05f + rest));
}

static inline float mc_fast_floor(float x) {
    bool whole = !(fabsf(x) < 8388608.0f); /* 2^23 */
    float y = mc_pick(whole, 0.0f, x), t = (float)(int32_t)y;
    return mc_pick(whole, x, copysignf(t - mc_pick(t > y, 1.0f, 0.0f), x));
}

static inline float mc_fast_log2(float x) {
    float n, rest = mc_log_parts(x, &n);
    return mc_log_edges(x, n + rest * 1.44269504f);
}
#endif
