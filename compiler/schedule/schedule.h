/* schedule.h: when units travel, when tiles run, and when results go back: rounds, stages and visits. */
#ifndef FCPC_SCHEDULE_SCHEDULE_H
#define FCPC_SCHEDULE_SCHEDULE_H
#include "compiler/schedule/reshuffle.h"
#include "compiler/schedule/traffic.h"
#include "runtime/plan/instructions.h"

/* One unit that travels in a pass. */
typedef struct move {
    uint32_t round;
    uint32_t block, src, dst, first, tokens; /* IN, OUT: block is FCP_NONE, and the tokens are of a bundle */
    uint32_t from, to; /* slots at src and dst; IN, OUT: both are the bundle's side */
    uint32_t ref;      /* IN, OUT: the bundle; else the hop, or the hop along which a result goes back */
    uint8_t cls, fabric;
} move;

typedef struct pass_schedule {
    fcp_round *rounds;
    uint32_t round_count;
    move *moves;      /* by round; in a round those over net come first */
    uint32_t move_count;
    uint32_t stages;  /* the number of the last stage + 1 */
    uint32_t in, out, independent, dependent; /* how many rounds of each kind */
} pass_schedule;

/* When results go back along the hops in one pass. All are NULL if nothing goes back in the pass. */
typedef struct returns {
    uint32_t *first, *last; /* per hop: the stages in which its first and its last unit leave, and arrive */
    /* If schedule.staged: the stages of hop h's units are unit_stage[start[h]], unit_stage[start[h] + 1], ... Else
     * NULL. */
    uint32_t *start, *unit_stage;
} returns;

typedef struct schedule {
    uint32_t independent[FCP_FABRICS];  /* how many rounds the independent units take */
    bool staged;                        /* each unit is given a stage by itself: schedule.c says when */
    uint32_t after;                     /* a result may leave so many stages after what added to it last */
    /* With pingpong (halves.c): per hop, is it of the second half? And the first stage of the second half, or 0 if one
     * of the halves needs nothing from other ranks. Without pingpong NULL and 0. */
    bool *second;
    uint32_t second_stage;
    uint32_t *unit_start;               /* per hop: its first unit in unit_round */
    uint32_t *unit_round;               /* if staged, per unit: its stage. Else per independent unit: its place in the
                                         * order of independent rounds; dependent hops then have no units here */
    /* per hop */
    uint32_t *first_stage, *last_stage; /* the stages in which its first and its last unit arrive */
    uint32_t *use_first, *use_last;     /* those in which the first and the last tile needs it; none: FCP_NONE, 0 */
    returns back[FCP_PASSES];
    /* Where tiles run away from home; else NULL. */
    /* per Q block: the stages of its first and its last visit at home; none: likewise */
    uint32_t *home_first, *home_last;
    /* per pass and Q block: the stage in which its result is made: by an instruction (FINISH, ROUND), or by the last
     * tile */
    uint32_t *finish[FCP_PASSES];
    uint32_t *visit_hop;                /* per visit: the hop that brings its Q, or FCP_NONE */
    /* tiles in the order of execution: by rank, stage (in a stage the early ones first), Q block, KV block */
    uint32_t *order;
    fcp_visit *visits;
    uint32_t *visit_stage;
    /* Does it come before the other visits of its stage? In stage 0, because it reads no block that the reshuffle
     * moves; in a later stage, because it reads no block that comes over net in that stage (near.c). */
    bool *visit_early;
    uint32_t visit_count;
    uint32_t *rank_visit;               /* ranks + 1 */
    uint32_t *block_last;               /* per block: the stage of its last visit as Q block; 0: it has none */
    pass_schedule pass[FCP_PASSES];
} schedule;

/* Makes x->schedule, except most of its member `pass`: only the numbers of stages are filled there, and rounds_build
 * makes the rest. The visits, which the plan keeps, are in x->memory. FCP_E_PLAN_SIZE: too many stages. Cost: O(units
 * log Delta + tiles). */
fcp_code schedule_build(planning *x);

/* rounds.c: makes the rounds and moves of each pass, once every hop has its slots. Cost: O(units log Delta). */
fcp_code rounds_build(planning *x);
#endif
