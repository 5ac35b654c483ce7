/* flows.h: transfers that share ports: who gets which rate, and when each is through. */
#ifndef FCPC_SIMULATE_FLOWS_H
#define FCPC_SIMULATE_FLOWS_H
#include <stdbool.h>
#include <stdint.h>

#include "compiler/base/arena.h"
#include "runtime/fcp.h"

enum { FLOW_RESOURCES = 4 }; /* that one transfer can use: both ports, both nodes' uplinks */

typedef struct flow {
    unsigned __int128 left;  /* bytes times picoseconds a second, at time `since` */
    uint64_t since, rate;    /* rate: bytes per second */
    uint32_t uses[FLOW_RESOURCES], count; /* resources */
    uint32_t next[FLOW_RESOURCES], previous[FLOW_RESOURCES]; /* in each resource's list: 4 * flow + which of its uses */
    uint32_t version;        /* counts the rates it has had: events of older ones are void */
    uint32_t seen;
} flow;

typedef struct flows {
    flow *at;
    const uint64_t *capacity; /* per resource, bytes per second */
    uint32_t *head;           /* per resource: its list */
    uint32_t *open;           /* per resource, while rates are given: flows without one */
    uint64_t *left;           /* per resource, while rates are given: capacity that is left */
    uint32_t *seen;           /* per resource */
    uint32_t *dirty, dirty_count; /* resources whose flows need new rates */
    uint32_t *some, some_count;   /* resources of the component that gets rates */
    uint32_t *stack;              /* flows of it */
    uint32_t stamp;
} flows;

/* FCP_E_NO_MEMORY. `capacity` has one entry a resource and outlives the flows. */
fcp_code flows_new(uint32_t resources, const uint64_t *capacity, uint32_t count, arena *memory, flows *out);
/* A transfer of `bytes` begins to use the resources in its uses[0..count), and ends to use them. */
void flows_join(flows *x, uint32_t f, uint64_t bytes, uint64_t now);
void flows_leave(flows *x, uint32_t f);
/* Gives max-min fair rates to the flows that share a resource with one that joined or left, and calls `changed` with
 * each whose rate is another one now, with the time at which it will be through. */
void flows_settle(flows *x, uint64_t now, void (*changed)(void *context, uint32_t f, uint64_t through), void *context);
#endif
