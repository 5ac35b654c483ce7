/* slots.h: places in the ranks' buffers, assigned by interval colouring. */
#ifndef FCPC_SCHEDULE_SLOTS_H
#define FCPC_SCHEDULE_SLOTS_H
#include "compiler/schedule/schedule.h"

/* Of a fetch: slot numbers in their class; transient ones come after the rank's homes. */
typedef struct fetch_slots {
    uint32_t kv;          /* at dst */
    uint32_t accumulator; /* at dst: where its tiles (and its forwards' returns) add dKV; with a backward pass */
    uint32_t landing;     /* at src: where its returned dKV waits for REDUCE; likewise */
} fetch_slots;

typedef struct slots {
    uint32_t *home_slot; /* per block */
    uint32_t *homes;     /* per rank: how many blocks live there */
    uint64_t *home_tokens[FCP_SIDES]; /* per rank, of the blocks that hold it */
    fetch_slots *fetch;  /* per fetch */
    /* transient slots of each rank: the peaks */
    uint32_t *kv_count, *dkv_count, *state_count;
} slots;

/* Makes x->slots, and fills the visits' q_slot and state_slot. Cost: linear in fetches, visits and ranks * stages. */
fcp_code slots_build(planning *x);
#endif
