/* colour.h: colour the edges of a bipartite multigraph with exactly Delta colours: rounds without congestion. */
#ifndef FCPC_SCHEDULE_COLOUR_H
#define FCPC_SCHEDULE_COLOUR_H
#include "runtime/fcp.h"
#include "compiler/base/arena.h"

/* Edge e sends from vertex src[e] to vertex dst[e] (both < vertices; senders and receivers are separate sides).
 * out_colour[e] gets 0 .. *out_colours - 1, where *out_colours is the largest degree of any sender or receiver (0
 * without edges), and no vertex of a side has two edges of a colour. size[e] (NULL: all alike) is used to put edges of like
 * size into the same colour where that costs nothing. Deterministic. `stop` as in runtime/base/stop.h. Errors:
 * FCP_E_NO_MEMORY, FCP_E_INTERRUPTED.
 * Cost: O(E log Delta) with O(E + vertices) scratch. */
fcp_code colour_edges(arena *scratch, const volatile int *stop, uint32_t vertices, uint32_t edges, const uint32_t *src,
                      const uint32_t *dst, const uint32_t *size, uint32_t *out_colour, uint32_t *out_colours);
#endif
