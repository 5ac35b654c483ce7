/* terminal.h: draws pictures of a plan: its mask, who owns which tokens, and the pipeline over time.
 *
 * Pictures are made from the plan's tables alone. So a plan that is read from a file gives the same bytes as one that
 * was just made. The plan must have passed fcp_plan_check. The functions append the picture to a text. Their only error
 * is FCP_E_NO_MEMORY; the text is then of no use.
 */
#ifndef FCPC_SHOW_TERMINAL_H
#define FCPC_SHOW_TERMINAL_H
#include "compiler/base/text.h"
#include "compiler/fcpc.h"
#include "runtime/fcp.h"

/* Lines for a terminal, `options->width` columns wide: 64 to 160. The options of a part are ignored. */
fcp_code show_text(const fcp_plan *plan, const fcpc_show_options *options, text *out, fcp_error *err);
/* An SVG image. Its size is bounded: where there are more than 64 ranks, stages, or cells on a side, several are
 * drawn as one. */
fcp_code show_svg(const fcp_plan *plan, text *out, fcp_error *err);
#endif
