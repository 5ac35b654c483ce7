/* page.h: makes a self-contained HTML page about one plan, or about several side by side: the masks, who owns which
 * tokens, what each rank does when, and how time depends on settings. */
#ifndef FCPC_PAGE_PAGE_H
#define FCPC_PAGE_PAGE_H
#include "compiler/base/json.h"
#include "compiler/trace/timeline.h"

enum { PAGE_PLANS = 8 }; /* so many plans are drawn whole, each in at most a few hundred kilobytes */

/* A page that is being made. It begins as zeros and ends with page_free. */
typedef struct page {
    json data;
    uint32_t plans;
    uint64_t intervals;   /* of all timelines */
    uint8_t problem[32]; /* of the first plan: a hash of what its mask and batch are made of */
    bool asks; /* set before the first plan: no pair is explained, which takes longest: the page's host is asked */
    char title[200];
} page;

/* Adds a plan.
 *   name     what distinguishes it from the others ("strategy=ring"), or ""
 *   profile  NULL if nothing was predicted; `why` then says why not
 *   result   what the profile predicts with the options `how` (NULL: none)
 *   ranks    those whose timeline is drawn, see trace_ranks_read
 * FCP_E_NO_MEMORY, FCP_E_USAGE (ranks). Cost: linear in the plan. */
fcp_code page_add(page *p, const char *name, const fcp_plan *plan, const sim_profile *profile, const char *why,
                  const sim_options *how, const sim_result *result, const char *ranks, fcp_error *err);
/* Adds a plan with what a profile predicts: the one that is asked for, a name or a file; NULL: that of its GPU, or
 * without times if there is none. */
fcp_code page_add_predicted(page *p, const fcp_plan *plan, const char *profile, const char *ranks, fcp_error *err);
/* Ends the data and returns it as JSON, which belongs to the page; NULL: out of memory. points: as for page_end. */
const char *page_data_end(page *p, const char *points);
/* Writes the page. points: all candidates of a sweep as a JSON array, with the members that `fcpc sim --json` has;
 * NULL: there is no sweep. */
fcp_code page_end(page *p, const char *points, text *out, fcp_error *err);
void page_free(page *p);

/* --- what a page says about time (time_parts.c) ------------------------------------------------------------------- */

extern const char page_digits[]; /* of base 64 */

/* Adds two members:
 *   "tick"    the unit of all times here: a PAGE_TICKS-th of the makespan in picoseconds, rounded up
 *   "lanes"   for each rank that is drawn its intervals in the pass, as lists of numbers. An interval is:
 *
 *     of compute       begin, length, instruction kind, stage, a, b
 *                      waits: a = round (or -1), b = reason; attend: a = tiles, b = pairs;
 *                      others: a = block (or -1), b = bytes
 *     of net, local    begin, length, 0 to send and 1 to receive, class, stage, round, peer, block, bytes, waited
 *
 * A begin counts from the end of the interval before it in the list, and may be negative. Example: intervals from 100
 * to 150 and from 160 to 190 have begin and length 100, 50 and 10, 30. */
enum { PAGE_TICKS = 1000000 };
void page_lanes_add(json *j, const timeline *t, fcp_pass pass);

/* How busy all ranks are over time. The makespan is divided into PAGE_BINS equal parts. For each of them, each lane and
 * each row (one rank, or several) it has the time in which the lane is busy. */
enum { PAGE_BINS = 160, PAGE_ROWS = 128 };
typedef struct page_heat {
    uint64_t makespan, *busy; /* [(lane * rows + row) * PAGE_BINS + bin], picoseconds of all ranks of the row */
    uint32_t rows, per, ranks;
} page_heat;
fcp_code page_heat_make(const fcp_plan *plan, const sim_profile *profile, const sim_options *how,
                        const sim_result *result, arena *memory, page_heat out[FCP_PASSES], fcp_error *err);
/* Adds "heat": for each lane a string with one character for each row and bin, which says what part of the time the
 * lane is busy: a digit of base 64, from "A" for never to "/" for all the time. */
void page_heat_add(json *j, const page_heat *heat);
#endif
