/* slots.h: where in a rank's memory each block lies. */
#ifndef FCPC_SCHEDULE_SLOTS_H
#define FCPC_SCHEDULE_SLOTS_H
#include "compiler/schedule/schedule.h"

/* The slots of a fetch, numbered in their class. Transient slots are numbered after the rank's home slots. */
typedef struct fetch_slots {
    uint32_t kv;          /* at dst */
    uint32_t accumulator; /* at dst: where dKV of its tiles and of its forwards adds up; backward only */
    uint32_t landing;     /* at src: where its returned dKV waits for REDUCE; backward only */
} fetch_slots;

typedef struct slots {
    uint32_t *home_slot; /* per block */
    uint32_t *homes;     /* per rank: how many blocks live there */
    uint64_t *home_tokens[FCP_SIDES]; /* per rank: tokens of its home blocks that hold the side */
    fetch_slots *fetch;  /* per fetch */
    /* per rank: how many transient slots it needs */
    uint32_t *kv_count, *dkv_count, *state_count;
} slots;

/* Makes x->slots, and fills the visits' q_slot and state_slot. Cost: linear in fetches, visits and ranks * stages. */
fcp_code slots_build(planning *x);
#endif
