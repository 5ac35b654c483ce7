/* fair_sharing.h: shares links fairly (max-min): computes the rates of transfers that pass through the same ports and
 * uplinks, and when each transfer is done. */
#ifndef FCPC_SIMULATE_FAIR_SHARING_H
#define FCPC_SIMULATE_FAIR_SHARING_H
#include <stdbool.h>
#include <stdint.h>

#include "compiler/base/arena.h"
#include "runtime/fcp.h"

enum { FLOW_RESOURCES = 4 }; /* the most that one transfer uses: both ports, both nodes' uplinks */

typedef struct flow {
    unsigned __int128 left;  /* bytes times picoseconds a second, at time `since` */
    uint64_t since, rate;    /* rate: bytes per second */
    uint32_t uses[FLOW_RESOURCES], count; /* resources */
    uint32_t next[FLOW_RESOURCES], previous[FLOW_RESOURCES]; /* in each resource's list: 4 * flow + which of its uses */
    uint32_t version;        /* is incremented with each new rate; events of older versions are void */
    uint32_t seen;
} flow;

typedef struct flows {
    flow *at;
    const uint64_t *capacity; /* per resource, bytes per second */
    uint32_t ports, incast;   /* resources 0 to ports - 1 lose incast * (n - 1) / n percent where n flows meet */
    uint32_t *head;           /* per resource: its list */
    uint32_t *open;           /* per resource, while rates are computed: flows without a rate */
    uint64_t *left;           /* per resource, while rates are computed: capacity that is left */
    uint32_t *seen;           /* per resource */
    uint32_t *dirty, dirty_count; /* resources whose flows need new rates */
    uint32_t *some, some_count;   /* resources of the component whose rates are computed */
    uint32_t *stack;              /* flows of that component */
    uint32_t stamp;
} flows;

/* FCP_E_NO_MEMORY. `capacity` has one entry a resource and outlives the flows. The caller may then set `ports` and
 * `incast`, percent, which are 0. */
fcp_code flows_new(uint32_t resources, const uint64_t *capacity, uint32_t count, arena *memory, flows *out);
/* A transfer of `bytes` begins, and ends, to use the resources uses[0] to uses[count - 1]. */
void flows_join(flows *x, uint32_t f, uint64_t bytes, uint64_t now);
void flows_leave(flows *x, uint32_t f);
/* Computes max-min fair rates for all flows that are connected, by shared resources, to one that joined or left. Calls
 * `changed` with each flow whose rate has changed, and the time at which it will be done. */
void flows_settle(flows *x, uint64_t now, void (*changed)(void *context, uint32_t f, uint64_t through), void *context);
#endif
