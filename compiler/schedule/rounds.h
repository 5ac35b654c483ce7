/* rounds.h: units as the edges of a graph to be coloured. What moves.c builds is in schedule.h. */
#ifndef FCPC_SCHEDULE_ROUNDS_H
#define FCPC_SCHEDULE_ROUNDS_H
#include "compiler/schedule/schedule.h"

/* A bipartite multigraph of units, to be coloured; its arrays are used again and again. */
typedef struct edges {
    uint32_t *src, *dst, *size, *colour;
    uint32_t count, colours;
} edges;

bool edges_new(edges *e, arena *scratch, size_t room);
fcp_code edges_colour(edges *e, planning *x); /* fills colour and colours; adds to x->times.colour */
static inline void edges_add(edges *e, uint32_t src, uint32_t dst, uint32_t size) {
    e->src[e->count] = src;
    e->dst[e->count] = dst;
    e->size[e->count++] = size;
}

/* Tokens of a block's unit. */
static inline uint32_t unit_tokens(const problem *p, uint32_t block, uint32_t unit) {
    uint32_t left = p->blocks[block].tokens - unit * p->unit;
    return left < p->unit ? left : p->unit;
}
#endif
