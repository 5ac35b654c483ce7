/* request.h: one line of `fcpc serve`: a batch to plan, as a JSON object, and its answer. */
#ifndef FCPC_CLI_REQUEST_H
#define FCPC_CLI_REQUEST_H
#include "compiler/base/text.h"

/* Plans what the line asks for, and adds the answer, a line too, to *out. What is wrong with the request becomes its
 * answer. Returns whether the request was done. Another thread may set *stop: then planning ends with E013. */
bool cmd_answer(const char *line, size_t size, const volatile int *stop, text *out);
/* The answer to a line that is longer than a request may be, or when there is no memory for one. */
void cmd_answer_too_long(size_t most, text *out);
#endif
