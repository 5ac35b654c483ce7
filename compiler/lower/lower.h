/* lower.h: the schedule as a plan's tables: tiles in order, instructions, transfers, summary. */
#ifndef FCPC_LOWER_LOWER_H
#define FCPC_LOWER_LOWER_H
#include "compiler/schedule/slots.h"

/* Everything a plan is made of. */
typedef struct lowering {
    const problem *p;
    const uint32_t *home;
    const traffic *t;
    const reshuffle *r;
    const schedule *s;
    const slots *slots;
    uint32_t coalesce;
} lowering;

/* Fills the tables of *plan (zeroed by the caller) from `memory`, which then belongs to the plan; pieces, blocks,
 * parts, spans and visits are those of the passes before, which must lie in `memory` already. Errors: FCP_E_NO_MEMORY,
 * FCP_E_PLAN_SIZE.
 * Cost: linear. */
fcp_code lower(const lowering *l, arena *memory, arena *scratch, fcp_plan *plan);

void lower_problem(const lowering *l, fcp_problem *out);
/* The largest rank's memory over the plan's passes, as the summary states it; needs no tables. */
uint64_t lower_memory_peak(const lowering *l, const fcp_problem *fp);
/* lower_data.c: score, sinks, fields, tables and slices. */
fcp_code lower_data(const problem *p, arena *memory, fcp_plan *plan);
#endif
