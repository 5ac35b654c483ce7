/* slots.h: where in a rank's memory each block lies. */
#ifndef FCPC_SCHEDULE_SLOTS_H
#define FCPC_SCHEDULE_SLOTS_H
#include "compiler/schedule/schedule.h"

/* Slots of what goes back along the hops in one pass. NULL: nothing goes back in this pass. */
typedef struct back_slots {
    uint32_t *from; /* per hop: at dst, where it is made, added up, or passed on */
    uint32_t *to;   /* per hop: at src, where it is received */
} back_slots;

/* The slots of a class at a rank are numbered: first its home slots, then the transient ones. */
typedef struct slots {
    uint32_t *home_slot; /* per block */
    uint32_t *homes;     /* per rank: how many blocks live there */
    uint64_t *home_tokens[FCP_SIDES]; /* per rank: tokens of its home blocks that hold the side */
    uint32_t *held;      /* per hop: of KV or Q, at dst */
    back_slots back[FCP_PASSES];
    /* Slots in which the partial results of a block are added up, at the rank that makes its result; one for each
     * block. sum_dq: for dQ, if that rank is not the home. sum_state: for the running state, if several ranks compute
     * the block. NULL: no tile runs away from home. */
    uint32_t *sum_dq, *sum_state;
    uint32_t *count[FCP_CLASSES]; /* per rank: how many transient slots of a class it needs */
} slots;

/* Makes x->slots, and fills the slots of the visits. Cost: linear in hops, visits and ranks * stages. */
fcp_code slots_build(planning *x);
#endif
