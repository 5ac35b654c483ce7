/* sort.c: sorts by the lowest byte first, then by the next (radix sort), and skips bytes in which all keys agree. A
 * few keys are sorted by insertion. */
#include "compiler/base/sort.h"

#include <string.h>

enum { SHORT = 48 };

void sort_u64(uint64_t *keys, uint64_t *scratch, size_t n) {
    if (n <= SHORT) {
        for (size_t i = 1; i < n; i++) {
            uint64_t key = keys[i];
            size_t j = i;
            for (; j > 0 && keys[j - 1] > key; j--) keys[j] = keys[j - 1];
            keys[j] = key;
        }
        return;
    }
    uint64_t all = keys[0], any = keys[0];
    for (size_t i = 1; i < n; i++) all &= keys[i], any |= keys[i];
    uint64_t varies = all ^ any;
    uint64_t *from = keys, *to = scratch;
    for (unsigned shift = 0; shift < 64; shift += 8) {
        if (!(varies >> shift & 255)) continue;
        size_t count[256] = {0}, at = 0;
        for (size_t i = 0; i < n; i++) count[from[i] >> shift & 255]++;
        for (unsigned d = 0; d < 256; d++) {
            size_t c = count[d];
            count[d] = at;
            at += c;
        }
        for (size_t i = 0; i < n; i++) to[count[from[i] >> shift & 255]++] = from[i];
        uint64_t *t = from;
        from = to;
        to = t;
    }
    if (from != keys) memcpy(keys, from, n * sizeof *keys);
}

static void order_by(uint64_t *values, uint64_t *scratch, size_t n, uint64_t flip) {
    uint64_t most = 0;
    unsigned shift = 0;
    for (size_t i = 0; i < n; i++)
        if (values[i] > most) most = values[i];
    while (most >> shift > UINT32_MAX) shift++;
    for (size_t i = 0; i < n; i++) values[i] = (values[i] >> shift ^ flip) << 32 | i;
    sort_u64(values, scratch, n);
    for (size_t i = 0; i < n; i++) values[i] &= UINT32_MAX;
}

void order_rising(uint64_t *values, uint64_t *scratch, size_t n) { order_by(values, scratch, n, 0); }
void order_falling(uint64_t *values, uint64_t *scratch, size_t n) { order_by(values, scratch, n, UINT32_MAX); }
