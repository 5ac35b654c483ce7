/* lognormal.c: draws sequence lengths with a long tail: exp(ln median + sigma z), where z is standard normal. It
 * computes in integers only, so that every machine draws the same.
 *
 * - Uniform bits come from SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
 * - z is found by inversion in a table of the half normal distribution. The table has steps of 1/128 up to 8.5 and is
 *   linear between them. The density follows from the recurrence exp(-(x+h)^2/2) = exp(-x^2/2) exp(-xh - h^2/2), its
 *   integral from the trapezoid rule.
 * - exp is computed as 2^x: the fraction by its Taylor series in 62-bit fixed point, the whole part by shifting.
 */
#include "compiler/sema/lognormal.h"

#include <stdlib.h>

#include "compiler/base/bisect.h"

typedef unsigned __int128 wide;

enum { STEP_BITS = 7, STEPS = 17 << (STEP_BITS - 1), DENSITY_BITS = 54 };
#define ONE60 (UINT64_C(1) << 60)
#define LN2_62 UINT64_C(3196577161300663915)
#define LOG2E_32 INT64_C(6196328019)

/* exp(-x) for x = 2^-bits, with 60 fractional bits, from its series. */
static uint64_t exp_minus(int bits) {
    uint64_t sum = ONE60, term = ONE60;
    for (uint64_t i = 1; term; i++) {
        term = (term >> bits) / i;
        sum = i & 1 ? sum - term : sum + term;
    }
    return sum;
}

uint64_t *lognormal_table(void) {
    uint64_t *sums = malloc((STEPS + 1) * sizeof *sums);
    if (!sums) return NULL;
    uint64_t density = UINT64_C(1) << DENSITY_BITS;
    uint64_t ratio = exp_minus(2 * STEP_BITS + 1), shrink = exp_minus(2 * STEP_BITS);
    sums[0] = 0;
    for (int i = 0; i < STEPS; i++) {
        uint64_t next = (uint64_t)((wide)density * ratio >> 60);
        ratio = (uint64_t)((wide)ratio * shrink >> 60);
        sums[i + 1] = sums[i] + (density + next) / 2;
        density = next;
    }
    return sums;
}

static uint64_t random_bits(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Draws a standard normal z, with 32 fractional bits. */
static int64_t deviate(const uint64_t *sums, uint64_t *state) {
    uint64_t bits = random_bits(state);
    uint64_t target = (uint64_t)((wide)(bits >> 1) * sums[STEPS] >> 63);
    uint32_t high = 1, end = STEPS;
    BISECT(high, end, i, sums[i] <= target)
    const uint32_t low = high - 1;
    uint64_t width = sums[high] - sums[low];
    uint64_t part = width ? (uint64_t)(((wide)(target - sums[low]) << 32) / width) : 0;
    int64_t z = (int64_t)((((uint64_t)low << 32) + part) >> STEP_BITS);
    return bits & 1 ? -z : z;
}

/* 2^f for f in [0, 1) with 32 fractional bits; the result has 62. */
static uint64_t power_of_two(uint32_t f) {
    uint64_t x = (uint64_t)((wide)((uint64_t)f << 30) * LN2_62 >> 62);
    uint64_t sum = UINT64_C(1) << 62, term = sum;
    for (uint64_t i = 1; term; i++) {
        term = (uint64_t)((wide)term * x >> 62) / i;
        sum += term;
    }
    return sum;
}

uint64_t lognormal_draw(const lognormal *l, const uint64_t *table, uint64_t *state) {
    int64_t z = deviate(table, state);
    int64_t t = (int64_t)((__int128)l->sigma * z / ((__int128)1 << 32));
    t = (int64_t)((__int128)t * LOG2E_32 / ((__int128)1 << 32));
    uint32_t fraction = (uint32_t)((uint64_t)t & UINT32_MAX);
    int64_t whole = (t - (int64_t)fraction) / (INT64_C(1) << 32);
    if (whole > 40) return l->max;
    if (whole < -45) return l->min;
    wide length = (wide)l->median * power_of_two(fraction);
    int shift = 62 - (int)whole;
    length = (length + ((wide)1 << (shift - 1))) >> shift;
    return length < l->min ? l->min : length > l->max ? l->max : (uint64_t)length;
}
