/* levels.h: in which stages units travel, where work is done away from home, so that no wire is asked for more in one
 * stage than in another.
 *
 * Example: with `coalesce` 16 a stage has room for 5 units of a wire. A rank that has to send 40 sends them in the
 * first 8 stages in which those who receive them have room, too.
 */
#ifndef FCPC_SCHEDULE_LEVELS_H
#define FCPC_SCHEDULE_LEVELS_H
#include "compiler/schedule/schedule.h"

/* How much of the stages is taken. A line is one direction of a rank's wire on one fabric. */
typedef struct levels {
    uint8_t *units;      /* [line * width + stage] */
    uint32_t *size;      /* the same of lines over net, [line / FCP_FABRICS * width + stage]: of these units together */
    uint32_t *full;      /* per line: the stages before this one have no room at all */
    uint32_t lines, width;
    uint32_t units_most; /* in a stage */
    uint32_t size_most;
    arena *scratch;
} levels;

/* A stage has room for the LEVELS_PARTth part of `coalesce` units of a wire. */
enum { LEVELS_PART = 3 };

/* How many units the busiest line has that leave from home. */
fcp_code levels_busiest(planning *x, uint32_t *out_units);

/* Finds stages for all hops: fills out->unit_round, first_stage and last_stage. *l keeps what is taken. */
fcp_code levels_arrivals(planning *x, schedule *out, levels *l);

/* Finds stages for what goes back along the hops from `first` on in a pass: fills `back`, whose `last` has, at first,
 * the last stage in which a tile adds to each hop's result. Goes on from *l, and leaves it as it is. */
fcp_code levels_returns(planning *x, const schedule *out, const levels *l, fcp_pass pass, uint32_t first,
                        returns *back);
#endif
