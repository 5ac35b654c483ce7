/* sort.h: ascending sort of 64-bit keys; callers pack (key << 32 | index), so that ties go by index. */
#ifndef FCPC_BASE_SORT_H
#define FCPC_BASE_SORT_H
#include <stddef.h>
#include <stdint.h>

/* O(n) per byte that varies; `scratch` has room for n keys. */
void sort_u64(uint64_t *keys, uint64_t *scratch, size_t n);
#endif
