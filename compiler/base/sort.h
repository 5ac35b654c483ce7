/* sort.h: sorts 64-bit keys. */
#ifndef FCPC_BASE_SORT_H
#define FCPC_BASE_SORT_H
#include <stddef.h>
#include <stdint.h>

/* Sorts n keys, ascending. `scratch` has room for n. Callers pack (key << 32 | index), so that equal keys stay in the
 * order of their index. Cost: O(n) for each byte in which keys differ. */
void sort_u64(uint64_t *keys, uint64_t *scratch, size_t n);

/* Replace n values by their indices, in the order of rising or falling values; equal values stay in the order of their
 * index. `scratch` has room for n; n is below 2^32. If a value has more than 32 bits, only the upper 32 bits of all
 * values are compared, counted from the highest bit of the largest one.
 * Example: order_falling makes 5 9 5 into 1 0 2. */
void order_rising(uint64_t *values, uint64_t *scratch, size_t n);
void order_falling(uint64_t *values, uint64_t *scratch, size_t n);
#endif
