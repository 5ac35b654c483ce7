/* numeric.h: number formats, and elementary functions in float32.
 *
 * Everything here is plain C, compiled without contraction (a * b + c is two roundings). So a function gives the same
 * bits on every machine, and in every clone that the compiler makes of it. Rounding is to nearest, ties to even.
 */
#ifndef FCP_BASE_NUMERIC_H
#define FCP_BASE_NUMERIC_H
#include <math.h>
#include <string.h>

#include "codegen/mask/clones.h"
#include "runtime/fcp.h"

#define FCP_LOG2E 1.4426950408889634074
enum { FCP_LANES = 16 };

static inline float fcp_bits_float(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}
static inline uint32_t fcp_float_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float fcp_bf16_float(uint16_t h) { return fcp_bits_float((uint32_t)h << 16); }
static inline uint16_t fcp_float_bf16(float f) {
    uint32_t u = fcp_float_bits(f);
    uint32_t nan = u >> 16 | 0x40, rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;
    return (uint16_t)((u & 0x7fffffff) > 0x7f800000 ? nan : rounded);
}

/* fp16 to float32: the exponent gets another bias. Infinities and NaNs get the difference a second time, and a
 * subtraction normalises subnormals. */
static inline float fcp_fp16_float(uint16_t h) {
    uint32_t u = (uint32_t)(h & 0x7fff) << 13, exponent = u & 0x0f800000;
    uint32_t normal = u + 0x38000000, special = u + 0x70000000;
    uint32_t small = fcp_float_bits(fcp_bits_float(u + 0x38800000) - fcp_bits_float(0x38800000));
    uint32_t r = exponent == 0x0f800000 ? special : exponent == 0 ? small : normal;
    return fcp_bits_float(r | (uint32_t)(h & 0x8000) << 16);
}
static inline uint16_t fcp_float_fp16(float f) {
    uint32_t u = fcp_float_bits(f), a = u & 0x7fffffff;
    uint32_t normal = (a + 0xc8000fff + (a >> 13 & 1)) >> 13;
    uint32_t small = fcp_float_bits(fcp_bits_float(a < 0x38800000 ? a : 0) + 0.5f) - 0x3f000000;
    uint32_t large = a > 0x7f800000 ? 0x7e00 : 0x7c00;
    return (uint16_t)((a >= 0x47800000 ? large : a < 0x38800000 ? small : normal) | (u >> 16 & 0x8000));
}

/* A number rounded to a dtype. */
static inline float fcp_round_to(fcp_dtype t, float f) {
    return t == FCP_FP32 ? f : t == FCP_FP16 ? fcp_fp16_float(fcp_float_fp16(f)) : fcp_bf16_float(fcp_float_bf16(f));
}
/* The distance between neighbouring numbers of a dtype at |x|, subnormals included; infinite if x is not finite. */
double fcp_ulp(fcp_dtype t, double x);

/* Arrays, from and to float32. Source and destination must not overlap. */
void fcp_to_float(fcp_dtype t, const void *src, float *dst, size_t count);
void fcp_from_float(fcp_dtype t, const float *src, void *dst, size_t count);

/* 2^t for t <= 0, with a relative error below 2^-23. It is exactly 0 below 2^-126.5 and for -inf, and NaN for NaN.
 * t is split into a whole number and a rest in [-1/2, 1/2], where a polynomial of degree 6 approximates 2^x best. */
static inline float fcp_exp2_nonpositive(float t) {
    t = t < -127.0f ? -127.0f : t;
    float whole = t + 12582912.0f; /* + 1.5 * 2^23: the low bits of the sum are t rounded to a whole number */
    uint32_t exponent = (fcp_float_bits(whole) + (127u - 0x4b400000u)) << 23;
    float x = t - (whole - 12582912.0f);
    float p = x * 1.535336188319500e-4f + 1.339887440266574e-3f;
    p = p * x + 9.618437357674640e-3f;
    p = p * x + 5.550332471162809e-2f;
    p = p * x + 2.402264791363012e-1f;
    p = p * x + 6.931472028550421e-1f;
    p = p * x + 1.0f;
    return p * fcp_bits_float(exponent);
}

/* e^x for x <= 0, with a relative error below 2^-23 + |x| 2^-23.6, and exactly 0 where that one is. */
static inline float fcp_exp_nonpositive(float x) { return fcp_exp2_nonpositive(x * (float)FCP_LOG2E); }
#endif
