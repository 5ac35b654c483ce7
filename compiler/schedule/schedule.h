/* schedule.h: when everything happens: rounds, stages and visits. */
#ifndef FCPC_SCHEDULE_SCHEDULE_H
#define FCPC_SCHEDULE_SCHEDULE_H
#include "compiler/schedule/reshuffle.h"
#include "compiler/schedule/traffic.h"

/* One unit on its way in a pass. */
typedef struct move {
    uint32_t round;
    uint32_t block, src, dst, first, tokens; /* IN, OUT: block is FCP_NONE, and the tokens are of a bundle */
    uint32_t from, to; /* slots at src and dst; of IN and OUT both are the bundle's side */
    uint32_t ref;      /* KV, DKV: the fetch, which a DKV goes back along; IN, OUT: the bundle */
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

typedef struct schedule {
    uint32_t independent[FCP_FABRICS];  /* how many rounds the independent units take */
    uint32_t *unit_start;               /* per fetch: its first independent unit */
    uint32_t *unit_round;               /* per independent unit: its place in the order of independent rounds */
    uint32_t tile_stages;               /* the last stage in which a tile can run + 1 */
    /* per fetch */
    uint32_t *first_stage, *last_stage; /* in which its first and its last unit arrive */
    uint32_t *use_first, *use_last;     /* in which its first and its last tile run; no tile: FCP_NONE and 0 */
    uint32_t *return_stage;             /* in which its dKV partial leaves; NULL: there is no backward pass */
    /* tiles in the order of execution: by rank, stage (in stage 0 what needs no reshuffle comes first), Q block, KV
     * block */
    uint32_t *order;
    fcp_visit *visits;
    uint32_t *visit_stage;
    bool *visit_early;                  /* it is in stage 0 and reads no block that the reshuffle moves */
    uint32_t visit_count;
    uint32_t *rank_visit;               /* ranks + 1 */
    uint32_t *block_last;               /* per block: the stage of its last visit as Q block; 0: it has none */
    pass_schedule pass[FCP_PASSES];
} schedule;

/* Makes x->schedule: all but the passes' rounds; of those, how many stages they have. The visits, which the plan keeps,
 * are in x->memory. FCP_E_PLAN_SIZE: too many stages. Cost: O(units log Delta + tiles). */
fcp_code schedule_build(planning *x);

/* rounds.c: the passes' rounds and moves, once every fetch has its slots. Cost: O(units log Delta). */
fcp_code rounds_build(planning *x);
#endif
