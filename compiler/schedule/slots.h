/* slots.h: where in a rank's memory each block lies. */
#ifndef FCPC_SCHEDULE_SLOTS_H
#define FCPC_SCHEDULE_SLOTS_H
#include "compiler/schedule/schedule.h"

/* Slots of what goes back along the hops in one pass, of the class that goes back. NULL: nothing goes back. */
typedef struct back_slots {
    uint32_t *from; /* per hop: at dst, where it is made, added up, or passed on */
    uint32_t *to;   /* per hop: at src, where it lands: until it is added up there, as a whole result where it stays */
} back_slots;

/* Transient slots are numbered, in their class, after the rank's home slots. */
typedef struct slots {
    uint32_t *home_slot; /* per block */
    uint32_t *homes;     /* per rank: how many blocks live there */
    uint64_t *home_tokens[FCP_SIDES]; /* per rank: tokens of its home blocks that hold the side */
    uint32_t *held;      /* per hop: of KV or Q, at dst */
    back_slots back[FCP_PASSES];
    /* Where tiles run away from home; else NULL. */
    /* per block: at the rank that makes its result, what that is made of. Backward, if it is made away from home: where
     * dQ adds up before it is rounded. Forward, if several ranks compute it: the state of visits and of what comes. */
    uint32_t *sum_dq, *sum_state;
    uint32_t *count[FCP_CLASSES]; /* per rank: how many transient slots of a class it needs */
} slots;

/* Makes x->slots, and fills the slots of the visits. Cost: linear in hops, visits and ranks * stages. */
fcp_code slots_build(planning *x);
#endif
