/* coarse_tanh.h: tanh as the simulated machines approximate it, which is as badly as the PTX manual lets tanh.approx.f32
 * do it: off by up to 2^-11 of itself. All results are too small, since errors of both signs would cancel in sums.
 */
#ifndef COARSE_TANH_H
#define COARSE_TANH_H
#include <math.h>
#include <stdint.h>
#include <string.h>

/* tanh x with 12 significant bits, rounded towards 0. */
static inline float coarse_tanh(float x) {
    float y = (float)tanh((double)x);
    uint32_t bits;
    if (!(fabsf(y) >= 0x1p-126f)) return y; /* subnormal, or NaN */
    memcpy(&bits, &y, sizeof bits);
    bits &= ~UINT32_C(0xfff);
    memcpy(&y, &bits, sizeof y);
    return y;
}
#endif
