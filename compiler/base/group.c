/* group.c: a counting sort: counts the items of each key, makes prefix sums of the counts, and then puts every item at
 * the next free place of its group. */
#include "compiler/base/group.h"

#include <string.h>

#include "runtime/base/stop.h"

enum { STRETCH = 1 << 17 }; /* items between two looks at stop */

void group_starts(uint32_t *count, uint32_t groups) {
    for (uint32_t g = 0; g < groups; g++) count[g + 1] += count[g];
}

bool group_by(const uint32_t *first_key, size_t stride, uint32_t count, uint32_t groups, uint32_t *start,
              uint32_t *item, const volatile int *stop) {
    const char *key = (const char *)first_key;
    uint32_t *next = start + 1; /* next[g]: the next free place of group g; in the end, where group g + 1 starts */
    memset(start, 0, (groups + (size_t)2) * sizeof *start);
    for (uint32_t i = 0; i < count;) {
        uint32_t end = count - i > STRETCH ? i + STRETCH : count;
        if (fcp_stop_asked(stop)) return false;
        for (; i < end; i++) {
            uint32_t g = *(const uint32_t *)(key + i * stride);
            if (g < groups) next[g + 1]++;
        }
    }
    group_starts(next, groups);
    for (uint32_t i = 0; i < count;) {
        uint32_t end = count - i > STRETCH ? i + STRETCH : count;
        if (fcp_stop_asked(stop)) return false;
        for (; i < end; i++) {
            uint32_t g = *(const uint32_t *)(key + i * stride);
            if (g < groups) item[next[g]++] = i;
        }
    }
    return true;
}

fcp_code group_new(arena *a, const uint32_t *first_key, size_t stride, uint32_t count, uint32_t groups,
                   const volatile int *stop, uint32_t **out_start, uint32_t **out_item) {
    *out_start = ARENA_NEW(a, uint32_t, groups + (size_t)2);
    *out_item = ARENA_NEW(a, uint32_t, count + (size_t)1);
    if (!*out_start || !*out_item) return FCP_E_NO_MEMORY;
    return group_by(first_key, stride, count, groups, *out_start, *out_item, stop) ? FCP_OK : FCP_E_INTERRUPTED;
}
