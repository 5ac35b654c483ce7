/* schedule.h: when everything happens: rounds, stages, visits; and in which slots. */
#ifndef FCPC_SCHEDULE_SCHEDULE_H
#define FCPC_SCHEDULE_SCHEDULE_H
#include "compiler/schedule/reshuffle.h"
#include "compiler/schedule/traffic.h"

/* One unit on its way, in a pass. */
typedef struct move {
    uint32_t round;
    uint32_t block, src, dst, first, tokens;
    uint32_t from, to; /* slots at src and dst; the caller's side of IN and OUT: the segment's place */
    uint32_t ref;      /* KV, DKV: the fetch (a DKV goes its fetch's way back); IN, OUT: the segment */
    uint8_t cls, fabric;
} move;

typedef struct pass_schedule {
    fcp_round *rounds;
    uint32_t round_count;
    move *moves;      /* by round, then net before local */
    uint32_t move_count;
    uint32_t stages;  /* number of the last stage + 1 */
    uint32_t in, out; /* how many rounds of these kinds */
    uint32_t independent, dependent;
} pass_schedule;

typedef struct schedule {
    uint32_t independent[FCP_FABRICS];  /* rounds of independent units */
    uint32_t *unit_start, *unit_round;  /* per fetch the first of its independent units; per unit its place in the order of
                                         * independent rounds, ascending within a fetch */
    uint32_t tile_stages;               /* the last stage in which tiles can run + 1 */
    /* per fetch */
    uint32_t *first_stage, *last_stage; /* of the stages in which its units arrive */
    uint32_t *use_first, *use_last;     /* of the stages in which its tiles run; FCP_NONE, 0 without tiles */
    uint32_t *return_stage;             /* backward: when its dKV partial leaves; NULL without a backward pass */
    /* tiles in execution order: by rank, stage (what needs no reshuffle first), Q block, KV block */
    uint32_t *order;
    fcp_visit *visits;
    uint32_t *visit_stage;
    bool *visit_early;                  /* stage 0, and reads no block that the reshuffle moves */
    uint32_t visit_count;
    uint32_t *rank_visit;               /* ranks + 1 */
    uint32_t *block_last;               /* per block: stage of its last visit as Q block, 0 without one */
    pass_schedule pass[FCP_PASSES];
} schedule;

/* Makes x->schedule: all but the passes' rounds; of those, how many stages they have. The visits, which the plan keeps,
 * are in x->memory. FCP_E_PLAN_SIZE: too many stages. Cost: O(units log Delta + tiles). */
fcp_code schedule_build(planning *x);

/* rounds.c: the passes' rounds and moves, once every fetch has its slots. Cost: O((units + segments) log Delta). */
fcp_code rounds_build(planning *x);
#endif
