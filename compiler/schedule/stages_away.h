/* stages_away.h: in which stages units travel, where work is done away from home, so that no wire is asked for more in one
 * stage than in another.
 *
 * Example: with `coalesce` 16 a stage has room for 5 units of a wire. A rank that has to send 40 sends them in the
 * first 8 stages in which those who receive them have room, too.
 */
#ifndef FCPC_SCHEDULE_STAGES_AWAY_H
#define FCPC_SCHEDULE_STAGES_AWAY_H
#include "compiler/schedule/schedule.h"

/* How much of the stages is taken. A line is one direction of a rank's wire on one fabric. */
typedef struct levels {
    uint8_t *units;      /* [line * width + stage] */
    uint32_t *size;      /* the same of lines over net, [line / FCP_FABRICS * width + stage]: of these units together */
    uint32_t *full;      /* per line: the stages before this one have no room at all */
    uint32_t lines, width;
    uint32_t units_most[FCP_FABRICS]; /* in a stage */
    uint32_t size_most;               /* over net */
    arena *scratch;
} levels;

static inline uint32_t levels_line(uint32_t rank, fcp_direction dir, uint32_t fabric) {
    return (rank * FCP_DIRECTION_COUNT + dir) * FCP_FABRICS + fabric;
}
/* The units of a line in a stage. */
static inline uint8_t *levels_units(const levels *l, uint32_t line, uint32_t stage) {
    return &l->units[(size_t)line * l->width + stage];
}
/* The size of them, of a line over net. */
static inline uint32_t *levels_size(const levels *l, uint32_t line, uint32_t stage) {
    return &l->size[(size_t)(line / FCP_FABRICS) * l->width + stage];
}
static inline bool levels_has_room(const levels *l, uint32_t line, uint32_t stage, uint32_t size) {
    const uint32_t units = *levels_units(l, line, stage);
    const uint32_t fabric = line % FCP_FABRICS;
    if (!units || fabric != FCP_NET) return units < l->units_most[fabric];
    return units < l->units_most[fabric] && *levels_size(l, line, stage) + size <= l->size_most;
}

/* How many stages after a hop's results came what is made of them may leave: a whole result is passed on as it is. */
static inline uint32_t levels_after(const schedule *out, const hop *h) { return h->whole ? 1 : out->after; }

/* A stage has room for the LEVELS_PARTth part of `coalesce` units of a wire. */
enum { LEVELS_PART = 3 };

/* How many units of a line over net a stage has room for, if the busiest carries `units`; or about how many while
 * x->coalesce is not known. */
uint32_t levels_room(const planning *x, const traffic *t, uint64_t units);

/* How many units the busiest line has that leave from home. */
fcp_code levels_busiest(planning *x, uint32_t *out_units);

/* Finds stages for all hops: fills out->unit_round, first_stage and last_stage. *l keeps what is taken. */
fcp_code levels_arrivals(planning *x, schedule *out, levels *l);

/* Finds stages for what goes back along the hops from `first` on in a pass: fills `back`, whose `last` has, at first,
 * the last stage in which a tile adds to each hop's result. Goes on from *l, and leaves it as it is. */
fcp_code levels_returns(planning *x, const schedule *out, const levels *l, fcp_pass pass, uint32_t first,
                        returns *back);
#endif
