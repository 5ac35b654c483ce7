/* slots.h: places in the ranks' buffers, assigned by interval colouring. */
#ifndef FCPC_SLOTS_H
#define FCPC_SLOTS_H
#include "schedule.h"

typedef struct slots {
    uint32_t *home_slot; /* per block */
    uint32_t *homes;     /* per rank: how many blocks live there */
    uint64_t *home_tokens;
    /* slot numbers in their class: transient ones come after the rank's homes */
    uint32_t *kv;          /* per fetch, at dst */
    uint32_t *accumulator; /* per fetch, at dst: where its tiles (and its forwards' returns) add dKV; NULL forward-only */
    uint32_t *landing;     /* per fetch, at src: where its returned dKV waits for REDUCE; NULL forward-only */
    /* transient slots of each rank: the peaks */
    uint32_t *kv_count, *dkv_count, *state_count;
} slots;

/* Fills visits' state_slot too. Cost: linear in fetches, visits and ranks * stages. */
fcp_code slots_build(const problem *p, const uint32_t *home, const traffic *t, schedule *s, arena *memory, arena *scratch,
                     slots *out);
#endif
