/* request.h: one line of `fcpc serve`: a batch to plan, as a JSON object, and its answer. */
#ifndef FCPC_CLI_REQUEST_H
#define FCPC_CLI_REQUEST_H
#include "compiler/base/text.h"
#include "runtime/fcp.h"

/* Plans what the line asks for, and adds the answer, a line too, to *out. What is wrong with the request becomes its
 * answer. Returns whether the request was done. A mask that takes longer than max_seconds (0: no limit), or than the
 * request itself allows, is refused with E405. Another thread may set *stop: then planning ends with E013. */
bool cmd_answer(const char *line, size_t size, double max_seconds, const volatile int *stop, text *out);
/* The answer to a line that is not read: *err says why. */
void cmd_refuse(const fcp_error *err, text *out);
#endif
