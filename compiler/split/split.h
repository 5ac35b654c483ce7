/* split.h: splits a large batch into micro-batches, each of which the ranks can hold.
 *
 * Example: a step of training has 512 sequences of 4 million tokens, and the ranks hold 1 million at a time. So there
 * are four micro-batches or a few more, which run one after the other. Each should have about as much work as the
 * others, because a pipeline, or a group of ranks that has other micro-batches, waits for the longest.
 *
 * split_items.c knows only items and bins, so that it can serve whatever else has to be packed under a budget.
 */
#ifndef FCPC_SPLIT_SPLIT_H
#define FCPC_SPLIT_SPLIT_H
#include "compiler/base/arena.h"
#include "compiler/fcpc.h"

typedef struct split_item {
    uint64_t tokens, cost; /* of any unit; all costs add up to less than 2^63 */
} split_item;

typedef struct split_how {
    uint64_t cap;    /* the most tokens of a bin */
    uint32_t least;  /* at least so many bins; with fewer items, as many as items */
    bool keep_order; /* each bin has neighbouring items, and bins are in their order */
    /* Whether these items, in rising order, go into one bin. It must accept each item alone. NULL: the cap is all */
    bool (*accepts)(void *context, const uint32_t *items, uint32_t count);
    void *context;
} split_how;

/* Puts each item into a bin: out_of [count]. Few bins come first, then a small cost of the costliest. Without
 * keep_order, bin 0 is the costliest, and so on. No bin is empty; without items there is none. The same items give the
 * same bins. FCP_E_VALUE: an item alone exceeds the cap; *out_bins is its number. */
fcp_code split_items(const split_item *items, uint32_t count, const split_how *how, arena *scratch, uint32_t *out_of,
                     uint32_t *out_bins);

/* split_batch.c. FCP_E_ARGUMENT: the options say more tokens than a rank can hold. */
fcp_code split_check(const fcpc_split_options *how, fcp_error *err);
/* The most tokens of a micro-batch, on all ranks. *out_each: of a rank, as the options or the program say. */
uint64_t split_cap(const fcpc_program *program, const fcpc_split_options *how, uint32_t *out_each);
#endif
