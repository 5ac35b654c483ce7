/* sort.h: sorts 64-bit keys, ascending. Callers pack (key << 32 | index), so that equal keys stay in the order of their
 * index. */
#ifndef FCPC_BASE_SORT_H
#define FCPC_BASE_SORT_H
#include <stddef.h>
#include <stdint.h>

/* `scratch` has room for n keys. Cost: O(n) for each byte in which keys differ. */
void sort_u64(uint64_t *keys, uint64_t *scratch, size_t n);
#endif
