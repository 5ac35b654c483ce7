/* numeric.c: conversion of arrays between float32 and the dtypes, and the spacing of a dtype's numbers.
 *
 * Cost:   linear; the loops have no branches, so that compilers vectorise them.
 * Source: the usual integer formulations of IEEE 754 rounding; bfloat16 is the upper half of a float32.
 */
#include "runtime/base/numeric.h"

FCP_CLONES static void from_bf16(const uint16_t *restrict src, float *restrict dst, size_t count) {
    for (size_t i = 0; i < count; i++) dst[i] = fcp_bf16_float(src[i]);
}

FCP_CLONES static void from_fp16(const uint16_t *restrict src, float *restrict dst, size_t count) {
    for (size_t i = 0; i < count; i++) dst[i] = fcp_fp16_float(src[i]);
}

FCP_CLONES static void to_bf16(const float *restrict src, uint16_t *restrict dst, size_t count) {
    for (size_t i = 0; i < count; i++) dst[i] = fcp_float_bf16(src[i]);
}

FCP_CLONES static void to_fp16(const float *restrict src, uint16_t *restrict dst, size_t count) {
    for (size_t i = 0; i < count; i++) dst[i] = fcp_float_fp16(src[i]);
}

void fcp_to_float(fcp_dtype t, const void *src, float *dst, size_t count) {
    if (!count) return;
    if (t == FCP_FP32) memcpy(dst, src, count * sizeof *dst);
    else if (t == FCP_FP16) from_fp16(src, dst, count);
    else from_bf16(src, dst, count);
}

void fcp_from_float(fcp_dtype t, const float *src, void *dst, size_t count) {
    if (!count) return;
    if (t == FCP_FP32) memcpy(dst, src, count * sizeof *src);
    else if (t == FCP_FP16) to_fp16(src, dst, count);
    else to_bf16(src, dst, count);
}

double fcp_ulp(fcp_dtype t, double x) {
    int digits = t == FCP_FP32 ? 24 : t == FCP_FP16 ? 11 : 8, lowest = t == FCP_FP16 ? -13 : -125, exponent;
    if (!isfinite(x)) return INFINITY;
    frexp(x, &exponent);
    if (x == 0 || exponent < lowest) exponent = lowest;
    return ldexp(1.0, exponent - digits);
}
