/* lower.h: what the passes made, written down as a plan's tables: tiles in order, instructions, transfers, summary. */
#ifndef FCPC_LOWER_LOWER_H
#define FCPC_LOWER_LOWER_H
#include "compiler/schedule/slots.h"
#include "runtime/plan/plan_summary.h"

/* Makes x->plan (fcp_plan_free), whose tables are in x->memory: those it makes, and the pieces, blocks, parts and
 * visits that earlier passes put there. The plan is not indexed and not checked. FCP_E_PLAN_SIZE. Cost: linear. */
fcp_code lower(planning *x);

/* Parts of it. streams.c: instructions and transfers. open makes room for both passes, in x->memory; each pass is then
 * written, at the same time as the other if x differs in its arenas (pair.h); join gives them to the plan.
 * Between open and join nothing else is put into x->memory. */
typedef struct lower_streams lower_streams;
fcp_code lower_open_streams(planning *x, lower_streams **out); /* it lies in x->scratch */
fcp_code lower_pass(planning *x, lower_streams *streams, fcp_pass pass);
void lower_join_passes(planning *x, const lower_streams *streams, fcp_plan *plan);
/* totals.c: every figure of the summary. */
fcp_code lower_summary(planning *x, const fcp_problem *facts, fcp_summary *out);
/* The memory of the fullest rank over the plan's passes, in bytes, as the summary states it, and the first rank and
 * pass that need so much. It needs slots, no tables. */
typedef struct memory_peak {
    uint64_t bytes;
    uint32_t rank;
    fcp_pass pass;
} memory_peak;
memory_peak lower_memory_peak(const planning *x, const fcp_problem *facts);
/* mask_data.c: score, sinks, fields, tables and slices. */
fcp_code lower_data(planning *x, fcp_plan *plan);
#endif
