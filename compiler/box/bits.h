/* bits.h: bit vectors of up to 128 bits, one bit for each key of a cell's row. Bit j is bit j % 64 of word j / 64. */
#ifndef FCPC_BOX_BITS_H
#define FCPC_BOX_BITS_H
#include <stdbool.h>
#include <stdint.h>

/* The lowest n bits of a word; all of them from n = 64 on. */
static inline uint64_t low_bits(uint32_t n) { return n >= 64 ? UINT64_MAX : ((uint64_t)1 << n) - 1; }

static inline bool get_bit(const uint64_t bits[2], uint32_t j) { return bits[j >> 6] >> (j & 63) & 1; }
static inline void set_bit(uint64_t bits[2], uint32_t j) { bits[j >> 6] |= (uint64_t)1 << (j & 63); }

/* Sets bits [from, to). */
static inline void set_bits(uint64_t bits[2], uint32_t from, uint32_t to) {
    if (from >= to) return;
    if (from < 64) bits[0] |= low_bits(to) & ~low_bits(from);
    if (to > 64) bits[1] |= low_bits(to - 64) & (from > 64 ? ~low_bits(from - 64) : UINT64_MAX);
}

static inline uint64_t count_bits(const uint64_t bits[2]) {
    return (uint64_t)__builtin_popcountll(bits[0]) + (uint64_t)__builtin_popcountll(bits[1]);
}
#endif
