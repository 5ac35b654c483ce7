/* grow.h: makes a malloc'd array larger. */
#ifndef FCP_BASE_GROW_H
#define FCP_BASE_GROW_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Makes room for `need` elements in a malloc'd array, and keeps those that are there. `array` is a variable, a pointer
 * to the elements, and NULL at the beginning. `room` is a variable of 32 or 64 bits: how many elements the array has
 * room for. Returns false, and changes neither, if there is no memory. The room grows by half at least, so n elements
 * that are added one by one cost O(n). */
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
