/* integers.h: small functions of whole numbers. */
#ifndef FCPC_BASE_INTEGERS_H
#define FCPC_BASE_INTEGERS_H
#include <stdint.h>

static inline uint64_t min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }
/* a - b, or 0 if b is larger. */
static inline uint64_t sub_sat(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

/* The greatest common divisor; of a and 0 it is a. Example: of 12 and 18 it is 6. */
static inline uint64_t common_divisor(uint64_t a, uint64_t b) {
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The square root, rounded down: exact for small numbers by the processor's, else by Newton's method from above. */
static inline uint64_t square_root(unsigned __int128 v) {
    if (!v) return 0;
    if (v >> 52 == 0) { /* exact as a double */
        uint64_t x = (uint64_t)__builtin_sqrt((double)v);
        while ((unsigned __int128)x * x > v) x--;
        while ((unsigned __int128)(x + 1) * (x + 1) <= v) x++;
        return x;
    }
    uint64_t high = (uint64_t)(v >> 64);
    unsigned bits = high ? 128 - (unsigned)__builtin_clzll(high) : 64 - (unsigned)__builtin_clzll((uint64_t)v);
    unsigned __int128 x = (unsigned __int128)1 << (bits + 1) / 2, y; /* at least the root */
    while ((y = (x + v / x) / 2) < x) x = y;
    return (uint64_t)x;
}
#endif
