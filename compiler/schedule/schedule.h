/* schedule.h: when everything happens: rounds, stages and visits. */
#ifndef FCPC_SCHEDULE_SCHEDULE_H
#define FCPC_SCHEDULE_SCHEDULE_H
#include "compiler/schedule/reshuffle.h"
#include "compiler/schedule/traffic.h"
#include "runtime/plan/instructions.h"

/* One unit on its way in a pass. */
typedef struct move {
    uint32_t round;
    uint32_t block, src, dst, first, tokens; /* IN, OUT: block is FCP_NONE, and the tokens are of a bundle */
    uint32_t from, to; /* slots at src and dst; of IN and OUT both are the bundle's side */
    uint32_t ref;      /* IN, OUT: the bundle; others: the hop, along which results go back */
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

/* When what was made of a hop's block goes back along it, in one pass. Both are NULL if nothing goes back in the
 * pass. */
typedef struct returns {
    uint32_t *first, *last; /* per hop: the stages in which its first and its last unit leave, and arrive */
    /* Where units have stages of their own: the stages of hop h's units are unit_stage[start[h]], and so on. Else
     * NULL. */
    uint32_t *start, *unit_stage;
} returns;

typedef struct schedule {
    uint32_t independent[FCP_FABRICS];  /* how many rounds the independent units take */
    bool staged;                        /* every unit has a stage of its own: schedule.c says where */
    uint32_t after;                     /* stages from what adds to a result last to that in which it may leave */
    /* Where the batch is moved in two halves (halves.c): per hop, whether it is of the second; and the first stage of
     * that half, or 0 if one of the halves needs nothing from other ranks. Else NULL and 0. */
    bool *second;
    uint32_t second_stage;
    uint32_t *unit_start;               /* per hop: its first unit below; dependent hops have units there if staged */
    uint32_t *unit_round;               /* per independent unit: its place in the order of independent rounds; per
                                         * dependent one: its stage */
    /* per hop */
    uint32_t *first_stage, *last_stage; /* in which its first and its last unit arrive */
    uint32_t *use_first, *use_last;     /* in which the first and the last tile that needs it runs; none: FCP_NONE, 0 */
    returns back[FCP_PASSES];
    /* Where tiles run away from home; else NULL. */
    /* per Q block: the stages of its first and its last visit at home; none: likewise */
    uint32_t *home_first, *home_last;
    /* per pass and Q block that others compute: the stage in which its result is made, where that takes an instruction
     * of its own (FINISH, ROUND), or in which the last tile runs */
    uint32_t *finish[FCP_PASSES];
    uint32_t *visit_hop;                /* per visit: the hop that brings its Q, or FCP_NONE */
    /* tiles in the order of execution: by rank, stage (in it what is early comes first), Q block, KV block */
    uint32_t *order;
    fcp_visit *visits;
    uint32_t *visit_stage;
    /* It comes before the others of its stage: in stage 0 it reads no block that the reshuffle moves; in a later one,
     * of a rank that divides its stages, it reads none that comes over net in that stage (near.c). */
    bool *visit_early;
    uint32_t visit_count;
    uint32_t *rank_visit;               /* ranks + 1 */
    uint32_t *block_last;               /* per block: the stage of its last visit as Q block; 0: it has none */
    pass_schedule pass[FCP_PASSES];
} schedule;

/* Makes x->schedule: all but the passes' rounds; of those, how many stages they have. The visits, which the plan keeps,
 * are in x->memory. FCP_E_PLAN_SIZE: too many stages. Cost: O(units log Delta + tiles). */
fcp_code schedule_build(planning *x);

/* rounds.c: the passes' rounds and moves, once every hop has its slots. Cost: O(units log Delta). */
fcp_code rounds_build(planning *x);
#endif
