/* terminal.h: pictures of a plan: the mask by blocks, who owns what, the pipeline over time.
 *
 * All of it comes from the plan's tables, so that a loaded plan and a fresh one draw the same bytes. The plan must have
 * passed fcp_plan_check. Nothing is written when the result is not FCP_OK. Errors: FCP_E_NO_MEMORY.
 */
#ifndef FCPC_SHOW_TERMINAL_H
#define FCPC_SHOW_TERMINAL_H
#include "compiler/base/text.h"
#include "runtime/plan/plan.h"

typedef struct show_options {
    uint32_t width; /* columns of the terminal; 0: 80. Pictures use 64 to 160 */
    bool colour;    /* ANSI escapes; the picture says the same without them */
    bool unicode;   /* shades and bars; else ASCII only */
} show_options;

/* For a terminal. `options` NULL: 80 columns, ASCII, no colour. */
fcp_code show_text(const fcp_plan *plan, const show_options *options, text *out, fcp_error *err);
/* A standalone SVG image, of bounded size: more than 64 ranks, stages or cells a side are drawn in groups. */
fcp_code show_svg(const fcp_plan *plan, text *out, fcp_error *err);
/* The same image in a self-contained HTML page, with the summary and the program. */
fcp_code show_html(const fcp_plan *plan, text *out, fcp_error *err);
#endif
