/* group.h: which items have key 0, which have key 1, ...: grouping by counting. */
#ifndef FCPC_BASE_GROUP_H
#define FCPC_BASE_GROUP_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compiler/base/arena.h"
#include "runtime/fcp.h"

/* Item i (i < count) has the key that lies i * stride bytes after first_key; a key >= groups (as FCP_NONE is) leaves
 * the item out. Afterwards the items of key g are item[start[g]], ..., item[start[g + 1] - 1], in ascending order.
 * `start` has room for groups + 2 numbers, `item` for count.
 * Example: keys 2 0 2 1, three groups: start = 0 1 2 4, item = 1 3 0 2. Cost: O(count + groups).
 * `stop` (runtime/base/stop.h) ends it; then it returns false, and start and item are worthless. */
bool group_by(const uint32_t *first_key, size_t stride, uint32_t count, uint32_t groups, uint32_t *start,
              uint32_t *item, const volatile int *stop);

/* The same with arrays from an arena. FCP_E_NO_MEMORY, FCP_E_INTERRUPTED. */
fcp_code group_new(arena *a, const uint32_t *first_key, size_t stride, uint32_t count, uint32_t groups,
                   const volatile int *stop, uint32_t **out_start, uint32_t **out_item);

/* Makes counts into starts: where count[g + 1] was the size of group g, and count[0] is 0, count[g] becomes the first
 * place of group g, and count[groups] the size of all. */
void group_starts(uint32_t *count, uint32_t groups);
#endif
