/* group.h: groups items by an integer key with a counting sort, and lists the items of each group. */
#ifndef FCPC_BASE_GROUP_H
#define FCPC_BASE_GROUP_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compiler/base/arena.h"
#include "runtime/fcp.h"

/* Sorts the numbers 0 to count - 1 of items by their keys. Example: with keys 2 0 2 1 and three groups, `item` becomes
 * 1 3 0 2 and `start` 0 1 2 4: the items of key g are item[start[g]] to item[start[g + 1] - 1], in ascending order. The
 * key of item i lies i * stride bytes after first_key. An item whose key is `groups` or more, such as FCP_NONE, is left
 * out. `start` has room for groups + 2 numbers, `item` for count. Cost: O(count + groups).
 * False: `stop` (runtime/base/stop.h) was set, and start and item mean nothing. */
bool group_by(const uint32_t *first_key, size_t stride, uint32_t count, uint32_t groups, uint32_t *start,
              uint32_t *item, const volatile int *stop);

/* The same with arrays from an arena. FCP_E_NO_MEMORY, FCP_E_INTERRUPTED. */
fcp_code group_new(arena *a, const uint32_t *first_key, size_t stride, uint32_t count, uint32_t groups,
                   const volatile int *stop, uint32_t **out_start, uint32_t **out_item);

/* Prefix sums: turns the sizes of groups into where they start. Before, count[0] is 0 and count[g + 1] is the size of
 * group g; afterwards count[g] is the place of the first item of group g, and count[groups] the number of all items. */
void group_starts(uint32_t *count, uint32_t groups);
#endif
