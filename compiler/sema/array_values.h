/* array_values.h: reads the values of fields and tables. */
#ifndef FCPC_SEMA_ARRAY_VALUES_H
#define FCPC_SEMA_ARRAY_VALUES_H
#include "compiler/sema/sema.h"

/* Both read from a list or from file(...), and fill record, data and file of *out, in the program's memory. `keep`
 * false: the values are only checked, and data stays NULL. `what` names the array in messages: "table 'bias'". False:
 * reported. */

/* A table: numbers in one or two dimensions. If there are more than `most`, *out says how many, and has no data. */
bool sema_read_table(sema *s, const char *what, const expr *value, uint64_t most, bool keep, program_array *out);
/* A field of `tokens` integers; ANY_TOKENS: of any number but 0. The kind and the declared range are set in *out
 * before. */
#define ANY_TOKENS UINT64_MAX
bool sema_read_field(sema *s, const char *what, const expr *value, uint64_t tokens, bool keep, program_array *out);

/* run(field): for each position, where the run of equal values begins that holds it. A program without lengths is taken
 * as one sequence. False: no memory, reported. */
bool sema_read_runs(sema *s, const program_array *of, program_array *out);
#endif
