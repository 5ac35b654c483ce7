/* grow.h: makes a malloc'd array larger. */
#ifndef FCP_BASE_GROW_H
#define FCP_BASE_GROW_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Makes room for `need` elements in a malloc'd array, and keeps those that are there; both arguments are variables.
 * `array` is a pointer, NULL at the beginning, and `room` the number of elements that it has room for, of 32 or 64 bits.
 * false: out of memory, and both are as before. The room grows by half at least, so n elements that are added one by
 * one cost O(n). */
#define FCP_GROW(array, room, need)                                                                                    \
    ((need) <= (room) || fcp_grow_array(&(array), &(room), sizeof(room), (need), sizeof *(array)))

static inline bool fcp_grow_array(void *array, void *room, size_t room_bytes, uint64_t need, size_t size) {
    const bool narrow = room_bytes == sizeof(uint32_t);
    const uint64_t most = narrow && SIZE_MAX / size > UINT32_MAX ? UINT32_MAX : SIZE_MAX / size;
    void *old, *bigger;
    if (need > most) return false;
    uint64_t wanted = need < 64 ? 64 : need > most / 2 ? need : need + need / 2;
    memcpy(&old, array, sizeof old);
    bigger = realloc(old, (size_t)wanted * size);
    if (!bigger) return false;
    memcpy(array, &bigger, sizeof bigger);
    if (narrow) *(uint32_t *)room = (uint32_t)wanted;
    else *(uint64_t *)room = wanted;
    return true;
}
#endif
