/* dump_passes.h: prints what passes made, for `fcpc FILE --dump traffic,slots`. */
#ifndef FCPC_DUMP_PASSES_H
#define FCPC_DUMP_PASSES_H
#include "compiler/planning/planning.h"
#include "runtime/plan/dump.h"

/* Reads "traffic,slots" into bits. FCP_E_USAGE: a name is unknown; the message lists all. */
fcp_code dump_select(const char *names, unsigned *out_passes, fcp_error *err);

/* Prints the chosen passes in order, a record a line: a word, a number, and name=value pairs; '-' is none. Passes that
 * have not run are left out. */
void dump_planning(const planning *x, unsigned passes, fcp_emit *emit, void *context);
#endif
