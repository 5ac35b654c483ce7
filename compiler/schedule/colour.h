/* colour.h: colours the edges of a bipartite multigraph with exactly as many colours as its largest degree. */
#ifndef FCPC_SCHEDULE_COLOUR_H
#define FCPC_SCHEDULE_COLOUR_H
#include "runtime/fcp.h"
#include "compiler/base/arena.h"

/* Edge e goes from sender src[e] to receiver dst[e] (both < vertices). out_colour[e] gets a colour from 0 to
 * *out_colours - 1, such that no sender and no receiver has two edges of a colour. *out_colours is the largest degree
 * of any sender or receiver (0 without edges), and no colouring has fewer. Edges of like size[e] (NULL: all alike) get
 * the same colours where that costs no colour. Deterministic. `stop` as in runtime/base/stop.h.
 * Errors: FCP_E_NO_MEMORY, FCP_E_INTERRUPTED.
 * Cost: O(E log Delta) with O(E + vertices) scratch. */
fcp_code colour_edges(arena *scratch, const volatile int *stop, uint32_t vertices, uint32_t edges, const uint32_t *src,
                      const uint32_t *dst, const uint32_t *size, uint32_t *out_colour, uint32_t *out_colours);
#endif
