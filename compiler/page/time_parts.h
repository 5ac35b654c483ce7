/* time_parts.h: what a page says about time: the lanes of some ranks, and the share of all ranks. */
#ifndef FCPC_PAGE_TIME_PARTS_H
#define FCPC_PAGE_TIME_PARTS_H
#include "compiler/page/page.h"
#include "compiler/trace/timeline.h"

/* Adds "tick", about a PAGE_TICKS-th of the makespan in picoseconds, and "lanes": for each rank drawn its intervals in
 * the pass, as lists of numbers:
 *   compute      begin, length, instruction kind, stage, a, b
 *                waits: a = round (or -1), b = reason; attend: a = tiles, b = pairs;
 *                others: a = block (or -1), b = bytes
 *   net, local   begin, length, 0 to send and 1 to receive, class, stage, round, peer, block, bytes, waited
 * Times are in ticks. A begin counts from the end of the interval before it in the list; it may be negative. */
enum { PAGE_TICKS = 1000000 };
void page_lanes_add(json *j, const timeline *t, fcp_pass pass);

/* How busy all ranks are over time: for each row (one rank, or several) and each of PAGE_BINS equal parts of the
 * makespan, a share of the time in each lane. */
enum { PAGE_BINS = 160, PAGE_ROWS = 128 };
typedef struct page_heat {
    uint64_t makespan, *busy; /* [(lane * rows + row) * PAGE_BINS + bin], picoseconds of all ranks of the row */
    uint32_t rows, per, ranks;
} page_heat;
fcp_code page_heat_make(const fcp_plan *plan, const sim_profile *profile, const sim_options *how,
                        const sim_result *result, arena *memory, page_heat out[FCP_PASSES], fcp_error *err);
/* Adds "heat": for each lane a string with a sign for each row and bin: "A" is 0, then the digits of base 64 up to
 * "/". */
void page_heat_add(json *j, const page_heat *heat);
#endif
