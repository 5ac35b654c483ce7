/* saturate.h: sums and products of sizes that become UINT64_MAX where they do not fit in 64 bits, so that comparing
 * them with a limit stays right.
 */
#ifndef FCP_BASE_SATURATE_H
#define FCP_BASE_SATURATE_H
#include <stdint.h>

static inline uint64_t fcp_times(uint64_t a, uint64_t b) {
    uint64_t c;
    return __builtin_mul_overflow(a, b, &c) ? UINT64_MAX : c;
}

static inline uint64_t fcp_plus(uint64_t a, uint64_t b) {
    uint64_t c;
    return __builtin_add_overflow(a, b, &c) ? UINT64_MAX : c;
}
#endif
