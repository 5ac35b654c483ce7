/* trace.h: writes a timeline as a trace file, which Perfetto (ui.perfetto.dev) and chrome://tracing open. */
#ifndef FCPC_TRACE_TRACE_H
#define FCPC_TRACE_TRACE_H
#include "compiler/base/text.h"
#include "compiler/trace/timeline.h"

/* Adds the trace as JSON. Each rank is a process with the threads compute (1), net (2) and local (3), in predicted and
 * measured traces alike. The backward pass follows the forward pass. FCP_E_NO_MEMORY. Cost: linear in what is written.
 */
fcp_code trace_json(const timeline *t, text *out, fcp_error *err);
#endif
