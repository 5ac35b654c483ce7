/* grow.h: makes a malloc'd array larger. */
#ifndef FCP_BASE_GROW_H
#define FCP_BASE_GROW_H
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

/* Makes room for at least `need` elements of `size` bytes, and keeps the elements that are there. *array is
 * malloc'd, or NULL at the beginning. False: out of memory, and the array is as before. */
static inline bool fcp_grow(void **array, uint32_t *capacity, uint32_t need, size_t size) {
    if (need <= *capacity) return true;
    uint32_t wanted = need < 64 ? 64 : need > UINT32_MAX / 2 ? UINT32_MAX : need + need / 2;
    void *bigger = realloc(*array, (size_t)wanted * size);
    if (!bigger) return false;
    *array = bigger;
    *capacity = wanted;
    return true;
}
#endif
