/* union_find.h: disjoint sets of numbers, which are joined two at a time (union-find with path halving).
 *
 * parent[i] leads from i to the representative of its set, which is the least number of the set and its own parent. At
 * first parent[i] = i for all i. Example: after joining 3 with 1 and 1 with 2, the representative of 3 is 1. */
#ifndef FCPC_BASE_UNION_FIND_H
#define FCPC_BASE_UNION_FIND_H
#include <stdint.h>

/* The representative of x's set. */
static inline uint32_t union_find(uint32_t *parent, uint32_t x) {
    while (parent[x] != x) x = parent[x] = parent[parent[x]];
    return x;
}

static inline void union_join(uint32_t *parent, uint32_t a, uint32_t b) {
    a = union_find(parent, a);
    b = union_find(parent, b);
    if (a < b) parent[b] = a;
    else parent[a] = b;
}

/* Numbers the sets of 0 to n - 1 in the order of their least members, and writes each one's number to out_set. Returns
 * how many sets there are. */
static inline uint32_t union_number(uint32_t *parent, uint32_t n, uint32_t *out_set) {
    uint32_t sets = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t first = union_find(parent, i);
        out_set[i] = first == i ? sets++ : out_set[first];
    }
    return sets;
}
#endif
