/* dump.h: writes a plan as text or as JSON. */
#ifndef FCP_PLAN_DUMP_H
#define FCP_PLAN_DUMP_H
#include "runtime/fcp.h"

/* Writes the plan as text, one record a line, so that two plans can be compared line by line; or as one JSON object.
 * `emit` is called with one chunk of text after the other. */
typedef void fcp_emit(void *context, const char *text, size_t size);
fcp_code fcp_plan_dump(const fcp_plan *plan, bool json, fcp_emit *emit, void *context, fcp_error *err);
#endif
