/* change_number.h: the random changes of a mutator that leaves an input nearly right.
 *
 * Requires: a state that is not 0.
 * Gives:    random numbers by xorshift (Marsaglia), and a 32-bit number in the input that has become another one.
 * Cost:     constant.
 */
#ifndef FUZZ_CHANGE_NUMBER_H
#define FUZZ_CHANGE_NUMBER_H
#include <stdint.h>
#include <string.h>

static inline uint64_t fuzz_next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* One of `words` numbers of 4 bytes becomes one more or less, another by a bit, any, or equal to one of the others. */
static inline void fuzz_change_number(uint8_t *first, size_t words, uint64_t *state) {
    uint8_t *at = first + fuzz_next(state) % words * 4;
    uint32_t value;
    memcpy(&value, at, 4);
    switch (fuzz_next(state) % 5) {
    case 0: value++; break;
    case 1: value--; break;
    case 2: value = (uint32_t)fuzz_next(state); break;
    case 3: value ^= 1u << fuzz_next(state) % 32; break;
    default: memcpy(&value, first + fuzz_next(state) % words * 4, 4);
    }
    memcpy(at, &value, 4);
}
#endif
