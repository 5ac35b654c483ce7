/* colour_parts.h: what colour.c is made of: exact colouring of one set of edges, and layers of edges of like size. */
#ifndef FCPC_SCHEDULE_COLOUR_PARTS_H
#define FCPC_SCHEDULE_COLOUR_PARTS_H
#include "runtime/fcp.h"
#include "compiler/base/arena.h"

/* A bipartite multigraph: edge e joins left[e] < lefts and right[e] < rights. */
typedef struct bigraph {
    uint32_t lefts, rights, edges;
    const uint32_t *left, *right;
    const volatile int *stop; /* asked while it is coloured: runtime/base/stop.h */
} bigraph;

/* Per-vertex arrays that calls of colour_euler share; their contents are nobody's between calls. */
typedef struct colour_work {
    uint32_t *left, *right;
} colour_work;

/* colour_euler.c: colours the edges ids[0 .. count) with exactly as many colours as their largest degree, numbered from
 * `first`; *out_degree is that degree. */
fcp_code colour_euler(arena *scratch, const colour_work *work, const bigraph *g, const uint32_t *ids, uint32_t count,
                      uint32_t first, uint32_t *out_colour, uint32_t *out_degree);

/* colour_layers.c: permutes ids[0 .. g->edges) so that layer i is ids[starts[i] .. starts[i + 1]), the largest degrees
 * of the layers add up to the graph's, and edges of like size tend to lie in the same layer. */
enum { COLOUR_MAX_LAYERS = 16 };
fcp_code colour_layers(arena *scratch, const bigraph *g, const uint32_t *size, uint32_t *ids,
                       uint32_t starts[COLOUR_MAX_LAYERS + 1], uint32_t *out_layers);
#endif
