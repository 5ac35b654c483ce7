/* divisor.h: the greatest common divisor. */
#ifndef FCPC_BASE_DIVISOR_H
#define FCPC_BASE_DIVISOR_H
#include <stdint.h>

/* Of a and 0 it is a. Example: of 12 and 18 it is 6. */
static inline uint64_t common_divisor(uint64_t a, uint64_t b) {
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}
#endif
