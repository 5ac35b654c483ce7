/* colour_parts.h: the two steps of colour.c. colour_by_size.c divides the edges into layers of like size, and euler.c
 * colours a layer. */
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

/* Per-vertex arrays that calls of colour_euler share. Between calls their contents mean nothing. */
typedef struct colour_work {
    uint32_t *left, *right;
} colour_work;

/* euler.c. Colours the edges ids[0] to ids[count - 1] with exactly as many colours as their largest degree,
 * *out_degree. The colours are numbered from `first`. FCP_E_NO_MEMORY, FCP_E_INTERRUPTED. */
fcp_code colour_euler(arena *scratch, const colour_work *work, const bigraph *g, const uint32_t *ids, uint32_t count,
                      uint32_t first, uint32_t *out_colour, uint32_t *out_degree);

/* colour_by_size.c. Divides the edges, whose g->edges numbers are in ids, into layers in which edges tend to have like
 * sizes. Reorders ids, so that layer i is ids[starts[i]] to ids[starts[i + 1] - 1]. The largest degrees of the layers
 * add up to the largest degree of the graph. FCP_E_NO_MEMORY, FCP_E_INTERRUPTED. */
enum { COLOUR_MAX_LAYERS = 16 };
fcp_code colour_layers(arena *scratch, const bigraph *g, const uint32_t *size, uint32_t *ids,
                       uint32_t starts[COLOUR_MAX_LAYERS + 1], uint32_t *out_layers);
#endif
