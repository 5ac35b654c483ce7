/* terminal.h: pictures of a plan: the mask, who owns which tokens, and the pipeline over time.
 *
 * Pictures are made from the plan's tables alone, so a plan from a file gives the same bytes as one just made. The
 * plan must have passed fcp_plan_check. The functions add the picture to a text. They fail with FCP_E_NO_MEMORY only,
 * and the text is then of no use.
 */
#ifndef FCPC_SHOW_TERMINAL_H
#define FCPC_SHOW_TERMINAL_H
#include "compiler/base/text.h"
#include "runtime/fcp.h"

typedef struct show_options {
    uint32_t width; /* of the terminal, in columns; 0: 80. A picture takes 64 to 160 of them */
    bool colour;    /* with ANSI escapes; the picture says the same without them */
    bool unicode;   /* with shades and bars beyond ASCII */
} show_options;

/* Lines for a terminal. `options` NULL: 80 columns, ASCII, no colour. */
fcp_code show_text(const fcp_plan *plan, const show_options *options, text *out, fcp_error *err);
/* An SVG image. Its size is bounded: where there are more than 64 ranks, stages, or cells on a side, several are
 * drawn as one. */
fcp_code show_svg(const fcp_plan *plan, text *out, fcp_error *err);
#endif
