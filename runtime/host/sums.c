/* sums.c: exact sums of floats as wide integers (sums.h).
 *
 * A finite float is a 24-bit integer times a power of two, which is at least 2^-149. A sum is an integer of DIGITS
 * digits of 32 bits each, each in a word of 64 bits. A number adds less than 2^32 to a digit, so 2^31 numbers can be
 * added before carries must be propagated. Digits may be negative in between.
 *
 * Cost: an addition touches two words. A sum takes 88 bytes.
 */
#include "runtime/host/sums.h"

#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { DIGITS = 10, LOWEST = -149 };

struct sum {
    int64_t digit[DIGITS]; /* digit i counts 2^(32 i - 149) */
    double other;          /* the sum of what is not finite */
};

struct fcp_sums {
    pthread_mutex_t lock;
    size_t count;
    uint64_t added; /* numbers, since carries were passed on */
    struct sum sum[];
};

fcp_sums *fcp_sums_new(size_t count) {
    fcp_sums *s = calloc(1, sizeof *s + count * sizeof *s->sum);
    if (!s) return NULL;
    s->count = count;
    if (pthread_mutex_init(&s->lock, NULL) == 0) return s;
    free(s);
    return NULL;
}

void fcp_sums_free(fcp_sums *s) {
    if (s) pthread_mutex_destroy(&s->lock);
    free(s);
}


void fcp_sums_clear(fcp_sums *s) {
    memset(s->sum, 0, s->count * sizeof *s->sum);
    s->added = 0;
}

/* Passes carries on: all digits but the last are then in [0, 2^32). */
static void carry(struct sum *x) {
    for (int i = 0; i + 1 < DIGITS; i++) {
        int64_t low = x->digit[i] & UINT32_MAX;
        x->digit[i + 1] += (x->digit[i] - low) / ((int64_t)1 << 32);
        x->digit[i] = low;
    }
}

void fcp_sums_enter(fcp_sums *s) {
    pthread_mutex_lock(&s->lock);
    if (s->added < (uint64_t)1 << 30) return;
    for (size_t i = 0; i < s->count; i++) carry(&s->sum[i]);
    s->added = 0;
}

void fcp_sums_leave(fcp_sums *s) { pthread_mutex_unlock(&s->lock); }

void fcp_sums_add(fcp_sums *s, size_t i, float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t exponent = bits >> 23 & 0xff, fraction = bits & 0x7fffff;
    struct sum *to = &s->sum[i];
    s->added++;
    if (exponent == 0xff) {
        to->other += (double)x;
        return;
    }
    const uint32_t place = exponent ? exponent - 1 : 0; /* the lowest bit counts 2^(place - 149) */
    const uint64_t whole = (uint64_t)(exponent ? fraction | 0x800000 : fraction) << place % 32;
    const int64_t low = (int64_t)(whole & UINT32_MAX), high = (int64_t)(whole >> 32);
    to->digit[place / 32] += bits >> 31 ? -low : low;
    to->digit[place / 32 + 1] += bits >> 31 ? -high : high;
}

/* Rounds the sum to a float. The two highest digits have at least 33 bits, and a float has 24. Of the digits below
 * them, rounding needs to know only whether all are 0, which goes into the lowest bit. */
static float rounded(struct sum *x) {
    if (x->other != 0) return isnan(x->other) ? NAN : (float)x->other; /* also if it is NaN */
    carry(x);
    const bool negative = x->digit[DIGITS - 1] < 0;
    for (int i = 0; negative && i < DIGITS; i++) x->digit[i] = -x->digit[i];
    if (negative) carry(x);
    int top = DIGITS - 1;
    while (top > 1 && x->digit[top] == 0) top--;
    uint64_t whole = (uint64_t)x->digit[top] << 32 | (uint64_t)x->digit[top - 1];
    for (int i = 0; i < top - 1; i++) whole |= x->digit[i] != 0;
    const float size = ldexpf((float)whole, 32 * (top - 1) + LOWEST);
    return negative ? -size : size;
}

void fcp_sums_read(fcp_sums *s, float *out) {
    for (size_t i = 0; i < s->count; i++) {
        struct sum copy = s->sum[i];
        out[i] = rounded(&copy);
    }
}
