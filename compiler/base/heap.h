/* heap.h: a binary heap: a priority queue in an array. The entry with the least key is heap[0]; of equal keys, the one
 * with the least value. */
#ifndef FCPC_BASE_HEAP_H
#define FCPC_BASE_HEAP_H
#include <stdbool.h>
#include <stdint.h>

typedef struct heap_entry {
    uint64_t key;
    uint32_t value;
} heap_entry;

static inline bool heap_before(const heap_entry *a, const heap_entry *b) {
    return a->key != b->key ? a->key < b->key : a->value < b->value;
}

/* Adds an entry to the `count` that there are; the array has room for it. */
static inline void heap_push(heap_entry *heap, uint32_t count, heap_entry e) {
    uint32_t at = count;
    for (; at && heap_before(&e, &heap[(at - 1) / 2]); at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
    heap[at] = e;
}

/* Replaces heap[0], which the caller has taken, by the entry e. The heap then has `count` entries. To remove heap[0]
 * instead, pass the last entry of the heap as e, and a count that is one less. */
static inline void heap_replace(heap_entry *heap, uint32_t count, heap_entry e) {
    uint32_t at = 0;
    for (uint32_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && heap_before(&heap[child + 1], &heap[child])) child++;
        if (!heap_before(&heap[child], &e)) break;
        heap[at] = heap[child];
    }
    heap[at] = e;
}
#endif
