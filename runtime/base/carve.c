/* carve.c: makes several arrays in one allocation.
 *
 * Requires: sizes of elements whose alignment is at most that of max_align_t.
 * Gives: memory of which every byte is 0.
 * Cost: one call of calloc.
 */
#include "runtime/base/carve.h"

#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#define ARRAYS_REDZONE 32
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARRAYS_REDZONE 32
#endif
#endif
#ifdef ARRAYS_REDZONE
#include <sanitizer/asan_interface.h>
#else
#define ARRAYS_REDZONE 0
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

/* Adds an array to the bytes before it; false: that is more than there can be. */
static bool add_size(const fcp_carved *t, size_t *bytes) {
    const size_t unit = alignof(max_align_t);
    size_t mine;
    if (__builtin_mul_overflow(t->count, t->size, &mine) || mine > SIZE_MAX / 2 - *bytes) return false;
    *bytes = (*bytes + mine + ARRAYS_REDZONE + unit - 1) / unit * unit;
    return true;
}

void *fcp_carve(const fcp_carved *arrays, size_t count) {
    size_t bytes = 0, at = 0;
    for (size_t i = 0; i < count; i++)
        if (!add_size(&arrays[i], &bytes)) return NULL;
    char *room = calloc(bytes + 1, 1);
    for (size_t i = 0; i < count && room; i++) {
        char *array = room + at;
        memcpy(arrays[i].pointer, &array, sizeof array); /* a pointer of any type */
        add_size(&arrays[i], &at);
        const size_t mine = arrays[i].count * arrays[i].size;
        ASAN_POISON_MEMORY_REGION(array + mine, (size_t)(room + at - array) - mine);
    }
    return room;
}
