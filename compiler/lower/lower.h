/* lower.h: writes what the passes decided as the tables of a plan: tiles in order, instructions, transfers, summary. */
#ifndef FCPC_LOWER_LOWER_H
#define FCPC_LOWER_LOWER_H
#include "compiler/schedule/slots.h"
#include "runtime/plan/plan_summary.h"

/* Gives the plan one of its tables, and says how many rows it has. */
#define PLAN_TABLE(plan, name, rows, row_count) ((plan)->name = (rows), (plan)->name##_count = (row_count))

/* Makes x->plan (fcp_plan_free), whose tables are in x->memory: those it makes, and the pieces, blocks, parts and
 * visits that earlier passes put there. The plan is not indexed and not checked. FCP_E_PLAN_SIZE. Cost: linear. */
fcp_code lower(planning *x);

/* streams.c: instructions and transfers. lower_open_streams makes room for both passes in x->memory. lower_pass then
 * writes each pass; both may be written at the same time, by two threads (pair.h). lower_join_passes gives them to the
 * plan. Between open and join nothing else may be allocated from x->memory. */
typedef struct lower_streams lower_streams;
fcp_code lower_open_streams(planning *x, lower_streams **out); /* it lies in x->scratch */
fcp_code lower_pass(planning *x, lower_streams *streams, fcp_pass pass);
void lower_join_passes(planning *x, const lower_streams *streams, fcp_plan *plan);
/* totals.c: every figure of the summary. */
fcp_code lower_summary(planning *x, const fcp_problem *facts, fcp_summary *out);
/* The memory that the fullest rank needs in the worse pass, as the summary states it; and which rank and pass that is
 * (the first, of equals). It is known once there are slots. */
typedef struct memory_peak {
    uint64_t bytes;
    uint32_t rank;
    fcp_pass pass;
} memory_peak;
memory_peak lower_memory_peak(const planning *x, const fcp_problem *facts);
/* The same with what the model keeps of the tokens that a rank holds between layers (program.linear_memory), which is
 * not attention's and not in the summary. FCP_E_NO_MEMORY. */
fcp_code lower_memory_need(planning *x, const fcp_problem *facts, memory_peak *out);
/* mask_data.c: a copy of `count` rows of `size` bytes, or NULL: no memory; and the plan's score, sinks, fields, tables
 * and slices. */
void *lower_copy(arena *memory, const void *rows, size_t count, size_t size);
fcp_code lower_data(planning *x, fcp_plan *plan);
#endif
