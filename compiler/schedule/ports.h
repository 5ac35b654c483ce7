/* ports.h: chooses rounds of the reshuffle on rails such that ports are not shared.
 *
 * Example: ranks 0 and 1 of a node each send to a rank with index 3 in another node. No rail joins index 0 or 1 to
 * index 3, so both units leave by the port of the node's rank 3 (simulate/README.md). In the same round they would take
 * twice as long.
 */
#ifndef FCPC_SCHEDULE_PORTS_H
#define FCPC_SCHEDULE_PORTS_H
#include "compiler/base/arena.h"
#include "runtime/fcp.h"

/* Units between nodes of `gpus` ranks, with their colours: unit i goes from src[i] to dst[i], and has size[i]
 * tokens. */
typedef struct ports_input {
    uint32_t ranks, gpus, count, colours;
    const uint32_t *src, *dst, *size;
    const volatile int *stop; /* runtime/base/stop.h */
} ports_input;

/* Changes colours so that fewer units of a colour leave by one port. The number of colours stays, and no rank sends or
 * receives two units of a colour. FCP_E_NO_MEMORY, FCP_E_INTERRUPTED. */
fcp_code ports_spread(const ports_input *in, arena *scratch, uint32_t *colour);
#endif
