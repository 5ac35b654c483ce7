/* rounds.h: units as the edges of a graph whose colours are rounds. (rounds_build is declared in schedule.h.) */
#ifndef FCPC_SCHEDULE_ROUNDS_H
#define FCPC_SCHEDULE_ROUNDS_H
#include "compiler/schedule/schedule.h"

/* A bipartite multigraph of units. Its arrays are made once and used for many colourings. */
typedef struct edges {
    uint32_t *src, *dst, *size, *colour;
    uint32_t count, colours;
} edges;

/* Sorts items by work, the most first, equals by index: the low 32 bits of keys[i] become the index of the i-th item.
 * `room` has room for `count` numbers, too. */
void by_falling_work(const uint64_t *work, uint32_t count, uint64_t *keys, uint64_t *room);

bool edges_new(edges *e, arena *scratch, size_t room);
fcp_code edges_colour(edges *e, planning *x); /* fills colour and colours; adds to x->times.colour */
static inline void edges_add(edges *e, uint32_t src, uint32_t dst, uint32_t size) {
    e->src[e->count] = src;
    e->dst[e->count] = dst;
    e->size[e->count++] = size;
}
#endif
