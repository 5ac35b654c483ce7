/* bins.h: bins by their free space, for packing by best fit: the fullest bin that has room, in a few steps. */
#ifndef FCPC_PROBLEM_BINS_H
#define FCPC_PROBLEM_BINS_H
#include "compiler/base/arena.h"
#include "runtime/plan/enums.h"

/* Bins, kept in a stack for each amount of free space. A tree of bitmaps, 64 children to a node, says which stacks have
 * bins. So the next larger amount that has a bin is found in four steps, one for each level. */
enum { BINS_LEVELS = 4, BINS_SPACE_MAX = 1 << 24 }; /* 64^4 amounts */
typedef struct bins {
    uint32_t *head;               /* per amount: newest bin + 1 */
    uint32_t *next;               /* per bin */
    uint64_t *level[BINS_LEVELS]; /* level[0] over amounts, each further one over the words below */
} bins;

/* No bin yet. space: the most that a bin has free, less than BINS_SPACE_MAX. False: no memory. */
bool bins_init(bins *b, arena *scratch, uint32_t space, uint32_t max_bins);
void bins_put(bins *b, uint32_t space, uint32_t bin);
/* Takes the newest bin with the least free space >= need; FCP_NONE when there is none. */
uint32_t bins_take(bins *b, uint32_t need, uint32_t *out_space);
#endif
