/* place_batch.h: makes causal placement problems for tests and benchmarks of placement.
 *
 * A batch of lengths becomes blocks by the planner's rule:
 * 1. Every sequence is cut at multiples of `block`.
 * 2. Remainders and short sequences stay whole and are packed into shared blocks, best fit decreasing, ties by
 *    sequence.
 * Example with block = 100: sequences of 250 and 40 tokens become the blocks 100, 100, and 50 + 40.
 *
 * Work is counted in pairs that the causal mask allows. A block reads itself and the earlier full blocks of each of its
 * sequences.
 */
#ifndef PLACE_BATCH_H
#define PLACE_BATCH_H
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/place/place.h"

typedef struct place_batch {
    place_input in;
    uint32_t *tokens, *start, *reads;
    uint64_t *work;
} place_batch;

static void place_batch_free(place_batch *b) {
    free(b->tokens), free(b->start), free(b->reads), free(b->work);
    *b = (place_batch){0};
}

typedef struct batch_rest {
    uint32_t length, sequence;
} batch_rest;

static int batch_rest_order(const void *a, const void *b) {
    const batch_rest *x = a, *y = b;
    if (x->length != y->length) return x->length > y->length ? -1 : 1;
    return x->sequence < y->sequence ? -1 : x->sequence > y->sequence;
}

/* False when out of memory. */
static bool place_batch_causal(place_batch *out, const uint64_t *lengths, uint32_t sequences, uint32_t ranks,
                               uint32_t gpus, uint32_t block) {
    uint32_t full = 0, rests = 0, shared = 0;
    uint64_t reads = 0;
    *out = (place_batch){0};
    for (uint32_t s = 0; s < sequences; s++) {
        uint64_t m = lengths[s] / block;
        full += (uint32_t)m;
        rests += lengths[s] % block != 0;
        reads += m * (m + 1) / 2 + m + 1;
    }
    size_t blocks = (size_t)full + rests;
    uint32_t *tokens = calloc(blocks + 1, sizeof *tokens), *start = calloc(blocks + 2, sizeof *start);
    uint64_t *work = calloc(blocks + 1, sizeof *work);
    uint32_t *read = malloc((reads + 1) * sizeof *read), *first = calloc(sequences + 1, sizeof *first);
    batch_rest *rest = malloc((rests + (size_t)1) * sizeof *rest);
    uint32_t *bin_head = calloc(block + (size_t)1, sizeof *bin_head);
    uint32_t *bin_next = calloc(rests + (size_t)1, sizeof *bin_next);
    uint32_t *chain = malloc((rests + (size_t)1) * sizeof *chain), *last = calloc(rests + (size_t)1, sizeof *last);
    out->tokens = tokens, out->work = work, out->start = start, out->reads = read;
    bool ok = tokens && work && start && read && first && rest && bin_head && bin_next && chain && last;
    if (ok) {
        uint32_t at = 0, r = 0;
        size_t w = 0;
        for (uint32_t s = 0; s < sequences; s++) {
            uint32_t m = (uint32_t)(lengths[s] / block);
            first[s] = at;
            for (uint32_t i = 0; i < m; i++, at++) {
                tokens[at] = block;
                work[at] = (uint64_t)i * block * block + (uint64_t)block * (block + 1) / 2;
                for (uint32_t j = 0; j <= i; j++) read[w++] = first[s] + j;
                start[at + 1] = (uint32_t)w;
            }
            if (lengths[s] % block) rest[r++] = (batch_rest){(uint32_t)(lengths[s] % block), s};
        }
        qsort(rest, r, sizeof *rest, batch_rest_order);
        for (uint32_t i = 0; i < r; i++) { /* bin_head: per free space the newest bin + 1; last: newest member + 1 */
            uint32_t space = rest[i].length, bin;
            while (space < block && !bin_head[space]) space++;
            if (space < block) {
                bin = bin_head[space] - 1;
                bin_head[space] = bin_next[bin];
            } else {
                bin = shared++;
            }
            space -= rest[i].length;
            if (space) bin_next[bin] = bin_head[space], bin_head[space] = bin + 1;
            chain[i] = last[bin];
            last[bin] = i + 1;
        }
        for (uint32_t bin = 0; bin < shared; bin++, at++) {
            size_t from = w;
            for (uint32_t i = last[bin]; i; i = chain[i - 1]) {
                uint32_t length = rest[i - 1].length, s = rest[i - 1].sequence, m = (uint32_t)(lengths[s] / block);
                tokens[at] += length;
                work[at] += (uint64_t)m * block * length + (uint64_t)length * (length + 1) / 2;
                /* ascending: insert the run of this sequence before the runs of later ones */
                size_t to = w;
                while (to > from && read[to - 1] > first[s]) to--;
                memmove(read + to + m, read + to, (w - to) * sizeof *read);
                for (uint32_t j = 0; j < m; j++) read[to + j] = first[s] + j;
                w += m;
            }
            read[w++] = at;
            start[at + 1] = (uint32_t)w;
        }
        out->in = (place_input){.tolerance = 5000, .ranks = ranks, .gpus = gpus, .blocks = at, .block = block,
                                .tokens = tokens,
                                .work = work, .reads_start = start, .reads = read};
    }
    free(first), free(rest), free(bin_head), free(bin_next), free(chain), free(last);
    if (!ok) place_batch_free(out);
    return ok;
}

#endif
