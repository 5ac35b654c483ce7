/* page.h: one self-contained HTML page about one plan, or about several side by side: the masks, who owns which tokens,
 * what each rank does when, and how time depends on settings. */
#ifndef FCPC_PAGE_PAGE_H
#define FCPC_PAGE_PAGE_H
#include "compiler/base/json.h"
#include "compiler/simulate/simulate.h"

enum { PAGE_PLANS = 8 }; /* so many plans are drawn whole, each in at most a few hundred kilobytes */

/* The data of a page under way. Zero-initialised; ended by page_free. */
typedef struct page {
    json data;
    uint32_t plans;
    uint64_t intervals;   /* of all timelines */
    uint8_t problem[32]; /* of the first plan: a hash of what its mask and batch are made of */
    char title[200];
} page;

/* Adds a plan. name: what distinguishes it from the others ("strategy=ring"), or "". result: what the profile predicts
 * of it with the options `how` (NULL: none); profile NULL: nothing was predicted, and `why` says why not. ranks: those
 * whose timeline is drawn, as trace_ranks_read takes them. FCP_E_NO_MEMORY, FCP_E_USAGE (ranks). Cost: linear in the
 * plan. */
fcp_code page_add(page *p, const char *name, const fcp_plan *plan, const sim_profile *profile, const char *why,
                  const sim_options *how, const sim_result *result, const char *ranks, fcp_error *err);
/* Writes the page. points: JSON, "[...]", of all candidates of a sweep, as `fcpc sim --json` has them; NULL: there are
 * none. */
fcp_code page_end(page *p, const char *points, text *out, fcp_error *err);
void page_free(page *p);
#endif
