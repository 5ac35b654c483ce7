/* lower.h: what the passes made, written down as a plan's tables: tiles in order, instructions, transfers, summary. */
#ifndef FCPC_LOWER_LOWER_H
#define FCPC_LOWER_LOWER_H
#include "compiler/schedule/slots.h"

/* Makes x->plan (fcp_plan_free), whose tables are in x->memory: those it makes, and the pieces, blocks, parts and
 * visits that earlier passes put there. The plan is not indexed and not checked. FCP_E_PLAN_SIZE. Cost: linear. */
fcp_code lower(planning *x);

/* Parts of it. streams.c: instructions and transfers. */
fcp_code lower_streams(planning *x, fcp_plan *plan);
/* totals.c: every figure of the summary, once the plan has its streams. */
fcp_code lower_summary(planning *x, const fcp_problem *facts, fcp_summary *out);
/* The memory of the fullest rank over the plan's passes, in bytes, as the summary states it, and the first rank and
 * pass that need so much. It needs slots, no tables. */
typedef struct memory_peak {
    uint64_t bytes;
    uint32_t rank;
    fcp_pass pass;
} memory_peak;
memory_peak lower_memory_peak(const planning *x, const fcp_problem *facts);
/* data.c: score, sinks, fields, tables and slices. */
fcp_code lower_data(planning *x, fcp_plan *plan);
#endif
