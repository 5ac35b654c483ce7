/* bins.c: bins by their free space, for packing by best fit. */
#include "compiler/problem/bins.h"

bool bins_init(bins *b, arena *scratch, uint32_t space, uint32_t max_bins) {
    size_t n = (size_t)space + 1;
    b->head = ARENA_ZNEW(scratch, uint32_t, n);
    b->next = ARENA_NEW(scratch, uint32_t, max_bins + (size_t)1);
    if (!b->head || !b->next) return false;
    for (unsigned l = 0; l < BINS_LEVELS; l++) {
        n = n / 64 + 2; /* one word past the end may be read */
        if (!(b->level[l] = ARENA_ZNEW(scratch, uint64_t, n))) return false;
    }
    return true;
}

void bins_put(bins *b, uint32_t space, uint32_t bin) {
    b->next[bin] = b->head[space];
    b->head[space] = bin + 1;
    for (unsigned l = 0; l < BINS_LEVELS; l++, space /= 64) b->level[l][space / 64] |= UINT64_C(1) << space % 64;
}

uint32_t bins_take(bins *b, uint32_t need, uint32_t *out_space) {
    size_t at = need;
    unsigned l = 0;
    for (; l < BINS_LEVELS; l++, at = at / 64 + 1) { /* up, until a bit at or after `at` is set */
        uint64_t word = b->level[l][at / 64] >> at % 64;
        if (!word) continue;
        at += (unsigned)__builtin_ctzll(word);
        break;
    }
    if (l == BINS_LEVELS) return FCP_NONE;
    while (l-- > 0) at = at * 64 + (unsigned)__builtin_ctzll(b->level[l][at]);
    uint32_t bin = b->head[at] - 1;
    *out_space = (uint32_t)at;
    if (!(b->head[at] = b->next[bin]))
        for (size_t i = at, k = 0; k < BINS_LEVELS; k++, i /= 64)
            if (b->level[k][i / 64] &= ~(UINT64_C(1) << i % 64)) break;
    return bin;
}
